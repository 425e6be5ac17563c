"""LocalFFT and LocalTrig: the FFT, and cosine and sine transforms, of dimensions that no mesh axis cuts."""

import dataclasses
import math
from collections.abc import Iterator

from jax import Array

from ..collectives.all_to_all import Grid, count, divided, fits
from ..collectives.pieces import Pieces
from ..kernels.bluestein import is_awkward
from ..kernels.local import batch_bytes, batch_passes, fft, fft_error, fits_batches, flops_of, resize, stages
from ..kernels.stockham import NARROWEST, PLANE_BYTES, by_columns, together
from ..kernels.trig import transform
from ..layout.layout import Layout
from ..machine import kernel_price
from ..machine.chip import Chip, padded
from ..machine.work import Work
from ..numerics.dtypes import unit_of
from ..numerics.split_complex import Block, Planes, in_complex, in_planes
from ..operators.matrices import Matrix, Roots
from ..operators.trig import Trig
from ..tpu import engine as vector
from ..tpu import trials
from ..tpu.lines.ends import PLANES, Came, Ends
from ..tpu.parts import fft_of_pieces
from .base import Held, Least, MatrixStep, Step, names, resize_each, resized, shift
from .problem import Problem, ready

# What XLA's FFT reads and writes on a matrix unit, in blocks: for each dimension beside its products (transposes), and
# for each stage in them: three real products, each reading and writing planes. Fitted to the cycles of TPU v3 and v5p.
UNIT_PASSES = 3
STAGE_PASSES = 5
MOVED_PASSES = 4  # of XLA's FFT on a GPU, where dimensions are behind the lines: all is transposed there and back
COPIES = 3  # reads and writes of a block copied to another order of its dimensions: half as much again as in order
TRIG_ROUNDINGS = 2.5  # of an FFT that is one of cosines: two products before it, and one or two behind
TRIG_PASSES = 8  # beside the FFT: samples are reordered and weighted before it, rotated and weighted after it


@dataclasses.dataclass(frozen=True)
class LocalFFT(Step):
    """The FFT of dimensions that no mesh axis cuts, by an engine of kernels.local, or "vector", a TPU's kernels."""

    dims: tuple[int, ...]
    sign: int
    lengths: tuple[int, ...]  # N of each dimension
    sizes: tuple[int, ...]  # positions that are left of each
    engine: str = "xla"
    grid: Grid = ()  # the chunks that "cached" works on, those of the exchanges beside it
    first: bool = False  # the block is the array that came, and not what an exchange joined
    room: int = 0  # bytes of fast memory that the kernels of "vector" work in

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["LocalFFT"]:
        """All such dimensions in one call of XLA, or in batches of lines, or those that fit in a cache line by line.

        Batches cost more passes, so that a search takes them only where all at once does not fit. A TPU has kernels for
        most lengths where they lie, and for more where a copy brings them; what they leave is for XLA.
        """
        roots, chip = local_roots(layout, ready(todo)), problem.machine.chip
        if not roots:
            return
        lengths = {dim: matrix.length for dim, matrix in roots.items()}
        chosen = problem.engine == "auto"
        near = {dim: n for dim, n in lengths.items() if chosen and problem.large(layout) and _near(layout, dim, n)}
        awkward = any(is_awkward(length, chip.cached) for length in lengths.values())
        ways = [("cached", near)] if near else []
        room = kernel_room(problem)
        block = tuple(lengths.get(d, n) for d, n in enumerate(layout.block))
        if room:
            kept = {dim: n for dim, n in lengths.items() if vector.supports(block, dim, room)}
            moved = {dim: n for dim, n in lengths.items() if vector.in_orders(block, (dim,), room)}
            ways += [("vector", lines) for lines in (kept, moved if moved != kept else {}) if lines]
        ways.append(("chirp" if awkward else "xla", lengths))
        limited = chip.capacity is not None and chip.side == 1
        in_place = all(layout.block[dim] == length for dim, length in lengths.items())
        if limited and in_place and fits_batches(layout.block, tuple(roots), problem.itemsize):
            ways.append(("batched", lengths))
        for engine, lines in ways:
            sizes = tuple(lines.values())
            yield cls(tuple(lines), roots[min(roots)].sign, sizes, sizes, engine, room=room * (engine == "vector"))

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """The bound of every local FFT, RealFFT's and LocalTrig's too: a line is as long as the transform."""
        halves, local = problem.halves, dict[int, float]()
        for dim in (dim for dim, matrix in problem.todo().items() if matrix.has_fft):
            rows, side = problem.least_rows[dim], problem.machine.chip.side
            points = problem.points * rows // max(min(rows, problem.start.shape[dim]), 1)
            if problem.has_kernels:  # which read and write once for two dimensions
                local[dim] = problem.bound(Work(memory_bytes=points * problem.itemsize // halves * (rows > 1)))
            elif side > 1:
                flops = 6 * sum(stages(rows, side)) * points // halves
                local[dim] = problem.machine.price(Work(flops, "bf16x6", memory_bytes=2 * problem.least_bytes))
            else:
                flops = int(5 * points * math.log2(max(rows, 1))) // halves
                local[dim] = problem.bound(Work(vector_flops=flops, memory_bytes=problem.pass_bytes))
        return Least(local=local)

    def error(self, itemsize: int) -> float:
        return math.hypot(*(fft_error(length, itemsize) for length in self.lengths))

    def after(self, layout: Layout) -> Layout:
        return resized(layout, self.dims, self.sizes)

    def fuse(self, before: Step | None, after: Step | None) -> "LocalFFT":
        """In a cache it works on the smaller chunks of those that its neighbours join and cut."""
        if self.engine != "cached":
            return self
        finest = max(before.grids[1] if before else (), after.grids[0] if after else (), key=count)
        many = {dim: math.prod(parts for d, parts in finest if d == dim) for dim, _ in finest}  # most: joined last
        grid = tuple(sorted(finest, key=lambda cut: (-many[cut[0]], cut[0])))
        return dataclasses.replace(self, grid=grid, first=before is None and bool(grid))

    @property
    def grids(self) -> tuple[Grid, Grid]:
        return (), self.grid

    def held(self, layout: Layout, itemsize: int) -> Held | None:
        """In a cache no array is larger than the block, padded to the lengths."""
        if self.engine != "cached":
            return None
        chunk = divided(layout.block, self.grid) if fits(layout.block, self.grid) else layout.block
        largest = max(self._points(layout), math.prod(layout.block), math.prod(self.after(layout).block))
        return Held(largest, chunk, max(PLANE_BYTES, NARROWEST * max(self.lengths) * itemsize))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Products on a matrix unit, else 5 N log2 N flops a line; XLA transposes each dimension behind, and back."""
        points, wide = self._points(layout), 2 if self.engine == "chirp" and not chip.cached else 1
        alive = (math.prod(layout.block) + 3 * wide * points) * itemsize
        if self.engine == "vector" and chip.scratch is not None:
            return self._kernel_work(self._lines(layout), alive, itemsize, chip)
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
        flops, times = round(points * sum(map(flops_of, self.lengths))), self._passes(layout, itemsize, chip.switched)
        if self.engine == "batched":
            alive = (math.prod(layout.block) + points) * itemsize + batch_bytes(self.lengths, itemsize)
        return Work(vector_flops=flops, memory_bytes=times * points * itemsize, peak_bytes=alive)

    def _kernel_work(self, lines: tuple[int, ...], alive: int, itemsize: int, chip: Chip) -> Work:
        """The price of each pass over registers that may not be full, and of the copies around them."""
        points, cycles, filled = math.prod(lines), 0, 1.0
        for at, (order, dims) in enumerate(vector.in_orders(lines, self.dims, self.room)):
            filled = max(filled, vector.waste(lines, order) if at else 1)
            for one in vector.passes([lines[d] for d in order], [order.index(d) for d in dims], self.room):
                cycles += kernel_price.cycles(chip, one.kind, one.lengths, round(points * filled))
        copied = vector.copies(lines, self.dims, self.room) * COPIES * round(points * filled)
        return Work(
            kernel_flops=round(points * sum(map(flops_of, self.lengths))),
            kernel_cycles=cycles,
            memory_bytes=copied * itemsize,
            peak_bytes=alive,
        )

    def _lines(self, layout: Layout) -> tuple[int, ...]:
        """The shape of a block of lines as long as the transforms."""
        lengths = dict(zip(self.dims, self.lengths, strict=True))
        return tuple(lengths.get(d, n) for d, n in enumerate(layout.block))

    def _points(self, layout: Layout) -> int:
        return math.prod(self._lines(layout))

    def _passes(self, layout: Layout, itemsize: int, switched: bool) -> int:
        """How often the array is read and written."""
        if self.engine == "batched":
            return batch_passes(layout.block, self.dims, itemsize)
        if self.engine == "cached":
            return 2 * len(together(layout.block, itemsize, self.dims))
        behind = sum(d not in self.dims for d in range(min(self.dims), layout.ndim))
        return 2 * len(self.dims) + (MOVED_PASSES * (behind > 0) if switched else 10 * behind)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_planes(self._by_kernels, block) if self.engine == "vector" else in_complex(self._apply, block)

    @property
    def takes_pieces(self) -> tuple[int, ...]:
        return self.dims if self.engine == "vector" else ()

    def apply_pieces(self, pieces: Pieces, layout: Layout) -> Block:
        if self._lines(layout) != pieces.shape or self.sizes != self.lengths:
            return self.apply(pieces.joined(), layout)
        return fft_of_pieces(pieces, self.dims, self.sign, self.room)

    def trials(self, layout: Layout, came: Came | None) -> tuple[trials.Trials, Came | None]:
        if self.engine != "vector":
            return (), None
        ends = PLANES if came is None or self.sizes != self.lengths else Ends(came=came)
        return trials.of_lines(self._lines(layout), self.dims, self.room, ends), None

    def _by_kernels(self, planes: Planes) -> Planes:
        lines = vector.fft(resize_each(planes, self.dims, self.lengths), self.dims, self.sign, self.room)
        return resize_each(lines, self.dims, self.sizes)

    def _apply(self, block: Array) -> Array:
        lines = resize_each(block, self.dims, self.lengths)
        lines = fft(lines, self.dims, self.sign, self.engine, self.grid, self.first)
        return resize_each(lines, self.dims, self.sizes)

    def transpose(self, layout: Layout) -> "LocalFFT":
        return dataclasses.replace(self, sizes=tuple(layout.shape[d] for d in self.dims), first=False)

    def conjugate(self) -> "LocalFFT":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "LocalFFT":
        grid = tuple((shift(d, dim), parts) for d, parts in self.grid)
        return dataclasses.replace(self, dims=tuple(shift(d, dim) for d in self.dims), grid=grid)

    def name(self, layout: Layout) -> str:
        return f"fft {names(self.dims, layout)} ({self.engine})"


def kernel_room(problem: Problem) -> int:
    """Bytes of fast memory that kernels work in; 0 where there are none."""
    scratch = problem.machine.chip.scratch
    return int(scratch.value) - vector.RESERVED if problem.has_kernels and scratch else 0


def local_roots(layout: Layout, todo: dict[int, Matrix]) -> dict[int, Roots]:
    """The dimensions of a complex FFT that no mesh axis cuts."""
    return {d: m for d, m in sorted(todo.items()) if isinstance(m, Roots) and m.has_fft and layout.parts[d] == 1}


def _near(layout: Layout, dim: int, length: int) -> bool:
    """True where a dimension may be done a few lines at a time; one device by itself has all cores for many."""
    if math.prod(layout.parts) == 1:
        return False
    return not is_awkward(length, True) if dim == layout.ndim - 1 else by_columns(layout.block, dim, length)


@dataclasses.dataclass(frozen=True)
class LocalTrig(MatrixStep[Trig]):
    """The cosine or sine transform of a dimension that no mesh axis cuts; of complex numbers, of both parts."""

    real: bool  # the block is

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["LocalTrig"]:
        """The first such dimension: in which order they come does not matter."""
        for dim, matrix in sorted(todo.items()):
            if isinstance(matrix, Trig) and layout.parts[dim] == 1:
                yield cls((dim,), matrix, (matrix.rows,), problem.real_at(todo))
                return

    def error(self, itemsize: int) -> float:
        """That of the FFT, and of phases and ends around it."""
        return math.hypot(fft_error(int(self.matrix.period), itemsize), TRIG_ROUNDINGS * unit_of(itemsize))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """A real FFT for each part, half of a complex one, and the passes around it; type I has twice the points."""
        length = self.matrix.length
        points = int(self.matrix.period) if self.matrix.type == 1 else length
        fft = LocalFFT(self.dims, 1, (points,), (points,)).work(layout, itemsize, chip)
        size = math.prod(layout.resize(self.dim, length).block) * itemsize
        halves = 2 if self.real else 1
        return dataclasses.replace(
            fft,
            vector_flops=fft.vector_flops // halves,
            matrix_flops=fft.matrix_flops // halves,
            memory_bytes=fft.memory_bytes + TRIG_PASSES * size,
            peak_bytes=fft.peak_bytes + 2 * size,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_planes(self._apply, block)

    def _apply(self, planes: Planes) -> Planes:
        dim, matrix, (size,) = self.dim, self.matrix, self.sizes
        lines = (transform(resize(plane, dim, matrix.length), dim, matrix) for plane in planes)
        return tuple(resize(plane, dim, size) for plane in lines)

    def name(self, layout: Layout) -> str:
        return f"{self.matrix.name} {names(self.dims, layout)}"
