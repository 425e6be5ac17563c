"""The kernel of the last dimension alone: 128 rows are transposed in fast memory, and back."""

from collections.abc import Sequence

from ...numerics.split_complex import Planes
from .along import Line, Ref, along_rows, free, transpose
from .along import Planes as Refs
from .calls import Blocks, call, fast_bytes, rounded
from .radices import LANES, SUBLANES


def blocks_of(length: int, room: int) -> Blocks | None:
    """128 rows, if they fit in fast memory."""
    line = Line(length, -1)
    blocks = Blocks((LANES, rounded(length, LANES)), (1, rounded(line.rows, SUBLANES), LANES))
    return blocks if fast_bytes([line], blocks) <= room else None


def fft_lanes(planes: Planes, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of the last dimension of planes."""
    shape, line, blocks = planes[0].shape, Line(planes[0].shape[-1], sign), blocks_of(planes[0].shape[-1], room)
    assert blocks is not None, f"lines of {shape[-1]} do not fit in {room} bytes"

    def kernel(tables: list[Sequence[Ref]], source: Refs, scratch: list[Refs], target: Refs) -> None:
        done = free(line, scratch)
        transpose(source, scratch[1], LANES, line.length)
        along_rows(line, tables[0], scratch[1], scratch, done, 1, 1)
        transpose(done, target, line.length, LANES)

    flat = tuple(plane.reshape(-1, line.length) for plane in planes)
    re, im = call(kernel, f"fft_lane_{line.length}", flat, [line], blocks, interpret)
    return re.reshape(shape), im.reshape(shape)
