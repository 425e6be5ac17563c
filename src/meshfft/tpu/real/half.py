"""Kernels between real lines and half spectra, of the last dimension and of the last two at once.

lane    transposed -> half along the rows -> transposed back
plane   transposed -> half along the rows, which are the columns -> transposed back -> along the rows
onto real the same backwards
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax

from ...kernels import real
from ...numerics.split_complex import Planes, join, split
from ..lines.along import Line, along_rows, transpose
from ..lines.calls import MANY_REGISTERS, WIDE, Job, Side, rounded
from ..lines.radices import LANES, SUBLANES, radices
from ..lines.sources import Planes as Refs
from ..lines.sources import Ref
from .along import RealLine, half_along_rows, real_along_rows, real_plane


def job_of(shape: Sequence[int], many: int, sign: int, room: int, onto: bool = False) -> Job | None:
    """The kernel of the last dimension, or the last two, of real arrays of that shape; None where none does it."""
    if any(n % SUBLANES or not radices(n // SUBLANES) for n in shape[-many:]):
        return None
    lines: tuple[Line, ...]
    line = RealLine(shape[-1], sign, flips=room >= MANY_REGISTERS)
    if many == 2:
        sizes = [(*[None] * (len(shape) - 2), rounded(shape[-2], LANES))]
        lines, lead = (line, Line(shape[-2], sign)), tuple(shape[:-1])
    else:
        rows = math.prod(shape[:-1])
        sizes, lines, lead = [(n,) for n in WIDE if n == LANES or n < 2 * rows], (line,), (rows,)
    for size in sizes:
        columns = rounded(max(int(size[-1] or 1), line.half * (many - 1)), LANES) // LANES
        scratch = (columns, rounded(max(one.rows for one in lines), SUBLANES), LANES)
        real = Side((*lead, line.length), (*size, rounded(line.length, LANES)), arrays=1)
        half = Side((*lead, line.half), (*size, rounded(line.half, LANES)))
        ends = (half, real) if onto else (real, half)
        job = Job(lines, *ends, scratch, memories=2, at_once=4 if room >= MANY_REGISTERS else 2)
        if job.bytes <= room:
            return job
    return None


def half_spectrum(x: Array, many: int, sign: int, room: int, interpret: bool = False) -> Planes:
    """The last dimension, or the last two, of a real array to half of its spectrum, as kernels/real.py has it.

    By a kernel on a TPU, or as `interpret` says; elsewhere by XLA. Linear: the transpose, for which a kernel has no
    rule, is the kernel onto real lines with the other sign.
    """
    length, dims = x.shape[-1], tuple(range(x.ndim - many, x.ndim))
    job = job_of(x.shape, many, sign, room)
    assert job is not None, f"real lines of {x.shape[-many:]} have no kernel in {room} bytes"

    def by_kernel(x: Array) -> Planes:
        return tuple(
            y.reshape(*x.shape[:-1], length // 2 + 1) for y in _run(job, [x], many, "half", _to_half, interpret)
        )

    def forward(_: None, x: Array) -> Planes:
        by_xla = functools.partial(real.XLA_REAL.half, dims=dims, sign=sign)
        return _by_platform(by_kernel, lambda x: split(by_xla(x)), x, interpret)

    def back(_: None, planes: Planes) -> Array:
        return from_half_spectrum(planes, many, length, -sign, room, interpret=interpret)

    return jax.custom_derivatives.linear_call(forward, back, None, x)


def from_half_spectrum(planes: Planes, many: int, length: int, sign: int, room: int, interpret: bool = False) -> Array:
    """The transpose of that: x[n] = Re sum_k X[k] exp(sign 2 pi i k n / N) over half of the spectrum."""
    shape = (*planes[0].shape[:-1], length)
    dims = tuple(range(len(shape) - many, len(shape)))
    job = job_of(shape, many, sign, room, onto=True)
    assert job is not None, f"real lines of {shape[-many:]} have no kernel in {room} bytes"

    def by_kernel(planes: Planes) -> Array:
        return _run(job, planes, many, "real", _to_real, interpret)[0].reshape(shape)

    def forward(_: None, planes: Planes) -> Array:
        by_xla = functools.partial(real.XLA_REAL.real, dims=dims, length=length, sign=sign)
        return _by_platform(by_kernel, lambda planes: by_xla(join(planes)), planes, interpret)

    def back(_: None, x: Array) -> Planes:
        return half_spectrum(x, many, -sign, room, interpret=interpret)

    return jax.custom_derivatives.linear_call(forward, back, None, planes)


def _by_platform(by_kernel: Callable[..., Any], by_xla: Callable[..., Any], given: Any, interpret: bool) -> Any:
    with jax.named_scope("fft"):  # profiles know it by its name, as they know XLA's
        return by_kernel(given) if interpret else lax.platform_dependent(given, tpu=by_kernel, default=by_xla)


def _run(
    job: Job, arrays: Sequence[Array], many: int, name: str, transform: Callable[..., None], interpret: bool
) -> list[Array]:
    flat = [x.reshape(*job.source.shape[:-1], x.shape[-1]) for x in arrays]
    lengths = "x".join(str(line.length) for line in reversed(job.lines))
    kind = f"{name}{'plane' if many == 2 else 'lane'}"
    return job.run(functools.partial(transform, job), f"fft_{kind}_{lengths}", flat, interpret)


def _to_half(job: Job, tables: Sequence[Ref], source: Sequence[Ref], memories: list[Refs], target: Refs) -> None:
    """Real rows from a block to half spectra in another."""
    line, *others = job.lines
    assert isinstance(line, RealLine)
    scratch, done = memories
    (real,), columns = source, real_plane(line, memories)
    rows = source_rows(job)
    transpose((real,), (columns,), rows, line.length)
    half_along_rows(line, tables, scratch, done, -(-rows // LANES), job.at_once)
    if not others:
        return transpose(done, target, line.half, rows)
    transpose(done, scratch, line.half, rows)
    along_rows(others[0], tables[2:], scratch, done, target, -(-line.half // LANES), job.at_once)


def _to_real(job: Job, tables: Sequence[Ref], source: Refs, memories: list[Refs], target: Sequence[Ref]) -> None:
    """Half spectra from a block to real rows in another."""
    line, *others = job.lines
    assert isinstance(line, RealLine)
    scratch, half = memories
    rows = source_rows(job)
    if others:
        along_rows(others[0], tables[2:], source, half, scratch, -(-line.half // LANES), job.at_once)
        source = scratch
    transpose(source, half, rows, line.half)
    real_along_rows(line, tables, scratch, half, -(-rows // LANES), job.at_once)
    transpose((real_plane(line, memories),), target, line.length, rows)


def source_rows(job: Job) -> int:
    """Rows of a block."""
    return int(job.source.sizes[-2] or 1)  # type: ignore[union-attr]
