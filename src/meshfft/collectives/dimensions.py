"""Dimensions of a block: one cut into equal parts, or seen as two."""

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
