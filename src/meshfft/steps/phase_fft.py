"""PhaseFFT: the paper's FFT of one dimension, by a local FFT and a phase adjustment round the ring."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ..collectives.all_to_all import exchange_packed
from ..collectives.ring import ring_sum
from ..kernels.local import fft, fft_error
from ..layout.layout import Layout, nested
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.phases import MAX_LENGTH, roots
from ..numerics.split_complex import Block, in_complex, join
from ..operators.matrices import Matrix, Roots
from .base import Least, Problem, Step, names, ready, shift
from .local_fft import LocalFFT, least_whole
from .ring_dense import RingDense

UNIT_PASSES = 4  # on a matrix unit: gathering, and the first phase
PASSES = 18  # over two shards: exchange, FFT and phases ten, and four for each shard summed


@dataclasses.dataclass(frozen=True)
class PhaseFFT(Step):
    """The paper's FFT of one dimension (section III-B): gather, local FFT of length M = N/p, phase adjustment, in
    order.

    With n = p l + b, device b gathers x[p l + b] for all l and transforms over l; then device q, which holds the
    outputs k = q M + r, sums over the ring

        X[q M + r] = sum_b exp(sign 2 pi i b q / p) (exp(sign 2 pi i b r / N) X_b[r]),

    the paper's phase exp(sign 2 pi i b k / N) in two exact factors: the inner one is applied once, before the ring.
    """

    dim: int
    sign: int
    length: int

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["PhaseFFT"]:
        """Any dimension that is cut into p shards, where p^2 divides its length."""
        for dim, matrix in ready(todo).items():
            parts, size = layout.parts[dim], layout.shape[dim]
            fits = nested(layout.cuts[dim]) and size == matrix.rows < MAX_LENGTH
            if isinstance(matrix, Roots) and matrix.has_fft and fits and parts > 1 and size % parts**2 == 0:
                yield cls(dim, matrix.sign, size)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """The bound of every FFT of a dimension that stays cut, SixStep's and PackedFFT's too: over two shards, on top
        of the cheapest transform of a whole dimension.
        """
        passes, nbytes = PASSES - 2 if problem.machine.chip.side == 1 else 2 * UNIT_PASSES, problem.least_bytes
        ring = problem.bound(memory_bytes=passes * nbytes, sent_bytes=nbytes // 2 + nbytes, hops=1)
        dense = RingDense.least(problem).whole
        return Least(cut={dim: min(dense[dim], local) + ring for dim, local in least_whole(problem).items()})

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    def error(self, itemsize: int) -> float:
        return fft_error(self.length, itemsize)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """A local FFT, and for each shard a phase and a sum."""
        parts, block, length = layout.parts[self.dim], math.prod(layout.block), layout.block[self.dim]
        behind, axes, size = layout.ndim - 1 - self.dim, layout.axes[self.dim], block * itemsize
        local = LocalFFT((self.dim,), self.sign, (length,), (length,)).work(layout, itemsize, chip)
        if chip.side > 1:
            work = dataclasses.replace(local, memory_bytes=local.memory_bytes + (UNIT_PASSES + 3 * parts) * size)
        else:
            passes = PASSES + 10 * behind + 4 * (parts - 2)
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

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        return in_complex(lambda block: self._apply(block, layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        dim, axes, parts = self.dim, layout.axes[self.dim], layout.parts[self.dim]
        length, index = layout.shape[dim], lax.axis_index(axes)
        gathered = exchange_packed(_comb(block, dim, parts), axes, dim, dim)
        transformed = fft(gathered, (dim,), self.sign, "xla")
        shape = [-1 if d == dim else 1 for d in range(block.ndim)]
        turns = index * jnp.arange(block.shape[dim], dtype=jnp.int32)
        adjusted = transformed * join(roots(turns, length, self.sign, block.real.dtype)).reshape(shape)

        def term(held: Array, shard: Array) -> Array:
            return held * join(roots(shard * index % parts, parts, self.sign, block.real.dtype))

        return ring_sum(term, adjusted, axes)

    def transpose(self, layout: Layout) -> "PhaseFFT":
        return self

    def conjugate(self) -> "PhaseFFT":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "PhaseFFT":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"gather, fft, phase ring {names((self.dim,), layout)}"


def _comb(block: Array, dim: int, parts: int) -> Array:
    """Position l p + b of a dimension goes to b (M/p) + l: what belongs to one residue b stands together."""
    shape = (*block.shape[:dim], block.shape[dim] // parts, parts, *block.shape[dim + 1 :])
    return block.reshape(shape).swapaxes(dim, dim + 1).reshape(block.shape)
