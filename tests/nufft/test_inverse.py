"""Equation (4) at scattered points: off the unit circle by the sum itself, and the inverse by iterations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives


def _vandermonde(z: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """z_j1^-n1 z_j2^-n2 ... of every point, as rows over all samples of an image."""
    rows = np.ones((len(z), 1), complex)
    for dim, size in enumerate(shape):
        rows = (rows[:, :, None] * (z[:, dim, None] ** -np.arange(size))[:, None]).reshape(len(z), -1)
    return rows


def _jittered(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Twice as many points as unknowns along each dimension, each near one of a grid."""
    sides = [np.arange(2 * n) / (2 * n) - 0.5 for n in shape]
    grid = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, len(shape))
    return np.asarray(grid + np.random.default_rng(seed).uniform(-0.3, 0.3, grid.shape) / (2 * np.array(shape)))


@pytest.mark.more
@pytest.mark.parametrize("shape", [(24,), (4, 6, 5)], ids=str)
def test_points_off_the_circle(shape: tuple[int, ...], x64: None) -> None:
    """Catches a radius that is dropped, inverted or of another dimension, its rounding times n, and a gather."""
    rng, d = np.random.default_rng(len(shape)), len(shape)
    k, radius = rng.uniform(-0.5, 0.5, (21, d)), np.exp(rng.uniform(-0.05, 0.05, (21, d)))
    z, x, spec = (
        radius * np.exp(2j * np.pi * k),
        noise(shape, "complex128"),
        P("x", "y") if d > 1 else P(("x", "y")),
    )
    matrix, a = _vandermonde(z, shape), mf.shard(x, mesh((2, 4)), spec)
    points = mf.Scattered.turns(k, radius=radius)
    for one in (points, mf.Scattered.z(z)) if d == 1 else (mf.Scattered.radians(2 * np.pi * k, radius=radius),):
        assert error(mf.kdftn(x, one), matrix @ x.ravel()) < 4e-15, repr(one)
    program = jax.jit(lambda a: mf.kdftn(a, points, spec=spec)).lower(a).compile()
    y = program(a)
    assert set(collectives(program)) <= {"collective-permute"} and error(y, matrix @ x.ravel()) < 4e-15
    back = mf.nufftn_adjoint(y, points, shape, method="kdft")
    assert error(back, (matrix.conj().T @ mf.gather(y)).reshape(shape)) < 4e-15
    single = mf.kdftn(x.astype("complex64"), points)
    assert single.dtype == "complex64" and error(single, matrix @ x.ravel()) < 4e-7


def _radial(n: int, spokes: int, reach: float = 1.0) -> np.ndarray:
    """Spokes of 2 n points, which leave the corners of the spectrum out, and with less reach more of it."""
    at, angle = reach * (np.arange(2 * n) - n + 0.5) / (2 * n), np.pi * np.arange(spokes) / spokes
    return np.stack([np.outer(np.cos(angle), at), np.outer(np.sin(angle), at)], -1).reshape(-1, 2)


@pytest.mark.more
def test_the_condition_of_radial_points(x64: None) -> None:
    """Catches a condition of too few steps, which is far too low, and an answer where none of its digits is right."""
    x, k = noise((6, 6), "complex128"), _radial(6, 16, 0.5)
    found = mf.ikdftn(mf.kdftn(x, mf.Scattered.turns(k)), mf.Scattered.turns(k), s=(6, 6))
    true = np.linalg.cond(_vandermonde(np.exp(2j * np.pi * k), (6, 6)))
    assert abs(found.condition / true - 1) < 1e-2 and true > 4e4 and error(found.value, x) < 1e-6
    k = _radial(16, 40, 0.1)
    with pytest.raises(ValueError, match="the condition number is"):
        mf.ikdftn(mf.kdftn(noise((16, 16)), mf.Scattered.turns(k)), mf.Scattered.turns(k), s=(16, 16))


@pytest.mark.more
def test_gradients_in_radii(x64: None) -> None:
    """Catches a derivative in radii that is missing or has the other sign, and one in angles that radii spoil."""
    shape, rng = (4, 6), np.random.default_rng(0)
    x, k, radius = noise(shape, "complex128"), rng.uniform(-0.5, 0.5, (5, 2)), np.exp(rng.uniform(-0.1, 0.1, (5, 2)))

    def energy(k: Any, radius: Any) -> Any:
        return jnp.sum(jnp.abs(mf.kdftn(x, mf.Scattered.turns(k, radius=radius))) ** 2)

    def direct(k: np.ndarray, radius: np.ndarray) -> float:
        return float((np.abs(_vandermonde(radius * np.exp(2j * np.pi * k), shape) @ x.ravel()) ** 2).sum())

    found = jax.jit(jax.grad(energy, (0, 1)))(k, radius)
    step = 1e-6 * np.eye(10).reshape(10, 5, 2)
    wanted = [(direct(k + h, radius) - direct(k - h, radius)) / 2e-6 for h in step]
    assert error(found[0], np.reshape(wanted, (5, 2))) < 1e-7
    wanted = [(direct(k, radius + h) - direct(k, radius - h)) / 2e-6 for h in step]
    assert error(found[1], np.reshape(wanted, (5, 2))) < 1e-7


@pytest.mark.more
@pytest.mark.parametrize("shape", [(13,), (6, 10)], ids=str)
def test_the_image_behind_samples(shape: tuple[int, ...], x64: None) -> None:
    """Catches a system of other points, a condition that is not A's, iterations that stop early, lost planes."""
    k, x = _jittered(shape), noise(shape, "complex128")
    matrix = _vandermonde(np.exp(2j * np.pi * k), shape)
    y, singular = matrix @ x.ravel(), np.linalg.svd(matrix, compute_uv=False)
    points, axes = mf.Scattered.turns(k), tuple(range(len(shape)))
    found = mf.ikdftn(mf.shard(y, mesh((2, 4)), P(("x", "y"))), points, s=shape, axes=axes)
    assert error(found.value, x) < 1e-11 and float(found.residual) < 1e-11
    assert found.condition == pytest.approx(singular[0] / singular[-1], rel=0.05)
    assert found.methods == ("conjugate gradients",) and 0 < found.iterations[0] < 60
    if len(shape) == 1:
        return
    planes = mf.ikdftn((y.real.astype("float32"), y.imag.astype("float32")), points, s=shape, norm="ortho")
    re, im = planes.value
    assert error(np.asarray(re) + 1j * np.asarray(im), x * np.sqrt(x.size)) < 1e-5
    few = mf.ikdftn(y[::5], mf.Scattered.turns(k[::5]), s=shape, tikhonov=1e-2)
    some = matrix[::5]
    weight = (1e-2 * np.linalg.svd(some, compute_uv=False)[0]) ** 2
    wanted = np.linalg.solve(some.conj().T @ some + weight * np.eye(x.size), some.conj().T @ y[::5])
    assert error(few.value, wanted.reshape(shape)) < 1e-4


def _off_the_circle(shape: tuple[int, ...]) -> tuple[mf.Scattered, np.ndarray]:
    rng = np.random.default_rng(1)
    k, radius = rng.uniform(-0.5, 0.5, (150, 2)), np.exp(rng.uniform(-0.03, 0.03, (150, 2)))
    return mf.Scattered.turns(k, radius=radius), _vandermonde(radius * np.exp(2j * np.pi * k), shape)


@pytest.mark.more
def test_plans_of_the_sum(x64: None) -> None:
    """Catches a plan of points that differs from `kdftn`, a batch counted as unknowns, a system without radii."""
    devices, shape, spec = mesh((2, 2)), (6, 8), P(None, "x", "y")
    (points, matrix), x = _off_the_circle(shape), noise((3, *shape), "complex128")
    y = x.reshape(3, -1) @ matrix.T
    plan = mf.plan((3, *shape), mesh=devices, spec=spec, points=points, dtype="complex128", ring="two-way")
    assert plan.out_shape == (3, 150) and "two-way" in str(plan) and plan.collectives == {"collective-permute": 3}
    assert mf.out_spec((3, *shape), mesh=devices, spec=spec, points=points) == plan.out_layout.spec
    assert error(mf.gather(plan(x)), y) < 4e-15
    assert error(plan.adjoint(y), (y @ matrix.conj()).reshape(x.shape)) < 4e-15
    found = plan.solve(y)
    assert error(found.value, x) < 1e-11 and float(found.residual) < 1e-11
    assert found.condition == pytest.approx(np.linalg.cond(matrix), rel=0.05)


@pytest.mark.more
@pytest.mark.parametrize("off", [False, True])
def test_samples_of_64_bits_solved_in_32(off: bool, x64: None) -> None:
    """Catches a plan that does not know of the precision asked for, and refuses samples that it would round."""
    points, matrix = _off_the_circle((6, 8))
    points = points if off else mf.Scattered.turns(points.in_turns)
    x = noise((6, 8), "complex128")
    y = matrix @ x.ravel() if off else mf.kdftn(x, points)
    found = mf.ikdftn(y, points, s=(6, 8), precision="float32")
    assert found.value.dtype == "complex64" and error(found.value, x) < 1e-5


@pytest.mark.slow
def test_systems_of_functions_and_of_plans(x64: None) -> None:
    """Catches `ikdftn` that drops radii or the ring, and a plan that solves for pixels of another origin."""
    devices, shape = mesh((2, 4)), (6, 8)
    (points, matrix), x = _off_the_circle(shape), noise(shape, "complex128")
    y = mf.shard(matrix @ x.ravel(), devices, P(("x", "y")))
    found = mf.ikdftn(y, points, s=shape, ring="two-way")
    assert error(found.value, x) < 1e-11 and float(found.residual) < 1e-11
    how: Any = {"mesh": devices, "tol": 1e-12, "dtype": "complex128", "origin": "centre"}
    plan = mf.scattered_plan(shape, mf.Scattered.turns(points.in_turns), **how)
    assert error(plan.solve(mf.gather(plan(x))).value, x) < 1e-10


@pytest.mark.more
def test_what_has_no_answer() -> None:
    """Catches an answer where there is none, and points that a fine grid would take as on the circle."""
    k, ones = _jittered((6,)), np.ones(12, np.complex64)
    some, off = mf.Scattered.turns(k), mf.Scattered.turns(k, radius=1.1)
    for call, said in (
        (lambda: mf.ikdftn(ones, some), "s is missing"),
        (lambda: mf.ikdftn(ones, some, s=(20,)), "12 samples of 20 unknowns"),
        (lambda: mf.ikdftn(ones, mf.Scattered.turns(k / 20), s=(6,)), "condition number"),
        (lambda: mf.ikdftn(ones, some, s=(6,), ring="one-way"), "on the unit circle: leave it out"),
        (lambda: mf.ikdftn(ones, mf.Scattered.turns(k / 20, radius=1.1), s=(6,)), "condition number"),
        (lambda: mf.plan((6,), points=some, method="transpose"), "use method='auto' or 'kdft'"),
        (lambda: mf.plan((6,), points=some, s=(4,)), "go without s="),
        (lambda: mf.plan((6,), points=some, precompute=True), "go without precompute="),
        (lambda: mf.plan((8,), points=some, margin=1), "go without margin="),
        (lambda: mf.plan((6,), points=some).inverse(ones), "plan.solve"),
        (lambda: mf.plan((20,), points=some).solve(ones), "12 samples of 20 unknowns"),
        (lambda: mf.ikdftn(ones, some, s=(6,), method="direct"), "iterations"),
        (lambda: jax.jit(lambda y: mf.ikdftn(y, some, s=(6,)).value)(ones), "outside of jit"),
        (lambda: mf.nufftn(np.ones(6), off), "off the unit circle"),
        (lambda: mf.scattered_plan((6,), off), "off the unit circle"),
        (lambda: mf.scattered_plan((6,), some, method="kdft"), "the sum itself"),
        (lambda: mf.kdftn(np.ones(400, np.float32), mf.Scattered.turns(k, radius=2.0)), "precision='float64'"),
        (lambda: mf.Scattered.turns(k, radius=0.0), "positive"),
        (lambda: mf.Scattered.z(np.zeros((3, 1))), "z = 0"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_the_tikhonov_of_a_refusal_suffices() -> None:
    """Catches a remedy that was given already, or a weight with which the plan refuses again."""
    plan = mf.scattered_plan((6,), mf.Scattered.turns(_jittered((6,)) / 20))
    samples = plan(np.ones(6))
    for given in (None, 1e-4):
        with pytest.raises(ValueError, match=r"precision='float64', or tikhonov= of (\S+) or more") as refused:
            plan.solve(samples, tikhonov=given)
        least = float(str(refused.value).split("tikhonov= of ")[1].split()[0])
        assert least < 0.01 and plan.solve(samples, tikhonov=least).condition < 320


def test_a_radial_scan_has_a_bound_on_its_condition_alone() -> None:
    """Catches a condition of 300 printed as if it were known, where the corners of k-space make it 1e8."""
    angles, radii = np.pi * np.arange(20) / 20, np.linspace(-0.5, 0.5, 16, endpoint=False)
    k = np.stack([np.cos(angles)[:, None] * radii, np.sin(angles)[:, None] * radii], -1)
    plan = mf.plan((10, 8), points=mf.Scattered.turns(k))
    grid = np.stack(np.meshgrid(*map(np.arange, (10, 8)), indexing="ij"), -1).reshape(-1, 2)
    true = np.linalg.cond(np.exp(-2j * np.pi * k.reshape(-1, 2) @ grid.T))
    found = plan.solve(plan(np.outer(np.hanning(10), np.hanning(8)).astype("complex64")))
    assert found.bounded and found.condition <= 1.05 * true
    assert "condition at least" in repr(found) and "at least" not in repr(mf.ikdftn(np.ones(4)))
