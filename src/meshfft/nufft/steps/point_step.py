"""What steps between an array and values at scattered points share: both layouts, and both directions.

    block (batch, along)  <->  values (batch, points)

The values are cut by the mesh axes that cut the dimensions `along`; batch dimensions come first, in their order. A step
with `transposed` goes from the values to the array.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ...layout.layout import Cuts, Layout
from ...layout.placement import own
from ...steps.base import B, Step, cleared, shift

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class PointStep(Step):
    """A step between dimensions of an array and points. Abstract."""

    along: tuple[int, ...]  # dimensions of the array, one for each coordinate
    grid: Layout  # of these alone: samples of an image, or cells of a fine grid with its halos
    points: Layout  # of the values, without batch dimensions
    _: dataclasses.KW_ONLY
    sign: int = -1  # of the exponent of phases
    transposed: bool = False
    slot: int | None = 0  # which of the walk's operands has the points
    dims: ClassVar[tuple[int, ...]] = ()

    def after(self, layout: Layout) -> Layout:
        return self.ends(layout)[0 if self.transposed else 1]

    def ends(self, layout: Layout) -> tuple[Layout, Layout]:
        """The layouts of the array and of the values, one of which is `layout`."""
        if not self.transposed:
            return layout, sub_layout(layout, [d for d in range(layout.ndim) if d not in self.along]) + self.points
        many = layout.ndim - self.points.ndim
        array = Layout(layout.shape[:many], layout.cuts[:many])
        for dim, size, cuts in sorted(zip(self.along, self.grid.shape, self.grid.cuts, strict=True)):
            array = array.insert(dim, size, cuts)
        return array, layout

    def batch(self, layout: Layout) -> int:
        """Images in a block, as of several coils."""
        return math.prod(self.ends(layout)[1].block[: -self.points.ndim])

    @property
    def axes(self) -> tuple[str, ...]:
        """The ring of all devices that hold points."""
        return tuple(axis for axes in self.grid.axes for axis in axes)

    def at_slot(self, slot: int) -> Self:
        return dataclasses.replace(self, slot=slot)

    def transpose(self, layout: Layout) -> Self:
        return dataclasses.replace(self, transposed=not self.transposed)

    def conjugate(self) -> Self:
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> Self:
        """A batch dimension comes first on both ends."""
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))


@dataclasses.dataclass(frozen=True)
class CoordinateStep(PointStep):
    """A step whose operand are the points' coordinates, which are stored where their values are. Abstract."""

    _: dataclasses.KW_ONLY
    unit: str | None = None  # of coordinates that are floats, "turns" or "radians"; None of fixed-point turns

    @property
    def linear(self) -> bool:
        """It is not linear in coordinates that are floats."""
        return self.unit is None

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """Coordinates (d, ...) where the values at their points are stored."""
        points = self.points

        def stored(leaf: Array | np.ndarray) -> Array | np.ndarray:
            for dim, (size, extent) in enumerate(zip(points.shape, points.storage, strict=True)):
                if size != extent:
                    at = np.minimum(points.positions(dim), size - 1)
                    leaf = (np if isinstance(leaf, np.ndarray) else jnp).take(leaf, at, dim + 1)
                leaf = own(leaf, dim + 1, points.cuts[dim], mapped)
            return leaf

        return jax.tree.map(stored, given)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return jax.tree.map(lambda leaf: PartitionSpec(None, *self.points.spec), operand)

    def clear_points(self, block: B, values: Layout) -> B:
        """A block of values with zeros for points that are padding."""
        return clear(block, values, range(values.ndim - self.points.ndim, values.ndim))


def sub_layout(layout: Layout, dims: Iterable[int]) -> Layout:
    """The layout of some dimensions alone."""
    dims = tuple(dims)
    return Layout(tuple(layout.shape[d] for d in dims), tuple(layout.cuts[d] for d in dims))


def clear(block: B, layout: Layout, dims: Iterable[int]) -> B:
    """The block with zeros for the padding of some dimensions."""
    for dim in dims:
        if layout.storage[dim] != layout.shape[dim]:
            block = cleared(block, layout, dim, layout.shape[dim])
    return block


def grid_last(block: Array, along: tuple[int, ...]) -> Array:
    """(batch, *cells) of a block."""
    rest = [d for d in range(block.ndim) if d not in along]
    block = jnp.transpose(block, (*rest, *along))
    return block.reshape(-1, *block.shape[len(rest) :])


def grid_back(block: Array, layout: Layout, along: tuple[int, ...]) -> Array:
    """The block in a layout, from (batch, *cells)."""
    order = [*(d for d in range(layout.ndim) if d not in along), *along]
    block = block.reshape([layout.block[d] for d in order])
    return jnp.transpose(block, [order.index(d) for d in range(layout.ndim)])


def own_tables(given: T, cuts: Cuts, mapped: frozenset[str]) -> T:
    """Tables of all devices, first of all by device, or of those that are seen here."""
    tables: T = jax.tree.map(lambda leaf: own(leaf, 0, cuts, mapped), given)
    return tables


def table_specs(operand: object, axes: tuple[str, ...]) -> Any:
    """How such tables are sharded."""
    return jax.tree.map(lambda leaf: PartitionSpec(axes) if axes else PartitionSpec(), operand)
