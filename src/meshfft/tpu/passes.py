"""Passes of kernels over memory: lines with kernels, and the form that the first pass reads and the last one writes.

    planes or pieces -> kernels -> planes or (parts, planes, *sizes)

The last two dimensions share a pass if fast memory holds a plane.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from jax import Array

from ..collectives.all_to_all import PLANES, Came, Ports, Rows
from ..numerics.split_complex import Shape
from .lines import long_columns, short
from .lines.blocks import Blocked, Kernel, result_of
from .lines.long_columns import LongKernels
from .lines.memory import legible
from .lines.radices import LANES, SUBLANES, radices

ROOM = 100 * 2**20  # default bytes of fast memory


class KernelPass(NamedTuple):
    """A kernel of lines/short.py, or the two of lines/long_columns.py."""

    kinds: tuple[str, ...]
    lengths: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def kind(self) -> str:
        return self.kinds[0]


class ShortKernel(NamedTuple):
    kernel: Kernel
    flat: bool  # takes lines in one leading dimension
    result: Shape

    def run(self, arrays: Sequence[Array], interpret: bool) -> list[Array]:
        arrays = [x.reshape(-1, x.shape[-1]) for x in arrays] if self.flat else arrays
        return [x.reshape(self.result) for x in self.kernel.run(arrays, interpret)]


def supports(shape: Sequence[int], dim: int, room: int = ROOM) -> bool:
    """Whether lines have kernels: no prime above 7, multiples of 8 in the last two dimensions."""
    return shape[dim] == 1 or _of_lines(tuple(shape), dim, room) is not None


def passes(shape: Sequence[int], dims: Sequence[int], room: int = ROOM) -> list[KernelPass]:
    left, last = sorted(d for d in dims if shape[d] > 1), len(shape) - 1
    done = []
    if left[-2:] == [last - 1, last] and short.plane_kernel(shape, -1, room) is not None:
        done.append(KernelPass(("plane",), (shape[-2], shape[-1]), (last - 1, last)))
        left = left[:-2]
    for dim in reversed(left):
        one = _of_lines(tuple(shape), dim, room)
        assert one is not None, f"lines of {shape[dim]} along dimension {dim} have no kernel"
        done.append(one)
    return done


@functools.lru_cache(maxsize=1024)
def _of_lines(shape: Shape, dim: int, room: int) -> KernelPass | None:
    length, behind = shape[dim], len(shape) - 1 - dim
    tiled = behind < 2
    kinds: tuple[str, ...] = ()
    if (tiled and length % SUBLANES) or not radices(length // SUBLANES if tiled else length):
        return None
    if not behind:
        kinds = ("lane",) if short.lane_kernel(shape, -1, room) is not None else ()
    elif short.column_kernel(shape, dim, -1, room) is not None:
        kinds = ("sublane",) if tiled else ("first",)
    elif long_columns.kernels_of(shape, dim, -1, room) is not None:
        kinds = long_columns.kinds(tiled)
    return KernelPass(kinds, (length,), (dim,)) if kinds else None


def is_direct(shape: Shape, dims: Sequence[int], room: int, ports: Ports) -> bool:
    if not all(supports(shape, dim, room) for dim in dims):
        return False
    own = [(one, part) for one, part in passes_between(shape, dims, room, ports) if part != PLANES]
    return bool(own) and all(kernels_of(one, shape, -1, room, part) is not None for one, part in own)


def passes_between(shape: Shape, dims: Sequence[int], room: int, ports: Ports) -> list[tuple[KernelPass, Ports]]:
    """The first pass transforms the dimension received in pieces, the last pass the one that is sent in parts."""
    came, sent = (None if port is None else port[0] for port in (ports.came, ports.sent))
    order = sorted(passes(shape, dims, room), key=lambda one: (sent in one.dims) - (came in one.dims))
    first, last = ports._replace(sent=None), Ports(sent=ports.sent)
    if len(order) == 1:
        return [(order[0], ports)]
    return [(one, {0: first, len(order) - 1: last}.get(j, PLANES)) for j, one in enumerate(order)]


def run(
    arrays: Sequence[Array],
    shape: Shape,
    dims: Sequence[int],
    sign: int,
    room: int,
    ports: Ports = PLANES,
    interpret: bool = False,
) -> tuple[Array, ...]:
    for one, own in passes_between(shape, dims, room, ports):
        kernels = kernels_of(one, shape, sign, room, own)
        assert kernels is not None, f"lines of {one.lengths} have no such kernel in {room} bytes"
        arrays = kernels.run(arrays, interpret)
    return tuple(arrays)


def kernels_of(one: KernelPass, shape: Shape, sign: int, room: int, ports: Ports) -> ShortKernel | LongKernels | None:
    """The kernels of a pass, or None; several small planes at once if possible."""
    if len(one.kinds) == 2:
        return long_columns.kernels_of(shape, one.dims[0], sign, room, ports)
    rows, sent = ports.rows, ports.sent
    outside = (rows is None or rows.dim == 0) and (sent is None or sent[0] == len(shape) - 1)
    flat = outside and one.kind == "lane" and len(short.flattened(shape)) == 2
    if flat:
        behind = math.prod(shape[1:-1])
        rows = None if rows is None else Rows(rows.dim, rows.start * behind, rows.size * behind)
        sent = None if sent is None else (1, sent[1])
    for kernel in _candidates(one, shape, sign, room, flat, ports):
        source, target = _source(kernel, one, rows, ports.came), _target(kernel, one, sent)
        if source is not None and target is not None:
            own = dataclasses.replace(kernel, source=source, target=target)
            return ShortKernel(own, flat, result_of(shape, ports.sent))
    return None


def _candidates(one: KernelPass, shape: Shape, sign: int, room: int, flat: bool, ports: Ports) -> list[Kernel]:
    if one.kind == "plane":
        found = [short.plane_kernel(shape, sign, room, alone) for alone in (ports.came is not None, True)]
    elif one.kind == "lane":
        found = [short.lane_kernel(shape, sign, room, flat)]
    else:
        found = [short.column_kernel(shape, one.dims[0], sign, room)]
    any_rows = ports == PLANES or one.kind != "lane"
    return [kernel for kernel in found if kernel is not None and (any_rows or short.is_full(kernel))]


def _source(kernel: Kernel, one: KernelPass, rows: Rows | None, came: Came | None) -> Blocked | None:
    blocks = kernel.source
    if rows is not None:
        size = blocks.sizes[rows.dim] or 1
        if rows.dim in one.dims or rows.start % size or (rows.size % size and rows.size != blocks.shape[rows.dim]):
            return None
        blocks = blocks.begun(rows.dim, rows.start)
    if came is None:
        return blocks
    if one.kind == "lane" or came.source != one.dims[0] or came.dim != came.source:
        return None
    line, piece = kernel.lines[0], blocks.shape[came.dim] // came.parts // came.pieces
    whole = line.untiled or piece % SUBLANES == 0
    readable = whole and legible(line.radices[0], came.parts, came.pieces)
    return blocks.came(came.dim, came.parts, came.pieces, line) if readable else None


def _target(kernel: Kernel, one: KernelPass, sent: tuple[int, int] | None) -> Blocked | None:
    blocks = kernel.target
    if sent is None:
        return blocks
    dim, parts = sent
    tile, behind = blocks.sizes[dim] or 1, len(blocks.shape) - 1 - dim
    if blocks.holds(dim):
        tile = (LANES, SUBLANES)[behind] if behind < 2 else 1
        if one.kind == "sublane" and kernel.lines[0].registers % SUBLANES:
            return None  # its last pass does not store whole tiles
    return blocks.sent(dim, parts) if blocks.shape[dim] // parts % tile == 0 else None


def chunk_of(shape: Sequence[int], rows: Rows | None) -> tuple[int, ...]:
    return tuple(shape) if rows is None else (*shape[: rows.dim], rows.size, *shape[rows.dim + 1 :])


def one_piece(shape: Sequence[int], ports: Ports) -> Ports:
    """The ports that read one piece whole, if possible."""
    rows, came = ports.rows, ports.came
    if rows is None or came is None or came.dim != rows.dim or came.dim == came.source:
        return ports
    if shape[rows.dim] != came.pieces * rows.size:
        return ports
    return ports._replace(rows=rows._replace(start=0), came=came._replace(dim=came.source, pieces=1))
