"""Placement: the owner of each scattered point, and the point's place in its block of the fine grid.

    u = G k mod G,   c = ceil(u - width / 2),   offset = u - c - (width - 1) / 2      in [-1/2, 1/2]

The device with the lowest cell that a point may touch, c - slack, owns the point. Points are sorted by tile into chunks
of slots. For float64 and long grids k is split in two before the product with G: offsets and phases have one rounding.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from jax import Array

from ...layout.layout import Layout
from ...numerics.phases import QUARTERS
from .form import Form

BATCH = 2**14  # points per batch, which fits in a core's cache
WORDS = {4: "u4", 8: "u8", 16: "c16"}  # by bytes
SAMPLE = 2**14  # points that estimate a load
HALF_RANGE = 2**30  # of int32
A = TypeVar("A", Array, np.ndarray)
SPLIT = 2.0**26  # leading bits of a turn, whose product with G is exact
LONG = 2**24  # cells, whose products with whole turns round float32 offsets twice


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
    split: bool  # turns, in two

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(-(-cells // tile) for cells, tile in zip(self.grid.block, self.tile, strict=True))

    def starts(self, tile: np.ndarray) -> np.ndarray:
        corner = np.stack(np.unravel_index(tile, self.counts), -1) * self.tile
        return np.minimum(corner, np.subtract(self.grid.block, self.tile))


def place(turns: np.ndarray, middles: tuple[int, ...], grid: Layout, form: Form, dtype: np.dtype) -> Placed:
    """Places points (M, d) in turns on all devices by tile, in O(M).

    Blocks of `grid` are equal, devices numbered in their C order. `middles` are the origin of the phases. Cells are
    computed twice, because fresh memory for them would cost more.
    """
    split = dtype.itemsize > 8 or max(grid.shape) > LONG
    tiles = _Tiles(grid, tuple(min(t, b) for t, b in zip(form.tile, grid.block, strict=True)), split)
    many, devices = len(turns), math.prod(grid.parts)
    key = np.empty(many, np.min_scalar_type(devices * math.prod(tiles.counts)))
    for at in _batches(many):
        key[at] = _key(turns[at], tiles, form)
    order = radix_order(key)
    slots, start, count, load = _slots(key.take(order), tiles, form.chunk)
    shape = devices, start.shape[1] * form.chunk
    cell = np.full((*shape, grid.ndim), -1, np.int32)
    offset, phase = np.zeros((*shape, grid.ndim), np.finfo(dtype).dtype), np.zeros(shape, dtype)
    flat = [_rows(table, shape) for table in (cell, offset, phase)]
    for at in _batches(many):
        for table, values in zip(flat, _placed(turns.take(order[at], 0), middles, tiles, form, dtype), strict=True):
            table[slots[at]] = _rows(values, values.shape[:1])
    place = np.empty(many, np.int32 if cell.size < HALF_RANGE else np.int64)
    place[order] = slots
    return Placed(Tables(cell, offset, start, count, phase), place, load, form.chunk, tiles.tile)


def _batches(many: int) -> Iterator[slice]:
    return (slice(begin, begin + BATCH) for begin in range(0, many, BATCH))


def _rows(table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A table's rows as words, which NumPy moves many times faster."""
    nbytes = table.itemsize * math.prod(table.shape[len(shape) :])
    return table.reshape(math.prod(shape), -1).view(WORDS.get(nbytes, f"V{nbytes}"))[:, 0]


def loads(turns: np.ndarray, grid: Layout, form: Form) -> np.ndarray:
    """Points per device, from a sample: within 10 % if 64 devices share them evenly."""
    many = len(turns)
    if many > SAMPLE:
        turns = turns[_sample(many)]
    owner = _key(turns, _Tiles(grid, grid.block, split=False), form)
    return np.bincount(owner, minlength=math.prod(grid.parts)) * (many / len(turns))


@functools.lru_cache(maxsize=8)
def _sample(many: int) -> np.ndarray:
    """Golden-ratio sample of points; a stride would pick the same samples of every spoke."""
    return (np.arange(SAMPLE) * (math.sqrt(5) - 1) / 2 % 1 * many).astype(np.int64)


def _key(turns: np.ndarray, tiles: _Tiles, form: Form) -> np.ndarray:
    owner, inside, grid = np.zeros(len(turns), np.int64), np.zeros(len(turns), np.int64), tiles.grid
    for dim, (block, tile) in enumerate(zip(grid.block, tiles.tile, strict=True)):
        lowest, _ = _lowest(_reduced(turns[:, dim], tiles.split), grid.shape[dim], form)
        if grid.parts[dim] > 1:
            part = lowest // block
            lowest -= part * block
            owner *= grid.parts[dim]
            owner += part
        inside *= tiles.counts[dim]
        inside += lowest // tile
    return owner * math.prod(tiles.counts) + inside


def _placed(
    turns: np.ndarray, middles: tuple[int, ...], tiles: _Tiles, form: Form, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cell, offset = np.empty(turns.shape, np.int32), np.empty(turns.shape, np.finfo(dtype).dtype)
    late, phase = np.zeros(len(turns)), np.ones(len(turns), dtype)
    for dim, (cells, block) in enumerate(zip(tiles.grid.shape, tiles.grid.block, strict=True)):
        reduced = _reduced(turns[:, dim], tiles.split)
        lowest, offset[:, dim] = _lowest(reduced, cells, form)
        cell[:, dim] = lowest if block == cells else _wrapped(lowest, block)
        if middles[dim]:
            late -= _multiple(reduced, middles[dim])[1]
    if any(middles):
        quarters = np.rint(4 * late)
        late -= quarters / 4
        angle = (2 * np.pi * late).astype(offset.dtype)  # at most pi / 4, so float32 keeps one rounding
        phase.real, phase.imag = np.cos(angle), np.sin(angle)
        phase *= QUARTERS.astype(dtype)[quarters.astype(np.int64) & 3]
    return cell, offset, phase


def _lowest(reduced: tuple[np.ndarray, ...], cells: int, form: Form) -> tuple[np.ndarray, np.ndarray]:
    whole, rest = _multiple(reduced, cells)
    even = 0.5 * (1 - form.width % 2)
    up = np.ceil(rest - (0.5 - even))
    rest -= up
    rest += even
    return _wrapped((whole + up).astype(np.int32) - np.int32(form.width // 2 + form.slack), cells), rest


def _reduced(turns: np.ndarray, split: bool) -> tuple[np.ndarray, ...]:
    """Turns in [-1/2, 1/2], or leading bits and a remainder whose exact sum is."""
    f = turns - np.rint(turns)
    if not split:
        return (f,)
    first = np.rint(f * SPLIT)
    first /= SPLIT
    f -= first
    return first, f


def _multiple(reduced: tuple[np.ndarray, ...], times: int) -> tuple[np.ndarray, np.ndarray]:
    """A multiple of reduced turns: the integer, and a remainder; split turns leave one rounding."""
    first, *rest = reduced
    product = first * times
    whole = np.rint(product)
    product -= whole
    for part in rest:
        product += part * times
    return whole, product


def _wrapped(cell: np.ndarray, cells: int) -> np.ndarray:
    """Cells modulo a number; in NumPy several times faster than `%`."""
    cell -= cell // cells * cells
    return cell


def radix_order(key: np.ndarray) -> np.ndarray:
    """Stable order of nonnegative integers; NumPy has a radix sort for 16 bits."""
    order = np.argsort(key.astype(np.uint16, copy=False), kind="stable")
    for bits in range(16, int(key.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((key.take(order) >> bits).astype(np.uint16), kind="stable")]
    return order


def _slots(key: np.ndarray, tiles: _Tiles, chunk: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Slots of sorted points, and `start`, `count` and `load` of their chunks."""
    devices, many = math.prod(tiles.grid.parts), len(key)
    begin = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    points = np.diff(begin, append=many)
    owner, tile = np.divmod(key[begin].astype(np.int64), math.prod(tiles.counts))
    chunks = -(-points // chunk)
    count = np.bincount(owner, chunks, devices).astype(np.int32)
    most = int(count.max())
    base = np.arange(devices) * most - (np.cumsum(count) - count)  # empty chunks of earlier devices
    first = np.cumsum(chunks) - chunks + base[owner]
    slots = np.repeat(first * chunk - begin, points)
    slots += np.arange(many)
    start = np.zeros((devices * most, tiles.grid.ndim), np.int32)
    start[np.arange(chunks.sum()) + np.repeat(base, count)] = np.repeat(tiles.starts(tile), chunks, 0)
    load = np.bincount(owner, points, devices).astype(np.int64)
    return slots, start.reshape(devices, most, -1), count, load
