"""All-to-alls: a block divided into equal chunks along some dimensions, sent around, and joined again.

Where one step joins chunks and the next cuts the same ones, the compiler drops both, and chunks pass from step to step
as arrays of their own: what an exchange sends needs no packing, and what it receives no unpacking.

A grid is (dimension, parts) pairs, outermost first; the key of a chunk has an index for each.
"""

import itertools
import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

UNFUSED = 8  # chunks of a join that is made alone
Grid = tuple[tuple[int, int], ...]
Chunks = dict[tuple[int, ...], Array]


def fits(shape: Sequence[int], grid: Grid) -> bool:
    """True where the chunks are equal, and none is empty."""
    sizes = list(shape)
    for dim, parts in grid:
        if sizes[dim] % parts or not sizes[dim]:
            return False
        sizes[dim] //= parts
    return True


def count(grid: Grid) -> int:
    """The number of chunks of a grid."""
    return math.prod(parts for _, parts in grid)


def divided(shape: Sequence[int], grid: Grid) -> tuple[int, ...]:
    """The shape of equal chunks."""
    return tuple(size // count(tuple(cut for cut in grid if cut[0] == dim)) for dim, size in enumerate(shape))


def halfway(grid: Grid, ndim: int) -> int:
    """How many chunks the largest array holds that `join` makes on its way.

    XLA's CPU backend fuses a join with its neighbours where it is of few chunks and not along the last dimension.
    """
    joins = [(dim, count(tuple(same))) for dim, same in itertools.groupby(grid, lambda cut: cut[0])]
    alone = any(parts >= UNFUSED or dim == ndim - 1 for dim, parts in joins)
    return count(tuple(joins[1:])) if alone else 1


def corner(key: Sequence[int], grid: Grid, shape: Sequence[int]) -> list[int]:
    """Where a chunk of some shape begins in the block."""
    at, sizes = [0] * len(shape), list(shape)
    for index, (dim, parts) in reversed(list(zip(key, grid, strict=True))):
        at[dim] += index * sizes[dim]
        sizes[dim] *= parts
    return at


def cut(block: Array, grid: Grid) -> Chunks:
    """The chunks of a block, by key."""
    chunks: Chunks = {(): block}
    for dim, parts in grid:
        chunks = {(*key, j): part for key, chunk in chunks.items() for j, part in enumerate(split(chunk, dim, parts))}
    return chunks


def join(chunks: Chunks, grid: Grid) -> Array:
    """The block of these chunks."""
    for dim, parts in reversed(grid):
        keys = dict.fromkeys(key[:-1] for key in chunks)
        chunks = {key: jnp.concatenate([chunks[*key, j] for j in range(parts)], dim) for key in keys}
    return chunks[()]


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


def exchange(chunks: Sequence[Array], axis_names: tuple[str, ...]) -> list[Array]:
    """Sends a chunk to each device of the ring of mesh axes, in ring order, and returns what came from each."""
    if math.prod(lax.axis_size(name) for name in axis_names) == 1:
        return list(chunks)
    received = exchange_shares(jnp.stack(chunks), axis_names)
    return [received[j] for j in range(len(chunks))]


def exchange_shares(shares: Array, axis_names: tuple[str, ...]) -> Array:
    """Sends row j of an array to device j of the ring of mesh axes; row j of the result came from there."""
    if math.prod(lax.axis_size(name) for name in axis_names) == 1:
        return shares
    return lax.all_to_all(shares, axis_names, 0, 0)


def exchange_packed(block: Array, axis_names: tuple[str, ...], split_dim: int, concat_dim: int) -> Array:
    """Splits `split_dim` over the ring of mesh axes and joins the chunks received along `concat_dim`, in ring order.

    Each device sends (p - 1)/p of its block, as one message.
    """
    if math.prod(lax.axis_size(name) for name in axis_names) == 1:
        return block
    return lax.all_to_all(block, axis_names, split_dim, concat_dim, tiled=True)
