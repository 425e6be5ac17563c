"""PhaseFFT and SixStep: the FFT of one dimension that stays cut, round a ring or in three exchanges."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax.numpy as jnp
from jax import Array, lax

from ..collectives.all_to_all import exchange, exchange_packed, split
from ..collectives.ring import ring_sum
from ..kernels.local import fft, fft_error, flops_of
from ..kernels.stockham import LARGEST, in_place, radices
from ..layout.layout import Layout, line_shape, nested
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.phases import MAX_LENGTH, mulmod, roots, table
from ..numerics.split_complex import Block, in_complex, join
from ..operators.matrices import Matrix, Roots
from .base import Least, MatrixStep, names
from .exchange import MOST_CHUNKS
from .exchange import PASSES as EXCHANGE_PASSES
from .local_fft import LocalFFT
from .problem import Problem, ready
from .ring_dense import RingDense

UNIT_PASSES = 4  # of a phase ring on a matrix unit: gathering, and the first phase
RING_PASSES = 18  # over two shards: exchange, FFT and phases ten, and four for each shard summed
SIX_STEP_PASSES = 2 * 2 + 2 + 6  # two FFTs, phases, and a transpose
NEAR = 32  # columns whose phases come from a table


@dataclasses.dataclass(frozen=True)
class PhaseFFT(MatrixStep[Roots]):
    """The paper's FFT of one dimension (section III-B): gather, local FFT of length M = N/p, phase adjustment, in
    order.

    With n = p l + b, device b gathers x[p l + b] for all l and transforms over l; then device q, which holds the
    outputs k = q M + r, sums over the ring

        X[q M + r] = sum_b exp(sign 2 pi i b q / p) (exp(sign 2 pi i b r / N) X_b[r]),

    the paper's phase exp(sign 2 pi i b k / N) in two exact factors: the inner one is applied once, before the ring.
    """

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["PhaseFFT"]:
        for dim, matrix in _evenly_cut(layout, todo).items():
            yield cls((dim,), matrix, (matrix.rows,))

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """The bound of every FFT of a dimension that stays cut, SixStep's and PackedFFT's too: over two shards, on top
        of the cheapest local transform.
        """
        passes, nbytes = RING_PASSES - 2 if problem.machine.chip.side == 1 else 2 * UNIT_PASSES, problem.least_bytes
        ring = problem.bound(Work(memory_bytes=passes * nbytes, sent_bytes=nbytes // 2 + nbytes, hops=1))
        dense = RingDense.least(problem).local
        return Least(cut={dim: min(dense[dim], local) + ring for dim, local in LocalFFT.least(problem).local.items()})

    def error(self, itemsize: int) -> float:
        return fft_error(self.matrix.length, itemsize)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """A local FFT, and for each shard a phase and a sum."""
        parts, block, length = layout.parts[self.dim], math.prod(layout.block), layout.block[self.dim]
        behind, axes, size = layout.ndim - 1 - self.dim, layout.axes[self.dim], block * itemsize
        local = LocalFFT(self.dims, self.matrix.sign, (length,), (length,)).work(layout, itemsize, chip)
        if chip.side > 1:
            work = dataclasses.replace(local, memory_bytes=local.memory_bytes + (UNIT_PASSES + 3 * parts) * size)
        else:
            passes = RING_PASSES + 10 * behind + 4 * (parts - 2)
            work = Work(vector_flops=local.vector_flops, memory_bytes=passes * size)
        return dataclasses.replace(
            work,
            vector_flops=work.vector_flops + (6 + 8 * parts) * block,
            sent_bytes=(block // parts * (parts - 1) + (parts - 1) * block) * itemsize,
            all_to_alls=int(parts > 1),
            hops=parts - 1,
            moves=(Move("all-to-all", axes, size, 1), Move("ring", axes, size, parts - 1)),
            peak_bytes=5 * size,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        dim, axes, parts = self.dim, layout.axes[self.dim], layout.parts[self.dim]
        sign, real, index = self.matrix.sign, block.real.dtype, lax.axis_index(axes)
        gathered = exchange_packed(_comb(block, dim, parts), axes, dim, dim)
        transformed = fft(gathered, (dim,), sign, "xla")
        powers = index * jnp.arange(block.shape[dim], dtype=jnp.int32)
        adjusted = transformed * join(roots(powers, self.matrix.length, sign, real)).reshape(
            line_shape(dim, block.ndim)
        )

        def term(held: Array, shard: Array) -> Array:
            return held * join(roots(shard * index % parts, parts, sign, real))

        return ring_sum(term, adjusted, axes)

    def name(self, layout: Layout) -> str:
        return f"gather, fft, phase ring {names(self.dims, layout)}"


@dataclasses.dataclass(frozen=True)
class SixStep(MatrixStep[Roots]):
    """The FFT of one dimension of N = N1 N2 positions over p shards, where p divides N1 and N2, in order.

    With n = N2 n1 + n2 and k = k1 + N1 k2,

        X[k] = sum_n2 exp(sign 2 pi i n2 k2 / N2) exp(sign 2 pi i n2 k1 / N) sum_n1 exp(sign 2 pi i n1 k1 / N1) x[n].

    A device holds rows n1 of the matrix x[n1, n2]; it exchanges them for columns n2 and transforms over n1; back for
    rows k1, and transforms over n2; for columns k2, whose transpose is its part of X.

    Source: Bailey, FFTs in external or hierarchical memory, 1990.
    """

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["SixStep"]:
        """As PhaseFFT, where exchanges are cheap and a cache takes a few lines at a time."""
        for dim, matrix in _evenly_cut(layout, todo).items() if problem.large(layout) else ():
            if layout.parts[dim] <= MOST_CHUNKS and sides(matrix.length, layout.parts[dim]) is not None:
                yield cls((dim,), matrix, (matrix.rows,))

    def error(self, itemsize: int) -> float:
        return math.hypot(fft_error(self.matrix.length, itemsize), 2.0**-24 if itemsize == 8 else 2.0**-53)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Two local FFTs and three exchanges of (p - 1)/p of the block."""
        parts, points = layout.parts[self.dim], math.prod(layout.block)
        size = points * itemsize
        return Work(
            vector_flops=round(points * (flops_of(self.matrix.length) + 12)),
            memory_bytes=(3 * EXCHANGE_PASSES + SIX_STEP_PASSES) * size,
            sent_bytes=3 * (size // parts * (parts - 1)),
            all_to_alls=3,
            moves=(Move("all-to-all", layout.axes[self.dim], size, 3),),
            peak_bytes=5 * size,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        axes, parts, shape = layout.axes[self.dim], layout.parts[self.dim], block.shape
        length, sign = self.matrix.length, self.matrix.sign
        rows = sides(length, parts)
        assert rows is not None, "no step is offered for such a length"
        before, after = math.prod(shape[: self.dim]), math.prod(shape[self.dim + 1 :])
        lines = block.reshape(before, rows // parts, length // rows, *((after,) if after > 1 else ()))
        lines = jnp.concatenate(exchange(split(lines, 2, parts), axes), 1)
        lines = in_place(lines, (1,), sign, ((1, parts),))
        lines = _phased(lines, length, lax.axis_index(axes), sign)
        lines = jnp.concatenate(exchange(split(lines, 1, parts), axes), 2)
        lines = in_place(lines, (2,), sign, ((2, parts),))
        lines = jnp.concatenate([part.swapaxes(1, 2) for part in exchange(split(lines, 2, parts), axes)], 2)
        return lines.reshape(shape)

    def name(self, layout: Layout) -> str:
        return f"six-step fft {names(self.dims, layout)}"


def _evenly_cut(layout: Layout, todo: dict[int, Matrix]) -> dict[int, Roots]:
    """The dimensions of a complex FFT that are cut into p shards, where p^2 divides their length."""
    evenly = dict[int, Roots]()
    for dim, matrix in ready(todo).items():
        parts, size = layout.parts[dim], layout.shape[dim]
        fits = nested(layout.cuts[dim]) and size == matrix.rows < MAX_LENGTH
        if isinstance(matrix, Roots) and matrix.has_fft and fits and parts > 1 and size % parts**2 == 0:
            evenly[dim] = matrix
    return evenly


def _comb(block: Array, dim: int, parts: int) -> Array:
    """Position l p + b of a dimension goes to b (M/p) + l: what belongs to one residue b stands together."""
    shape = (*block.shape[:dim], block.shape[dim] // parts, parts, *block.shape[dim + 1 :])
    return block.reshape(shape).swapaxes(dim, dim + 1).reshape(block.shape)


@functools.lru_cache(maxsize=1024)
def sides(length: int, parts: int) -> int | None:
    """N1: the factor nearest to the root of N that small radices make, where p divides it and N / N1; None without."""
    if length % parts**2:
        return None
    many = length // parts**2
    divisors = {d for low in range(1, math.isqrt(many) + 1) if many % low == 0 for d in (low, many // low)}
    rows = [parts * d for d in divisors if max(radices(parts * d), default=1) <= LARGEST]
    return min(rows, key=lambda n: abs(math.log(n * n / length)), default=None)


def _phased(lines: Array, length: int, index: Array, sign: int) -> Array:
    """Times exp(sign 2 pi i k1 n2 / N): of a few columns n2 side by side a table, and exact phases of the first."""
    _, rows, columns, *behind = lines.shape
    near = math.gcd(columns, NEAR)
    first = (index * columns + jnp.arange(0, columns, near)).astype(jnp.uint32)
    powers = mulmod(jnp.arange(rows, dtype=jnp.uint32)[:, None], first[None, :], length)
    far = join(roots(powers, length, sign, lines.real.dtype))[:, :, None]
    phases = far * table(rows, near, length, sign, lines.dtype)[:, None, :]
    return lines * phases.reshape(1, rows, columns, *(1 for _ in behind))
