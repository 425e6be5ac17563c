"""Chips, topologies and machines: rows that can be priced, names that mean a torus, and seconds by hand."""

import dataclasses
import functools
import json
import math

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.layout.layout import from_spec
from meshfft.machine.chip import Chip, Figure
from meshfft.machine.chips import CHIPS, CPU, GENERIC, GPUS, chip_for
from meshfft.machine.machine import RESIDENT, Machine, Move, Work
from meshfft.machine.network import EFFICIENCY
from meshfft.machine.topology import machine_of, placed, topology
from meshfft.nufft.problem import products
from meshfft.numerics.dtypes import Dot
from meshfft.operators.transform import transform_of
from meshfft.plans.planning import ranked
from meshfft.plans.request import Setting
from meshfft.plans.table import machine_words
from meshfft.steps import RingDense
from meshfft.steps.problem import Options, Problem
from meshfft.walks.choice import find_walk
from meshfft.walks.walk import Walk

MARKS = ("published", "measured", "derived")
ROWS = [*CHIPS.values(), GENERIC]
BLOCK = 8192**3 * 8 // 2048  # bytes on each of 2048 devices
MESHES = [("v3:32x32", (2048,)), ("v3:32x32", (32, 64)), ("v3:32x32", (8, 16, 16)), ("v5p:4x4x8", (8, 16))]


@pytest.mark.parametrize("chip", ROWS, ids=lambda chip: chip.name)
def test_every_figure_is_positive_and_has_a_mark_and_a_source(chip: Chip) -> None:
    """Catches a number from nowhere, a rate of zero that divides, and a tier without a rate."""
    for name, figure in chip.figures().items():
        assert 0 < figure.value < math.inf, name
        assert figure.mark in MARKS and len(figure.source) > 10, name
    assert chip.devices > 0 and chip.side > 0 and all(n > 0 for n in chip.torus)
    assert all(chip.product_rate(tier) > 0 for tier in ("bf16", "bf16x3", "bf16x6", "float32", "float64"))


def test_a_published_figure_says_what_was_published() -> None:
    """Catches figures of a GPU that all cite one page, which does not have them all."""
    for chip in GPUS:
        rates = (
            chip.vector,
            chip.memory,
            chip.link,
            chip.capacity,
            *(dict(chip.products)[t] for t in ("bf16", "float64")),
        )
        sources = {figure.source for figure in rates if figure is not None}
        assert len(sources) == 6 and all("data sheet" in source and ": " in source for source in sources)


@pytest.mark.parametrize("chip", ROWS, ids=lambda chip: chip.name)
def test_more_terms_are_never_faster(chip: Chip) -> None:
    """Catches tiers that changed places: a tier of more bfloat16 products cannot be the faster one."""
    rates = [chip.product_rate(tier) for tier in ("bf16", "bf16x3", "bf16x6")]
    assert rates == sorted(rates, reverse=True)


def test_a_device_finds_its_row() -> None:
    """Catches v5e read as v5p, whose name has the same beginning, and devices without a row."""
    for chip in CHIPS.values():
        assert chip_for(chip.platform, chip.kind) is chip
    assert chip_for("gpu", "NVIDIA H100 80GB HBM3").name == "h100"
    assert chip_for("tpu", "TPU v99") is chip_for(None) is GENERIC
    assert chip_for("cpu", "anything") is CPU


@pytest.mark.parametrize(
    ("name", "devices", "wraps"),
    [
        ("v3:32x32", 2048, (True, True)),
        ("v3:32x16", 1024, (True, False)),
        ("v2:4x4", 32, (False, False)),
        ("v5e:16x4", 64, (True, False)),
        ("v5p:4x8x6", 192, (True, True, False)),
        ("v4:2x2x4", 32, (False, False, True)),
        ("tpu7x:24x16x24", 18432, (True, True, True)),
    ],
)
def test_names_mean_a_torus(name: str, devices: int, wraps: tuple[bool, ...]) -> None:
    """Catches ends joined wrongly, cores not counted, and a rotated slice that is refused."""
    found = topology(name)
    assert found.torus is not None
    assert (found.devices, found.torus.wraps, found.torus.size) == (devices, wraps, devices)


def test_machines_without_a_torus_are_a_number_of_devices() -> None:
    """Catches a network made up for devices that all reach each other."""
    found = topology("h100:8")
    assert (found.devices, found.torus) == (8, None) and placed(found, (2, 4), ("x", "y")).network is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v9:4x4", "begin with one of cpu, v2, v3"),
        ("", "begin with one of"),
        ("v3", "does not say how many chips lie along each axis: write it as v3:32x32"),
        ("v3:4xx4", "how many chips"),
        ("v3:0x4", "how many chips"),
        ("v3:-4x4", "how many chips"),
        ("v3:4x4x4", "v3 has 2 axes, not 3: give chips along each, as v3:32x32"),
        ("h100:x", "does not say how many devices there are: write it as h100:8"),
        ("v3:64x16", "larger than the largest v3: give at most v3:32x32"),
        ("h100:2x4", "form no torus: give their number, as h100:8"),
    ],
)
def test_bad_names_are_refused_with_the_remedy(name: str, words: str) -> None:
    """Catches a torus that does not exist, and a message without the valid ones."""
    with pytest.raises(ValueError, match=words):
        topology(name)


def test_what_is_no_name_is_refused() -> None:
    """Catches an AttributeError from within."""
    with pytest.raises(TypeError, match="topology is 3: give a name, such as 'v5e:4x4'"):
        mf.plan((8, 8), topology=3)  # type: ignore[arg-type]


def test_meshes_that_do_not_fit_are_refused() -> None:
    """Catches devices left over, or invented."""
    with pytest.raises(ValueError, match="mesh has 16 devices, v3:4x4 has 32: use all of them"):
        placed(topology("v3:4x4"), (16,), ("x",))


def test_tiles_are_counted() -> None:
    """Catches memory of a TPU printed without the tiles that it stores, or with those of another order."""
    chip = CHIPS["v5e"]
    assert chip.waste((64, 256, 384)) == 1 == CHIPS["h100"].waste((3, 3)) == chip.waste((7,)) == chip.waste((0, 3))
    assert chip.waste((4, 2**18)) == chip.waste((1, 1024)) == 1 == CHIPS["v6e"].waste((64, 64, 128))
    found = chip.waste((32, 13, 32, 33)), chip.waste((93, 96, 26))
    assert found == pytest.approx((128 / 33, 128 / 96 * 96 / 93))
    even, odd = (mf.plan((n, n, 64), topology="v5e:2x2", method="transpose").peak_bytes / n**2 for n in (1024, 1100))
    assert odd > 1.02 * even


def test_seconds_add_up() -> None:
    """Catches a resource left out, passes counted twice, and fed bytes that are added instead of hidden."""
    work = Work(8 * 10**9, "float32", 10**9, 10**8, fed_bytes=10**7, sent_bytes=10**6, hops=3, all_to_alls=1)
    spent, chip = Machine(CPU).seconds(work), CPU
    assert spent.products == work.matrix_flops / chip.product_rate("float32")
    assert spent.vector == work.vector_flops / chip.vector.value
    assert spent.memory == work.memory_bytes / chip.memory.value
    starts = 3 + 1 + 3 + 1  # hops, the all-to-all, and with products a second plane for each hop, and each product
    assert spent.links == pytest.approx(work.sent_bytes / chip.link.value + starts * chip.hop.value)
    assert spent.total == pytest.approx(sum(spent[:4])) == Machine(CPU).price(work)
    fed = dataclasses.replace(work, fed_bytes=10**11)
    assert Machine(CPU).seconds(fed).products == fed.fed_bytes / chip.memory.value
    tpu, room = CHIPS["v5e"], int(CHIPS["v5e"].fast_bytes)
    small, large = (Machine(tpu).seconds(dataclasses.replace(fed, peak_bytes=n)).products for n in (room // 2, room))
    assert large == fed.fed_bytes / tpu.memory.value == small / RESIDENT


@pytest.mark.parametrize("parts", [1, 2, 8])
@pytest.mark.parametrize("blocks", [1, 1000])
def test_parts_overlap_all_but_the_first(parts: int, blocks: int) -> None:
    """Catches links hidden under work that has not begun, in a machine that sends while it computes."""
    machine = placed(topology("v3:4x4"), (32,), ("x",))
    work = Work(10**12, "bf16", moves=(Move("ring", ("x",), blocks * 10**6, 31),), parts=parts)
    spent = machine.seconds(work)
    compute = spent.products + spent.vector + spent.memory
    assert spent.total == pytest.approx(compute / parts + max(compute * (1 - 1 / parts), spent.links))
    assert max(compute, spent.links) <= spent.total * (1 + 1e-9) <= (compute + spent.links) * (1 + 1e-6)


def test_moves_cost_what_the_torus_says() -> None:
    """Catches a link's rate or the efficiency misapplied: closed forms of 8192^3 complex64 on a pod of v3.

    All-to-all on joined rings of 32 chips of two devices: 32/8 blocks of a chip over every link, so 8 of a device. One
    ring through all devices, chip by chip, puts one block on a link.
    """
    machine = placed(topology("v3:32x32"), (2048,), ("x",))
    exchanged = machine.move_seconds(Move("all-to-all", ("x",), BLOCK, 1))
    assert exchanged == pytest.approx(0.2095 / EFFICIENCY, rel=1e-3)
    hop = machine.move_seconds(Move("ring", ("x",), BLOCK, 1))
    assert hop == pytest.approx(BLOCK / 82e9, rel=1e-3)
    assert machine.move_seconds(Move("ring", ("x",), BLOCK, 7)) == pytest.approx(7 * hop)
    alone = Machine(CHIPS["h100"]).move_seconds(Move("all-to-all", ("x",), BLOCK, 2))
    assert alone == pytest.approx(2 * (BLOCK / 450e9 + 2e-6))


@pytest.mark.more
@pytest.mark.parametrize(("name", "sizes"), MESHES)
@pytest.mark.parametrize("order", ["ring", "jax"])
def test_both_ways_round_cost_between_one_block_and_two(name: str, sizes: tuple[int, ...], order: str) -> None:
    """Catches two-way hops priced as if the links were twice as many, or their blocks twice as large."""
    axes = tuple("xyz"[: len(sizes)])
    machine = placed(topology(name), sizes, axes, order)
    for axis in axes:
        one, both = (machine.move_seconds(Move(kind, (axis,), BLOCK, 1)) for kind in ("ring", "two-way ring"))
        assert one <= both * (1 + 1e-9) and both <= 2 * one


@pytest.mark.parametrize(("name", "sizes"), MESHES)
def test_rings_of_neighbours_never_cost_more_than_in_jaxs_order(name: str, sizes: tuple[int, ...]) -> None:
    """Catches an order found for other axes than it is used for: over all mesh axes, all hops of all rings."""
    axes, costs = tuple("xyz"[: len(sizes)]), []
    for order in ("ring", "jax"):
        machine = placed(topology(name), sizes, axes, order)
        moves = [Move("ring", (axis,), BLOCK, size - 1) for axis, size in zip(axes, sizes, strict=True)]
        costs.append(sum(map(machine.move_seconds, moves)))
    assert costs[0] <= costs[1] * (1 + 1e-9)


@pytest.mark.parametrize(("name", "sizes"), MESHES)
def test_a_plan_never_takes_the_dearer_way_round(name: str, sizes: tuple[int, ...]) -> None:
    """Catches a search that is not offered both, or a two-way ring that is chosen by habit."""
    plan = mf.plan((4096,) * 3, mesh=AbstractMesh(sizes, tuple("xyz"[: len(sizes)])), topology=name, method="kdft")
    assert any(isinstance(step, RingDense) for step in plan.walk.steps)
    for step, layout in plan.walk.pairs:
        if isinstance(step, RingDense):
            ways = [dataclasses.replace(step, two_way=way) for way in (False, True)]
            prices = [plan.machine.price(way.work(layout, 8, plan.machine.chip)) for way in ways]
            assert prices[step.two_way] <= min(prices) * (1 + 1e-9)


def test_virtual_devices_have_no_network() -> None:
    """Catches a torus made up for CPU devices."""
    machine = machine_of(mesh((2, 2, 2)))
    assert machine.network is None and machine.chip.platform == "cpu"
    assert machine_of(AbstractMesh((8,), ("x",))).chip is GENERIC and machine_of(None).network is None
    assert {device.platform for device in jax.devices()} == {"cpu"}


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("shape", "name"), [((64, 64, 48), "v5e:4x4"), ((16, 256), "h100:8"), ((4, 3, 1024), "cpu:8"), ((97,), "v5e:4x4")]
)
def test_ranked_meshes(shape: tuple[int, ...], name: str) -> None:
    """Catches a factoring that leaves devices idle, cuts a dimension too finely, or is repeated or out of order."""
    plans = ranked(shape, name)
    many = topology(name).devices
    cuts = [tuple(plan.in_layout.parts) for plan in plans]
    assert plans and all(math.prod(parts) == many for parts in cuts)
    assert all(p <= n for parts in cuts for p, n in zip(parts, shape, strict=True))
    costs = [(plan.fits is False, plan.seconds) for plan in plans]
    assert costs == sorted(costs, key=lambda cost: (cost[0], cost[1] or 0))
    assert len({tuple(sorted(zip(shape, parts, strict=True))) for parts in cuts}) == len(cuts)


def test_ranked_tries_every_factoring_of_unlike_dimensions() -> None:
    """Catches one that is missing, and equal dimensions taken for alike where only one is transformed."""
    cuts = {tuple(plan.in_layout.parts) for plan in ranked((64, 128), "h100:8")}
    assert cuts == {(8, 1), (4, 2), (2, 4), (1, 8)}
    assert {tuple(plan.in_layout.parts) for plan in ranked((64, 64), "h100:8")} == {(8, 1), (4, 2)}
    assert len(ranked((64, 64), "h100:8", axes=(1,))) == 4


def test_float64_of_tpus_is_made_of_slices(x64: None) -> None:
    """Catches a plan in double precision for a machine without it, priced as if it were single."""
    for chip, unit in (("v3:2x2", "bf16"), ("v5e:2x2", "int8")):
        plan = mf.plan((512, 512), topology=chip, dtype="complex128")
        single = mf.plan((512, 512), topology=chip)
        assert plan.dots[0].tier == "int8x7" and plan.dots[0].unit == unit and plan.walk.planes
        assert (plan.seconds or 0) > 2 * (single.seconds or 0) and 1e-15 < plan.error < 1e-13
    points = mf.Scattered.turns(np.random.default_rng(0).random((9, 2)))
    with pytest.raises(ValueError, match=r"v3 spreads no points in float64: sum by slices, with mf\.kdftn"):
        mf.scattered_plan((64, 64), points, mesh=AbstractMesh((8,), ("x",)), topology="v3:2x2", dtype="complex128")
    start, machine = from_spec((64, 64), {}, None), Machine(CHIPS["v5e"])
    dots = products(Setting(start, None, machine, np.dtype("complex128")), Options("kdft"))[1]
    assert dots == (Dot("int8x7", 4, "int8"), Dot("int8x7", 3, "int8"))
    assert mf.plan((64, 64), topology="h100:8", dtype="complex128").dtype == np.complex128


@pytest.mark.parametrize(("name", "form"), [("v2:1x1", "tiles"), ("v3:1x1", "tiles"), ("v4:1x1x1", "strips")])
def test_kernels_of_points_only_where_they_compile(name: str, form: str) -> None:
    """Catches a plan for TPU v2 or v3 by kernels of bfloat16 products, which their compiler refuses (E2001)."""
    points = mf.Scattered.turns(np.zeros((1, 2)))
    assert (
        f"({form}, "
        in mf.scattered_plan(
            (64, 64), points, topology=name, mesh=AbstractMesh((topology(name).devices,), ("x",))
        ).walk.name
    )


@pytest.mark.more
def test_bfloat16_terms_are_the_default_of_matrix_units() -> None:
    """Catches float32 where six products of bfloat16 are as accurate and faster, a tier taken from who named it, other
    tiers on CPUs and AMD GPUs, a plan that does not print its own, and results that lose more than is printed.
    """
    plan_of = functools.partial(mf.plan, (1024, 128), mesh=AbstractMesh((4, 2), ("x", "y")), method="kdft")
    tier, named = (plan_of(topology="v3:2x2", precision=p) for p in (None, "float32"))
    dots = [[dot for step in plan.walk.steps for dot in step.numbers.dots] for plan in (tier, named)]
    assert dots == [[Dot("bf16x6", 4), Dot("bf16x6", 3)], [Dot("float32", 4)] * 2]
    assert tier.error <= named.error and (tier.seconds or 1) < (named.seconds or 0) and "bf16x6 with 3" in str(tier)
    bound = mf.plan((2048,) * 5, topology="v3:32x32", mesh=AbstractMesh((2048,), ("x",)), method="kdft")
    assert bound.error <= 5**0.5 * 3.9e-7, "terms that equal numbers lose add up to less than rounding does"
    for chip, tier_of in ((None, "float32"), ("h100:8", "bf16x6"), ("mi300x:8", "float32")):
        assert {dot.tier for dot in plan_of(topology=chip).dots} == {tier_of}
    here = mf.plan((1024, 128), mesh=mesh((4, 2)), topology="v3:2x2", method="kdft")
    x = noise((1024, 128))
    assert here.walk == tier.walk and error(jax.jit(here)(x), dft(x, (0, 1))) <= here.error


def test_an_error_chooses_the_tier(x64: None) -> None:
    """Catches slices that nothing needs, too few of them, and float32 where it is not enough."""
    for within, tier in ((1e-6, "float32"), (1e-8, "int8x5"), (1e-10, "int8x6"), (1e-13, "int8x7")):
        plan = mf.plan((256,) * 3, topology="v5e:2x2", precision=within)
        assert plan.dots[0].tier == tier and plan.error <= within
    assert mf.plan((64,), precision=1e-10).dots[0].tier == "float64"
    assert mf.kdftn(np.ones(4, np.complex64), precision=1e-10).dtype == np.complex128
    for wrong in (1e-17, float("nan"), -1.0):
        with pytest.raises(ValueError, match=r"is out of reach .* may be 4.2e-16: give at least that"):
            mf.plan((64,), precision=wrong)
    least = mf.plan((64, 48), dtype="complex128", mesh=mesh((4,)), method="transpose").error
    assert mf.plan((64, 48), mesh=mesh((4,)), precision=least).error <= least < 1e-15


def test_an_error_that_cannot_be_kept_is_refused(x64: None) -> None:
    """Catches a plan that loses more than it was asked to: to pairs of float32, a lossy wire, or a fourth dimension."""
    for pod, options, match in (
        ("v5e:2x2", {"precision": 1e-14}, "precision 1e-14 is out of reach .* give at least that$"),
        ("h100:4", {"precision": 1e-10, "wire": "int24"}, "may be .*e-06: give at least that, or wire='exact'"),
    ):
        with pytest.raises(ValueError, match=match):
            mf.plan((256,) * 3, topology=pod, **options)
    with pytest.raises(ValueError, match="precision 7e-07 is out of reach"):
        mf.fftn(np.ones((4,) * 4, np.complex64), method="kdft", precision=7e-7)
    assert mf.plan((256,) * 3, topology="v5e:2x2", precision=1e-5, wire="int24").error <= 1e-5
    with pytest.raises(ValueError, match=r"precision 0 is unknown: .*, or an error to stay within, as 1e-10"):
        mf.plan((64,), precision=0)


def test_ranked_refuses_what_cannot_be_laid_out() -> None:
    """Catches an empty list, or a list of too many axes."""
    with pytest.raises(ValueError, match=r"8 devices cannot be laid over shape \(2, 2\)"):
        ranked((2, 2), "h100:8")
    with pytest.raises(ValueError, match="5 dimensions, not 1 to 4: give a mesh"):
        ranked((8,) * 5, "h100:8")
    with pytest.raises(ValueError, match="a transpose needs a second dimension"):
        ranked((97,), "h100:8", method="transpose")


def test_a_plan_says_whether_it_fits() -> None:
    """Catches a plan that promises what no device can hold: 16384^3 takes 1.1 TB on each of 32 devices of 17 GB."""
    plan = mf.plan((16384,) * 3, mesh=AbstractMesh((32,), ("x",)), topology="v3:4x4")
    assert plan.fits is False and "does not fit" in str(plan)
    small = mf.plan((512,) * 3, mesh=AbstractMesh((32,), ("x",)), topology="v3:4x4")
    assert small.fits is True and "fits" in str(small)
    assert mf.plan((8, 8), mesh=mesh((2,))).fits is None


def test_walks_that_fit_come_before_faster_ones() -> None:
    """Catches a search that asks only for seconds, and one that finds nothing where nothing fits."""
    start = from_spec((128, 64, 256), {"x": 8}, ("x",))
    transform = transform_of((0, 1, 2), start.shape, None, False)
    dense = dataclasses.replace(CPU, vector=Figure(1e3, "derived", "a chip on which only products are fast"))
    block = math.prod(start.block) * 8

    def found(blocks: float) -> Walk:
        chip = dataclasses.replace(dense, capacity=Figure(blocks * block, "derived", "blocks"))
        return find_walk(Problem(start, transform, Machine(chip), 8, (Dot("float32", 4),)))

    roomy, tight, none = found(100), found(4.1), found(1)
    assert any(isinstance(step, RingDense) for step in roomy.steps) and roomy.work(8, dense).peak_bytes > 4.1 * block
    assert tight.work(8, dense).peak_bytes <= 4.1 * block
    assert none.steps == roomy.steps


def test_plans_over_several_nodes_say_so() -> None:
    """Catches nodes of GPUs that are silently priced as one fast network, in plans at scattered points too."""
    points = mf.Scattered.turns(np.random.default_rng(0).random((100, 1)))
    scattered = mf.scattered_plan((64,), points, mesh=AbstractMesh((32,), ("x",)), topology="h100:32")
    assert "h100 devices in 4 nodes, x=4 of the mesh" in " ".join(str(scattered).split())
    assert json.loads(json.dumps(scattered.to_dict()))["points"] == [100]


@pytest.mark.more
def test_a_plan_for_cores_that_jax_joins_says_so() -> None:
    """Catches v4 silently planned with twice the devices that JAX shows there."""
    cores, chips = (mf.plan((64, 64, 64), topology=name) for name in ("v4:2x2x1", "v5p:2x2x1"))
    assert "a device for each core, but JAX joins both cores" in " ".join(str(cores).split())
    assert chips.to_dict()["caveat"] is None


@dataclasses.dataclass(frozen=True)
class _Device:
    """The attributes of a device that a machine and a mesh read."""

    coords: tuple[int, int, int]
    slice_index: int
    platform: str = "tpu"
    device_kind: str = "TPU v5 lite"
    core_on_chip: int = 0
    process_index: int = 0


def test_a_mesh_over_two_slices_says_so() -> None:
    """Catches slices that silently count as one torus or one network."""
    devices = np.empty(8, object)
    devices[:] = [_Device((i, j, 0), s) for s in range(2) for i in range(2) for j in range(2)]
    one, two = (machine_of(Mesh(devices[: 4 * slices], ("x",))) for slices in (1, 2))
    assert one.caveat is None and one.network is not None
    assert two.network is not None and two.network.outside == (2,) and two.network.torus is not None
    assert "in 2 slices, x=2 of the mesh" in machine_words(two)
