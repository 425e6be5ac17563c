"""The kernel of the last dimension alone: rows are transposed in fast memory, and back."""

import functools
import math
from collections.abc import Sequence

from ..numerics.split_complex import Planes
from .lines.along import Line, along_rows, order, transpose
from .lines.calls import MANY_REGISTERS, WIDE, Job, Side, rounded
from .lines.radices import LANES, SUBLANES
from .lines.sources import Planes as Refs
from .lines.sources import Ref
from .long import lanes as long

FULL = 1.25  # rows of blocks for each that there is, at most


def job_of(shape: Sequence[int], sign: int, room: int, flat: bool = True) -> Job | None:
    """As many rows as fit in fast memory; long lines a few at a time. `flat` as in `flattened`."""
    *lead, rows, length = flattened(shape) if flat else shape
    line, none = Line(length, sign), [None] * len(lead)
    for many in WIDE:
        side = Side((*lead, rows, length), (*none, many, rounded(length, LANES)))
        scratch = (many // LANES, rounded(line.rows, SUBLANES), LANES)
        job = Job((line,), side, side, scratch, memories=2, at_once=4 if room >= MANY_REGISTERS else 2)
        if (many == LANES or many < 2 * rows) and job.bytes <= room:
            return job
    return long.job_of((*lead, rows, length), sign, room)


def suits(job: Job) -> bool:
    """True where few rows of its blocks are empty."""
    (*_, rows, _), (*_, many, _) = job.source.shape, job.source.sizes  # type: ignore[union-attr]
    return rounded(rows, many or 1) <= rows * FULL


def flattened(shape: Sequence[int]) -> tuple[int, ...]:
    """An array as one of lines, which is a copy unless tiles of eight rows are full."""
    tiled = len(shape) > 1 and shape[-2] >= LANES and shape[-2] % SUBLANES
    return tuple(shape) if tiled else (math.prod(shape[:-1]), shape[-1])


def fft_lanes(planes: Planes, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of the last dimension of planes."""
    shape, length = planes[0].shape, planes[0].shape[-1]
    flat = [plane.reshape(flattened(shape)) for plane in planes]
    job = job_of(shape, sign, room)
    assert job is not None, f"lines of {length} do not fit in {room} bytes"
    re, im = job.run(functools.partial(transform, job), f"fft_lane_{length}", flat, interpret)
    return re.reshape(shape), im.reshape(shape)


def transform(job: Job, tables: Sequence[Ref], source: Refs, memories: list[Refs], target: Refs) -> None:
    """Rows from a block to another."""
    if len(job.lines) > 1:
        return long.transform(job, tables, source, memories, target)
    (line,), tiles = job.lines, job.scratch[0]
    scratch, done = order(line, memories)
    transpose(source, memories[1], tiles * LANES, line.length)
    along_rows(line, tables, memories[1], scratch, done, tiles, job.at_once)
    transpose(done, target, line.length, tiles * LANES)
