"""Orders of devices on a mesh: those of `jax.make_mesh`, or rings of neighbours.

Every axis of the torus, and the cores of a chip, are split into factors, outermost first. Each factor belongs to one
mesh axis, which walks the box of its factors:

    coordinates(i_1, i_2, ...) = walk_1[i_1] + walk_2[i_2] + ...

Invariant: every order is a permutation of all devices, and the hop load of a ring depends on its own walk alone.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.experimental.mesh_utils import create_device_mesh

from .torus import Order, Torus, hops, loads, ring

SPLITS = 20_000  # most splits that a search tries, fewest split axes first
Sizes = tuple[int, ...]
Cost = tuple[float, ...]
INFINITE: Cost = (math.inf, math.inf, math.inf)


class Digit(NamedTuple):
    """A factor of a torus axis, its size and stride; the axis after the last one is that of the cores."""

    axis: int
    size: int
    stride: int


@dataclasses.dataclass(frozen=True)
class _Device:
    id: int
    coords: Sizes
    core_on_chip: int
    device_kind: str
    platform: str = "tpu"
    process_index: int = 0
    slice_index: int = 0


@functools.lru_cache(maxsize=256)
def jax_order(torus: Torus, sizes: Sizes, kind: str) -> Order:
    """The order of `jax.make_mesh` on devices of a kind such as "TPU v5" (v5p), or of its remedy if it refuses."""
    numbers = np.arange(torus.size)
    coords = np.pad(torus.coords(numbers), [(0, 0), (0, 3 - len(torus.shape))])
    devices = [_Device(n, (*map(int, at),), n % torus.cores, kind) for n, at in enumerate(coords)]
    for split in (kind in ("TPU v5 lite", "TPU v5e"), True):
        try:
            mesh = create_device_mesh(sizes, devices, allow_split_physical_axes=split)
        except (NotImplementedError, AssertionError):  # asserts that a v4 or v5p chip is one device
            continue
        return Order.of(np.array([device.id for device in mesh.flat]).reshape(sizes))
    return Order.of(numbers.reshape(sizes))


@functools.lru_cache(maxsize=256)
def neighbour_order(torus: Torus, sizes: Sizes) -> Order:
    """The order whose rings load the links least, among at most SPLITS splits.

    Compares the busiest link's load per hop one way, then both ways, then the longest route. Each is summed over mesh
    axes, times (p - 1).
    """
    best, least = tuple[tuple[Digit, ...], ...](), INFINITE
    for digits in itertools.islice(_splits(torus, sizes), SPLITS):
        cost = _total(torus, digits, least)
        if cost < least:
            best, least = digits, cost
    coords = np.zeros((1, len(torus.shape) + 1), int)
    for own in best:
        coords = (coords[:, None] + _best_walk(torus, own)[1]).reshape(-1, coords.shape[1])
    return Order.of(torus.numbers(coords[:, :-1], coords[:, -1]).reshape(sizes))


def _total(torus: Torus, digits: Sequence[tuple[Digit, ...]], least: Cost) -> Cost:
    costs = [_bound(torus, own) for own in digits]
    for j, own in enumerate(digits):
        if _sum(costs) >= least:
            return INFINITE
        costs[j] = _best_walk(torus, own)[0]
    return _sum(costs)


def _sum(costs: Sequence[Cost]) -> Cost:
    return tuple(map(sum, zip(*costs, strict=True)))


def _splits(torus: Torus, sizes: Sizes) -> Iterator[tuple[tuple[Digit, ...], ...]]:
    """The digits of every mesh axis, for every split of the torus axes, fewest digits first."""
    rows = itertools.product(*(_factors(size, sizes) for size in (*torus.shape, torus.cores)))
    grids = [grid for grid in rows if tuple(map(math.prod, zip(*grid, strict=True))) == sizes]
    for grid in sorted(grids, key=lambda grid: sum(f > 1 for row in grid for f in row)):
        for stacks in itertools.product(*(itertools.permutations(j for j, f in enumerate(r) if f > 1) for r in grid)):
            yield _digits(grid, stacks, len(sizes))


def _factors(size: int, sizes: Sizes) -> list[Sizes]:
    if not sizes:
        return [()] if size == 1 else []
    shares = (f for f in range(1, sizes[0] + 1) if sizes[0] % f == size % f == 0)
    return [(f, *rest) for f in shares for rest in _factors(size // f, sizes[1:])]


def _digits(grid: Sequence[Sizes], stacks: Sequence[Sequence[int]], count: int) -> tuple[tuple[Digit, ...], ...]:
    digits: list[list[Digit]] = [[] for _ in range(count)]
    for axis, (row, stack) in enumerate(zip(grid, stacks, strict=True)):
        stride = math.prod(row)
        for j in stack:
            stride //= row[j]
            digits[j].append(Digit(axis, row[j], stride))
    return tuple(map(tuple, digits))


@functools.lru_cache(maxsize=4096)
def _best_walk(torus: Torus, digits: tuple[Digit, ...]) -> tuple[Cost, np.ndarray]:
    sizes = (*torus.shape, torus.cores)
    coords = np.indices(sizes).reshape(len(sizes), -1).T
    first = [coords[:, digit.axis] // digit.stride % digit.size == 0 for digit in digits]
    starts, bound = coords[np.all(first, axis=0)], _bound(torus, digits)  # starts of the rings: all digits 0
    least, best = INFINITE, np.zeros((1, len(sizes)), int)
    for walk in _walks(len(torus.shape), digits):
        cost = _cost(torus, starts, walk, least)
        if cost < least:
            least, best = cost, walk
        if least <= bound:
            break
    return least, best


def _bound(torus: Torus, digits: Sequence[Digit]) -> Cost:
    """A lower bound for walks with these digits, from the mean load by the shortest tours of each digit's values."""
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
    """Some walks over a box by steps to neighbours, with cycles if a side is even."""
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
    if columns % 2 == 0:  # up and down all rows but the first, and back along the first
        column, row = _snake(columns, rows - 1)
        yield np.append(row + 1, np.zeros(columns, int)), np.append(column, np.arange(columns)[::-1])


def _snake(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    row, column = np.divmod(np.arange(rows * columns), columns)
    return row, np.where(row % 2, columns - 1 - column, column)
