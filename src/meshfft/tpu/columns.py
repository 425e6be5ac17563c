"""Kernels of a dimension with others behind it: lines over untiled positions, or along the sublanes."""

import functools
from collections.abc import Sequence

from ..numerics.split_complex import Planes
from .lines.along import Line, Source, along_rows, along_untiled
from .lines.calls import MANY_REGISTERS, WIDE, Job, Side, rounded
from .lines.radices import LANES, SUBLANES
from .lines.sources import Planes as Refs
from .lines.sources import Ref


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
