"""A torus of chips: bytes over every link for a set of messages, and the order of devices that loads links least.

A message follows axis 0 first, then axis 1, and so on, the shorter way round if an axis wraps, half each way if both
are equally long. Devices of one chip share its links. Invariant: the loads of all links sum to the bytes times the
links passed.

To make an order, every axis of the torus, and the cores of a chip, are split into factors, outermost first. Each factor
belongs to one mesh axis, which walks the box of its factors:

    coordinates(i_1, i_2, ...) = walk_1[i_1] + walk_2[i_2] + ...

Invariant: every order is a permutation of all devices, and the hop load of a ring depends on its own walk alone.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

SPLITS = 20_000  # most splits that a search tries, fewest split axes first
Sizes = tuple[int, ...]
Cost = tuple[float, ...]
INFINITE: Cost = (math.inf, math.inf, math.inf)


class Torus(NamedTuple):
    """Chips along each axis, whether each axis wraps, and devices per chip.

    Device d = chip * cores + core. JAX lists chips by host, 2 x 2 chips in the plane of axes 0 and 1, axis 0 fastest
    within a host and among hosts, axes 2 and up slowest. A wrapped axis of two chips has two links between them.
    """

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    cores: int = 1

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.cores

    def coords(self, devices: np.ndarray) -> np.ndarray:
        return _listed(self.shape)[0][np.asarray(devices) // self.cores]

    def numbers(self, coords: np.ndarray, core: np.ndarray | int = 0) -> np.ndarray:
        return _listed(self.shape)[1][tuple(np.moveaxis(np.asarray(coords), -1, 0))] * self.cores + core


class Order(NamedTuple):
    """The device at each position of a mesh; bytes, as Python caches their hash."""

    sizes: tuple[int, ...]
    devices: bytes

    @classmethod
    def of(cls, devices: np.ndarray) -> "Order":
        return cls(np.shape(devices), np.ascontiguousarray(devices, np.int32).tobytes())

    @property
    def array(self) -> np.ndarray:
        return np.frombuffer(self.devices, np.int32).reshape(self.sizes)


def loads(torus: Torus, sources: np.ndarray, targets: np.ndarray, sizes: np.ndarray | float) -> np.ndarray:
    """Bytes over every directed link (dims, 2, *torus.shape) for messages sent all at once.

    [a, 0] at a chip is sent along axis a towards higher coordinates, [a, 1] towards lower ones.
    """
    start, end = (torus.coords(devices).reshape(-1, len(torus.shape)) for devices in (sources, targets))
    weights = np.broadcast_to(np.asarray(sizes, float), np.shape(sources)).ravel()
    return np.stack([_along(torus, axis, start, end, weights) for axis in range(len(torus.shape))])


def hops(torus: Torus, sources: np.ndarray, targets: np.ndarray) -> int:
    ahead = torus.coords(targets) - torus.coords(sources)
    around = np.where(torus.wraps, np.minimum(ahead % torus.shape, -ahead % torus.shape), abs(ahead))
    return int(around.sum(-1).max(initial=0))


def ring(order: np.ndarray, axes: tuple[int, ...], step: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of one hop of all rings; data is sent from `step` (1 or -1) ahead."""
    rings = rings_of(order, axes)
    return np.roll(rings, -step, axis=1).ravel(), rings.ravel()


def all_pairs(order: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of an all-to-all over mesh axes: all ordered pairs in each ring."""
    rings = rings_of(order, axes)
    source, target = np.nonzero(~np.eye(rings.shape[1], dtype=bool))
    return rings[:, source].ravel(), rings[:, target].ravel()


def rings_of(order: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    rest = [axis for axis in range(order.ndim) if axis not in axes]
    return order.transpose(*rest, *axes).reshape(-1, math.prod(order.shape[a] for a in axes))


def _along(torus: Torus, axis: int, start: np.ndarray, end: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Bytes (2, *shape) over one axis's links; earlier axes are done, later ones are not."""
    size, others = torus.shape[axis], (*torus.shape[:axis], *torus.shape[axis + 1 :])
    line = np.zeros(len(start), int)
    for other, chips in enumerate(torus.shape):
        if other != axis:
            line = line * chips + (end if other < axis else start)[:, other]
    key = (line * size + start[:, axis]) * size + end[:, axis]
    moved = np.bincount(key, weights, math.prod(others) * size * size).reshape(-1, size, size)
    up = moved * _upward(size, torus.wraps[axis])
    down = moved - up
    rise, fall = up.sum(2) - up.sum(1), down.sum(1) - down.sum(2)
    over, under = np.tril(up, -1).sum((1, 2)), np.triu(down, 1).sum((1, 2))
    flows = np.stack((rise.cumsum(1) + over[:, None], fall.cumsum(1) - fall + under[:, None]))
    return np.moveaxis(flows.reshape(2, *others, size), -1, axis + 1)


@functools.lru_cache(maxsize=64)
def _upward(size: int, wraps: bool) -> np.ndarray:
    """Share [from, to] of a message on one line that goes to higher coordinates."""
    ahead = np.subtract.outer(np.arange(size), np.arange(size)).T
    return (np.sign(-ahead % size - ahead % size) + 1) / 2 if wraps else np.where(ahead >= 0, 1.0, 0.0)


@functools.lru_cache(maxsize=64)
def _listed(shape: Sizes) -> tuple[np.ndarray, np.ndarray]:
    coords, chips = np.indices(shape).reshape(len(shape), -1), np.empty(shape, int)
    host, within = coords[:2] // 2, coords[:2] % 2
    coords = coords[:, np.lexsort((*within, *host, *coords[2:]))]
    chips[tuple(coords)] = np.arange(chips.size)
    return coords.T, chips


class Digit(NamedTuple):
    """A factor of a torus axis, or, after the last axis, of the cores."""

    axis: int
    size: int
    stride: int


@functools.lru_cache(maxsize=256)
def neighbour_order(torus: Torus, sizes: Sizes) -> Order:
    """The order whose rings load the links least, among at most SPLITS splits.

    Compares the busiest link's load per hop one way, both ways, then the longest route, each summed over mesh axes
    times (p - 1).
    """
    best, least = tuple[tuple[Digit, ...], ...](), INFINITE
    for digits in itertools.islice(_splits(torus, sizes), SPLITS):
        costs = [_bound(torus, own) for own in digits]
        for j, own in enumerate(digits):
            if _sum(costs) >= least:
                break
            costs[j] = _best_walk(torus, own)[0]
        if _sum(costs) < least:
            best, least = digits, _sum(costs)
    coords = np.zeros((1, len(torus.shape) + 1), int)
    for own in best:
        coords = (coords[:, None] + _best_walk(torus, own)[1]).reshape(-1, coords.shape[1])
    return Order.of(torus.numbers(coords[:, :-1], coords[:, -1]).reshape(sizes))


def _sum(costs: Sequence[Cost]) -> Cost:
    return tuple(map(sum, zip(*costs, strict=True)))


def _splits(torus: Torus, sizes: Sizes) -> Iterator[tuple[tuple[Digit, ...], ...]]:
    """The digits of every mesh axis, for every split of the torus axes, fewest first."""
    rows = itertools.product(*(factors(size, sizes) for size in (*torus.shape, torus.cores)))
    grids = [grid for grid in rows if tuple(map(math.prod, zip(*grid, strict=True))) == sizes]
    for grid in sorted(grids, key=lambda grid: sum(f > 1 for row in grid for f in row)):
        for stacks in itertools.product(*(itertools.permutations(j for j, f in enumerate(r) if f > 1) for r in grid)):
            digits: list[list[Digit]] = [[] for _ in sizes]
            for axis, (row, stack) in enumerate(zip(grid, stacks, strict=True)):
                stride = math.prod(row)
                for j in stack:
                    stride //= row[j]
                    digits[j].append(Digit(axis, row[j], stride))
            yield tuple(map(tuple, digits))


def factors(size: int, sizes: Sizes) -> list[Sizes]:
    if not sizes:
        return [()] if size == 1 else []
    shares = (f for f in range(1, sizes[0] + 1) if sizes[0] % f == size % f == 0)
    return [(f, *rest) for f in shares for rest in factors(size // f, sizes[1:])]


@functools.lru_cache(maxsize=4096)
def _best_walk(torus: Torus, digits: tuple[Digit, ...]) -> tuple[Cost, np.ndarray]:
    sizes = (*torus.shape, torus.cores)
    coords = np.indices(sizes).reshape(len(sizes), -1).T
    first = [coords[:, digit.axis] // digit.stride % digit.size == 0 for digit in digits]
    starts, bound = coords[np.all(first, axis=0)], _bound(torus, digits)  # of the rings: all digits 0
    least, best = INFINITE, np.zeros((1, len(sizes)), int)
    for walk in _walks(len(torus.shape), digits):
        cost = _cost(torus, starts, walk, least)
        if cost < least:
            least, best = cost, walk
        if least <= bound:
            break
    return least, best


def _bound(torus: Torus, digits: Sequence[Digit]) -> Cost:
    """A lower bound for walks with these digits: the mean load by the shortest tours of each digit's values."""
    size = math.prod(digit.size for digit in digits)
    chips = [digit for digit in digits if digit.axis < len(torus.shape)]
    if not chips:
        return (0.0, 0.0, 0.0)
    backs = [(digit, 2 * (digit.size - 1) * digit.stride) for digit in chips]
    tours = [min(back, torus.shape[one.axis]) if torus.wraps[one.axis] else back for one, back in backs]
    mean = max(tours) * torus.cores / size / 2
    alike = torus.cores * math.prod(digit.size for digit in chips) / size
    return (size - 1) * max(mean, alike), (size - 1) * max(2 * mean if size > 2 else mean, alike), size - 1


def _cost(torus: Torus, starts: np.ndarray, walk: np.ndarray, least: Cost) -> Cost:
    """(p - 1) times the load of a hop one way, both ways, and its farthest pair; infinite if not below `least`."""
    coords = starts[:, None] + walk
    rings = torus.numbers(coords[..., :-1], coords[..., -1])
    ahead, behind, far = ring(rings, (1,)), ring(rings, (1,), -1), len(walk) - 1
    one = loads(torus, *ahead, 1)
    if far * one.max(initial=0) > least[0]:
        return INFINITE
    both = one + loads(torus, *behind, 1) if len(walk) > 2 else one
    return far * float(one.max(initial=0)), far * float(both.max(initial=0)), far * hops(torus, *ahead)


def _walks(dims: int, digits: Sequence[Digit]) -> Iterator[np.ndarray]:
    chips = [digit for digit in digits if digit.axis < dims]
    core = next((digit for digit in digits if digit.axis == dims), Digit(dims, 1, 1))
    for walk in _box_walks(tuple(digit.size for digit in chips)):
        steps = np.zeros((len(walk), core.size, dims + 1), int)
        steps[..., dims] = np.arange(core.size) * core.stride
        for column, digit in zip(walk.T, chips, strict=True):
            steps[..., digit.axis] += column[:, None] * digit.stride
        yield steps.reshape(-1, dims + 1)


@functools.lru_cache(maxsize=1024)
def _box_walks(box: Sizes) -> tuple[np.ndarray, ...]:
    """Walks over a box between neighbours, with cycles if a side is even."""
    line = np.arange(math.prod(box))[:, None]
    if len(box) < 2:
        folded = np.concatenate([line[::2], line[1::2][::-1]])  # out over the even numbers, back over the odd
        return (line, folded) if box else (line[:, :0],)
    walks = {}
    for slow, size in enumerate(box):
        rest = (*box[:slow], *box[slow + 1 :])
        for inner in _box_walks(rest)[: len(rest)]:
            for rows, columns in _plane_walks(size, len(inner)):
                walk = np.insert(inner[columns], slow, rows, axis=1)
                walks[walk.tobytes()] = walk
    return tuple(walks.values())


def _plane_walks(rows: int, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    yield _snake(rows, columns)
    if columns % 2 == 0:  # up and down all rows but the first, and back along it
        column, row = _snake(columns, rows - 1)
        yield np.append(row + 1, np.zeros(columns, int)), np.append(column, np.arange(columns)[::-1])


def _snake(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    row, column = np.divmod(np.arange(rows * columns), columns)
    return row, np.where(row % 2, columns - 1 - column, column)
