"""What lies between two passes: one plain file in which each box that a piece of both have in common is one run.

    sides of a dimension = the starts of the pieces of both passes,   a box = one interval of every dimension

Invariant: a piece of either pass is made of whole boxes, so nothing is written or read twice, and no page or chunk has
to be read to be written.
"""

import bisect
import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import opened, synced
from ..files.stores import check_size
from ..formats.grid import Box, pieces, within
from ..formats.numpy_nifti import Numbers
from ..layout.layout import Layout


@dataclasses.dataclass(frozen=True)
class Blocks:
    """An array in boxes.

    Attributes:
        path: the file.
        sides: where the boxes begin along each dimension, and its size.
        dtype: of the numbers.
    """

    path: Path
    sides: tuple[tuple[int, ...], ...]
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(ends[-1] for ends in self.sides)

    def create(self) -> "Blocks":
        """Makes the file of its full size: its room on the disk is taken now."""
        with open(self.path, "xb") as file:
            file.truncate(math.prod(self.shape) * self.dtype.itemsize)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, math.prod(self.shape) * self.dtype.itemsize)
        return self

    def check_whole(self) -> None:
        """Raises OSError where the file was cut short."""
        check_size(self.path, math.prod(self.shape) * self.dtype.itemsize)

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        """The parts of a box, none in two boxes of the file, and of at most `most` bytes."""
        for whole in self._within(at):
            yield from pieces(whole, (1,) * len(whole), self.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        """Puts a block in its place."""
        with opened(self.path, os.O_WRONLY) as file:
            for part in self._within(at):
                numbers, inner = self._box(file, part)
                numbers.write(inner, block[within(part, [s.start for s in at])])

    def __getitem__(self, at: Box) -> np.ndarray:
        """Reads the positions of a box."""
        out = np.empty([s.stop - s.start for s in at], self.dtype)
        with opened(self.path, os.O_RDONLY) as file:
            for part in self._within(at):
                numbers, inner = self._box(file, part)
                numbers.read(inner, out[within(part, [s.start for s in at])])
        return out

    def flush(self) -> None:
        """Returns when all that this process wrote would outlast a loss of power."""
        synced(self.path)
        synced(self.path.parent)

    def _within(self, at: Box) -> Iterator[Box]:
        """The parts of a box that lie in one box of the file each."""
        cuts = []
        for side, ends in zip(at, self.sides, strict=True):
            inner = ends[bisect.bisect_right(ends, side.start) : bisect.bisect_left(ends, side.stop)]
            cuts.append([slice(a, b) for a, b in itertools.pairwise((side.start, *inner, side.stop))])
        return itertools.product(*cuts)

    def _box(self, file: int, part: Box) -> tuple[Numbers, Box]:
        """The box of the file that holds a part, as an array of its own, and where in it the part lies."""
        places = [bisect.bisect_right(ends, side.start) - 1 for side, ends in zip(part, self.sides, strict=True)]
        starts = [ends[j] for ends, j in zip(self.sides, places, strict=True)]
        shape = tuple(ends[j + 1] - ends[j] for ends, j in zip(self.sides, places, strict=True))
        before = sum(
            math.prod(shape[:dim]) * start * math.prod(self.shape[dim + 1 :]) for dim, start in enumerate(starts)
        )
        return Numbers(file, before * self.dtype.itemsize, shape, self.dtype), within(part, starts)


def blocks_of(path: Path, layouts: Sequence[Layout], dtype: np.dtype[Any]) -> Blocks:
    """The file of an array that is written in pieces of one layout and read in those of another."""
    shape = layouts[0].shape
    starts = ({int(start) for layout in layouts for start in layout.starts(dim)} for dim in range(len(shape)))
    return Blocks(path, tuple((*sorted(at), n) for at, n in zip(starts, shape, strict=True)), np.dtype(dtype))
