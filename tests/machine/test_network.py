"""Networks of two levels: loads against a count of every message, names, device orders, prices and plans."""

import dataclasses
import functools
import itertools
import math
from collections import Counter
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.experimental.mesh_utils import create_hybrid_device_mesh
from jax.sharding import AbstractMesh, Mesh

import meshfft as mf
from meshfft.machine.chips import CHIPS
from meshfft.machine.machine import Move
from meshfft.machine.network import EFFICIENCY, STAGES, Load, Network, collective_load, pair_load
from meshfft.machine.topology import machine_of, mesh_as, mesh_call, placed, placements, topology
from meshfft.machine.torus import Order, Torus, loads
from meshfft.plans.table import machine_words


def _network(name: str, sizes: tuple[int, ...], outside: tuple[int, ...] | None = None) -> Network:
    network = placed(topology(name), sizes, ("x", "y", "z")[: len(sizes)], "ring", outside).network
    assert network is not None
    return network


def _counted(network: Network, pairs: list[tuple[int, int]], sharing: int) -> tuple[int, int, int]:
    """Most messages that a device sends inside, that one adapter sends outside, and that a device sends outside."""
    domains, devices = (np.asarray(one.array).ravel() for one in (network.domains or network.order, network.order))
    inside, adapters, outside = Counter[int](), Counter[tuple[int, int]](), Counter[int]()
    for source, target in pairs:
        if domains[source] == domains[target]:
            inside[source] += 1
        else:
            adapters[int(domains[source]), int(devices[source]) // sharing] += 1
            outside[source] += 1
    return tuple(max(one.values(), default=0) for one in (inside, adapters, outside))  # type: ignore[return-value]


@pytest.mark.parametrize(("name", "sizes"), [("4*h100:8", (32,)), ("2*cpu:6", (3, 4)), ("3*a100:4", (4, 3))])
def test_loads_are_those_of_every_message(name: str, sizes: tuple[int, ...]) -> None:
    """Catches messages counted on the wrong level, and adapters that share a link by mistake, or do not share one."""
    for outside in [machine.network.outside for machine in placements(topology(name), _mesh(sizes)) if machine.network]:
        network = _network(name, sizes, outside)
        size = len(network.order.array.ravel()) // network.several
        rng = np.random.default_rng(3)
        pairs = [(int(a), int(b)) for a, b in rng.integers(0, math.prod(sizes), (200, 2)) if a != b]
        sharing = network.sharing or size
        inside, adapter, messages = _counted(network, pairs, sharing)
        sources, targets = np.array(pairs).T
        found = pair_load(network, sources, targets, 0.5)
        assert found == Load(inside / 2, 1, adapter / sharing / 2, messages)


def _mesh(sizes: tuple[int, ...]) -> AbstractMesh:
    return AbstractMesh(sizes, ("x", "y", "z")[: len(sizes)])


def test_an_all_to_all_and_its_stages_by_hand() -> None:
    """Catches stages that send more than one exchange, or as many messages: four nodes of eight along one axis."""
    network = _network("4*h100:8", (32,))
    once = collective_load(network, "all-to-all", (0,))
    inner, outer = (collective_load(network, stage, (0,)) for stage in STAGES)
    assert once == Load(7 / 32, 1, 24 / 32, 24)
    assert inner == Load(7 / 8, 1, 0.0, 0) and outer == Load(0.0, 0, 3 / 4, 3)


def test_a_ring_leaves_each_node_once() -> None:
    """Catches a ring whose every hop is priced as slow, or none: one device of eight sends to another node."""
    assert collective_load(_network("4*h100:8", (32,)), "ring", (0,)) == Load(1.0, 1, 1.0, 1)
    assert collective_load(_network("4*cpu:8", (32,)), "ring", (0,)) == Load(1.0, 1, 1 / 8, 1)
    assert collective_load(_network("4*h100:8", (4, 8)), "ring", (1,)) == Load(1.0, 1, 0.0, 0)


def test_slices_of_tpus_send_whole_blocks() -> None:
    """Catches an all-to-all over two slices priced as if a part of it took the links: its program sends all of it
    through the hosts (test_tpu.py compares the bytes)."""
    network = _network("2*v5e:2x2", (8,))
    assert collective_load(network, "all-to-all", (0,)) == Load(outer=1.0, messages=4)
    inner = collective_load(network, STAGES[0], (0,))
    torus, first = Torus((2, 2), (False, False)), np.arange(4)
    sources, targets = np.array([(a, b) for a, b in itertools.permutations(first, 2)]).T
    assert (
        inner.inner == pytest.approx(loads(torus, sources, targets, 1 / 4).max() / EFFICIENCY) and inner.messages == 0
    )


@pytest.mark.parametrize("outside", [(4, 1), (1, 4), (2, 2)])
def test_orders_are_those_of_hybrid_meshes(outside: tuple[int, ...]) -> None:
    """Catches domains laid over a mesh in another way than `create_hybrid_device_mesh` lays them, and a printed call or
    a `device_mesh` of other devices, however they are listed."""
    every = [_Device(n, n, slice_index=n // 8) for n in range(32)]
    machine, sizes = placed(topology("4*h100:8"), (8, 4), ("x", "y"), "ring", outside), {"x": 8, "y": 4}
    call = mesh_call(machine, sizes)
    assert call is not None and machine.network is not None and machine.network.outside == outside
    here = SimpleNamespace(create_hybrid_device_mesh=functools.partial(create_hybrid_device_mesh, devices=every))
    given = SimpleNamespace(sharding=jax.sharding, experimental=SimpleNamespace(mesh_utils=here))
    mesh = eval(call, {"jax": given})
    slices = np.array([device.slice_index for device in mesh.devices.ravel()]).reshape(8, 4)
    assert machine.network.domains is not None and (machine.network.domains.array == slices).all()
    assert mesh_as(machine, sizes, every) == mesh and mesh.axis_names == ("x", "y")
    shuffled = mesh_as(machine, sizes, every[::-1])
    assert (machine_of(shuffled).network or machine.network).outside == outside


def test_a_mesh_of_other_devices_is_refused() -> None:
    """Catches a mesh whose axes use other links than planned, without a word."""
    plan = mf.plan((8, 8), mesh=AbstractMesh((2, 4), ("x", "y")), topology="2*cpu:4")
    with pytest.raises(ValueError, match="planned for 2 hosts of cpu devices, given 1: plan for the given devices"):
        plan.device_mesh()
    with pytest.raises(ValueError, match="3 devices are given, the plan is for 8: give as many"):
        plan.device_mesh(jax.devices()[:3])
    alone = mf.plan((8, 8), mesh=AbstractMesh((2, 4), ("x", "y")), topology="cpu:8")
    assert alone.device_mesh() == Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100:12", "a node has at most 8 h100 devices: write 2*h100:6"),
        ("4*h100:16", "a node has at most 8 h100 devices: write 8*h100:8"),
        ("h100:4x8", "h100 devices form no torus: give their number, as h100:8, or nodes of so many, as 4*h100:8"),
        ("0*h100:8", "names no chip that is known"),
        ("4xh100:8", "or with a number of them and a star, as 4*h100:8"),
        ("-1*h100:8", "names no chip that is known"),
        ("2*v5e:2x2@fast", "write it as @25GB/s"),
        ("2*v5e:2x2@0GB/s", "write it as @25GB/s"),
        ("2*v5e:2x2@1GB/s@2GB/s", "write it as @25GB/s"),
    ],
)
def test_names_that_mean_no_machine(name: str, words: str) -> None:
    """Catches a name that is read as another machine, and a refusal without the right name."""
    with pytest.raises(ValueError, match="topology") as refusal:
        topology(name)
    assert words in str(refusal.value)


def test_names() -> None:
    """Catches nodes that are not seen in a number of GPUs, domains of 72, and a rate that is read wrongly."""
    assert topology("h100:32")[1:] == topology("4*h100:8")[1:] and topology("h100:8").domains == 1
    assert (topology("gb200:72").domains, topology("gb200:144").domains) == (1, 2)
    assert topology("4*H100:8")[1:] == topology("4*h100:8")[1:]
    assert topology("2*v5p:4x4x4").devices == 128 and topology("2*v4:2x2x1").devices == 16
    given = topology("4*h100:8@12.5GB/s").chip.outer
    assert given is not None and given.value == 12.5e9 and given.mark == "given"
    slow, fast = (mf.plan((256,) * 3, mesh=_mesh((32,)), topology=f"4*h100:8@{r}GB/s") for r in (1, 50))
    assert slow.machine.outer_bytes(slow.work) == fast.machine.outer_bytes(fast.work) > 0
    assert slow.seconds is not None and fast.seconds is not None and slow.seconds > 5 * fast.seconds


@dataclasses.dataclass(frozen=True)
class _Device:
    """The attributes of a device that a machine and a mesh read."""

    id: int
    process_index: int
    platform: str = "gpu"
    device_kind: str = "NVIDIA H100 80GB HBM3"
    slice_index: int | None = None


def test_levels_of_real_devices() -> None:
    """Catches nodes that a mesh of real devices hides: by slice where devices have one, else by process."""

    def machine(*devices: _Device) -> Network | None:
        array = np.empty(len(devices), object)
        array[:] = devices
        return machine_of(Mesh(array.reshape(2, -1), ("x", "y"))).network

    alone = machine(*(_Device(n, n, slice_index=0) for n in range(8)))  # a process for each GPU of one node
    nodes = machine(*(_Device(n, n, slice_index=n // 4) for n in range(8)))
    hosts = machine(*(_Device(n, n // 2, "cpu", "cpu") for n in range(8)))
    uneven = machine(*(_Device(n, 0, slice_index=int(n > 4)) for n in range(8)))
    assert alone is None and nodes is not None and nodes.outside == (2, 1)
    assert hosts is not None and hosts.several == 4 and hosts.outside == (2, 2) and hosts.sharing == 0
    assert uneven is not None and uneven.outside is None  # still priced, by its messages
    assert collective_load(uneven, "all-to-all", (0, 1)).messages == 5


def test_an_abstract_mesh_of_gpus_fills_nodes() -> None:
    """Catches 32 described GPUs planned as one fast network."""
    kind = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", 1, "gpu")
    mesh = AbstractMesh((32,), ("x",), abstract_device=kind)
    network = machine_of(mesh).network
    assert network is not None and network.several == 4 and network.outside == (4,)
    assert mf.plan((64,) * 3, mesh=mesh).to_dict()["outer_mesh"] == (4,)


def test_plans_keep_data_off_the_slow_level() -> None:
    """Catches a plan that moves the axis of nodes first: with any order it need not return, so half as much leaves."""
    mesh = AbstractMesh((4, 8), ("node", "gpu"))
    plans = [
        mf.plan((256,) * 3, mesh=mesh, spec=(("node", "gpu"),), topology="4*h100:8", order=order)
        for order in ("natural", "any")
    ]
    block = 256**3 * 8 // 32
    natural, anyhow = (plan.machine.outer_bytes(plan.work) for plan in plans)
    assert natural == 2 * block * 3 // 4 and anyhow == block * 3 // 4
    text = " ".join(str(plans[0]).split())
    assert "h100 devices in 4 nodes, " in text
    assert "per device leave the node" in text and "NVLink" not in text
    assert plans[0].to_dict()["outer_bytes_per_device"] == natural


def test_moves_are_priced_by_their_slower_level() -> None:
    """Catches levels added up, a start that is paid once for many messages, and a hop that is not paid."""
    machine = placed(topology("4*h100:8"), (32,), ("x",))
    chip, nbytes = CHIPS["h100"], 2**28
    assert chip.outer is not None and chip.start is not None
    expected = nbytes * 24 / 32 / chip.outer.value + 24 * chip.start.value + chip.hop.value
    assert machine.move_seconds(Move("all-to-all", ("x",), nbytes, 3)) == pytest.approx(3 * expected)
    fast = machine.move_seconds(Move(STAGES[0], ("x",), nbytes, 1))
    assert fast == pytest.approx(nbytes * 7 / 8 / chip.link.value + chip.hop.value)
    alone = nbytes / chip.outer.value + chip.start.value + chip.hop.value
    assert machine.permute_seconds([(7, 8)], nbytes) == pytest.approx(alone)


def test_words_of_a_mesh_over_slices() -> None:
    """Catches slices that silently count as one torus."""
    one, two = (placed(topology(name), (8,), ("x",)) for name in ("v5e:2x4", "2*v5e:2x2"))
    assert "slices" not in machine_words(one) and "in 2 slices, x=2 of the mesh" in machine_words(two)
    order = Order.of(np.arange(8))
    shuffled = Network(None, order, ("x",), domains=Order.of(np.array([0, 1, 1, 0, 1, 0, 0, 1])))
    assert shuffled.outside is None
