"""Bands: runs of rows copied to other places of a dimension of another size, and only those that change devices sent.

    new[target + i] += weight old[source + i],   0 <= i < rows,   for every band; what no band reaches is 0

A device's rows of a band may go to several others, and come from several. Such pieces go in rounds, in which every
device sends one at most and receives one at most: a permute each, or none where rows stay. Invariant: the rows of one
device that a permute carries are as many as those of any other, so that what one has less is sent in vain and dropped.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.ring import permuted
from ..kernels.local import resize
from ..layout.layout import Cuts, Layout
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.split_complex import Block
from .base import Step, names, shift

PASSES = 4  # the new block is filled with zeros, and each row is read and written


class Band(NamedTuple):
    """Some rows from `source` on that go to `target` on, the last first where `reverse` says so, times a weight."""

    source: int
    target: int
    rows: int
    weight: float = 1.0
    reverse: bool = False

    def transpose(self) -> "Band":
        return self._replace(source=self.target, target=self.source)


class Piece(NamedTuple):
    """Rows of a band that one device has and one is to have, counted from the beginning of their blocks."""

    sender: int
    receiver: int
    source: int
    target: int
    rows: int
    weight: float
    reverse: bool

    @property
    def way(self) -> tuple[bool, bool]:
        """What the pieces of a round have in common."""
        return self.sender != self.receiver, self.reverse


Round = tuple[Piece, ...]


@dataclasses.dataclass(frozen=True)
class Bands(Step):
    """A dimension with its rows in other places.

    Attributes:
        dim: the dimension.
        size: how many rows it has afterwards.
        cuts: by which mesh axes it is cut then, the same as before.
        bands: the rows that are copied.
    """

    dim: int
    size: int
    cuts: Cuts
    bands: tuple[Band, ...]
    dims: ClassVar[tuple[int, ...]] = ()

    def after(self, layout: Layout) -> Layout:
        return layout.replace(self.dim, self.size, self.cuts)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """What travels, and the rows put in their places; far ones load links as hops between neighbours do."""
        before, after = (math.prod(one.block) * itemsize for one in (layout, self.after(layout)))
        row, parts = before // max(layout.block[self.dim], 1), layout.parts[self.dim]
        moves = []
        for pieces in _rounds(self, layout):
            if pieces[0].way[0]:
                places = max(min((p.sender - p.receiver) % parts, (p.receiver - p.sender) % parts) for p in pieces)
                moves.append(Move("ring", layout.axes[self.dim], _most(pieces) * row, places))
        sent = sum(move.nbytes for move in moves)
        return Work(
            memory_bytes=PASSES // 2 * (before + after + sent),
            sent_bytes=sent,
            hops=len(moves),
            moves=tuple(moves),
            peak_bytes=2 * (before + after),
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        one = self._on_one if layout.parts[self.dim] == 1 else self._on_ring
        return jax.tree.map(functools.partial(one, layout=layout), block)

    def _on_one(self, block: Array, layout: Layout) -> Array:
        """Of a dimension that every device holds whole."""
        parts = []
        for band in self.bands:
            rows = lax.slice_in_dim(block, band.source, band.source + band.rows, axis=self.dim)
            rows = lax.rev(rows, (self.dim,)) if band.reverse else rows
            rows = rows if band.weight == 1 else rows * band.weight
            around = [(0, 0, 0)] * block.ndim
            around[self.dim] = (band.target, self.size - band.target - band.rows, 0)
            parts.append(lax.pad(rows, jnp.zeros((), block.dtype), around))
        return functools.reduce(jnp.add, parts)

    def _on_ring(self, block: Array, layout: Layout) -> Array:
        """Round by round, of a block with room around it for slices that reach over its ends."""
        dim, rounds, size = self.dim, _rounds(self, layout), self.after(layout).block[self.dim]
        beyond = max(map(_most, rounds), default=0)
        around = [(beyond, beyond, 0) if d == dim else (0, 0, 0) for d in range(block.ndim)]
        block = lax.pad(block, jnp.zeros((), block.dtype), around)
        new = jnp.zeros([size + beyond if d == dim else n for d, n in enumerate(block.shape)], block.dtype)
        for pieces in rounds:
            rows = self._received(block, pieces, layout, beyond)
            at = self._here([piece.receiver for piece in pieces], [piece.target for piece in pieces], layout)
            rows = rows + lax.dynamic_slice_in_dim(new, at, rows.shape[dim], dim)
            new = lax.dynamic_update_slice_in_dim(new, rows, at, dim)
        return resize(new, dim, size)

    def _received(self, block: Array, pieces: Round, layout: Layout, beyond: int) -> Array:
        """What a round brings here: rows times their weight, and 0 behind them."""
        dim, (travels, reverse), most = self.dim, pieces[0].way, _most(pieces)
        first = [p.source + beyond + (p.rows - most if reverse else 0) for p in pieces]
        rows = lax.dynamic_slice_in_dim(block, self._here([p.sender for p in pieces], first, layout), most, dim)
        rows = lax.rev(rows, (dim,)) if reverse else rows
        if travels:
            senders = {piece.receiver: piece.sender for piece in pieces}
            rows = permuted(rows, layout.axes[dim], [senders.get(i) for i in range(layout.parts[dim])])
        here = functools.partial(self._here, [piece.receiver for piece in pieces], layout=layout)
        if any(piece.weight != 1 for piece in pieces):
            rows = rows * here([piece.weight for piece in pieces]).astype(rows.dtype)
        inside = lax.broadcasted_iota(np.int32, rows.shape, dim) < here([piece.rows for piece in pieces])
        return jnp.where(inside, rows, jnp.zeros_like(rows))

    def _here(self, places: Sequence[int], values: Sequence[Any], layout: Layout) -> Array:
        """This device's number, of those for some places on the ring; 0 for all others."""
        table = np.zeros(layout.parts[self.dim], np.int32 if isinstance(values[0], int) else np.float32)
        table[list(places)] = values
        return jnp.asarray(table)[lax.axis_index(layout.axes[self.dim])]

    def transpose(self, layout: Layout) -> "Bands":
        bands = tuple(band.transpose() for band in self.bands)
        return Bands(self.dim, layout.shape[self.dim], layout.cuts[self.dim], bands)

    def insert(self, dim: int) -> "Bands":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"bands of {names((self.dim,), layout)}: {layout.shape[self.dim]} -> {self.size}"


@functools.lru_cache(maxsize=1024)
def _rounds(step: Bands, layout: Layout) -> tuple[Round, ...]:
    """The pieces in rounds of one way: the longest first, each in the first round where both its devices are free."""
    rounds: list[list[Piece]] = []
    for piece in sorted(_pieces(step, layout), key=lambda piece: -piece.rows):
        for taken in rounds:
            free = all(piece.sender != other.sender and piece.receiver != other.receiver for other in taken)
            if free and piece.way == taken[0].way:
                taken.append(piece)
                break
        else:
            rounds.append([piece])
    return tuple(map(tuple, rounds))


def _pieces(step: Bands, layout: Layout) -> Iterator[Piece]:
    """What each device has of each band, and for whom."""
    after, dim = step.after(layout), step.dim
    held, wanted = (list(zip(one.starts(dim), one.counts(dim), strict=True)) for one in (layout, after))
    for band, (sender, (start, count)) in itertools.product(step.bands, enumerate(held)):
        first, last = max(start, band.source), min(start + count, band.source + band.rows)
        begin, end = first - band.source, last - band.source
        if begin >= end:
            continue
        if band.reverse:
            begin, end = band.rows - end, band.rows - begin
        begin, end = band.target + begin, band.target + end
        for receiver, (to, many) in enumerate(wanted):
            low, high = max(begin, to), min(end, to + many)
            if low < high:
                source = last - (high - begin) if band.reverse else first + (low - begin)
                numbers = (int(source - start), int(low - to), int(high - low))
                yield Piece(sender, receiver, *numbers, band.weight, band.reverse)


def _most(pieces: Round) -> int:
    return max(piece.rows for piece in pieces)
