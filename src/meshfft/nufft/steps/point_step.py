"""Base of steps between an array and values at scattered points: layouts, directions and coordinates.

    block (batch, along)  <->  values (batch, points)
    V_m[j, n] = r_jm^-n exp(sign 2 pi i k_jm n)  rows of Vandermonde matrices, k in fixed-point turns; r is mostly 1
    u = G k mod G                                the place on a grid of G cells: integer cell, and offset

The values are cut by the mesh axes that cut the dimensions `along`; batch dimensions are first. Invariant: a multiple
n k is exact modulo a turn. Phases of a coordinate that is not finite are NaN.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from ...layout.elements import cleared
from ...layout.layout import Cuts, Layout, shift
from ...layout.placement import local_slice
from ...numerics.phases import Limbs
from ...numerics.split_complex import B, Block, Planes, in_complex
from ...operators.matrices import Logarithm, Samples, limbs_of
from ...steps.base import Takes, names

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class TakesTables(Takes):
    """A step with an operand, whose transpose has the same class. Abstract."""

    _: dataclasses.KW_ONLY
    transposed: bool = False
    slot: int | None = 0
    dims: ClassVar[tuple[int, ...]] = ()

    def transpose(self, layout: Layout) -> Self:
        return dataclasses.replace(self, transposed=not self.transposed)


@dataclasses.dataclass(frozen=True)
class PointStep(TakesTables):
    """Values at points from an array, or with `transposed` the reverse. Abstract."""

    along: tuple[int, ...]  # of the array, one for each coordinate
    grid: Layout  # of these alone: image samples, or cells of a fine grid with halos
    points: Layout  # of the values, without batch dimensions
    _: dataclasses.KW_ONLY
    sign: int = -1

    def after(self, layout: Layout) -> Layout:
        return self.ends(layout)[0 if self.transposed else 1]

    def ends(self, layout: Layout) -> tuple[Layout, Layout]:
        """Layouts of array and values; one of them is `layout`."""
        if not self.transposed:
            return layout, layout.without(self.along) + self.points
        many = layout.ndim - self.points.ndim
        array = layout.along(range(many))
        for dim, size, cuts in sorted(zip(self.along, self.grid.shape, self.grid.cuts, strict=True)):
            array = array.insert(dim, size, cuts)
        return array, layout

    def batch(self, layout: Layout) -> int:
        return math.prod(self.ends(layout)[1].block[: -self.points.ndim])

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout, operand=operand), block)

    def _apply(self, block: Array, layout: Layout, operand: Any) -> Array:
        raise NotImplementedError

    def named(self, layout: Layout, how: str) -> str:
        what = "spread" if self.transposed else "interpolate"
        return f"{what} {names(self.along, self.ends(layout)[0])} ({how})"

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for axes in self.grid.axes for axis in axes)

    def conjugate(self) -> Self:
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> Self:
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))


@dataclasses.dataclass(frozen=True)
class CoordinateStep(PointStep):
    """A step whose operand is the points' coordinates, stored as values. Abstract."""

    _: dataclasses.KW_ONLY
    unit: str | None = None  # "turns" or "radians" of float coordinates; None for fixed-point turns

    @property
    def linear(self) -> bool:
        """False for float coordinates: the step is not linear in them."""
        return self.unit is None

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        points = self.points

        def stored(leaf: Array | np.ndarray) -> Array | np.ndarray:
            for dim, (size, extent) in enumerate(zip(points.shape, points.storage, strict=True)):
                if size != extent:
                    at = np.minimum(points.positions(dim), size - 1)
                    leaf = (np if isinstance(leaf, np.ndarray) else jnp).take(leaf, at, dim + 1)
                leaf = local_slice(leaf, dim + 1, points.cuts[dim], mapped)
            return leaf

        return jax.tree.map(stored, given)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return jax.tree.map(lambda leaf: PartitionSpec(None, *self.points.spec), operand)

    def clear_points(self, block: B, values: Layout) -> B:
        return clear(block, values, range(values.ndim - self.points.ndim, values.ndim))


class Cells(NamedTuple):
    """Points of type 3, in cells, and factors of their values; dimension first."""

    place: Limbs  # (d, ...), whole cells first
    factor: Planes  # (1, ...)


class Coordinates(NamedTuple):
    limbs: Limbs
    lost: Array  # NaN if a coordinate is not finite, else 0
    radius: Limbs | None = None  # logarithms to base 2; None on the unit circle

    @property
    def size(self) -> int:
        return int(self.lost.shape[0])

    def phases(self, sign: int, dim: int, start: Array | int, size: int) -> Planes:
        """V[point, n] of one dimension for `size` positions n from `start`."""
        n, matrix = start + jnp.arange(size, dtype=jnp.int32), Samples(self.size, size, conjugated=sign > 0)
        along = jax.tree.map(lambda limb: limb[dim], Logarithm(self.limbs, self.radius))
        planes = matrix.block(along, jnp.arange(self.size), n, self.lost.dtype)
        return tuple(part + self.lost[:, None] for part in planes)

    def part(self, start: Array | int, size: int) -> "Coordinates":
        return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size, x.ndim - 1), self)

    def in_chunks(self, size: int) -> "Coordinates":
        """Chunks of `size` points along a new first dimension, padded."""
        short = -self.size % size

        def cut(x: Array) -> Array:
            filled = jnp.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, short)])
            return jnp.moveaxis(filled.reshape(*x.shape[:-1], -1, size), -2, 0)

        return jax.tree.map(cut, self)


def fixed(operand: object, unit: str | None, dims: int, real: np.dtype) -> Coordinates:
    """Coordinates from floats (dims, ...) in `unit`, or from limbs if it is None."""
    angle, radius = jax.tree.map(lambda leaf: leaf.reshape(dims, -1), operand)
    if unit is None:
        return Coordinates(angle, jnp.zeros(angle[0].shape[1:], real), radius)
    finite = functools.reduce(jnp.logical_and, map(jnp.isfinite, jax.tree.leaves((angle, radius))))
    shown = jax.tree.map(lambda leaf: jnp.where(finite, leaf, jnp.zeros((), leaf.dtype)), Logarithm(angle, radius))
    limbs = lax.map(lambda one: limbs_of(one, unit, real), shown)  # a loop: XLA would repeat all of it at each use
    lost = jnp.full((), jnp.nan, real)
    return Coordinates(limbs.angle, jnp.where(finite.all(0), jnp.zeros((), real), lost), limbs.radius)


def located(place: Limbs, cells: Array | int, width: int, real: np.dtype) -> tuple[Array, Array]:
    """Lowest cell of a window around a place on a ring of cells, and the offset."""
    whole, high, *low = place
    ahead = high ^ np.uint32(2**31) if width % 2 == 0 else high
    nearest = ahead.astype(jnp.int32)  # from the cell's middle for even windows, from its lower end for odd ones
    offset = nearest.astype(real) * real.type(2.0**-32)
    for j, limb in enumerate(low, 2):
        offset = offset + limb.astype(real) * real.type(2.0 ** (-32 * j))
    up = 1 if width % 2 == 0 else (high >> 31).astype(jnp.int32)
    lowest = whole.astype(jnp.int32) - width // 2 + up
    return jnp.where(lowest < 0, lowest + cells, lowest), offset


def clear(block: B, layout: Layout, dims: Iterable[int]) -> B:
    for dim in dims:
        if layout.storage[dim] != layout.shape[dim]:
            block = cleared(block, layout, dim, layout.shape[dim])
    return block


def grid_last(block: Array, along: tuple[int, ...]) -> Array:
    block = jnp.moveaxis(block, along, range(-len(along), 0))
    return block.reshape(-1, *block.shape[-len(along) :])


def grid_back(block: Array, layout: Layout, along: tuple[int, ...]) -> Array:
    block = block.reshape(*layout.without(along).block, *layout.along(along).block)
    return jnp.moveaxis(block, range(-len(along), 0), along)


def own_tables(given: T, cuts: Cuts, mapped: frozenset[str]) -> T:
    tables: T = jax.tree.map(lambda leaf: local_slice(leaf, 0, cuts, mapped), given)
    return tables


def table_specs(operand: object, axes: tuple[str, ...]) -> Any:
    return jax.tree.map(lambda leaf: PartitionSpec(axes) if axes else PartitionSpec(), operand)
