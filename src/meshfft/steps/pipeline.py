"""Pipeline: local steps and an exchange in chunks, so that one chunk is computed while the last one travels."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import jax
from jax import Array, lax

from ..collectives.all_to_all import folded, unfolded
from ..kernels.local import resize
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Work, total
from ..numerics.split_complex import Block
from ..operators.matrices import Matrix
from .base import Step, names, shift
from .exchange import AxisMove, Exchange, axis_moves
from .local_fft import LocalFFT
from .problem import Problem

CHUNKS = 8  # the first is computed while nothing travels, and each costs a message more


@dataclasses.dataclass(frozen=True)
class Pipeline(Step):
    """Steps taken one after the other, but a chunk of dimension `dim` at a time.

    No step transforms `dim`. The exchange may leave it alone; or axes leave it, and a chunk is some rows of every
    shard, which arrive all over the dimension; or, the same backwards, axes come to it.

    A barrier between the chunks' local steps keeps the compiler from batching them, which would leave nothing to do
    while a chunk travels. Results are written into one array as they arrive.
    """

    steps: tuple[Step, ...]  # a LocalFFT, and before or behind it a packed exchange of one move
    dim: int  # that is cut into chunks
    chunks: int

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Pipeline"]:
        """Local transforms and a move of axes, where devices send while they compute."""
        chip = problem.machine.chip
        for local in LocalFFT.offers(problem, layout, todo) if chip.overlaps else ():
            left = {dim: matrix for dim, matrix in todo.items() if dim not in local.dims}
            for move in axis_moves(problem, local.after(layout), left):
                if (dim := _chunked(layout, local, move)) is not None:
                    narrowest = chip.side if dim == layout.ndim - 1 else 1
                    if (chunks := min(CHUNKS, layout.block[dim] // narrowest)) > 1:
                        yield cls((local, Exchange((move,), packed=True)), dim, chunks)

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(d for step in self.steps for d in step.dims)

    @property
    def move(self) -> AxisMove:
        ((move,),) = (step.moves for step in self.steps if isinstance(step, Exchange))
        return move

    def error(self, itemsize: int) -> float:
        return math.hypot(*(step.error(itemsize) for step in self.steps))

    def after(self, layout: Layout) -> Layout:
        return functools.reduce(lambda reached, step: step.after(reached), self.steps, layout)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """That of its steps, its exchange in as many parts as there are chunks; a chunk's temporaries are a part."""
        rows = self._rows(layout)
        many = -(-rows // -(-rows // self.chunks)) if rows else 1  # equal ones may be fewer than asked for
        works = [step.work(before, itemsize, chip) for step, before in self._pairs(layout)]
        ends = (math.prod(layout.block) + math.prod(self.after(layout).block)) * itemsize
        peak, summed = ends + 2 * max(work.peak_bytes for work in works) // many, total(works)
        moves = tuple(move._replace(nbytes=move.nbytes // many, times=move.times * many) for move in summed.moves)
        exchanges = summed.all_to_alls * many
        return dataclasses.replace(summed, all_to_alls=exchanges, moves=moves, parts=many, peak_bytes=peak)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        dim, rows = self.dim, self._rows(layout)
        before, after = (self.move.parts if dim == end else 1 for end in (self.move.target, self.move.source))
        opened = jax.tree.map(lambda part: unfolded(resize(part, dim, before * rows), dim, before), block)
        size = -(-rows // self.chunks)
        chunks = [
            jax.tree.map(functools.partial(_taken, dim=dim, start=start, size=min(size, rows - start)), opened)
            for start in range(0, rows, size)
        ]
        for step, at in self._pairs(layout):
            if isinstance(step, Exchange):
                chunks = [step.apply_to_rows(chunk, at, kept=dim) for chunk in chunks]
            else:
                chunks = _one_by_one(step, chunks, at)
        joined = jax.tree.map(lambda *parts: _assembled(parts, dim, after), *chunks)
        return jax.tree.map(lambda part: resize(part, dim, self.after(layout).block[dim]), joined)

    def transpose(self, layout: Layout) -> "Pipeline":
        steps = tuple(step.transpose(before) for step, before in self._pairs(layout))
        return dataclasses.replace(self, steps=steps[::-1])

    def conjugate(self) -> "Pipeline":
        return dataclasses.replace(self, steps=tuple(step.conjugate() for step in self.steps))

    def insert(self, dim: int) -> "Pipeline":
        return Pipeline(tuple(step.insert(dim) for step in self.steps), shift(self.dim, dim), self.chunks)

    def name(self, layout: Layout) -> str:
        steps = ", ".join(step.name(before) for step, before in self._pairs(layout))
        return f"{steps}, in {self.chunks} chunks of {names((self.dim,), layout)}"

    def _rows(self, layout: Layout) -> int:
        """The rows that are cut into chunks, of each part."""
        return self.after(layout).block[self.dim] if self.dim == self.move.target else layout.block[self.dim]

    def _pairs(self, layout: Layout) -> Iterator[tuple[Step, Layout]]:
        for step in self.steps:
            yield step, layout
            layout = step.after(layout)


def _chunked(layout: Layout, local: LocalFFT, move: AxisMove) -> int | None:
    """The dimension to cut into chunks: the longest that neither step touches, else the one that axes leave."""
    free = [d for d in range(layout.ndim) if d not in (*local.dims, move.source, move.target)]
    longest = max(free, key=layout.block.__getitem__, default=move.source)
    dim = longest if layout.block[longest] >= CHUNKS else move.source
    return dim if dim not in local.dims and layout.block[dim] > 1 else None


def _one_by_one(step: Step, chunks: list[Block], layout: Layout) -> list[Block]:
    """A step on every chunk, each begun when the one before is done."""
    done: list[Block] = []
    for chunk in chunks:
        if done:
            chunk, done[-1] = lax.optimization_barrier((chunk, done[-1]))
        done.append(step.apply(chunk, layout))
    return done


def _taken(block: Array, dim: int, start: int, size: int) -> Array:
    """Some rows of every part, as one dimension."""
    return folded(lax.slice_in_dim(block, start, start + size, axis=dim + 1), dim)


def _assembled(chunks: Sequence[Array], dim: int, parts: int) -> Array:
    """The dimension from chunks of rows of every part, each written to its rows when it arrives."""
    opened = [unfolded(chunk, dim, parts) for chunk in chunks]
    shape, rows = opened[0].shape, sum(chunk.shape[dim + 1] for chunk in opened)
    result, start = lax.empty((*shape[: dim + 1], rows, *shape[dim + 2 :]), chunks[0].dtype), 0
    for chunk in opened:
        result = lax.dynamic_update_slice_in_dim(result, chunk, start, dim + 1)
        start += chunk.shape[dim + 1]
    return folded(result, dim)
