"""InPlace: FFTs of cut dimensions in a loop over chunks of the block, which leaves each chunk where it was.

    for each chunk of rows of dimension `dim`:
        the axes that cut the dimensions to transform move to `dim`     one all-to-all
        lines that are whole now are transformed, in a cache
        the axes move back                                              one all-to-all

Invariant: all that lies beside the block is of a chunk's size, whatever program the loop stands in.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import cast

from jax import Array, lax

from ..collectives.all_to_all import corner, cut
from ..collectives.wire import Wire
from ..layout.layout import Layout, even_cuts
from ..machine.chip import Chip
from ..machine.work import Work, total
from ..numerics.dtypes import Error
from ..numerics.split_complex import Block, in_complex
from ..operators.matrices import Matrix, Roots
from .axis_moves import AxisMove
from .base import Sends, Step, names, shift
from .exchange import MOST_CHUNKS, PASSES, Exchange
from .local_fft import LocalFFT
from .problem import Least, Problem, ready

CHUNK_BYTES = 2**20  # of a chunk at least: small ones have slower columns, large ones leave the caches
LARGEST = 4  # a chunk may be this many times as large, so that all are equal
COPIES = 2  # a chunk is taken out of the block and put back
CACHED = 2  # how many times cheaper it is to read and write a chunk, which lies in a cache


@dataclasses.dataclass(frozen=True)
class InPlace(Sends):
    """An exchange, a LocalFFT and the exchange back, a chunk of dimension `dim` at a time.

    It is offered only where blocks are equal and chunks are. No step transforms `dim`, so that all chunks are alike.
    """

    there: Exchange
    local: LocalFFT
    back: Exchange
    dim: int  # that is cut into chunks
    chunks: int

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["InPlace"]:
        """All cut dimensions but the one that chunks are of, or each of them, with the whole ones or without."""
        itemsize = problem.bytes_at(todo)
        if problem.sliced or not (problem.large(layout) and layout.even and problem.engine == "auto"):
            return
        roots = {d: m for d, m in ready(todo).items() if isinstance(m, Roots) and m.has_fft}
        roots = {d: m for d, m in roots.items() if m.length == m.rows == m.columns == layout.shape[d]}
        cut, whole = ([d for d in roots if (layout.parts[d] > 1) == is_cut] for is_cut in (True, False))
        for dim in range(layout.ndim):
            moved, beside = [d for d in cut if d != dim], [d for d in whole if d != dim]
            for opened in dict.fromkeys([tuple(moved), *((d,) for d in moved)]) if moved else ():
                for also in dict.fromkeys([(), tuple(beside)]):
                    lines: dict[int, Matrix] = {d: roots[d] for d in sorted((*opened, *also))}
                    yield from cls._of(problem, layout, dim, opened, lines, itemsize)

    @classmethod
    def _of(
        cls, problem: Problem, layout: Layout, dim: int, opened: Sequence[int], lines: dict[int, Matrix], itemsize: int
    ) -> Iterator["InPlace"]:
        """With the axes of some dimensions moved to `dim`, where chunks are equal and their lines fit in a cache."""
        parts = math.prod(layout.parts[d] for d in opened)
        chunks = _count(layout, dim, parts, itemsize)
        if chunks < 2 or parts > MOST_CHUNKS:
            return
        inner = at = _chunk(layout, dim, chunks)
        moves = list[AxisMove]()
        for d in opened:
            move = AxisMove(d, dim, even_cuts(at.block[dim], [cut[:2] for cut in at.cuts[d]]))
            moves, at = [*moves, move], move.after(at)
        there = Exchange(tuple(moves))
        back = there.transpose(inner)
        for local in LocalFFT.offers(problem, at, lines):
            if local.engine.chunked and local.dims == tuple(lines):
                yield cls(there, local.fuse(there, back), back, dim, chunks)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """Arithmetic, and of what one step moves, which may be for all dimensions, a share."""
        if not problem.machine.chip.cached:
            return Least()
        moved = (COPIES + 2 * PASSES // CACHED) * problem.least_bytes // problem.start.ndim
        sent, bounds = problem.least_bytes // problem.start.ndim, dict[int, float]()
        for dim in (dim for dim, matrix in problem.todo().items() if matrix.has_fft):
            flops = int(5 * problem.points * math.log2(max(problem.least_rows[dim], 1)))
            bounds[dim] = problem.bound(Work(vector_flops=flops, memory_bytes=moved, sent_bytes=sent))
        return Least(cut=bounds)

    @property
    def dims(self) -> tuple[int, ...]:
        return self.local.dims

    def error(self, layout: Layout, itemsize: int) -> Error:
        return Error.of_all(step.error(at, itemsize) for step, at in self._pairs(layout))

    def wired(self, wire: Wire) -> "InPlace":
        return dataclasses.replace(self, there=self.there.wired(wire), back=self.back.wired(wire))

    def joint(self, layout: Layout) -> bool:
        return True  # planes are made one complex array

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """That of its steps for every chunk, in a cache, and the copies of a chunk."""
        block = math.prod(layout.block) * itemsize
        one = total(step.work(at, itemsize, chip) for step, at in self._pairs(layout))
        return dataclasses.replace(
            one,
            vector_flops=one.vector_flops * self.chunks,
            memory_bytes=one.memory_bytes * self.chunks // CACHED + COPIES * block,
            sent_bytes=one.sent_bytes * self.chunks,
            all_to_alls=one.all_to_alls * self.chunks,
            moves=tuple(move._replace(times=move.times * self.chunks) for move in one.moves),
            peak_bytes=2 * block + one.peak_bytes,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        """The shares that came back are put into the block one by one: joined first, they would be copied."""
        rows, grid = layout.block[self.dim] // self.chunks, self.back.grids[1]

        def chunk(i: Array, block: Array) -> Array:
            part = lax.dynamic_slice_in_dim(block, i * rows, rows, self.dim)
            for step, at in self._pairs(layout):
                part = cast(Array, step.apply(part, at))
            for key, share in cut(part, grid).items():
                place = corner(key, grid, share.shape)
                at_chunk = [n + i * rows if d == self.dim else n for d, n in enumerate(place)]
                block = lax.dynamic_update_slice(block, share, at_chunk)
            return block

        return lax.fori_loop(0, self.chunks, chunk, block)

    def transpose(self, layout: Layout) -> "InPlace":
        inner, opened, closed = (at for _, at in self._pairs(layout))
        there, back = self.back.transpose(closed), self.there.transpose(inner)
        return dataclasses.replace(self, there=there, local=self.local.transpose(opened), back=back)

    def conjugate(self) -> "InPlace":
        return dataclasses.replace(self, local=self.local.conjugate())

    def insert(self, dim: int) -> "InPlace":
        there, local, back = self.there.insert(dim), self.local.insert(dim), self.back.insert(dim)
        return InPlace(there, local, back, shift(self.dim, dim), self.chunks)

    def name(self, layout: Layout) -> str:
        (_, at), (_, opened), _ = self._pairs(layout)
        chunks = f"{self.chunks} chunks of {names((self.dim,), layout)}"
        return f"{self.there.name(at)}, {self.local.name(opened)}, and back, in place in {chunks}"

    def _pairs(self, layout: Layout) -> tuple[tuple[Step, Layout], ...]:
        """The steps of a chunk, each with the layout it starts from."""
        inner = _chunk(layout, self.dim, self.chunks)
        opened = self.there.after(inner)
        return (self.there, inner), (self.local, opened), (self.back, self.local.after(opened))


def _chunk(layout: Layout, dim: int, chunks: int) -> Layout:
    """The layout of one chunk of every block."""
    return layout.resize(dim, layout.shape[dim] // chunks)


def _count(layout: Layout, dim: int, parts: int, itemsize: int) -> int:
    """How many chunks: the most that are large enough, of as many rows each, which axes of some parts can cut."""
    most = math.prod(layout.block) * itemsize // CHUNK_BYTES
    fewest = max(most // LARGEST, 1)
    return next((n for n in range(most, fewest, -1) if layout.block[dim] % (n * parts) == 0), 0)
