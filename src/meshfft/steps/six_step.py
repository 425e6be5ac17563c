"""SixStep: the FFT of one dimension that stays cut, in three exchanges."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax.numpy as jnp
from jax import Array, lax

from ..collectives.all_to_all import exchange
from ..collectives.dimensions import split
from ..kernels.engine import fft_error, flops_of
from ..kernels.stockham import LARGEST, in_place, radices
from ..layout.layout import Layout, nested
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.dtypes import Error, unit_of
from ..numerics.phases import MAX_LENGTH, mulmod, roots, table
from ..numerics.split_complex import Block, in_complex, join
from ..operators.matrices import Matrix, Roots
from .base import MatrixStep, Wired, names
from .exchange import MOST_CHUNKS
from .exchange import PASSES as EXCHANGE_PASSES
from .problem import Problem, ready

SIX_STEP_PASSES = 2 * 2 + 2 + 6  # two FFTs, phases, and a transpose
SMALLEST_BYTES = 2**14  # least bytes of a block; below it, a ring compiles in half the time
NEAR = 32  # adjacent columns whose phases are in a table


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
        """For devices with a shared memory: exchanges are cheap there, and lines stay in cache."""
        fast = problem.machine.chip.cached and not problem.sliced
        worth = fast and math.prod(layout.block) * problem.itemsize >= SMALLEST_BYTES
        for dim, matrix in _evenly_cut(layout, todo).items() if worth else ():
            if layout.parts[dim] <= MOST_CHUNKS and sides(matrix.length, layout.parts[dim]) is not None:
                yield cls((dim,), matrix, (matrix.rows,))

    def error(self, layout: Layout, itemsize: int) -> Error:
        unit = unit_of(itemsize)
        return Error.of_all((fft_error(self.matrix.length, itemsize), Error(unit, unit, 3 * self.wire.error)))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        parts, points = layout.parts[self.dim], math.prod(layout.block)
        size, sent = points * itemsize, self.wire.nbytes(self._lines(layout, parts), itemsize)
        return Work(
            vector_flops=round(points * (flops_of(self.matrix.length) + 12)),
            memory_bytes=(3 * EXCHANGE_PASSES + SIX_STEP_PASSES) * size,
            sent_bytes=3 * sent * (parts - 1),
            all_to_alls=3,
            moves=(Move("all-to-all", layout.axes[self.dim], sent * parts, 3),),
            peak_bytes=5 * size,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        axes, parts, shape = layout.axes[self.dim], layout.parts[self.dim], block.shape
        length, sign = self.matrix.length, self.matrix.sign
        lines = block.reshape(self._lines(layout))
        lines = jnp.concatenate(exchange(split(lines, 2, parts), axes, self.wire), 1)
        lines = in_place(lines, (1,), sign, ((1, parts),))
        lines = _phased(lines, length, lax.axis_index(axes), sign)
        lines = jnp.concatenate(exchange(split(lines, 1, parts), axes, self.wire), 2)
        lines = in_place(lines, (2,), sign, ((2, parts),))
        lines = jnp.concatenate([part.swapaxes(1, 2) for part in exchange(split(lines, 2, parts), axes, self.wire)], 2)
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


def _evenly_cut(layout: Layout, todo: dict[int, Matrix]) -> dict[int, Roots]:
    evenly = dict[int, Roots]()
    for dim, matrix in ready(todo).items():
        parts, size = layout.parts[dim], layout.shape[dim]
        fits = nested(layout.cuts[dim]) and size == matrix.rows < MAX_LENGTH
        if isinstance(matrix, Roots) and matrix.has_fft and fits and parts > 1 and size % parts**2 == 0:
            evenly[dim] = matrix
    return evenly


@functools.lru_cache(maxsize=1024)
def sides(length: int, parts: int) -> int | None:
    """N1: the factor of N with small radices nearest sqrt(N) such that p divides N1 and N / N1, else None."""
    if length % parts**2:
        return None
    many = length // parts**2
    divisors = {d for low in range(1, math.isqrt(many) + 1) if many % low == 0 for d in (low, many // low)}
    rows = [parts * d for d in divisors if max(radices(parts * d), default=1) <= LARGEST]
    return min(rows, key=lambda n: abs(math.log(n * n / length)), default=None)


def _phased(lines: Array, length: int, index: Array, sign: int) -> Array:
    """Times exp(sign 2 pi i k1 n2 / N): exact phases of every few columns n2, times a table for the columns between."""
    _, rows, columns, *behind = lines.shape
    near = math.gcd(columns, NEAR)
    first = (index * columns + jnp.arange(0, columns, near)).astype(jnp.uint32)
    powers = mulmod(jnp.arange(rows, dtype=jnp.uint32)[:, None], first[None, :], length)
    far = join(roots(powers, length, sign, lines.real.dtype))[:, :, None]
    phases = far * table(rows, near, length, sign, lines.dtype)[:, None, :]
    return lines * phases.reshape(1, rows, columns, *(1 for _ in behind))
