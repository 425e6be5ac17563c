"""Kernels between real lines and half spectra, for the last dimension (lane) or the last two (plane).

    lane    transposed -> half along the rows -> transposed back
    plane   transposed -> half along the rows, which are the columns -> transposed back -> along the rows

Kernels onto real lines do the reverse.
"""

import math
from collections.abc import Sequence

from jax import Array

from ...kernels import real
from ...numerics.split_complex import Planes, join, split
from .along import FFTLine, along_rows, transpose
from .blocks import MANY_REGISTERS, WIDE, Blocked, Kernel, linear_on_tpu, rounded, scratch_of, tiles_at_once
from .memory import Ref, Refs
from .radices import LANES, SUBLANES, radices
from .real import RealLine, half_along_rows, real_along_rows, real_plane


def kernel_of(shape: Sequence[int], many: int, sign: int, room: int, onto: bool = False) -> Kernel | None:
    if any(n % SUBLANES or not radices(n // SUBLANES) for n in shape[-many:]):
        return None
    line = RealLine(shape[-1], sign, flips=room >= MANY_REGISTERS)
    if many == 2:
        lines: tuple[FFTLine, ...] = (line, FFTLine(shape[-2], sign))
        lead, none, rows = tuple(shape[:-1]), [None] * (len(shape) - 2), [rounded(shape[-2], LANES)]
    else:
        lines, lead, none = (line,), (math.prod(shape[:-1]),), []
        rows = [n for n in WIDE if n == LANES or n < 2 * lead[0]]
    kind = f"{'real' if onto else 'half'}{'plane' if many == 2 else 'lane'}"
    name, transform = f"fft_{kind}_{'x'.join(map(str, shape[-many:]))}", _to_real if onto else _to_half
    for high in rows:
        tiles = rounded(max(high, line.half * (many - 1)), LANES) // LANES
        spatial = Blocked((*lead, line.length), (*none, high, rounded(line.length, LANES)), arrays=1)
        half = Blocked((*lead, line.half), (*none, high, rounded(line.half, LANES)))
        source, target = (half, spatial) if onto else (spatial, half)
        scratch, at_once = scratch_of(tiles, *lines), tiles_at_once(room)
        kernel = Kernel(name, transform, lines, source, target, scratch, memories=2, at_once=at_once)
        if kernel.bytes <= room:
            return kernel
    return None


def half_spectrum(x: Array, many: int, sign: int, room: int, interpret: bool = False) -> Planes:
    """Transforms the last one or two dimensions of a real array to half of its spectrum, as kernels/real.py.

    By a kernel on a TPU or with `interpret`, elsewhere by XLA. Linear: the transpose, for which a kernel has no rule,
    is
    the kernel onto real lines with the other sign.
    """
    length, dims = x.shape[-1], tuple(range(x.ndim - many, x.ndim))

    def by_kernel(x: Array) -> Planes:
        planes = _run(x.shape, many, sign, room, False, (x,), interpret)
        return tuple(plane.reshape(*x.shape[:-1], length // 2 + 1) for plane in planes)

    def by_xla(x: Array) -> Planes:
        return split(real.XLA_REAL.half(x, dims=dims, sign=sign))

    def transpose(planes: Planes) -> Array:
        return from_half_spectrum(planes, many, length, -sign, room, interpret)

    return linear_on_tpu(by_kernel, by_xla, transpose, x, interpret)


def from_half_spectrum(planes: Planes, many: int, length: int, sign: int, room: int, interpret: bool = False) -> Array:
    """The transpose of that: x[n] = Re sum_k X[k] exp(sign 2 pi i k n / N) over half of the spectrum."""
    shape = (*planes[0].shape[:-1], length)
    dims = tuple(range(len(shape) - many, len(shape)))

    def by_kernel(planes: Planes) -> Array:
        return _run(shape, many, sign, room, True, planes, interpret)[0].reshape(shape)

    def by_xla(planes: Planes) -> Array:
        (x,) = split(real.XLA_REAL.real(join(planes), dims=dims, length=length, sign=sign))
        return x

    def transpose(x: Array) -> Planes:
        return half_spectrum(x, many, -sign, room, interpret)

    return linear_on_tpu(by_kernel, by_xla, transpose, planes, interpret)


def _run(
    shape: tuple[int, ...], many: int, sign: int, room: int, onto: bool, arrays: Sequence[Array], interpret: bool
) -> list[Array]:
    kernel = kernel_of(shape, many, sign, room, onto)
    assert kernel is not None, f"real lines of {shape[-many:]} have no kernel in {room} bytes"
    return kernel.run([x.reshape(*kernel.source.shape[:-1], x.shape[-1]) for x in arrays], interpret)


def _to_half(kernel: Kernel, tables: Sequence[Ref], source: Sequence[Ref], memories: list[Refs], target: Refs) -> None:
    line, *others = kernel.lines
    assert isinstance(line, RealLine)
    (block,), (scratch, done), rows = source, memories, source[0].shape[-2]
    transpose((block,), (real_plane(line, memories),), rows, line.length)
    half_along_rows(line, tables, scratch, done, -(-rows // LANES), kernel.at_once)
    if not others:
        return transpose(done, target, line.half, rows)
    transpose(done, scratch, line.half, rows)
    along_rows(others[0], tables[2:], scratch, done, target, -(-line.half // LANES), kernel.at_once)


def _to_real(kernel: Kernel, tables: Sequence[Ref], source: Refs, memories: list[Refs], target: Sequence[Ref]) -> None:
    line, *others = kernel.lines
    assert isinstance(line, RealLine)
    (scratch, half), rows = memories, source[0].shape[-2]
    if others:
        along_rows(others[0], tables[2:], source, half, scratch, -(-line.half // LANES), kernel.at_once)
        source = scratch
    transpose(source, half, rows, line.half)
    real_along_rows(line, tables, scratch, half, -(-rows // LANES), kernel.at_once)
    transpose((real_plane(line, memories),), target, line.length, rows)
