"""LocalTrig: the cosine or sine transform of a dimension that every device holds whole."""

import dataclasses
import math
from typing import Any

from ..kernels.local import fft_error, resize
from ..kernels.trig import transform
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.split_complex import Block, Planes, in_planes
from ..operators.trig import Trig
from .base import Step, names, shift
from .local_fft import LocalFFT

PASSES = 8  # beside the FFT: samples are reordered and weighted before it, turned and weighted after it


@dataclasses.dataclass(frozen=True)
class LocalTrig(Step):
    """The cosine or sine transform of a whole dimension, of each plane by itself.

    Attributes:
        dim: the dimension.
        matrix: the transform.
        size: positions of the result; beyond the matrix it is zero.
        real: the block is real.
    """

    dim: int
    matrix: Trig
    size: int
    real: bool

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    def error(self, itemsize: int) -> float:
        return fft_error(int(self.matrix.period), itemsize)

    def after(self, layout: Layout) -> Layout:
        return layout.resize(self.dim, self.size)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """A real FFT for each plane, half of a complex one, and the passes around it; type I has twice the points."""
        length = self.matrix.length
        points = int(self.matrix.period) if self.matrix.type == 1 else length
        fft = LocalFFT((self.dim,), 1, (points,), (points,)).work(layout, itemsize, chip)
        size = math.prod(layout.resize(self.dim, length).block) * itemsize
        halves = 2 if self.real else 1
        return dataclasses.replace(
            fft,
            vector_flops=fft.vector_flops // halves,
            matrix_flops=fft.matrix_flops // halves,
            memory_bytes=fft.memory_bytes + PASSES * size,
            peak_bytes=fft.peak_bytes + 2 * size,
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        return in_planes(self._apply, block)

    def _apply(self, planes: Planes) -> Planes:
        dim, matrix = self.dim, self.matrix
        done = (transform(resize(plane, dim, matrix.length), dim, matrix) for plane in planes)
        return tuple(resize(plane, dim, self.size) for plane in done)

    def transpose(self, layout: Layout) -> "LocalTrig":
        return dataclasses.replace(self, matrix=self.matrix.transpose(), size=layout.shape[self.dim])

    def invert(self, layout: Layout) -> "LocalTrig":
        return dataclasses.replace(self, matrix=self.matrix.inverse, size=layout.shape[self.dim])

    def insert(self, dim: int) -> "LocalTrig":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"{self.matrix.name} {names((self.dim,), layout)}"
