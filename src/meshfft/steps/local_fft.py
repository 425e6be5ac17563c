"""LocalFFT and LocalTrig: the FFT, and the cosine and sine transforms, of dimensions that every device holds whole."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from jax import Array

from ..collectives.all_to_all import Grid, count, divided, fits
from ..kernels.bluestein import is_awkward
from ..kernels.local import batch_bytes, batch_passes, fft, fft_error, fits_batches, flops_of, resize, stages
from ..kernels.stockham import NARROWEST, PLANE_BYTES, by_columns, together
from ..kernels.trig import transform
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.split_complex import Block, Planes, in_complex, in_planes
from ..operators.matrices import Matrix, Roots
from ..operators.trig import Trig
from .base import Held, Least, Problem, Step, names, padded, ready, shift

# What XLA's FFT reads and writes on a matrix unit, in blocks: for each dimension beside its products (transposes), and
# for each stage in them: three real products, each reading and writing planes. Fitted to the cycles of TPU v3 and v5p.
UNIT_PASSES = 3
STAGE_PASSES = 5
TRIG_PASSES = 8  # beside the FFT: samples are reordered and weighted before it, turned and weighted after it


@dataclasses.dataclass(frozen=True)
class LocalFFT(Step):
    """The FFT of dimensions that every device holds whole, by one of the engines of `local`.

    Attributes:
        dims: the dimensions.
        sign: of the exponent.
        lengths: N of each.
        sizes: how many of its results are left of each.
        engine: a name of `local`.
        grid: how "cached" takes the block apart, as the exchanges beside this step do (see collectives.all_to_all).
        whole: the block is the array that came, and not what an exchange joined.
    """

    dims: tuple[int, ...]
    sign: int
    lengths: tuple[int, ...]
    sizes: tuple[int, ...]
    engine: str = "xla"
    grid: Grid = ()
    whole: bool = False

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["LocalFFT"]:
        """All whole dimensions in one call of XLA, or in batches, or those that a cache can take a few lines at a time.

        Batches cost more passes, so that a search takes them only where all at once does not fit.
        """
        roots = whole_roots(layout, ready(todo))
        if not roots:
            return
        sign, lengths = next(iter(roots.values())).sign, {dim: matrix.length for dim, matrix in roots.items()}
        near = {dim: n for dim, n in lengths.items() if problem.large(layout) and _near(layout, dim, n)}
        if near:
            yield cls._of(near, sign, "cached")
        awkward = any(is_awkward(length, problem.machine.chip.cached) for length in lengths.values())
        yield cls._of(lengths, sign, "chirp" if awkward else "xla")
        if _tight(problem, layout, roots):
            yield cls._of(lengths, sign, "batched")

    @classmethod
    def _of(cls, lengths: dict[int, int], sign: int, engine: str) -> "LocalFFT":
        points = tuple(lengths.values())
        return cls(tuple(lengths), sign, points, points, engine)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """The bound of every FFT of a whole dimension, RealFFT's and LocalTrig's too."""
        return Least(whole=least_whole(problem))

    def error(self, itemsize: int) -> float:
        return math.hypot(*(fft_error(length, itemsize) for length in self.lengths))

    def after(self, layout: Layout) -> Layout:
        return resized(layout, self.dims, self.sizes)

    def fuse(self, before: Step | None, after: Step | None) -> "LocalFFT":
        """In a cache it works on the smaller pieces of those that its neighbours leave and take."""
        if self.engine != "cached":
            return self
        grids = [before.joined if before else (), after.taken if after else ()]
        finest = max(grids, key=count)
        many = {dim: math.prod(parts for d, parts in finest if d == dim) for dim, _ in finest}  # most: joined last
        grid = tuple(sorted(finest, key=lambda cut: (-many[cut[0]], cut[0])))
        return dataclasses.replace(self, grid=grid, whole=before is None)

    @property
    def joined(self) -> Grid:
        return self.grid

    def held(self, layout: Layout) -> Held | None:
        """In a cache no array is larger than the block, padded to the lengths."""
        if self.engine != "cached":
            return None
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        padded = math.prod(lengths.get(d, b) for d, b in enumerate(layout.block))
        piece = divided(layout.block, self.grid) if fits(layout.block, self.grid) else layout.block
        return Held(max(padded, math.prod(layout.block), math.prod(self.after(layout).block)), piece)

    def scratch(self, itemsize: int) -> int:
        """The lines that it works on at a time."""
        return max(PLANE_BYTES, NARROWEST * max(self.lengths) * itemsize)

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
        if self.engine == "batched":
            alive = (math.prod(layout.block) + points) * itemsize + batch_bytes(self.lengths, itemsize)
        return Work(vector_flops=flops, memory_bytes=times * points * itemsize, peak_bytes=alive)

    def _passes(self, layout: Layout, itemsize: int) -> int:
        """How often the array is read and written."""
        if self.engine == "batched":
            return batch_passes(layout.block, self.dims, itemsize)
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


def resized(layout: Layout, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Layout:
    """The layout with other sizes of some dimensions."""
    for dim, size in zip(dims, sizes, strict=True):
        layout = layout.resize(dim, size)
    return layout


def whole_roots(layout: Layout, todo: dict[int, Matrix]) -> dict[int, Roots]:
    """The dimensions of a complex FFT that every device holds whole."""
    return {d: m for d, m in sorted(todo.items()) if isinstance(m, Roots) and m.has_fft and layout.parts[d] == 1}


def least_whole(problem: Problem) -> dict[int, float]:
    """The least seconds of the FFT of each dimension, where an FFT can do it."""
    found = problem.todo(frozenset()).items()
    return {dim: _least(problem, problem.least_rows[dim]) for dim, matrix in found if matrix.has_fft}


def _least(problem: Problem, rows: int) -> float:
    chip = problem.machine.chip
    if chip.side > 1:
        flops = 6 * sum(stages(rows, chip.side)) * problem.points // problem.halves
        return problem.machine.price(Work(flops, "bf16x6", memory_bytes=2 * problem.least_bytes))
    flops = int(5 * problem.points * math.log2(max(rows, 1))) // problem.halves
    return problem.bound(vector_flops=flops, memory_bytes=problem.pass_bytes)


def _near(layout: Layout, dim: int, length: int) -> bool:
    """True where a dimension may be done a few lines at a time; one device by itself has all cores for many."""
    if math.prod(layout.parts) == 1:
        return False
    return not is_awkward(length, True) if dim == layout.ndim - 1 else by_columns(layout.block, dim, length)


def _tight(problem: Problem, layout: Layout, roots: dict[int, Roots]) -> bool:
    """True where memory has a limit and a batch of lines can take the place of its own transform."""
    chip, whole = problem.machine.chip, all(layout.block[dim] == matrix.length for dim, matrix in roots.items())
    limited = chip.capacity is not None and chip.side == 1
    return limited and whole and fits_batches(layout.block, tuple(roots), problem.itemsize)


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

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["LocalTrig"]:
        """The first dimension that is whole: in which order they come does not matter."""
        for dim, matrix in sorted(todo.items()):
            if isinstance(matrix, Trig) and layout.parts[dim] == 1:
                yield cls(dim, matrix, matrix.rows, problem.real_at(todo))
                return

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
            memory_bytes=fft.memory_bytes + TRIG_PASSES * size,
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
