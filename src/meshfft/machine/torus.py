"""Bytes over every link of a torus of chips for a set of messages.

A message follows axis 0 first, then axis 1, and so on, the shorter way round if an axis wraps; half is sent each way if
both are equally long. Devices of one chip share its links.

Invariant: the loads of all links sum to the bytes times the links passed, over all messages.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

Pairs = tuple[np.ndarray, np.ndarray]


class Torus(NamedTuple):
    """Chips along each axis, whether each axis wraps, and devices per chip.

    Device d = chip * cores + core. JAX lists chips by host, 2 x 2 chips in the plane of axes 0 and 1, axis 0 fastest
    within a host and among hosts, axes 2 and up slowest: (0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0) ... (seen in
    `jax.experimental.topologies` for v2 to tpu7x). A wrapped axis of two chips has two links between them.
    """

    shape: tuple[int, ...]
    wraps: tuple[bool, ...]
    cores: int = 1

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.cores

    def coords(self, devices: np.ndarray) -> np.ndarray:
        return _coords(self.shape)[np.asarray(devices) // self.cores]

    def numbers(self, coords: np.ndarray, core: np.ndarray | int = 0) -> np.ndarray:
        return _chips(self.shape)[tuple(np.moveaxis(np.asarray(coords), -1, 0))] * self.cores + core


class Order(NamedTuple):
    """The device at each position of a mesh; bytes, since Python caches their hash, so it is a cheap cache key."""

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


def ring(order: np.ndarray, axes: tuple[int, ...], step: int = 1) -> Pairs:
    """Sources and targets of one hop of all rings: a device receives from the one `step` (1 or -1) ahead."""
    rings = _rings(order, axes)
    return np.roll(rings, -step, axis=1).ravel(), rings.ravel()


def exchange(order: np.ndarray, axes: tuple[int, ...]) -> Pairs:
    """Sources and targets of an all-to-all over mesh axes: all ordered pairs of different devices in each ring."""
    rings = _rings(order, axes)
    source, target = np.nonzero(~np.eye(rings.shape[1], dtype=bool))
    return rings[:, source].ravel(), rings[:, target].ravel()


@functools.lru_cache(maxsize=4096)
def ring_load(torus: Torus, order: Order, axes: tuple[int, ...], two_way: bool = False) -> float:
    """Blocks over the busiest link in one hop; `two_way` sends one block each way, in a ring of two only once."""
    ways = [1, -1] if two_way and math.prod(order.sizes[a] for a in axes) > 2 else [1]
    sources, targets = np.concatenate([ring(order.array, axes, way) for way in ways], axis=1)
    return float(loads(torus, sources, targets, 1).max(initial=0))


def exchange_load(torus: Torus, order: Order, axes: tuple[int, ...]) -> float:
    """Blocks over the busiest link in an all-to-all over mesh axes, which sends 1/p of a block to each of p devices."""
    if math.prod(order.sizes[a] for a in axes) == torus.size:  # all send to all: positions do not matter
        order, axes = Order.of(np.arange(torus.size)), (0,)
    return _exchange_load(torus, order, tuple(sorted(axes)))


@functools.lru_cache(maxsize=4096)
def _exchange_load(torus: Torus, order: Order, axes: tuple[int, ...]) -> float:
    sources, targets = exchange(order.array, axes)
    return float(loads(torus, sources, targets, 1 / math.prod(order.sizes[a] for a in axes)).max(initial=0))


def _rings(order: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    rest = [axis for axis in range(order.ndim) if axis not in axes]
    return order.transpose(*rest, *axes).reshape(-1, math.prod(order.shape[a] for a in axes))


def _along(torus: Torus, axis: int, start: np.ndarray, end: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Bytes (2, *shape) over the links of one axis; earlier axes are done, later ones are not."""
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
    """Share [from, to] of a message on one line that travels towards higher coordinates."""
    ahead = np.subtract.outer(np.arange(size), np.arange(size)).T
    return (np.sign(-ahead % size - ahead % size) + 1) / 2 if wraps else np.where(ahead >= 0, 1.0, 0.0)


@functools.lru_cache(maxsize=64)
def _coords(shape: tuple[int, ...]) -> np.ndarray:
    coords = np.indices(shape).reshape(len(shape), -1)
    host, within = coords[:2] // 2, coords[:2] % 2
    return coords[:, np.lexsort((*within, *host, *coords[2:]))].T


@functools.lru_cache(maxsize=64)
def _chips(shape: tuple[int, ...]) -> np.ndarray:
    chips = np.empty(shape, int)
    chips[tuple(_coords(shape).T)] = np.arange(chips.size)
    return chips
