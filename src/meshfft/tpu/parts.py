"""FFTs beside all-to-alls: results are sent in parts, and operands are read in pieces (collectives/pieces.py).

    planes or pieces -> kernels -> (parts, planes, *sizes) -> all-to-all -> pieces -> kernels

If possible, kernels write the parts and read the pieces, or some rows of a larger array, without copies. Otherwise
copies are made around them.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
from jax import Array, lax

from ..collectives.pieces import Came, Pieces, Rows, in_parts
from ..numerics.split_complex import Planes
from . import engine
from .engine import LONG, SECOND, KernelPass
from .lines.blocks import PLANES, Blocked, Divided, Ends, Kernel, linear_on_tpu
from .lines.long_columns import fft_long_columns, kernels_of
from .lines.memory import legible
from .lines.opened import result_of
from .lines.radices import LANES, SUBLANES
from .lines.short import flattened, is_full


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
        return [in_parts(engine.fft((chunk[0], chunk[1]), dims, sign, room, interpret), target, parts)]

    ends = Ends(rows, _came(given), (target, parts))
    (sent,) = _linear(plain, given, ends, dims, sign, room, interpret)
    return sent


def fft_of_pieces(pieces: Pieces, dims: Sequence[int], sign: int, room: int, interpret: bool = False) -> Planes:

    def plain(*arrays: Array) -> list[Array]:
        return list(engine.fft(_planes(pieces, arrays), dims, sign, room, interpret))

    return tuple(_linear(plain, pieces, Ends(came=_came(pieces)), dims, sign, room, interpret))


def is_direct(shape: tuple[int, ...], dims: Sequence[int], room: int, ends: Ends) -> bool:
    if not all(engine.supports(shape, dim, room) for dim in dims):
        return False
    passes = [(one, own) for one, own in passes_of(shape, dims, room, ends) if own != PLANES]
    return bool(passes) and all(_has_kernel(one, shape, room, own) for one, own in passes)


def passes_of(shape: tuple[int, ...], dims: Sequence[int], room: int, ends: Ends) -> list[tuple[KernelPass, Ends]]:
    """Kernels and their ends: the first transforms the dimension in pieces, the last the dimension in parts."""
    came, sent = (None if end is None else end[0] for end in (ends.came, ends.sent))
    own = [one for one in engine.passes(shape, dims, room) if one.kind not in SECOND]
    order = sorted(own, key=lambda one: (sent in one.dims) - (came in one.dims))
    last = len(order) - 1
    return [
        (one, Ends(*(ends[:2] if j == 0 else (None, None)), ends.sent if j == last else None))
        for j, one in enumerate(order)
    ]


def by_kernels(
    *arrays: Array,
    shape: tuple[int, ...],
    dims: Sequence[int],
    sign: int,
    room: int,
    ends: Ends,
    interpret: bool = False,
) -> list[Array]:
    left = list(arrays)
    for one, own in passes_of(shape, dims, room, ends):
        if own == PLANES:
            left = list(engine.run_one(one, (left[0], left[1]), sign, room, interpret))
        elif one.kind in LONG:
            left = fft_long_columns(left, shape, one.dims[0], sign, room, interpret, own)
        else:
            kernel = _kernel(one, shape, sign, room, own)
            assert kernel is not None, "such a kernel reads and writes otherwise"
            left = [x.reshape(-1, shape[-1]) for x in left] if _is_flat(one, shape, own) else left
            left = [x.reshape(result_of(shape, own.sent)) for x in kernel.run(left, interpret)]
    return left


def _linear(
    plain: Callable[..., list[Array]],
    given: Planes | Pieces,
    ends: Ends,
    dims: Sequence[int],
    sign: int,
    room: int,
    interpret: bool,
) -> list[Array]:
    """Runs kernels with these ends if there are any, else `plain`, whose transpose is used for both."""
    arrays = given.arrays if isinstance(given, Pieces) else given
    shape = given.shape if isinstance(given, Pieces) else given[0].shape
    shape = shape if ends.rows is None else chunk_of(shape, ends.rows)
    if not is_direct(shape, dims, room, ends):
        return plain(*arrays)
    likes = [jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=jax.typeof(x).manual_axis_type) for x in arrays]

    def kernels(arrays: tuple[Array, ...]) -> list[Array]:
        return by_kernels(*arrays, shape=shape, dims=dims, sign=sign, room=room, ends=ends, interpret=interpret)

    def transpose(cts: list[Array]) -> tuple[Array, ...]:
        return tuple(jax.linear_transpose(plain, *likes)(cts))

    return linear_on_tpu(kernels, lambda arrays: plain(*arrays), transpose, tuple(arrays), interpret)


def _has_kernel(one: KernelPass, shape: tuple[int, ...], room: int, ends: Ends) -> bool:
    if one.kind in LONG:
        return kernels_of(shape, one.dims[0], -1, room, ends) is not None
    return _kernel(one, shape, -1, room, ends) is not None


def _kernel(
    one: KernelPass, shape: tuple[int, ...], sign: int, room: int, ends: Ends, alone: bool = False
) -> Kernel | None:
    """The kernel of a pass with these ends, or None.

    Several small planes are taken at once if the ends allow it, otherwise each `alone`.
    """
    flat, rows, sent = _is_flat(one, shape, ends), ends.rows, ends.sent
    kernel = one.kernel(shape, sign, room, alone or ends.came is not None, flat)
    if kernel is None or (one.kind == "lane" and not is_full(kernel)):
        return None
    if flat:
        behind = math.prod(shape[1:-1])
        rows = None if rows is None else Rows(rows.dim, rows.start * behind, rows.size * behind)
        sent = None if sent is None else (1, sent[1])
    source, target = _source(kernel, one, rows, ends.came), _target(kernel, one, sent)
    if source is not None and target is not None:
        return dataclasses.replace(kernel, source=source, target=target)
    return None if alone or one.kind != "plane" else _kernel(one, shape, sign, room, ends, alone=True)


def _source(kernel: Kernel, one: KernelPass, rows: Rows | None, came: Came | None) -> Blocked | Divided | None:
    blocks = kernel.source
    assert isinstance(blocks, Blocked)
    if rows is not None:
        size = blocks.sizes[rows.dim] or 1
        if rows.dim in one.dims or rows.start % size or (rows.size % size and rows.size != blocks.shape[rows.dim]):
            return None
        blocks = blocks.begun(rows.dim, rows.start)
    if came is None:
        return blocks
    line, divided = kernel.lines[0], Divided(blocks, came.source, came.parts, came.pieces)
    if one.kind == "lane" or came.source != one.dims[0] or came.dim != came.source:
        return None
    whole = divided.rows % (1 if line.untiled else SUBLANES) == 0
    return divided if whole and legible(line.radices[0], came.parts, came.pieces) else None


def _target(kernel: Kernel, one: KernelPass, sent: tuple[int, int] | None) -> Blocked | Divided | None:
    blocks = kernel.target
    if sent is None:
        return blocks
    assert isinstance(blocks, Blocked)
    dim, parts = sent
    divided, behind = Divided(blocks, dim, parts), len(blocks.shape) - 1 - dim
    tile = blocks.sizes[dim] or 1
    if divided.whole:
        tile = (LANES, SUBLANES)[behind] if behind < 2 else 1
        if one.kind == "sublane" and kernel.lines[0].registers % SUBLANES:
            return None  # its last pass does not store whole tiles
    return divided if divided.rows % tile == 0 else None


def _is_flat(one: KernelPass, shape: Sequence[int], ends: Ends) -> bool:
    """Whether array and ends are flat lines: whole leading rows, and parts of lines."""
    rows, sent = ends.rows is None or ends.rows.dim == 0, ends.sent is None or ends.sent[0] == len(shape) - 1
    return one.kind == "lane" and len(flattened(shape)) == 2 and rows and sent


def chunk_of(shape: Sequence[int], rows: Rows) -> tuple[int, ...]:
    return (*shape[: rows.dim], rows.size, *shape[rows.dim + 1 :])


def _came(given: Planes | Pieces) -> Came | None:
    if not isinstance(given, Pieces):
        return None
    return Came(given.source, given.dim, given.parts, len(given.arrays))


def _planes(given: Planes | Pieces, arrays: Sequence[Array]) -> Planes:
    if isinstance(given, Pieces):
        return Pieces(tuple(arrays), given.source, given.dim).joined()
    return tuple(arrays)
