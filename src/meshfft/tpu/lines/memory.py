"""A TPU's fast memory in kernels: registers of 8 rows and 128 columns, and views of blocks in parts or pieces.

A view is a plane of a block, (rows, columns) or (positions, rows, columns), that knows where each row is stored.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from .radices import LANES, SUBLANES, Pair

Ref = Any  # memory or a view of it; Pallas names no type for it
Index = Any  # an integer, concrete or traced
LineSpan = slice | pl.Slice
Indices = tuple[Index, ...]  # of positions and spans
Refs = tuple[Ref, Ref]  # of split complex numbers
AnyRefs = Sequence[Ref]
PieceRow = Callable[[int], tuple[Index, int, Index]]  # part, piece and row that a butterfly reads for each a < radix


def register(ref: Ref, rows: LineSpan, tile: Index, wide: int = LANES) -> Ref:
    """Rows of up to 128 columns, of scratch memory (tiles, rows, 128) or a block."""
    if isinstance(ref, Beside):
        plane, column = div(tile, ref.tiles), rem(tile, ref.tiles)
        return _at(ref.ref, plane, rows, pl.ds(start(column, LANES).start, wide))
    if not isinstance(ref, Parted) and len(ref.shape) == 3:
        return ref.at[tile].at[rows, pl.ds(0, wide)]
    return _at(ref, rows, pl.ds(start(tile, LANES).start, wide))


def load(refs: Refs, rows: LineSpan, tile: Index) -> Pair:
    re, im = (register(ref, rows, tile)[...] for ref in refs)
    return re, im


def store(refs: Refs, rows: LineSpan, tile: Index, value: Pair) -> None:
    for ref, part in zip(refs, value, strict=True):
        register(ref, rows, tile)[...] = jnp.zeros((SUBLANES, LANES), jnp.float32) if part is None else part


def _at(ref: Ref, *index: Index) -> Ref:
    return dataclasses.replace(ref, some=index) if isinstance(ref, Parted) else ref.at[index]


@dataclasses.dataclass(frozen=True)
class Beside:
    """A block (planes, rows, columns) with its planes side by side."""

    ref: Ref

    @property
    def tiles(self) -> int:
        return int(self.ref.shape[2]) // LANES


@dataclasses.dataclass(frozen=True)
class PlaneView:
    ref: Ref
    plane: int

    def __getitem__(self, index: Indices) -> Any:
        return self.ref[index[0], self.plane, *index[1:]]

    def __setitem__(self, index: Indices, value: Any) -> None:
        self.ref[index[0], self.plane, *index[1:]] = value


@dataclasses.dataclass(frozen=True)
class Apart:
    """Eight lines at intervals of `rows` in scratch memory; a register has one row of each."""

    ref: Ref
    rows: int

    def __getitem__(self, index: Indices) -> Any:
        row, _, columns = index
        return register(self.ref, pl.ds(row, SUBLANES, stride=self.rows), columns.start // LANES)[...]


@dataclasses.dataclass(frozen=True)
class Parted:
    """A plane of a block (*lead, parts, planes, *sizes) with dimension `dim` of the sizes joined.

    Rows that are accessed together are within a part, or their start is known at trace time.
    """

    ref: Ref
    plane: int
    dim: int
    lead: int = 0
    some: Indices = ()  # an index chosen before

    @property
    def shape(self) -> tuple[int, ...]:
        parts, _, *sizes = self.ref.shape
        sizes[self.dim] *= parts
        return tuple(sizes)

    def __getitem__(self, index: Indices) -> Any:
        index = self.some or index
        found = [self.ref[place] for place in self._places(index)]
        return found[0] if len(found) == 1 else jnp.concatenate(found, self._axis(index))

    def __setitem__(self, index: Indices, value: Any) -> None:
        index = self.some or index
        places, axis = self._places(index), self._axis(index)
        size = value.shape[axis] // len(places) if len(places) > 1 else 0
        for n, place in enumerate(places):
            self.ref[place] = lax.slice_in_dim(value, n * size, (n + 1) * size, axis=axis) if size else value

    def _axis(self, index: Indices) -> int:
        return sum(hasattr(at, "start") for at in index[: self.lead + self.dim])

    def _places(self, index: Indices) -> list[Indices]:
        at, rows = index[self.lead + self.dim], self.ref.shape[self.lead + 2 + self.dim]
        if not hasattr(at, "start"):
            return [self._place(index, div(at, rows), rem(at, rows))]
        whole = isinstance(at, slice)
        begin, size = (0, self.ref.shape[self.lead] * rows) if whole else (at.start, at.size)
        if not isinstance(begin, int):
            tile = LANES if self.lead + self.dim == len(index) - 1 else SUBLANES
            part, within = div(begin, rows), rem(begin, rows)
            return [self._place(index, part, pl.ds(within if rows % tile else pl.multiple_of(within, tile), size))]
        step = size if begin // rows == (begin + size - 1) // rows else math.gcd(rows, size, begin or rows)
        return [self._place(index, n // rows, pl.ds(n % rows, step)) for n in range(begin, begin + size, step)]

    def _place(self, index: Indices, part: Index, within: Index) -> Indices:
        at = self.lead + self.dim
        return (*index[: self.lead], part, self.plane, *index[self.lead : at], within, *index[at + 1 :])


@dataclasses.dataclass(frozen=True)
class Arrived:
    """A block in pieces from exchanges, each (parts, planes, rows, ..); tiled lines count rows in registers.

    Row n = (part P + piece) m + j, for P pieces of m rows from each part. A piece is a separate array, so the piece of
    a row must be known at trace time (see `legible`). The first radix r of N = r L reads rows a L + b, a < r.
    """

    refs: Sequence[Ref]
    rows: int

    def each(self, radix: int, left: int, body: Callable[[Index, PieceRow], None]) -> None:
        parts, many = int(self.refs[0].shape[0]), len(self.refs) * self.rows
        span, inside = (parts // radix, many) if parts % radix == 0 else (1, left)
        size = min(self.rows, inside)

        def where(row: int, low: Index, j: Index) -> tuple[Index, int, Index]:
            part, rest = divmod(row, many)
            return part + low, rest // self.rows, rest % self.rows + j

        def of_part(low: Index, begin: int) -> None:
            loop(size, lambda j: body(low * many + begin + j, lambda a: where(a * left + begin, low, j)))

        for begin in range(0, inside, size):
            loop(span, functools.partial(of_part, begin=begin))

    def load(self, where: tuple[Index, int, Index], *behind: Index) -> Pair:
        part, piece, row = where
        re, im = (self.refs[piece][part, plane, row, *behind] for plane in (0, 1))
        return re, im


def legible(radix: int, parts: int, pieces: int) -> bool:
    """Whether the piece of each row is known at trace time for a first radix."""
    inside, rest = divmod(radix, parts)
    return parts % radix == 0 or (rest == 0 and (pieces % inside == 0 or inside % pieces == 0))


def start(number: Index, size: int) -> LineSpan:
    return pl.ds(number * size if isinstance(number, int) else pl.multiple_of(number * size, size), size)


def loop(many: int, body: Callable[[Index], None]) -> None:
    if many == 1:
        body(0)
    else:
        lax.fori_loop(np.int32(0), np.int32(many), lambda i, _: body(i), None)


def div(number: Index, by: int) -> Index:
    if isinstance(number, int):
        return number // by
    return number >> (by.bit_length() - 1) if by & (by - 1) == 0 else lax.div(number, np.int32(by))


def rem(number: Index, by: int) -> Index:
    if isinstance(number, int):
        return number % by
    return number & (by - 1) if by & (by - 1) == 0 else lax.rem(number, np.int32(by))
