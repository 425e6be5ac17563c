"""The kernel of the last two dimensions at once: one pass over memory for both.

along the rows -> transposed -> along the rows, which are the columns -> transposed back
"""

import functools
from collections.abc import Sequence

from ...numerics.split_complex import Planes
from .along import Line, Ref, Source, along_rows, order, transpose
from .along import Planes as Refs
from .calls import MANY_REGISTERS, Job, Side, rounded
from .radices import LANES, SUBLANES, radices


def job_of(shape: Sequence[int], sign: int, room: int) -> Job | None:
    """One plane, if its lines have radices and it fits in fast memory."""
    if any(n % SUBLANES or not radices(n // SUBLANES) for n in shape[-2:]):
        return None
    lines = Line(shape[-2], sign), Line(shape[-1], sign)
    scratch = (rounded(max(shape[-2:]), LANES) // LANES, rounded(max(line.rows for line in lines), SUBLANES), LANES)
    side = Side(tuple(shape), (*[None] * (len(shape) - 2), shape[-2], rounded(shape[-1], LANES)))
    job = Job(lines, side, side, scratch, memories=2, at_once=4 if room >= MANY_REGISTERS else 2)
    return job if job.bytes <= room else None


def fft_plane(planes: Planes, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of the last two dimensions of planes."""
    job = job_of(planes[0].shape, sign, room)
    assert job is not None, f"planes of {planes[0].shape[-2:]} do not fit in {room} bytes"
    rows, columns = (line.length for line in job.lines)

    re, im = job.run(functools.partial(transform, job), f"fft_plane_{rows}x{columns}", planes, interpret)
    return re, im


def transform(job: Job, tables: Sequence[Ref], source: Source, memories: list[Refs], target: Refs) -> None:
    """A plane from a block to another."""
    rows, columns = job.lines
    first, second = memories
    tiles, turned = (-(-line.length // LANES) for line in (columns, rows))
    along_rows(rows, tables[:2], source, second, first, tiles, job.at_once)
    transpose(first, second, rows.length, columns.length)
    scratch, done = order(columns, memories)
    along_rows(columns, tables[2:], second, scratch, done, turned, job.at_once)
    transpose(done, target, columns.length, rows.length)
