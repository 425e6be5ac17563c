"""Load balancing: devices with too many points lend tiles of the grid to devices with too few.

    every round:     tiles[i] = block[start[i] : start[i] + tile + reach - 1], in one permute
    every device:    block' = block, followed in its first dimension by rows of all received tiles

A crowded owner sends tiles with halo; the helper interpolates and holds the values. Tiles that pad a message have no
points.
"""

import dataclasses
import heapq
import math
from typing import NamedTuple

import numpy as np

from .binning import Placed, Tables

GOAL = 1.1  # load over the mean that an owner keeps and a helper accepts
Pairs = tuple[tuple[int, int], ...]  # of a permute: each device sends and receives at most one message


@dataclasses.dataclass(frozen=True, eq=False)
class Lent:
    tables: Tables[np.ndarray]  # of chunks that each device keeps, then of borrowed ones
    rounds: tuple[tuple[Pairs, int], ...]  # and the tiles of a message, appended in this order
    start: np.ndarray  # first cells (devices, tiles, d) of sent tiles, in the block with halo; 0 for padding
    order: np.ndarray  # slot of each point


class _Loan(NamedTuple):
    owner: int
    helper: int
    chunk: np.ndarray  # numbers among the owner's chunks
    tile: np.ndarray  # of every chunk, from 0
    start: np.ndarray  # first cells (tiles, d), in the owner's block


def lend(placed: Placed, reach: int, block: tuple[int, ...]) -> Lent:
    """Lends chunks until no device has much more than the mean number.

    A point touches up to `reach` cells along each dimension; `block` is the shape of a device's block with halo.
    """
    tables, devices = placed.tables, len(placed.tables.count)
    each, chunk = tables.start.shape[1], placed.chunk
    rounds = _rounds(_loans(tables))
    sizes = [max(len(loan.start) for loan in loans) for loans in rounds]
    start, behind = np.zeros((devices, sum(sizes), len(placed.tile)), np.int32), 0
    kept = np.arange(each) < tables.count[:, None]
    taken: list[list[np.ndarray]] = [[np.zeros((2, 0), np.int64)] for _ in range(devices)]
    for loans, size in zip(rounds, sizes, strict=True):
        for loan in loans:
            kept[loan.owner, loan.chunk] = False
            taken[loan.helper].append(np.stack([loan.owner * each + loan.chunk, behind + loan.tile]))
            start[loan.owner, behind : behind + len(loan.start)] = loan.start
        behind += size
    theirs = [np.concatenate(loans, 1) for loans in taken]
    own = [np.flatnonzero(row) + device * each for device, row in enumerate(kept)]
    source = _ragged([np.concatenate([mine, pair[0]]) for mine, pair in zip(own, theirs, strict=True)])
    tile = _ragged([np.concatenate([0 * mine - 1, pair[1]]) for mine, pair in zip(own, theirs, strict=True)])
    _, at = appended(behind, tuple(t + reach - 1 for t in placed.tile), block)
    at[:, 0] += block[0]
    return Lent(
        _moved_to(_chosen(tables, source, chunk), tile, at, chunk),
        tuple((tuple(loan[:2] for loan in loans), size) for loans, size in zip(rounds, sizes, strict=True)),
        start,
        _moved(placed.order, source, each, chunk),
    )


def appended(tiles: int, cells: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, np.ndarray]:
    """Rows behind a block that hold the tiles side by side, and each tile's first cell, from the first of them."""
    beside = [size // cell for size, cell in zip(block[1:], cells[1:], strict=True)]
    bands = -(-tiles // max(math.prod(beside), 1))
    index = np.stack(np.unravel_index(np.arange(tiles), (max(bands, 1), *beside)), 1)
    return bands * cells[0], (index * np.array(cells)).astype(np.int32)


def _loans(tables: Tables[np.ndarray]) -> list[_Loan]:
    mean = tables.count.mean()
    top = max(math.ceil(mean), int(GOAL * mean))
    rooms = [(int(load) - top, device) for device, load in enumerate(tables.count) if load < top]
    heapq.heapify(rooms)
    loans = []
    for owner in np.argsort(-tables.count, kind="stable"):
        chunks = _fullest_first(tables.start[owner, : tables.count[owner]])
        excess = max(0, len(chunks) - top)
        while excess:
            room, helper = heapq.heappop(rooms)
            many = min(-room, excess)
            loans.append(_loan(tables, int(owner), helper, chunks[:many]))
            chunks, excess = chunks[many:], excess - many
            if -room > many:
                heapq.heappush(rooms, (room + many, helper))
    return loans


def _fullest_first(start: np.ndarray) -> np.ndarray:
    tile = np.cumsum(_changes(start)) - 1
    return np.argsort(-np.bincount(tile)[tile], kind="stable")


def _loan(tables: Tables[np.ndarray], owner: int, helper: int, chunk: np.ndarray) -> _Loan:
    start = tables.start[owner, chunk]
    new = _changes(start)
    return _Loan(owner, helper, chunk, np.cumsum(new) - 1, start[new])


def _changes(start: np.ndarray) -> np.ndarray:
    return np.concatenate([[True], (start[1:] != start[:-1]).any(1)])[: len(start)]


def _rounds(loans: list[_Loan]) -> list[list[_Loan]]:
    """Rounds of loans of similar size: largest first, each in the first round with both devices free."""
    rounds: list[list[_Loan]] = []
    busy: list[set[int]] = []
    for loan in sorted(loans, key=lambda loan: -len(loan.start)):
        pair = {loan.owner, loan.helper}
        at = next((i for i, devices in enumerate(busy) if not devices & pair), len(rounds))
        if at == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[at].append(loan)
        busy[at] |= pair
    return rounds


def _ragged(rows: list[np.ndarray]) -> np.ndarray:
    table = np.full((len(rows), max(1, *map(len, rows))), -1, np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def _chosen(tables: Tables[np.ndarray], source: np.ndarray, chunk: int) -> Tables[np.ndarray]:
    """Tables of the chunks `source` (devices, chunks); -1 is empty."""

    def rows(values: np.ndarray, slots: int, empty: int) -> np.ndarray:
        width = values.shape[2:]
        taken = values.reshape(-1, slots, *width).take(source, 0)
        taken[source < 0] = empty
        return taken.reshape(len(source), source.shape[1] * slots, *width)

    return Tables(
        rows(tables.cell, chunk, -1),
        rows(tables.offset, chunk, 0),
        rows(tables.start, 1, 0),
        (source >= 0).sum(1).astype(np.int32),
        rows(tables.phase, chunk, 0),
    )


def _moved_to(tables: Tables[np.ndarray], tile: np.ndarray, at: np.ndarray, chunk: int) -> Tables[np.ndarray]:
    borrowed = tile >= 0
    start = tables.start.copy()
    start[borrowed] = at[tile[borrowed]]
    cell = tables.cell + np.repeat(start - tables.start, chunk, 1)
    return tables._replace(cell=np.where(tables.cell < 0, -1, cell), start=start)


def _moved(order: np.ndarray, source: np.ndarray, each: int, chunk: int) -> np.ndarray:
    now = np.empty(len(source) * each, np.int64)
    full = source.ravel() >= 0
    now[source.ravel()[full]] = np.flatnonzero(full)
    before, slot = np.divmod(order, chunk)
    return now[before] * chunk + slot
