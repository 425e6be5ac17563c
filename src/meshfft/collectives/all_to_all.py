"""All-to-alls of a block that is cut into equal chunks along some dimensions.

If one step joins chunks and the next cuts the same ones, the compiler drops both. Chunks then pass between steps as
separate arrays, and exchanges do not pack or unpack. A grid is (dimension, parts) pairs, outermost first; the key of a
chunk has an index for each.
"""

import itertools
import math
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..numerics.split_complex import Block
from .dimensions import folded, split, unfolded
from .messages import carried
from .wire import EXACT, Wire

UNFUSED = 8  # least chunks of a join that XLA does not fuse
B = TypeVar("B", bound=Block)
Grid = tuple[tuple[int, int], ...]
Chunks = dict[tuple[int, ...], Array]


def fits(shape: Sequence[int], grid: Grid) -> bool:
    """Whether the chunks are equal and not empty."""
    sizes = list(shape)
    for dim, parts in grid:
        if sizes[dim] % parts or not sizes[dim]:
            return False
        sizes[dim] //= parts
    return True


def count(grid: Grid) -> int:
    return math.prod(parts for _, parts in grid)


def divided(shape: Sequence[int], grid: Grid) -> tuple[int, ...]:
    return tuple(size // count(tuple(cut for cut in grid if cut[0] == dim)) for dim, size in enumerate(shape))


def halfway(grid: Grid, ndim: int) -> int:
    """Chunks in the largest intermediate array of `join`. XLA's CPU backend fuses a join with its neighbours if it has
    few chunks and is not along the last dimension."""
    joins = [(dim, count(tuple(same))) for dim, same in itertools.groupby(grid, lambda cut: cut[0])]
    alone = any(parts >= UNFUSED or dim == ndim - 1 for dim, parts in joins)
    return count(tuple(joins[1:])) if alone else 1


def corner(key: Sequence[int], grid: Grid, shape: Sequence[int]) -> list[int]:
    at, sizes = [0] * len(shape), list(shape)
    for index, (dim, parts) in reversed(list(zip(key, grid, strict=True))):
        at[dim] += index * sizes[dim]
        sizes[dim] *= parts
    return at


def cut(block: Array, grid: Grid) -> Chunks:
    chunks: Chunks = {(): block}
    for dim, parts in grid:
        chunks = {(*key, j): part for key, chunk in chunks.items() for j, part in enumerate(split(chunk, dim, parts))}
    return chunks


def join(chunks: Chunks, grid: Grid) -> Array:
    for dim, parts in reversed(grid):
        keys = dict.fromkeys(key[:-1] for key in chunks)
        chunks = {key: jnp.concatenate([chunks[*key, j] for j in range(parts)], dim) for key in keys}
    return chunks[()]


def exchange(chunks: Sequence[Array], axis_names: tuple[str, ...], wire: Wire = EXACT) -> list[Array]:
    """Sends a chunk to each device of the ring of mesh axes and returns the chunks received, both in ring order."""
    if ring_size(axis_names) == 1:
        return list(chunks)
    received = exchange_shares(jnp.stack(chunks), axis_names, wire)
    return [received[j] for j in range(len(chunks))]


def exchange_shares(shares: B, axis_names: tuple[str, ...], wire: Wire = EXACT) -> B:
    if ring_size(axis_names) == 1:
        return shares
    return carried(lambda rows: lax.all_to_all(rows, axis_names, 0, 0), shares, wire, first=1)


def exchange_packed(block: B, axis_names: tuple[str, ...], split_dim: int, concat_dim: int, wire: Wire = EXACT) -> B:
    """Splits `split_dim` over the ring of mesh axes and joins received chunks along `concat_dim`, in ring order. Each
    device sends (p - 1)/p of its block, as one message per plane, or as one in all if the wire is lossy."""
    parts = ring_size(axis_names)
    if parts == 1:
        return block
    if not wire.lossy:
        return jax.tree.map(lambda x: lax.all_to_all(x, axis_names, split_dim, concat_dim, tiled=True), block)
    shares = jax.tree.map(lambda x: jnp.moveaxis(unfolded(x, split_dim, parts), split_dim, 0), block)
    received = exchange_shares(shares, axis_names, wire)
    return jax.tree.map(lambda x: folded(jnp.moveaxis(x, 0, concat_dim), concat_dim), received)


def ring_size(axis_names: tuple[str, ...]) -> int:
    return math.prod(lax.axis_size(name) for name in axis_names)
