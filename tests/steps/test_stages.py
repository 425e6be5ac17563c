"""All-to-alls in two stages: the result of one stage, with fewer and larger messages between domains."""

import dataclasses
import itertools
import re

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.collectives.levels import Wires, wires_of
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import even_cuts, from_spec
from meshfft.layout.padded_array import padded, stored_of
from meshfft.machine.network import STAGES, Network
from meshfft.machine.topology import machine_of, placed, topology
from meshfft.machine.torus import Order
from meshfft.plans import request
from meshfft.plans.primitive import bind
from meshfft.steps import AxisMove, Exchange
from meshfft.walks.walk import Walk

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))
CASES = {
    "halves": ((8, 16, 6), (8,), P("x"), HALVES),
    "halves, uneven": ((13, 11, 7), (8,), P("x"), HALVES),
    "in turn": ((13, 11, 7), (8,), P("x"), ((0, 2, 4, 6), (1, 3, 5, 7))),
    "shuffled": ((8, 16, 6), (8,), P("x"), ((3, 0), (1, 7), (2, 6), (5, 4))),
    "two axes": ((13, 11, 7), (2, 4), P(("x", "y")), ((0, 1, 4, 5), (2, 3, 6, 7))),
    "beside another": ((4, 11, 7), (2, 4), P("y", "x"), ((0, 1), (2, 3))),
}


TYPES = {"exact": ["c64", "c64"], "int16": ["u32", "u32"], "outer=int16": ["c64", "u32"]}  # of elements, by stage


def _walks(name: str, wire: str = "exact") -> tuple[Walk, Walk]:
    """One move in one stage, exact if the wires of both levels differ, and in two."""
    shape, sizes, spec, stages = CASES[name]
    start = from_spec(shape, dict(zip("xy", sizes, strict=False)), spec)
    cuts = start.cuts[0]
    move = AxisMove(0, 2, even_cuts(shape[2], [(cut.axis, cut.parts) for cut in cuts]))
    once, wires = Exchange((move,), packed=True), wires_of(wire, np.dtype(np.float32))
    twice = dataclasses.replace(once, stages=stages)
    alike = wires if wires.inner == wires.outer else Wires()
    return Walk(start, (once.wired(alike),)), Walk(start, (twice.wired(wires),))


def _types(program: jax.stages.Compiled) -> list[str]:
    return re.findall(r"= \(?(\w+)\[[^=]* all-to-all\(", program.as_text() or "")


@pytest.mark.quick(11)
@pytest.mark.parametrize(
    ("name", "wire"),
    [*itertools.product(CASES, ["exact", "int16"]), *itertools.product(["in turn", "two axes"], ["outer=int16"])],
)
def test_two_stages_are_one(name: str, wire: str) -> None:
    """Catches a share sent to the wrong device of the right domain, stages that are no transposes, and an inner
    stage over the wire of the outer one."""
    (shape, sizes, *_), (once, twice) = CASES[name], _walks(name, wire)
    where = mesh(sizes)
    x = stored_of(mf.shard(noise(shape), where, once.start.spec))
    program = jax.jit(lambda x: bind([x], twice, where)).lower(x).compile()
    assert collectives(program) == twice.collectives == {"all-to-all": 2}
    assert _types(program) == TYPES[wire]
    (expected,), (found,) = bind([x], once, where), program(x)
    assert error(np.asarray(found), np.asarray(expected)) <= (wire == "outer=int16") * twice.error(8)
    assert found.sharding.is_equivalent_to(expected.sharding, found.ndim)
    (back,) = bind([found], twice.transpose(), where)
    limit = 0 if wire == "exact" else 2 * twice.error(8)
    assert error(mf.gather(padded(back, twice.start, None)), noise(shape)) <= limit


def test_gradients() -> None:
    """Catches stages whose transpose is taken in the same order, and a gradient that a wire of one level cuts off."""
    (once, twice), (_, mixed) = _walks("in turn"), _walks("in turn", "outer=int16")
    where, weight = mesh((8,)), noise(once.end.storage, seed=3)
    x = stored_of(mf.shard(noise(CASES["in turn"][0]), where, once.start.spec))
    slopes = [
        np.asarray(jax.grad(lambda x, walk=walk: abs((bind([x], walk, where)[0] * weight) ** 2).sum())(x))
        for walk in (once, twice, mixed)
    ]
    np.testing.assert_array_equal(slopes[0], slopes[1])
    assert 0 < error(slopes[2], slopes[0]) < 2 * mixed.error(8)


def test_bytes_of_each_stage() -> None:
    """Catches a stage priced as the whole, and stages that send more than they must."""
    once, twice = _walks("halves")
    one, two = (walk.work(8, machine_of(None, "cpu").chip) for walk in (once, twice))
    block = 8 * 16 * 8 * 8 // 8  # 6 columns are padded to 8
    assert [move.kind for move in two.moves] == [*STAGES] and {move.nbytes for move in two.moves} == {block}
    assert (one.sent_bytes, two.sent_bytes) == (block * 7 // 8, block * 3 // 4 + block // 2)
    assert (one.all_to_alls, two.all_to_alls) == (1, 2)


def test_the_search_takes_two_stages_for_small_messages() -> None:
    """Catches stages that are never chosen, or chosen for large messages, or where mesh axes do not mix levels."""

    def named(n: int, sizes: tuple[int, ...], spec: tuple[str, ...]) -> str:
        axes = ("node", "gpu")[-len(sizes) :]
        return mf.plan((n,) * 3, mesh=AbstractMesh(sizes, axes), spec=spec, topology="16*h100:8").name

    assert "in two stages" in named(128, (128,), ("gpu",))
    assert "in two stages" not in named(2048, (128,), ("gpu",))
    inside = placed(topology("16*h100:8"), (16, 8), ("node", "gpu"), outside=(16, 1))
    assert inside.stages(("gpu",)) == inside.stages(("node",)) == ()
    assert inside.stages(("node", "gpu")) == tuple(tuple(range(8 * j, 8 * j + 8)) for j in range(16))
    assert inside.stages(("gpu", "node")) == tuple(tuple(range(j, 128, 16)) for j in range(16))


def test_rings_that_differ_go_in_one_stage() -> None:
    """Catches stages of one ring used for another, whose devices are placed otherwise."""
    domains = Order.of(np.array([[0, 0, 1, 1], [0, 1, 0, 1]]))
    network = Network(None, Order.of(np.arange(8).reshape(2, 4)), ("x", "y"), domains=domains)
    machine = dataclasses.replace(machine_of(None, "cpu"), network=network)
    assert machine.stages(("y",)) == ()
    assert machine.stages(("x", "y")) == ((0, 1, 4, 6), (2, 3, 5, 7))


def test_a_transform_on_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a transform that is wrong, or gathers, where devices of one mesh belong to several hosts."""
    where = mesh((8,))
    network = Network(None, Order.of(np.arange(8) % 4), ("x",), "given", Order.of(np.arange(8) // 4), 0)
    machine = dataclasses.replace(machine_of(where), network=network)
    monkeypatch.setattr(request, "machine_of", lambda *_: machine)
    request._by_sharding.cache_clear()
    x = noise((16, 12, 10))
    plan = request.read(mf.shard(x, where, P("x")), None)[1].machine
    y = mf.fftn(mf.shard(x, where, P("x")), precision="float32")
    request._by_sharding.cache_clear()
    assert plan.network == network and error(mf.gather(y), dft(x, (0, 1, 2))) < 1e-6


def test_a_wire_between_hosts_alone() -> None:
    """Catches an inner level that is rounded, outer messages that are not, and an error that counts the wrong ones."""
    shape, (one, two) = (16, 12, 10), (mesh((8,)), mesh((2, 4)))

    def planned(where: Mesh, axes: tuple[int, ...], topology: str = "2*cpu:4") -> mf.Plan:
        spec = P(*where.axis_names)
        return mf.plan(shape, mesh=where, spec=spec, axes=axes, topology=topology, wire={"outer": "int16"})

    plan, x = planned(one, (0, 1, 2)), noise(shape)
    given = mf.shard(x, one, P("x"))
    assert plan.name.count("in two stages") == 2 and plan.error < 5e-4
    assert _types(jax.jit(plan).lower(given).compile()) == ["c64", "u32"] * 2
    assert 1e-6 < error(mf.gather(plan(given)), dft(x, (0, 1, 2))) <= plan.error
    inside, both = planned(two, (1, 2)), planned(two, (0, 1, 2))
    assert inside.error < 1e-6 < both.error < 2.6e-4, "one passage between hosts, and one of int16 loses 2.4e-4"
    assert "on the outer wire, but its devices are in one node" in " ".join(
        str(planned(one, (0, 1, 2), "h100:8")).split()
    )
    for wire in ({"middle": "int16"}, "outer=int16,int24"):
        with pytest.raises(ValueError, match="use inner for messages inside a node or slice, outer for those between"):
            mf.plan(shape, wire=wire)
