"""A network of two levels: domains of near devices (TPU slices, GPU nodes, hosts), joined by a slower network.

A message inside a domain uses its torus or switch; one to another domain uses its device's adapter, which several
devices may share. Its load per device is

    bytes of all messages that leave through the adapter / devices that share it

Invariant: with one domain nothing leaves, and the loads are those of its torus.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from .torus import Order, Torus, all_pairs, hops, loads, ring, rings_of

EFFICIENCY = 0.7  # assumed share of the busiest link's rate in an all-to-all of many messages on a torus
STAGES = ("inner all-to-all", "outer all-to-all")  # of an all-to-all inside each domain, then between domains


class Network(NamedTuple):
    """The device at each position of a mesh; `kind` names the rule."""

    torus: Torus | None  # of each domain; None if its devices are linked alike
    order: Order  # device in its domain
    names: tuple[str, ...]
    kind: str = "given"
    domains: Order | None = None  # domain; None if there is one
    sharing: int = 1  # as Chip.sharing

    def numbers(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(map(self.names.index, axes))

    @property
    def domain(self) -> np.ndarray:
        return np.zeros(self.order.sizes, int) if self.domains is None else self.domains.array

    @property
    def several(self) -> int:
        return 1 if self.domains is None else int(self.domain.max()) + 1

    @property
    def outside(self) -> tuple[int, ...] | None:
        """Domains along each mesh axis; None if they are no grid of equal blocks."""
        grid = self.domain
        for axis, size in enumerate(grid.shape):
            firsts = {n: np.arange(size) // n * n for n in range(size, 0, -1) if size % n == 0}
            inner = next(n for n, first in firsts.items() if (grid == grid.take(first, axis)).all())
            grid = grid.take(range(0, size, inner), axis)
        return grid.shape if grid.size == self.several else None


class Load(NamedTuple):
    """One collective's load on both levels, in blocks of one device."""

    inner: float = 0.0  # over the busiest link of a domain
    far: int = 0  # hops there, in sequence
    outer: float = 0.0  # through the busiest adapter, per device that shares it
    messages: int = 0  # that one device sends to other domains


@functools.lru_cache(maxsize=4096)
def collective_load(network: Network, kind: str, axes: tuple[int, ...]) -> Load:
    torus, order, whole = network.torus, network.order, kind == "all-to-all"
    positions, count = np.arange(order.array.size).reshape(order.sizes), math.prod(order.sizes[a] for a in axes)
    if whole and network.domains is None and count == positions.size and order.array.ndim > 1:  # in any order the same
        return collective_load(network._replace(order=Order.of(positions.ravel())), kind, (0,))
    if kind.endswith("ring"):
        ways = [1, -1] if kind == "two-way ring" and count > 2 else [1]
        sources, targets = np.concatenate([ring(positions, axes, way) for way in ways], axis=1)
        return pair_load(network, sources, targets)
    sources, targets = all_pairs(positions, axes)
    parts = float(count)
    if not whole:
        where, seat = network.domain.ravel(), _seats(network, positions, axes)
        within = where[sources] == where[targets]
        inside = kind == STAGES[0]
        chosen = within if inside else ~within & (seat[sources] == seat[targets])
        sources, targets = sources[chosen], targets[chosen]
        parts = np.bincount(sources).max(initial=0) + 1.0
    load = pair_load(network, sources, targets, 1 / parts)
    if torus is None:
        return load
    if load.messages:  # the compiler sends all of it, even a device's own part, through the hosts
        return Load(outer=1.0, messages=load.messages)
    return load._replace(inner=load.inner / EFFICIENCY, far=sum(torus.shape) // 2)


def pair_load(network: Network, sources: np.ndarray, targets: np.ndarray, blocks: float = 1.0) -> Load:
    """Load of messages of so many blocks between mesh positions, all at once."""
    where, device, torus = network.domain.ravel(), network.order.array.ravel(), network.torus
    leaves = where[sources] != where[targets]
    near = sources[~leaves], targets[~leaves]
    if torus is None:
        inner, far = float(np.bincount(near[0]).max(initial=0)) * blocks, int(near[0].size > 0)
    else:
        each = [[one[where[near[0]] == domain] for one in near] for domain in range(network.several)]
        every = [(device[of], device[to]) for of, to in each]
        inner = max(float(loads(torus, of, to, blocks).max(initial=0)) for of, to in every)
        far = max(max(hops(torus, of, to), of.size > 0) for of, to in every)  # cores of a chip are one hop apart
    gone, size = sources[leaves], where.size // network.several
    sharing = network.sharing or size
    adapters = (where * size + device) // sharing
    busiest = int(np.bincount(adapters[gone]).max(initial=0))
    return Load(inner, far, busiest * blocks / sharing, int(np.bincount(gone).max(initial=0)))


@functools.lru_cache(maxsize=1024)
def ring_domains(network: Network, axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Each domain's positions in a ring; () if rings differ, or a stage would have no messages."""
    rings = network.domain.ravel()[rings_of(np.arange(network.order.array.size).reshape(network.order.sizes), axes)]
    first = (rings[:, :, None] == rings[:, None, :]).argmax(2)  # the first of its domain, in each ring
    groups = tuple(tuple(map(int, np.flatnonzero(first[0] == one))) for one in np.unique(first[0]))
    alike = bool((first == first[0]).all()) and len({len(group) for group in groups}) == 1
    return groups if alike and len(groups) > 1 and len(groups[0]) > 1 else ()


def _seats(network: Network, positions: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Each position's number among those of its domain in its ring."""
    rings, where, seats = rings_of(positions, axes), network.domain.ravel(), np.zeros(positions.size, int)
    alike = where[rings][:, :, None] == where[rings][:, None, :]
    seats[rings.ravel()] = np.tril(alike, -1).sum(2).ravel()
    return seats
