"""Kernels of lines that fit in fast memory: one pass over memory, for one dimension or for the last two.

plane       along the rows, transposed, along the rows, which were the columns, transposed back
lane        the last dimension: transposed, along the rows, transposed back
sublane     the last but one, along the rows
first       any other: every position has separate registers
halflane    real lines to half spectra: transposed, half along the rows, transposed back
halfplane   transposed, half along the rows, which are the columns, transposed back, along the rows

"reallane" and "realplane", onto real lines, do the reverse.
"""

import math
from collections.abc import Sequence

from ...machine.chip import rounded_up
from . import long_lanes
from .along import MANY_REGISTERS, FFTLine, PassOperand, along_rows, along_untiled, order, transpose
from .blocks import WIDE, Blocked, Kernel, scratch_of
from .memory import AnyRefs, Beside, Ref, Refs
from .radices import LANES, SUBLANES, radices
from .real import RealLine, half_along_rows, real_along_rows, real_plane

FULL = 1.25  # most rows of blocks for each row of an array


def plane_kernel(shape: Sequence[int], sign: int, room: int, alone: bool = False) -> Kernel | None:
    """A kernel of one plane, or of several small ones unless `alone`, or None."""
    *lead, rows, columns = shape
    if any(n % SUBLANES or not radices(n // SUBLANES) for n in (rows, columns)):
        return None
    lines = tuple(FFTLine(n, sign, many_registers=room >= MANY_REGISTERS) for n in (rows, columns))
    tiles = [-(-n // LANES) for n in (rows, columns)]
    planes = math.gcd(max(1, lines[0].at_once // min(tiles)), lead[-1]) if lead and not alone else 1
    none = [None] * (len(lead) - 1)
    outside = [*none, planes if planes > 1 else None] if lead else []
    blocks = Blocked(tuple(shape), (*outside, rows, rounded_up(columns, LANES)))
    scratch = (scratch_of(planes * max(tiles), *lines),) * 2
    kernel = Kernel(f"fft_plane_{rows}x{columns}", transform_planes, lines, blocks, blocks, scratch)
    if kernel.bytes <= room:
        return kernel
    return plane_kernel(shape, sign, room, alone=True) if planes > 1 else None


def lane_kernel(shape: Sequence[int], sign: int, room: int, flat: bool = True) -> Kernel | None:
    """A kernel of as many rows as fit, or a few long lines; `flat`: as in `flattened`."""
    *lead, rows, length = flattened(shape) if flat else shape
    line, name = FFTLine(length, sign, many_registers=room >= MANY_REGISTERS), f"fft_lane_{length}"
    for many in (n for n in WIDE if n == LANES or n < 2 * rows):
        blocks = Blocked((*lead, rows, length), (*[None] * len(lead), many, rounded_up(length, LANES)))
        kernel = Kernel(name, transform_lanes, (line,), blocks, blocks, (scratch_of(many // LANES, line),) * 2)
        if kernel.bytes <= room:
            return kernel
    return long_lanes.kernel_of(name, (*lead, rows, length), sign, room)


def column_kernel(shape: Sequence[int], dim: int, sign: int, room: int) -> Kernel | None:
    line = FFTLine(shape[dim], sign, dim < len(shape) - 2, room >= MANY_REGISTERS)
    name = f"fft_{'first' if line.untiled else 'sublane'}_{line.length}"
    partial = not line.untiled and line.registers % SUBLANES  # tiles, which need narrow blocks
    for wide in (n for n in WIDE if n == LANES or (n < 2 * shape[-1] and not partial)):
        sizes: list[int | None] = [None] * len(shape)
        sizes[dim], sizes[-1], scratch = line.length, wide, scratch_of(wide // LANES, line)
        if line.untiled:
            sizes[-2], scratch = SUBLANES, (line.length, SUBLANES, wide)
        blocks = Blocked(tuple(shape), tuple(sizes))
        kernel = Kernel(name, transform_columns, (line,), blocks, blocks, (scratch,))
        if kernel.bytes <= room:
            return kernel
    return None


def real_kernel(shape: Sequence[int], many: int, sign: int, room: int, onto: bool = False) -> Kernel | None:
    if any(n % SUBLANES or not radices(n // SUBLANES) for n in shape[-many:]):
        return None
    many_registers = room >= MANY_REGISTERS
    line = RealLine(shape[-1], sign, many_registers=many_registers)
    if many == 2:
        lines: tuple[FFTLine, ...] = (line, FFTLine(shape[-2], sign, many_registers=many_registers))
        lead, none, rows = tuple(shape[:-1]), [None] * (len(shape) - 2), [rounded_up(shape[-2], LANES)]
    else:
        lines, lead, none = (line,), (math.prod(shape[:-1]),), []
        rows = [n for n in WIDE if n == LANES or n < 2 * lead[0]]
    kind = f"{'real' if onto else 'half'}{'plane' if many == 2 else 'lane'}"
    name, transform = f"fft_{kind}_{'x'.join(map(str, shape[-many:]))}", _to_real if onto else _to_half
    for high in rows:
        tiles = rounded_up(max(high, line.half * (many - 1)), LANES) // LANES
        spatial = Blocked((*lead, line.length), (*none, high, rounded_up(line.length, LANES)), arrays=1)
        half = Blocked((*lead, line.half), (*none, high, rounded_up(line.half, LANES)))
        source, target = (half, spatial) if onto else (spatial, half)
        kernel = Kernel(name, transform, lines, source, target, (scratch_of(tiles, *lines),) * 2)
        if kernel.bytes <= room:
            return kernel
    return None


def flattened(shape: Sequence[int]) -> tuple[int, ...]:
    """Lines in one leading dimension, if tiles of eight rows allow it without a copy."""
    tiled = len(shape) > 1 and shape[-2] >= LANES and shape[-2] % SUBLANES
    return tuple(shape) if tiled else (math.prod(shape[:-1]), shape[-1])


def is_full(kernel: Kernel) -> bool:
    rows, many = kernel.source.shape[-2], kernel.source.sizes[-2] or 1
    return rounded_up(rows, many) <= rows * FULL


def transform_planes(kernel: Kernel, tables: AnyRefs, source: PassOperand, memories: list[Refs], target: Refs) -> None:
    rows, columns = kernel.lines
    first, second = memories
    down, across = (-(-line.length // LANES) for line in kernel.lines)
    planes = kernel.scratch[0][0] // max(down, across)
    if planes > 1 and isinstance(source, tuple):
        source, target = (Beside(source[0]), Beside(source[1])), (Beside(target[0]), Beside(target[1]))
    along_rows(rows, tables[:2], source, second, first, planes * across)
    transpose(first, second, rows.length, columns.length, planes)
    scratch, done = order(columns, memories)
    along_rows(columns, tables[2:], second, scratch, done, planes * down)
    transpose(done, target, columns.length, rows.length, planes)


def transform_lanes(kernel: Kernel, tables: AnyRefs, source: Refs, memories: list[Refs], target: Refs) -> None:
    (line,), tiles = kernel.lines, kernel.scratch[0][0]
    scratch, done = order(line, memories)
    transpose(source, memories[1], tiles * LANES, line.length)
    along_rows(line, tables, memories[1], scratch, done, tiles)
    transpose(done, target, line.length, tiles * LANES)


def transform_columns(kernel: Kernel, tables: AnyRefs, source: PassOperand, memories: list[Refs], target: Refs) -> None:
    (line,), (scratch,) = kernel.lines, memories
    if line.untiled:
        along_untiled(line, tables[0], source, scratch, target)
    else:
        along_rows(line, tables, source, scratch, target, kernel.scratch[0][0])


def _to_half(kernel: Kernel, tables: AnyRefs, source: Sequence[Ref], memories: list[Refs], target: Refs) -> None:
    line, *others = kernel.lines
    assert isinstance(line, RealLine)
    (block,), (scratch, done), rows = source, memories, source[0].shape[-2]
    transpose((block,), (real_plane(line, memories),), rows, line.length)
    half_along_rows(line, tables, scratch, done, -(-rows // LANES))
    if not others:
        return transpose(done, target, line.half, rows)
    transpose(done, scratch, line.half, rows)
    along_rows(others[0], tables[2:], scratch, done, target, -(-line.half // LANES))


def _to_real(kernel: Kernel, tables: AnyRefs, source: Refs, memories: list[Refs], target: Sequence[Ref]) -> None:
    line, *others = kernel.lines
    assert isinstance(line, RealLine)
    (scratch, half), rows = memories, source[0].shape[-2]
    if others:
        along_rows(others[0], tables[2:], source, half, scratch, -(-line.half // LANES))
        source = scratch
    transpose(source, half, rows, line.half)
    real_along_rows(line, tables, scratch, half, -(-rows // LANES))
    transpose((real_plane(line, memories),), target, line.length, rows)
