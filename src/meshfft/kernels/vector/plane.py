"""The kernel of the last two dimensions at once: one pass over memory for both.

along the rows -> transposed -> along the rows, which are the columns -> transposed back
"""

from collections.abc import Sequence

from ...numerics.split_complex import Planes
from .along import Line, Ref, along_rows, free, transpose
from .along import Planes as Refs
from .calls import MANY_REGISTERS, Blocks, call, fast_bytes, rounded
from .radices import LANES, SUBLANES


def blocks_of(shape: Sequence[int], room: int) -> Blocks | None:
    """One plane, if it fits in fast memory."""
    rows, columns = (Line(n, -1) for n in shape[-2:])
    tall, wide = rounded(max(rows.rows, columns.rows), SUBLANES), max(shape[-2:])
    scratch = (rounded(wide, LANES) // LANES, tall, LANES)
    sizes = (*[None] * (len(shape) - 2), shape[-2], rounded(shape[-1], LANES))
    blocks = Blocks(sizes, scratch)
    return blocks if fast_bytes([rows, columns], blocks) <= room else None


def fft_plane(planes: Planes, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of the last two dimensions of planes."""
    shape, blocks = planes[0].shape, blocks_of(planes[0].shape, room)
    assert blocks is not None, f"planes of {shape[-2:]} do not fit in {room} bytes"
    rows, columns = (Line(n, sign) for n in shape[-2:])
    tiles, turned = (-(-n // LANES) for n in (columns.length, rows.length))
    at_once = 4 if room >= MANY_REGISTERS else 2

    def kernel(tables: list[Sequence[Ref]], source: Refs, scratch: list[Refs], target: Refs) -> None:
        done = free(rows, scratch)
        swapped = [done, *(one for one in scratch if one is not done)]
        along_rows(rows, tables[0], source, scratch, done, tiles, at_once)
        transpose(done, swapped[1], rows.length, columns.length)
        done = free(columns, swapped)
        along_rows(columns, tables[1], swapped[1], swapped, done, turned, at_once)
        transpose(done, target, columns.length, rows.length)

    return call(kernel, f"fft_plane_{rows.length}x{columns.length}", planes, [rows, columns], blocks, interpret)
