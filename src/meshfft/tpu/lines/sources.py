"""What kernels read whose rows do not lie one after another: pieces, and lines in rows that stand apart."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from .butterflies import Pair
from .radices import LANES, SUBLANES

Ref = Any  # memory that a kernel reads and writes; Pallas names no type for it
Planes = tuple[Ref, Ref]  # of split complex numbers
Where = Callable[[int], tuple[Any, int, Any]]  # part, piece and row that a butterfly reads for each a < radix


@dataclasses.dataclass(frozen=True)
class Arrived:
    """A block in pieces as exchanges left it, each (parts, planes, rows, ..); of tiled lines rows count in registers.

    Row n = (part P + piece) m + j, of P pieces of m rows from each part. Each piece is an array of its own, so which
    one a row is in has to be known when the kernel is traced; the part and j need not. The first radix r of N = r L
    reads rows a L + b, a < r: see `legible`.
    """

    refs: tuple[Ref, ...]
    rows: int  # of a piece

    @property
    def _many(self) -> int:
        return len(self.refs) * self.rows

    def each(self, radix: int, left: int, body: Callable[[Any, Where], None]) -> None:
        """Calls body(b, where) for every b < left, piece by piece."""
        parts = int(self.refs[0].shape[0])
        span, inside = (parts // radix, self._many) if parts % radix == 0 else (1, left)
        size = min(self.rows, inside)
        for begin in range(0, inside, size):

            def of_part(low: Any, begin: int = begin) -> None:
                def one(j: Any) -> None:
                    body(low * self._many + begin + j, lambda a: self._where(a * left + begin, low, j))

                loop(size, one)

            loop(span, of_part)

    def _where(self, row: int, low: Any, j: Any) -> tuple[Any, int, Any]:
        part, rest = divmod(row, self._many)
        return part + low, rest // self.rows, rest % self.rows + j

    def load(self, where: tuple[Any, int, Any], *behind: Any) -> Pair:
        """The register of a row; `behind` says where in it, or for tiled lines which columns."""
        part, piece, row = where
        re, im = (self.refs[piece][part, plane, row, *behind] for plane in (0, 1))
        return re, im


@dataclasses.dataclass(frozen=True)
class Apart:
    """Eight lines of rows, each beginning `rows` after the one before: a register has a row of every line."""

    refs: Planes  # scratch memory
    rows: int

    def load(self, row: Any, tile: int) -> Pair:
        """The register of a row."""
        at = pl.ds(row, SUBLANES, stride=self.rows)
        re, im = (register(ref, at, tile)[...] for ref in self.refs)
        return re, im


@dataclasses.dataclass(frozen=True)
class Together:
    """Untiled lines of both planes in one block (N, planes, rows, columns)."""

    ref: Ref

    def load(self, row: Any, tile: int) -> Pair:
        """The register of a row."""
        columns = start(tile, LANES)
        return self.ref[row, 0, :, columns], self.ref[row, 1, :, columns]


@dataclasses.dataclass(frozen=True)
class Beside:
    """A block of planes (planes, rows, columns) as one of rows, the planes beside each other."""

    ref: Ref

    @property
    def shape(self) -> tuple[int, int]:
        """Of all of them."""
        planes, rows, columns = self.ref.shape
        return rows, planes * columns

    def register(self, rows: Any, tile: Any, wide: int) -> Ref:
        """Some rows of 128 columns, or less, of one of them."""
        tiles = self.ref.shape[2] // LANES
        return self.ref.at[div(tile, tiles), rows, pl.ds(start(rem(tile, tiles), LANES).start, wide)]


def legible(radix: int, parts: int, pieces: int) -> bool:
    """True where a first radix leaves known from which piece each row comes."""
    inside, rest = divmod(radix, parts)
    return parts % radix == 0 or (rest == 0 and (pieces % inside == 0 or inside % pieces == 0))


def register(ref: Ref, rows: Any, tile: Any, wide: int = LANES) -> Ref:
    """Some rows of 128 columns, or less; of scratch memory (tiles, rows, 128), of a block (rows, columns)."""
    if isinstance(ref, Beside):
        return ref.register(rows, tile, wide)
    if len(ref.shape) == 3:
        return ref.at[tile].at[rows, pl.ds(0, wide)]
    return ref.at[rows, pl.ds(start(tile, LANES).start, wide)]


def start(number: Any, size: int) -> Any:
    """A slice of `size` that begins at a multiple of it."""
    return pl.ds(number * size if isinstance(number, int) else pl.multiple_of(number * size, size), size)


def loop(many: int, body: Callable[[Any], None]) -> None:
    """Calls body(i) for every i < many."""
    if many == 1:
        body(0)
    else:
        lax.fori_loop(np.int32(0), np.int32(many), lambda i, _: body(i), None)


def div(number: Any, by: int) -> Any:
    """The whole number of times, of a number that is not negative."""
    if isinstance(number, int):
        return number // by
    return number >> (by.bit_length() - 1) if by & (by - 1) == 0 else lax.div(number, np.int32(by))


def rem(number: Any, by: int) -> Any:
    """What is left over."""
    if isinstance(number, int):
        return number % by
    return number & (by - 1) if by & (by - 1) == 0 else lax.rem(number, np.int32(by))
