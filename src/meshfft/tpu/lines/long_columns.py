"""Kernels of lines too long for fast memory, in a dimension that is not the last: two passes over memory.

    N = A B,  n = B a + b,  k = i + A j
    twisted   Z[i, b] = w_N^(b i) sum_a exp(.. a i / A) x[B a + b]
    second    X[i + A j] = sum_b exp(.. b j / B) Z[i, b]                written to its final place

Both are untiled: each position of A, or of B, has separate registers. In the last dimension but one, eight b are on the
sublanes, and eight i are there in the result: the second kernel moves them by strided loads.

Pieces from L A devices are processed one at a time, as they arrive: b is (part, piece, row). Each piece has an
intermediate array (.., A, L, planes, rows, ..).
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from ...numerics.phases import host_roots
from .along import FFTLine, Source, along_untiled
from .blocks import PLANES, WIDE, Blocked, Divided, Ends, Kernel, Sizes, rounded, steps_of
from .memory import Apart, Arrived, Index, Ref, Refs, loop, register
from .opened import Opened, both, opened, result_of, target_of
from .radices import LANES, SUBLANES, Weight, in_planes, on_all_lanes, times


class LongKernels(NamedTuple):
    firsts: list[Kernel]
    second: Kernel
    result: tuple[int, ...]


@functools.lru_cache(maxsize=256)
def kernels_of(shape: tuple[int, ...], dim: int, sign: int, room: int, ends: Ends = PLANES) -> LongKernels | None:
    of = opened(shape, dim, ends)
    if of is None:
        return None
    for wide in (n for n in WIDE if n == LANES or n < 2 * shape[-1]):
        rest = (*[None] * (len(of.rest) - 2), *(() if of.tiled else (SUBLANES,)), wide)
        inside = ends.rows is None or ends.rows.dim < dim or ends.rows.start % (rest[ends.rows.dim - dim - 1] or 1) == 0
        target = target_of(of, rest, ends.sent)
        if not inside or target is None:
            continue
        firsts = [_first(of, sign, rest, piece, ends) for piece in range(of.pieces)]
        second = _second(of, sign, rest, target)
        if max(kernel.bytes for kernel in (*firsts, second)) <= room:
            return LongKernels(firsts, second, result_of(shape, ends.sent))
    return None


def fft_long_columns(
    arrays: Sequence[Array],
    shape: tuple[int, ...],
    dim: int,
    sign: int,
    room: int,
    interpret: bool = False,
    ends: Ends = PLANES,
) -> list[Array]:
    kernels = kernels_of(shape, dim, sign, room, ends)
    assert kernels is not None, f"lines of {shape[dim]} do not fit in {room} bytes"
    between = []
    for kernel, planes in zip(kernels.firsts, [[x] for x in arrays] if ends.came else [arrays], strict=True):
        between += kernel.run([_opened(x, kernel.source.shape, dim, ends) for x in planes], interpret)
    return [x.reshape(kernels.result) for x in kernels.second.run(between, interpret)]


def kinds(tiled: bool) -> tuple[str, str]:
    return ("subtwisted", "subsecond") if tiled else ("twisted", "second")


def _opened(x: Array, shape: tuple[int, ...], dim: int, ends: Ends) -> Array:
    """Splits the dimension; further dimensions may be longer than the block's."""
    if ends.came:
        return x.reshape(*shape[:2], *x.shape[1:])
    return x.reshape(*x.shape[:dim], *shape[dim : dim + 3], *x.shape[dim + 1 :])


def _first(of: Opened, sign: int, rest: Sizes, piece: int, ends: Ends) -> Kernel:
    """Lines of A in one piece, to an array with both planes."""
    line, ndim = FFTLine(of.first, sign, untiled=True), len(of.lead)
    none: Sizes = (None,) * ndim
    tall = of.rows // (of.eight or 1)  # steps along the rows of a piece
    steps = (*of.lead, 1, of.parts, tall, *steps_of(of.rest, rest))

    def read(*step: Index) -> tuple[Index, ...]:
        lead, (_, part, row), behind = step[:ndim], step[ndim : ndim + 3], step[ndim + 3 :]
        return (0, part, 0, *lead, row, *behind) if of.came else (*lead, 0, part, row, *behind)

    def written(*step: Index) -> tuple[Index, ...]:
        return (*step[:ndim], 0, step[ndim + 1], 0, *step[ndim + 2 :])

    if of.came:
        shape: tuple[int, ...] = (of.first, of.parts, 2, *of.lead, of.rows, *of.rest)
        source = Blocked(shape, (of.first, None, 2, *none, of.eight, *rest), 1, read, steps, both)
    else:
        shape = (*of.lead, of.first, of.parts, of.rows, *of.rest)
        source = Blocked(shape, (*none, of.first, None, of.eight, *rest), 2, read, steps)
    if ends.rows is not None:
        dim = ends.rows.dim
        source = source.begun(dim + (3 if of.came else 2 * (dim > ndim)), ends.rows.start)
    between = (*of.lead, of.first, of.parts, 2, of.rows, *of.rest)
    target = Blocked(between, (*none, of.first, None, 2, of.eight, *rest), 1, written, steps, both)
    twist = _twist(of, sign, piece), lambda *step: step[ndim + 1] * tall + step[ndim + 2]
    fixed = (_sublane_twist(of.first, of.length, sign),) if of.tiled else ()
    name, scratch = f"fft_{kinds(of.tiled)[0]}_{of.length}", (of.first, SUBLANES, rest[-1] or 1)
    return Kernel(name, _twisted, (line,), source, target, scratch, twist=twist, fixed=fixed)


def _second(of: Opened, sign: int, rest: Sizes, target: Blocked | Divided) -> Kernel:
    line, ndim, wide = FFTLine(of.second, sign, untiled=True), len(of.lead), rest[-1] or 1
    shape = (*of.lead, of.first, of.parts, 2, of.rows, *of.rest)
    sizes = (*[None] * ndim, of.eight, of.parts, 2, of.rows, *rest)

    def read(*step: Index) -> tuple[Index, ...]:
        return (*step[: ndim + 1], 0, 0, 0, *step[ndim + 1 :])

    source = Blocked(shape, sizes, of.pieces, read, target.steps)
    apart = rounded(SUBLANES * (line.length + 1), SUBLANES)
    more = ((wide // LANES, apart, LANES),) * of.tiled
    name = f"fft_{kinds(of.tiled)[1]}_{of.length}"
    return Kernel(name, _second_kernel, (line,), source, target, (line.length, SUBLANES, wide), more=more)


def _twisted(kernel: Kernel, tables: Sequence[Ref], source: Source, scratch: list[Refs], target: Refs) -> None:

    def weigh(k: Index) -> tuple[Weight, Weight]:
        whole = tables[-1][0, k], tables[-1][1, k]
        return times((tables[2][0, k], tables[2][1, k]), whole) if kernel.fixed else whole

    along_untiled(kernel.lines[0], tables[0], source, scratch[0], target, weigh)


def _second_kernel(
    kernel: Kernel, tables: Sequence[Ref], source: Sequence[Ref], scratch: list[Refs], target: Refs
) -> None:
    (line,) = kernel.lines
    lines: Source = Arrived(source, source[0].shape[2])
    if kernel.more:
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


def _twist(of: Opened, sign: int, piece: int) -> np.ndarray:
    """exp(sign 2 pi i b k / N) of one piece, for every b, or every eighth: (steps, 2, A)."""
    rows, length = (n // (of.eight or 1) for n in (of.second, of.length))
    table = in_planes(host_roots(np.outer(np.arange(rows), np.arange(of.first)), length, sign), 1)
    return table.reshape(of.parts, of.pieces, -1, 2, of.first)[:, piece].reshape(-1, 2, of.first)


@functools.lru_cache(maxsize=32)
def _sublane_twist(first: int, length: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i s k / length), of sublanes s < 8: (2, A, 8, 128)."""
    return on_all_lanes(host_roots(np.outer(np.arange(first), np.arange(SUBLANES)), length, sign))
