"""RealFFT: the FFT of real lines that every device holds whole, to their half spectra or back from them."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..kernels.local import fft_error, resize
from ..kernels.real import SIDE, factors, from_half_spectrum, half_spectrum
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.split_complex import Block, scaled
from ..operators.matrices import HalfRoots, Matrix
from .base import Problem, Step, names, padded, shift
from .local_fft import LocalFFT, resized, whole_roots

# What the engine "matmul" reads and writes, in blocks of reals: around one product, around two stages, and in them; and
# the real products of two stages. Fitted to the cycles of TPU v3 and v5e.
DENSE_PASSES, STAGE_PASSES, FED_PASSES = 3, 8, 20
PRODUCTS = 5
XLA_DIMS = 3  # of one call of XLA's real FFT


@dataclasses.dataclass(frozen=True)
class RealFFT(Step):
    """The FFT of whole dimensions between real lines and half spectra, in half the work of a complex one.

        X[.., k] = w_k sum_n x[n] exp(sign 2 pi i k n / N),   k = 0 ... N // 2 along the last of `dims`

    or the transpose of that, real part taken, as the matrix says.

    Attributes:
        dims: the dimensions; the last has the half spectrum, the others are complex on one side.
        matrix: that of the last dimension, whose sign is that of all.
        lengths: points of each dimension.
        sizes: what is left of each dimension.
        engine: one of `real`.
    """

    dims: tuple[int, ...]
    matrix: HalfRoots
    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    engine: str = "xla"

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["RealFFT"]:
        """The halved dimension with all others that are whole in one call of XLA, or alone."""
        for dim, matrix in todo.items():
            if isinstance(matrix, HalfRoots) and layout.parts[dim] == 1:
                others = {d: m.length for d, m in whole_roots(layout, todo).items()}
                joint = 0 < len(others) <= XLA_DIMS - 1
                if joint and (not matrix.onto_real or len(todo) == len(others) + 1):
                    yield cls._of({**others, dim: matrix.length}, matrix, "xla")
                if not matrix.onto_real or len(todo) == 1:
                    yield cls._of({dim: matrix.length}, matrix, "matmul" if problem.machine.chip.side > 1 else "xla")

    @classmethod
    def _of(cls, lengths: dict[int, int], matrix: HalfRoots, engine: str) -> "RealFFT":
        points = tuple(lengths.values())
        return cls(tuple(lengths), matrix, points, (*points[:-1], matrix.rows), engine)

    @property
    def becomes(self) -> str:
        return self.matrix.becomes

    def error(self, itemsize: int) -> float:
        return math.hypot(*(fft_error(length, itemsize) for length in self.lengths))

    def after(self, layout: Layout) -> Layout:
        return resized(layout, self.dims, self.sizes)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Half the arithmetic and half the bytes of the complex transform, or the products of its own engine."""
        real, size = (self.after(layout), itemsize // 2) if self.matrix.onto_real else (layout, itemsize)
        stages = factors(self.matrix.length) if self.engine == "matmul" else ()
        if stages:
            return self._products(real.resize(self.dims[-1], self.matrix.length), size, len(stages), chip)
        whole = LocalFFT(self.dims, self.matrix.sign, self.lengths, self.lengths).work(real, size, chip)
        return dataclasses.replace(whole, vector_flops=whole.vector_flops // 2, matrix_flops=whole.matrix_flops // 2)

    def _products(self, real: Layout, size: int, stages: int, chip: Chip) -> Work:
        """Of the engine "matmul", on a layout of real numbers of `size` bytes."""
        points = math.prod(real.block)
        rows = padded(self.matrix.length, chip.side) if stages == 1 else PRODUCTS * SIDE
        return Work(
            matrix_flops=2 * rows * points,
            tier="bf16x6",
            memory_bytes=(DENSE_PASSES if stages == 1 else STAGE_PASSES) * points * size,
            fed_bytes=0 if stages == 1 else FED_PASSES * points * size,
            peak_bytes=6 * points * size,
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        matrix = self.matrix
        block = self._resized(block, (*self.lengths[:-1], matrix.columns))
        if matrix.onto_real:
            block = from_half_spectrum(self._weighted(block), self.dims, matrix.length, matrix.sign, self.engine)
        else:
            block = self._weighted(half_spectrum(block, self.dims, matrix.sign, self.engine))
        return self._resized(block, self.sizes)

    def _resized(self, block: Block, sizes: tuple[int, ...]) -> Block:
        for dim, size in zip(self.dims, sizes, strict=True):
            block = jax.tree.map(lambda part, dim=dim, size=size: resize(part, dim, size), block)
        return block

    def _weighted(self, block: Block) -> Block:
        if not self.matrix.weighted:
            return block
        weights = self.matrix.weights(jnp.arange(self.matrix.half))

        def by(part: Array) -> Array:
            shape = [-1 if d == self.dims[-1] else 1 for d in range(part.ndim)]
            return scaled(part, weights.astype(part.real.dtype).reshape(shape))

        return jax.tree.map(by, block)

    def transpose(self, layout: Layout) -> "RealFFT":
        sizes = tuple(layout.shape[d] for d in self.dims)
        return dataclasses.replace(self, matrix=self.matrix.transpose(), sizes=sizes)

    def conjugate(self) -> "RealFFT":
        return dataclasses.replace(self, matrix=self.matrix.conjugate())

    def invert(self, layout: Layout) -> "RealFFT":
        return dataclasses.replace(self.transpose(layout), matrix=self.matrix.inverse)

    def insert(self, dim: int) -> "RealFFT":
        return dataclasses.replace(self, dims=tuple(shift(d, dim) for d in self.dims))

    def name(self, layout: Layout) -> str:
        return f"{'real from' if self.matrix.onto_real else 'real'} fft {names(self.dims, layout)} ({self.engine})"
