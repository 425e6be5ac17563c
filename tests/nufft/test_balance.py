"""Lending: balanced devices, and the values and grids that owners alone would have."""

import math

import numpy as np
import pytest

from meshfft.nufft.grid.balance import Lent, lend
from meshfft.nufft.grid.binning import Placed, Tables, place
from meshfft.nufft.grid.window import fitted

C128 = np.dtype("complex128")


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
    grid = (2 * n,) * len(parts)
    block = tuple(g // p for g, p in zip(grid, parts, strict=True))
    made = fitted(width, 2.0)
    return place(turns, (n // 2,) * len(parts), grid, block, parts, made, slack, (tile,) * len(parts), chunk, C128)


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


@pytest.mark.parametrize(("turns", "n", "parts", "before"), BALANCED)
def test_loads_are_balanced_in_few_rounds(turns: np.ndarray, n: int, parts: tuple[int, ...], before: float) -> None:
    """Catches a helper that is crowded itself, a device busy twice in a round, a lost point, rounds by the dozen."""
    placed = _laid(turns, n, parts, 8, 32, 4)
    lent = lend(placed, 4, tuple(2 * n // p + 3 for p in parts))
    mean, devices = placed.tables.count.mean(), math.prod(parts)
    assert placed.tables.count.max() / mean == pytest.approx(before, rel=0.1)
    assert lent.load.sum() == placed.tables.count.sum() and lent.load.max() <= 1.15 * mean
    assert (lent.tables.count == lent.load).all()
    assert len(np.unique(lent.order)) == len(turns)
    for pairs, start in lent.rounds:
        senders, receivers = zip(*pairs, strict=True)
        assert len({*senders, *receivers}) == 2 * len(pairs)
        assert start.shape[0] == devices and start.dtype == np.int32
    assert len(lent.rounds) <= before + 2  # a helper takes on a mean load at the most


def _halved(block: np.ndarray, start: np.ndarray, shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, shape, strict=True))


def _weights(tables: Tables, device: int, width: int, slack: int) -> np.ndarray:
    """Of every slot of a device its window, (slots, reach, .., reach); 0 in empty ones."""
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


def _with_tiles(lent: Lent, blocks: np.ndarray, cells: tuple[int, ...]) -> np.ndarray:
    """Every device's block with the tiles behind it that it receives."""
    wide = np.concatenate([blocks, np.zeros((len(blocks), lent.rows, *blocks.shape[2:]), complex)], 1)
    places = iter(lent.at)
    for pairs, start in lent.rounds:
        into = [next(places) for _ in range(start.shape[1])]
        for sender, receiver in pairs:
            for s, at in zip(start[sender], into, strict=True):
                wide[receiver][_halved(wide[receiver], at, cells)] = blocks[sender][_halved(blocks, s, cells)]
    return wide


def _returned(lent: Lent, wide: np.ndarray, cells: tuple[int, ...]) -> np.ndarray:
    """Blocks, with what lies in tiles behind them added where it came from."""
    blocks, places = wide[:, : wide.shape[1] - lent.rows].copy(), iter(lent.at)
    for pairs, start in lent.rounds:
        into = [next(places) for _ in range(start.shape[1])]
        for sender, receiver in pairs:
            for s, at in zip(start[sender], into, strict=True):
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
    assert lent.rounds and lent.load.max() <= 1.15 * placed.tables.count.mean() + 1
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
    for p in range(devices):  # chunks lie in their tiles
        count = lent.tables.count[p]
        start, cell = lent.tables.start[p, :count], lent.tables.cell[p].reshape(-1, chunk, len(parts))[:count]
        inside = (cell >= start[:, None]) & (cell < start[:, None] + placed.tile)
        assert (inside | (cell < 0)).all()


def test_nothing_is_lent_where_loads_are_even() -> None:
    """Catches rounds without need, and tables that change where nothing is lent."""
    for turns, parts in ((np.random.default_rng(1).random((40000, 2)), (2, 2)), (np.array([[0.1, 0.2]]), (1, 1))):
        placed = _laid(turns, 32, parts, 8, 32, 4)
        lent = lend(placed, 4, (64, 64))
        assert lent.rounds == () and lent.rows == 0
        assert (lent.order == placed.order).all()
        assert all((a == b).all() for a, b in zip(lent.tables, placed.tables, strict=True))
