"""FFTs beside all-to-alls: sent in parts, and read in pieces as they arrived (collectives/pieces.py).

    planes or pieces -> kernels -> (parts, planes, *sizes) -> all-to-all -> pieces -> kernels

Where a kernel can, it writes the parts itself, and reads the pieces as they lie, or some rows of a larger array: then
nothing is copied between kernels and collectives. Where not, copies are made around it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax

from ..collectives.pieces import Came, Pieces, Rows, in_parts
from ..numerics.split_complex import Planes
from . import columns, engine, lanes, plane
from .lines.calls import Divided, Job, Side
from .lines.ends import Ends
from .lines.parted import planes_of
from .lines.radices import LANES, SUBLANES
from .lines.sources import Arrived, Ref, legible
from .lines.sources import Planes as Refs
from .long import columns as long

LONG, SECOND = ("twisted", "subtwisted"), ("second", "subsecond")  # which the first runs too


def fft_to_parts(
    given: Planes | Pieces,
    dims: Sequence[int],
    sign: int,
    room: int,
    rows: Rows,
    target: int,
    parts: int,
    interpret: bool = False,
) -> Array:
    """Transforms some rows of a block, and divides dimension `target` into parts: (parts, planes, *sizes)."""
    if isinstance(given, Pieces) and given.dim == rows.dim != given.source and given.piece == rows.size:
        given = Pieces(given.arrays[rows.start // rows.size :][:1], given.source, given.source)
        rows = rows._replace(start=0)

    def plain(*arrays: Array) -> list[Array]:
        planes = _planes(given, arrays)
        chunk = [lax.slice_in_dim(x, rows.start, rows.start + rows.size, axis=rows.dim) for x in planes]
        re, im = engine.fft((chunk[0], chunk[1]), dims, sign, room, interpret)
        return [in_parts((re, im), target, parts)]

    ends = Ends(rows, _came(given), (target, parts))
    (sent,) = _linear(plain, given, ends, dims, sign, room, interpret)
    return sent


def fft_of_pieces(pieces: Pieces, dims: Sequence[int], sign: int, room: int, interpret: bool = False) -> Planes:
    """Transforms a block that lies in pieces."""

    def plain(*arrays: Array) -> list[Array]:
        return list(engine.fft(_planes(pieces, arrays), dims, sign, room, interpret))

    re, im = _linear(plain, pieces, Ends(came=_came(pieces)), dims, sign, room, interpret)
    return re, im


def writes(block: Sequence[int], dims: Sequence[int], room: int, rows: Rows, target: int, parts: int) -> bool:
    """True where a kernel reads some rows of a block and writes the parts itself."""
    return direct(_chunk(block, rows), dims, -1, room, Ends(rows, None, (target, parts)))


def reads(block: Sequence[int], dims: Sequence[int], room: int, came: Came) -> bool:
    """True where a kernel reads a block in such pieces as they lie."""
    return direct(tuple(block), dims, -1, room, Ends(came=came))


def _linear(
    plain: Callable[..., list[Array]],
    given: Planes | Pieces,
    ends: Ends,
    dims: Sequence[int],
    sign: int,
    room: int,
    interpret: bool,
) -> list[Array]:
    """By kernels that read and write as the ends lie, where there are; the transpose is that of `plain`."""
    arrays = given.arrays if isinstance(given, Pieces) else given
    shape = given.shape if isinstance(given, Pieces) else given[0].shape
    shape = shape if ends.rows is None else _chunk(shape, ends.rows)
    if not direct(shape, dims, sign, room, ends):
        return plain(*arrays)
    kernels = functools.partial(by_kernels, shape=shape, dims=dims, sign=sign, room=room, ends=ends)
    likes = [jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=jax.typeof(x).manual_axis_type) for x in arrays]

    def there(_: None, arrays: tuple[Array, ...]) -> list[Array]:
        with jax.named_scope("fft"):  # profiles know it by its name, as they know XLA's
            if interpret:
                return kernels(*arrays, interpret=True)
            return list(lax.platform_dependent(*arrays, tpu=kernels, default=plain))

    def back(_: None, cts: list[Array]) -> tuple[Array, ...]:
        return tuple(jax.linear_transpose(plain, *likes)(cts))

    return list(jax.custom_derivatives.linear_call(there, back, None, tuple(arrays)))


def by_kernels(
    *arrays: Array,
    shape: tuple[int, ...],
    dims: Sequence[int],
    sign: int,
    room: int,
    ends: Ends,
    interpret: bool = False,
) -> list[Array]:
    """One kernel after the other: the first reads what is given, and the last writes what is sent."""
    left = list(arrays)
    for one, own in passes_of(shape, dims, room, ends):
        if own == Ends():
            left = list(engine.run_one(one, (left[0], left[1]), sign, room, interpret))
        else:
            left = _one(left, one, shape, sign, room, own, interpret)
    return left


def passes_of(shape: tuple[int, ...], dims: Sequence[int], room: int, ends: Ends) -> list[tuple[engine.Pass, Ends]]:
    """Kernels with the ends that are theirs: the first transforms what is in pieces, the last what is in parts."""
    came, sent = (None if end is None else end[0] for end in (ends.came, ends.sent))
    own = [one for one in engine.passes(shape, dims, room) if one.kind not in SECOND]
    order = sorted(own, key=lambda one: (sent in one.dims) - (came in one.dims))
    last = len(order) - 1
    return [
        (one, Ends(*(ends[:2] if j == 0 else (None, None)), ends.sent if j == last else None))
        for j, one in enumerate(order)
    ]


def _one(
    arrays: list[Array], one: engine.Pass, shape: tuple[int, ...], sign: int, room: int, ends: Ends, interpret: bool
) -> list[Array]:
    if one.kind in LONG:
        return long.fft_long_columns(arrays, shape, one.dims[0], sign, room, interpret, ends)
    made = _job(one, shape, sign, room, ends)
    assert made is not None, "such a kernel reads and writes otherwise"
    job, transform = made
    if _flat(one, shape, ends):
        arrays = [x.reshape(-1, shape[-1]) for x in arrays]

    def kernel(tables: Sequence[Ref], source: Any, memories: list[Refs], target: Any) -> None:
        if isinstance(job.source, Divided):
            rows = job.source.rows // (1 if job.lines[0].untiled else SUBLANES)
            source = Arrived(tuple(source), rows)
        target = planes_of(job.target, target[0]) if isinstance(job.target, Divided) else target
        transform(job, tables, source, memories, target)

    results = job.run(kernel, f"fft_{one.kind}_{'x'.join(map(str, one.lengths))}", arrays, interpret)
    if ends.sent is None:
        return [x.reshape(shape) for x in results]
    dim, parts = ends.sent
    return [x.reshape(parts, 2, *shape[:dim], shape[dim] // parts, *shape[dim + 1 :]) for x in results]


def direct(shape: tuple[int, ...], dims: Sequence[int], sign: int, room: int, ends: Ends) -> bool:
    """True where kernels read what is given as it lies, and write what is sent."""
    if not all(engine.supports(shape, dim, room) for dim in dims):
        return False
    passes = [(one, own) for one, own in passes_of(shape, dims, room, ends) if own != Ends()]
    return bool(passes) and all(_made(one, shape, sign, room, own) for one, own in passes)


def _made(one: engine.Pass, shape: tuple[int, ...], sign: int, room: int, ends: Ends) -> bool:
    """True where there is a kernel whose ends lie so, or two."""
    if one.kind in LONG:
        return long.jobs_of(shape, one.dims[0], sign, room, ends) is not None
    return _job(one, shape, sign, room, ends) is not None


def _job(
    one: engine.Pass, shape: tuple[int, ...], sign: int, room: int, ends: Ends, alone: bool = False
) -> tuple[Job, Callable[..., None]] | None:
    """The job of a pass whose ends lie so, and what a kernel does; None where no kernel does.

    Small planes go by several where the ends lie so, otherwise each `alone`.
    """
    flat, rows = _flat(one, shape, ends), ends.rows
    transform: Callable[..., None] = columns.transform
    if one.kind == "lane":
        job, transform = lanes.job_of(shape, sign, room, flat), lanes.transform
        if job is None or not lanes.suits(job):
            return None
        behind = math.prod(shape[1:-1]) if flat else 1
        rows = None if rows is None else Rows(rows.dim, rows.start * behind, rows.size * behind)
    elif one.kind == "plane":
        job, transform = plane.job_of(shape, sign, room, alone or ends.came is not None), plane.transform
    else:
        job = columns.job_of(shape, one.dims[0], sign, room)
    assert job is not None and isinstance(job.source, Side) and isinstance(job.target, Side), "passes() told of it"
    source = _source(job, job.source, one, rows, ends.came)
    sent = None if ends.sent is None else (ends.sent[0] - (len(shape) - 2) * flat, ends.sent[1])
    target = _target(job, job.target, one, sent)
    if source is not None and target is not None:
        return dataclasses.replace(job, source=source, target=target), transform
    return None if alone or one.kind != "plane" else _job(one, shape, sign, room, ends, alone=True)


def _source(job: Job, side: Side, one: engine.Pass, rows: Rows | None, came: Came | None) -> Side | Divided | None:
    if rows is not None:
        size = side.sizes[rows.dim] or 1
        if rows.dim in one.dims or rows.start % size or (rows.size % size and rows.size != side.shape[rows.dim]):
            return None
        side = dataclasses.replace(side, begin=(rows.dim, rows.start))
    if came is None:
        return side
    line, divided = job.lines[0], Divided(side, came.source, came.parts, came.pieces)
    tiled = 1 if line.untiled else SUBLANES
    if one.kind == "lane" or came.source != one.dims[0] or came.dim != came.source or divided.rows % tiled:
        return None
    return divided if legible(line.radices[0], came.parts, came.pieces) else None


def _target(job: Job, side: Side, one: engine.Pass, sent: tuple[int, int] | None) -> Side | Divided | None:
    if sent is None:
        return side
    dim, parts = sent
    divided, last = Divided(side, dim, parts), len(side.shape) - 1
    if not divided.whole:
        tile = side.sizes[dim] or 1
    else:
        tile = LANES if dim == last else SUBLANES if dim == last - 1 else 1
    if one.kind == "sublane" and divided.whole and job.lines[0].registers % SUBLANES:
        return None  # its last pass does not store whole tiles
    return divided if divided.rows % tile == 0 else None


def _flat(one: engine.Pass, shape: Sequence[int], ends: Ends) -> bool:
    """True where the array is one of lines, and ends are of such: whole leading rows, and parts of lines."""
    rows, sent = ends.rows is None or ends.rows.dim == 0, ends.sent is None or ends.sent[0] == len(shape) - 1
    return one.kind == "lane" and len(lanes.flattened(shape)) == 2 and rows and sent


def _chunk(shape: Sequence[int], rows: Rows) -> tuple[int, ...]:
    return (*shape[: rows.dim], rows.size, *shape[rows.dim + 1 :])


def _came(given: Planes | Pieces) -> Came | None:
    if not isinstance(given, Pieces):
        return None
    return Came(given.source, given.dim, given.parts, len(given.arrays))


def _planes(given: Planes | Pieces, arrays: Sequence[Array]) -> Planes:
    """What is given, of other arrays: its planes."""
    if isinstance(given, Pieces):
        return Pieces(tuple(arrays), given.source, given.dim).joined()
    return tuple(arrays)
