"""The inverse of the KDFT: round trips, their accuracy, and refusals."""

import functools
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, in_turns, mesh, noise, powers, separable

import meshfft as mf
from meshfft import Points
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import PaddedArray, mapped, stored_of
from meshfft.plans.request import PlanePair


def jittered(m: int, radius: float = 1.0, seed: int = 0) -> Points:
    """m points, each within a quarter of a cell of its place on a circle."""
    rng = np.random.default_rng(seed)
    turns = (np.arange(m) + rng.uniform(-0.25, 0.25, m)) / m
    return Points.turns(turns) if radius == 1 else Points.z(radius * np.exp(2j * np.pi * turns))


def matrix(points: Points, n: int) -> np.ndarray:
    turns = points.in_turns if points.unit == "turns" else in_turns(points.angle)
    return powers(turns, points.log_radius, n)


# name: (unknowns, points, mesh, spec)
TABLE = {
    "1-D": ((16,), [jittered(16)], (8,), P("x")),
    "1-D, more points": ((16,), [jittered(24)], (8,), P("x")),
    "1-D, prime": ((17,), [jittered(17)], (8,), P("x")),
    "1-D, one": ((1,), [jittered(3)], (2,), P("x")),
    "2-D": ((8, 12), [jittered(8, 0.9), jittered(12)], (2, 4), P("x", "y")),
    "2-D, uneven": ((7, 5), [jittered(11), jittered(5)], (4, 2), P("x", "y")),
    "2-D, one uniform": ((8, 8), [Points.uniform(8), jittered(16)], (4, 2), P("y", "x")),
    "3-D": ((4, 4, 4), [jittered(4), jittered(6, seed=1), jittered(4, 0.95)], (2, 2, 2), P("x", "y", "z")),
    "3-D, uneven": ((3, 5, 2), [jittered(3), jittered(7), jittered(3)], (2, 2, 2), P("x", "y", "z")),
}


def hold(found: mf.Solution, value: np.ndarray, x: np.ndarray, y: np.ndarray, points: list, scale: float = 1.0) -> None:
    """Value within its condition, and residual and conditions those of NumPy."""
    matrices = [matrix(p, n) for p, n in zip(points, x.shape, strict=True)]
    conditions = []
    weights: Any = 1.0
    for dim, (v, p) in enumerate(zip(matrices, points, strict=True)):
        mean = 0.0 if p.log_radius is None else float(np.mean(p.log_radius))
        weight = np.exp(-mean * np.arange(x.shape[dim]))
        conditions.append(np.linalg.cond(v / weight))
        weights = weights * weight.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    assert found.conditions == pytest.approx(conditions, rel=0.1)
    assert found.condition == pytest.approx(math.prod(found.conditions))
    assert error(weights * value, weights * x) <= 1e-6 * found.condition
    back = scale * separable(value.astype(complex), matrices)
    assert float(found.residual) == pytest.approx(np.linalg.norm(y - back) / np.linalg.norm(y), rel=0.2, abs=1e-7)


SOME = ("1-D, more points", "2-D, uneven", "2-D, one uniform")
NORMED = [(name, norm) for name in SOME for norm in ("ortho", "forward")]


@pytest.mark.quick(14)
@pytest.mark.parametrize(("name", "norm"), [*((name, None) for name in TABLE), *NORMED])
def test_plans_solve_what_they_transformed(name: str, norm: str | None) -> None:
    """Catches a wrong inverse or factor, padding counted as samples or left in the value, and a residual made up."""
    shape, points, sizes, spec = TABLE[name]
    plan = mf.plan(shape, mesh=mesh(sizes), spec=spec, points=points, norm=norm)
    x = noise(shape, seed=len(name))
    y = plan(x)
    found = plan.solve(y)
    assert stored_of(found.value).shape == plan.in_layout.storage
    assert found.value.sharding.is_equivalent_to(NamedSharding(mesh(sizes), plan.in_layout.spec), len(shape))
    value = mf.gather(found.value)
    assert np.count_nonzero(np.asarray(found.value)) == np.count_nonzero(value), "padding is not zero"
    hold(found, value, x, mf.gather(y), points, plan.transform.scale)
    assert len(found.methods) == len(found.conditions) == len(shape)


@pytest.mark.more
def test_the_residual_of_samples_that_fit_nothing() -> None:
    """Catches a residual of the solver's own, and an answer that is not the least one: 24 samples, 16 unknowns."""
    points, y = jittered(24), noise((24,))
    found = mf.ikdftn(mf.shard(y, mesh((8,)), P("x")), points, s=(16,))
    v = matrix(points, 16)
    truth = np.linalg.lstsq(v, y.astype(complex), rcond=None)[0]
    assert found.methods == ("QR",) and error(found.value, truth) <= 2e-6
    left = np.linalg.norm(y - v @ truth) / np.linalg.norm(y)
    assert left > 0.1 and float(found.residual) == pytest.approx(left, rel=1e-5)


@pytest.mark.more
def test_uniform_samples_need_no_solver() -> None:
    """Catches a dense inverse where the conjugate transform is one, and a factor of aliased or missing samples."""
    devices, spec, x = mesh((2, 4)), P("x", "y"), noise((8, 16))
    a = mf.shard(x, devices, spec)
    for norm in (None, "ortho", "forward"):
        found = mf.ikdftn(mf.kdftn(a, norm=norm), norm=norm)
        assert found.conditions == (1.0, 1.0) and found.methods == ("conjugate transform",) * 2
        assert error(found.value, x) <= 1e-6 and float(found.residual) <= 1e-6
    y = mf.kdftn(a, [Points.uniform(12), None])
    found = mf.ikdftn(y, [Points.uniform(12), None], s=(8, 16))
    assert found.value.shape == (8, 16) and error(found.value, x) <= 1e-6


@pytest.mark.more
@pytest.mark.parametrize("n", [16, 64])
def test_off_the_circle(n: int) -> None:
    """Catches an inverse of the unscaled matrix, whose condition is 0.9^-n times that of the scaled one."""
    points, x = jittered(n, 0.9), noise((n, 2))
    y = mf.kdftn(mf.shard(x, mesh((8,)), P("x")), points, axes=[0])
    found = mf.ikdftn(y, points, axes=[0])
    weight = 0.9 ** -np.arange(n)[:, None]
    assert found.condition < 10 and error(weight * np.asarray(found.value), weight * x) <= 1e-6 * found.condition


@pytest.mark.more
def test_refinement_reaches_the_precision_of_the_transform(x64: None) -> None:
    """Catches an inverse rounded to float32 on its way, or no refinement."""
    points, x = jittered(32), noise((32, 3), "complex128")
    a = mf.shard(x, mesh((8,)), P("x"))
    found = mf.ikdftn(mf.kdftn(a, points, axes=[0]), points, axes=[0])
    assert found.value.dtype == np.complex128 and error(found.value, x) <= 2e-14
    assert float(found.residual) <= 2e-15


@pytest.mark.more
def test_one_step_of_refinement_makes_the_residual_small() -> None:
    """Catches W X alone, whose residual is a rounding times the condition."""
    points, x = Points.turns(0.85 * np.arange(24) / 24), noise((24, 4))
    found = mf.ikdftn(mf.kdftn(mf.shard(x, mesh((8,)), P("x")), points, axes=[0]), points, axes=[0])
    assert found.condition > 1e3 and float(found.residual) <= 5e-7


@pytest.mark.more
def test_planes() -> None:
    """Catches planes that are joined, or whose residual counts one plane only."""
    y = noise((24,))
    plan = mf.plan((17,), mesh=mesh((8,)), points=jittered(17))
    z = plan(noise((17,)))
    solved = plan.solve((z.real, z.imag))
    assert isinstance(solved.value, PlanePair)
    assert error(mapped(jax.lax.complex, *solved.value), np.asarray(plan.solve(z).value)) <= 1e-6
    found = mf.ikdftn((jnp.asarray(y.real), jnp.asarray(y.imag)), jittered(24), s=(16,))
    whole = mf.ikdftn(y, jittered(24), s=(16,))
    assert float(found.residual) == pytest.approx(float(whole.residual), rel=1e-5)
    assert error(jax.lax.complex(*found.value), np.asarray(whole.value)) <= 1e-6


def clustered(n: int) -> Points:
    """Points of half a circle: the condition grows as a power of n."""
    return Points.turns(0.5 * np.arange(n) / n)


def test_what_cannot_be_inverted_is_refused() -> None:
    """Catches meaningless digits: too few samples, repeated samples, and conditions beyond the type."""
    x = jnp.asarray(noise((32,)))
    with pytest.raises(ValueError, match=r"condition number is .*axis 0.*no digit .*tikhonov= or truncation="):
        mf.ikdftn(x, clustered(32))
    with pytest.raises(ValueError, match=r"axis 0 has 32 samples of 40 unknowns: take .*more, or give tikhonov="):
        mf.ikdftn(x, jittered(32), s=(40,))
    with pytest.raises(ValueError, match="axis 0 has 32 samples of 40 unknowns"):
        mf.ikdftn(x, s=(40,))
    with pytest.raises(ValueError, match="do not determine 32 unknowns"):
        mf.ikdftn(x, Points.turns(np.arange(32) // 2 / 16))
    with pytest.raises(ValueError, match="axis 0 has 32 samples and 24 points: give one for each"):
        mf.ikdftn(x, jittered(24))
    uneven = mf.ikdftn(mf.shard(noise((16,)), mesh((8,)), P("x")), jittered(16), s=(13,)).value
    assert isinstance(uneven, mf.PaddedArray) and uneven.shape == (13,)
    with pytest.raises(ValueError, match="solve for the input with plan"):
        mf.plan((8,), points=jittered(8)).inverse(x[:8])
    with pytest.raises(ValueError, match="tikhonov is -1"):
        mf.ikdftn(x, jittered(32), tikhonov=-1)
    with pytest.raises(ValueError, match="give one of the two"):
        mf.ikdftn(x, jittered(32), tikhonov=1e-3, truncation=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bf16x6"])
def test_traced_points_are_refused(precision: str) -> None:
    """Catches an error from a cache, where the reader needs to know that such an inverse takes numbers, and remedies
    that are refused in turn.
    """
    x = jnp.asarray(noise((8,)))

    def solve(t: Array, **how: Any) -> Any:
        return mf.ikdftn(x, Points.turns(t), precision=precision, **how).value

    for how, remedy in (
        ({"method": "direct"}, "give NumPy arrays, or use method='iterative'"),
        ({"tikhonov": 0.1}, "give NumPy arrays, or leave out tikhonov and truncation"),
        ({"s": 9}, "take more, or give tikhonov= and points that are not traced"),
    ):
        with pytest.raises(ValueError, match=remedy):
            jax.jit(functools.partial(solve, **how))(jnp.arange(8.0) / 8)
    with pytest.raises(ValueError, match="5000 points of 5000 unknowns are traced and off the unit circle"):
        jax.jit(lambda r: mf.ikdftn(jnp.ones(5000), Points.turns(np.zeros(5000), r)).value)(jnp.full(5000, 0.9))


GRADIENTS: dict[str, Any] = {
    "1-D": ((16,), [jittered(16)], (8,), P("x")),
    "1-D, uneven": ((17,), [jittered(24)], (8,), P("x")),
    "2-D": ((8, 12), [jittered(8, 0.9), jittered(12)], (2, 4), P("x", "y")),
    "2-D, uneven": ((7, 5), [jittered(11), jittered(5)], (4, 2), P("x", "y")),
    "2-D, off the circle": ((8, 8), [Points.turns(jittered(8).in_turns, 1 + 0.01 * np.arange(8)), None], (8,), P("x")),
}


@pytest.mark.quick(0)
@pytest.mark.parametrize("name", GRADIENTS)
def test_conjugate_gradients(name: str) -> None:
    """Catches a wrong moment, padding that counts in a sum, and unknowns left in another layout."""
    shape, points, sizes, spec = GRADIENTS[name]
    x = noise(shape)
    plan = mf.plan(shape, mesh=mesh(sizes), spec=spec, points=points)
    y = plan(x)
    a, b = plan.solve(y), plan.solve(y, method="iterative")
    assert all(n > 0 for n, p in zip(b.iterations, points, strict=True) if p is not None)
    assert b.conditions == pytest.approx(a.conditions, rel=0.1)
    assert error(mf.gather(b.value), x) <= 4e-6 and float(b.residual) <= 1e-6
    assert b.value.sharding.is_equivalent_to(a.value.sharding, len(shape))


def test_gradients_in_samples_and_points(x64: None) -> None:
    """Catches points that count as constants somewhere, and a derivative of the iterations instead of the answer."""
    points, y, w = jittered(12), noise((12, 4), "complex128"), noise((9, 4), "complex128", seed=3)
    turns, samples = jnp.asarray(points.angle), mf.shard(y, mesh((2,)), P(None, "x"))

    def loss(t: Array, a: Array) -> Array:
        found = mf.ikdftn(a, Points.turns(t), s=(9,), axes=[0], spec=P(None, "x"))
        return jnp.real(jnp.vdot(jnp.asarray(w), found.value)) + jnp.sum(jnp.abs(found.value) ** 2)

    program = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

    def value(t: Any, a: np.ndarray) -> float:
        return float(program(jnp.asarray(t), mf.shard(a, mesh((2,)), P(None, "x")))[0])

    by_turns, by_samples = program(turns, samples)[1]
    h, d, e = 1e-6, np.random.default_rng(1).standard_normal(12), noise((12, 4), "complex128", seed=5)
    slope = (value(points.in_turns + h * d, y) - value(points.in_turns - h * d, y)) / (2 * h)
    assert float(np.vdot(by_turns, d)) == pytest.approx(slope, rel=1e-6)
    slope = (value(turns, y + h * e) - value(turns, y - h * e)) / (2 * h)
    assert float(np.sum(np.asarray(by_samples) * e).real) == pytest.approx(slope, rel=1e-6)


@pytest.mark.more
def test_traced_points_off_the_circle(x64: None) -> None:
    """Catches a wrong condition of such points, an answer without a digit, and a gradient that leaves out the radii."""
    n, x = 10, noise((10, 2), "complex128")
    turns, radii = jittered(n).in_turns, 1 + 0.02 * np.arange(n)
    samples = jnp.asarray(powers(turns, np.log(radii), n) @ x)

    def energy(t: Array, r: Array) -> tuple[Array, mf.Solution]:
        found = mf.ikdftn(samples, Points.turns(t, r), axes=[0])
        return jnp.sum(jnp.abs(found.value) ** 2), found

    run = jax.jit(jax.value_and_grad(energy, argnums=(0, 1), has_aux=True))
    (_, found), slopes = run(turns, radii)
    known = mf.ikdftn(samples, Points.turns(turns, radii), axes=[0])
    assert error(found.value, x) <= 1e-12 and float(found.condition) == pytest.approx(float(known.condition), rel=0.1)
    d, h = np.random.default_rng(1).standard_normal((2, n)), 1e-6
    for j, slope in enumerate(slopes):
        ahead, back = ([turns + s * h * d[0] * (j == 0), radii + s * h * d[1] * (j == 1)] for s in (1, -1))
        change = float(run(*ahead)[0][0]) - float(run(*back)[0][0])
        assert float(np.asarray(slope) @ d[j]) == pytest.approx(change / (2 * h), rel=1e-5)
    assert np.isnan(run(turns / 12, radii * 0 + 1)[0][1].value).all()


@pytest.mark.more
def test_what_conjugate_gradients_cannot_solve() -> None:
    """Catches an answer without a digit: refused of known points, NaN of traced ones."""
    x, close = jnp.asarray(noise((32,))), np.arange(32) / 64
    with pytest.raises(ValueError, match=r"axis 0 .*conjugate gradients need one below"):
        mf.ikdftn(x, Points.turns(close), method="iterative")
    with pytest.raises(ValueError, match="use method='direct'"):
        mf.ikdftn(x, jittered(32), method="iterative", tikhonov=1e-3)
    assert np.isnan(jax.jit(lambda t: mf.ikdftn(x, Points.turns(t)).value)(jnp.asarray(close))).all()


@pytest.mark.more
@pytest.mark.parametrize(("weight", "value"), [("tikhonov", 1e-3), ("truncation", 1e-2)])
def test_regularised_solutions(weight: str, value: float) -> None:
    """Catches a regularisation that is refined away, or not of the problem stated."""
    n, x = 32, noise((32,))
    points = clustered(n)
    v = matrix(points, n)
    y = (v @ x).astype(np.complex64)
    found = mf.ikdftn(mf.shard(y, mesh((8,)), P("x")), points, **{weight: value})  # type: ignore[arg-type]
    u, s, w = np.linalg.svd(v)
    kept = s >= value * s[0]
    gain = s / (s**2 + (value * s[0]) ** 2) if weight == "tikhonov" else kept / np.where(kept, s, 1)
    truth = w.conj().T @ (gain * (u.conj().T @ y))
    assert error(found.value, truth) <= 1e-4
    assert float(found.residual) == pytest.approx(np.linalg.norm(y - v @ truth) / np.linalg.norm(y), rel=1e-2)
    few = mf.ikdftn(mf.shard(y[:24], mesh((8,)), P("x")), jittered(24), s=(32,), **{weight: value})  # type: ignore[arg-type]
    assert few.value.shape == (32,) and float(few.residual) <= 1e-4


@pytest.mark.more
def test_jit_gradient_and_collectives() -> None:
    """Catches a solution that is no pytree, a gradient that is not W^H, and an array gathered for its residual."""
    devices, spec, points = mesh((8,)), P("x"), jittered(16)
    y, z = noise((16, 3)), noise((16, 3), seed=2)
    a, b = (jax.device_put(v, NamedSharding(devices, spec)) for v in (y, z))

    hops = mf.plan((16, 3), mesh=devices, spec=spec, axes=[0], points=points, method="kdft").collectives[
        "collective-permute"
    ]

    def solve(a: Array) -> mf.Solution:
        return mf.ikdftn(a, points, axes=[0], spec=spec)

    program = jax.jit(solve).lower(a).compile()
    counts = collectives(program)
    assert set(counts) <= {"collective-permute", "all-reduce"} and counts["collective-permute"] == 4 * hops
    found = program(a)
    w = np.linalg.inv(matrix(points, 16))
    assert isinstance(found, mf.Solution) and error(found.value, w @ y) <= 2e-6
    assert found.value.sharding.is_equivalent_to(NamedSharding(devices, spec), 2)
    assert float(found.condition) == pytest.approx(np.linalg.cond(matrix(points, 16)), rel=0.1)
    assert found.methods == ("LU",)
    pull = jax.jit(lambda a, b: jax.vjp(lambda a: solve(a).value, a)[1](b)[0]).lower(a, b).compile()
    assert error(pull(a, b), w.T @ z) <= 2e-6
    assert set(collectives(pull)) == {"collective-permute"}
    residual = jax.jit(jax.grad(lambda a: mf.ikdftn(a, jittered(24), axes=[0], s=(16,), spec=spec).residual))
    assert np.isfinite(residual(mf.shard(noise((24, 3)), devices, spec))).all()


@pytest.mark.more
@pytest.mark.parametrize("method", ["direct", "iterative"])
def test_the_direction_of_the_ring_reaches_every_product(method: str) -> None:
    """Catches a ring= that a system, its refinement or an iteration drops, of ikdftn and of a plan."""
    devices, points, x = mesh((4,)), [jittered(12)], noise((8, 3))
    forth, back = ({(i, (i + way) % 4) for i in range(4)} for way in (1, -1))
    for ring in ("one-way", "two-way"):
        how: Any = {"axes": [0], "spec": P("x"), "ring": ring}
        plan = mf.plan((8, 3), mesh=devices, points=points, method="kdft", **how)
        y = plan(x)
        solve = functools.partial(mf.ikdftn, points=points, s=(8,), method=method, **how)
        for run in (solve, functools.partial(plan.solve, method=method)):
            text = jax.jit(lambda y, run=run: run(y).value).lower(y).as_text()
            pairs = re.findall(r"source_target_pairs = dense<\[(.*?)\]>", text)
            seen = [{tuple(map(int, pair)) for pair in re.findall(r"(\d+), (\d+)", one)} for one in pairs]
            assert back in seen and (forth in seen) == (ring == "two-way")
    with pytest.raises(ValueError, match="ring 'both' is unknown"):
        mf.ikdftn(y, points, s=(8,), axes=[0], ring="both")


@pytest.mark.more
def test_conjugate_gradients_tell_each_other_numbers_only() -> None:
    """Catches an array gathered or summed between iterations, and a solve that a caller's shard_map refuses."""
    devices, spec, points, x = mesh((8,)), P("x"), [jittered(40), None], noise((40, 8))
    y = mf.kdftn(mf.shard(x, devices, spec), points)

    def solve(y: Array) -> Array:
        return mf.ikdftn(y, points, method="iterative", spec=spec).value

    program = jax.jit(solve).lower(y).compile()
    assert error(program(y), x) <= 1e-6
    text = program.as_text() or ""
    sums = re.findall(r"= (\S+) all-reduce\(", text)
    assert " all-gather" not in text and sums and all(re.fullmatch(r"[a-z0-9]+\[\]", shape) for shape in sums)
    assert error(jax.jit(jax.shard_map(solve, mesh=devices, in_specs=spec, out_specs=spec))(y), x) <= 1e-6


@pytest.mark.more
def test_padding_of_samples_is_not_read() -> None:
    """Catches NaN beyond the samples that reaches the value, or the residual's norms."""
    plan, x = mf.plan((13,), mesh=mesh((8,)), points=jittered(13), method="kdft"), noise((13,))
    y = mf.gather(plan(x))
    stored = np.full(plan.out_layout.storage, np.nan, np.complex64)
    stored[:13] = y
    found = plan.solve(
        PaddedArray(jax.device_put(stored, NamedSharding(mesh((8,)), P("x"))), plan.out_layout, plan.mesh)
    )
    assert error(mf.gather(found.value), x) <= 4e-6 and float(found.residual) <= 1e-6


def test_zero_samples() -> None:
    """Catches a residual of 0 / 0."""
    found = mf.ikdftn(jnp.zeros(8), jittered(8))
    assert not np.asarray(found.value).any() and float(found.residual) == 0
