"""LocalFFT: the FFT of dimensions that every device holds whole."""

import dataclasses
import math
from typing import Any

from jax import Array

from ..collectives.chunks import Grid, divided, fits
from ..kernels.line_batches import group_bytes
from ..kernels.line_batches import passes as grouped_passes
from ..kernels.local import fft, fft_error, flops_of, resize, stages
from ..kernels.stockham import NARROWEST, PLANE_BYTES, together
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.split_complex import Block, in_complex
from .base import Step, names, padded, resized, shift

# What XLA's FFT reads and writes on a matrix unit, in blocks: for each dimension beside its products (transposes), and
# for each stage in them: three real products, each reading and writing planes. Fitted to the cycles of TPU v3 and v5p.
UNIT_PASSES = 3
STAGE_PASSES = 5


@dataclasses.dataclass(frozen=True)
class LocalFFT(Step):
    """The FFT of dimensions that every device holds whole, by one of the engines of `local`.

    Attributes:
        dims: the dimensions.
        sign: of the exponent.
        lengths: N of each.
        sizes: how many of its results are left of each.
        engine: a name of `local`.
        grid: how "cached" takes the block apart, as the exchanges beside this step do (see apart).
        whole: the block is the array that came, and not what an exchange joined.
    """

    dims: tuple[int, ...]
    sign: int
    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    engine: str = "xla"
    grid: Grid = ()
    whole: bool = False

    def error(self, itemsize: int) -> float:
        return math.hypot(*(fft_error(length, itemsize) for length in self.lengths))

    def after(self, layout: Layout) -> Layout:
        return resized(layout, self.dims, self.sizes)

    @property
    def keeps(self) -> bool:
        """True where no array is larger than the block, padded to the lengths."""
        return self.engine == "cached"

    def largest(self, layout: Layout) -> int:
        """Numbers in the largest array that it makes then."""
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        padded = math.prod(lengths.get(d, b) for d, b in enumerate(layout.block))
        return max(padded, math.prod(layout.block), math.prod(self.after(layout).block))

    def lines(self, itemsize: int) -> int:
        """Bytes of the lines that it works on at a time."""
        return max(PLANE_BYTES, NARROWEST * max(self.lengths) * itemsize)

    @property
    def joined(self) -> Grid:
        """How the pieces it works on are put together."""
        return self.grid

    def part(self, layout: Layout) -> tuple[int, ...]:
        """Shape of these pieces."""
        return divided(layout.block, self.grid) if fits(layout.block, self.grid) else layout.block

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """On a matrix unit products, else 5 N log2 N flops a line, which XLA carries past each dimension behind and
        back.
        """
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        points = math.prod(lengths.get(d, b) for d, b in enumerate(layout.block))
        wide = 2 if self.engine == "chirp" and not chip.cached else 1
        alive = (math.prod(layout.block) + 3 * wide * points) * itemsize
        if chip.side > 1:
            radices = [radix for length in self.lengths for radix in stages(length, chip.side)]
            rows, times = sum(padded(radix, chip.side) for radix in radices), UNIT_PASSES * len(self.dims)
            return Work(
                matrix_flops=6 * rows * points,
                tier="bf16x6",
                memory_bytes=times * points * itemsize,
                fed_bytes=STAGE_PASSES * len(radices) * points * itemsize,
                peak_bytes=alive,
            )
        flops, times = round(points * sum(map(flops_of, self.lengths))), self._passes(layout, itemsize)
        if self.engine == "grouped":
            alive = (math.prod(layout.block) + points) * itemsize + group_bytes(self.lengths, itemsize)
        return Work(vector_flops=flops, memory_bytes=times * points * itemsize, peak_bytes=alive)

    def _passes(self, layout: Layout, itemsize: int) -> int:
        """How often the array is read and written."""
        if self.engine == "grouped":
            return grouped_passes(layout.block, self.dims, itemsize)
        if self.engine == "cached":
            return 2 * len(together(layout.block, itemsize, self.dims))
        behind = sum(d not in self.dims for d in range(min(self.dims), layout.ndim))
        return 2 * len(self.dims) + 10 * behind

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        return in_complex(self._apply, block)

    def _apply(self, block: Array) -> Array:
        for dim, length in zip(self.dims, self.lengths, strict=True):
            block = resize(block, dim, length)
        block = fft(block, self.dims, self.sign, self.engine, self.grid, self.whole)
        for dim, size in zip(self.dims, self.sizes, strict=True):
            block = resize(block, dim, size)
        return block

    def transpose(self, layout: Layout) -> "LocalFFT":
        return dataclasses.replace(self, sizes=tuple(layout.shape[d] for d in self.dims), whole=False)

    def conjugate(self) -> "LocalFFT":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "LocalFFT":
        grid = tuple((shift(d, dim), parts) for d, parts in self.grid)
        return dataclasses.replace(self, dims=tuple(shift(d, dim) for d in self.dims), grid=grid)

    def name(self, layout: Layout) -> str:
        return f"fft {names(self.dims, layout)} ({self.engine})"
