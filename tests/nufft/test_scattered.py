"""Transforms at scattered points, against direct sums: values, adjoints, gradients, collectives, hostile points."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import at_points, error, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import from_spec
from meshfft.machine import topology as machine
from meshfft.nufft.planning import plan_to_points
from meshfft.nufft.problem import problem_of
from meshfft.plans.request import Setting
from meshfft.steps.problem import Options

KINDS = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}


def meshed(axes: dict[str, int], kind: str = "auto") -> jax.sharding.Mesh:
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(KINDS[kind],) * len(axes))


def spec_of(x: Any) -> P:
    return P(*x.sharding.spec)


def points(many: int | tuple[int, ...], d: int, seed: int = 1) -> np.ndarray:
    """Anywhere in a few periods."""
    many = (many,) if isinstance(many, int) else many
    return np.random.default_rng(seed).uniform(-1.4, 1.6, (*many, d))


# shape, mesh, spec, axes, points, options: one to three dimensions, odd sizes and meshes, batches cut and not.
CASES: dict[str, Any] = {
    "line": ((300,), {"x": 8}, P("x"), None, 211, {"tol": 1e-6}),
    "plane": ((64, 48), {"x": 2, "y": 4}, P("x", "y"), None, (16, 15), {"tol": 1e-6}),
    "coarse": ((64, 48), {"x": 2, "y": 4}, P("x", "y"), None, 240, {"tol": 1e-2}),
    "last cut": ((30, 40), {"x": 8}, P(None, "x"), None, 97, {"tol": 1e-4, "origin": "centre"}),
    "natural": ((24, 20, 16), {"x": 2, "y": 2, "z": 2}, P("x", "y", "z"), None, 64, {"tol": 1e-5, "order": "natural"}),
    "volume": ((16, 12, 20), {"x": 4, "y": 2}, P("y", None, "x"), None, 88, {"tol": 1e-6, "norm": "ortho"}),
    "sparse grid": ((20, 24), {"x": 2, "y": 4}, P("x", "y"), None, 64, {"tol": 1e-3, "sigma": 1.25}),
    "coils": ((4, 24, 20), {"x": 2, "y": 4}, P("y", "x"), None, 56, {"tol": 1e-4}),
    "middle": ((18, 3, 16), {"x": 2, "y": 4}, P("x", None, "y"), (0, 2), 56, {"tol": 1e-4}),
    "odd mesh": ((35, 25), {"x": 5}, P("x"), None, 50, {"tol": 1e-6}),
    "wide window": ((8, 8), {"x": 8}, P("x"), None, 40, {"tol": 1e-6}),
}


@pytest.mark.quick(9)
@pytest.mark.parametrize("name", CASES)
def test_values_adjoint_and_collectives(name: str) -> None:
    """Catches a wrong owner, halo, phase or table, in either direction, and collectives that the plan does not print.

    Points do not divide the devices in some cases, and the window is wider than a block in one.
    """
    shape, axes, spec, dims, many, options = CASES[name]
    mesh, d = meshed(axes), len(shape) if dims is None and shape[0] != 4 else 2
    k = points(many, d)
    plan = mf.scattered_plan(shape, mf.Scattered.turns(k), mesh=mesh, spec=spec, axes=dims, **options)
    x = noise(shape)
    stored = mf.shard(x, mesh, spec)
    compiled = jax.jit(plan).lower(stored).compile()
    values = mf.gather(compiled(stored))
    truth = at_points(x, k.reshape(-1, d), dims, options.get("origin") == "centre").reshape(values.shape)
    truth = truth / np.sqrt(np.prod([shape[a] for a in plan.dims])) if "norm" in options else truth
    assert error(values, truth) <= options["tol"]
    assert error(values, truth) <= plan.error
    assert collectives(compiled) == plan.collectives
    assert set(plan.collectives) <= {"all-to-all", "collective-permute"}

    c = noise(values.shape, seed=2)
    image = mf.gather(plan.adjoint(mf.shard(c, mesh, plan.out_layout.spec)))
    apart = np.vdot(c.astype(complex), values) - np.vdot(image.astype(complex), x)
    assert abs(apart) <= 1e-6 * np.linalg.norm(c) * np.linalg.norm(values)

    placed = plan(stored, placed=True)
    assert error(mf.gather(plan.restore(placed)), values) < 1e-7
    assert error(mf.gather(plan.place(mf.shard(values, mesh, plan.out_layout.spec))), mf.gather(placed)) < 1e-7


@pytest.mark.more
@pytest.mark.parametrize("kind", KINDS)
def test_functions_keep_to_the_mesh(kind: str) -> None:
    """Catches functions that gather the image or leave the values on one device; and a gradient that is no adjoint."""
    mesh, k = meshed({"x": 2, "y": 4}, kind), points(64, 2)
    scattered, x = mf.Scattered.turns(k), noise((32, 24))
    with jax.set_mesh(mesh):
        stored = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
        values = mf.nufftn(stored, scattered, tol=1e-4)
        assert spec_of(values) == P(("x", "y"))
        assert error(values, at_points(x, k)) < 1e-4
        image = mf.nufftn_adjoint(values, scattered, (32, 24), tol=1e-4)
        assert spec_of(image) == P("x", "y")
        back = jax.grad(lambda a: jnp.sum(jnp.abs(mf.nufftn(a, scattered, tol=1e-4, spec=P("x", "y"))) ** 2) / 2)(
            stored
        )
        assert error(np.conj(back), np.asarray(image)) < 1e-6
    alone = mf.nufftn_adjoint(np.asarray(values), scattered, (32, 24), tol=1e-4)
    assert error(image, np.asarray(alone)) < 1e-6
    chosen = mf.nufftn(stored, scattered, tol=1e-4, out_spec=P(("y", "x")))
    assert spec_of(chosen) == P(("y", "x")) and error(chosen, np.asarray(values)) < 1e-6


@pytest.mark.more
def test_float64_reaches_twelve_digits() -> None:
    """Catches phases, offsets or weights that pass through float32."""
    with jax.enable_x64(True):
        mesh, k, x = meshed({"x": 4, "y": 2}), points(50, 3), noise((12, 10, 14), "complex128")
        plan = mf.scattered_plan(
            x.shape, mf.Scattered.turns(k), mesh=mesh, spec=P("x", "y"), tol=1e-12, dtype="complex128"
        )
        values = mf.gather(plan(mf.shard(x, mesh, P("x", "y"))))
        assert error(values, at_points(x, k)) < 1e-12
        c = noise(values.shape, "complex128", seed=3)
        image = mf.gather(plan.adjoint(mf.shard(c, mesh, plan.out_layout.spec)))
        assert abs(np.vdot(c, values) - np.vdot(image, x)) < 1e-14 * np.linalg.norm(c) * np.linalg.norm(values)


@pytest.mark.more
def test_long_lines_lose_nothing() -> None:
    """Catches points that are placed in float32: 2e-3 at this length."""
    mesh, x = meshed({"x": 8}), noise((2**16,))
    k = points(100, 1)
    values = mf.nufftn(mf.shard(x, mesh, P("x")), mf.Scattered.turns(k), tol=1e-6)
    assert error(mf.gather(values), at_points(x, k)) < 1e-6


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "k",
    [
        [[0.0, 0.0]],
        [[-0.5, 0.5], [0.5, -0.5], [1 - 2**-53, -(2**-53)], [1e6 + 1 / 3, -1e6 - 1 / 3]],
        np.full((37, 2), 0.25),
        [[0.1, 0.2], [0.1, 0.2], [0.7, 0.9]],
    ],
    ids=["one at zero", "edges of a period", "all in one place", "fewer than devices"],
)
def test_hostile_points(k: Any) -> None:
    """Catches owners without points, cells that wrap to a size, and coordinates that lose their fraction."""
    mesh, x = meshed({"x": 8}), noise((24, 16))
    plan = mf.scattered_plan((24, 16), mf.Scattered.turns(k), mesh=mesh, spec=P("x"))
    values = mf.gather(plan(mf.shard(x, mesh, P("x"))))
    assert error(values, at_points(x, k)) < 2e-6
    c = noise(values.shape, seed=4)
    image = mf.gather(plan.adjoint(mf.shard(c, mesh, plan.out_layout.spec)))
    assert abs(np.vdot(c, values) - np.vdot(image, x)) < 1e-6 * np.linalg.norm(c) * np.linalg.norm(values)


@pytest.mark.more
def test_vmap_is_a_loop() -> None:
    """Catches a batch that disturbs tables, or adds collectives."""
    mesh, k = meshed({"x": 2, "y": 4}), points(64, 2)
    plan = mf.scattered_plan((16, 24), mf.Scattered.turns(k), mesh=mesh, tol=1e-4)
    x = jax.device_put(noise((3, 16, 24)), NamedSharding(mesh, P(None, "x", "y")))
    batched = jax.jit(jax.vmap(plan))
    assert collectives(batched.lower(x).compile()) == plan.collectives
    assert error(batched(x), np.stack([plan(np.asarray(one)) for one in np.asarray(x)])) < 1e-6


@pytest.mark.more
def test_the_normal_operator_is_a_convolution() -> None:
    """Catches a kernel of the wrong origin or weights, and coils that move its layout."""
    mesh = meshed({"x": 2, "y": 4})
    angle, radius = np.arange(40)[:, None] * 2.4, (np.arange(48)[None] - 24) / 48
    k = np.stack([np.cos(angle) * radius, np.sin(angle) * radius], -1)
    for shape, spec in (((24, 30), P("x", "y")), ((4, 24, 30), P(None, "x", "y"))):
        axes = tuple(range(len(shape) - 2, len(shape)))
        plan = mf.scattered_plan(shape, mf.Scattered.turns(k), mesh=mesh, spec=spec, axes=axes, tol=1e-4)
        weights = plan.density()
        assert 0.6 < float(weights.sum()) < np.pi / 4  # the disc that the spokes cover
        x = mf.shard(noise(shape), mesh, spec)
        values = mf.gather(plan.restore(weights)) * mf.gather(plan(x))
        image = mf.gather(plan.adjoint(mf.shard(values, mesh, plan.out_layout.spec)))
        normal = plan.normal(weights)
        assert error(mf.gather(normal(x)), image) < 1e-4
        assert not set(collectives(jax.jit(normal).lower(x).compile())) & {"all-gather", "all-reduce"}


@pytest.mark.more
def test_owners_are_balanced_where_cuts_halve_the_centre() -> None:
    """Catches thin slabs chosen for a koosh ball, whose middle one device would own."""
    i = np.arange(200) + 0.5
    z, phi, radius = 1 - 2 * i / 200, np.pi * (1 + 5**0.5) * i, (np.arange(32) - 16) / 32
    ways = np.stack([np.sqrt(1 - z * z) * np.cos(phi), np.sqrt(1 - z * z) * np.sin(phi), z], -1)
    k = mf.Scattered.turns(radius[None, :, None] * ways[:, None])
    mesh = meshed({"x": 2, "y": 2, "z": 2})
    plan = mf.scattered_plan((32, 32, 32), k, mesh=mesh, tol=1e-2, sigma=2.0, order="natural")
    assert plan.imbalance <= 1.6  # of slabs 3.2, by windows of 4 cells
    assert f"{plan.imbalance:.2f} times the mean" in str(plan).replace("\n", " ")


def test_the_grid_is_the_cheapest_that_is_as_good() -> None:
    """Catches a fine grid that is taken unpriced, and a coarse one where rounding would show."""
    k, mesh = mf.Scattered.turns(np.random.default_rng(1).random((20000, 3))), meshed({"x": 8})
    plan, *others = (mf.scattered_plan((64, 64, 64), k, mesh=mesh, tol=1e-3, sigma=s) for s in (None, 2.0, 1.5, 1.25))
    assert plan.seconds == min(other.seconds or 0 for other in others) and plan.grid != others[0].grid
    assert mf.scattered_plan((64, 64, 64), k, mesh=mesh, tol=1e-5).grid == others[0].grid


@pytest.mark.more
def test_values_that_crowd_between_two_devices_go_by_way_of_all() -> None:
    """Catches values that are lost, doubled or sent to a wrong place by two all-to-alls, in both directions, and a plan
    that pads all pairs to the fullest: here each device owns what one other device has."""
    mesh, many = meshed({"x": 2, "y": 4}), 2**14
    spread = points((8, many // 8), 2) / 8
    k = np.roll(np.stack([(np.arange(8)[:, None] + 0.3) / 8 + spread[..., 0] / 4, spread[..., 1] * 8], -1), 3, 0)
    spec, x = P(None, ("x", "y")), noise((2, 8, 8))
    plan = mf.scattered_plan(x.shape, mf.Scattered.turns(k), mesh=mesh, spec=spec, tol=1e-3, order="natural")
    stored = mf.shard(x, mesh, spec)
    compiled = jax.jit(plan).lower(stored).compile()
    assert collectives(compiled) == plan.collectives
    values, placed = compiled(stored), plan(stored, placed=True)
    assert error(mf.gather(values), at_points(x, k.reshape(-1, 2)).reshape(values.shape)) < 1e-3
    assert np.array_equal(plan.restore(placed), values) and np.array_equal(plan.place(values), placed)
    dealt, onward = plan.walk.steps[-1].most  # type: ignore[attr-defined]
    assert max(dealt, onward) < 1.5 * many / 8**2


def test_more_cores_are_not_slower() -> None:
    """Catches what made a radial transform slower on 64 cores than on 32: on the way to the caller's order all pairs of
    devices were padded to the fullest, 30 times the mean."""
    spoke, angle = np.arange(512) / 512 - 0.5, np.pi * (3 - 5**0.5) * np.arange(402)[:, None]
    k = mf.Scattered.turns(np.stack([np.cos(angle) * spoke, np.sin(angle) * spoke], -1))
    plans = [
        mf.scattered_plan((256, 256), k, mesh=AbstractMesh((cores,), ("x",)), tol=1e-3, topology=f"v3:{torus}")
        for cores, torus in ((8, "2x2"), (32, "4x4"), (64, "4x8"))
    ]
    seconds = [plan.seconds or 0 for plan in plans]
    assert seconds == sorted(seconds, reverse=True), "modelled"
    for plan, cores in zip(plans, (8, 32, 64), strict=True):
        assert max(plan.walk.steps[-1].most) < 1.5 * k.size / cores**2  # type: ignore[attr-defined]


@pytest.mark.more
@pytest.mark.parametrize("d", [2, 3])
def test_lent_is_unlent(d: int) -> None:
    """Catches tiles sent to a wrong device, not added at their origin, or missing in the printed plan."""
    angle, radius = np.arange(60)[:, None] * 2.4, (np.arange(64)[None] - 32) / 64
    k = np.stack([np.cos(angle) * radius, np.sin(angle) * radius, 0.3 * np.sin(3 * angle) * radius][:d], -1)
    shape, spec = (3, 32, *(24, 20)[: d - 1]), P(None, "x")
    mesh, some = meshed({"x": 8}), mf.Scattered.turns(k)
    ask: dict[str, Any] = {"mesh": mesh, "spec": spec, "axes": range(1, d + 1), "tol": 1e-4, "order": "natural"}
    lent, plain = mf.scattered_plan(shape, some, balance=True, **ask), mf.scattered_plan(shape, some, **ask)
    assert lent.imbalance < 1.3 < 1.5 < plain.imbalance
    x = mf.shard(noise(shape), mesh, spec)
    compiled = jax.jit(lent).lower(x).compile()
    assert collectives(compiled) == lent.collectives
    assert lent.collectives["collective-permute"] > plain.collectives["collective-permute"]
    values = np.asarray(plain(x))
    assert error(compiled(x), values) < 2e-7
    assert error(lent.adjoint(compiled(x)), np.asarray(plain.adjoint(plain(x)))) < 3e-7
    weights, others = lent.density(3), plain.density(3)
    assert error(mf.gather(lent.restore(weights)), mf.gather(plain.restore(others))) < 1e-5


@pytest.mark.more
@pytest.mark.parametrize(("d", "batch"), [(1, ()), (2, (3,)), (3, ())])
def test_from_anywhere_to_anywhere(d: int, batch: tuple[int, ...]) -> None:
    """Catches a wrong middle, scale or factor of type 3, and a batch or mesh that it forgets."""
    rng = np.random.default_rng(d)
    mesh = meshed({"x": 2, "y": 4})
    x, s = rng.normal(3.0, 2.0, (80, d)), rng.uniform(-1.0, 2.5, (9, 8, d))
    c = noise((*batch, 80))
    spec = P(*[None] * len(batch), ("x", "y"))
    stored = mf.shard(c, mesh, spec)
    sums = mf.nufftn_type3(stored, x, mf.Scattered.radians(2 * np.pi * s), tol=1e-5)
    waves = np.exp(-2j * np.pi * x @ s.reshape(-1, d).T)
    assert sums.shape == (*batch, 9, 8)
    assert error(mf.gather(sums), (c @ waves).reshape(sums.shape)) < 1e-5
    alone = mf.nufftn_type3(c, x, mf.Scattered.turns(s), tol=1e-5)
    assert error(alone, mf.gather(sums)) < 1e-5


@pytest.mark.parametrize("s", [np.zeros((4, 1)), np.full((4, 1), 7.3)])
def test_one_frequency_or_one_position(s: np.ndarray) -> None:
    """Catches a grid without cells where all points are one."""
    c, x = noise((10,)), np.random.default_rng(1).normal(5.0, 1.0, (10, 1))
    for there, back in ((x, s), (np.full((10, 1), 2.25), s + np.arange(4)[:, None])):
        sums = mf.nufftn_type3(c, there, mf.Scattered.turns(back), tol=1e-5)
        assert error(sums, c @ np.exp(-2j * np.pi * there @ back.T)) < 2e-5


def test_axes_in_any_order() -> None:
    """Catches coordinates that are taken for those of the dimensions in their own order."""
    x, k = noise((12, 20)), points(30, 2)
    values = mf.nufftn(x, mf.Scattered.turns(k), axes=(1, 0), tol=float(np.float32(1e-6)))
    assert error(values, at_points(x.T, k)) < 1e-6
    image = mf.nufftn_adjoint(values, mf.Scattered.turns(k), (20, 12), axes=(1, 0))
    there = mf.nufftn_adjoint(values, mf.Scattered.turns(k), (20, 12))
    assert error(image, np.asarray(there).T) < 1e-6


def moved(k: np.ndarray, cells: float, grid: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(7)
    return k + rng.uniform(-cells, cells, k.shape) / np.array(grid)


@pytest.mark.more
@pytest.mark.parametrize("name", ["plane", "odd mesh", "coils"])
def test_points_move_within_their_slack(name: str) -> None:
    """Catches offsets or phases of where points were, and NaN elsewhere or nowhere."""
    shape, axes, spec, dims, many, options = CASES[name]
    mesh, k = meshed(axes), points(many, 2)
    plan = mf.scattered_plan(shape, mf.Scattered.turns(k), mesh=mesh, spec=spec, axes=dims, slack=1, **options)
    x = noise(shape)
    stored = mf.shard(x, mesh, spec)
    run = jax.jit(lambda x, k: plan(x, points=mf.Scattered.turns(k)))
    there = moved(k, 0.999, plan.grid)
    values = mf.gather(run(stored, there.astype(np.float32)))
    truth = at_points(x, there.astype(np.float32).reshape(-1, 2)).reshape(values.shape)
    assert error(values, truth) <= 2 * options["tol"]
    image = mf.gather(plan.adjoint(run(stored, there.astype(np.float32)), points=mf.Scattered.turns(there)))
    apart = np.vdot(values, values) - np.vdot(image.astype(complex), x)
    assert abs(apart) <= 1e-5 * np.linalg.norm(values) ** 2
    far = there.copy().reshape(-1, 2)
    far[3] = k.reshape(-1, 2)[3] + 1.01 / plan.grid[0]
    values = mf.gather(run(stored, far.reshape(k.shape).astype(np.float32))).reshape(*values.shape[: -k.ndim + 1], -1)
    assert np.isnan(values[..., 3]).all() and not np.isnan(np.delete(values, 3, -1)).any()


@pytest.mark.more
def test_gradients_in_points_that_move() -> None:
    """Catches a derivative of the window instead of the transform's, and a wrong sign, unit or origin."""
    with jax.enable_x64(True):
        mesh, k, x = meshed({"x": 4, "y": 2}), points(24, 2), noise((12, 10), "complex128")
        for origin in ("corner", "centre"):
            plan = mf.scattered_plan(
                (12, 10), mf.Scattered.turns(k), mesh=mesh, tol=1e-9, dtype="complex128", slack=1, origin=origin
            )
            stored, wanted = mf.shard(x, mesh, P("x", "y")), noise((24,), "complex128", 5)

            def loss(k: jax.Array, plan: Any = plan, stored: Any = stored, wanted: Any = wanted) -> jax.Array:
                return jnp.sum(jnp.abs(plan(stored, points=mf.Scattered.turns(k)) - wanted) ** 2)

            def back(k: jax.Array, plan: Any = plan, wanted: Any = wanted) -> jax.Array:
                c = mf.shard(wanted, mesh, plan.out_layout.spec)
                return jnp.sum(jnp.abs(plan.adjoint(c, points=mf.Scattered.turns(k)) - x) ** 2)

            way = np.random.default_rng(8).standard_normal(k.shape)
            for one in (loss, back):
                slope = np.vdot(jax.jit(jax.grad(one))(jnp.asarray(k)), way)
                pushed = jax.jvp(one, (jnp.asarray(k),), (jnp.asarray(way),))[1]
                step = 1e-6
                ahead, behind = (float(one(jnp.asarray(k + sign * step * way))) for sign in (1, -1))
                differences = (ahead - behind) / (2 * step)
                assert abs(slope - differences) < 1e-6 * abs(differences)
                assert abs(slope - pushed) < 1e-9 * abs(slope)


def test_points_move_along_axes_in_any_order() -> None:
    """Catches moved points, their distances or their gradients along ascending axes, where the plan's have others."""
    shape, axes, where = (4, 6, 10), (2, 0, 1), meshed({"x": 2})  # an order that is not its own inverse
    x, k = noise(shape), points(8, 3)
    planned = mf.Scattered.turns(k)
    plan = mf.scattered_plan(shape, planned, mesh=where, spec=P("x"), axes=axes, slack=1, tol=1e-5)
    there = moved(k, 0.999, plan.grid).astype(np.float32)
    assert plan.dims == axes and plan.points == planned and plan.check(planned).farthest == 0
    assert 0.5 < plan.check(mf.Scattered.turns(there)).farthest < 1
    far = k + np.eye(3)[0] * 1.5 / plan.grid[0]
    assert np.isclose(plan.check(mf.Scattered.turns(far)).farthest, 1.5)

    def loss(k: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(plan(stored, points=mf.Scattered.turns(k))) ** 2)

    stored, truth = mf.shard(x, where, P("x")), at_points(x, there, axes)
    assert error(mf.gather(plan(stored, points=mf.Scattered.turns(there))), truth) <= 2e-5
    rows = [x * np.arange(shape[dim]).reshape([-1 if dim == i else 1 for i in range(3)]) for dim in axes]
    slopes = [2 * (np.conj(truth) * -2j * np.pi * at_points(row, there, axes)).real for row in rows]
    assert error(jax.grad(loss)(jnp.asarray(there)), np.stack(slopes, -1)) <= 1e-4
    assert error(plan.normal()(stored), mf.gather(plan.adjoint(plan(stored)))) <= 1e-4


def test_check_counts_points_that_left() -> None:
    """Catches distances that do not wrap round the period."""
    plan = mf.scattered_plan((16, 16), mf.Scattered.turns([[0.01, 0.5], [0.3, 0.3]]), slack=1)
    there = plan.check(mf.Scattered.turns([[0.99, 0.5], [0.3, 0.4]]))
    assert there.beyond == 1 and abs(there.farthest - 3.2) < 1e-9


def test_points_and_image_are_constants_of_a_program() -> None:
    """Catches tables that XLA puts inside the body of a loop, where it crashes."""
    x, k = noise((16, 16)), points(2000, 2)
    values = jax.jit(lambda a: mf.nufftn(a, mf.Scattered.turns(k)))(x)
    assert error(values, at_points(x, k)) < 1e-6
    image = jax.jit(lambda scale: scale * mf.nufftn_adjoint(np.asarray(values), mf.Scattered.turns(k), (16, 16)))(1.0)
    apart = abs(np.vdot(image, x) - np.vdot(values, values))
    assert apart <= 1e-6 * np.linalg.norm(values) ** 2


def test_plans_can_be_pickled() -> None:
    """Catches a plan that holds a function which no other process can find."""
    k, x = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 2)), noise((8, 6))
    plan = mf.scattered_plan((8, 6), mf.Scattered.turns(k))
    assert error(pickle.loads(pickle.dumps(plan))(x), np.asarray(plan(x))) == 0


def test_what_does_not_fit_is_refused() -> None:
    """Catches a refusal without its remedy, and points silently accepted in a wrong form."""
    x, k = noise((8, 8)), points(9, 2)
    some = mf.Scattered.turns(k)
    still = mf.scattered_plan((8, 8), some)
    for call, said in (
        (
            lambda: mf.nufftn(x, k),  # type: ignore[call-overload]
            "mf.Scattered.turns",
        ),
        (lambda: mf.nufftn(x, mf.Scattered.turns(k.T)), "did you mean points.T"),
        (lambda: mf.nufftn(x, some, tol=1e-9), "precision='float64'"),
        (lambda: mf.nufftn(x, some, axes=(0, 0)), "axis 0 is given twice in axes: name one dimension for each"),
        (lambda: mf.nufftn(x, some, origin="center"), "use one of 'corner', 'centre'"),
        (lambda: mf.nufftn(x, some, order="some"), "'natural', 'any'"),
        (lambda: mf.nufftn_adjoint(np.ones(8), some, (8, 8)), "one for each point"),
        (lambda: mf.nufftn_adjoint(np.ones(9), some, (8,)), "2 sizes"),
        (lambda: mf.nufftn_adjoint(np.ones(9), some, (8, 8), out_spec=P("x")), "name the same axes"),
        (lambda: mf.nufftn_adjoint(np.ones(9), some, (8, 8), axes=(-1,)), "or name 2 axes"),
        (lambda: mf.scattered_plan((8, 8), some, slack=-1), "slack is -1"),
        (lambda: mf.nufftn(np.zeros((0, 8)), some), "size of 0"),
        (lambda: mf.nufftn(x, some, axes=(1, -1)), "name one dimension for each coordinate"),
        (lambda: mf.nufftn(noise((3, 8, 8)), some, axes=(0, 1, 2)), "or name 2 axes"),
        (lambda: mf.nufftn(x, some, sigma=0), "sigma is 0"),
        (lambda: jax.jit(lambda k: mf.nufftn(x, mf.Scattered.turns(k), capacity=float("inf")))(k), "capacity is inf"),
        (lambda: mf.nufftn(x, mf.Scattered(k, "degrees")), "unit 'degrees' is unknown"),  # type: ignore[arg-type]
        (lambda: mf.nufftn(x, mf.Scattered(k * np.nan, "turns")), "coordinate nan: drop it"),
        (lambda: mf.nufftn_adjoint(np.ones(9), k, (8, 8)), "mf.Scattered.turns"),  # type: ignore[call-overload]
        (lambda: mf.nufftn_type3(np.ones(9), 1e9 * k, mf.Scattered.turns(1e9 * k)), "closer together"),
        (lambda: mf.nufftn_type3(np.ones(9), 3e3 * k, mf.Scattered.turns(3e3 * k)), "grid between positions"),
        (lambda: mf.scattered_plan((8, 8), some, balance="yes"), "balance is 'yes'"),  # type: ignore[arg-type]
        (lambda: still(x, points=some), "slack 0: make it with slack=1"),
        (lambda: still.adjoint(np.ones(9), points=k), "mf.Scattered.turns"),  # type: ignore[arg-type]
        (lambda: still.check(k), "mf.Scattered.turns"),  # type: ignore[arg-type]
        (lambda: jax.jit(lambda k: still.check(mf.Scattered.turns(k)).farthest)(k), "call it outside of jit"),
        (lambda: still.density(-1), "iterations is -1"),
        (lambda: still.inverse(np.ones(9)), "scattered samples have no inverse"),
    ):
        with pytest.raises((TypeError, ValueError, MemoryError), match=said):
            call()
    with pytest.warns(UserWarning, match="radians"):
        mf.Scattered.turns(np.linspace(-np.pi, np.pi, 20).reshape(10, 2))


@pytest.mark.more
def test_small_images_are_summed_directly_where_that_is_cheaper() -> None:
    """Catches a dense sum that is never chosen, or chosen although it is expensive, and a result with another
    sharding."""
    mesh, tpu, single = AbstractMesh((2, 2), ("x", "y")), machine.topology("v5e:2x2"), np.dtype("complex64")
    where = machine.placed(tpu, (2, 2), ("x", "y"))
    for size, dense in ((16, True), (1024, False)):
        start = from_spec((size, size), {"x": 2, "y": 2}, P("x", "y"))
        some = mf.Scattered.turns(points(size * size, 2))
        problem = problem_of(Setting(start, mesh, where, single), some, None, Options(order="any"), tol=1e-3)
        assert ("dense ring" in plan_to_points(problem).name) == dense
    real, k, x = meshed({"x": 2, "y": 4}), points(64, 2), noise((8, 8))
    stored = mf.shard(x, real, P("x", "y"))
    for method in ("kdft", "transpose"):
        values = mf.nufftn(stored, mf.Scattered.turns(k), method=method, out_spec=P(("y", "x")))
        assert spec_of(values) == P(("y", "x")) and error(values, at_points(x, k)) < 1e-6
        image = mf.nufftn_adjoint(values, mf.Scattered.turns(k), (8, 8), method=method)
        assert error(image, np.asarray(mf.nufftn_adjoint(np.asarray(values), mf.Scattered.turns(k), (8, 8)))) < 2e-6
    with pytest.raises(ValueError, match="origin 'corner'"):
        mf.nufftn(stored, mf.Scattered.turns(k), method="kdft", origin="centre")
