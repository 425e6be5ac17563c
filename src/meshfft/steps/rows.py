"""Roll and Bands: rows move along a dimension; only those that change devices are sent."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..collectives.ring import handed_on, permuted
from ..layout.layout import Cuts, Layout
from ..machine.chip import Chip
from ..machine.machine import Move, Work
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import Block, resize
from .base import OneDim, names

JOIN_PASSES = 2  # of a roll: rows are read and written to join them
SENT_PASSES = 4  # of a roll: sent rows are sliced and received
BAND_PASSES = 2  # of both blocks and sent rows


@dataclasses.dataclass(frozen=True)
class Roll(OneDim):
    """The cyclic shift new[i] = old[(i - by) mod n] of a dimension that is uncut, or padded only at its tail.

    With B rows a block and by = q B + r, the new block of device d is

        the last r rows of the block of d - q - 1, then the first B - r rows of that of d - q   (mod p, in ring order)

    If blocks are padded, a second shift, by `by - n`, gives the positions before `by`.
    """

    by: int

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        parts, size, axes = layout.parts[self.dim], math.prod(layout.block) * itemsize, layout.axes[self.dim]
        row, runs = size // max(layout.block[self.dim], 1), itertools.chain(*self._runs(layout))
        moves = [Move("ring", axes, (b - a) * row, min(hops, parts - hops)) for a, b, hops in runs if hops]
        sent = sum(move.nbytes for move in moves)
        return Work(
            memory_bytes=JOIN_PASSES * size + SENT_PASSES * sent,
            sent_bytes=sent,
            hops=len(moves),
            moves=tuple(moves),
            peak_bytes=2 * (size + sent),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return jax.tree.map(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        dim, axes, shifted = self.dim, layout.axes[self.dim], []
        for runs in self._runs(layout):
            rows = [handed_on(lax.slice_in_dim(block, a, b, axis=dim), axes, hops) for a, b, hops in runs]
            shifted.append(lax.concatenate(rows, dim))
        if len(shifted) == 1:
            return shifted[0]
        positions = lax.axis_index(axes) * layout.block[dim] + lax.broadcasted_iota(np.int32, block.shape, dim)
        return lax.select(positions >= self.by % layout.shape[dim], *shifted)

    def _runs(self, layout: Layout) -> list[tuple[tuple[int, int, int], ...]]:
        """Runs of a new block as (first row, last row, devices ahead); with padding, for both shifts."""
        n, stored, rows, ring = (one[self.dim] for one in (layout.shape, layout.storage, layout.block, layout.parts))
        by, shifts = self.by % max(n, 1), list[tuple[tuple[int, int, int], ...]]()
        for distance in (by,) if n == stored else (by, by - n):
            hops, rest = divmod(distance, rows) if rows else (0, 0)
            tail, head = (rows - rest, rows, (hops + 1) % ring), (0, rows - rest, hops % ring)
            shifts.append((tail, head) if rest else (head,))
        return shifts

    def transpose(self, layout: Layout) -> "Roll":
        return Roll(self.dim, -self.by)

    def name(self, layout: Layout) -> str:
        return f"roll {names((self.dim,), layout)} by {self.by}"


class Band(NamedTuple):
    """Rows from `source` on, copied to `target` on with a weight."""

    source: int
    target: int
    rows: int
    weight: float = 1.0
    reverse: bool = False

    def transpose(self) -> "Band":
        return self._replace(source=self.target, target=self.source)


class Segment(NamedTuple):
    """Rows of a band between two devices, with offsets in their blocks."""

    sender: int
    receiver: int
    source: int
    target: int
    rows: int
    band: Band

    @property
    def way(self) -> tuple[bool, bool]:
        """Whether it is sent, and reversed; equal for all of a round."""
        return self.sender != self.receiver, self.band.reverse

    def first(self, most: int) -> int:
        """First of the `most` rows that its sender slices."""
        return self.source + (self.rows - most if self.band.reverse else 0)


Together = tuple[Segment, ...]  # segments of one round, the longest first


@dataclasses.dataclass(frozen=True)
class Bands(OneDim):
    """Bands of rows copied to other positions of a dimension of another size.

        new[target + i] += weight old[source + i],   0 <= i < rows,   for every band; new is 0 elsewhere

    Each round is one permute, or none if rows stay: every device sends and receives at most one segment. All send as
    many rows as the longest segment; receivers drop the excess.

    A band of all rows pads or crops the dimension; a band of some rows clears the rest.
    """

    size: int  # of the result
    cuts: Cuts  # of the result, by the same mesh axes
    bands: tuple[Band, ...]

    def after(self, layout: Layout) -> Layout:
        return layout.replace(self.dim, self.size, self.cuts)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Rows sent and copied; a distant device loads links like as many hops."""
        before, after = (math.prod(one.block) * itemsize for one in (layout, self.after(layout)))
        row, parts = before // max(layout.block[self.dim], 1), layout.parts[self.dim]
        moves = []
        for segments in filter(lambda segments: segments[0].way[0], _rounds(self, layout)):
            hops = max(min((s.sender - s.receiver) % parts, (s.receiver - s.sender) % parts) for s in segments)
            moves.append(Move("ring", layout.axes[self.dim], segments[0].rows * row, hops))
        sent, largest = sum(move.nbytes for move in moves), max((move.nbytes for move in moves), default=0)
        return Work(
            memory_bytes=BAND_PASSES * (before + after + sent),
            sent_bytes=sent,
            hops=len(moves),
            moves=tuple(moves),
            peak_bytes=2 * (before + after + largest),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        one = self._on_one if layout.parts[self.dim] == 1 else self._on_ring
        return jax.tree.map(functools.partial(one, layout=layout), block)

    def _on_one(self, block: Array, layout: Layout) -> Array:
        parts = []
        for band in self.bands:
            rows = lax.slice_in_dim(block, band.source, band.source + band.rows, axis=self.dim)
            rows = lax.rev(rows, (self.dim,)) if band.reverse else rows
            rows = rows if band.weight == 1 else rows * band.weight
            parts.append(_within(rows, self.dim, band.target, self.size - band.target - band.rows))
        return functools.reduce(jnp.add, parts)

    def _on_ring(self, block: Array, layout: Layout) -> Array:
        dim, rounds, size = self.dim, _rounds(self, layout), self.after(layout).block[self.dim]
        segments = [(s, together[0].rows) for together in rounds for s in together]
        before = max([0, *(-s.first(most) for s, most in segments)])
        behind = max([0, *(s.first(most) + most - block.shape[dim] for s, most in segments)])
        beyond = max([0, *(s.target + most - size for s, most in segments)])
        block = _within(block, dim, before, behind)
        new = jnp.zeros([size + beyond if d == dim else n for d, n in enumerate(block.shape)], block.dtype)
        for together in rounds:
            rows = self._received(block, together, layout, before)
            at = self._here({s.receiver: s.target for s in together}, layout)
            rows = rows + lax.dynamic_slice_in_dim(new, at, rows.shape[dim], dim)
            new = lax.dynamic_update_slice_in_dim(new, rows, at, dim)
        return resize(new, dim, size)

    def _received(self, block: Array, segments: Together, layout: Layout, before: int) -> Array:
        """Rows received in a round, times their weight, then zeros."""
        dim, (travels, reverse), most = self.dim, segments[0].way, segments[0].rows
        first = self._here({s.sender: before + s.first(most) for s in segments}, layout)
        rows = lax.dynamic_slice_in_dim(block, first, most, dim)
        rows = lax.rev(rows, (dim,)) if reverse else rows
        if travels:
            senders = {s.receiver: s.sender for s in segments}
            rows = permuted(rows, layout.axes[dim], [senders.get(i) for i in range(layout.parts[dim])])
        if any(s.band.weight != 1 for s in segments):
            weights = {s.receiver: s.band.weight for s in segments}
            rows = rows * self._here(weights, layout, real_dtype(rows.dtype)).astype(rows.dtype)
        if travels and all(s.rows == most for s in segments):
            return rows  # a permute leaves zeros on devices that receive nothing
        index, counts = lax.broadcasted_iota(np.int32, rows.shape, dim), {s.receiver: s.rows for s in segments}
        return jnp.where(index < self._here(counts, layout), rows, jnp.zeros_like(rows))

    def _here(self, values: Mapping[int, float], layout: Layout, dtype: DTypeLike = np.int32) -> Array:
        table = np.zeros(layout.parts[self.dim], dtype)
        table[list(values)] = list(values.values())
        return jnp.asarray(table)[lax.axis_index(layout.axes[self.dim])]

    def transpose(self, layout: Layout) -> "Bands":
        bands = tuple(band.transpose() for band in self.bands)
        return Bands(self.dim, layout.shape[self.dim], layout.cuts[self.dim], bands)

    def name(self, layout: Layout) -> str:
        old, new = layout.shape[self.dim], self.size
        if self.bands == (Band(0, 0, rows := self.bands[0].rows),) and rows < old == new:
            return f"clear {names((self.dim,), layout)} from {rows} on"
        whole = "pad" if old < new else "crop" if new < old else "equal blocks of"
        what = whole if self.bands == (Band(0, 0, min(old, new)),) else "bands of"
        return f"{what} {names((self.dim,), layout)}: {old} -> {new}"


@functools.lru_cache(maxsize=1024)
def _rounds(step: Bands, layout: Layout) -> tuple[Together, ...]:
    """Segments in rounds: the longest first, each in the first round with both devices free."""
    rounds: list[list[Segment]] = []
    for segment in sorted(_segments(step, layout), key=lambda segment: -segment.rows):
        for others in rounds:
            free = all(segment.sender != other.sender and segment.receiver != other.receiver for other in others)
            if free and segment.way == others[0].way:
                others.append(segment)
                break
        else:
            rounds.append([segment])
    return tuple(map(tuple, rounds))


def _segments(step: Bands, layout: Layout) -> Iterator[Segment]:
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
                yield Segment(sender, receiver, int(source - start), int(low - to), int(high - low), band)


def _within(rows: Array, dim: int, before: int, behind: int) -> Array:
    around = [(before, behind, 0) if d == dim else (0, 0, 0) for d in range(rows.ndim)]
    return lax.pad(rows, jnp.zeros((), rows.dtype), around)
