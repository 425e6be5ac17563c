"""All-to-alls in two stages: what one stage does, with fewer and larger messages between domains."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.collectives.wires import wire_of
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


def _walks(name: str, wire: str = "exact") -> tuple[Walk, Walk]:
    """One move in one stage and in two."""
    shape, sizes, spec, stages = CASES[name]
    start = from_spec(shape, dict(zip("xy", sizes, strict=False)), spec)
    cuts = start.cuts[0]
    move = AxisMove(0, 2, even_cuts(shape[2], [(cut.axis, cut.parts) for cut in cuts]))
    once = Exchange((move,), packed=True, wire=wire_of(wire, np.dtype(np.float32)))
    return Walk(start, (once,)), Walk(start, (dataclasses.replace(once, stages=stages),))


@pytest.mark.parametrize("wire", ["exact", "int16"])
@pytest.mark.parametrize("name", CASES)
def test_two_stages_are_one(name: str, wire: str) -> None:
    """Catches a share that goes to the wrong device of the right domain, and stages that are no transposes."""
    (shape, sizes, *_), (once, twice) = CASES[name], _walks(name, wire)
    where = mesh(sizes)
    x = stored_of(mf.shard(noise(shape), where, once.start.spec))
    program = jax.jit(lambda x: bind([x], twice, where)).lower(x).compile()
    assert collectives(program) == twice.collectives == {"all-to-all": 2}
    (expected,), (found,) = bind([x], once, where), program(x)
    np.testing.assert_array_equal(found, expected)
    assert found.sharding.is_equivalent_to(expected.sharding, found.ndim)
    (back,) = bind([found], twice.transpose(), where)
    limit = 0 if wire == "exact" else 2 * twice.error(8)
    assert error(mf.gather(padded(back, twice.start, None)), noise(shape)) <= limit


def test_gradients() -> None:
    """Catches stages whose transpose is taken in the same order."""
    once, twice = _walks("in turn")
    where, weight = mesh((8,)), noise(once.end.storage, seed=3)
    x = stored_of(mf.shard(noise(CASES["in turn"][0]), where, once.start.spec))
    slopes = [
        jax.grad(lambda x, walk=walk: abs((bind([x], walk, where)[0] * weight) ** 2).sum())(x) for walk in (once, twice)
    ]
    np.testing.assert_array_equal(*slopes)


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
    """Catches stages of one ring used for another, whose devices lie otherwise."""
    domains = Order.of(np.array([[0, 0, 1, 1], [0, 1, 0, 1]]))
    network = Network(None, Order.of(np.arange(8).reshape(2, 4)), ("x", "y"), domains=domains)
    machine = dataclasses.replace(machine_of(None, "cpu"), network=network)
    assert machine.stages(("y",)) == ()
    assert machine.stages(("x", "y")) == ((0, 1, 4, 6), (2, 3, 5, 7))


def test_a_transform_on_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a transform that is wrong, or gathers, where devices of one mesh lie on several hosts."""
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
