"""Spread: an array that every device holds whole, cut as another is, zeros behind its end. Nothing is sent.

A device reads its own block of b: positions i block ... (i + 1) block - 1 for its index i along a dimension.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .layout import AnyMesh, Layout


def spread(b: Array, layout: Layout, mesh: AnyMesh | None) -> Array:
    """The array padded with zeros at the tail of every dimension to a layout's storage, and cut as it says."""

    def own(b: Array) -> Array:
        for dim, (size, axes) in enumerate(zip(layout.block, layout.axes, strict=True)):
            index = lax.axis_index(axes) if axes else 0
            b = _window(b, dim, index * size, size)
        return b

    if mesh is None:
        return own(b)
    if AxisType.Explicit in mesh.axis_types:
        b = jax.reshard(b, NamedSharding(mesh, PartitionSpec()))
    return jax.shard_map(own, mesh=mesh, in_specs=PartitionSpec(), out_specs=layout.spec, check_vma=False)(b)


def _window(b: Array, dim: int, start: Array | int, size: int) -> Array:
    """So many positions of a dimension from a start on, zeros behind its end."""
    b = jnp.pad(b, [(0, size if d == dim else 0) for d in range(b.ndim)])
    return lax.dynamic_slice_in_dim(b, start, size, dim)  # which starts at the end at the latest
