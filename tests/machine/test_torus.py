"""Loads on the links of a torus, against every message walked link by link, and the orders of devices on a mesh."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfft.machine.network import EFFICIENCY, Network, collective_load
from meshfft.machine.topology import jax_order
from meshfft.machine.torus import (
    Order,
    Torus,
    all_pairs,
    hops,
    loads,
    neighbour_order,
    ring,
)


def ring_load(torus: Torus, order: Order, axes: tuple[int, ...], two_way: bool = False) -> float:
    network = Network(torus, order, tuple("xyzw"[: len(order.sizes)]))
    return collective_load(network, "two-way ring" if two_way else "ring", axes).inner


def exchange_load(torus: Torus, order: Order, axes: tuple[int, ...]) -> float:
    network = Network(torus, order, tuple("xyzw"[: len(order.sizes)]))
    return EFFICIENCY * collective_load(network, "all-to-all", axes).inner


V3 = Torus((32, 32), (True, True), 2)
V5P = Torus((8, 8, 16), (True, True, True))
V5E = Torus((4, 4), (False, False))
KINDS = {V3: "TPU v3", V5P: "TPU v5", V5E: "TPU v5 lite"}
MESHES = [
    (V3, (8, 16, 16)),
    (V3, (32, 64)),
    (V3, (2048,)),
    (V5P, (8, 8, 16)),
    (V5P, (32, 32)),
    (V5P, (1024,)),
    (V5E, (4, 4)),
    (V5E, (16,)),
    (V5E, (2, 8)),
    (Torus((4, 4), (True, True), 2), (4, 8)),
    (Torus((6, 10), (True, True), 2), (12, 10)),
    (Torus((3, 5), (True, False)), (3, 5)),
    (Torus((2, 3), (False, False), 2), (1, 12, 1)),
    (Torus((1,), (True,)), (1,)),
    (Torus((1,), (True,)), ()),
]


class Messages(NamedTuple):
    """Messages on a torus."""

    torus: Torus
    sources: list[int]
    targets: list[int]
    sizes: list[int]


@st.composite
def messages(draw: st.DrawFn) -> Messages:
    """A small torus of one to three axes, ends joined or not, and messages between any of its devices."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    wraps = tuple(draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))))
    torus = Torus(shape, wraps, draw(st.integers(1, 3)))
    device = st.integers(0, torus.size - 1)
    sent = draw(st.lists(st.tuples(device, device, st.integers(1, 9)), min_size=1, max_size=12))
    return Messages(torus, *map(list, zip(*sent, strict=True)))


def _routes(torus: Torus, axis: int, place: int, goal: int) -> list[tuple[int, int, Fraction]]:
    """The steps, links and share of the one or two ways from place to goal along an axis."""
    size, ahead = torus.shape[axis], goal - place
    if not torus.wraps[axis]:
        return [(1 if ahead > 0 else -1, abs(ahead), Fraction(1))]
    ways = [(1, ahead % size), (-1, -ahead % size)]
    shortest = min(links for _, links in ways)
    best = [way for way in ways if way[1] == shortest]
    return [(*way, Fraction(1, len(best))) for way in best]


def _walked(sent: Messages) -> tuple[dict[tuple[int, ...], Fraction], int]:
    """Bytes over every link, and the farthest pair, from a walk of every message."""
    torus, farthest = sent.torus, 0
    crossed: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for source, target, size in zip(sent.sources, sent.targets, sent.sizes, strict=True):
        place, goal = (torus.coords(np.array(d)).tolist() for d in (source, target))
        distance = 0
        for axis in range(len(torus.shape)):
            routes = _routes(torus, axis, place[axis], goal[axis])
            distance += routes[0][1]
            for step, links, share in routes:
                at = list(place)
                for _ in range(links):
                    crossed[axis, (1 - step) // 2, *at] += share * size
                    at[axis] = (at[axis] + step) % torus.shape[axis]
            place[axis] = goal[axis]
        farthest = max(farthest, distance)
    return crossed, farthest


@given(messages())
def test_loads_are_those_of_messages_walked_link_by_link(sent: Messages) -> None:
    """Catches a wrong link, direction, axis order, way round or share of a tie, and a wrong distance."""
    crossed, farthest = _walked(sent)
    expected = np.zeros((len(sent.torus.shape), 2, *sent.torus.shape))
    for link, size in crossed.items():
        expected[link] = float(size)
    pairs = np.array(sent.sources), np.array(sent.targets)
    np.testing.assert_allclose(loads(sent.torus, *pairs, np.array(sent.sizes)), expected, atol=1e-12)
    assert hops(sent.torus, *pairs) == farthest


def test_chips_are_listed_by_hosts_of_two_by_two() -> None:
    """Catches chips numbered by rows: JAX lists a host's four chips together, and cores within a chip."""
    plane = Torus((4, 4), (True, True), 2)
    expected = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1), (0, 2)]
    assert plane.coords(np.arange(18)).tolist() == [list(at) for at in expected for _ in range(2)]
    box = Torus((2, 4, 2), (True,) * 3)
    assert box.coords(np.array([3, 4, 8])).tolist() == [[1, 1, 0], [0, 2, 0], [0, 0, 1]]


@pytest.mark.parametrize("torus", [V3, V5P, Torus((3, 5, 2), (True,) * 3, 2), Torus((7,), (False,))])
def test_numbers_undo_places(torus: Torus) -> None:
    """Catches a place that two chips share, and cores mixed up."""
    devices = np.arange(torus.size)
    assert np.array_equal(torus.numbers(torus.coords(devices), devices % torus.cores), devices)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_exchange_on_one_axis(size: int, cores: int) -> None:
    """Catches an all-to-all not of V k / 8 bytes a link on a ring of k chips of V bytes, and V k / 4 on a line.

    What stays on a chip crosses no link in either count: V/k of its V bytes.
    """
    order = Order.of(np.arange(size * cores))
    assert exchange_load(Torus((size,), (True,), cores), order, (0,)) == pytest.approx(cores * size / 8)
    assert exchange_load(Torus((size,), (False,), cores), order, (0,)) == pytest.approx(cores * size / 4)


@pytest.mark.parametrize("shape", [(4, 6), (8, 4), (4, 4, 8), (2, 4, 6)])
def test_exchange_over_a_whole_torus(shape: tuple[int, ...]) -> None:
    """Catches an all-to-all not of V k / 8 bytes over every link of every axis of k chips, in any order of devices."""
    torus = Torus(shape, (True,) * len(shape), 2)
    sources, targets = all_pairs(np.arange(torus.size), (0,))
    found = loads(torus, sources, targets, 1 / torus.size)
    for axis, size in enumerate(shape):
        np.testing.assert_allclose(found[axis], 2 * size / 8)
    shuffled = np.random.default_rng(1).permutation(torus.size).reshape(2, -1)
    assert exchange_load(torus, Order.of(shuffled), (1, 0)) == pytest.approx(2 * max(shape) / 8)
    assert loads(torus, *all_pairs(shuffled, (1, 0)), 1 / torus.size).max() == pytest.approx(2 * max(shape) / 8)


def test_rings_of_true_neighbours_load_a_block_a_link() -> None:
    """Catches a ring counted twice or on the wrong axis, two ways that do not use both directions, and the cores."""
    torus = Torus((6, 4), (True, True))
    places = np.moveaxis(np.indices((6, 4)), 0, -1)
    found = loads(torus, *ring(torus.numbers(places), (0,)), 1)
    assert (found[0, 1] == 1).all() and found.sum() == 24  # blocks arrive from the next, towards lower places
    order = Order.of(torus.numbers(places))
    assert [ring_load(torus, order, (a,), w) for a in (0, 1) for w in (False, True)] == [1, 1, 1, 1]
    pair = Torus((6,), (True,), 2)
    assert ring_load(pair, Order.of(np.arange(12)), (0,)) == 1  # core 0, core 1, next chip: half the hops are free
    assert ring_load(pair, Order.of(np.arange(12).reshape(6, 2)), (0,)) == 2  # both cores share the chip's links
    assert ring_load(pair, Order.of(np.arange(12).reshape(6, 2)), (1,)) == 0
    cores = Network(pair, Order.of(np.arange(12).reshape(6, 2)), ("x", "y"))
    assert collective_load(cores, "ring", (1,)).far == 1, "a hop between cores takes time, too"
    line = Network(Torus((4,), (False,)), Order.of(np.arange(4)), ("x",))
    assert collective_load(line, "ring", (0,)).far == 3, "the last sends to the first over all others"
    assert exchange_load(pair, Order.of(np.arange(12).reshape(6, 2)), (0,)) == pytest.approx(2 * (1 + 2 + 1.5) / 6)


def test_two_devices_hand_on_one_block_both_ways() -> None:
    """Catches a two-way ring of two devices that sends its one neighbour the block twice."""
    torus = Torus((2,), (False,))
    assert ring_load(torus, Order.of(np.arange(2)), (0,), True) == 1


def test_rings_and_exchanges_over_several_axes() -> None:
    """Catches axes joined in mesh order instead of the order given, and pairs of other groups."""
    order = np.arange(12).reshape(2, 3, 2)
    sources, targets = ring(order, (2, 0))
    assert set(zip(sources[:4].tolist(), targets[:4].tolist(), strict=True)) == {(6, 0), (1, 6), (7, 1), (0, 7)}
    back = ring(order, (2, 0), -1)
    assert set(zip(*map(list, back), strict=True)) == set(zip(targets, sources, strict=True))
    pairs = set(zip(*(side.tolist() for side in all_pairs(order, (1,))), strict=True))
    assert pairs == {p for g in ((0, 2, 4), (1, 3, 5), (6, 8, 10), (7, 9, 11)) for p in itertools.permutations(g, 2)}


def test_an_order_is_a_key() -> None:
    """Catches orders that compare by identity or forget their shape."""
    devices = np.arange(8).reshape(2, 4)
    assert Order.of(devices) == Order.of(devices.copy()) and hash(Order.of(devices)) == hash(Order.of(devices.copy()))
    assert Order.of(devices) != Order.of(devices.T) != Order.of(devices.reshape(4, 2))
    assert np.array_equal(Order.of(devices.T).array, devices.T)


def listed(torus: Torus, sizes: tuple[int, ...]) -> Order:
    """The devices as JAX lists them."""
    return Order.of(np.arange(torus.size).reshape(sizes))


def _cost(torus: Torus, order: Order) -> float:
    return sum((p - 1) * ring_load(torus, order, (a,)) for a, p in enumerate(order.sizes))


@pytest.mark.quick(3)
@pytest.mark.parametrize(("torus", "sizes"), MESHES)
def test_neighbour_order(torus: Torus, sizes: tuple[int, ...]) -> None:
    """Catches a device left out or used twice, and an order worse than the two that need no search."""
    order = neighbour_order(torus, sizes)
    assert order.sizes == sizes and sorted(order.array.flat) == list(range(torus.size))
    others = [listed(torus, sizes), *([jax_order(torus, sizes, KINDS[torus])] if torus in KINDS else [])]
    assert _cost(torus, order) <= min(_cost(torus, other) for other in others)


@pytest.mark.parametrize(
    ("torus", "sizes", "expected"),
    [
        (V5P, (8, 8, 16), [1, 1, 1]),
        (V3, (2048,), [1]),
        (V3, (32, 64), [2, 1]),  # both devices of a chip go round 32 chips alike; 64 are 32 chips and their cores
        (V5E, (16,), [1]),
        (Torus((6, 10), (True, True), 2), (12, 10), [1, 2]),
        (Torus((3, 4), (False, False)), (12,), [1]),
    ],
)
def test_neighbour_rings_step_to_true_neighbours(torus: Torus, sizes: tuple[int, ...], expected: list[int]) -> None:
    """Catches a ring that does not close, one that skips chips, and cores that are not next to each other."""
    order = neighbour_order(torus, sizes)
    for axis, blocks in enumerate(expected):
        assert hops(torus, *ring(order.array, (axis,))) == 1
        assert [ring_load(torus, order, (axis,), way) for way in (False, True)] == [blocks, blocks]


def test_jax_order_is_what_make_mesh_gives() -> None:
    """Catches devices whose places JAX reads otherwise; the numbers are from described chips."""
    assert jax_order(V5E, (16,), "TPU v5 lite").array.tolist() == [0, 1, 4, 5, 7, 6, 3, 9, 12, 13, 15, 14, 11, 10, 8, 2]
    assert jax_order(V3, (32, 64), "TPU v3") == listed(V3, (32, 64))
    places = V5P.coords(jax_order(V5P, (8, 8, 16), "TPU v5").array)  # the last mesh axis of a size picks first
    assert np.array_equal(np.moveaxis(places[..., [1, 0, 2]], -1, 0), np.indices((8, 8, 16)))
    split = jax_order(V5P, (32, 32), "TPU v5")
    assert split != listed(V5P, (32, 32)) and sorted(split.array.flat) == list(range(1024))
    seventh = Torus((4, 4, 4), (True,) * 3, 2)
    first = jax_order(seventh, (8, 16), "TPU7x").array[:2]  # the cores of a plane of chips
    assert first[0].tolist() == [0, 4, 16, 20, 2, 6, 18, 22, 8, 12, 24, 28, 10, 14, 26, 30]
    assert np.array_equal(first[1], first[0] + 1)
    cored = Torus((2, 2, 2), (False,) * 3, 2)  # a v4 chip as two devices, which JAX takes for an error
    assert jax_order(cored, (4, 4), "TPU v4") == listed(cored, (4, 4))


@pytest.mark.parametrize("sizes", [(9,), (3, 3), (1, 9)])
def test_sizes_that_are_no_powers_of_two(sizes: tuple[int, ...]) -> None:
    """Catches a search that only halves, and a lost axis of size 1."""
    torus = Torus((3, 3), (True, True))
    order = neighbour_order(torus, sizes)
    assert sorted(order.array.flat) == list(range(math.prod(sizes)))
    assert max(ring_load(torus, order, (axis,)) for axis in range(len(sizes))) == 1
