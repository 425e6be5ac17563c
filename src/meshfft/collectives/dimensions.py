"""Dimensions of a block: split, merged, cropped, padded, cleared."""

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..layout.layout import Layout, line_shape
from ..numerics.split_complex import B


def split(block: Array, dim: int, parts: int) -> list[Array]:
    size = block.shape[dim] // parts
    return [lax.slice_in_dim(block, j * size, (j + 1) * size, axis=dim) for j in range(parts)]


def unfolded(block: Array, dim: int, parts: int) -> Array:
    """Splits a dimension into two, the first of size `parts`."""
    return block.reshape(*block.shape[:dim], parts, block.shape[dim] // parts, *block.shape[dim + 1 :])


def folded(block: Array, dim: int) -> Array:
    return block.reshape(*block.shape[:dim], block.shape[dim] * block.shape[dim + 1], *block.shape[dim + 2 :])


def resize(block: Array, dim: int, size: int) -> Array:
    """Crops a dimension, or pads it with zeros at the tail, to `size`."""
    kept = lax.slice_in_dim(block, 0, min(size, block.shape[dim]), axis=dim)
    widths = [(0, size - kept.shape[dim] if d == dim else 0) for d in range(block.ndim)]
    return jnp.pad(kept, widths) if size > kept.shape[dim] else kept


def resize_each(block: B, dims: tuple[int, ...], sizes: tuple[int, ...]) -> B:
    pairs = [*zip(dims, sizes, strict=True)]
    return jax.tree.map(lambda part: functools.reduce(lambda x, pair: resize(x, *pair), pairs, part), block)


def positions(layout: Layout, dim: int, limit: int) -> tuple[Array, Array]:
    """Global indices of this device's block along a dimension, and which are data below `limit`."""
    index = lax.axis_index(layout.axes[dim]) if layout.axes[dim] else 0
    offsets = jnp.arange(layout.block[dim], dtype=jnp.int32)
    at = jnp.asarray(layout.starts(dim), jnp.int32)[index] + offsets
    return at, (offsets < jnp.asarray(layout.counts(dim), jnp.int32)[index]) & (at < limit)


def cleared(block: B, layout: Layout, dim: int, limit: int) -> B:
    """The block with zeros in its padding and from index `limit` on."""
    data = positions(layout, dim, limit)[1].reshape(line_shape(dim, layout.ndim))
    return jax.tree.map(lambda part: jnp.where(data, part, 0), block)
