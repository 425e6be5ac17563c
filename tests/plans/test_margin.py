"""Margins: ghost cells that a transform leaves out, and that its result has as zeros around every block."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise, powers, separable
from shard_maps import put

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import collectives
from meshfft.io import record_of
from meshfft.layout.padded_array import stored_of
from meshfft.plans.plan import Plan

GRID, SPEC = (2, 4), P("x", "y")
ANGLES = np.random.default_rng(5).random(8)


def _within(plan: Plan, at_end: bool = False) -> list[np.ndarray]:
    """The indices along each dimension outside the margins."""
    layout, found = plan.out_layout if at_end else plan.in_layout, []
    widths = dict(zip(plan.transform.dims, plan.margin, strict=True))
    for dim, (size, parts) in enumerate(zip(layout.shape, layout.parts, strict=True)):
        at, block, width = np.arange(size), size // parts, widths.get(dim, 0)
        found.append(at if width == 0 else at[(at % block >= width) & (at % block < block - width)])
    return found


def _filled(plan: Plan, x: np.ndarray, ghost: float = np.nan) -> np.ndarray:
    """The array with ghost cells."""
    whole = np.full(plan.shape, ghost, x.dtype)
    whole[np.ix_(*_within(plan))] = x
    return whole


def _inner(plan: Plan, y: Any) -> np.ndarray:
    """The points of a result, whose margins have to be zero."""
    y = mf.gather(y)
    assert y.shape == plan.out_shape
    ghosts = y.copy()
    ghosts[np.ix_(*_within(plan, True))] = 0
    assert not ghosts.any()
    return y[np.ix_(*_within(plan, True))]


# # shape with ghost cells, mesh, spec, arguments of plan; the reference result for x
ROWS: dict[str, tuple[Any, ...]] = {
    "1-D": ((8 * 7,), (8,), P("x"), {"margin": 3}),
    "2-D": ((2 * 9, 4 * 7), GRID, SPEC, {"margin": (2, 1)}),
    "3-D": ((12, 12, 12), (2, 2, 2), P("x", "y", "z"), {"margin": 1}),
    "one axis of two": ((4, 4 * 6), GRID, SPEC, {"margin": (1,), "axes": (-1,)}),
    "batch": ((5, 12, 24), GRID, P(None, "x", "y"), {"margin": 2, "axes": (1, 2), "norm": "ortho"}),
    "not cut": ((7, 11), GRID, P(None, ("x", "y")), {"margin": (2, 0)}),
    "real": ((2 * 9, 4 * 6), GRID, SPEC, {"kind": "rfft", "margin": (2, 1), "axes": (1, 0)}),
    "cosines": ((2 * 9, 4 * 6), GRID, SPEC, {"kind": "dct-2", "margin": 1}),
    "longer": ((2 * 6, 4 * 5), GRID, SPEC, {"margin": 1, "s": (10, 12)}),
    "any order": ((2 * 6, 4 * 6, 8), GRID, SPEC, {"margin": (1, 1, 0), "order": "any"}),
    "elsewhere": ((2 * 6, 4 * 6, 8), GRID, SPEC, {"margin": 1, "out_spec": P(None, "x", "y"), "axes": (0, 1)}),
    "kdft": ((2 * 6, 4 * 5), GRID, SPEC, {"margin": (1, 2), "method": "kdft"}),
    "points": ((2 * 6, 4 * 5), GRID, SPEC, {"margin": (1, 2), "points": (None, mf.Points.turns(ANGLES))}),
}


def _truth(plan: Plan, x: np.ndarray, how: dict[str, Any]) -> np.ndarray:
    axes = [axis % x.ndim for axis in how.get("axes", range(x.ndim))]
    if "points" in how:
        return separable(dft(x, (0,)), [None, powers(ANGLES, None, x.shape[1])])
    if how.get("kind") == "dct-2":
        for axis in axes:
            n, k = np.arange(x.shape[axis]), np.arange(x.shape[axis])[:, None]
            x = np.moveaxis(np.tensordot(2 * np.cos(np.pi * k * (2 * n + 1) / 2 / len(n)), x, (1, axis)), 0, axis)
        return x
    y = dft(x, axes, how.get("s"))
    y = y / math.sqrt(math.prod(x.shape[a] for a in axes)) if how.get("norm") else y
    return y if how.get("kind") != "rfft" else np.take(y, range(x.shape[axes[-1]] // 2 + 1), axes[-1])


@pytest.mark.quick(9)
@pytest.mark.parametrize("name", ROWS)
def test_a_margin_is_left_out_and_comes_back_as_zeros(name: str) -> None:
    """Catches ghost cells that reach a result, NaN among them; a margin of the wrong width or place; more sent."""
    shape, sizes, spec, how = ROWS[name]
    where = mesh(sizes)
    plan = mf.plan(shape, mesh=where, spec=spec, **how)
    x = noise([len(at) for at in _within(plan)], plan.in_dtype.name)
    y = plan(mf.shard(_filled(plan, x), where, spec))
    assert error(_inner(plan, y), _truth(plan, x, how)) <= 5e-7
    assert stored_of(y).sharding.is_equivalent_to(jax.NamedSharding(where, plan.out_layout.spec), x.ndim)
    plain = {key: value for key, value in how.items() if key != "margin"}
    without = mf.plan(x.shape, mesh=where, spec=spec, dtype=plan.in_dtype, **plain)
    assert collectives(compile_plan(plan, where)) == plan.collectives == without.collectives
    if name == "longer" or "points" in how:
        return
    ghosts = np.full(plan.out_shape, np.nan, y.dtype)  # which a halo exchange is to fill
    ghosts[np.ix_(*_within(plan, True))] = _inner(plan, y)
    back = plan.inverse(mf.shard(ghosts, where, plan.out_layout.spec))
    np.testing.assert_allclose(mf.gather(back), _filled(plan, x, 0), atol=2e-6)


@pytest.mark.more
def test_gradients_and_adjoints_are_zero_in_ghost_cells() -> None:
    """Catches a transpose that is not the one of the sliced transform, in double precision, planes and a batch."""
    where = mesh(GRID)
    with jax.enable_x64(True):
        plan = mf.plan((2 * 5, 4 * 4), mesh=where, spec=SPEC, margin=(1, 1), dtype="complex128")
        x, ct = (put(noise(plan.shape, "complex128", seed), where, SPEC) for seed in (1, 2))
        y, pull = jax.vjp(plan, x)
        inner = np.ix_(*_within(plan))
        truth = _filled(plan, dft(np.asarray(ct)[inner], (0, 1)), 0)
        assert error(_inner(plan, y), dft(np.asarray(x)[inner], (0, 1))) <= 2e-15
        np.testing.assert_allclose(pull(ct)[0], truth, atol=1e-13)
        np.testing.assert_allclose(jnp.vdot(plan.adjoint(ct), x), jnp.vdot(ct, y), rtol=1e-12)
        planes = plan((x.real, x.imag))
        np.testing.assert_allclose(jax.lax.complex(*planes), y, atol=1e-13)
        batch = jax.vmap(plan)(jnp.stack([x, 2 * x]))
        np.testing.assert_allclose(batch[1], 2 * y, atol=1e-13)
        stages = x
        for stage in plan.stages:
            stages = stage(stages)
        np.testing.assert_allclose(stages, y, atol=1e-13)


def test_a_solver_calls_it_on_its_own_blocks() -> None:
    """Catches a margin that is taken off the ends of the array instead of every block."""
    where = mesh(GRID)
    plan = mf.plan((2 * 6, 4 * 5), mesh=where, spec=SPEC, margin=1)
    x = noise((2 * 4, 4 * 3))
    run = jax.shard_map(lambda block: plan(block), mesh=where, in_specs=SPEC, out_specs=SPEC)
    y = jax.jit(run)(put(_filled(plan, x), where, SPEC))
    assert error(_inner(plan, y), dft(x, (0, 1))) <= 4e-7


def test_wavenumbers_stand_where_the_points_do() -> None:
    """Catches wavenumbers of the points before ghost cells were added: derivatives that are silently wrong."""
    where, x = mesh(GRID), noise((8, 12), "float32")
    plan = mf.plan((2 * 6, 4 * 5), mesh=where, spec=SPEC, margin=1)
    k: Any = mf.wavenumbers(plan, odd=True)[1]
    y = plan.inverse(
        jax.lax.complex(jnp.zeros_like(k), k) * plan(put(_filled(plan, x.astype(np.complex64)), where, SPEC))
    )
    assert error(_inner(plan, y), np.asarray(mf.derivative(x, 1, lengths=12.0))) <= 1e-6


def test_a_plan_tells_its_margins() -> None:
    """Catches a table, a memory or a record that knows nothing of them."""
    plan = mf.plan((2 * 68, 4 * 36, 64), mesh=mesh(GRID), spec=SPEC, margin=(2, 2, 0))
    assert plan.margin == (2, 2, 0) and plan.to_dict()["margin"] == [2, 2, 0]
    assert "margins of 2 x 2 x 0" in str(plan) and "trim X by 2, Y by 2" in str(plan)
    assert all(len(line) <= 80 for line in str(plan).splitlines())
    first, last = plan.walk.pairs[0], plan.walk.pairs[-1]
    traffic = [step.work(layout, 8, plan.machine.chip).memory_bytes for step, layout in (first, last)]
    assert traffic == [2 * 8 * 64 * 32 * 64, 8 * 64 * (64 * 32 + 68 * 36)]
    memory = compile_plan(plan, mesh(GRID)).memory_analysis()
    assert memory is not None
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert used <= plan.peak_bytes
    for refused in (lambda: plan.solve(np.zeros(plan.shape)), lambda: record_of(plan)):
        with pytest.raises(ValueError, match="margins of"):
            refused()


@pytest.mark.parametrize(
    ("shape", "how", "text"),
    [
        ((12, 20), {"margin": 1.5}, "margin is 1.5: give"),
        ((12, 20), {"margin": True}, "margin is True: give"),
        ((12, 20), {"margin": -1}, "margin -1 of axis 0 is negative: give"),
        ((12, 20), {"margin": (1,)}, r"margin \(1,\) has 1 widths for 2 axes: give one, or"),
        ((12, 20), {"margin": (3, 0)}, "margin 3 .* axis 0, which have 6 cells: give at most 2"),
        ((13, 20), {"margin": 1}, "axis 0 has 13 cells over 2 blocks: .* such as 14"),
        ((12, 20), {"margin": 1, "axes": (1, 1)}, "axis 1 is given twice"),
        ((12, 24), {"margin": (0, 1), "kind": "rfft"}, "9 points along axis 1, which 4 blocks .* out_spec="),
        ((12, 20), {"margin": 1, "s": (7, 12)}, "7 points along axis 0, which 2 blocks do not divide"),
        ((12, 20), {"margin": 1, "mesh": None, "spec": None, "topology": "v3:2x2"}, "margin 1 is for each block"),
    ],
)
def test_a_margin_that_does_not_fit_is_refused(shape: tuple[int, int], how: dict[str, Any], text: str) -> None:
    """Catches a margin that is rounded, ignored or found out about only in the compiler."""
    with pytest.raises((ValueError, TypeError), match=text):
        mf.plan(shape, **{"mesh": AbstractMesh(GRID, ("x", "y")), "spec": SPEC, **how})
