"""RingDense: the paper's KDFT of one dimension, dense products while the blocks go round the ring."""

import dataclasses
import math

import jax.numpy as jnp
from jax import Array, lax

from ..layout import Cuts, Layout
from ..phase import vandermonde
from ..precision import product
from ..ring import ring_sum
from ..work import Work
from .base import names, shift

PHASE_FLOPS = 40  # one root of unity: integer reduction, cos and sin


@dataclasses.dataclass(frozen=True)
class RingDense:
    """The paper's KDFT of one dimension (section III-A, Algorithm 1): dense products while the blocks go round the
    ring.

    Every device makes its slice of V a block at a time, from exact phases, where it is used: rows are the positions it
    will hold, columns those of the shard in hand. `leaves` are the cuts of the result.
    """

    dim: int
    sign: int
    length: int
    size: int
    leaves: Cuts

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    def after(self, layout: Layout) -> Layout:
        return layout.replace(self.dim, self.size, self.leaves)

    def work(self, layout: Layout, itemsize: int) -> Work:
        """p products of 8 flops per complex multiplication; each makes its block of V and reads and writes planes."""
        parts, rows, block = layout.parts[self.dim], self.after(layout).block[self.dim], math.prod(layout.block)
        columns, sent = layout.block[self.dim], math.prod(layout.block) * itemsize
        out = block // max(columns, 1) * rows
        return Work(
            matrix_flops=8 * parts * rows * block,
            vector_flops=PHASE_FLOPS * parts * rows * columns,
            memory_bytes=4 * parts * (block + out) * itemsize,
            sent_bytes=(parts - 1) * sent,
            hops=parts - 1,
            overlapped=True,
            peak_bytes=(3 * block + 4 * out + 3 * rows * columns) * itemsize,
        )

    def apply(self, block: Array, layout: Layout) -> Array:
        dim, after, axes = self.dim, self.after(layout), layout.axes[self.dim]
        index = lax.axis_index(axes) if axes else 0
        starts = jnp.asarray(layout.starts(dim), jnp.int32)
        rows, kept = _positions(after, dim, index, self.length)
        _, read = _positions(layout, dim, index, self.length)

        def term(held: Array, shard: Array) -> Array:
            columns = starts[shard] + jnp.arange(block.shape[dim], dtype=jnp.int32)
            matrix = vandermonde(rows, columns, self.length, self.sign, block.dtype)
            return product(jnp.where(kept[:, None], matrix, 0), held, dim)

        masked = jnp.where(read.reshape([-1 if d == dim else 1 for d in range(block.ndim)]), block, 0)
        return ring_sum(term, masked, axes)

    def transpose(self, layout: Layout) -> "RingDense":
        return dataclasses.replace(self, size=layout.shape[self.dim], leaves=layout.cuts[self.dim])

    def conjugate(self) -> "RingDense":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "RingDense":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"ring {names((self.dim,), layout)} (dense)"


def _positions(layout: Layout, dim: int, index: Array | int, limit: int) -> tuple[Array, Array]:
    """The positions of one shard's block, and which of them are logical and below `limit`."""
    offsets = jnp.arange(layout.block[dim], dtype=jnp.int32)
    positions = jnp.asarray(layout.starts(dim), jnp.int32)[index] + offsets
    return positions, (offsets < jnp.asarray(layout.counts(dim), jnp.int32)[index]) & (positions < limit)
