"""Laws of transforms at scattered points, over drawn shapes, meshes, specs and points; and what `tol` promises."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from reference import at_points, error, noise

import meshfft as mf
from benchmarks import tolerance
from meshfft.inspect.hlo import collectives

MESHES = ((8,), (2, 4), (4, 2), (2, 2, 2), (3,), (5,), (3, 2), (1, 7))


@st.composite
def asked(draw: st.DrawFn) -> dict:
    """An image of one to three dimensions on a mesh, cut anyhow, and points of one or two dimensions."""
    d = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, (40, 24, 12)[d - 1])) for _ in range(d))
    sizes = draw(st.sampled_from([m for m in MESHES if len(m) <= d]))
    names = "xyz"[: len(sizes)]
    dims = draw(st.permutations(range(d)))[: len(sizes)]
    spec: list[str | None] = [None] * d
    for name, dim in zip(names, dims, strict=True):
        spec[dim] = name
    many = draw(st.one_of(st.tuples(st.integers(1, 40)), st.tuples(st.integers(1, 7), st.integers(1, 6))))
    k = np.random.default_rng(draw(st.integers(0, 2**16))).uniform(-2.0, 2.0, (*many, d))
    return {
        "shape": shape,
        "mesh": jax.make_mesh(sizes, tuple(names), devices=jax.devices()[: math.prod(sizes)]),
        "spec": P(*spec),
        "k": k,
        "tol": draw(st.sampled_from([1e-2, 1e-3, 1e-4, 1e-6])),
        "order": draw(st.sampled_from(["any", "natural"])),
        "origin": draw(st.sampled_from(["corner", "centre"])),
        "balance": draw(st.booleans()),
    }


@given(asked())
def test_any_image_on_any_mesh(ask: dict) -> None:
    """Catches whatever a table of cases leaves out: uneven blocks, windows wider than images, owners without points.

    The error is relative to that of a value whose terms do not cancel, |x|: few points may all be small.
    """
    shape, mesh, spec, k = (ask.pop(name) for name in ("shape", "mesh", "spec", "k"))
    plan = mf.scattered_plan(shape, mf.Scattered.turns(k), mesh=mesh, spec=spec, **ask)
    x = noise(shape)
    values = mf.gather(plan(mf.shard(x, mesh, spec)))
    truth = at_points(x, k.reshape(-1, len(shape)), centred=ask["origin"] == "centre").reshape(values.shape)
    assert np.linalg.norm(values - truth) <= 3 * ask["tol"] * np.linalg.norm(x) * math.sqrt(truth.size)
    c = noise(values.shape, seed=1)
    image = mf.gather(plan.adjoint(mf.shard(c, mesh, plan.out_layout.spec)))
    apart = abs(np.vdot(c.astype(complex), values) - np.vdot(image.astype(complex), x))
    assert apart <= 3e-6 * np.linalg.norm(c) * np.linalg.norm(x) * math.sqrt(truth.size)  # a single point: 1.8e-6


@pytest.mark.more
def test_inside_shard_map() -> None:
    """Catches tables of another device, inside a caller's own shard_map over all mesh axes or one of them."""
    mesh, k, x = jax.make_mesh((2, 4), ("x", "y")), np.random.default_rng(2).random((64, 2)), noise((32, 24))
    plan = mf.scattered_plan((32, 24), mf.Scattered.turns(k), mesh=mesh, tol=1e-4, order="natural")
    stored, values = mf.shard(x, mesh, P("x", "y")), at_points(x, k)
    cut = plan.out_layout.spec
    for axes in ({"x", "y"}, {"x"}):
        only = {"x": "x", "y": "y" if "y" in axes else None}
        inner, outer = P(only["x"], only["y"]), P(tuple(filter(None, only.values())))
        assert cut == P(("x", "y"))
        there = jax.shard_map(plan, mesh=mesh, in_specs=inner, out_specs=outer, axis_names=axes, check_vma=False)
        assert error(jax.jit(there)(stored), values) < 1e-4


def test_in_the_plan_s_order_only_the_grid_travels() -> None:
    """Catches an exchange of values where none is needed."""
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    k = mf.Scattered.turns(np.random.default_rng(2).random((64, 2)))
    plan = mf.scattered_plan((32, 24), k, mesh=mesh, tol=1e-4, order="natural")
    x = mf.shard(noise((32, 24)), mesh, P("x", "y"))
    counts = collectives(jax.jit(lambda x: plan(x, placed=True)).lower(x).compile())
    assert counts == {**plan.collectives, "all-to-all": plan.collectives["all-to-all"] - 1}


@pytest.mark.quick(2)
@pytest.mark.parametrize("sigma", [2.0, 1.5, 1.25])
def test_every_sigma_keeps_its_tolerance(sigma: float) -> None:
    """Catches a window that was fitted for another oversampling."""
    x, k = noise((40, 30)), np.random.default_rng(3).random((200, 2))
    for tol in (1e-2, 1e-3, 1e-4):
        values = mf.nufftn(x, mf.Scattered.turns(k), tol=tol, sigma=sigma)
        assert error(values, at_points(x, k)) <= tol


def test_normal_takes_weights_and_returns_an_operator() -> None:
    """Catches `normal(image)`, which was answered with shapes of a plan that the caller has never seen."""
    points = mf.Scattered.turns(np.random.default_rng(0).uniform(-0.5, 0.5, (37, 2)))
    plan = mf.scattered_plan((16, 12), points)
    for wrong in (np.ones((16, 12), np.complex64), np.ones(37, np.float32)):
        with pytest.raises(ValueError, match=r"plan.density\(\) .* plan.normal\(weights\)\(image\)"):
            plan.normal(wrong)


@pytest.mark.parametrize("traced", [False, True])
def test_no_points_add_nothing_up(traced: bool) -> None:
    """Catches a refusal of lists of points that are empty, where NumPy's sums are zeros, or have no elements."""
    devices = jax.make_mesh((2, 4), ("x", "y"))
    x = jax.device_put(noise((3, 8, 8)), jax.sharding.NamedSharding(devices, P(None, "x", "y")))
    none, run = mf.Scattered.turns(np.zeros((0, 5, 2))), jax.jit if traced else (lambda function: function)
    values = run(lambda x: mf.nufftn(x, none))(x)
    assert values.shape == (3, 0, 5) and values.dtype == np.complex64
    assert run(lambda x: mf.kdftn(x, none))(x).shape == (3, 0, 5)
    image = run(lambda c: mf.nufftn_adjoint(c, none, (8, 8)))(values)
    np.testing.assert_array_equal(image, np.zeros((3, 8, 8)))
    some = mf.Scattered.turns(np.ones((3, 2)))
    np.testing.assert_array_equal(run(lambda c: mf.nufftn_type3(c, none.coords, some))(values), np.zeros((3, 3)))
    assert run(lambda c: mf.nufftn_type3(c, some.coords, none))(np.ones(3)).shape == (0, 5)
    with pytest.raises(ValueError, match=r"points have shape \(0, 5\): plan for at least one"):
        mf.scattered_plan((8, 8), none)


def test_planes_and_gradients_of_no_points() -> None:
    """Catches complex numbers in place of planes, and a missing gradient."""
    none, x = mf.Scattered.turns(np.zeros((0, 1))), np.ones(4, np.float32)
    re, im = mf.nufftn((x, x), none)
    assert re.shape == im.shape == (0,) and re.dtype == np.float32
    np.testing.assert_array_equal(jax.grad(lambda x: abs(mf.nufftn(x, none)).sum())(x), np.zeros(4))


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_points_at_the_edges_of_cells_keep_the_tolerance(tol: float) -> None:
    """Catches a window chosen by its mean error over points, which is a few times larger at the edges of cells.

    The image of one point is a row of the matrix; the samples at the end of the band err most.
    """
    n, cells = 32, 64
    for edge in (0.0, 0.5, 1e-9, 0.25):
        k = mf.Scattered.turns(np.full((3, 1), (5 + edge) / cells))
        wave = np.exp(2j * np.pi * (5 + edge) / cells * np.arange(n))
        row = np.asarray(mf.nufftn_adjoint(np.ones(3, np.complex64), k, n, tol=tol, sigma=2.0))
        assert np.abs(row / 3 - wave).max() <= tol
        assert error(row / 3, wave) <= tol
        last = np.asarray(mf.nufftn(np.eye(n, dtype=np.complex64)[:1], k, tol=tol, sigma=2.0, origin="centre"))
        assert np.abs(last - np.exp(2j * np.pi * (5 + edge) / cells * (n // 2))).max() <= tol


def test_two_windows_keep_the_tolerance() -> None:
    """Catches type 3 whose two windows have an error of `tol` each, at positions and frequencies that both err most."""
    s = np.array([[1.6578488042038755], [-2.5684262399119895], [1.6350880476625758]])
    x = np.array([[-0.4451686263851543]])
    sums = mf.nufftn_type3(np.ones(1, np.complex64), x, mf.Scattered.turns(s), tol=1e-3)
    assert error(sums, np.exp(-2j * np.pi * s @ x.T).sum(1)) <= 1e-3


def test_type_3_refuses_what_two_windows_cannot_hold() -> None:
    """Catches a tolerance at which each window alone has all of it."""
    s = mf.Scattered.turns([[1.0], [0.5]])
    with pytest.raises(ValueError, match=r"tol=1e-06 is below.* use tol >= 2e-06"):
        mf.nufftn_type3(np.ones(2, np.complex64), np.array([[0.0], [2.5]]), s, tol=1e-6)
    wrong: Any
    for wrong in (1.0, 1.5, 0, float("nan"), "fine", None):
        with pytest.raises(ValueError, match=r"tol is .*: give a relative error"):
            mf.nufftn_type3(np.ones(2), np.array([[0.0], [2.5]]), s, tol=wrong)
    with jax.enable_x64(True), pytest.raises(ValueError, match="use tol >= 2e-12"):
        mf.nufftn_type3(np.ones(2, complex), np.array([[0.0], [2.5]]), s, tol=1e-12)


@pytest.mark.slow
def test_drawn_sets_keep_the_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches an error above `tol`: 110 sets of all types, precisions and decades; the benchmark draws 5,000."""
    rows = list(tolerance.measured(110, 1, each=2))
    assert {(row["kind"], row["dtype"]) for row in rows} == {(k, d) for k in (1, 2, 3) for d in tolerance.LEAST_TOL}
    assert max(max(row["error"], row["single"]) for row in rows) <= 1
    tolerance.show(rows)
    assert "| 3 | 1e-12 | 2 |" in capsys.readouterr().out
