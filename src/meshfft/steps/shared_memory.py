"""SixStep and InPlace: FFTs of cut dimensions for devices that share a memory, where exchanges are cheap."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.all_to_all import corner, cut, exchange, split
from ..kernels.base import fft_error, flops_of
from ..kernels.stockham import LARGEST as LARGEST_RADIX
from ..kernels.stockham import NARROWEST, in_place, radices
from ..layout.layout import Layout, even_cuts, nested
from ..layout.moves import AxisMove, wanted
from ..machine.chip import Chip
from ..machine.machine import Move, Work, total
from ..numerics.chunks import varied
from ..numerics.dtypes import Error, unit_of
from ..numerics.phases import MAX_LENGTH, mulmod, roots, table
from ..numerics.split_complex import Block, in_complex, join
from ..operators.matrices import HalfRoots, Matrix, Roots
from ..operators.trig import Trig
from .base import MatrixStep, Step, names, reached
from .exchange import MOST_CHUNKS, PASSES, Exchange
from .local_fft import IN_PLACE_BYTES, LocalFFT, LocalTrig
from .problem import Least, Numbers, Problem, in_order, ready
from .real_fft import RealFFT
from .sends import InChunks, Wired

SIX_STEP_PASSES = 2 * 2 + 2 + 6  # two FFTs, phases, and a transpose
SMALLEST_BYTES = 2**14  # least bytes of a block; below it, a ring compiles in half the time
NEAR = 32  # adjacent columns whose phases are in a table
CHUNK_BYTES = 2**20  # least bytes of a chunk: small ones have slower columns
LARGEST = 4  # a chunk may be this many times larger, so that all are equal
TRIG_ARRAYS = 4  # arrays of a chunk that its cosine transform takes
COPIES = 2  # a chunk is copied out of the block and back
CACHED = 2  # a pass over a chunk in cache is this many times cheaper


@dataclasses.dataclass(frozen=True)
class SixStep(MatrixStep[Roots], Wired):
    """The FFT of one dimension of N = N1 N2 positions over p shards, in order; p divides N1 and N2.

    With n = N2 n1 + n2 and k = k1 + N1 k2,

        X[k] = sum_n2 exp(sign 2 pi i n2 k2 / N2) exp(sign 2 pi i n2 k1 / N) sum_n1 exp(sign 2 pi i n1 k1 / N1) x[n].

    A device holds rows n1 of the matrix x[n1, n2]. Three exchanges give it columns n2, transformed over n1; rows k1,
    transformed over n2; and columns k2, whose transpose is its part of X. Source: Bailey, FFTs in external or
    hierarchical memory, 1990.
    """

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["SixStep"]:
        small = math.prod(layout.block) * problem.itemsize < SMALLEST_BYTES
        if problem.sliced or small or not problem.machine.chip.cached:
            return
        for dim, matrix in ready(todo).items():
            parts, whole = layout.parts[dim], layout.shape[dim] == matrix.rows < MAX_LENGTH
            if isinstance(matrix, Roots) and matrix.has_fft and whole and nested(layout.cuts[dim]):
                if 1 < parts <= MOST_CHUNKS and sides(matrix.length, parts) is not None:
                    yield cls((dim,), matrix, (matrix.rows,))

    def passages(self, layout: Layout) -> float:
        return 3

    def error(self, layout: Layout, itemsize: int) -> Error:
        unit = unit_of(itemsize)
        return Error.of_all((fft_error(self.matrix.length, itemsize), Error(unit, unit, self.lost(layout))))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        parts, points = layout.parts[self.dim], math.prod(layout.block)
        size, lines = points * itemsize, self._lines(layout, parts)
        sent, near = self.message_bytes(lines, itemsize), math.gcd(lines[2], NEAR)
        arrays = 5 if near == 1 or parts & (parts - 1) else 4 - 1 / parts + 1 / min(near, 8)
        return Work(
            vector_flops=round(points * (flops_of(self.matrix.length) + 12)),
            memory_bytes=(3 * PASSES + SIX_STEP_PASSES) * size,
            sent_bytes=3 * sent * (parts - 1),
            all_to_alls=3,
            moves=(Move("all-to-all", layout.axes[self.dim], sent * parts, 3),),
            peak_bytes=int(arrays * size),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        axes, parts, shape = layout.axes[self.dim], layout.parts[self.dim], block.shape
        length, sign, sent = self.matrix.length, self.matrix.sign, self.over_wire(exchange)
        lines = block.reshape(self._lines(layout))
        lines = jnp.concatenate(sent(split(lines, 2, parts), axes), 1)
        lines = in_place(lines, (1,), sign, ((1, parts),))
        lines = _phased(lines, length, lax.axis_index(axes), sign)
        lines = jnp.concatenate(sent(split(lines, 1, parts), axes), 2)
        lines = in_place(lines, (2,), sign, ((2, parts),))
        lines = jnp.concatenate([part.swapaxes(1, 2) for part in sent(split(lines, 2, parts), axes)], 2)
        return lines.reshape(shape)

    def _lines(self, layout: Layout, shares: int = 1) -> tuple[int, ...]:
        """Shape of this device's rows, or of one share: lines before, rows, columns, lines behind."""
        parts, length, shape = layout.parts[self.dim], self.matrix.length, layout.block
        rows = sides(length, parts)
        assert rows is not None, "no step is offered for such a length"
        before, after = math.prod(shape[: self.dim]), math.prod(shape[self.dim + 1 :])
        return before, rows // parts, length // rows // shares, *((after,) if after > 1 else ())

    def name(self, layout: Layout) -> str:
        return f"six-step fft {names(self.dims, layout)}"


@functools.lru_cache(maxsize=1024)
def sides(length: int, parts: int) -> int | None:
    """N1: the factor of N with small radices nearest sqrt(N) such that p divides N1 and N / N1, else None."""
    if length % parts**2:
        return None
    many = length // parts**2
    divisors = {d for low in range(1, math.isqrt(many) + 1) if many % low == 0 for d in (low, many // low)}
    rows = [parts * d for d in divisors if max(radices(parts * d), default=1) <= LARGEST_RADIX]
    return min(rows, key=lambda n: abs(math.log(n * n / length)), default=None)


def _phased(lines: Array, length: int, index: Array, sign: int) -> Array:
    """Times exp(sign 2 pi i k1 n2 / N): exact phases of every few columns n2, times a table for those between."""
    _, rows, columns, *behind = lines.shape
    near = math.gcd(columns, NEAR)
    first = (index * columns + jnp.arange(0, columns, near)).astype(jnp.uint32)
    powers = mulmod(jnp.arange(rows, dtype=jnp.uint32)[:, None], first[None, :], length)
    far = join(roots(powers, length, sign, lines.real.dtype))[:, :, None]
    phases = far * table(rows, near, length, sign, lines.dtype)[:, None, :]
    return lines * phases.reshape(1, rows, columns, *(1 for _ in behind))


@dataclasses.dataclass(frozen=True)
class InPlace(InChunks):
    """A loop over equal chunks of rows of `dim`: an exchange, local transforms, and an exchange back or to the cuts of
    the goal. The result replaces the block if it has its shape and type, else it is a second array.

    Invariant: every other temporary of the loop has the size of a chunk, in any program around it.
    """

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["InPlace"]:
        """Steps for all cut dimensions but `dim`, or one of them, with or without the uncut ones. With a goal all are
        also opened in reverse order, as the axes that come last leave first."""
        if problem.sliced or not (problem.large(layout) and layout.tail and problem.any_engine):
            return
        large = math.prod(layout.block) * problem.itemsize // 2 >= IN_PLACE_BYTES
        kinds, every = (Roots, HalfRoots, Trig) if large else (Roots, HalfRoots), todo.items()
        lines = {d: m for d, m in every if isinstance(m, kinds) and m.has_fft and m.columns == layout.shape[d]}
        cut, whole = ([d for d in lines if (layout.parts[d] > 1) == is_cut] for is_cut in (True, False))
        for dim in (d for d in range(layout.ndim) if layout.storage[d] == layout.shape[d]):
            moved, beside = tuple(d for d in cut if d != dim), tuple(d for d in whole if d != dim)
            orders = (moved, moved[::-1]) if problem.goal else (moved,)
            for opened in dict.fromkeys((*orders, *((d,) for d in moved))) if moved else ():
                for also in dict.fromkeys(((), beside)):
                    some: dict[int, Matrix] = {d: lines[d] for d in sorted((*opened, *also))}
                    rest = {d: matrix for d, matrix in every if d not in some}
                    if in_order(some, rest):
                        itemsize = max(problem.bytes_at(todo), problem.bytes_at(rest))
                        yield from cls._of(problem, layout, dim, opened, some, itemsize)

    @classmethod
    def _of(
        cls, problem: Problem, layout: Layout, dim: int, opened: Sequence[int], lines: dict[int, Matrix], itemsize: int
    ) -> Iterator["InPlace"]:
        """Steps that move the axes of `opened` to `dim` and then back, or on to the goal, if chunks are equal."""
        parts = math.prod(layout.parts[d] for d in opened)
        trig = any(isinstance(matrix, Trig) for matrix in lines.values())
        chunks = _count(layout, dim, parts, itemsize * (TRIG_ARRAYS if trig else 1))
        if chunks < 2 or parts > MOST_CHUNKS:
            return
        inner = at = layout.resize(dim, layout.shape[dim] // chunks)
        moves = list[AxisMove]()
        for d in opened:
            move = AxisMove(d, dim, even_cuts(at.block[dim], [cut[:2] for cut in at.cuts[d]]))
            moves, at = [*moves, move], move.after(at)
        there = Exchange(tuple(moves))
        for steps in _by_trig(problem, at, lines, itemsize < problem.itemsize) if trig else _by_fft(problem, at, lines):
            back = there.transpose(reached(inner, steps)[-1])
            on = _onto(problem.goal, reached(at, steps)[-1], dim, len(there.axes)) if problem.goal else ()
            for last in dict.fromkeys((back, *([Exchange(on)] if on else []))):
                yield cls((there, *(step.fuse(there, last) for step in steps), last), dim, chunks)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """Arithmetic, and a share of one step's traffic, which may serve all dimensions."""
        if problem.sliced or not problem.machine.chip.cached or problem.most_bytes < 2 * CHUNK_BYTES:
            return Least()
        moved = (COPIES + 2 * PASSES // CACHED) * problem.least_bytes // problem.start.ndim
        sent, bounds = problem.least_bytes // problem.start.ndim, dict[int, float]()
        for dim, matrix in ((dim, matrix) for dim, matrix in problem.todo().items() if matrix.has_fft):
            flops = int(5 * problem.points * math.log2(max(problem.least_rows[dim], 1)))
            flops //= 2 if isinstance(matrix, Trig) else 1
            bounds[dim] = problem.bound(Work(vector_flops=flops, memory_bytes=moved, sent_bytes=sent))
        return Least(cut=bounds)

    def joint(self, layout: Layout) -> bool:
        return True  # as one complex array

    @property
    def numbers(self) -> Numbers:
        return Numbers(next((step.numbers.becomes for step in self.steps if step.numbers.becomes), None))

    def after(self, layout: Layout) -> Layout:
        step, at = self.pairs(layout)[-1]
        return step.after(at).replace(self.dim, layout.shape[self.dim], layout.cuts[self.dim])

    def pairs(self, layout: Layout) -> tuple[tuple[Step, Layout], ...]:
        return super().pairs(layout.resize(self.dim, layout.shape[self.dim] // self.chunks))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        sizes = list(itertools.accumulate(self.steps, lambda n, step: step.numbers.bytes_after(n), initial=itemsize))
        ends = math.prod(layout.block) * itemsize + math.prod(self.after(layout).block) * sizes[-1]  # input and result
        one = total(step.work(at, size, chip) for (step, at), size in zip(self.pairs(layout), sizes, strict=False))
        return dataclasses.replace(
            one,
            vector_flops=one.vector_flops * self.chunks,
            memory_bytes=one.memory_bytes * self.chunks // CACHED + COPIES * ends // 2,
            sent_bytes=one.sent_bytes * self.chunks,
            all_to_alls=one.all_to_alls * self.chunks,
            moves=tuple(move._replace(times=move.times * self.chunks) for move in one.moves),
            peak_bytes=ends + one.peak_bytes,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        """Received shares are written into the result one by one: joining them first would copy them."""
        last = self.steps[-1].chunked
        rows, grid = layout.block[self.dim] // self.chunks, last.grids[1] if last else ()
        types = {None: block.dtype, "real": block.real.dtype, "complex": np.result_type(block.dtype, np.complex64)}
        dtype, shape = types[self.numbers.becomes], self.after(layout).block
        second = None if (dtype, shape) == (block.dtype, block.shape) else varied(jnp.zeros(shape, dtype), [block])

        def chunk(i: Array, result: Array) -> Array:
            source = result if second is None else block
            part = lax.dynamic_slice_in_dim(source, i * rows, rows, self.dim)
            for step, at in self.pairs(layout):
                part = cast(Array, step.apply(part, at))
            for key, share in cut(part, grid).items():
                place = corner(key, grid, share.shape)
                at_chunk = [n + i * rows if d == self.dim else n for d, n in enumerate(place)]
                result = lax.dynamic_update_slice(result, share, at_chunk)
            return result

        return lax.fori_loop(0, self.chunks, chunk, block if second is None else second)

    def name(self, layout: Layout) -> str:
        *there, on = (step.name(at) for step, at in self.pairs(layout))
        last = "back" if self.after(layout).axes == layout.axes else on
        where = "" if self.numbers.becomes else "in place "
        return f"{', '.join(there)}, and {last}, {where}in {self.chunks} chunks of {names((self.dim,), layout)}"


def _onto(goal: Layout, layout: Layout, dim: int, axes: int) -> tuple[AxisMove, ...]:
    """Moves of the last `axes` axes of `dim` to where the goal has them; none if they lie in another order, or if
    their dimensions have not the goal's sizes yet."""
    if not axes:
        return ()
    for d, cuts in enumerate(goal.cuts):
        many = len(cuts) - len(layout.cuts[d])
        if d != dim and 0 < many <= axes and goal.shape[d] == layout.shape[d]:
            if last := wanted(goal, layout, d, layout.cuts[dim][-many:]):
                move = AxisMove(dim, d, last)
                more = _onto(goal, move.after(layout), dim, axes - many)
                return (move, *more) if more or many == axes else ()
    return ()


def _by_fft(problem: Problem, layout: Layout, lines: dict[int, Matrix]) -> Iterator[tuple[Step, ...]]:
    """One step for all lines. XLA's engine would copy a chunk, but real lines have no other."""
    in_cache = (local for local in LocalFFT.offers(problem, layout, lines) if local.engine.chunked)
    for local in itertools.chain(in_cache, RealFFT.offers(problem, layout, lines)):
        if set(local.dims) == set(lines):
            yield (local,)


def _by_trig(problem: Problem, layout: Layout, lines: dict[int, Matrix], real: bool) -> Iterator[tuple[Step, ...]]:
    each = [step for d, matrix in lines.items() for step in LocalTrig.offers(problem, layout, {d: matrix})]
    if len(each) == len(lines):
        yield tuple(dataclasses.replace(step, real=real, in_place=True) for step in each)


def _count(layout: Layout, dim: int, parts: int, itemsize: int) -> int:
    """The largest count of equal chunks that are large enough and that `parts` divides; 0 if none is. Shares of the
    last dimension are not narrow: their runs would be copied one by one.
    """
    most = math.prod(layout.block) * itemsize // CHUNK_BYTES
    fewest, narrowest = max(most // LARGEST, 1), NARROWEST if dim == layout.ndim - 1 else 1
    rows, rest = divmod(layout.block[dim], parts)
    return next((n for n in range(min(most, rows // narrowest), fewest, -1) if rows % n == 0), 0) if not rest else 0
