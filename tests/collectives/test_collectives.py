"""Data movement between devices, in the compiled text, for usual cases."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.collectives import all_to_all, processes
from meshfft.inspect.hlo import collectives

# name: (shape, mesh, spec, axes)
TABLE = {
    "block": ((16, 16, 16), (2, 2, 2), P("x", "y", "z"), None),
    "block, 97 x 113 x 89": ((97, 113, 89), (2, 2, 2), P("x", "y", "z"), None),
    "pencil": ((16, 16, 16), (2, 4), P("x", "y"), None),
    "pencil, axes exchanged": ((16, 16, 16), (2, 4), P(None, "y", "x"), None),
    "slab": ((64, 16, 16), (8,), P("x"), None),
    "slab, last dimension": ((16, 16, 64), (8,), P(None, None, "x"), None),
    "slab, two mesh axes": ((64, 16, 16), (2, 4), P(("y", "x")), None),
    "slab to any, two mesh axes of two sizes": ((16, 64, 16), (2, 4), P(None, ("x", "y")), None),
    "2-D": ((64, 16), (4, 2), P("x", "y"), None),
    "2-D, uneven": ((17, 13), (4, 2), P("x", "y"), None),
    "1-D": ((64,), (8,), P("x"), None),
    "1-D, prime": ((97,), (8,), P("x"), None),
    "4-D": ((8, 8, 8, 8), (2, 2, 2), P("x", "y", "z"), None),
    "4-D, four mesh axes": ((4, 4, 4, 4), (2, 2, 2, 1), P("x", "y", "z", "w"), None),
    "batch sharded": ((8, 16, 16), (2, 4), P("x", "y"), (1, 2)),
    "idle axis": ((16, 16, 16), (2, 2, 2), P(None, "y"), None),
    "replicated": ((8, 8), (8,), P(), None),
}
METHODS = ("auto", "transpose", "cooley-tukey", "kdft")


def _plan(name: str, method: str, order: str, scale: int = 1, topology: str | None = None) -> mf.Plan | None:
    shape, sizes, spec, axes = TABLE[name]
    shape, where = tuple(scale * n for n in shape), mesh(sizes)
    try:
        return mf.plan(shape, mesh=where, spec=spec, axes=axes, method=method, order=order, topology=topology)
    except ValueError as refused:
        assert method in ("transpose", "cooley-tukey") and "use method='auto'" in str(refused)
        return None


def _in_turn(name: str, method: str, order: str) -> bool:
    """Every case by every method, in alternating order."""
    return (list(TABLE).index(name) + METHODS.index(method)) % 2 == (order == "any")


@pytest.mark.quick(109)
@pytest.mark.parametrize(("name", "method", "order"), slow_rows(_in_turn, TABLE, METHODS, ("natural", "any")))
def test_compiled_text_holds_the_plans_collectives(name: str, method: str, order: str) -> None:
    """Catches a gather, a reduction or a hidden reshard, in the transform and its gradient, and a wrong value."""
    plan = _plan(name, method, order)
    if plan is None:
        return  # the method has no walk here; `_plan` holds that auto and kdft always have one
    values = noise(plan.shape)
    x = mf.shard(values, plan.mesh, plan.in_layout.spec)  # type: ignore[arg-type]
    ct = mf.shard(values, plan.mesh, plan.out_layout.spec)  # type: ignore[arg-type]

    def both(a: Any, b: Any) -> Any:
        y, pull = jax.vjp(plan, a)
        return y, pull(b)[0]

    program = jax.jit(both).lower(x, ct).compile()  # there and back as one program, which take the same collectives
    assert collectives(program) == {kind: 2 * many for kind, many in plan.collectives.items()}
    assert error(mf.gather(program(x, ct)[0]), dft(values, plan.transform.dims)) <= 4e-7


@pytest.mark.quick(0, 2, 4, 5, 6, 13)
@pytest.mark.parametrize("name", [n for n in TABLE if "97" not in n and "uneven" not in n])
def test_bytes_of_transposes(name: str) -> None:
    """Catches traffic beyond 2 (p-1)/p V per dimension in natural order, and more than an exchange each in any order.

    At sizes where bytes matter: for a few hundred points the search rightly saves messages instead.
    """
    natural, free = _plan(name, "transpose", "natural", 16), _plan(name, "transpose", "any", 16)
    if natural is None or free is None:
        assert name.startswith("1-D"), "only a line alone cannot be transposed"
        return
    block = int(np.prod(natural.in_layout.block)) * 8
    dims = natural.transform.dims
    once = sum(block * (p - 1) / p for d, p in enumerate(natural.in_layout.parts) if d in dims)
    assert natural.work.sent_bytes <= 2 * once
    exchanges = [w for w in free.walk.works(8, free.machine.chip) if w.all_to_alls]
    cut = sum(natural.in_layout.parts[d] > 1 for d in dims)
    assert len(exchanges) <= cut and free.work.sent_bytes <= natural.work.sent_bytes


@pytest.mark.parametrize(
    ("name", "share", "on_cpu"), [("slab", 0.5, 0.5), ("pencil", 0.5, 0.8), ("2-D", 0.65, 0.65), ("block", 0.65, 0.65)]
)
def test_any_order_halves_the_traffic(name: str, share: float, on_cpu: float) -> None:
    """Catches a free order that is not used. A block's axes pile up as they leave, so 1.75 V of 3 V is its least.

    On CPUs, where copies cost more than sending, the axes of a pencil go round by X: the last dimension is not cut.
    """
    for topology, least in (("h100:8", share), (None, on_cpu)):
        natural, free = (_plan(name, "transpose", order, 16, topology) for order in ("natural", "any"))
        assert natural and free and free.work.sent_bytes <= least * natural.work.sent_bytes


@pytest.mark.parametrize("p", [2, 3, 8])
def test_bytes_of_the_ring(p: int) -> None:
    """Catches a ring that sends more than p - 1 blocks."""
    plan = mf.plan((p * 6, 5), mesh=mesh((p,)), spec=P("x"), method="kdft")
    assert plan.work.sent_bytes == (p - 1) * 6 * 5 * 8 and plan.work.hops == p - 1


def test_jnp_fft_gathers_where_meshfft_does_not() -> None:
    """Catches a counter that sees nothing: the same array through jnp.fft must show all-gathers."""
    x = mf.shard(noise((16, 16, 16)), mesh((2, 2, 2)), P("x", "y", "z"))
    assert collectives(jax.jit(jax.numpy.fft.fftn).lower(x).compile())["all-gather"] >= 1


@pytest.mark.parametrize(("points", "parts"), [(24, 4), (15, 3), (128, 16), (7, 1)])
@pytest.mark.parametrize("start", [None, 0, 5])
def test_residues_by_slices_are_those_of_a_table(points: int, parts: int, start: int | None) -> None:
    """Catches another order of a line on TPUs, which slice it, than elsewhere."""
    given = () if start is None else (jax.numpy.asarray(start),)
    line = jax.numpy.asarray(noise((points,)))
    found = all_to_all._by_slices(line, *given, parts=parts)
    np.testing.assert_array_equal(found, all_to_all._by_table(line, *given, dim=0, parts=parts))
    first = np.asarray(line).reshape(-1, parts)[:, -(start or 0) % parts]
    np.testing.assert_array_equal(found[: points // parts], first)


def test_the_first_difference_of_processes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a message that is another one in every run, and names the checksum of an input of another shape."""
    facts = {f"fact {number}": 0 for number in range(20)}
    other = {name: 1 for name in facts if name != "fact 0"} | {"one more": 1}
    monkeypatch.setattr(processes, "from_all", lambda facts: {0: facts, 1: {**facts, **other}})
    with pytest.raises(ValueError, match=r"process 0 has fact 1 0, process 1 has 1:"):
        processes.check_alike(facts)
