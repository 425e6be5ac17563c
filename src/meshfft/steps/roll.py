"""Roll: a dimension shifted cyclically, only the rows that change devices travelling."""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from jax import Array, lax

from ..collectives.ring import handed_on
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.split_complex import Block
from .base import Step, names, shift

PASSES = 2  # the rows are read and written where they are joined
SENT_PASSES = 4  # what travels is cut out before and received


class Part(NamedTuple):
    """Rows `first` to `last` of a block, and how many places on the ring they go on."""

    first: int
    last: int
    places: int

    @property
    def rows(self) -> int:
        return self.last - self.first


@dataclasses.dataclass(frozen=True)
class Roll(Step):
    """The cyclic shift new[i] = old[(i - by) mod n] of a dimension that is whole, or padded at its tail alone.

    With B rows a block and by = q B + r, the new block of device d is

        the last r rows of the block of d - q - 1, then the first B - r rows of that of d - q   (mod p, in ring order)

    so at most two permutes, which carry one block together, and none where the source is the device itself. Where the
    last blocks are padded, positions before `by` are read from a second shift, by `by - n`.
    """

    dim: int
    by: int
    dims: ClassVar[tuple[int, ...]] = ()

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """What travels, and the rows joined; going on k places loads links as k hops between neighbours do."""
        parts, size = layout.parts[self.dim], math.prod(layout.block) * itemsize
        row = size // max(layout.block[self.dim], 1)
        travels = [part for by in self._shifts(layout) for part in self._parts(layout, by) if part.places]
        sent = sum(part.rows for part in travels) * row
        axes = layout.axes[self.dim]
        return Work(
            memory_bytes=PASSES * size + SENT_PASSES * sent,
            sent_bytes=sent,
            hops=len(travels),
            moves=tuple(Move("ring", axes, t.rows * row, min(t.places, parts - t.places)) for t in travels),
            peak_bytes=2 * (size + sent),
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        axes = layout.axes[self.dim]

        def shifted(block: Array, by: int) -> Array:
            parts = self._parts(layout, by)
            moved = [handed_on(lax.slice_in_dim(block, a, b, axis=self.dim), axes, places) for a, b, places in parts]
            return lax.concatenate(moved, self.dim)

        def roll(block: Array) -> Array:
            first, *second = (shifted(block, by) for by in self._shifts(layout))
            return self._joined(first, second[0], layout) if second else first

        return jax.tree.map(roll, block)

    def _joined(self, far: Array, near: Array, layout: Layout) -> Array:
        """The positions from `by` on out of one shift, those before it out of the other."""
        axes, rows = layout.axes[self.dim], layout.block[self.dim]
        place = lax.axis_index(axes) * rows + lax.broadcasted_iota(np.int32, far.shape, self.dim)
        return lax.select(place >= self.by % layout.shape[self.dim], far, near)

    def transpose(self, layout: Layout) -> "Roll":
        return Roll(self.dim, -self.by)

    def insert(self, dim: int) -> "Roll":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"roll {names((self.dim,), layout)} by {self.by}"

    def _shifts(self, layout: Layout) -> tuple[int, ...]:
        """By how many places the stored dimension is shifted: once, or with padding twice."""
        n, stored = layout.shape[self.dim], layout.storage[self.dim]
        by = self.by % max(n, 1)
        return (by,) if n == stored else (by, by - n)

    def _parts(self, layout: Layout, by: int) -> tuple[Part, ...]:
        """What becomes of a block's rows, in the order of the new block."""
        rows, ring = layout.block[self.dim], layout.parts[self.dim]
        if rows == 0:
            return (Part(0, 0, 0),)
        places, rest = divmod(by, rows)
        tail, head = Part(rows - rest, rows, (places + 1) % ring), Part(0, rows - rest, places % ring)
        return (tail, head) if rest else (head,)
