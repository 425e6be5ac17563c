"""Wires, rings and engines of transforms at scattered points: narrower messages, within the printed error."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import every_collective, program_of
from meshfft.nufft.planning import plan_to_points
from meshfft.nufft.post_transform import SPARE
from meshfft.nufft.problem import problem_of
from meshfft.plans.request import read
from meshfft.steps.problem import Options

SHAPE, POINTS = (40, 24), 4096
WAYS: dict[str, dict[str, Any]] = {
    "grid": {},
    "sum": {"method": "kdft"},
    "two-way sum": {"method": "kdft", "ring": "two-way"},
    "traced, grid on a ring": {"traced": True},
    "traced, points sent": {"traced": True, "capacity": 2.0},
}


def _points() -> np.ndarray:
    return np.random.default_rng(1).uniform(-0.5, 0.5, (POINTS, 2)).astype("f4")


@pytest.mark.quick(0)
@pytest.mark.parametrize(("name", "back"), slow_rows(lambda *row: row == ("grid", False), WAYS, (False, True)))
def test_a_lossy_wire_is_narrower_and_within_its_bound(name: str, back: bool) -> None:
    """Catches a grid, a halo, points' values or an image that are sent as floats, and more error than is printed."""
    how, k, where = dict(WAYS[name]), _points(), mesh((2, 2))
    traced = how.pop("traced", False)
    a, spec = noise(SHAPE), P("x", "y")
    c = noise((POINTS,), seed=3)
    waves = [np.exp(-2j * np.pi * np.outer(k[:, d].astype(float), np.arange(n))) for d, n in enumerate(SHAPE)]
    truth = np.einsum("j,ja,jb->ab", c, *map(np.conj, waves)) if back else np.einsum("ab,ja,jb->j", a, *waves)
    given = mf.shard(c, where, P(("x", "y"))) if back else mf.shard(a, where, spec)

    def run(given: Any, k: Any, wire: str) -> Any:
        points = mf.Scattered.turns(k if traced else _points())
        if back:
            return mf.nufftn_adjoint(given, points, SHAPE, tol=1e-5, out_spec=spec, wire=wire, **how)
        return mf.nufftn(given, points, tol=1e-5, wire=wire, **how)

    sent, found = {}, {}
    for wire in ("exact", "int16"):
        program = jax.jit(run, static_argnums=2).lower(given, k, wire).compile()
        every = every_collective(program_of(program))
        assert not {"all-gather", "all-reduce"} & {one.kind for one in every}
        sent[wire], found[wire] = sum(one.bytes * one.times for one in every), error(program(given, k), truth)
    slots = how["capacity"] * POINTS / 4**2 + SPARE if "capacity" in how else 0
    tables = 4 * slots * 2 * 8  # cells and offsets of points that are sent
    assert 0.5 <= (sent["int16"] - tables) / (sent["exact"] - tables) <= 0.58
    request = read(mf.shard(a, where, spec))
    options = Options(order="any", wire="int16")
    options = options._replace(**{name: value for name, value in how.items() if name != "capacity"})
    points = mf.Scattered.turns(jnp.asarray(k)) if traced else mf.Scattered.turns(k)

    def bound(k: Any) -> float:
        at = mf.Scattered.turns(k) if traced else points
        plan = plan_to_points(problem_of(request.setting, at, None, options, tol=1e-5, capacity=how.get("capacity")))
        return (plan.walk.adjoint() if back else plan.walk).error(8)

    printed = list[float]()
    jax.eval_shape(lambda k: printed.extend([bound(k)]), k)
    assert found["exact"] < found["int16"] <= printed[0]


@pytest.mark.more
def test_programs_of_blocks_name_no_stacks_beyond_the_callers() -> None:
    """Catches a block's numbers of stacks that are no numbers of the caller's: XLA then may compile without an end.
    JAX has traced the inner functions before, from more frames.
    """
    on, k = mesh((2, 2), AxisType.Auto), _points()
    grid = mf.shard(noise(SHAPE), on, P("x", "y"))

    def lowered(frames: int, **how: Any) -> jax.stages.Lowered:
        if frames:
            return lowered(frames - 1, **how)
        return jax.jit(lambda grid, k: mf.nufftn(grid, mf.Scattered.turns(k), tol=1e-5, **how)).lower(grid, k)

    with jax.set_mesh(on):
        lowered(12, spec=P("x", "y"))
    with ThreadPoolExecutor(1) as few_frames:
        text = few_frames.submit(lambda: lowered(0).compile().as_text()).result()
    assert text
    known = text.split("\nStackFrames\n")[1].split("\n\n")[0].splitlines()
    used = {int(number) for number in re.findall(r"stack_frame_id=(\d+)", text)}
    assert used and max(used) <= len(known), (used, known)


def test_plans_print_the_wire() -> None:
    """Catches a plan whose table leaves out the wire, and halos, tiles and values priced otherwise than sent."""
    plan, exact = (_crowded(wire) for wire in ("int16", "exact"))
    assert "int16 on the wire" in str(plan) and "lend tiles" in str(plan) and plan.to_dict()["wire"] == "int16"
    assert 0.5 < plan.work.sent_bytes / exact.work.sent_bytes < 0.65 and 1e-4 < plan.error < 3e-3
    assert plan.window_alone.error(8) == exact.window_alone.error(8), "weights are made exactly"


@pytest.mark.slow
def test_values_and_gradients_of_a_plan_with_lent_tiles() -> None:
    """Catches gradients of floats, lent tiles in the wrong order, and weights or kernels that are sent too narrowly."""
    plan, exact, x = _crowded("int16"), _crowded("exact"), noise((16, 12))
    cut = mf.shard(x, mesh((4,)), P("x"))
    wanted = np.asarray(exact(cut))
    assert 1e-6 < error(plan(cut), wanted) <= plan.error
    pulled = jax.vjp(lambda x: plan(x), cut)[1](plan(cut))[0]
    assert error(pulled, np.asarray(jax.vjp(lambda x: exact(x), cut)[1](exact(cut))[0])) <= 3 * plan.error
    assert error(plan.density(), np.asarray(exact.density())) < 1e-5
    assert error(plan.normal()(cut), np.asarray(exact.normal()(cut))) < 1e-5


@pytest.mark.more
def test_displacements_are_sent_exactly() -> None:
    """Catches points that move by less than asked, because the wire of the values rounds where they went."""
    plan, x = _crowded("int16"), jax.ShapeDtypeStruct((16, 12), np.complex64)
    coords = plan.points.coords.astype(np.float32)
    still = jax.jit(lambda x, k: plan(x)).lower(x, coords).as_text()
    moved = jax.jit(lambda x, k: plan(x, points=mf.Scattered.turns(k))).lower(x, coords).as_text()
    packed = "xui32>) -> "  # pairs of int16 that are sent
    assert moved.count(packed) == still.count(packed) > 0


def _crowded(wire: str) -> Any:
    points = mf.Scattered.turns(np.random.default_rng(2).normal(0, 0.05, (800, 2)) % 1)
    return mf.scattered_plan((16, 12), points, mesh=mesh((4,)), balance=True, slack=1, wire=wire)


def test_options_are_read_once_at_the_boundary() -> None:
    """Catches an option that is taken and ignored."""
    points, nufftn = mf.Scattered.turns(_points()[:9]), cast(Any, mf.nufftn)
    for option, value in (("wire", "int8"), ("method", "fft"), ("ring", "both"), ("engine", "mkl"), ("order", "none")):
        with pytest.raises(ValueError, match=f"{option} {value!r} is unknown: use"):
            nufftn(noise((8, 8)), points, **{option: value})
    with pytest.raises(TypeError, match="donate: no such option"):
        nufftn(noise((8, 8)), points, donate=True)
    with pytest.raises(ValueError, match="precision 1e-05 is out of reach of this transform"):
        nufftn(noise((8, 8)), points, precision=1e-5, tol=1e-3)


def test_crowded_cpu_devices_do_not_set_the_time() -> None:
    """Catches plans for CPU devices, which share cores, that count on the fullest device: they took a finer grid, and
    twice the time.
    """
    rng, where = np.random.default_rng(2), mesh((4, 2))
    even = rng.uniform(-0.5, 0.5, (200_000, 3))
    plans = [
        mf.scattered_plan((128, 128, 128), mf.Scattered.turns(k), mesh=where, spec=P("x", "y"), tol=1e-3)
        for k in (even, even**3 * 4)
    ]
    assert plans[1].imbalance > 1.5 > 1.1 > plans[0].imbalance
    assert plans[0].grid == plans[1].grid
    assert plans[1].seconds == pytest.approx(plans[0].seconds, rel=0.1)


def test_points_compare_by_their_numbers() -> None:
    """Catches a cache that takes points for others with the same sum of bits, or another type of coordinate."""
    k = _points().astype(float)
    one, again, swapped = (mf.Scattered.turns(turns) for turns in (k, k.copy(), k[::-1]))
    assert one == again and hash(one) == hash(again)
    assert hash(one) == hash(swapped) and one != swapped
    assert one != mf.Scattered.radians(k) and one != mf.Scattered.turns(k, np.full(2, 1.5)) and one != "points"
    grid = noise(SHAPE)
    there = [np.asarray(mf.nufftn(grid, points, tol=1e-6)) for points in (one, swapped)]
    np.testing.assert_allclose(there[0], there[1][::-1], atol=1e-4)
