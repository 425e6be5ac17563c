"""Placing and lending: every point in one slot, tables enough to compute with, and balanced devices."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from meshfft.layout.layout import Layout, even_cuts
from meshfft.nufft.grid.balance import Lent, appended, lend
from meshfft.nufft.grid.binning import Placed, Tables, loads, place
from meshfft.nufft.grid.form import Form
from meshfft.nufft.grid.window import Window, fitted, window

C64, C128 = np.dtype("complex64"), np.dtype("complex128")
EDGES = (0.0, -0.5, 0.5, 1 - 2.0**-53, 1e6 + 1 / 3, -1e-20, 2.0**-60, 0.25, -1e6 - 2 / 7, 1.0)


def blocks(grid: tuple[int, ...], parts: tuple[int, ...]) -> Layout:
    pairs = zip("xyz", grid, parts, strict=False)
    return Layout(grid, tuple(even_cuts(n, [(axis, p)]) for axis, n, p in pairs))


def form_of(made: Window, slack: int, tile: tuple[int, ...], chunk: int) -> Form:
    return Form("points", tile, chunk, made.width, slack, made.coefficients)


def _random(d: int, many: int) -> np.ndarray:
    return np.random.default_rng().uniform(-3, 3, (many, d))


# sizes, grid, parts, slack, tile, chunk, dtype, tolerance, points
CASES = [
    ((16,), (32,), (4,), 0, (8,), 4, C128, 1e-12, _random(1, 300)),
    ((11,), (24,), (6,), 1, (3,), 7, C128, 1e-9, _random(1, 100)),  # blocks of 4 under a window of 10
    ((12, 9), (24, 20), (2, 4), 0, (5, 8), 8, C128, 1e-9, _random(2, 500)),  # tiles that do not divide the block
    ((12, 9), (24, 20), (1, 1), 2, (16, 16), 32, C64, 1e-5, _random(2, 200)),  # one device, one tile
    ((6, 10, 8), (12, 20, 16), (2, 1, 4), 0, (4, 4, 4), 4, C128, 1e-6, _random(3, 300)),
    ((8, 8), (16, 16), (4, 2), 0, (4, 4), 8, C128, 1e-12, np.array(list(itertools.product(EDGES, EDGES)))),
    ((8, 8), (16, 16), (4, 2), 1, (4, 4), 8, C128, 1e-9, np.full((50, 2), 1 / 3)),  # one owner has all
    ((8, 8), (16, 16), (2, 2), 0, (4, 4), 1, C128, 1e-6, np.array([[-0.3, 0.1]])),
    ((150, 128), (300, 256), (2, 1), 0, (1, 1), 2, C128, 1e-6, np.repeat(_random(2, 20), 3, 0)),  # keys of 17 bits
]


def _placed(case: tuple) -> tuple[Placed, Window, tuple[int, ...]]:
    sizes, grid, parts, slack, tile, chunk, dtype, tol, turns = case
    made = window(tol, 2.0, len(sizes), dtype)
    layout = blocks(grid, parts)
    placed = place(turns, tuple(n // 2 for n in sizes), layout, form_of(made, slack, tile, chunk), dtype)
    return placed, made, layout.block


@pytest.mark.parametrize("case", CASES)
def test_every_point_has_one_slot_of_its_tile(case: tuple) -> None:
    """Catches a point lost or held twice, a chunk across tiles, a tile beyond the block, and rubbish in empty slots."""
    _, _, parts, _, tile, chunk, dtype, _, turns = case
    placed, _, block = _placed(case)
    cell, offset, start, count, phase = placed.tables
    devices, slots = cell.shape[:2]
    assert (devices, slots) == (math.prod(parts), chunk * start.shape[1]) == phase.shape
    assert [a.dtype for a in placed.tables] == [np.int32, np.finfo(dtype).dtype, np.int32, np.int32, dtype]
    assert placed.tile == tuple(np.minimum(tile, block)) and placed.chunk == chunk
    held = np.zeros(devices * slots, int)
    np.add.at(held, placed.order, 1)
    assert placed.order.shape == (len(turns),) and held.max() == 1
    full = held.reshape(devices, slots) == 1
    assert (full.sum(1) == placed.load).all()
    assert ((cell >= 0).all(-1) == full).all() and (cell[~full] == -1).all()
    assert (offset[~full] == 0).all() and (phase[~full] == 0).all() and np.abs(offset).max() <= 0.5
    corner = np.repeat(start, chunk, 1)
    assert (corner >= 0).all() and (corner + placed.tile <= block).all()
    assert (corner <= cell)[full].all() and (cell < corner + placed.tile)[full].all()
    for device in range(devices):
        chunks = full[device].reshape(-1, chunk).sum(1)
        assert (chunks > 0).sum() == count[device] and (chunks[: count[device]] > 0).all()
        keys = np.ravel_multi_index(tuple(start[device, : count[device]].T), block)
        assert (np.diff(keys) >= 0).all()  # tiles in C order
        same = np.flatnonzero(np.diff(keys) == 0)
        assert (chunks[same] == chunk).all()  # chunks of a tile are full but for its last


@pytest.mark.parametrize("case", CASES)
def test_the_tables_alone_give_the_transform(case: tuple) -> None:
    """Catches any error of cell, offset, phase or owner: a NumPy transform from the tables equals direct sums."""
    sizes, grid, parts, slack, _, _, _, tol, turns = case
    placed, made, block = _placed(case)
    rng = np.random.default_rng()
    x = rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)
    fine = x
    for dim, (n, g) in enumerate(zip(sizes, grid, strict=True)):
        along = [1] * len(sizes)
        along[dim] = -1
        fine = fine / made.transform((np.arange(n) - n // 2) / g).reshape(along)
        fine = np.fft.fft(fine, g, dim)
        fine = fine * np.exp(2j * np.pi * (np.arange(g) * (n // 2) % g) / g).reshape(along)
    cell, offset, _, _, phase = (np.asarray(a) for a in placed.tables)
    device, slot = np.divmod(placed.order, cell.shape[1])
    origin = np.stack(np.unravel_index(device, parts), 1) * block
    reach = np.arange(made.width + 2 * slack)
    values = np.broadcast_to(fine, (len(turns), *grid))
    for dim in reversed(range(len(sizes))):
        v = offset[device, slot, dim].astype(float)[:, None]
        weight = made.values((reach - (len(reach) - 1) / 2 - v) * 2 / made.width)
        cells = (origin[:, dim, None] + cell[device, slot, dim, None] + reach) % grid[dim]
        dense = np.zeros((len(turns), grid[dim]))
        np.add.at(dense, (np.arange(len(turns))[:, None], cells), weight)  # wraps more than once on tiny grids
        values = np.einsum("m...g,mg->m...", values, dense)
    values = values * phase[device, slot]
    truth = _direct(x, turns)
    assert np.linalg.norm(values - truth) <= 1.5 * tol * np.linalg.norm(x) * math.sqrt(len(turns))


def _direct(x: np.ndarray, turns: np.ndarray) -> np.ndarray:
    sums = np.broadcast_to(x, (len(turns), *x.shape))
    for dim in reversed(range(x.ndim)):
        late = (turns[:, dim] - np.rint(turns[:, dim]))[:, None] * np.arange(x.shape[dim])
        sums = np.einsum("m...n,mn->m...", sums, np.exp(-2j * np.pi * late))
    return sums


@pytest.mark.parametrize(("grid", "dtype"), [(16, C128), (3**13, C128), (131072, C128), (3**15, C64), (3**17, C64)])
@pytest.mark.parametrize("width", [4, 7])
def test_places_are_those_of_the_points_as_given(grid: int, dtype: np.dtype, width: int) -> None:
    """Catches digits that G k loses: against exact fractions, on grids of up to 129 million cells."""
    rng = np.random.default_rng()
    turns = np.array([*EDGES, *rng.uniform(-2, 2, 200), *(rng.integers(-grid, grid, 20) / grid)])[:, None]
    made, sizes, most = fitted(width, 2.0), (grid // 2,), (1e-16, 2e-15) if dtype == C128 else (1.6e-8, 1.5e-7)
    placed = place(turns, (sizes[0] // 2,), blocks((grid,), (1,)), form_of(made, 0, (16,), 4), dtype)
    cell, offset, _, _, phase = (a[0] for a in placed.tables)
    for point, slot in zip(turns[:, 0], placed.order, strict=True):
        exact = grid * Fraction(float(point)) - int(cell[slot, 0]) - Fraction(width - 1, 2)
        off = (exact - Fraction(float(offset[slot, 0])) + Fraction(1, 2)) % grid - Fraction(1, 2)
        assert abs(float(off)) < most[0]
        turn = float(Fraction(float(point)) * (grid // 4) % 1)
        assert abs(phase[slot] - np.exp(-2j * np.pi * turn)) < most[1]


def test_loads_are_estimated_from_a_sample() -> None:
    """Catches a stride that hits the same sample of every spoke, and owners in another order than `place` has."""
    angle, radius = np.arange(8192) * 2.4, (np.arange(32) - 16) / 32  # a stride of 16 points
    turns = np.stack([np.outer(np.cos(angle), radius), np.outer(np.sin(angle), radius)], -1).reshape(-1, 2)
    grid, form = blocks((128, 256), (4, 4)), form_of(window(1e-2, 2.0, 2, C64), 1, (8, 8), 16)
    placed = place(turns, (32, 64), grid, form, C64)
    estimate = loads(turns, grid, form)
    assert estimate.sum() == pytest.approx(len(turns))
    assert np.abs(estimate - placed.load).max() < 0.05 * placed.load.max()
    few = turns[:5000]
    placed = place(few, (32, 64), grid, form, C64)
    assert (loads(few, grid, form) == placed.load).all()


def _radial(spokes: int, samples: int) -> np.ndarray:
    angle, radius = np.arange(spokes) * np.pi * (3 - 5**0.5), (np.arange(samples) - samples // 2) / samples
    return np.stack([np.outer(np.cos(angle), radius), np.outer(np.sin(angle), radius)], -1).reshape(-1, 2)


def _spiral(arms: int, samples: int) -> np.ndarray:
    s, arm = (np.arange(samples) + 0.5) / samples, np.arange(arms)[:, None]
    angle = 2 * np.pi * (16 * s + arm / arms)
    return np.stack([0.5 * s * np.cos(angle), 0.5 * s * np.sin(angle)], -1).reshape(-1, 2)


def _koosh(spokes: int, samples: int) -> np.ndarray:
    i, radius = np.arange(spokes) + 0.5, (np.arange(samples) - samples // 2) / samples
    z, angle = 1 - 2 * i / spokes, np.pi * (1 + 5**0.5) * i
    flat = np.sqrt(1 - z * z)
    return (radius[:, None] * np.stack([flat * np.cos(angle), flat * np.sin(angle), z], -1)[:, None]).reshape(-1, 3)


def _laid(
    turns: np.ndarray, n: int, parts: tuple[int, ...], tile: int, chunk: int, width: int, slack: int = 0
) -> Placed:
    d = len(parts)
    form = form_of(fitted(width, 2.0), slack, (tile,) * d, chunk)
    return place(turns, (n // 2,) * d, blocks((2 * n,) * d, parts), form, C128)


RADIAL, SPIRAL, KOOSH = _radial(402, 512), _spiral(16, 8192), _koosh(4000, 128)
BALANCED = [  # points, N, devices along each dimension, the chunks' largest load over the mean
    (RADIAL, 256, (8, 1), 1.8),
    (RADIAL, 256, (8, 8), 4.1),
    (RADIAL, 256, (64, 1), 2.9),
    (SPIRAL, 256, (8, 1), 1.8),
    (SPIRAL, 256, (8, 8), 4.1),
    (KOOSH, 64, (8, 1, 1), 2.5),
    (KOOSH, 64, (8, 8, 1), 8.1),
    (KOOSH, 64, (4, 4, 4), 6.9),
]


@pytest.mark.quick(3, 4, 5)
@pytest.mark.parametrize(("turns", "n", "parts", "before"), BALANCED)
def test_loads_are_balanced_in_few_rounds(turns: np.ndarray, n: int, parts: tuple[int, ...], before: float) -> None:
    """Catches a helper that is crowded itself, a device busy twice in a round, a lost point, rounds by the dozen."""
    placed = _laid(turns, n, parts, 8, 32, 4)
    lent = lend(placed, 4, tuple(2 * n // p + 3 for p in parts))
    mean, devices = placed.tables.count.mean(), math.prod(parts)
    assert placed.tables.count.max() / mean == pytest.approx(before, rel=0.1)
    count = lent.tables.count
    assert count.sum() == placed.tables.count.sum() and count.max() <= 1.15 * mean
    assert len(np.unique(lent.order)) == len(turns)
    for pairs, _ in lent.rounds:
        senders, receivers = zip(*pairs, strict=True)
        assert len({*senders, *receivers}) == 2 * len(pairs)
    assert lent.start.shape[:2] == (devices, sum(tiles for _, tiles in lent.rounds)) and lent.start.dtype == np.int32
    assert len(lent.rounds) <= before + 2  # a helper takes on a mean load at the most


def _halved(block: np.ndarray, start: np.ndarray, shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, shape, strict=True))


def _weights(tables: Tables, device: int, width: int, slack: int) -> np.ndarray:
    """Window of every slot of a device, (slots, reach, .., reach); 0 in empty slots."""
    reach = width + 2 * slack
    z = (np.arange(reach) - (reach - 1) / 2 - tables.offset[device][..., None]) * 2 / width
    by_dim = fitted(width, 2.0).values(z)
    outer = by_dim[:, 0]
    for dim in range(1, by_dim.shape[1]):
        outer = outer[..., None] * by_dim[:, dim].reshape(len(outer), *(1,) * dim, reach)
    return outer * (tables.cell[device, :, 0] >= 0).reshape(-1, *(1,) * by_dim.shape[1])


def _interpolated(block: np.ndarray, tables: Tables, device: int, width: int, slack: int) -> np.ndarray:
    weights = _weights(tables, device, width, slack)
    cells = np.maximum(tables.cell[device], 0)
    return np.array([(block[_halved(block, c, w.shape)] * w).sum() for c, w in zip(cells, weights, strict=True)])


def _spread(
    values: np.ndarray, tables: Tables, device: int, shape: tuple[int, ...], width: int, slack: int
) -> np.ndarray:
    block = np.zeros(shape, complex)
    weights = _weights(tables, device, width, slack)
    for c, w, value in zip(np.maximum(tables.cell[device], 0), weights, values, strict=True):
        block[_halved(block, c, w.shape)] += value * w
    return block


def _sent(lent: Lent, shape: tuple[int, ...], cells: tuple[int, ...]) -> Iterator[tuple[int, int, Any, Any]]:
    """Sender, receiver and both places of every tile."""
    first, (_, at) = 0, appended(lent.start.shape[1], cells, shape)
    for pairs, tiles in lent.rounds:
        for tile, (sender, receiver) in itertools.product(range(first, first + tiles), pairs):
            yield sender, receiver, lent.start[sender, tile], at[tile] + [shape[0], *[0] * (len(shape) - 1)]
        first += tiles


def _with_tiles(lent: Lent, blocks: np.ndarray, cells: tuple[int, ...]) -> np.ndarray:
    """Every device's block with the tiles behind it that it receives."""
    rows, _ = appended(lent.start.shape[1], cells, blocks.shape[1:])
    wide = np.concatenate([blocks, np.zeros((len(blocks), rows, *blocks.shape[2:]), complex)], 1)
    for sender, receiver, s, at in _sent(lent, blocks.shape[1:], cells):
        wide[receiver][_halved(wide[receiver], at, cells)] = blocks[sender][_halved(blocks, s, cells)]
    return wide


def _returned(lent: Lent, wide: np.ndarray, cells: tuple[int, ...]) -> np.ndarray:
    """Blocks, with the content of tiles behind them added at its origin."""
    rows, _ = appended(lent.start.shape[1], cells, wide.shape[1:])
    blocks = wide[:, : wide.shape[1] - rows].copy()
    for sender, receiver, s, at in _sent(lent, blocks.shape[1:], cells):
        blocks[sender][_halved(blocks, s, cells)] += wide[receiver][_halved(wide, at, cells)]
    return blocks


@pytest.mark.parametrize(
    ("turns", "n", "parts", "tile", "chunk", "slack"),
    [
        (_radial(20, 64), 32, (8, 1), 4, 4, 1),
        (_radial(25, 48), 24, (4, 2), 5, 8, 0),
        (_koosh(60, 24), 12, (4, 1, 2), 4, 4, 0),
    ],
)
def test_lent_is_unlent(turns: np.ndarray, n: int, parts: tuple[int, ...], tile: int, chunk: int, slack: int) -> None:
    """Catches a tile cut or stacked wrongly, a cell not moved, phases mixed up, and a way back that adds twice."""
    width, rng = 4, np.random.default_rng()
    reach, devices = width + 2 * slack, math.prod(parts)
    placed = _laid(turns, n, parts, tile, chunk, width, slack)
    shape = tuple(2 * n // p + reach - 1 for p in parts)
    lent, cells = lend(placed, reach, shape), tuple(t + reach - 1 for t in placed.tile)
    assert lent.rounds and lent.tables.count.max() <= 1.15 * placed.tables.count.mean() + 1
    blocks = rng.standard_normal((devices, *shape)) + 1j * rng.standard_normal((devices, *shape))
    wide = _with_tiles(lent, blocks, cells)
    unlent, both, values = [], [], rng.standard_normal(len(turns)) + 0j
    for p in range(devices):
        unlent.append(_interpolated(blocks[p], placed.tables, p, width, slack) * placed.tables.phase[p])
        both.append(_interpolated(wide[p], lent.tables, p, width, slack) * lent.tables.phase[p])
    assert np.abs(np.concatenate(unlent)[placed.order] - np.concatenate(both)[lent.order]).max() < 1e-13
    given, lends = (np.zeros(devices * one.tables.cell.shape[1], complex) for one in (placed, lent))
    given[placed.order], lends[lent.order] = values, values
    given, lends = given.reshape(devices, -1), lends.reshape(devices, -1)
    truth = np.array([_spread(given[p], placed.tables, p, shape, width, slack) for p in range(devices)])
    grids = np.array([_spread(lends[p], lent.tables, p, wide.shape[1:], width, slack) for p in range(devices)])
    assert np.abs(_returned(lent, grids, cells) - truth).max() < 1e-13
    for p in range(devices):  # chunks are inside their tiles
        count = lent.tables.count[p]
        start, cell = lent.tables.start[p, :count], lent.tables.cell[p].reshape(-1, chunk, len(parts))[:count]
        inside = (cell >= start[:, None]) & (cell < start[:, None] + placed.tile)
        assert (inside | (cell < 0)).all()


def test_nothing_is_lent_where_loads_are_even() -> None:
    """Catches rounds without need, and tables that change where nothing is lent."""
    for turns, parts in ((np.random.default_rng(1).random((40000, 2)), (2, 2)), (np.array([[0.1, 0.2]]), (1, 1))):
        placed = _laid(turns, 32, parts, 8, 32, 4)
        lent = lend(placed, 4, (64, 64))
        assert lent.rounds == ()
        assert (lent.order == placed.order).all()
        assert all((a == b).all() for a, b in zip(lent.tables, placed.tables, strict=True))
