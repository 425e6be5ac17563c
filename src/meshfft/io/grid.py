"""The grid of a stored array: chunks that no two blocks share, small enough to be read by slices.

    chunk = an even part, of at most 8 MiB, of a box whose sides are   gcd of the starts of all blocks

A file is a shard of several chunks. Invariant: blocks start on multiples of the sides of their files, so the owner of a
block owns complete files (except as in `grid_of`).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..layout.layout import Layout

CHUNK_BYTES = 8 * 2**20  # larger ones wait for one core, smaller ones for the file system
SHARD_BYTES = 256 * 2**20
LEAST_BYTES = 64 * 2**10  # smaller files cost more to open than to read
MANY_TINY = 1024  # most files below that
MANY_FILES = 8192
BOX_BYTES = 32 * 2**20  # of one read or write; as much again is in flight

Box = tuple[slice, ...]


class ChunkGrid(NamedTuple):
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None = None

    @property
    def file(self) -> tuple[int, ...]:
        return self.shard or self.chunk


class Side(NamedTuple):
    """One side of a box: divided in equal parts if `exact`, else the last may be smaller."""

    size: int
    exact: bool = False


def grid_of(layout: Layout, itemsize: int, processes: int = 1) -> ChunkGrid:
    """Blocks share no file, unless one process writes all and their starts lack a large common divisor: it reads some
    chunks again to write them.

    Raises ValueError if several processes would share files, or write thousands of tiny ones.
    """
    shape = layout.shape
    grid = _grid(shape, _sides(layout), itemsize, CHUNK_BYTES, SHARD_BYTES)
    if not _tiny(shape, grid, itemsize):
        return grid
    if processes != 1:
        starts = f"blocks of shape {layout.block} start where only chunks of shape {grid.chunk} divide {shape}"
        raise ValueError(f"{starts}: give order 'natural', sizes that the mesh divides, or a .npy file")
    sides = [Side(max(1, min(stored, n))) for stored, n in zip(layout.block, shape, strict=True)]
    return _grid(shape, sides, itemsize, CHUNK_BYTES, SHARD_BYTES)


def grid_of_tiles(layout: Layout, itemsize: int, most: int) -> ChunkGrid:
    """The grid of an array that is written one tile of this layout at a time, with little memory.

        bytes of a file <= max(most, 64 KiB),   bytes of a chunk <= max(min(8 MiB, most / 2), 64 KiB)

    A chunk has at most a quarter of a cut side of a tile, for the tiles of the inverse, and divides the dimension.
    """
    shape, file = layout.shape, max(most, LEAST_BYTES)
    limits = max(LEAST_BYTES, min(CHUNK_BYTES, file // 2)), min(file, SHARD_BYTES)
    sides, quarters = _sides(layout), []
    for side, n in zip(sides, shape, strict=True):
        even = math.gcd(side.size, n)
        quarters.append(Side(_divided(Side(even, True), max(1, even // 4)), True) if side.exact else side)
    grid = _grid(shape, quarters, itemsize, *limits)
    return _grid(shape, sides, itemsize, *limits) if _tiny(shape, grid, itemsize) else grid


def subboxes(box: Box, file: Sequence[int], itemsize: int, most: int, *, fortran: bool = False) -> Iterator[Box]:
    """Parts of a box, made of complete files: at most `most` bytes, or one file; with long runs."""
    first = [s.start // f for s, f in zip(box, file, strict=True)]
    last = [-(-s.stop // f) for s, f in zip(box, file, strict=True)]
    sides = [Side(max(1, b - a)) for a, b in zip(first, last, strict=True)]
    order = range(len(sides))[:: -1 if fortran else 1]
    parts = _fit(sides, itemsize * math.prod(file), most, order)
    cuts = (
        [slice(max(s.start, i * f), min(s.stop, (i + n) * f)) for i in range(a, b, n)]
        for s, f, a, b, n in zip(box, file, first, last, parts, strict=True)
    )
    return itertools.product(*cuts)


def within(box: Box, outer: Box) -> Box:
    """A box, counted from the start of one that contains it."""
    return tuple(slice(s.start - o.start, s.stop - o.start) for s, o in zip(box, outer, strict=True))


def boxes_of(layout: Layout) -> Iterator[Box]:
    firsts = [layout.starts(dim) for dim in range(layout.ndim)]
    sides = (map(slice, at.tolist(), (at + layout.counts(dim)).tolist()) for dim, at in enumerate(firsts))
    return itertools.product(*sides)


def block_index(layout: Layout, at: Box) -> tuple[int, ...]:
    return tuple((side.start or 0) // size for side, size in zip(at, layout.block, strict=True))


def shape_of(box: Box) -> tuple[int, ...]:
    return tuple(side.stop - side.start for side in box)


def _sides(layout: Layout) -> list[Side]:
    inner = ([int(start) for start in layout.starts(dim) if 0 < start < n] for dim, n in enumerate(layout.shape))
    return [Side(math.gcd(*at), True) if at else Side(max(1, n)) for at, n in zip(inner, layout.shape, strict=True)]


def _grid(shape: tuple[int, ...], sides: Sequence[Side], itemsize: int, chunk_most: int, shard_most: int) -> ChunkGrid:
    chunk = _part(sides, itemsize, chunk_most)
    nbytes, files = itemsize * math.prod(chunk), _count(shape, chunk)
    units = [Side(-(-side.size // c), side.exact) for side, c in zip(sides, chunk, strict=True)]
    many = _part(units, nbytes, min(shard_most, nbytes * -(-files // MANY_FILES)))
    shard = tuple(c * n for c, n in zip(chunk, many, strict=True))
    return ChunkGrid(chunk, None if shard == chunk else shard)


def _part(sides: Sequence[Side], unit: int, most: int) -> tuple[int, ...]:
    """An even part of the box: cut along outer dimensions, if that leaves enough, to be one run."""
    dims = range(len(sides))
    outer, inner = _fit(sides, unit, most, dims), _fit(sides, unit, most, reversed(dims))
    return outer if unit * math.prod(outer) >= LEAST_BYTES else max(outer, inner, key=math.prod)


def _fit(sides: Sequence[Side], unit: int, most: int, order: Iterable[int]) -> tuple[int, ...]:
    """The box with its sides divided in `order` to at most `most` bytes."""
    part = [side.size for side in sides]
    for dim in order:
        rest = unit * math.prod(part) // part[dim]
        part[dim] = _divided(sides[dim], max(1, most // rest))
    return tuple(part)


def _divided(side: Side, most: int) -> int:
    if not side.exact or side.size <= most:
        return -(-side.size // -(-side.size // most))
    small = [d for d in range(1, math.isqrt(side.size) + 1) if side.size % d == 0]
    return max(d for s in small for d in (s, side.size // s) if d <= most)


def _count(shape: Sequence[int], chunk: Sequence[int]) -> int:
    return math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def _tiny(shape: Sequence[int], grid: ChunkGrid, itemsize: int) -> bool:
    return itemsize * math.prod(grid.chunk) < LEAST_BYTES and _count(shape, grid.chunk) > MANY_TINY
