"""Placement: the owner of each scattered point, and the point's place in its block of the fine grid.

    u = G k mod G,   c = ceil(u - width / 2),   offset = u - c - (width - 1) / 2      in [-1/2, 1/2]

The device with the lowest cell that a point may touch, c - slack, owns the point. Points are sorted by tile into chunks
of slots. k is split in two before the product with G, so that offsets and phases have one rounding.
"""

import dataclasses
import functools
import math
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jax import Array

from ...layout.layout import Layout
from .form import Form

BATCH = 2**14  # points per batch, which fits in a core's cache
WORDS = {4: "u4", 8: "u8", 16: "c16"}  # by bytes
SAMPLE = 2**14  # points that estimate a load
A = TypeVar("A", Array, np.ndarray)
SPLIT = 2.0**26  # leading bits of a turn, whose product with G is exact


class Tables(NamedTuple, Generic[A]):
    """Points in slots; chunks of a tile are contiguous, chunks with points first."""

    cell: A  # int32 (devices, slots, d): lowest touched cell in the block with halo; -1 if empty
    offset: A  # real (devices, slots, d)
    start: A  # int32 (devices, chunks, d): first cell of each chunk's tile
    count: Any  # int32 (devices,): chunks with points
    phase: A  # complex (devices, slots): exp(-2 pi i k . middles); 0 in empty slots


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    tables: Tables[np.ndarray]
    order: np.ndarray  # slot of each point among those of all devices
    load: np.ndarray  # points per device
    chunk: int
    tile: tuple[int, ...]


class _Tiles(NamedTuple):
    grid: Layout
    tile: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(-(-cells // tile) for cells, tile in zip(self.grid.block, self.tile, strict=True))

    def starts(self, tile: np.ndarray) -> np.ndarray:
        corner = np.stack(np.unravel_index(tile, self.counts), -1) * self.tile
        return np.minimum(corner, np.subtract(self.grid.block, self.tile))


def place(turns: np.ndarray, middles: tuple[int, ...], grid: Layout, form: Form, dtype: np.dtype) -> Placed:
    """Places points (M, d) in turns on all devices by tile, in O(M).

    Blocks of `grid` are equal, devices numbered in their C order. `middles` are the origin of the phases.
    """
    tiles = _Tiles(grid, tuple(min(t, b) for t, b in zip(form.tile, grid.block, strict=True)))
    many = len(turns)
    real = np.finfo(dtype).dtype
    cell, offset, phase = np.empty(turns.shape, np.int32), np.empty(turns.shape, real), np.empty(many, dtype)
    key = np.empty(many, np.int64)
    for begin in range(0, many, BATCH):
        at = slice(begin, begin + BATCH)
        owner, inside, late = _placed(turns[at], middles, tiles, form, cell[at], offset[at])
        phase.real[at], phase.imag[at] = np.cos(late), np.sin(late)
        key[at] = owner * math.prod(tiles.counts) + inside
    order = radix_order(key)
    return _filled(order, key.take(order), tiles, form.chunk, cell, offset, phase)


def loads(turns: np.ndarray, grid: Layout, width: int, slack: int) -> np.ndarray:
    """Points per device, from a sample: within 10 % if 64 devices share them evenly."""
    many = len(turns)
    if many > SAMPLE:
        turns = turns[_sample(many)]
    owner = np.zeros(len(turns))
    for dim, (cells, block, parts) in enumerate(zip(grid.shape, grid.block, grid.parts, strict=True)):
        f = turns[:, dim] - np.rint(turns[:, dim])
        part = np.floor((np.ceil(f * cells - width / 2) - slack) / block)
        part -= np.floor(part / parts) * parts
        owner *= parts
        owner += part
    return np.bincount(owner.astype(np.int64), minlength=math.prod(grid.parts)) * (many / len(turns))


@functools.lru_cache(maxsize=8)
def _sample(many: int) -> np.ndarray:
    """Golden-ratio sample of points; a stride would pick the same samples of every spoke."""
    return (np.arange(SAMPLE) * (math.sqrt(5) - 1) / 2 % 1 * many).astype(np.int64)


def _placed(
    turns: np.ndarray, middles: tuple[int, ...], tiles: _Tiles, form: Form, cell: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Owners, tiles, and phases in radians of points; fills `cell` and `offset`."""
    owner, inside, late = np.zeros(len(turns), np.int64), np.zeros(len(turns), np.int64), np.zeros(len(turns))
    grid, odd = tiles.grid, form.width % 2
    for dim, (cells, block, tile) in enumerate(zip(grid.shape, grid.block, tiles.tile, strict=True)):
        halves = _split(turns[:, dim])
        whole, rest = _multiple(*halves, cells)
        even = 0.5 * (1 - odd)
        up = np.ceil(rest - (0.5 - even))
        offset[:, dim] = rest - up + even
        lowest = _wrapped((whole + up).astype(np.int32) - np.int32(form.width // 2 + form.slack), cells)
        part = lowest // block
        lowest -= part * block
        cell[:, dim] = lowest
        owner *= grid.parts[dim]
        owner += part
        inside *= tiles.counts[dim]
        inside += lowest // tile
        late += _multiple(*halves, middles[dim])[1]
    late *= -2 * np.pi
    return owner, inside, late


def _split(turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turns reduced to [-1/2, 1/2], as the exact sum of leading bits and a remainder."""
    f = turns - np.rint(turns)
    first = np.rint(f * SPLIT)
    first /= SPLIT
    f -= first
    return first, f


def _multiple(first: np.ndarray, rest: np.ndarray, times: int) -> tuple[np.ndarray, np.ndarray]:
    """A multiple of split turns: the integer, and a remainder with one rounding."""
    product = first * times
    whole = np.rint(product)
    product -= whole
    product += rest * times
    return whole, product


def _wrapped(cell: np.ndarray, cells: int) -> np.ndarray:
    """Cells modulo the grid; in NumPy several times faster than `%`."""
    cell -= cell // cells * cells
    return cell


def radix_order(key: np.ndarray) -> np.ndarray:
    """Stable order of nonnegative integers; NumPy has a radix sort for 16 bits."""
    order = np.argsort((key & 0xFFFF).astype(np.uint16), kind="stable")
    for bits in range(16, int(key.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((key.take(order) >> bits & 0xFFFF).astype(np.uint16), kind="stable")]
    return order


def _filled(
    order: np.ndarray,
    key: np.ndarray,
    tiles: _Tiles,
    chunk: int,
    cell: np.ndarray,
    offset: np.ndarray,
    phase: np.ndarray,
) -> Placed:
    devices, many = math.prod(tiles.grid.parts), len(key)
    begin = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    points = np.diff(begin, append=many)
    owner, tile = np.divmod(key[begin], math.prod(tiles.counts))
    chunks = -(-points // chunk)
    count = np.bincount(owner, chunks, devices).astype(np.int32)
    most = int(count.max())
    base = np.arange(devices) * most - (np.cumsum(count) - count)  # less other devices' empty chunks
    first = np.cumsum(chunks) - chunks + base[owner]
    at = np.arange(many) + np.repeat(first * chunk - begin, points)
    start = np.zeros((devices * most, tiles.grid.ndim), np.int32)
    start[np.arange(chunks.sum()) + np.repeat(base, count)] = np.repeat(tiles.starts(tile), chunks, 0)
    slots = np.empty(many, np.int64)
    slots[order] = at
    tables = Tables(
        _in_slots(slots, cell, devices, most * chunk, -1),
        _in_slots(slots, offset, devices, most * chunk, 0),
        start.reshape(devices, most, -1),
        count,
        _in_slots(slots, phase, devices, most * chunk, 0),
    )
    load = np.bincount(owner, points, devices).astype(np.int64)
    return Placed(tables, slots, load, chunk, tiles.tile)


def _in_slots(at: np.ndarray, values: np.ndarray, devices: int, slots: int, empty: int) -> np.ndarray:
    """A table of rows as words, which NumPy moves many times faster."""
    shape = devices * slots, math.prod(values.shape[1:])
    table = np.full(shape, empty, values.dtype) if empty else np.zeros(shape, values.dtype)  # np.zeros writes nothing
    nbytes = shape[1] * values.itemsize
    word = WORDS.get(nbytes, f"V{nbytes}")
    table.view(word)[:, 0][at] = values.reshape(len(values), shape[1]).view(word)[:, 0]
    return table.reshape(devices, slots, *values.shape[1:])
