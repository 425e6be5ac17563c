"""Every p-th point of a line over p shards, gathered on one device: x[p l + b] on device b.

One all-to-all of chunks padded to one length. Invariant: values beyond the points of a shard are never read.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..layout.layout import Layout
from ..numerics.split_complex import B
from .all_to_all import exchange_packed
from .dimensions import cleared
from .wire import Wire


def gathered(block: B, dim: int, source: Layout, limit: int, many: int, wire: Wire) -> B:
    """x[p l + b] for l < many, on device b; missing points are zero."""
    parts, axes, size = source.parts[dim], source.axes[dim], source.block[dim]
    if is_comb(source, dim, many) and limit >= source.shape[dim]:
        combed = jax.tree.map(functools.partial(_columns, dim=dim, parts=parts), block)
        return exchange_packed(combed, axes, dim, dim, wire)
    index, starts = lax.axis_index(axes), jnp.asarray(source.starts(dim), jnp.int32)
    rows = -(-size // parts)
    widths = [(0, rows * parts - size if d == dim else 0) for d in range(source.ndim)]
    padded = jax.tree.map(lambda x: jnp.pad(x, widths), cleared(block, source, dim, limit))
    combed = jax.tree.map(functools.partial(_columns, dim=dim, parts=parts, start=starts[index]), padded)
    received = exchange_packed(combed, axes, dim, dim, wire)

    def put(shard: Array, lines: B) -> B:
        first = (starts[shard] - index + parts - 1) // parts  # target of the first of its points that is ours

        def add(line: Array, arrived: Array) -> Array:
            chunk = lax.dynamic_slice_in_dim(arrived, shard * rows, rows, dim)
            there = lax.dynamic_slice_in_dim(line, first, rows, dim)
            return lax.dynamic_update_slice_in_dim(line, there + chunk, first, dim)

        return jax.tree.map(add, lines, received)

    def empty(arrived: Array) -> Array:
        none = lax.slice_in_dim(arrived, 0, 0, axis=dim)  # varies over the same mesh axes as the received array
        return jnp.pad(none, [(0, many + rows if d == dim else 0) for d in range(source.ndim)])

    lines = lax.fori_loop(0, parts, put, jax.tree.map(empty, received))
    return jax.tree.map(lambda line: lax.slice_in_dim(line, 0, many, axis=dim), lines)


def _columns(block: Array, dim: int, parts: int, start: Array | int = 0) -> Array:
    """The block grouped by residue modulo p: position l p + b moves to b M / p + l."""
    shape = (*block.shape[:dim], block.shape[dim] // parts, parts, *block.shape[dim + 1 :])
    table = block.reshape(shape)
    table = table if isinstance(start, int) else jnp.roll(table, start % parts, dim + 1)
    return table.swapaxes(dim, dim + 1).reshape(block.shape)


def is_comb(source: Layout, dim: int, many: int) -> bool:
    """Whether every shard has equally many points of each residue, with no point missing."""
    size, parts = source.block[dim], source.parts[dim]
    return size == many and size % parts == 0 and size * parts == source.shape[dim]
