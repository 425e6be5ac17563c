"""Transfers of tiles between files and devices, each of a part of a chunk, one chunk or a few.

    read:    each box of chunks in a tile   into a buffer, then into the blocks of the devices
    write:   each box of chunks in a tile   from the blocks that overlap it, through a buffer, to the file

Invariant: every chunk of a tile is read or written once, however many devices share the tile.
"""

import bisect
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from ..atomic import opened
from ..io.flat import FileNumbers, FlatSink
from ..io.grid import Box, block_index, boxes_of, shape_of, subboxes, within
from ..io.source import Sink, Source, has_names
from ..io.writing import shards_of
from ..layout.layout import Layout
from ..layout.padded_array import AnyStored, PaddedArray, padded, stored_of
from ..layout.storage import Sliceable, aligned
from ..numerics.split_complex import Shape
from ..plans.plan import Plan
from .tiles import given_dtype

Values = jax.Array | PaddedArray | np.ndarray  # of a tile


@dataclasses.dataclass(frozen=True)
class Scratch:
    """The store between two passes: a flat file with each common box of their tiles in one run."""

    file: FlatSink
    sides: tuple[Shape, ...]  # starts of both passes' tiles, and the size, along each dimension

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        """Parts of `at` of at most `most` bytes, each in one box of the file."""
        cuts = []
        for side, firsts in zip(at, self.sides, strict=True):
            inner = firsts[bisect.bisect_right(firsts, side.start) : bisect.bisect_left(firsts, side.stop)]
            cuts.append([slice(a, b) for a, b in itertools.pairwise((side.start, *inner, side.stop))])
        for box in itertools.product(*cuts):
            yield from subboxes(box, (1,) * len(box), self.file.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        with opened(self.file.path, os.O_WRONLY) as file:
            numbers, inside = self._box(file, at)
            numbers.write(inside, block)

    def __getitem__(self, at: Box) -> np.ndarray:
        out = np.empty(shape_of(at), self.file.dtype)
        with opened(self.file.path, os.O_RDONLY) as file:
            numbers, inside = self._box(file, at)
            numbers.read(inside, out)
        return out

    def flush(self) -> None:
        self.file.flush()

    def _box(self, file: int, at: Box) -> tuple[FileNumbers, Box]:
        """The box that contains a part, and the part's place in it."""
        indices = [bisect.bisect_right(firsts, side.start) - 1 for firsts, side in zip(self.sides, at, strict=True)]
        box = tuple(slice(firsts[i], firsts[i + 1]) for firsts, i in zip(self.sides, indices, strict=True))
        shape, sizes = shape_of(box), [firsts[-1] for firsts in self.sides]
        before = sum(math.prod((*shape[:dim], side.start, *sizes[dim + 1 :])) for dim, side in enumerate(box))
        numbers = FileNumbers(file, self.file.offset + before * self.file.dtype.itemsize, shape, self.file.dtype)
        return numbers, within(at, box)


def scratch_of(file: Sink, *layouts: Layout) -> Scratch:
    assert isinstance(file, FlatSink)
    shape = layouts[0].shape
    firsts = ({int(start) for layout in layouts for start in layout.starts(dim)} for dim in range(len(shape)))
    return Scratch(file, tuple((*sorted(at), n) for at, n in zip(firsts, shape, strict=True)))


def chunk_of(source: Source) -> Shape | None:
    """Chunk shape for reading a file; None if any part can be read alone."""
    return source.chunk if has_names(source.path) and math.prod(source.chunk) > 1 else None


def read_tile(array: Sliceable | Scratch, plan: Plan | None, at: Box, dtype: np.dtype, most: int) -> Values:
    """A tile on its plan's devices, or without a plan on the host; `dtype` is the file's, `most` is in bytes."""
    layout = Layout(shape_of(at), ((),) * len(at)) if plan is None else plan.in_layout
    given = dtype if plan is None else given_dtype(plan, dtype)
    blocks = {index: aligned(layout.block, given) for index in np.ndindex(*layout.parts)}
    parts = list(map(_Part, boxes_of(layout), blocks.values()))
    for part in parts:
        if part.block.shape != shape_of(part.box):
            part.block[...] = 0
    for box in _boxes(array, at, dtype.itemsize, most):
        values = array[box]
        for block, inside in _overlaps(parts, within(box, at)):
            block[...] = values[inside]
    if plan is None:
        return parts[0].block
    mesh = plan.mesh if isinstance(plan.mesh, Mesh) else None
    sharding = SingleDeviceSharding(jax.local_devices()[0]) if mesh is None else NamedSharding(mesh, layout.spec)

    def stored_block(part: Box | None) -> np.ndarray:
        return blocks[block_index(layout, part or ())]

    stored = jax.make_array_from_callback(layout.storage, sharding, stored_block)  # no copy
    return padded(stored.block_until_ready(), layout, mesh)


def write_tile(
    sink: Sink | Scratch, y: Values, plan: Plan | None, at: Box, most: int, report: Callable[[int], None]
) -> None:
    """`report` gets numbers of bytes."""
    if plan is None:
        parts = [_Part(within(at, at), np.asarray(y))]
    else:
        parts = [_Part(box, block) for box, block in shards_of(stored_of(cast(AnyStored, y)), plan.out_layout)]
    for box in sink.boxes(at, most):
        overlaps = list(_overlaps(parts, within(box, at)))
        if len(overlaps) == 1:
            values = overlaps[0][0]
        else:
            values = np.empty(shape_of(box), y.dtype)
            for block, inside in overlaps:
                values[inside] = block
        sink.write(box, values)
        report(values.nbytes)
    sink.flush()


class _Part(NamedTuple):
    """A box of a tile, and a block on the host that starts with it and ends in padding."""

    box: Box
    block: np.ndarray


def _boxes(array: Sliceable | Scratch, at: Box, itemsize: int, most: int) -> Iterator[Box]:
    if isinstance(array, Scratch):
        return array.boxes(at, most)
    chunk, fortran = (chunk_of(array), array.fortran) if isinstance(array, Source) else (None, False)
    return subboxes(at, chunk or (1,) * len(at), itemsize, most, fortran=fortran)


def _overlaps(parts: Sequence[_Part], box: Box) -> Iterator[tuple[np.ndarray, Box]]:
    for part in parts:
        both = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(part.box, box, strict=True))
        if all(side.start < side.stop for side in both):
            yield part.block[within(both, part.box)], within(both, box)
