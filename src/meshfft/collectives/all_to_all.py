"""All-to-alls of a block that is cut into equal chunks along some dimensions.

Chunks pass between steps as separate arrays: the compiler drops a join before a cut into the same chunks, and exchanges
do not pack. A grid is (dimension, parts) pairs, outermost first; the key of a chunk has an index for each.

Kernels write messages (parts, planes, *sizes), a part for each device; a received one is a piece of the block.

A comb is every p-th point of a line over p shards, x[p l + b] on device b: one all-to-all of chunks padded to one
length. Invariant: values beyond the points of a shard are never read.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..layout.elements import cleared
from ..layout.layout import Layout
from ..numerics.split_complex import B, Planes, folded, resize_each, unfolded
from .wires import EXACT, Wire, carried

UNFUSED = 8  # least chunks of a join that XLA does not fuse
MOST_PARTS = 16  # copied into the block one by one
FEW = 16  # most parts of a line that TPUs slice: a table of wider rows costs less
Grid = tuple[tuple[int, int], ...]
Chunks = dict[tuple[int, ...], Array]
Stages = tuple[tuple[int, ...], ...]  # devices of a ring by domain, for two stages


def fits(shape: Sequence[int], grid: Grid) -> bool:
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
    """Chunks in the largest intermediate array of `join`, which XLA for CPUs fuses with its neighbours if chunks are
    few and not along the last dimension."""
    joins = [(dim, count(tuple(same))) for dim, same in itertools.groupby(grid, lambda cut: cut[0])]
    alone = any(parts >= UNFUSED or dim == ndim - 1 for dim, parts in joins)
    return count(tuple(joins[1:])) if alone else 1


def corner(key: Sequence[int], grid: Grid, shape: Sequence[int]) -> list[int]:
    at, sizes = [0] * len(shape), list(shape)
    for index, (dim, parts) in reversed(list(zip(key, grid, strict=True))):
        at[dim] += index * sizes[dim]
        sizes[dim] *= parts
    return at


def split(block: Array, dim: int, parts: int) -> list[Array]:
    size = block.shape[dim] // parts
    return [lax.slice_in_dim(block, j * size, (j + 1) * size, axis=dim) for j in range(parts)]


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
    """Sends a chunk to each device of the ring and returns those received, both in ring order."""
    if lax.axis_size(axis_names) == 1:
        return list(chunks)
    received = exchange_shares(jnp.stack(chunks), axis_names, wire)
    return [received[j] for j in range(len(chunks))]


def exchange_shares(
    shares: B, axis_names: tuple[str, ...], wire: Wire = EXACT, stages: Stages = (), near: Wire | None = None
) -> B:
    """`exchange` of chunks stacked along a leading dimension, as one message. In two stages a share first goes to the
    device of its own domain that has its target's number, then, with the other shares there for this target, to it;
    `near` is the first stage's wire.
    """
    if lax.axis_size(axis_names) == 1:
        return shares
    if not stages:
        return carried(lambda rows: lax.all_to_all(rows, axis_names, 0, 0), shares, wire, first=1)
    order = np.array(stages)

    def inside(rows: Array) -> Array:
        opened = rows[order.ravel()].reshape(*order.shape, *rows.shape[1:])
        sent = lax.all_to_all(opened, axis_names, 1, 1, axis_index_groups=order.tolist())
        return sent.reshape(rows.shape)

    def between(rows: Array) -> Array:
        opened = rows.reshape(*order.shape, *rows.shape[1:])
        sent = lax.all_to_all(opened, axis_names, 0, 0, axis_index_groups=order.T.tolist())
        return sent.reshape(rows.shape)[np.argsort(order.ravel())]

    if near is None:
        return carried(lambda rows: between(inside(rows)), shares, wire, first=1)
    return _carried_as_one(between, _carried_as_one(inside, shares, near), wire)


def _carried_as_one(send: Callable[[Array], Array], shares: B, wire: Wire) -> B:
    if wire.lossy or not isinstance(shares, tuple):
        return carried(send, shares, wire, first=1)
    return cast(B, tuple(jnp.moveaxis(send(jnp.stack(shares, 1)), 1, 0)))


def exchange_packed(
    block: B,
    axis_names: tuple[str, ...],
    split_dim: int,
    concat_dim: int,
    wire: Wire = EXACT,
    stages: Stages = (),
    near: Wire | None = None,
) -> B:
    """Splits `split_dim` over the ring and joins received chunks along `concat_dim`, in ring order. Each device sends
    (p - 1)/p of its block, as one message per plane, or one in all if the wire is lossy."""
    parts = lax.axis_size(axis_names)
    if parts == 1:
        return block
    if not wire.lossy and not stages:
        return jax.tree.map(lambda x: lax.all_to_all(x, axis_names, split_dim, concat_dim, tiled=True), block)
    shares = jax.tree.map(lambda x: jnp.moveaxis(unfolded(x, split_dim, parts), split_dim, 0), block)
    received = exchange_shares(shares, axis_names, wire, stages, near)
    return jax.tree.map(lambda x: folded(jnp.moveaxis(x, 0, concat_dim), concat_dim), received)


class Rows(NamedTuple):
    dim: int
    start: int
    size: int


class Came(NamedTuple):
    source: int
    dim: int
    parts: int
    pieces: int


class Ports(NamedTuple):
    """What kernels read (some rows of planes, or pieces) and write (planes, or (dimension, parts) of one array)."""

    rows: Rows | None = None
    came: Came | None = None
    sent: tuple[int, int] | None = None


PLANES = Ports()


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A block of planes in pieces, each (parts, planes, *sizes). Positions of `source` are (part, row), those of `dim`,
    which chunks cut, (chunk, row); if both are one dimension, (part, chunk, row)."""

    arrays: tuple[Array, ...]
    source: int
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        parts, _, *sizes = self.arrays[0].shape
        sizes[self.source] *= parts
        sizes[self.dim] *= len(self.arrays)
        return tuple(sizes)

    @property
    def parts(self) -> int:
        return self.arrays[0].shape[0]

    @property
    def came(self) -> Came:
        return Came(self.source, self.dim, self.parts, len(self.arrays))

    def joined(self) -> Planes:
        """Copies the pieces into planes, part by part if parts are few."""
        _, planes, *sizes = self.arrays[0].shape
        if self.parts > MOST_PARTS:
            parts = self.parts if self.dim == self.source else 1
            lines = [
                [folded(jnp.moveaxis(one[:, plane], 0, self.source), self.source) for one in self.arrays]
                for plane in range(planes)
            ]
            return tuple(assembled(chunks, self.dim, parts) for chunks in lines)
        whole = [lax.empty(self.shape, self.arrays[0].dtype) for _ in range(planes)]
        grid = (self.source, self.parts), (self.dim, len(self.arrays))
        for chunk, array in enumerate(self.arrays):
            for part, plane in itertools.product(range(self.parts), range(planes)):
                at = corner((part, chunk), grid, sizes)
                whole[plane] = lax.dynamic_update_slice(whole[plane], array[part, plane], at)
        return tuple(whole)


def joined(block: B | Pieces) -> B | Planes:
    return block.joined() if isinstance(block, Pieces) else block


def in_parts(planes: Planes, dim: int, parts: int) -> Array:
    """Copies planes into one array (parts, planes, *sizes), with `dim` split."""
    return jnp.moveaxis(unfolded(jnp.stack(planes), dim + 1, parts), dim + 1, 0)


def taken(block: Array, dim: int, start: int, size: int) -> Array:
    return folded(lax.slice_in_dim(block, start, start + size, axis=dim + 1), dim)


def assembled(chunks: Sequence[Array], dim: int, parts: int) -> Array:
    rows = [unfolded(chunk, dim, parts) for chunk in chunks]
    shape, many = rows[0].shape, sum(chunk.shape[dim + 1] for chunk in rows)
    result, start = lax.empty((*shape[: dim + 1], many, *shape[dim + 2 :]), chunks[0].dtype), 0
    for chunk in rows:
        result = lax.dynamic_update_slice_in_dim(result, chunk, start, dim + 1)
        start += chunk.shape[dim + 1]
    return folded(result, dim)


def comb(block: B, dim: int, source: Layout, limit: int, many: int, wire: Wire = EXACT) -> B:
    """x[p l + b] for l < many, on device b; missing points are zero."""
    parts, axes, size = source.parts[dim], source.axes[dim], source.block[dim]
    if is_comb(source, dim, many) and limit >= source.shape[dim]:
        combed = jax.tree.map(functools.partial(_columns, dim=dim, parts=parts), block)
        return exchange_packed(combed, axes, dim, dim, wire)
    index, starts = lax.axis_index(axes), jnp.asarray(source.starts(dim), jnp.int32)
    rows = -(-size // parts)
    padded = resize_each(cleared(block, source, dim, limit), (dim,), (rows * parts,))
    combed = jax.tree.map(lambda part: _columns(part, starts[index], dim=dim, parts=parts), padded)
    received = exchange_packed(combed, axes, dim, dim, wire)

    def put(shard: Array, lines: B) -> B:
        first = (starts[shard] - index + parts - 1) // parts  # target of its first point that is ours

        def add(line: Array, arrived: Array) -> Array:
            chunk = lax.dynamic_slice_in_dim(arrived, shard * rows, rows, dim)
            there = lax.dynamic_slice_in_dim(line, first, rows, dim)
            return lax.dynamic_update_slice_in_dim(line, there + chunk, first, dim)

        return jax.tree.map(add, lines, received)

    none = resize_each(received, (dim,), (0,))  # varies over the mesh axes of the received array
    lines = lax.fori_loop(0, parts, put, resize_each(none, (dim,), (many + rows,)))
    return resize_each(lines, (dim,), (many,))


def _columns(block: Array, *start: Array, dim: int, parts: int) -> Array:
    """The block grouped by residue modulo p: position l p + b moves to b M / p + l."""
    by_table = functools.partial(_by_table, dim=dim, parts=parts)
    if block.ndim > 1 or parts > FEW:
        return by_table(block, *start)
    return lax.platform_dependent(block, *start, tpu=functools.partial(_by_slices, parts=parts), default=by_table)


def _by_table(block: Array, *start: Array, dim: int, parts: int) -> Array:
    table = unfolded(block, dim, block.shape[dim] // parts)
    table = jnp.roll(table, start[0] % parts, dim + 1) if start else table
    return table.swapaxes(dim, dim + 1).reshape(block.shape)


def _by_slices(line: Array, *start: Array, parts: int) -> Array:
    """A TPU stores 128 numbers for every row of a table, which has p."""
    table = jnp.stack([lax.slice(line, (b,), line.shape, (parts,)) for b in range(parts)])
    return (jnp.roll(table, start[0] % parts, 0) if start else table).reshape(line.shape)


def is_comb(source: Layout, dim: int, many: int) -> bool:
    """Whether every shard has equally many points of each residue, none missing."""
    size, parts = source.block[dim], source.parts[dim]
    return size == many and size % parts == 0 and size * parts == source.shape[dim]
