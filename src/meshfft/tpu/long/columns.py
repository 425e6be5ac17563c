"""Kernels of lines that fast memory does not hold, of a dimension with others behind it: two passes over memory.

    N = A B,  n = B a + b,  k = i + A j
    twisted   Z[i, b] = w_N^(b i) sum_a exp(.. a i / A) x[B a + b]
    second    X[i + A j] = sum_b exp(.. b j / B) Z[i, b]                written where it belongs

Both are untiled: positions of A, or of B, have registers of their own. In the last dimension but one eight b lie along
the sublanes, and eight i have to in the result: the second kernel brings them there by strided loads.

Pieces that came from L A devices are taken one at a time, each as soon as it is there: b is (part, piece, row). Between
the two kernels lies an array (.., A, L, planes, rows, ..) for each piece. Parts of the result are written as they are
sent, of the dimension itself or of another.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from ...numerics.phases import host_roots
from ..lines.along import Line, along_untiled
from ..lines.butterflies import times
from ..lines.calls import WIDE, Job, Placed, rounded
from ..lines.ends import PLANES, Ends
from ..lines.radices import LANES, SUBLANES, radices, twist
from ..lines.sources import Apart, Arrived, Ref, Together, legible, loop, register
from ..lines.sources import Planes as Refs
from .ends import Plane, Sent, sent_of

Sizes = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Opened:
    """An array whose dimension of N positions is (A, L, pieces, rows), and what is before and behind."""

    lead: tuple[int, ...]
    first: int  # A
    parts: int  # L
    pieces: int
    rows: int
    rest: tuple[int, ...]
    begin: tuple[int, ...]  # where what is read begins in each other dimension
    came: bool

    @property
    def tiled(self) -> bool:
        """True where the dimension is the last but one."""
        return len(self.rest) == 1

    @property
    def second(self) -> int:
        """B."""
        return self.parts * self.pieces * self.rows

    @property
    def length(self) -> int:
        return self.first * self.second


def opened(shape: Sequence[int], dim: int, ends: Ends = PLANES) -> Opened | None:
    """How a dimension is taken in two, if there are factors and what came fits them."""
    lead, rest, came = tuple(shape[:dim]), tuple(shape[dim + 1 :]), ends.came
    tile = SUBLANES if len(rest) == 1 else 1
    first = _factor(shape[dim], tile, came.parts if came else shape[dim])
    if not first or (came and (came.source != dim or came.dim != dim or shape[dim] % (came.parts * came.pieces))):
        return None
    parts, pieces = (came.parts // first, came.pieces) if came else (1, 1)
    begin = [ends.rows.start if ends.rows and ends.rows.dim == d else 0 for d in range(len(shape))]
    if begin.pop(dim) or (ends.rows and ends.rows.dim == dim):
        return None
    rows = shape[dim] // (first * parts * pieces)
    made = Opened(lead, first, parts, pieces, rows, rest, tuple(begin), came is not None)
    readable = made.tiled or legible(radices(made.second)[0], parts, pieces)
    return made if rows % tile == 0 and readable else None


@functools.lru_cache(maxsize=256)
def jobs_of(
    shape: tuple[int, ...], dim: int, sign: int, room: int, ends: Ends = PLANES
) -> tuple[list[Job], Job, Sent] | None:
    """Kernels of lines along a dimension that is not the last: one for each piece, the second, and what it writes."""
    of = opened(shape, dim, ends)
    if of is None:
        return None
    sent = sent_of(of.lead, of.first, of.second, of.rest, ends.sent)
    if sent is None:
        return None
    for wide in WIDE:
        rest = (*[None] * (len(of.rest) - 2), *(() if of.tiled else (SUBLANES,)), wide)
        if any(begin % (size or 1) for begin, size in zip(of.begin[len(of.lead) :], rest, strict=True)):
            continue
        if ends.sent is not None and sent.refuses(rest):
            continue
        firsts, second = [_first(of, sign, rest, piece) for piece in range(of.pieces)], _second(of, sign, rest, sent)
        fits = max(job.bytes for job in (*firsts, second)) <= room
        if (wide == LANES or wide < 2 * shape[-1]) and fits:
            return firsts, second, sent
    return None


def fft_long_columns(
    arrays: Sequence[Array],
    shape: Sequence[int],
    dim: int,
    sign: int,
    room: int,
    interpret: bool = False,
    ends: Ends = PLANES,
) -> list[Array]:
    """The FFT of a dimension that is not the last, in two passes over memory, from and to what the ends say."""
    made = jobs_of(shape, dim, sign, room, ends)
    assert made is not None, f"lines of {shape[dim]} do not fit in {room} bytes"
    firsts, second, sent = made
    one, other = (f"fft_{kind}_{shape[dim]}" for kind in kinds(shape, dim))
    given = [[x] for x in arrays] if ends.came else [list(arrays)]
    between = []
    for job, planes in zip(firsts, given, strict=True):
        opened = [_reshaped(x, job.source, shape, dim, ends) for x in planes]
        between += job.run(functools.partial(_twisted, job), one, opened, interpret)
    results = second.run(functools.partial(_second_kernel, second, sent), other, between, interpret)
    return [x.reshape(sent.result) for x in results]


def kinds(shape: Sequence[int], dim: int) -> tuple[str, str]:
    """What the two kernels are called."""
    return ("subtwisted", "subsecond") if dim == len(shape) - 2 else ("twisted", "second")


def _reshaped(x: Array, side: Any, shape: Sequence[int], dim: int, ends: Ends) -> Array:
    """With the dimension opened; others may be longer than those of the block."""
    if ends.came:
        return x.reshape(*side.shape[:2], *x.shape[1:])
    return x.reshape(*x.shape[:dim], *side.shape[dim : dim + 3], *x.shape[dim + 1 :])


def _first(of: Opened, sign: int, rest: Sizes, piece: int) -> Job:
    """Of A, of one piece, to an array with both planes."""
    line, ndim = Line(of.first, sign, untiled=True), len(of.lead)
    eight = SUBLANES if of.tiled else None
    tall = -(-of.rows // (eight or 1))  # steps along the rows of a piece
    steps = (*of.lead, 1, of.parts, tall, *(-(-n // (size or 1)) for n, size in zip(of.rest, rest, strict=True)))
    shift = [begin // (size or 1) for begin, size in zip(of.begin, (*[None] * ndim, *rest), strict=True)]

    def split(step: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        return step[:ndim], step[ndim + 1], step[ndim + 2], step[ndim + 3 :]

    def read(*step: Any) -> tuple[Any, ...]:
        lead, part, row, behind = split(step)
        lead, behind = _moved(lead, shift[:ndim]), _moved(behind, shift[ndim:])
        return (0, part, 0, *lead, row, *behind) if of.came else (*lead, 0, part, row, *behind)

    def written(*step: Any) -> tuple[Any, ...]:
        lead, part, row, behind = split(step)
        return (*lead, 0, part, 0, row, *behind)

    none: Sizes = (None,) * ndim
    if of.came:
        shape: tuple[int, ...] = (of.first, of.parts, 2, *of.lead, of.rows, *of.rest)
        source = Placed(shape, (of.first, None, 2, *none, eight, *rest), steps, read)
    else:
        shape = (*of.lead, of.first, of.parts, of.rows, *of.rest)
        source = Placed(shape, (*none, of.first, None, eight, *rest), steps, read, arrays=2)
    between = (*of.lead, of.first, of.parts, 2, of.rows, *of.rest)
    target = Placed(between, (*none, of.first, None, 2, eight, *rest), steps, written)
    table = twist(of.length // (eight or 1), of.first, sign)
    own = table.reshape(of.parts, of.pieces, tall, *table.shape[1:])[:, piece].reshape(-1, *table.shape[1:])
    weights = (own, lambda *step: split(step)[1] * tall + split(step)[2])
    fixed = (_sublane_twist(line, of.length),) if of.tiled else ()
    return Job((line,), source, target, (of.first, SUBLANES, rest[-1] or 1), twist=weights, fixed=fixed)


def _second(of: Opened, sign: int, rest: Sizes, sent: Sent) -> Job:
    """Of B, of all pieces, to where results belong."""
    line, ndim = Line(of.second, sign, untiled=True), len(of.lead)
    eight, wide = SUBLANES if of.tiled else None, rest[-1] or 1
    steps = (
        *of.lead,
        -(-of.first // (eight or 1)),
        *(-(-n // (size or 1)) for n, size in zip(of.rest, rest, strict=True)),
    )
    shape = (*of.lead, of.first, of.parts, 2, of.rows, *of.rest)
    sizes = (*[None] * ndim, eight, of.parts, 2, of.rows, *rest)

    def read(*step: Any) -> tuple[Any, ...]:
        return (*step[: ndim + 1], 0, 0, 0, *step[ndim + 1 :])

    source = Placed(shape, sizes, steps, read, arrays=of.pieces)
    apart = rounded(SUBLANES * (line.length + 1), SUBLANES)
    more = ((wide // LANES, apart, LANES),) * of.tiled
    return Job((line,), source, sent.placed(rest, steps), (line.length, SUBLANES, wide), more=more)


def _moved(step: Sequence[Any], by: Sequence[int]) -> list[Any]:
    return [at + n if n else at for at, n in zip(step, by, strict=True)]


def _twisted(
    job: Job, tables: Sequence[Ref], source: Sequence[Ref], scratch: list[Refs], target: Sequence[Ref]
) -> None:
    """Lines of A from a block to another, weighted."""

    def weigh(k: Any) -> tuple[Any, Any]:
        whole = tables[-1][0, k], tables[-1][1, k]
        return times((tables[2][0, k], tables[2][1, k]), whole) if job.fixed else whole

    lines = (source[0], source[1]) if len(source) > 1 else Together(source[0])
    planes = Plane(target[0], 0, "rows"), Plane(target[0], 1, "rows")
    along_untiled(job.lines[0], tables[0], lines, scratch[0], planes, weigh)


def _second_kernel(
    job: Job, sent: Sent, tables: Sequence[Ref], source: Sequence[Ref], scratch: list[Refs], target: Sequence[Ref]
) -> None:
    """Lines of B from blocks of all pieces to where results belong."""
    (line,) = job.lines
    lines: Any = Arrived(tuple(source), source[0].shape[2]) if not job.more else Apart(scratch[-1], line.length + 1)
    if job.more:
        _interleave(source, line.length, scratch[-1])
    along_untiled(line, tables[0], lines, scratch[0], sent.planes(target), None)


def _interleave(source: Sequence[Ref], length: int, target: Refs) -> None:
    """Eight lines of rows, in pieces (8, parts, planes, rows, columns), a row further apart than they are long."""
    _, parts, _, rows, _ = source[0].shape

    def line(i: Any) -> None:
        for piece, ref in enumerate(source):
            loop(parts, functools.partial(some, i, piece, ref))

    def some(i: Any, piece: int, ref: Ref, part: Any) -> None:
        for tile in range(target[0].shape[0]):
            for plane, out in enumerate(target):
                for at in range(0, rows, SUBLANES):
                    begin = i * (length + 1) + (part * len(source) + piece) * rows + at
                    value = ref[i, part, plane, pl.ds(at, SUBLANES), pl.ds(tile * LANES, LANES)]
                    register(out, pl.ds(begin, SUBLANES), tile)[...] = value

    loop(SUBLANES, line)


@functools.lru_cache(maxsize=32)
def _sublane_twist(line: Line, length: int) -> np.ndarray:
    """exp(sign 2 pi i s k / length), of sublanes s < 8: (2, A, 8, 128)."""
    w = host_roots(np.outer(np.arange(line.length), np.arange(SUBLANES)), length, line.sign)
    return np.repeat(np.stack([w.real, w.imag])[..., None], LANES, -1).astype(np.float32)


def _factor(length: int, multiple: int, parts: int) -> int:
    """A, the divisor nearest to the root from below such that both factors have radices, and that divides what came in
    parts; 0 where there is none."""
    divisors = (d for d in range(math.isqrt(length), 0, -1) if length % d == 0 and length // d % multiple == 0)
    return next((d for d in divisors if radices(d) and radices(length // d) and parts % d == 0), 0)
