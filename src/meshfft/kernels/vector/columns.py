"""Kernels of a dimension with others behind it: lines over untiled positions, or along the sublanes."""

from collections.abc import Sequence

from ...numerics.split_complex import Planes
from .along import Line, Ref, along_rows, along_untiled
from .along import Planes as Refs
from .calls import MANY_REGISTERS, WIDE, Blocks, call, fast_bytes, rounded
from .radices import LANES, SUBLANES


def line_of(shape: Sequence[int], dim: int, sign: int) -> Line:
    """The lines of a dimension that is not the last: untiled where two dimensions or more lie behind it."""
    return Line(shape[dim], sign, untiled=dim < len(shape) - 2)


def blocks_of(shape: Sequence[int], dim: int, room: int) -> Blocks | None:
    """The widest blocks that fit in fast memory."""
    line, ndim = line_of(shape, dim, -1), len(shape)
    for wide in WIDE:
        sizes: list[int | None] = [None] * ndim
        sizes[-1], sizes[dim] = wide, line.length
        if line.untiled:
            sizes[-2], scratch = SUBLANES, (line.length, SUBLANES, wide)
        else:
            wide = LANES if line.registers % SUBLANES else wide  # its last pass does not store whole tiles
            sizes[-1], scratch = wide, (wide // LANES, rounded(line.rows, SUBLANES), LANES)
        blocks = Blocks(tuple(sizes), scratch)
        least = wide == WIDE[-1] or wide < 2 * shape[-1]
        if least and fast_bytes([line], blocks) <= room:
            return blocks
    return None


def fft_columns(planes: Planes, dim: int, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of a dimension that is not the last of planes."""
    shape = planes[0].shape
    line, blocks = line_of(shape, dim, sign), blocks_of(shape, dim, room)
    assert blocks is not None, f"lines of {shape[dim]} do not fit in {room} bytes"
    at_once = 4 if room >= MANY_REGISTERS else 2

    def kernel(tables: list[Sequence[Ref]], source: Refs, scratch: list[Refs], target: Refs) -> None:
        if line.untiled:
            along_untiled(line, tables[0], source, scratch, target)
        else:
            along_rows(line, tables[0], source, scratch, target, blocks.scratch[0], at_once)

    kind = "first" if line.untiled else "sublane"
    return call(kernel, f"fft_{kind}_{line.length}", planes, [line], blocks, interpret)
