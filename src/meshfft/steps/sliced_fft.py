"""SlicedFFT: the float64 FFT of dimensions that no mesh axis cuts, by dense factors and products by slices."""

import dataclasses
import math
from collections.abc import Iterator

from ..kernels.local import balanced
from ..kernels.sliced import SIDE, fft, fft_error, radices, scratch
from ..layout.layout import Layout
from ..machine.chip import Chip, padded
from ..machine.work import Work
from ..numerics.dtypes import Dot
from ..numerics.slices import cost
from ..numerics.split_complex import Block, in_planes
from ..operators.matrices import Matrix
from .base import Step, names, resize_each, resized, shift
from .local_fft import local_roots
from .problem import Problem, ready

TWIDDLE_FLOPS = 200  # of a complex number: four products and two sums, in pairs of float32
TWIDDLE_PASSES = 4  # a transpose reads and writes besides


@dataclasses.dataclass(frozen=True)
class SlicedFFT(Step):
    """The FFT of dimensions that no mesh axis cuts (see kernels.sliced)."""

    dims: tuple[int, ...]
    sign: int
    lengths: tuple[int, ...]  # N of each dimension
    sizes: tuple[int, ...]  # positions that are left of each
    dot: Dot

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["SlicedFFT"]:
        """All such dimensions without a long prime factor, by every way to multiply."""
        roots = {d: m for d, m in local_roots(layout, ready(todo)).items() if radices(m.length) is not None}
        lengths = tuple(matrix.length for matrix in roots.values())
        for dot in problem.dots if roots and problem.sliced else ():
            yield cls(tuple(roots), roots[min(roots)].sign, lengths, lengths, dot)

    @property
    def planar(self) -> bool:
        return True

    @property
    def room(self) -> int:
        """As of a LocalFFT, the fast memory for kernels: products need none."""
        return 0

    @property
    def dots(self) -> tuple[Dot, ...]:
        return (self.dot,)

    def error(self, itemsize: int) -> float:
        return math.hypot(*(fft_error(length, self.dot) for length in self.lengths))

    def after(self, layout: Layout) -> Layout:
        return resized(layout, self.dims, self.sizes)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Of each factor a product; between two of them twiddle factors and a transpose."""
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        block = tuple(lengths.get(d, n) for d, n in enumerate(layout.block))
        points = math.prod(block)
        factors = [radix for length in self.lengths for radix in balanced(length, SIDE)]
        flops, nbytes = cost(self.dot, points, points, self.dot.multiplications, chip.fast_bytes)
        between = len(factors) - len(self.lengths)
        return Work(
            matrix_flops=self.dot.flops * points * sum(padded(radix, chip.side) for radix in factors),
            tier=self.dot.tier,
            vector_flops=len(factors) * flops + between * TWIDDLE_FLOPS * points,
            memory_bytes=len(factors) * nbytes + TWIDDLE_PASSES * between * points * itemsize,
            # the block, what is worked on in place, and as TPUs keep float64, in two arrays, one copy
            peak_bytes=(math.prod(layout.block) + 2 * points) * itemsize + scratch(block, self.dims),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        lines = resize_each(block, self.dims, self.lengths)
        lines = in_planes(lambda planes: fft(planes, self.dims, self.sign, self.dot), lines)
        return resize_each(lines, self.dims, self.sizes)

    def transpose(self, layout: Layout) -> "SlicedFFT":
        return dataclasses.replace(self, sizes=tuple(layout.shape[d] for d in self.dims))

    def conjugate(self) -> "SlicedFFT":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "SlicedFFT":
        return dataclasses.replace(self, dims=tuple(shift(d, dim) for d in self.dims))

    def name(self, layout: Layout) -> str:
        return f"fft {names(self.dims, layout)} ({self.dot.tier})"
