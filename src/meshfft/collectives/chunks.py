"""A block taken apart into equal pieces along some dimensions, and put together again.

Where one step puts pieces together and the next takes the same ones apart, the compiler drops both, and the pieces pass
from step to step as arrays of their own. So what an exchange sends needs no packing, and what it receives no unpacking.

A grid is (dimension, parts) pairs, outermost first; a piece's key has an index for each.
"""

import itertools
import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

UNFUSED = 8  # pieces of a join that is made alone
Grid = tuple[tuple[int, int], ...]
Pieces = dict[tuple[int, ...], Array]


def fits(shape: Sequence[int], grid: Grid) -> bool:
    """True where the pieces are equal, and none is empty."""
    sizes = list(shape)
    for dim, parts in grid:
        if sizes[dim] % parts or not sizes[dim]:
            return False
        sizes[dim] //= parts
    return True


def pieces_of(grid: Grid) -> int:
    """How many pieces a grid makes."""
    return math.prod(parts for _, parts in grid)


def divided(shape: Sequence[int], grid: Grid) -> tuple[int, ...]:
    """The shape of equal pieces."""
    return tuple(size // math.prod(parts for d, parts in grid if d == dim) for dim, size in enumerate(shape))


def halfway(grid: Grid, ndim: int) -> int:
    """How many pieces the largest array holds that `join` makes on its way.

    XLA's CPU backend makes joins in one with those around them, where they are of few pieces and not along the last
    dimension.
    """
    groups = itertools.groupby(grid, lambda cut: cut[0])
    joins = [(dim, math.prod(parts for _, parts in same)) for dim, same in groups]
    alone = any(many >= UNFUSED or dim == ndim - 1 for dim, many in joins)
    return math.prod(many for _, many in joins[1:]) if alone else 1


def corner(key: Sequence[int], grid: Grid, shape: Sequence[int]) -> list[int]:
    """Where a piece of some shape begins in the block."""
    at, sizes = [0] * len(shape), list(shape)
    for index, (dim, parts) in reversed(list(zip(key, grid, strict=True))):
        at[dim] += index * sizes[dim]
        sizes[dim] *= parts
    return at


def cut(block: Array, grid: Grid) -> Pieces:
    """The pieces of a block, by key."""
    pieces: Pieces = {(): block}
    for dim, parts in grid:
        pieces = {(*key, j): part for key, piece in pieces.items() for j, part in enumerate(split(piece, dim, parts))}
    return pieces


def join(pieces: Pieces, grid: Grid) -> Array:
    """The block of these pieces."""
    for dim, parts in reversed(grid):
        keys = dict.fromkeys(key[:-1] for key in pieces)
        pieces = {key: jnp.concatenate([pieces[*key, j] for j in range(parts)], dim) for key in keys}
    return pieces[()]


def split(block: Array, dim: int, parts: int) -> list[Array]:
    """Equal parts of one dimension."""
    size = block.shape[dim] // parts
    return [lax.slice_in_dim(block, j * size, (j + 1) * size, axis=dim) for j in range(parts)]


def exchange(pieces: Sequence[Array], axis_names: tuple[str, ...]) -> list[Array]:
    """Sends a piece to each device of the ring of mesh axes, in ring order, and returns what came from each."""
    if math.prod(lax.axis_size(name) for name in axis_names) == 1:
        return list(pieces)
    received = lax.all_to_all(jnp.stack(pieces), axis_names, 0, 0)
    return [received[j] for j in range(len(pieces))]
