"""SixStep: the FFT of one dimension that is cut, as two dimensions and three exchanges: no ring, no gather."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ..collectives.all_to_all import exchange, split
from ..kernels.local import fft_error, flops_of
from ..kernels.stockham import LARGEST, in_place, radices
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.phases import mulmod, roots, table
from ..numerics.split_complex import Block, in_complex, join
from ..operators.matrices import Matrix
from .base import Problem, Step, names, shift
from .exchange import MOST_PIECES
from .exchange import PASSES as EXCHANGE_PASSES
from .phase_fft import PhaseFFT

PASSES = 2 * 2 + 2 + 6  # two FFTs, phases, and a transpose
NEAR = 32  # columns whose phases come from a table


@dataclasses.dataclass(frozen=True)
class SixStep(Step):
    """The FFT of one dimension of N = N1 N2 positions over p shards, where p divides N1 and N2, in order.

    With n = N2 n1 + n2 and k = k1 + N1 k2,

        X[k] = sum_n2 exp(sign 2 pi i n2 k2 / N2) exp(sign 2 pi i n2 k1 / N) sum_n1 exp(sign 2 pi i n1 k1 / N1) x[n].

    A device holds rows n1 of the matrix x[n1, n2]; it exchanges them for columns n2 and transforms over n1; back for
    rows k1, and transforms over n2; for columns k2, which turned on their side are its part of X.

    Source: Bailey, FFTs in external or hierarchical memory, 1990.
    """

    dim: int
    sign: int
    length: int

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["SixStep"]:
        """As PhaseFFT, where exchanges are cheap and a cache takes a few lines at a time."""
        for step in PhaseFFT.offers(problem, layout, todo) if problem.large(layout) else ():
            if layout.parts[step.dim] <= MOST_PIECES and sides(step.length, layout.parts[step.dim]) is not None:
                yield cls(step.dim, step.sign, step.length)

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    def error(self, itemsize: int) -> float:
        return math.hypot(fft_error(self.length, itemsize), 2.0**-24 if itemsize == 8 else 2.0**-53)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Two local FFTs and three exchanges of (p - 1)/p of the block."""
        parts, points = layout.parts[self.dim], math.prod(layout.block)
        size, axes = points * itemsize, layout.axes[self.dim]
        return Work(
            vector_flops=round(points * (flops_of(self.length) + 12)),
            memory_bytes=(3 * EXCHANGE_PASSES + PASSES) * size,
            sent_bytes=3 * (size // parts * (parts - 1)),
            all_to_alls=3,
            moves=(Move("all-to-all", axes, size, 3),),
            peak_bytes=5 * size,
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        return in_complex(lambda block: self._apply(block, layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        axes, parts, shape = layout.axes[self.dim], layout.parts[self.dim], block.shape
        rows = sides(self.length, parts)
        assert rows is not None, "no step is offered for such a length"
        columns = self.length // rows
        before, after = shape[: self.dim], shape[self.dim + 1 :]
        behind = (math.prod(after),) if math.prod(after) > 1 else ()
        lines = block.reshape(math.prod(before), rows // parts, columns, *behind)
        lines = jnp.concatenate(exchange(split(lines, 2, parts), axes), 1)
        lines = in_place(lines, (1,), self.sign, ((1, parts),))
        lines = _turned(lines, self.length, lax.axis_index(axes), self.sign)
        lines = jnp.concatenate(exchange(split(lines, 1, parts), axes), 2)
        lines = in_place(lines, (2,), self.sign, ((2, parts),))
        lines = jnp.concatenate([part.swapaxes(1, 2) for part in exchange(split(lines, 2, parts), axes)], 2)
        return lines.reshape(shape)

    def transpose(self, layout: Layout) -> "SixStep":
        return self

    def conjugate(self) -> "SixStep":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "SixStep":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"six-step fft {names((self.dim,), layout)}"


@functools.lru_cache(maxsize=1024)
def sides(length: int, parts: int) -> int | None:
    """N1: the factor nearest to the root of N that small radices make, where p divides it and N / N1; None without."""
    if length % parts**2:
        return None
    found = [parts * d for d in _divisors(length // parts**2) if max(radices(parts * d), default=1) <= LARGEST]
    return min(found, key=lambda rows: abs(math.log(rows * rows / length)), default=None)


def _divisors(n: int) -> set[int]:
    return {d for low in range(1, math.isqrt(n) + 1) if n % low == 0 for d in (low, n // low)}


def _turned(lines: Array, length: int, index: Array, sign: int) -> Array:
    """Times exp(sign 2 pi i k1 n2 / N): of a few columns n2 side by side a table, and exact phases of the first."""
    _, rows, columns, *behind = lines.shape
    near = math.gcd(columns, NEAR)
    first = (index * columns + jnp.arange(0, columns, near)).astype(jnp.uint32)
    turns = mulmod(jnp.arange(rows, dtype=jnp.uint32)[:, None], first[None, :], length)
    far = join(roots(turns, length, sign, lines.real.dtype))[:, :, None]
    phases = far * table(rows, near, length, sign, lines.dtype)[:, None, :]
    return lines * phases.reshape(1, rows, columns, *(1 for _ in behind))
