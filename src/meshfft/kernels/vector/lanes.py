"""The kernel of the last dimension alone: rows are transposed in fast memory, and back."""

import functools
import math
from collections.abc import Sequence

from ...numerics.split_complex import Planes
from .along import Line, Ref, along_rows, order, transpose
from .along import Planes as Refs
from .calls import MANY_REGISTERS, WIDE, Job, Side, rounded
from .radices import LANES, SUBLANES


def job_of(rows: int, length: int, sign: int, room: int) -> Job | None:
    """As many rows as fit in fast memory."""
    line = Line(length, sign)
    for many in WIDE:
        side = Side((rows, length), (many, rounded(length, LANES)))
        scratch = (many // LANES, rounded(line.rows, SUBLANES), LANES)
        job = Job((line,), side, side, scratch, memories=2, at_once=4 if room >= MANY_REGISTERS else 2)
        if (many == LANES or many < 2 * rows) and job.bytes <= room:
            return job
    return None


def rows_of(shape: Sequence[int]) -> int:
    """Lines of an array."""
    return math.prod(shape[:-1])


def fft_lanes(planes: Planes, sign: int, room: int, interpret: bool = False) -> Planes:
    """The FFT of the last dimension of planes."""
    shape, length = planes[0].shape, planes[0].shape[-1]
    flat = [plane.reshape(-1, length) for plane in planes]
    job = job_of(len(flat[0]), length, sign, room)
    assert job is not None, f"lines of {length} do not fit in {room} bytes"
    re, im = job.run(functools.partial(transform, job), f"fft_lane_{length}", flat, interpret)
    return re.reshape(shape), im.reshape(shape)


def transform(job: Job, tables: Sequence[Ref], source: Refs, memories: list[Refs], target: Refs) -> None:
    """Rows from a block to another."""
    (line,), tiles = job.lines, job.scratch[0]
    scratch, done = order(line, memories)
    transpose(source, memories[1], tiles * LANES, line.length)
    along_rows(line, tables, memories[1], scratch, done, tiles, job.at_once)
    transpose(done, target, line.length, tiles * LANES)
