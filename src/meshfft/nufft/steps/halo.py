"""Halo: every block with the first cells of the blocks behind it, for points whose windows reach over its end.

    block of b cells  ->  b + h cells, the last h from the next device, or from several where h > b

The dimension is a ring: the last block has the first one's cells. Points belong to the block with the lowest cell of
their window, so halos are on one side only. The transpose adds what lies in a halo to the blocks that it came from.
Halos of one dimension after the other bring corners along.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import ClassVar

import jax
from jax import Array, lax

from ...collectives.ring import handed_on
from ...layout.layout import Layout
from ...machine.chip import Chip
from ...machine.work import Move, Work
from ...numerics.split_complex import Block
from ...steps.base import Step, names, resized, shift


@dataclasses.dataclass(frozen=True)
class Halo(Step):
    """Puts a halo behind the blocks of a dimension, or adds it up where it belongs and drops it."""

    dim: int
    cells: int
    added: bool = False  # back to where the cells came from
    dims: ClassVar[tuple[int, ...]] = ()

    def after(self, layout: Layout) -> Layout:
        sign = -1 if self.added else 1
        return resized(layout, (self.dim,), (layout.shape[self.dim] + sign * self.cells * layout.parts[self.dim],))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """The block is read and written once; what travels goes to a neighbour, or hops further."""
        before, after = (math.prod(one.block) * itemsize for one in (layout, self.after(layout)))
        rows = max(before, after) // max(self._bare(layout) + self.cells, 1)
        parts, axes = layout.parts[self.dim], layout.axes[self.dim]
        moves = tuple(Move("ring", axes, (b - a) * rows, 1) for hops, a, b in self._hops(layout) if hops % parts)
        return Work(
            memory_bytes=before + after,
            sent_bytes=sum(move.nbytes for move in moves),
            hops=len(moves),
            moves=moves,
            peak_bytes=before + after,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        one = self._drop if self.added else self._put
        return jax.tree.map(functools.partial(one, layout=layout), block)

    def _bare(self, layout: Layout) -> int:
        """Cells of a block without its halo."""
        return layout.block[self.dim] - (self.cells if self.added else 0)

    def _hops(self, layout: Layout) -> Iterator[tuple[int, int, int]]:
        """How far the cells of a halo come from, the first of them and the last."""
        bare = self._bare(layout)
        for hops, first in enumerate(range(0, self.cells, max(bare, 1)), 1):
            yield hops, first, min(first + bare, self.cells)

    def _put(self, block: Array, layout: Layout) -> Array:
        cut, axes = functools.partial(lax.slice_in_dim, block, 0, axis=self.dim), layout.axes[self.dim]
        parts = [handed_on(cut(b - a), axes, -hops) if axes else cut(b - a) for hops, a, b in self._hops(layout)]
        return lax.concatenate([block, *parts], self.dim)

    def _drop(self, block: Array, layout: Layout) -> Array:
        bare, axes = self._bare(layout), layout.axes[self.dim]
        kept = lax.slice_in_dim(block, 0, bare, axis=self.dim)
        for hops, a, b in self._hops(layout):
            part = lax.slice_in_dim(block, bare + a, bare + b, axis=self.dim)
            part = handed_on(part, axes, hops) if axes else part
            into = tuple(slice(0, b - a) if d == self.dim else slice(None) for d in range(block.ndim))
            kept = kept.at[into].add(part)
        return kept

    def transpose(self, layout: Layout) -> "Halo":
        return dataclasses.replace(self, added=not self.added)

    def insert(self, dim: int) -> "Halo":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"{'add halo' if self.added else 'halo'} {names((self.dim,), layout)} of {self.cells}"
