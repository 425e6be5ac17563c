"""Exchange: mesh axes leave dimensions and cut others, in one all_to_all; nothing is computed."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..collectives.all_to_all import Chunks, Grid, count, cut, divided, exchange, exchange_packed, join, split
from ..kernels.local import resize
from ..layout.layout import Cut, Cuts, Layout, even_cuts, join_axes, nested, real_cuts
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.split_complex import Block
from ..operators.matrices import Matrix
from .base import LARGE_BYTES, Held, Least, Problem, Step, names, shift

PASSES = 4  # sending reads and writes the block; so does packing or unpacking where no step beside it works on pieces
STRIDED = 8  # passes more where pieces are parts of the last dimension: short runs, one beside the other
PACKED_PASSES = 6  # packing, exchanging and unpacking each read and write the block
TILED_PASSES = 8  # where memory is tiled, packing and unpacking also transpose tiles
MOST_PIECES = 16  # of an exchange: each is an array of its own in the program


class Swap(NamedTuple):
    """Mesh axes leave dimension `source` and make the cuts `leaves` in `target`, padded at its end where they do not
    divide.
    """

    source: int
    target: int
    leaves: Cuts

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(cut.axis for cut in self.leaves)

    @property
    def parts(self) -> int:
        return math.prod(cut.parts for cut in self.leaves)

    def after(self, layout: Layout) -> Layout:
        source, target = layout.cuts[self.source][: -len(self.leaves)], layout.cuts[self.target] + self.leaves
        opened = layout.replace(self.source, layout.shape[self.source], source)
        return opened.replace(self.target, layout.shape[self.target], target)

    def transpose(self, layout: Layout) -> "Swap":
        return Swap(self.target, self.source, layout.cuts[self.source][-len(self.leaves) :])

    def insert(self, dim: int) -> "Swap":
        return self._replace(source=shift(self.source, dim), target=shift(self.target, dim))

    def name(self, layout: Layout) -> str:
        return f"{join_axes(self.axes)}: {names((self.source,), layout)} -> {names((self.target,), layout)}"


@dataclasses.dataclass(frozen=True)
class Exchange(Step):
    """Swaps done at once: each device sends a piece to every other in the product of their mesh axes.

    Packed, all pieces are one array, as one large message is better than many; only a single swap is. Where devices
    share a memory, pieces are arrays of their own (see chunks), and need neither packing nor unpacking.

    Attributes:
        swaps: as they would follow one another. No axis moves twice, and none arrives in a dimension that another left.
        chunks: how each piece is cut again, to what all exchanges of a walk can send; each chunk in an all_to_all.
        packed: all pieces are sent as one array.
    """

    swaps: tuple[Swap, ...]
    chunks: Grid = ()
    packed: bool = False
    dims: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Exchange"]:
        """Swaps; where devices share a memory in pieces, and several onto one dimension, or all from one, at once.

        Beside rings, which need no dimension whole, axes may leave only where the result would not divide as it came.
        """
        stays = problem.goal is not None and problem.goal.axes == problem.start.axes
        if problem.method == "kdft" and (stays or not problem.even):
            return
        if problem.large(layout):
            yield from cls._in_pieces(problem, layout, todo)
        else:
            yield from (cls((swap,), packed=True) for swap in swaps(problem, layout, todo))

    @classmethod
    def _in_pieces(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Exchange"]:
        """Exchanges of few pieces: one to each layout that can be reached."""
        reached = set[Layout]()
        queue: list[tuple[tuple[Swap, ...], Layout]] = [((), layout)]
        while queue:
            queue, before = [], queue
            for done, at in before:
                for swap in swaps(problem, at, todo):
                    step, after = cls((*done, swap)), swap.after(at)
                    few = step.parts <= MOST_PIECES
                    if after not in reached and _at_once(done, swap) and (few or not done):
                        reached.add(after)
                        yield step if few else dataclasses.replace(step, packed=True)
                        queue += [(step.swaps, after)] if few else []

    @classmethod
    def least(cls, problem: Problem) -> Least:
        nbytes, cached = problem.least_bytes, problem.machine.chip.cached
        packs = nbytes < LARGE_BYTES or math.prod(problem.start.parts) > MOST_PIECES
        more = (PACKED_PASSES - PASSES if packs else STRIDED) if cached else 0
        passes = PASSES if cached else PACKED_PASSES
        move = problem.bound(memory_bytes=passes * nbytes, sent_bytes=nbytes // 2, all_to_alls=1)
        return Least(move=move, strided=problem.bound(memory_bytes=more * nbytes))

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for swap in self.swaps for axis in swap.axes)

    @property
    def parts(self) -> int:
        return math.prod(swap.parts for swap in self.swaps)

    @property
    def taken(self) -> Grid:
        return () if self.packed else (*((swap.target, swap.parts) for swap in self.swaps), *self.chunks)

    @property
    def joined(self) -> Grid:
        if self.packed:
            return ()
        return (*((swap.source, swap.parts) for swap in reversed(self.swaps)), *self.chunks)

    def sent(self, layout: Layout) -> tuple[int, ...] | None:
        return None if self.packed else self._piece(layout)

    def _piece(self, layout: Layout) -> tuple[int, ...]:
        """Shape of what goes to one device, all chunks together."""
        shape, after = list(layout.block), self.after(layout).block
        for swap in self.swaps:
            shape[swap.target] = after[swap.target]
        return tuple(shape)

    def in_chunks(self, layout: Layout, chunk: tuple[int, ...]) -> "Exchange":
        chunks = [(dim, size // chunk[dim]) for dim, size in enumerate(self._piece(layout)) if size > chunk[dim]]
        return dataclasses.replace(self, chunks=tuple(chunks))

    def held(self, layout: Layout) -> Held | None:
        """In pieces no array is larger than the block, padded as it is sent."""
        if self.packed:
            return None
        piece, blocks = self._piece(layout), (layout.block, self.after(layout).block)
        return Held(max(math.prod(piece) * self.parts, *map(math.prod, blocks)), divided(piece, self.chunks))

    def after(self, layout: Layout) -> Layout:
        for swap in self.swaps:
            layout = swap.after(layout)
        return layout

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """All of the padded block leaves but one piece."""
        parts, many = self.parts, count(self.chunks)
        padded = math.prod(self._piece(layout)) * parts * itemsize
        return Work(
            memory_bytes=self._passes(layout, chip) * padded,
            sent_bytes=padded // parts * (parts - 1),
            all_to_alls=many * (parts > 1),
            moves=(Move("all-to-all", self.axes, padded // many, many),),
            peak_bytes=4 * padded,
        )

    def _passes(self, layout: Layout, chip: Chip) -> int:
        """How often the block is read and written."""
        if self.packed:
            return TILED_PASSES if chip.planes else PACKED_PASSES
        ends = [{swap.target for swap in self.swaps}, {swap.source for swap in self.swaps}]
        return PASSES + STRIDED * sum(layout.ndim - 1 in dims for dims in ends)

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        if self.packed:
            return self.apply_to_rows(block, layout)
        return jax.tree.map(functools.partial(self._apply, layout=layout), block)

    def apply_to_rows(self, block: Block, layout: Layout, kept: int | None = None) -> Block:
        """The packed exchange of a block, or of a part of it that holds some rows of dimension `kept`."""
        ((source, target, _),), after = self.swaps, self.after(layout).block

        def swapped(block: Array) -> Array:
            if target != kept:
                block = resize(block, target, after[target] * self.parts)
            block = exchange_packed(block, self.axes, target, source)
            return block if source == kept else resize(block, source, after[source])

        return jax.tree.map(swapped, block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        pieces: Chunks = {(): block}
        for swap, _, after in self._stages(layout):
            size = after.block[swap.target] * swap.parts
            padded = {key: resize(piece, swap.target, size) for key, piece in pieces.items()}
            opened = {key: split(piece, swap.target, swap.parts) for key, piece in padded.items()}
            pieces = {(*key, j): part for key, parts in opened.items() for j, part in enumerate(parts)}
        chunks = {key: cut(piece, self.chunks) for key, piece in pieces.items()}
        sent = [exchange([parts[at] for parts in chunks.values()], self.axes) for at in chunks[next(iter(chunks))]]
        came = [dict(zip(chunks[key], parts, strict=True)) for key, *parts in zip(chunks, *sent, strict=True)]
        pieces = {key: join(parts, self.chunks) for key, parts in zip(chunks, came, strict=True)}
        for swap, _, after in self._stages(layout):
            keys = dict.fromkeys(key[1:] for key in pieces)
            lines = {key: [pieces[j, *key] for j in range(swap.parts)] for key in keys}
            joined = {key: jnp.concatenate(parts, swap.source) for key, parts in lines.items()}
            pieces = {key: resize(piece, swap.source, after.block[swap.source]) for key, piece in joined.items()}
        return pieces[()]

    def transpose(self, layout: Layout) -> "Exchange":
        swaps = tuple(swap.transpose(before) for swap, before, _ in self._stages(layout))
        return dataclasses.replace(self, swaps=swaps[::-1])

    def insert(self, dim: int) -> "Exchange":
        chunks = tuple((shift(d, dim), parts) for d, parts in self.chunks)
        return dataclasses.replace(self, swaps=tuple(swap.insert(dim) for swap in self.swaps), chunks=chunks)

    def name(self, layout: Layout) -> str:
        return "swap " + ", ".join(swap.name(before) for swap, before, _ in self._stages(layout))

    def _stages(self, layout: Layout) -> Iterator[tuple[Swap, Layout, Layout]]:
        """Each swap, the layout it starts from, and the one it leaves."""
        for swap in self.swaps:
            yield swap, layout, (layout := swap.after(layout))


def swaps(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Swap]:
    """Axes leave a dimension that is still to be transformed, or where the goal does not want them."""
    for source, cuts in enumerate(layout.cuts):
        for first in range(0 if source in todo else _settled(problem, source, cuts), len(cuts)):
            if nested(cuts[first:]) and real_cuts(cuts[first:]):
                for target in _targets(problem, layout, source, todo):
                    yield from _leaving(problem, layout, source, target, cuts[first:])


def _at_once(swaps: tuple[Swap, ...], swap: Swap) -> bool:
    """True where a swap may be done together with these: all onto one dimension or all from one, no axis twice."""
    every = (*swaps, swap)
    axes = [axis for one in every for axis in one.axes]
    ends = {one.source for one in every}, {one.target for one in every}
    return len(set(axes)) == len(axes) and 1 in map(len, ends)


def _targets(problem: Problem, layout: Layout, source: int, todo: dict[int, Matrix]) -> list[int]:
    """Where axes may go. A plain transpose sends least, unless copies cost more than sending: axes that need not come
    back move once, so not onto a cut dimension that is still to be opened."""
    others = [d for d in range(layout.ndim) if d != source]
    free = [d for d in others if d not in todo or layout.parts[d] == 1]
    least = problem.goal is None and problem.method == "transpose" and not problem.machine.chip.cached
    return free or others if least else others


def _settled(problem: Problem, dim: int, cuts: Cuts) -> int:
    """How many outer cuts of a dimension may stay, which are those of the goal, or without one all that nest."""
    if problem.goal is None:
        return max(j for j in range(len(cuts) + 1) if nested(cuts[:j]))
    pairs = zip(cuts, problem.goal.cuts[dim], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _leaving(problem: Problem, layout: Layout, source: int, target: int, moved: Cuts) -> Iterator[Swap]:
    """Equal blocks in the target, or the very cuts the goal has there: they differ where sizes do not divide."""
    equal = even_cuts(layout.block[target], [(cut.axis, cut.parts) for cut in moved])
    yield Swap(source, target, equal)
    if problem.goal is not None:
        begun, wanted = layout.cuts[target], problem.goal.cuts[target]
        last: tuple[Cut, ...] = wanted[len(begun) : len(begun) + len(moved)]
        if wanted[: len(begun)] == begun and [c.axis for c in last] == [c.axis for c in moved] and last != equal:
            if nested(last) and layout.block[target] <= last[0].parts * last[0].span:
                yield Swap(source, target, last)
