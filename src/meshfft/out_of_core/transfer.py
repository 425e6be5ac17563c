"""Carrying pieces between files and devices, a transfer at a time: part of a chunk, a chunk, or a few whole ones.

    read:    for each box of whole chunks of a piece   into a buffer, from there into the blocks of the devices
    write:   for each box of whole chunks of a piece   from the blocks that have some of it, by a buffer, to the file

Invariant: every chunk that a piece has is read once or written once, however many devices share the piece; and beside
the piece there is one buffer of a transfer.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from ..files.stores import Store
from ..formats.grid import Box, pieces, within
from ..formats.source import Source, aligned
from ..layout.layout import Layout
from ..layout.padded_array import padded, stored_of
from ..layout.storage import Sliceable
from ..plans.plan import Plan
from .budget import given_dtype
from .scratch import Blocks

PLAIN = (".npy", ".nii", ".gz")  # files of which any part can be read by itself


class Part(NamedTuple):
    """A block of a piece on the host, and where its positions lie in the whole array."""

    box: Box
    block: np.ndarray


def chunk_of(source: Source) -> tuple[int, ...] | None:
    """The chunks that a file can be read in; None where any part of it can be read by itself."""
    return None if source.path.suffix.lower() in PLAIN or math.prod(source.chunk) == 1 else source.chunk


def read_piece(array: Sliceable | Blocks, plan: Plan, at: Box, dtype: np.dtype, most: int) -> Any:
    """A piece on the devices of its plan; `at` is where it lies in the array, `dtype` what is stored there."""
    given, layout = given_dtype(plan, dtype), plan.in_layout
    blocks = {index: _room(layout, index, given) for index in np.ndindex(*layout.parts)}
    _fill(array, [Part(_box_of(layout, index, at), block) for index, block in blocks.items()], at, dtype, most)
    if not isinstance(plan.mesh, Mesh):
        return _put(blocks.popitem()[1], jax.local_devices()[0])
    sharding = NamedSharding(plan.mesh, layout.spec)
    slices = sharding.addressable_devices_indices_map(layout.storage)
    stored = [_put(blocks[_number(layout, part or ())], device) for device, part in slices.items()]
    return padded(jax.make_array_from_single_device_arrays(layout.storage, sharding, stored), layout, plan.mesh)


def read_plain(array: Sliceable | Blocks, at: Box, dtype: np.dtype, most: int) -> np.ndarray:
    """A piece on the host, as it is stored."""
    room = np.empty([s.stop - s.start for s in at], dtype)
    _fill(array, [Part(at, room)], at, dtype, most)
    return room


def write_piece(
    store: Store,
    y: Array | np.ndarray,
    layout: Layout | None,
    at: Box,
    most: int,
    report: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Writes a piece in its place, and returns when it is on the disk.

    Args:
        store: where.
        y: the piece, on devices in a layout, or plain.
        layout: that of the devices.
        at: where it lies in the array.
        most: bytes that are written at a time, or one file.
        report: called with the bytes written.
    """
    parts = [Part(at, np.asarray(y))] if layout is None else _parts(y, layout, at)
    for box in store.boxes(at, most):
        store.write(box, _gathered(parts, box, y.dtype))
        report(math.prod(s.stop - s.start for s in box) * y.dtype.itemsize)
    store.flush()


def _parts(y: Any, layout: Layout, at: Box) -> list[Part]:
    """The blocks of all devices without their padding, once where several devices hold the same."""
    parts = []
    for shard in (shard for shard in stored_of(y).addressable_shards if shard.replica_id == 0):
        box = _box_of(layout, _number(layout, shard.index), at)
        parts.append(Part(box, np.asarray(shard.data)[tuple(slice(s.stop - s.start) for s in box)]))
    return parts


def _fill(array: Any, parts: Sequence[Part], at: Box, dtype: np.dtype, most: int) -> None:
    """Reads a box, and puts what it has into all blocks."""
    for box in _boxes(array, at, dtype.itemsize, most):
        found = array[box]
        for part, inner in _meeting(parts, box):
            part.block[within(inner, [s.start for s in part.box])] = found[within(inner, [s.start for s in box])]


def _gathered(parts: Sequence[Part], box: Box, dtype: Any) -> np.ndarray:
    """The numbers of a box, from all blocks that have some."""
    meeting = list(_meeting(parts, box))
    if len(meeting) == 1:
        part, inner = meeting[0]
        return part.block[within(inner, [s.start for s in part.box])]
    found = np.empty([s.stop - s.start for s in box], dtype)
    for part, inner in meeting:
        found[within(inner, [s.start for s in box])] = part.block[within(inner, [s.start for s in part.box])]
    return found


def _meeting(parts: Sequence[Part], box: Box) -> Iterator[tuple[Part, Box]]:
    """The parts that have positions of a box, with what both have."""
    for part in parts:
        inner = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(part.box, box, strict=True))
        if all(side.start < side.stop for side in inner):
            yield part, inner


def _boxes(array: Any, at: Box, itemsize: int, most: int) -> Iterator[Box]:
    """What is read at a time."""
    if isinstance(array, Blocks):
        return array.boxes(at, most)
    chunk, fortran = (chunk_of(array), array.fortran) if isinstance(array, Source) else (None, False)
    return pieces(at, chunk or (1,) * len(at), itemsize, most, fortran=fortran)


def _room(layout: Layout, index: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A block to be filled, zero where it is padding."""
    room = aligned(layout.block, dtype)
    if tuple(int(layout.counts(dim)[i]) for dim, i in enumerate(index)) != layout.block:
        room[...] = 0
    return room


def _box_of(layout: Layout, index: tuple[int, ...], at: Box) -> Box:
    """Where the block with these indices lies, in a piece that lies at `at`."""
    sides = []
    for dim, i in enumerate(index):
        start = at[dim].start + int(layout.starts(dim)[i])
        sides.append(slice(start, start + int(layout.counts(dim)[i])))
    return tuple(sides)


def _number(layout: Layout, index: tuple[slice, ...]) -> tuple[int, ...]:
    """Which block of the stored array lies at an index."""
    return tuple((part.start or 0) // size for part, size in zip(index, layout.block, strict=True))


def _put(block: np.ndarray, device: Any) -> Array:
    """A block on its device; where that is the host, it is not copied."""
    return jax.make_array_from_callback(block.shape, SingleDeviceSharding(device), lambda _: block).block_until_ready()
