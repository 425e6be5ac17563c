"""Dimensions of a block: one cut into equal parts, seen as two, cropped or padded."""

import jax.numpy as jnp
from jax import Array, lax


def split(block: Array, dim: int, parts: int) -> list[Array]:
    """Equal parts of one dimension."""
    size = block.shape[dim] // parts
    return [lax.slice_in_dim(block, j * size, (j + 1) * size, axis=dim) for j in range(parts)]


def unfolded(block: Array, dim: int, parts: int) -> Array:
    """A dimension as two, the first of some parts."""
    return block.reshape(*block.shape[:dim], parts, block.shape[dim] // parts, *block.shape[dim + 1 :])


def folded(block: Array, dim: int) -> Array:
    """A dimension and the next as one."""
    return block.reshape(*block.shape[:dim], block.shape[dim] * block.shape[dim + 1], *block.shape[dim + 2 :])


def resize(block: Array, dim: int, size: int) -> Array:
    """Crops a dimension, or pads it with zeros at the tail, to `size`."""
    kept = lax.slice_in_dim(block, 0, min(size, block.shape[dim]), axis=dim)
    widths = [(0, size - kept.shape[dim] if d == dim else 0) for d in range(block.ndim)]
    return jnp.pad(kept, widths) if size > kept.shape[dim] else kept
