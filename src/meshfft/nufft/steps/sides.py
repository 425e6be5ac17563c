"""Both sides of a step between a grid and points: their layouts, padding, and where coordinates are stored.

Batch dimensions come first in the layout of values, in their order, then the dimensions of the points.
"""

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ...layout.layout import Cuts, Layout
from ...layout.placement import own
from ...steps.base import B, cleared


def after_points(layout: Layout, dims: Sequence[int], points: Layout) -> Layout:
    """The layout of values at points, from that of a grid with some dimensions."""
    kept = [d for d in range(layout.ndim) if d not in dims]
    return Layout(tuple(layout.shape[d] for d in kept), tuple(layout.cuts[d] for d in kept)) + points


def before_points(layout: Layout, dims: Sequence[int], grid: Iterable[tuple[int, Cuts]], points: Layout) -> Layout:
    """The layout of the grid again, whose dimensions have these sizes and cuts."""
    many = layout.ndim - points.ndim
    layout = Layout(layout.shape[:many], layout.cuts[:many])
    for dim, (size, cuts) in sorted(zip(dims, grid, strict=True)):
        layout = layout.insert(dim, size, cuts)
    return layout


def clear(block: B, layout: Layout, dims: Iterable[int]) -> B:
    """The block with zeros for the padding of some dimensions."""
    for dim in dims:
        if layout.storage[dim] != layout.shape[dim]:
            block = cleared(block, layout, dim, layout.shape[dim])
    return block


def clear_points(block: B, values: Layout, points: Layout) -> B:
    """A block of values with zeros for points that are padding."""
    return clear(block, values, range(values.ndim - points.ndim, values.ndim))


def operand_at(given: object, points: Layout, mapped: frozenset[str]) -> object:
    """Coordinates (d, ...) where the values at their points are stored."""

    def stored(leaf: Array | np.ndarray) -> Array | np.ndarray:
        for dim, (size, extent) in enumerate(zip(points.shape, points.storage, strict=True)):
            if size != extent:
                at = np.minimum(points.positions(dim), size - 1)
                leaf = (np if isinstance(leaf, np.ndarray) else jnp).take(leaf, at, dim + 1)
            leaf = own(leaf, dim + 1, points.cuts[dim], mapped)
        return leaf

    return jax.tree.map(stored, given)


def spec_at(operand: object, points: Layout) -> object:
    """How they are sharded."""
    return jax.tree.map(lambda leaf: PartitionSpec(None, *points.spec), operand)
