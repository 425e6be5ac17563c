"""Type 3: sums at scattered frequencies of values at scattered positions.

    c_j = sum_i b_i exp(-2 pi i s_j . x_i)

Values are spread to a grid of positions, which is the image of a type 2 transform to the frequencies. With |x - x0| <=
X
and |s - s0| <= S along a dimension, the grid has 4 sigma X S cells of width 1 / (2 sigma S), plus a window: then the
window's transform is far from 0 at all frequencies. Float64 factors for each value and sum complete the formula.
"""

import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from ..layout.layout import Layout, Spec, even_cuts
from ..layout.memory import check_blocks
from ..layout.padded_array import AnyArray, Transformed
from ..operators.operands import DeviceTables
from ..plans.execute import moved, tried
from ..plans.plan import Plan
from ..plans.request import on_arrays, read
from ..steps.base import at_slot, slot_of
from ..walks.walk import Walk
from .grid.binning import Tables
from .grid.window import LEAST_TOL, Window, window
from .plan import ScatteredPlan
from .planning import ring_plan, scattered_plan_for
from .points import Scattered
from .post_transform import MOST_CELLS, SIGMA, PostTransform, fast_length
from .problem import ScatteredProblem, plain_number, products
from .steps.known_points import exchange_of
from .steps.point_step import sub_layout


@on_arrays
def nufftn_type3(
    c: AnyArray,
    positions: ArrayLike,
    frequencies: Scattered,
    *,
    tol: float = 1e-5,
    precision: str | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Transformed:
    """Sums of waves from scattered positions at scattered frequencies: the
    nonuniform FFT of type 3.

        X_j = sum_i c_i exp(-2 pi i s_j . x_i)

    Args:
        c: values at the positions: their shape, with any batch dimensions
            before it.
        positions: x, of shape (..., d), in any unit of length.
        frequencies: s, in cycles (`Scattered.turns`) or radians
            (`Scattered.radians`) for each unit of length.
        tol: as `nufftn`, from 2e-6 on, and from 2e-12 on in complex128: the
            errors of two windows add up.
        precision: as `nufftn`.
        spec, out_spec: how c is cut where JAX hides that, and how the sums are
            to be.

    Returns:
        The sums, batch dimensions first and then the shape of the frequencies,
        cut by the mesh axes that cut the positions' dimensions of c.

    Raises:
        ValueError, TypeError: values of another shape than the positions,
            another number of coordinates, traced points.

    Costs a grid of 4 sigma^2 X S cells along each dimension with |x - x0| <= X
    and |s - s0| <= S, and windows twice. Differentiable in c.

    Source: Lee and Greengard, "The type 3 nonuniform FFT and its
    applications", JCP 2005; as `nufftn`.

    >>> s = mf.Scattered.turns([[1.0], [0.5]])
    >>> y = mf.nufftn_type3(np.ones(2), [[0.0], [2.5]], s)
    >>> [f"{size:.3f}" for size in abs(y)]
    ['0.000', '1.414']
    """
    request = read(c, spec)
    setting = request.setting
    if not isinstance(frequencies, Scattered):
        raise TypeError(
            f"frequencies is a {type(frequencies).__name__}: say what they are, as mf.Scattered.turns(s) or .radians(s)"
        )
    lengths = Scattered.lengths(positions)
    for points, name in ((lengths, "positions"), (frequencies.settled, "frequencies")):
        if not points.known:
            raise ValueError(f"{name} are traced: the grid for them is made on the host; call outside of jit")
    if lengths.dims != frequencies.dims:
        raise ValueError(
            f"positions have {lengths.dims} coordinates, frequencies {frequencies.dims}: give one for each dimension"
        )
    start = setting.start
    if start.shape[-len(lengths.shape) :] != lengths.shape:
        raise ValueError(f"the values have shape {start.shape}, the positions {lengths.shape}: give one for each")
    dtype, dots = products(setting, precision)
    what = (setting.mesh, setting.machine, dtype, dots)
    if lengths.size == 0 or frequencies.size == 0:  # a sum of nothing, or at no frequency
        dims = tuple(range(start.ndim - len(lengths.shape), start.ndim))
        plan: Plan = ring_plan(ScatteredProblem(start, dims, _anyhow(frequencies, len(dims)), *what))
    else:
        problem = ScatteredProblem(start, (), frequencies.settled, *what, tol=plain_number(tol))
        plan = type3_plan(start, lengths, problem)
    for _, layout in plan.walk.pairs:
        check_blocks(layout, dtype.itemsize, setting.room, "the grid between positions and frequencies")
    y: Transformed = moved(plan.execute(request), out_spec)
    return y


def _anyhow(points: Scattered, dims: int) -> Scattered:
    """As many points in `dims` dimensions, anywhere."""
    return Scattered.turns(np.zeros((*points.shape, dims)))


class Scales(NamedTuple):
    """Midpoints of positions and frequencies along each dimension, and the grid between them."""

    x0: np.ndarray
    s0: np.ndarray
    cell: np.ndarray
    cells: np.ndarray  # least number of cells


def scales(positions: np.ndarray, frequencies: np.ndarray, one: Window) -> Scales:
    (x0, extent), (s0, band) = (((v.max(0) + v.min(0)) / 2, np.ptp(v, axis=0) / 2) for v in (positions, frequencies))
    extent = np.where(extent > 0, extent, np.where(band > 0, 1 / np.where(band > 0, band, 1), 1.0))
    band = np.maximum(band, 1 / extent)  # a grid of few cells is no smaller than its window
    cell = 1 / (2 * one.sigma * band)
    for span, width, size in zip(2 * extent, 2 * band, cell, strict=True):
        if span / size > MOST_CELLS / 2:
            raise ValueError(
                f"positions span {span:g} and frequencies {width:g}: their grid of {span / size:.0e} cells is longer "
                "than 32 bits count; give fewer of them a call, that lie closer together"
            )
    return Scales(x0, s0, cell, np.ceil(2 * extent / cell).astype(int) + 2 * one.width + 2)


@functools.lru_cache(maxsize=32)
def type3_plan(values: Layout, positions: Scattered, problem: ScatteredProblem) -> Plan:
    """Plan from values at positions to sums at the frequencies of `problem`.

    `problem` has no image yet: its start is the layout of the values, whose mesh axes will cut the image.
    """
    d, tol = positions.dims, _half(problem)
    one = window(tol, SIGMA, d, problem.dtype)
    x, s = np.asarray(positions.coords).reshape(-1, d), _cycles(problem.points)
    x0, s0, cell, cells = scales(x, s, one)
    image = _image(values, len(positions.shape), cells)
    middle, dims = np.array(image.shape[-d:]) // 2, tuple(range(image.ndim - d, image.ndim))
    u, k = (x - x0) / cell + middle, (s - s0) * cell
    points = Scattered.turns(k.reshape(problem.points.coords.shape))
    there = scattered_plan_for(problem._replace(start=image, dims=dims, points=points, tol=tol))
    before = np.exp(-2j * np.pi * (x * s0 % 1).sum(1))
    behind = np.exp(2j * np.pi * ((k * middle - (s - s0) * x0) % 1).sum(1))
    for dim in range(d):
        behind = behind / one.transform(k[:, dim])
    plan = _joined(values, image, (u / image.shape[-d:], one, before), there, behind, problem)
    if (machine := tried(plan.walk, plan.machine, problem.dtype.itemsize)) is not plan.machine:
        return type3_plan(values, positions, problem._replace(machine=machine))
    return plan


def _joined(
    values: Layout,
    image: Layout,
    sources: tuple[np.ndarray, Window, np.ndarray],
    there: ScatteredPlan,
    behind: np.ndarray,
    problem: ScatteredProblem,
) -> Plan:
    turns, one, before = sources
    dims = tuple(range(image.ndim - turns.shape[1], image.ndim))
    given = problem._replace(start=image, dims=dims, points=Scattered.turns(turns), origin="centre", balance=False)
    post = PostTransform(given._replace(machine=there.machine), tuple(image.shape[d] for d in dims), one)
    placed = post.placed(image)
    walk = Walk(image, post.steps(image, placed.tables.cell.shape[1], int(placed.load.max()))[1:])
    in_slots, batch = sub_layout(walk.end, [walk.end.ndim - 1]), image.ndim - len(dims)
    points, how = sub_layout(values, range(batch, values.ndim)), (there.machine, problem.dtype.itemsize)
    last, routes = exchange_of(placed.order, walk.end, points, 1, *how)
    back = dataclasses.replace(walk, steps=(*walk.steps, last)).transpose()
    every = (_factored(placed.tables, placed.order, before), routes)
    held = [DeviceTables(one, problem.mesh, in_slots.axes[0]) for one in every]
    on = tuple(at_slot(step, 2 + (slot_of(step) or 0)) for step in there.walk.steps)
    first, *others = there.sources
    assert isinstance(first, DeviceTables)
    tables = DeviceTables(_factored(first.host, there.slots, behind), problem.mesh, there.placed_layout.axes[-1])
    whole = Walk(back.start, (*back.steps, *on), there.walk.scale, there.walk.planes)
    return Plan(*problem.parts(whole, (*held, tables, *others)))


def _factored(tables: Tables[np.ndarray], order: np.ndarray, factors: np.ndarray) -> Tables[np.ndarray]:
    phase = tables.phase.copy()
    phase.reshape(-1)[order] *= factors.astype(phase.dtype)
    return tables._replace(phase=phase)


def _half(problem: ScatteredProblem) -> float:
    """Half the tolerance, for each of two windows. Raises ValueError if it is invalid or too small."""
    name = problem.dtype.name
    if not isinstance(problem.tol, int | float) or not 0 < problem.tol < 1:
        raise ValueError(f"tol is {problem.tol!r}: give a relative error, such as 1e-6")
    if problem.tol < 2 * LEAST_TOL[name] * (1 - 1e-6):
        other = "precision='float64'" if name == "complex64" else "sums of NumPy"
        raise ValueError(
            f"tol={problem.tol:g} is below what {name} holds through the two windows of type 3: use tol >= "
            f"{2 * LEAST_TOL[name]:g}, or {other}"
        )
    return problem.tol / 2


def _cycles(points: Scattered) -> np.ndarray:
    """Frequencies (M, d) in turns per unit of position; they have no period."""
    flat = np.asarray(points.coords).reshape(-1, points.dims)
    return flat if points.unit == "turns" else flat / (2 * np.pi)


def _image(values: Layout, ndim: int, cells: np.ndarray) -> Layout:
    """Layout of the grid of positions, batch dimensions first, cut by the axes that cut the points."""
    lead = values.ndim - ndim
    by: list[list[tuple[str, int]]] = [[] for _ in cells]
    for cut in itertools.chain(*values.cuts[lead:]):
        min(by, key=lambda one: math.prod(parts for _, parts in one)).append(cut[:2])
    parts = [math.prod(size for _, size in one) for one in by]
    sizes = tuple(p * fast_length(-(-int(n) // p), 1, 1.0) for n, p in zip(cells, parts, strict=True))
    return sub_layout(values, range(lead)) + Layout(sizes, tuple(map(even_cuts, sizes, by)))
