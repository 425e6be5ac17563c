"""Kernels of a dimension with others behind it: lines over untiled positions, or along the sublanes.

Untiled lines that fast memory does not hold are done in two, N = A B and n = B a + b, k = i + A j:

    twisted   Z[i, b] = w_N^(b i) sum_a exp(.. a i / A) x[B a + b]
    second    X[i + A j] = sum_b exp(.. b j / B) Z[i, b]         written where it belongs
"""

import functools
from collections.abc import Sequence
from typing import Any

from ...numerics.split_complex import Planes
from .along import Line, Ref, Source, along_rows, along_untiled
from .along import Planes as Refs
from .calls import MANY_REGISTERS, WIDE, Job, Side, rounded
from .radices import LANES, SUBLANES, radices


def job_of(shape: Sequence[int], dim: int, sign: int, room: int) -> Job | None:
    """The widest blocks that fit in fast memory, of lines along a dimension that is not the last."""
    line = Line(shape[dim], sign, untiled=dim < len(shape) - 2)
    for wide in (
        (LANES,) if not line.untiled and line.registers % SUBLANES else WIDE
    ):  # partial tiles need narrow blocks
        sizes: list[int | None] = [None] * len(shape)
        sizes[dim], sizes[-1] = line.length, wide
        scratch = (wide // LANES, rounded(line.rows, SUBLANES), LANES)
        if line.untiled:
            sizes[-2], scratch = SUBLANES, (line.length, SUBLANES, wide)
        side = Side(tuple(shape), tuple(sizes))
        job = Job((line,), side, side, scratch, at_once=4 if room >= MANY_REGISTERS else 2)
        if (wide == LANES or wide < 2 * shape[-1]) and job.bytes <= room:
            return job
    return None


def fft_columns(planes: Planes, dim: int, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of a dimension that is not the last of planes, in one pass over memory."""
    job = job_of(planes[0].shape, dim, sign, room)
    assert job is not None, f"lines of {planes[0].shape[dim]} do not fit in {room} bytes"
    kind = "first" if job.lines[0].untiled else "sublane"
    re, im = job.run(functools.partial(transform, job), f"fft_{kind}_{planes[0].shape[dim]}", planes, interpret)
    return re, im


def transform(job: Job, tables: Sequence[Ref], source: Source, scratch: list[Refs], target: Refs) -> None:
    """Lines from a block to another."""
    (line,) = job.lines
    if line.untiled:
        along_untiled(line, tables[0], source, scratch[0], target)
    else:
        along_rows(line, tables, source, scratch[0], target, job.scratch[0], job.at_once)


def jobs_of(shape: Sequence[int], dim: int, sign: int, room: int) -> tuple[Job, Job] | None:
    """The two kernels of long untiled lines, if there are factors that fit."""
    length = shape[dim]
    first = _divisor(length)
    second = length // first
    if dim >= len(shape) - 2 or not (radices(first) and radices(second)):
        return None
    opened = (*shape[:dim], first, second, *shape[dim + 1 :])
    swapped = (*shape[:dim], second, first, *shape[dim + 1 :])
    jobs = (_long(opened, dim, sign, room, (dim + 1, length), None), _long(opened, dim + 1, sign, room, None, swapped))
    return jobs if all(jobs) else None  # type: ignore[return-value]  # then neither is None


def fft_long_columns(planes: Planes, dim: int, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of an untiled dimension in two passes over memory."""
    shape = planes[0].shape
    jobs = jobs_of(shape, dim, sign, room)
    assert jobs is not None, f"lines of {shape[dim]} do not fit in {room} bytes"
    arrays = [plane.reshape(jobs[0].source.shape) for plane in planes]
    for job, kind in zip(jobs, ("twisted", "second"), strict=True):
        kernel = functools.partial(_long_kernel, job)
        arrays = job.run(kernel, f"fft_{kind}_{shape[dim]}", arrays, interpret)
    re, im = (plane.reshape(shape) for plane in arrays)
    return re, im


def _long(
    shape: Sequence[int], dim: int, sign: int, room: int, twist: tuple[int, int] | None, target: Sequence[int] | None
) -> Job | None:
    line = Line(shape[dim], sign, untiled=True)
    for wide in WIDE:
        sizes: list[int | None] = [None] * len(shape)
        sizes[dim], sizes[-2], sizes[-1] = line.length, SUBLANES, wide
        source = Side(tuple(shape), tuple(sizes))
        side = source
        if target is not None:  # its line comes first, and what it was one position of behind
            sizes[dim - 1], sizes[dim] = line.length, None
            side = Side(tuple(target), tuple(sizes), swapped=(dim - 1, dim))
        job = Job((line,), source, side, (line.length, SUBLANES, wide), twist=twist)
        if (wide == LANES or wide < 2 * shape[-1]) and job.bytes <= room:
            return job
    return None


def _long_kernel(job: Job, tables: Sequence[Ref], source: Refs, scratch: list[Refs], target: Refs) -> None:
    def weigh(k: Any) -> tuple[Any, Any]:
        return tables[-1][0, 2 * k], tables[-1][0, 2 * k + 1]

    along_untiled(job.lines[0], tables[0], source, scratch[0], target, weigh if job.twist is not None else None)


def _divisor(length: int) -> int:
    """The divisor nearest to the root, from below."""
    return max(d for d in range(1, int(length**0.5) + 1) if length % d == 0)
