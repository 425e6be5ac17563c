"""InPlace: FFTs of cut dimensions in a loop over chunks of the block, each written back where it was.

    for each chunk of rows of dimension `dim`:
        the axes that cut the transformed dimensions move to `dim`      one all-to-all
        whole lines are transformed in cache
        the axes move back                                              one all-to-all

Invariant: every temporary has the size of a chunk, whatever program surrounds the loop.
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

CHUNK_BYTES = 2**20  # least bytes of a chunk: small ones have slower columns, large ones leave the caches
LARGEST = 4  # a chunk may be this many times larger, so that all are equal
COPIES = 2  # a chunk is copied out of the block and back
CACHED = 2  # a pass over a chunk in cache is this many times cheaper


@dataclasses.dataclass(frozen=True)
class InPlace(Sends):
    """An exchange, a LocalFFT and the exchange back per equal chunk of `dim`, which no step transforms."""

    there: Exchange
    local: LocalFFT
    back: Exchange
    dim: int  # cut into chunks
    chunks: int

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["InPlace"]:
        """Transforms all cut dimensions but `dim`, or one of them, with or without the uncut ones."""
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
        """Steps that move the axes of `opened` to `dim`, if chunks are equal and an engine takes `lines` in cache."""
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
        """Arithmetic, and a share of one step's traffic, since one step may serve all dimensions."""
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
        return True  # planes are joined into one complex array

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
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
        """Received shares are written into the block one by one: joining them first would copy them."""
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
        inner = _chunk(layout, self.dim, self.chunks)
        opened = self.there.after(inner)
        return (self.there, inner), (self.local, opened), (self.back, self.local.after(opened))


def _chunk(layout: Layout, dim: int, chunks: int) -> Layout:
    return layout.resize(dim, layout.shape[dim] // chunks)


def _count(layout: Layout, dim: int, parts: int, itemsize: int) -> int:
    """The most equal chunks that are large enough and that `parts` divides; 0 if none is."""
    most = math.prod(layout.block) * itemsize // CHUNK_BYTES
    fewest = max(most // LARGEST, 1)
    rows, rest = divmod(layout.block[dim], parts)
    return next((n for n in range(min(most, rows), fewest, -1) if rows % n == 0), 0) if not rest else 0
