"""Type 3 at points that JAX traces: one walk between positions and frequencies, on a grid of static size.

    s . x = (s - s0) . (x - x0) + s0 . x + (s - s0) . x0        modulo 1, in fixed-point numbers
    u = (x - x0) / cell + G / 2,   k = (s - s0) cell            cell = m 2^-t, m an integer of some bits

Middles x0 and s0 have 24 bits, so all of this is exact: errors do not grow with s . x. The grid has G cells for a bound
of the products of half-widths; beyond it all sums are NaN. Derivatives are sums of the same kind:

    d X_j = sum_i (d c_i - i tau (s_j . d x_i + d s_j . x_i) c_i) exp(-i tau s_j . x_i)     tau = 2 pi for s in turns
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ...layout.in_flight import in_turn
from ...layout.layout import AnyMesh, Layout, line_shape, mapped_axes, resized
from ...layout.placement import reshard
from ...numerics import phases
from ...numerics.dtypes import real_dtype
from ...numerics.phases import Limbs
from ...numerics.split_complex import scaled
from ...operators.transform import fast_length
from ...plans.execute import tried, walked
from ...steps.base import Step
from ...walks.walk import Walk
from ..grid.window import Window, polynomial, reciprocal, window
from ..planning import traced_walk
from ..points import Scattered
from ..post_transform import SIGMA, PostTransform
from ..problem import ScatteredProblem, cuts_along
from ..steps.point_step import Cells
from ..steps.traced_points import RingGrid

BITS, LEAST_BITS = 15, 4  # of m, with which cells of a grid are counted in 31 bits
MANTISSA = 24  # bits of a middle


@dataclasses.dataclass(frozen=True, eq=False)
class WaveSums:
    """A walk from values at positions to sums at frequencies."""

    walk: Walk
    mesh: AnyMesh | None
    dtype: np.dtype
    unit: str  # of the frequencies
    window: Window
    bits: int  # of m

    @property
    def real(self) -> np.dtype:
        return real_dtype(self.dtype)

    @property
    def ends(self) -> tuple[RingGrid, RingGrid]:
        """The first step, from values to cells, and the last, from cells to sums."""
        return cast(RingGrid, self.walk.steps[0]), cast(RingGrid, self.walk.steps[-1])

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.ends[0].cells)

    def stored(self, end: int, points: Array) -> Array:
        """Numbers (..., d) stored as values at positions (end 0) or frequencies (-1), dimension first."""
        step, layout = self.ends[end], self.walk.pairs[end][1]
        numbers: Any = step.operand(jnp.moveaxis(points, -1, 0).astype(self.real), layout, mapped_axes(self.mesh))
        spec: Any = step.operand_spec(numbers, layout)
        return reshard(numbers, self.mesh, spec)


@functools.lru_cache(maxsize=32)
def sums_for(values: Layout, positions: Scattered, problem: ScatteredProblem, products: tuple[float, ...]) -> WaveSums:
    """The sums for products of half-widths up to `products`; points are shapes alone."""
    d, one = len(products), window(problem.tol, SIGMA, len(products), problem.dtype)
    least = 4 * SIGMA * np.maximum(products, 1.0)
    bits = BITS - max(0, int(least.max()).bit_length() - BITS)
    if bits < LEAST_BITS:
        raise ValueError(
            f"the grid of type 3 would have {least.max():.0e} cells along a dimension: call outside of jit"
        )
    image = image_for(values, len(positions.shape), np.ceil(least * (1 + 2.0 ** (1 - bits))) + 2 * one.width + 2)
    dims = tuple(range(image.ndim - d, image.ndim))
    problem = problem._replace(start=image, dims=dims, origin="centre")
    there = traced_walk(problem)
    post = PostTransform(problem._replace(points=positions, values=values), image.shape[-d:], one, known=False)
    back = Walk(image, post(image)[1:]).transpose()
    first, last = _from_cells(back.steps[0], 0), _from_cells(there.steps[-1], 1)
    walk = Walk(back.start, (first, *back.steps[1:], *there.steps[:-1], last), there.scale, there.planes)
    if (machine := tried(walk, problem.machine, problem.dtype.itemsize)) is not problem.machine:
        return sums_for(values, positions, problem._replace(machine=machine), products)
    return WaveSums(walk, problem.mesh, problem.dtype, problem.points.unit, one, bits)


def _from_cells(step: Step, slot: int) -> RingGrid:
    return dataclasses.replace(cast(RingGrid, step), unit=None, slot=slot)


def image_for(values: Layout, ndim: int, cells: np.ndarray) -> Layout:
    """Layout of the grid of positions, batch first, cut by the points' axes."""
    lead, dims = values.ndim - ndim, tuple(range(len(cells)))
    grid = Layout(tuple(map(int, cells)), ((),) * len(cells))
    for cut in cuts_along(values, range(lead, values.ndim)):
        dim = min(dims, key=grid.parts.__getitem__)
        grid = grid.cut_by(dim, (*grid.cuts[dim], cut))
    return values.along(range(lead)) + resized(grid, dims, tuple(map(fast_length, grid.shape, grid.parts)))


@jax.custom_batching.custom_vmap
def ends(points: Array) -> Array:
    """The least and greatest coordinates (2, d); of a whole batch under `vmap`, to be concrete outside `jit`."""
    flat = points.reshape(-1, points.shape[-1])
    return jnp.stack([flat.min(0), flat.max(0)])


@ends.def_vmap
def _of_all(size: int, batched: list[bool], points: Array) -> tuple[Array, bool]:
    return ends(points), False


def middles(xp: Any, ends: Any) -> tuple[Any, Any]:
    """A middle of MANTISSA bits between the ends (2, d), and their distance from it."""
    low, high = ends
    middle = (low + (high - low) / 2).astype(np.float32).astype(low.dtype)
    return middle, xp.maximum(high - middle, middle - low)


PointOperands = tuple[Cells, Cells]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def at_points(sums: WaveSums, c: Array, x: Array, s: Array, operands: PointOperands) -> Array:
    return in_turn(_run, sums, c, operands)


def _change(sums: WaveSums, primals: Any, tangents: Any) -> Any:
    """One transform of the value and all x c, another of all changes of c and all dx c."""
    (c, x, s, operands), (dc, dx, ds, _) = primals, tangents
    every = jax.vmap(lambda c: at_points(sums, c, x, s, operands))
    y, changes = None, []
    if not isinstance(ds, SymbolicZero):
        both = every(jnp.concatenate([c[None], _times(sums, x, c)]))
        y, changes = both[0], [_summed(sums, ds, both[1:])]
    moved = [] if isinstance(dc, SymbolicZero) else [dc[None]]
    if not isinstance(dx, SymbolicZero):
        by = every(jnp.concatenate([*moved, _times(sums, dx, c)]))
        changes += [_summed(sums, s, by[len(moved) :]), *by[: len(moved)]]
    elif moved:
        changes.append(at_points(sums, dc, x, s, operands))
    y = at_points(sums, c, x, s, operands) if y is None else y
    return y, functools.reduce(jnp.add, changes)


at_points.defjvp(_change, symbolic_zeros=True)


@functools.partial(jax.jit, static_argnums=0)
def _times(sums: WaveSums, points: Array, values: Array) -> Array:
    numbers = sums.stored(0, points)
    return scaled(values[None], jnp.expand_dims(numbers, range(1, 2 + values.ndim - numbers.ndim)))


@functools.partial(jax.jit, static_argnums=0)
def _summed(sums: WaveSums, points: Array, values: Array) -> Array:
    """-i tau s . values, for values by coordinate of frequencies s."""
    numbers = sums.stored(-1, points)
    turn = 2 * math.pi if sums.unit == "turns" else 1.0
    weights = lax.complex(jnp.zeros_like(numbers), -turn * numbers)
    return jnp.sum(jnp.expand_dims(weights, range(1, 1 + values.ndim - numbers.ndim)) * values, 0)


@functools.partial(jax.jit, static_argnums=0)
def _run(sums: WaveSums, c: Array, operands: PointOperands) -> Array:
    (y,) = walked((c,), sums.walk, sums.mesh, False, operands)
    return y


@functools.partial(jax.jit, static_argnums=0)
def operands_of(sums: WaveSums, x: Array, s: Array, ends: Array) -> PointOperands:
    """`ends` (2, 2, d) are those of positions and frequencies in turns."""
    scale = _scale(sums, ends)
    return _sources(sums, jnp.moveaxis(x, -1, 0), scale), _targets(sums, jnp.moveaxis(s, -1, 0), scale)


class Rescaling(NamedTuple):
    """Along each dimension the middles, and cell = m 2^-t; `fits` if the grid is large enough."""

    x0: Array
    s0: Array
    m: Array
    t: Array
    fits: Array

    def along(self, ndim: int) -> "Rescaling":
        """Fields of shape (d, 1, ...), for coordinates (d, ...)."""
        x0, s0, m, t = (one.reshape(line_shape(0, ndim)) for one in self[:-1])
        return Rescaling(x0, s0, m, t, self.fits)


def _scale(sums: WaveSums, ends: Array) -> Rescaling:
    (x0, extent), (s0, band) = (middles(jnp, both) for both in ends)
    extent = jnp.where(extent > 0, extent, jnp.where(band > 0, 1 / jnp.where(band > 0, band, 1), 1))
    band = jnp.maximum(band, 1 / extent)  # a grid of few cells is no smaller than its window
    mantissa, power = jnp.frexp(1 / (2 * sums.window.sigma * band))
    m, t = jnp.floor(mantissa * 2.0**sums.bits), sums.bits - power
    cells = np.array(sums.grid, band.dtype) - (2 * sums.window.width + 2)
    return Rescaling(x0, s0, m.astype(jnp.uint32), t, jnp.all(2 * extent <= cells * jnp.ldexp(m, -t)))


def _sources(sums: WaveSums, x: Array, scale: Rescaling) -> Cells:
    """Positions (d, ...) in cells, and the factors exp(-2 pi i s0 . x)."""
    one, limbs = scale.along(x.ndim), phases.limbs_for(sums.real)
    finite = jnp.isfinite(x).all(0)
    x = jnp.where(finite, x, one.x0.astype(x.dtype))
    whole = functools.partial(_fixed, "turns", limbs=limbs)
    apart = _apart(whole(x, one.t - 32), whole(one.x0, one.t - 32))
    middle = one.m * np.array([n // 2 for n in sums.grid], np.uint32).reshape(line_shape(0, x.ndim))
    place = _divided((apart[0] + middle, *apart[1:]), one.m)
    return Cells(place, _circle(sums, _multiple(one.s0, whole, x), finite & scale.fits))


def _targets(sums: WaveSums, s: Array, scale: Rescaling) -> Cells:
    """Frequencies (d, ...) in cells, and the factors exp(-2 pi i (s - s0) . x0) / phihat(k)."""
    step, one = sums.ends[-1], scale.along(s.ndim)
    finite, limbs = jnp.isfinite(s).all(0), phases.limbs_for(sums.real)
    s = jnp.where(finite, s, 0)

    def apart(s: Array, power: Array) -> Limbs:
        return _apart(_fixed(sums.unit, s, power, limbs), _fixed("turns", one.s0, power, limbs))

    k = phases.times(one.m, apart(s, -one.t))
    cells = np.array(step.cells, np.uint32).reshape(line_shape(0, s.ndim))
    place = phases.times(cells, (jnp.zeros_like(k[0]), *k))
    xi = k[0].astype(jnp.int32).astype(sums.real) * sums.real.type(2.0**-32) + k[1].astype(sums.real) * 2.0**-64
    factor = jnp.prod(polynomial(reciprocal(sums.window), 2 * jnp.square(2 * sums.window.sigma * xi) - 1), 0)[None]
    re, im = _circle(sums, _multiple(one.x0, apart, s), finite)
    return Cells(place, (re * factor, im * factor))


def _fixed(unit: str, values: Array, power: Array, limbs: int) -> Limbs:
    scaled = values * jnp.ldexp(jnp.ones((), values.dtype), power)
    return (phases.of_turns if unit == "turns" else phases.of_radians)(scaled, limbs)


def _apart(a: Limbs, b: Limbs) -> Limbs:
    return phases.add(a, tuple(jnp.broadcast_to(limb, a[0].shape) for limb in phases.negative(b)))


def _multiple(middle: Array, fixed: Any, values: Array) -> Limbs:
    """middle values modulo 1: an integer times the values over a power of two."""
    mantissa, power = jnp.frexp(jnp.abs(middle))
    product = phases.times((mantissa * 2.0**MANTISSA).astype(jnp.uint32), fixed(values, power - MANTISSA))
    return tuple(jnp.where(middle < 0, *pair) for pair in zip(phases.negative(product), product, strict=True))


def _circle(sums: WaveSums, turns: Limbs, valid: Array) -> tuple[Array, Array]:
    """exp(-2 pi i sum over dimensions of turns), (1, ...), or NaN."""
    total = functools.reduce(phases.add, (tuple(limb[j] for limb in turns) for j in range(len(turns[0]))))
    re, im = phases.circle(total, -1, sums.real)
    return jnp.where(valid, re, jnp.nan)[None], im[None]


def _divided(limbs: Limbs, by: Array) -> Limbs:
    """The quotient by an integer below 2^16, digit by digit."""
    rest, quotient = limbs[0] * np.uint32(0), []
    for limb in limbs:
        for digit in (limb >> np.uint32(16), limb & np.uint32(0xFFFF)):
            digits = rest << np.uint32(16) | digit
            quotient.append(lax.div(digits, jnp.broadcast_to(by, digits.shape)))
            rest = digits - quotient[-1] * by
    return tuple(high << np.uint32(16) | low for high, low in zip(quotient[::2], quotient[1::2], strict=True))
