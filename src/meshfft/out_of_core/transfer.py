"""Carrying tiles between files and devices, a transfer at a time: part of a chunk, a chunk, or a few of them.

    read:    for each box of chunks that a tile has   into a buffer, from there into the blocks of the devices
    write:   for each box of chunks that a tile has   from the blocks that have some of it, by a buffer, to the file

Invariant: every chunk that a tile has is read once or written once, however many devices share the tile; and beside the
tile there is one buffer of a transfer.
"""

import bisect
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from ..atomic import opened
from ..io.flat import FlatSink, Numbers
from ..io.grid import Box, subboxes, within
from ..io.source import Sink, Source, aligned
from ..layout.layout import Layout
from ..layout.padded_array import PaddedArray, padded, stored_of
from ..layout.storage import Sliceable
from ..plans.plan import Plan
from .partition import Shape, boxes_of, given_dtype

PLAIN = (".npy", ".nii", ".gz")  # files of which any part can be read by itself
Values = jax.Array | PaddedArray | np.ndarray  # of a tile, on devices or on the host


@dataclasses.dataclass(frozen=True)
class Scratch:
    """The store between two passes: a plain file, in which each box that tiles of both have in common is one run.

    Attributes:
        file: the numbers of all boxes, one box after the other.
        sides: the starts of the tiles of both passes along each dimension, and its size; a box is between two of each.
    """

    file: FlatSink
    sides: tuple[Shape, ...]

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        """What is read or written at a time: parts of `at` of at most `most` bytes, each in one box of the file."""
        cuts = []
        for side, starts in zip(at, self.sides, strict=True):
            inner = starts[bisect.bisect_right(starts, side.start) : bisect.bisect_left(starts, side.stop)]
            cuts.append([slice(a, b) for a, b in itertools.pairwise((side.start, *inner, side.stop))])
        for box in itertools.product(*cuts):
            yield from subboxes(box, (1,) * len(box), self.file.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        with opened(self.file.path, os.O_WRONLY) as file:
            numbers, inside = self._box(file, at)
            numbers.write(inside, block)

    def __getitem__(self, at: Box) -> np.ndarray:
        out = np.empty(_shape(at), self.file.dtype)
        with opened(self.file.path, os.O_RDONLY) as file:
            numbers, inside = self._box(file, at)
            numbers.read(inside, out)
        return out

    def flush(self) -> None:
        self.file.flush()

    def _box(self, file: int, at: Box) -> tuple[Numbers, Box]:
        """The box that holds a part, as an array of its own, and where in it the part lies."""
        indices = [bisect.bisect_right(starts, side.start) - 1 for starts, side in zip(self.sides, at, strict=True)]
        ends = [(starts[i], starts[i + 1]) for starts, i in zip(self.sides, indices, strict=True)]
        shape = tuple(end - start for start, end in ends)
        sizes = [starts[-1] for starts in self.sides]
        before = sum(math.prod((*shape[:dim], start, *sizes[dim + 1 :])) for dim, (start, _) in enumerate(ends))
        numbers = Numbers(file, self.file.offset + before * self.file.dtype.itemsize, shape, self.file.dtype)
        return numbers, within(at, [start for start, _ in ends])


def scratch_of(file: Sink, *layouts: Layout) -> Scratch:
    """The store of an array that is written in tiles of one layout and read in those of another."""
    assert isinstance(file, FlatSink)
    shape = layouts[0].shape
    starts = ({int(start) for layout in layouts for start in layout.starts(dim)} for dim in range(len(shape)))
    return Scratch(file, tuple((*sorted(at), n) for at, n in zip(starts, shape, strict=True)))


def chunk_of(source: Source) -> Shape | None:
    """The chunks that a file can be read in; None where any part of it can be read by itself."""
    return None if source.path.suffix.lower() in PLAIN or math.prod(source.chunk) == 1 else source.chunk


def read_tile(array: Sliceable | Scratch, plan: Plan | None, at: Box, dtype: np.dtype, most: int) -> Values:
    """A tile on the devices of its plan, or without one on the host; `dtype` is what is stored, `most` are bytes."""
    layout = Layout(_shape(at), ((),) * len(at)) if plan is None else plan.in_layout
    given = dtype if plan is None else given_dtype(plan, dtype)
    blocks = {index: aligned(layout.block, given) for index in np.ndindex(*layout.parts)}
    parts = list(map(_Part, boxes_of(layout), blocks.values()))
    for part in parts:
        if part.block.shape != _shape(part.box):
            part.block[...] = 0  # padding
    for box in _boxes(array, at, dtype.itemsize, most):
        values = array[box]
        for block, inside in _meeting(parts, within(box, _start(at))):
            block[...] = values[inside]
    if plan is None:
        return parts[0].block
    mesh = plan.mesh if isinstance(plan.mesh, Mesh) else None
    sharding = SingleDeviceSharding(jax.local_devices()[0]) if mesh is None else NamedSharding(mesh, layout.spec)
    # where devices are the host, this copies nothing
    stored = jax.make_array_from_callback(layout.storage, sharding, lambda part: blocks[_index(layout, part or ())])
    return padded(stored.block_until_ready(), layout, mesh)


def write_tile(
    store: Sink | Scratch, y: Values, plan: Plan | None, at: Box, most: int, report: Callable[[int], None]
) -> None:
    """Writes a tile as `read_tile` gives it, and returns when it is on the disk; `report` is called with bytes."""
    if plan is None:
        parts = [_Part(within(at, _start(at)), np.asarray(y))]
    else:
        layout = plan.out_layout
        boxes = dict(zip(np.ndindex(*layout.parts), boxes_of(layout), strict=True))
        shards = (shard for shard in stored_of(y).addressable_shards if shard.replica_id == 0)
        parts = [_Part(boxes[_index(layout, shard.index)], np.asarray(shard.data)) for shard in shards]
    for box in store.boxes(at, most):
        values = _gathered(parts, within(box, _start(at)), y.dtype)
        store.write(box, values)
        report(values.nbytes)
    store.flush()


class _Part(NamedTuple):
    """A block of a tile on the host, and which box of the tile it is; what exceeds that is padding."""

    box: Box
    block: np.ndarray


def _boxes(array: Sliceable | Scratch, at: Box, itemsize: int, most: int) -> Iterator[Box]:
    """What is read at a time."""
    if isinstance(array, Scratch):
        return array.boxes(at, most)
    chunk, fortran = (chunk_of(array), array.fortran) if isinstance(array, Source) else (None, False)
    return subboxes(at, chunk or (1,) * len(at), itemsize, most, fortran=fortran)


def _gathered(parts: Sequence[_Part], box: Box, dtype: np.dtype) -> np.ndarray:
    """The numbers of a box, from all blocks that have some; those of a single one are not copied."""
    meeting = list(_meeting(parts, box))
    if len(meeting) == 1:
        return meeting[0][0]
    values = np.empty(_shape(box), dtype)
    for block, inside in meeting:
        values[inside] = block
    return values


def _meeting(parts: Sequence[_Part], box: Box) -> Iterator[tuple[np.ndarray, Box]]:
    """Of every block that has some of a box that, and where in the box it lies."""
    for part in parts:
        both = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(part.box, box, strict=True))
        if all(side.start < side.stop for side in both):
            yield part.block[within(both, _start(part.box))], within(both, _start(box))


def _index(layout: Layout, at: Box) -> Shape:
    """The index of the block that a part of the stored array is."""
    return tuple((side.start or 0) // size for side, size in zip(at, layout.block, strict=True))


def _shape(box: Box) -> Shape:
    return tuple(side.stop - side.start for side in box)


def _start(box: Box) -> Shape:
    return tuple(side.start for side in box)
