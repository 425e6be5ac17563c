"""Lending: balanced devices, and the values and grids that owners alone would have."""

import math

import numpy as np
import pytest

from meshfft.numerics.window import fitted
from meshfft.operators.lending import Lent, lend
from meshfft.operators.placing import Placed, Tables, place

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
    return place(turns, (n,) * len(parts), grid, block, parts, made, slack, (tile,) * len(parts), chunk, C128)


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
    lent = lend(placed, 4)
    mean, devices = placed.tables.count.mean(), math.prod(parts)
    assert placed.tables.count.max() / mean == pytest.approx(before, rel=0.1)
    assert lent.load.sum() == placed.tables.count.sum() and lent.load.max() <= 1.15 * mean
    assert (lent.own.count + lent.borrowed.count == lent.load).all()
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


def _stacks(lent: Lent, blocks: np.ndarray) -> np.ndarray:
    """What every device receives: its stack."""
    deep = [np.zeros((len(blocks), 0, *lent.stack[1:]), complex)]
    for pairs, start in lent.rounds:
        size = lent.stack[0] // sum(r.start.shape[1] for r in lent.rounds)
        tile, tiles = (size, *lent.stack[1:]), start.shape[1]
        came = np.zeros((len(blocks), tiles * size, *lent.stack[1:]), complex)
        for sender, receiver in pairs:
            cut = [blocks[sender][_halved(blocks, s, tile)] for s in start[sender]]
            came[receiver] = np.concatenate(cut)
        deep.append(came)
    return np.concatenate(deep, 1)


def _returned(lent: Lent, stacks: np.ndarray, blocks: np.ndarray) -> None:
    """Adds what lies in stacks to the blocks that it came from."""
    size, at = lent.stack[0] // sum(r.start.shape[1] for r in lent.rounds), 0
    for pairs, start in lent.rounds:
        for sender, receiver in pairs:
            for i, s in enumerate(start[sender]):
                tile = stacks[receiver][at + i * size : at + (i + 1) * size]
                blocks[sender][_halved(blocks, s, tile.shape)] += tile
        at += start.shape[1] * size


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
    lent = lend(placed, reach)
    assert lent.rounds and lent.load.max() <= 1.15 * placed.tables.count.mean() + 1
    shape = tuple(2 * n // p + reach - 1 for p in parts)
    blocks = rng.standard_normal((devices, *shape)) + 1j * rng.standard_normal((devices, *shape))
    stacks = _stacks(lent, blocks)
    assert stacks.shape[1:] == lent.stack
    unlent, both, values = [], [], rng.standard_normal(len(turns)) + 0j
    slots = [t.cell.shape[1] for t in (placed.tables, lent.own, lent.borrowed)]
    for p in range(devices):
        unlent.append(_interpolated(blocks[p], placed.tables, p, width, slack) * placed.tables.phase[p])
        both.append(_interpolated(blocks[p], lent.own, p, width, slack) * lent.own.phase[p])
        both.append(_interpolated(stacks[p], lent.borrowed, p, width, slack) * lent.borrowed.phase[p])
    assert np.abs(np.concatenate(unlent)[placed.order] - np.concatenate(both)[lent.order]).max() < 1e-13
    given = np.zeros(devices * slots[0], complex)
    given[placed.order] = values
    lends = np.zeros(devices * (slots[1] + slots[2]), complex)
    lends[lent.order] = values
    given, lends = given.reshape(devices, -1), lends.reshape(devices, -1)
    truth = np.array([_spread(given[p], placed.tables, p, shape, width, slack) for p in range(devices)])
    grids = np.array([_spread(lends[p, : slots[1]], lent.own, p, shape, width, slack) for p in range(devices)])
    back = [_spread(lends[p, slots[1] :], lent.borrowed, p, lent.stack, width, slack) for p in range(devices)]
    _returned(lent, np.array(back), grids)
    assert np.abs(grids - truth).max() < 1e-13
    for p in range(devices):  # chunks lie in their tiles of the stack, whole and one after the other
        count = lent.borrowed.count[p]
        start, cell = lent.borrowed.start[p, :count], lent.borrowed.cell[p].reshape(-1, chunk, len(parts))[:count]
        inside = (cell >= start[:, None]) & (cell < start[:, None] + placed.tile)
        assert (inside | (cell < 0)).all() and (np.diff(start[:, 0]) >= 0).all() and (start[:, 1:] == 0).all()


def test_nothing_is_lent_where_loads_are_even() -> None:
    """Catches rounds without need, and tables that change where nothing is lent."""
    for turns, parts in ((np.random.default_rng(1).random((40000, 2)), (2, 2)), (np.array([[0.1, 0.2]]), (1, 1))):
        placed = _laid(turns, 32, parts, 8, 32, 4)
        lent = lend(placed, 4)
        assert lent.rounds == () and lent.stack[0] == 0 and lent.borrowed.cell.shape[1] == 0
        assert (lent.order == placed.order).all()
        assert all((a == b).all() for a, b in zip(lent.own, placed.tables, strict=True))
