"""Kernels of lines too long for fast memory, in a dimension that is not the last: two passes over memory.

    N = A B,  n = B a + b,  k = i + A j
    twisted   Z[i, b] = w_N^(b i) sum_a exp(.. a i / A) x[B a + b]
    second    X[i + A j] = sum_b exp(.. b j / B) Z[i, b]                written to its final place

Both are untiled. In the last dimension but one, eight b are on the sublanes, and eight i are there in the result: the
second kernel moves them by strided loads.

Pieces from L A devices are processed as they arrive: b is (part, piece, row). Each piece has an intermediate array
(.., A, L, planes, rows, ..).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from ...collectives.all_to_all import PLANES, Ports
from ...machine.chip import rounded_up
from ...numerics.split_complex import Shape
from .along import FFTLine, PassOperand, along_untiled
from .blocks import WIDE, Blocked, BlockSizes, Kernel, result_of, steps_of
from .memory import AnyRefs, Apart, Arrived, Index, Parted, PlaneView, Ref, Refs, div, legible, loop, register, rem
from .radices import LANES, SUBLANES, Weight, in_planes, on_all_lanes, radices, roots, times


@dataclasses.dataclass(frozen=True)
class SplitLines:
    lead: tuple[int, ...]
    first: int  # A
    parts: int  # L
    pieces: int
    rows: int
    rest: tuple[int, ...]
    came: bool

    @property
    def tiled(self) -> bool:
        return len(self.rest) == 1

    @property
    def eight(self) -> int | None:
        return SUBLANES if self.tiled else None

    @property
    def second(self) -> int:  # B
        return self.parts * self.pieces * self.rows

    @property
    def length(self) -> int:
        return self.first * self.second


class LongKernels(NamedTuple):
    firsts: list[Kernel]
    second: Kernel
    result: Shape
    of: SplitLines

    def run(self, arrays: Sequence[Array], interpret: bool) -> list[Array]:
        between = []
        for kernel, planes in zip(self.firsts, [[x] for x in arrays] if self.of.came else [arrays], strict=True):
            between += kernel.run([self._split(x, kernel.source.shape) for x in planes], interpret)
        return [x.reshape(self.result) for x in self.second.run(between, interpret)]

    def _split(self, x: Array, shape: Shape) -> Array:
        """Splits the dimension; others may be longer than the block's."""
        if self.of.came:
            return x.reshape(*shape[:2], *x.shape[1:])
        dim = len(self.of.lead)
        return x.reshape(*x.shape[:dim], *shape[dim : dim + 3], *x.shape[dim + 1 :])


@functools.lru_cache(maxsize=256)
def kernels_of(shape: Shape, dim: int, sign: int, room: int, ports: Ports = PLANES) -> LongKernels | None:
    of, rows = split_lines(shape, dim, ports), ports.rows
    if of is None:
        return None
    for wide in (n for n in WIDE if n == LANES or n < 2 * shape[-1]):
        rest = (*[None] * (len(of.rest) - 2), *(() if of.tiled else (SUBLANES,)), wide)
        inside = rows is None or rows.dim < dim or rows.start % (rest[rows.dim - dim - 1] or 1) == 0
        target = target_of(of, rest, ports.sent)
        if not inside or target is None:
            continue
        firsts = [_first(of, sign, rest, piece, ports) for piece in range(of.pieces)]
        second = _second(of, sign, rest, target)
        if max(kernel.bytes for kernel in (*firsts, second)) <= room:
            return LongKernels(firsts, second, result_of(shape, ports.sent), of)
    return None


def kinds(tiled: bool) -> tuple[str, str]:
    return ("subtwisted", "subsecond") if tiled else ("twisted", "second")


def _first(of: SplitLines, sign: int, rest: BlockSizes, piece: int, ports: Ports) -> Kernel:
    line, ndim = FFTLine(of.first, sign, untiled=True), len(of.lead)
    none: BlockSizes = (None,) * ndim
    tall = of.rows // (of.eight or 1)  # steps along the rows of a piece
    steps = (*of.lead, 1, of.parts, tall, *steps_of(of.rest, rest))

    def read(*step: Index) -> tuple[Index, ...]:
        lead, (_, part, row), behind = step[:ndim], step[ndim : ndim + 3], step[ndim + 3 :]
        return (0, part, 0, *lead, row, *behind) if of.came else (*lead, 0, part, row, *behind)

    def written(*step: Index) -> tuple[Index, ...]:
        return (*step[:ndim], 0, step[ndim + 1], 0, *step[ndim + 2 :])

    if of.came:
        shape: Shape = (of.first, of.parts, 2, *of.lead, of.rows, *of.rest)
        source = Blocked(shape, (of.first, None, 2, *none, of.eight, *rest), 1, read, steps, both)
    else:
        shape = (*of.lead, of.first, of.parts, of.rows, *of.rest)
        source = Blocked(shape, (*none, of.first, None, of.eight, *rest), 2, read, steps)
    if ports.rows is not None:
        dim = ports.rows.dim
        source = source.begun(dim + (3 if of.came else 2 * (dim > ndim)), ports.rows.start)
    between = (*of.lead, of.first, of.parts, 2, of.rows, *of.rest)
    target = Blocked(between, (*none, of.first, None, 2, of.eight, *rest), 1, written, steps, both)
    twist = _twist(of, sign, piece), lambda *step: step[ndim + 1] * tall + step[ndim + 2]
    fixed = (_sublane_twist(of.first, of.length, sign),) if of.tiled else ()
    name, scratch = f"fft_{kinds(of.tiled)[0]}_{of.length}", ((of.first, SUBLANES, rest[-1] or 1),)
    return Kernel(name, _twisted, (line,), source, target, scratch, twist=twist, fixed=fixed)


def _second(of: SplitLines, sign: int, rest: BlockSizes, target: Blocked) -> Kernel:
    line, ndim, wide = FFTLine(of.second, sign, untiled=True), len(of.lead), rest[-1] or 1
    shape = (*of.lead, of.first, of.parts, 2, of.rows, *of.rest)
    sizes = (*[None] * ndim, of.eight, of.parts, 2, of.rows, *rest)

    def read(*step: Index) -> tuple[Index, ...]:
        return (*step[: ndim + 1], 0, 0, 0, *step[ndim + 1 :])

    source = Blocked(shape, sizes, of.pieces, read, target.steps)
    apart = rounded_up(SUBLANES * (line.length + 1), SUBLANES)
    scratch = ((line.length, SUBLANES, wide), *((wide // LANES, apart, LANES),) * of.tiled)
    name = f"fft_{kinds(of.tiled)[1]}_{of.length}"
    return Kernel(name, _second_kernel, (line,), source, target, scratch)


def _twisted(kernel: Kernel, tables: AnyRefs, source: PassOperand, scratch: list[Refs], target: Refs) -> None:
    def weigh(k: Index) -> tuple[Weight, Weight]:
        whole = tables[-1][0, k], tables[-1][1, k]
        return times((tables[2][0, k], tables[2][1, k]), whole) if kernel.fixed else whole

    along_untiled(kernel.lines[0], tables[0], source, scratch[0], target, weigh)


def _second_kernel(kernel: Kernel, tables: AnyRefs, source: Sequence[Ref], scratch: list[Refs], target: Refs) -> None:
    (line,) = kernel.lines
    lines: PassOperand = Arrived(source, source[0].shape[2])
    if len(scratch) > 1:
        _interleave(source, line.length, scratch[-1])
        re, im = scratch[-1]
        lines = Apart(re, line.length + 1), Apart(im, line.length + 1)
    along_untiled(line, tables[0], lines, scratch[0], target)


def _interleave(source: Sequence[Ref], length: int, target: Refs) -> None:
    """Copies eight lines of rows from pieces (8, parts, planes, rows, columns), with a gap of one row."""
    _, parts, _, rows, _ = source[0].shape

    def line(i: Index) -> None:
        for piece, ref in enumerate(source):
            loop(parts, functools.partial(some, i, piece, ref))

    def some(i: Index, piece: int, ref: Ref, part: Index) -> None:
        for tile in range(target[0].shape[0]):
            for plane, out in enumerate(target):
                for at in range(0, rows, SUBLANES):
                    begin = i * (length + 1) + (part * len(source) + piece) * rows + at
                    value = ref[i, part, plane, pl.ds(at, SUBLANES), pl.ds(tile * LANES, LANES)]
                    register(out, pl.ds(begin, SUBLANES), tile)[...] = value

    loop(SUBLANES, line)


def _twist(of: SplitLines, sign: int, piece: int) -> np.ndarray:
    """exp(sign 2 pi i b k / N) of one piece, for every b, or every eighth: (steps, 2, A)."""
    rows, length = (n // (of.eight or 1) for n in (of.second, of.length))
    table = in_planes(roots(rows, of.first, length, sign), 1)
    return table.reshape(of.parts, of.pieces, -1, 2, of.first)[:, piece].reshape(-1, 2, of.first)


@functools.lru_cache(maxsize=32)
def _sublane_twist(first: int, length: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i s k / length), of sublanes s < 8: (2, A, 8, 128)."""
    return on_all_lanes(roots(first, SUBLANES, length, sign))


def split_lines(shape: Sequence[int], dim: int, ports: Ports = PLANES) -> SplitLines | None:
    """How a dimension is split in two; None if no factors fit the pieces."""
    lead, rest, came = tuple(shape[:dim]), tuple(shape[dim + 1 :]), ports.came
    tile = SUBLANES if len(rest) == 1 else 1
    first = _factor(shape[dim], tile, came.parts if came else shape[dim])
    if not first or (ports.rows and ports.rows.dim == dim):
        return None
    if came and (came.source != dim or came.dim != dim or shape[dim] % (came.parts * came.pieces)):
        return None
    parts, pieces = (came.parts // first, came.pieces) if came else (1, 1)
    rows = shape[dim] // (first * parts * pieces)
    made = SplitLines(lead, first, parts, pieces, rows, rest, came is not None)
    readable = made.tiled or legible(radices(made.second)[0], parts, pieces)
    return made if rows % tile == 0 and readable else None


def target_of(of: SplitLines, rest: BlockSizes, sent: tuple[int, int] | None) -> Blocked | None:
    """Target of X[i + A j], for all j and one or eight i: planes, or parts of whole blocks.

    Part p of the dimension itself has rows p R ... p R + R - 1:

        R >= A    (parts, planes, .., R / A, A, ..)      j is in part j / (R / A)
        R < A     (B j, A / R, planes, .., R, ..)        i is in part i / R of those of j
    """
    ndim, eight = len(of.lead), of.eight or 1
    none: BlockSizes = (None,) * ndim
    steps = (*of.lead, -(-of.first // eight), *steps_of(of.rest, rest))
    whole, sizes = (*of.lead, of.second, of.first, *of.rest), (*none, of.second, of.eight, *rest)
    planes = Blocked(whole, sizes, place=lambda *at: (*at[:ndim], 0, *at[ndim:]), grid=steps)
    if sent is None:
        return planes
    dim, parts = sent
    size = of.length if dim == ndim else whole[dim + (dim > ndim)]
    rows, left = divmod(size, parts)
    if left:
        return None
    if dim != ndim:
        at = dim + (dim > ndim)
        return planes.sent(at, parts) if rows % (sizes[at] or 1) == 0 else None
    small, large = sorted((rows, of.first))
    if large % small or (rows % eight and eight % rows) or of.first % eight:
        return None
    if rows >= of.first:
        return planes.sent(ndim, parts)
    shape = (of.second, of.first // rows, 2, *of.lead, rows, *of.rest)
    if rows < eight:
        block: BlockSizes = (of.second, eight // rows, 2, *none, rows, *rest)
        return Blocked(shape, block, 1, lambda *at: (0, at[ndim], 0, *at[:ndim], 0, *at[ndim + 1 :]), steps, _shared)
    each = rows // eight

    def within(*at: Index) -> tuple[Index, ...]:
        return (0, div(at[ndim], each), 0, *at[:ndim], rem(at[ndim], each), *at[ndim + 1 :])

    return Blocked(shape, (of.second, None, 2, *none, of.eight, *rest), 1, within, steps, both)


def both(refs: Sequence[Ref]) -> Refs:
    return PlaneView(refs[0], 0), PlaneView(refs[0], 1)


def _shared(refs: Sequence[Ref]) -> Refs:
    return Parted(refs[0], 0, 0, lead=1), Parted(refs[0], 1, 0, lead=1)


def _factor(length: int, multiple: int, parts: int) -> int:
    """A, if both factors have radices and A divides `parts`; else 0."""
    divisors = (d for d in range(math.isqrt(length), 0, -1) if length % d == 0 and length // d % multiple == 0)
    return next((d for d in divisors if radices(d) and radices(length // d) and parts % d == 0), 0)
