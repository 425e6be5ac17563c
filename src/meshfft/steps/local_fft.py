"""Steps that send nothing: LocalFFT and LocalTrig, of uncut dimensions, and Margin."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from ..collectives.all_to_all import Came, Grid, Pieces, Ports, count, divided
from ..kept import Trial
from ..kernels.base import Engine, Lines, RealEngine, Sender, fft_error
from ..kernels.engines import least, offered
from ..kernels.real import XLA_REAL
from ..kernels.stockham import COLUMN_BYTES, NARROWEST, grid_of
from ..kernels.trig import real_lines, transform
from ..kernels.xla import CACHED_BEHIND, XLA
from ..layout.layout import Layout, resized, shift
from ..machine.chip import Chip
from ..machine.machine import Work
from ..numerics.dtypes import Error, unit_of
from ..numerics.split_complex import B, Block, Planes, in_complex, in_planes, resize, resize_each, resize_lowest
from ..operators.matrices import Matrix, Roots
from ..operators.trig import Trig
from .base import Chunked, Kernels, MatrixStep, Step, names
from .problem import Held, Least, Numbers, Problem, ready

TRIG_ROUNDINGS = 2.5  # around a cosine transform's FFT: two products before, one or two after
TRIG_PASSES = 8  # besides the FFT: reorder and weight before, rotate and weight after
IN_PLACE_BYTES = 2**21  # least bytes of a real block for cosines in place; smaller ones were slower there


@dataclasses.dataclass(frozen=True)
class LocalFFT(MatrixStep[Roots], Chunked, Kernels):
    """The FFT of uncut dimensions, all with the sign of the last."""

    lengths: tuple[int, ...]  # N of each dimension
    engine: Engine[Any] = XLA
    grid: Grid = ()  # of a chunked engine: a neighbouring exchange's chunks
    first: bool = False  # the block is the input array, not joined by an exchange
    lowest: int = 0  # 1: the result has only the lowest frequencies; -1: so has the input

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["LocalFFT"]:
        if roots := local_roots(layout, ready(todo)):
            lengths = {dim: matrix.length for dim, matrix in roots.items()}
            lines = Lines(layout.block, tuple(lengths), tuple(lengths.values()))
            for engine, dims in offered(lines, problem.site(layout)):
                sizes = tuple(lengths[d] for d in dims)
                yield cls(dims, roots[dims[-1]], sizes, sizes, engine)
        for dim, matrix in ready(todo).items():  # one at a time, so that the next has fewer lines
            whole = matrix.whole
            if isinstance(whole, Roots) and matrix.rows < whole.rows and layout.parts[dim] == 1:
                lines = Lines(layout.block, (dim,), (whole.length,))
                for engine, dims in offered(lines, problem.site(layout)):
                    yield cls(dims, whole, (matrix.rows,), lines.lengths, engine, lowest=1)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """Holds for RealFFT and LocalTrig too: every line has the length of its transform."""
        local, site = dict[int, float](), problem.site(problem.start)
        for dim in (dim for dim, matrix in problem.todo().items() if matrix.has_fft):
            rows = problem.least_rows[dim]
            points = problem.points * rows // max(min(rows, problem.start.shape[dim]), 1) / problem.halves
            works = least(rows, points, problem.least_bytes, site)
            local[dim] = min(problem.machine.price(work) for work in works)
        return Least(local=local)

    @property
    def numbers(self) -> Numbers:
        return Numbers(planar=self.engine.slices, dots=self.engine.dots)

    @property
    def sender(self) -> Sender | None:
        return self.engine if isinstance(self.engine, Sender) else None

    def error(self, layout: Layout, itemsize: int) -> Error:
        return Error.of_all(self.engine.error(length, itemsize) for length in self.lengths)

    def fuse(self, before: Step | None, after: Step | None) -> "LocalFFT":
        """A chunked engine works on the finer grid of its two neighbours."""
        if not self.engine.chunked:
            return self
        joined, cut = (step.chunked.grids if step and step.chunked else ((), ()) for step in (before, after))
        finest = max(joined[1], cut[0], key=count)
        many = {dim: math.prod(parts for d, parts in finest if d == dim) for dim, _ in finest}  # most: joined last
        grid = tuple(sorted(finest, key=lambda cut: (-many[cut[0]], cut[0])))
        return dataclasses.replace(self, grid=grid, first=before is None and bool(grid))

    @property
    def grids(self) -> tuple[Grid, Grid]:
        return (), self.grid

    def held(self, layout: Layout, itemsize: int) -> Held | None:
        lines = self._lines(layout)
        if (scratch := self.engine.scratch(lines, itemsize)) is None:
            return None
        chunk = divided(layout.block, grid_of(layout.block, itemsize, self.grid))
        return Held(max(lines.points, math.prod(layout.block), math.prod(self.after(layout).block)), chunk, scratch)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        return self.engine.work(self._lines(layout), itemsize, chip)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_planes(self._apply, block) if self.engine.planar else in_complex(self._apply, block)

    def _apply(self, block: B) -> B:
        lines = resize_each(block, self.dims, self.lengths, resize_lowest if self.lowest < 0 else resize)
        lines = self.engine.apply(lines, self.dims, self.matrix.sign, self.grid, self.first)
        return resize_each(lines, self.dims, self.sizes, resize_lowest if self.lowest > 0 else resize)

    @property
    def takes_pieces(self) -> tuple[int, ...]:
        return self.dims if self.sender else ()

    def apply_pieces(self, pieces: Pieces, layout: Layout) -> Block:
        if self.sender is None or self._lines(layout).shape != pieces.shape or self.sizes != self.lengths:
            return self.apply(pieces.joined(), layout)
        return self.sender.between(pieces, self.dims, self.matrix.sign)

    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        ports = Ports(came=came if self.sizes == self.lengths else None)
        return self.engine.trials(self._lines(layout), ports), None

    def _lines(self, layout: Layout) -> Lines:
        return Lines(layout.block, self.dims, self.lengths)

    def transpose(self, layout: Layout) -> "LocalFFT":
        return dataclasses.replace(super().transpose(layout), first=False, lowest=-self.lowest)

    def insert(self, dim: int) -> "LocalFFT":
        grid = tuple((shift(d, dim), parts) for d, parts in self.grid)
        return dataclasses.replace(super().insert(dim), grid=grid)

    def name(self, layout: Layout) -> str:
        few = layout.block[self.dims[0]] if self.lowest < 0 else self.sizes[0]
        kept = f", {few} of {self.lengths[0]}" if self.lowest else ""
        return f"fft {names(self.dims, layout)}{kept} ({self.engine.name})"


def local_roots(layout: Layout, todo: dict[int, Matrix]) -> dict[int, Roots]:
    return {d: m for d, m in sorted(todo.items()) if isinstance(m, Roots) and m.has_fft and layout.parts[d] == 1}


@dataclasses.dataclass(frozen=True)
class LocalTrig(MatrixStep[Trig]):
    """The cosine or sine transform of an uncut dimension, of both parts of a complex block."""

    real: bool  # the block is
    engine: RealEngine = XLA_REAL  # of its FFT; even lengths of type IV have a complex one
    in_place: bool = False  # a few lines at a time, for CPUs whose devices share a memory

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["LocalTrig"]:
        site = problem.site(layout)
        shared = site.machine.chip.cached and not (site.alone or site.xla)
        for dim, matrix in sorted(todo.items()) if not problem.sliced else ():
            whole = matrix.whole
            if isinstance(whole, Trig) and layout.parts[dim] == 1:
                nbytes = math.prod(layout.resize(dim, whole.length).block) * problem.itemsize // 2
                in_place = shared and nbytes >= IN_PLACE_BYTES
                points, onto_real = real_lines(whole)
                lines = Lines(layout.block, (dim,), (points,), onto_real)
                for engine, _ in offered(lines, site._replace(xla=True), of_reals=True):
                    yield cls((dim,), whole, (matrix.rows,), problem.real_at(todo), engine, in_place)
                return

    def error(self, layout: Layout, itemsize: int) -> Error:
        ends = TRIG_ROUNDINGS * unit_of(itemsize)
        around = Error(ends, ends, 0.0, self.matrix.condition)
        return Error.of_all((fft_error(int(self.matrix.period), itemsize), around))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """A real FFT per part, half a complex one, and the passes around it; type I has twice the points."""
        length, (points, onto_real) = self.matrix.length, real_lines(self.matrix)
        parts = 1 if self.real else 2
        lines = Lines(layout.block, self.dims, (points,), onto_real)
        fft = self.engine.work(lines, itemsize // parts, chip)
        if self.matrix.type == 4 and length % 2 == 0:
            fft = XLA.work(lines._replace(lengths=(length // 2,)), 2 * itemsize // parts, chip)
        size = math.prod(layout.resize(self.dim, length).block) * itemsize
        halves, peak = 2 // parts, parts * fft.peak_bytes + 2 * size
        both = 2 * size * (points + 2) // max(length, 1)
        if chip.switched:
            peak = (6 if self.matrix.type == 1 else 5) * size + size // max(length, 1) * 10
        if chip.cached:  # input, result, and spectra of one part at a time
            longer = 2 * size // max(length, 1) * (self.matrix.type < 4 or length % 2)
            peak = 4 * size + longer
            if self.matrix.type == 1:
                peak = 5 * size // 2 + both // 2 * halves + size * (halves == 1)
        last = chip.cached and self.dim == layout.ndim - 1  # every second sample costs as much as lines that lie apart
        passes = parts * fft.memory_bytes + (TRIG_PASSES + CACHED_BEHIND * last) * size
        if self.in_place:  # a second array, and one more for two parts
            peak = (4 - halves) * size + 8 * max(COLUMN_BYTES, NARROWEST * points * itemsize)
        return dataclasses.replace(
            fft,
            vector_flops=parts * fft.vector_flops,
            matrix_flops=parts * fft.matrix_flops,
            memory_bytes=passes,
            fed_bytes=parts * fft.fed_bytes,
            peak_bytes=peak,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_planes(self._apply, block)

    def _apply(self, planes: Planes) -> Planes:
        dim, matrix, (size,) = self.dim, self.matrix, self.sizes
        lines = (transform(resize(x, dim, matrix.length), dim, matrix, self.engine, self.in_place) for x in planes)
        return tuple(resize(plane, dim, size) for plane in lines)

    def name(self, layout: Layout) -> str:
        return f"{self.matrix.name} {names(self.dims, layout)}"


@dataclasses.dataclass(frozen=True)
class Margin(Chunked):
    """Trims the halo cells on both sides of every block, or pads blocks with zeros there.

        block of n + 2 m cells  ->  its n inner ones  ->  n + 2 m with m zeros on either side

    Invariant: margin cells, NaN included, reach no result.
    """

    widths: tuple[tuple[int, int], ...]  # (dimension, cells on either side of a block)
    onto: bool  # pads instead of trimming
    dims: ClassVar[tuple[int, ...]] = ()

    def after(self, layout: Layout) -> Layout:
        sign = 1 if self.onto else -1
        grown = (layout.shape[d] + 2 * sign * m * layout.parts[d] for d, m in self.widths)
        return resized(layout, tuple(d for d, _ in self.widths), tuple(grown))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        inner, wide = sorted(itemsize * math.prod(one.block) for one in (layout, self.after(layout)))
        return Work(
            memory_bytes=inner + (wide if self.onto else inner), peak_bytes=2 * inner, beside_bytes=wide - inner
        )

    def held(self, layout: Layout, itemsize: int) -> Held:
        wide = self.after(layout) if self.onto else layout
        return Held(math.prod(wide.block), wide.block)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        each = [0] * layout.ndim
        for dim, m in self.widths:
            each[dim] = m if self.onto else -m  # negative widths crop
        return jax.tree.map(lambda x: lax.pad(x, jnp.zeros((), x.dtype), [(m, m, 0) for m in each]), block)

    def transpose(self, layout: Layout) -> "Margin":
        return dataclasses.replace(self, onto=not self.onto)

    def insert(self, dim: int) -> "Margin":
        return dataclasses.replace(self, widths=tuple((shift(d, dim), m) for d, m in self.widths))

    def name(self, layout: Layout) -> str:
        cells = ", ".join(f"{names((d,), layout)} by {m}" for d, m in self.widths)
        return f"{'pad' if self.onto else 'trim'} {cells}"
