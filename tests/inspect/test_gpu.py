"""Plans for GPUs: right on 8 CPU devices, and what XLA's compiler makes of them for described H100s, which it alone
needs: the CUDA plugin of jax, no GPU."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import Spec
from meshfft.plans.plan import Plan


def planned(shape: tuple[int, ...], sizes: tuple[int, ...], spec: Spec, order: str, kind: str) -> Plan:
    """The plan for 8 H100s."""
    described = AbstractMesh(sizes, tuple("xyz"[: len(sizes)]))
    return mf.plan(shape, mesh=described, spec=spec, topology="h100:8", order=order, kind=kind, method="transpose")


CASES = [
    ((16, 8, 24), (8,), P("x"), "fft", 2),
    ((16, 24, 8), (4, 2), P("x", "y"), "fft", 2),
    ((8, 16, 12), (2, 2, 2), P("x", "y", "z"), "fft", 3),
    ((13, 7, 11), (4, 2), P("x", "y"), "fft", 2),
    ((9, 5, 7), (2, 2, 2), P("x", "y", "z"), "fft", 3),
    ((16, 8, 12), (2, 2, 2), P(("x", "y"), "z"), "rfft", 2),
    ((8, 12, 16), (2, 2, 2), P("x", "y", "z"), "rfft", 3),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("order", ["natural", "any"])
@pytest.mark.parametrize(("shape", "sizes", "spec", "kind", "exchanges"), CASES)
def test_plans_for_gpus_run(
    shape: tuple[int, ...], sizes: tuple[int, ...], spec: P, kind: str, exchanges: int, order: str
) -> None:
    """Catches shares of several moves mixed up, padded or joined in a wrong order, a wrong gradient, and an exchange
    more than is needed where one can do several moves."""
    plan = planned(shape, sizes, spec, order, kind)
    where, x = mesh(sizes), noise(shape)
    x = np.ascontiguousarray(x.real) if kind == "rfft" else x
    put, axes = mf.shard(x, where, spec), tuple(range(len(shape)))
    program = compile_plan(plan, where)
    assert collectives(program) == plan.walk.collectives, plan.name
    assert plan.walk.collectives["all-to-all"] <= exchanges, plan.name
    truth = np.fft.rfftn(x) if kind == "rfft" else dft(x, axes)
    here = dataclasses.replace(plan, mesh=where)
    assert error(mf.gather(here(put)), truth) <= 4e-7
    if kind == "fft":
        slope = jax.jit(jax.grad(lambda v: (abs(here(v)) ** 2).sum() / x.size))(put)
        assert error(np.conj(mf.gather(slope)), 2 * x) <= 4e-7


def test_batches_are_for_want_of_memory() -> None:
    """Catches transpositions priced too high: groups of lines, which go over memory twice more, were taken for them."""
    for n in (256, 512, 1024):
        for sizes, spec in (((8,), P("x")), ((4, 2), P("x", "y")), ((2, 2, 2), P("x", "y", "z"))):
            assert "batched" not in planned((n,) * 3, sizes, spec, "natural", "fft").name
