"""Placing: every point in one slot, and the tables enough to compute with."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from meshfft.nufft.grid.binning import Placed, loads, place
from meshfft.nufft.grid.window import Window, fitted, window

C64, C128 = np.dtype("complex64"), np.dtype("complex128")
EDGES = (0.0, -0.5, 0.5, 1 - 2.0**-53, 1e6 + 1 / 3, -1e-20, 2.0**-60, 0.25, -1e6 - 2 / 7, 1.0)


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
    block = tuple(g // p for g, p in zip(grid, parts, strict=True))
    return place(turns, tuple(n // 2 for n in sizes), grid, block, parts, made, slack, tile, chunk, dtype), made, block


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


@pytest.mark.parametrize("grid", [16, 131072, 3**13])
@pytest.mark.parametrize("width", [4, 7])
def test_places_are_those_of_the_points_as_given(grid: int, width: int) -> None:
    """Catches digits that G k loses: against exact fractions, on grids up to 1.6 million cells."""
    rng = np.random.default_rng()
    turns = np.array([*EDGES, *rng.uniform(-2, 2, 20), *(rng.integers(-grid, grid, 20) / grid)])[:, None]
    made, sizes = fitted(width, 2.0), (grid // 2,)
    placed = place(turns, (sizes[0] // 2,), (grid,), (grid,), (1,), made, 0, (16,), 4, C128)
    cell, offset, _, _, phase = (a[0] for a in placed.tables)
    for point, slot in zip(turns[:, 0], placed.order, strict=True):
        exact = grid * Fraction(float(point)) - int(cell[slot, 0]) - Fraction(width - 1, 2)
        assert abs(float(((exact - Fraction(offset[slot, 0]) + Fraction(1, 2)) % grid) - Fraction(1, 2))) < 1e-16
        turn = float(Fraction(float(point)) * (grid // 4) % 1)
        assert abs(phase[slot] - np.exp(-2j * np.pi * turn)) < 2e-15


def test_loads_are_estimated_from_a_sample() -> None:
    """Catches a stride that meets the same sample of every spoke, and owners in another order than `place` has."""
    angle, radius = np.arange(8192) * 2.4, (np.arange(32) - 16) / 32  # a stride of 16 points
    turns = np.stack([np.outer(np.cos(angle), radius), np.outer(np.sin(angle), radius)], -1).reshape(-1, 2)
    grid, block, parts = (128, 256), (32, 64), (4, 4)
    placed = place(turns, (32, 64), grid, block, parts, window(1e-2, 2.0, 2, C64), 1, (8, 8), 16, C64)
    estimate = loads(turns, grid, 4, 1, block, parts)
    assert estimate.sum() == pytest.approx(len(turns))
    assert np.abs(estimate - placed.load).max() < 0.05 * placed.load.max()
    few = turns[:5000]
    placed = place(few, (32, 64), grid, block, parts, window(1e-2, 2.0, 2, C64), 1, (8, 8), 16, C64)
    assert (loads(few, grid, 4, 1, block, parts) == placed.load).all()
