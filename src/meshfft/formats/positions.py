"""Numbers that lie in a file one behind the other, in C order: boxes of them are read by position.

A read spans, for one position of the dimensions before `dim`, the box from its first number to its last, with the gaps
between. Of all `dim` the cheapest is taken:

    bytes of all reads + READ_BYTES a read

so that a box of long runs is read without its gaps, and one of single numbers not number by number. Invariant: nothing
is taken for numbers that the file does not have.
"""

import itertools
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import check
from .grid import PIECE_BYTES, Box

READ_BYTES = 4096  # a page: what a disk reads at least, and little beside what it costs to ask for a run


class Numbers(NamedTuple):
    """An array in an open file, from `offset` on."""

    file: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, box: Box, out: np.ndarray) -> None:
        """Reads the positions of a box into an array of its shape, converted to its dtype.

        Raises:
            ValueError: the file ends before.
        """
        sides, size = [s.stop - s.start for s in box], self.dtype.itemsize
        if 0 in sides:
            return
        strides = [math.prod(self.shape[dim + 1 :]) for dim in range(len(box))]
        begin = sum(s.start * stride for s, stride in zip(box, strides, strict=True))
        dim, span = _cheapest(sides, strides, size)
        room = np.empty(span, self.dtype)
        part = np.lib.stride_tricks.as_strided(room, sides[dim:], [size * stride for stride in strides[dim:]])
        plain = span == part.size and out.dtype == self.dtype
        for place in itertools.product(*map(range, sides[:dim])):
            at = begin + sum(p * stride for p, stride in zip(place, strides, strict=False))
            index: Any = (*place, ...)
            run = out[index]
            direct = plain and run.flags.c_contiguous
            self._fill(run if direct else room, self.offset + size * at)
            if not direct:
                run[...] = part

    def _fill(self, room: np.ndarray, at: int) -> None:
        """Reads as many bytes as an array takes."""
        plain: Any = room.reshape(-1).view(np.uint8)
        rest = memoryview(plain)
        while rest:
            got = os.preadv(self.file, [rest], at)
            check(got > 0, f"it ends after {at} bytes")
            rest, at = rest[got:], at + got


def _cheapest(sides: Sequence[int], strides: Sequence[int], size: int) -> tuple[int, int]:
    """The dimension from which on a read spans the box, and how many numbers it then reads."""
    dims = range(len(sides) + 1)
    spans = [sum((n - 1) * stride for n, stride in zip(sides[d:], strides[d:], strict=True)) + 1 for d in dims]
    costs = [math.prod(sides[:d]) * (spans[d] * size + READ_BYTES) for d in dims]
    fits = [d for d in dims if spans[d] * size <= PIECE_BYTES] or [len(sides)]
    dim = min(fits, key=costs.__getitem__)
    return dim, spans[dim]
