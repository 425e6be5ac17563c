"""The kernel of the last two dimensions at once: one pass over memory for both.

along the rows -> transposed -> along the rows, which are the columns -> transposed back
"""

import functools
import math
from collections.abc import Sequence

from ..numerics.split_complex import Planes
from .lines.along import Line, Source, along_rows, order, transpose
from .lines.calls import MANY_REGISTERS, Job, Side, rounded
from .lines.radices import LANES, SUBLANES, radices
from .lines.sources import Beside, Ref
from .lines.sources import Planes as Refs


def job_of(shape: Sequence[int], sign: int, room: int, alone: bool = False) -> Job | None:
    """One plane, or some small ones, if their lines have radices and they fit in fast memory; `alone` only one."""
    if any(n % SUBLANES or not radices(n // SUBLANES) for n in shape[-2:]):
        return None
    lines, at_once = (Line(shape[-2], sign), Line(shape[-1], sign)), 4 if room >= MANY_REGISTERS else 2
    tiles = [-(-n // LANES) for n in shape[-2:]]
    planes = 1 if alone or len(shape) < 3 else math.gcd(max(1, at_once // min(tiles)), shape[-3])
    scratch = (planes * max(tiles), rounded(max(line.rows for line in lines), SUBLANES), LANES)
    lead = (*[None] * (len(shape) - 3), planes if planes > 1 else None)[: len(shape) - 2]
    side = Side(tuple(shape), (*lead, shape[-2], rounded(shape[-1], LANES)))
    job = Job(lines, side, side, scratch, memories=2, at_once=at_once)
    return job if job.bytes <= room else None if planes == 1 else job_of(shape, sign, room, alone=True)


def fft_plane(planes: Planes, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of the last two dimensions of planes."""
    job = job_of(planes[0].shape, sign, room)
    assert job is not None, f"planes of {planes[0].shape[-2:]} do not fit in {room} bytes"
    rows, columns = (line.length for line in job.lines)

    re, im = job.run(functools.partial(transform, job), f"fft_plane_{rows}x{columns}", planes, interpret)
    return re, im


def transform(job: Job, tables: Sequence[Ref], source: Source, memories: list[Refs], target: Refs) -> None:
    """A plane from a block to another, or some beside each other: their tiles are worked on together."""
    rows, columns = job.lines
    first, second = memories
    planes = target[0].shape[0] if len(target[0].shape) > 2 else 1
    if planes > 1 and isinstance(source, tuple):
        source, target = (Beside(source[0]), Beside(source[1])), (Beside(target[0]), Beside(target[1]))
    tiles, turned = (planes * -(-line.length // LANES) for line in (columns, rows))
    along_rows(rows, tables[:2], source, second, first, tiles, job.at_once)
    transpose(first, second, rows.length, columns.length, planes)
    scratch, done = order(columns, memories)
    along_rows(columns, tables[2:], second, scratch, done, turned, job.at_once)
    transpose(done, target, columns.length, rows.length, planes)
