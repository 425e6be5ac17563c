"""What a kernel reads and writes where an all-to-all is beside it: parts of a dimension, (parts, planes, *sizes)."""

import math
from typing import Any

from jax import lax
from jax.experimental import pallas as pl

from .calls import Divided
from .radices import LANES, SUBLANES
from .sources import div, rem

Ref = Any  # memory that a kernel reads and writes; Pallas names no type for it


def planes_of(divided: Divided, ref: Ref) -> tuple[Ref, Ref]:
    """The two planes in a block of an array in parts."""
    if not divided.whole:
        return ref.at[0], ref.at[1]
    dim = sum(size is not None for size in divided.side.sizes[: divided.dim])
    return Parted(ref, 0, dim), Parted(ref, 1, dim)


class Parted:
    """A plane in a block of parts of one dimension."""

    def __init__(self, ref: Ref, plane: int, dim: int, index: tuple[Any, ...] = ()) -> None:
        self.ref, self.plane, self.dim, self.index = ref, plane, dim, index

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the plane."""
        parts, _, *sizes = self.ref.shape
        sizes[self.dim] *= parts
        return tuple(sizes)

    @property
    def at(self) -> "_At":
        """For some of it, as of memory that is not divided."""
        return _At(self)

    def __getitem__(self, index: Any) -> Any:
        return self.ref[self._place(self.index or index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        index = self.index or index
        rows, axis = self.ref.shape[2 + self.dim], sum(map(_sized, index[: self.dim]))
        begin, size = _begin(index[self.dim]), value.shape[axis] if _sized(index[self.dim]) else 1
        if not isinstance(begin, int) or begin // rows == (begin + size - 1) // rows:
            self.ref[self._place(index)] = value
            return
        for first in range(begin, begin + size, step := math.gcd(rows, size, begin or rows)):
            part = (*index[: self.dim], pl.ds(first, step), *index[self.dim + 1 :])
            self.ref[self._place(part)] = lax.slice_in_dim(value, first - begin, first - begin + step, axis=axis)

    def _place(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """Which part, and where in it."""
        rows, begin = self.ref.shape[2 + self.dim], _begin(index[self.dim])
        part, within = div(begin, rows), rem(begin, rows)
        if _sized(index[self.dim]):
            tile = LANES if self.dim == len(index) - 1 else SUBLANES
            within = within if isinstance(within, int) or rows % tile else pl.multiple_of(within, tile)
            within = pl.ds(within, index[self.dim].size)
        return (part, self.plane, *index[: self.dim], within, *index[self.dim + 1 :])


class _At:
    def __init__(self, plane: Parted) -> None:
        self.plane = plane

    def __getitem__(self, index: tuple[Any, ...]) -> Parted:
        return Parted(self.plane.ref, self.plane.plane, self.plane.dim, index)


def _begin(index: Any) -> Any:
    return index.start if _sized(index) else index


def _sized(index: Any) -> bool:
    return hasattr(index, "start")
