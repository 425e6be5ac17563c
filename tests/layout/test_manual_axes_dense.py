"""Points and matrices inside a caller's own shard_map, where an operand is whole on every device."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise, powers, separable
from shard_maps import AUTO, EXPLICIT, SHAPE, SPEC, hops, inside, mapped, only, put

import meshfft as mf


def _dense(a: Any, turns: Any, matrix: Any, spec: P | None = None) -> Any:
    """Points along the ends, a matrix along the middle."""
    a = mf.kdftn(a, [mf.Points.turns(turns), None], axes=(0, 2), spec=spec)
    return mf.apply_separable([matrix], a, axes=(1,), spec=spec)


def _dense_operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return noise(SHAPE), rng.random(6).astype("float32"), rng.standard_normal((10, 12)).astype("float32")


def _dense_slopes(transform: Any, *values: Array) -> tuple[Array, ...]:
    """The gradients of a loss in the array and both operands, and its slope along themselves."""
    weights = noise((6, 10, 16), "float32", 7) ** 2

    def loss(*values: Array) -> Array:
        return jnp.sum(jnp.abs(transform(*values)) ** 2 * weights)

    return (*jax.grad(loss, (0, 1, 2))(*values), jax.jvp(loss, values, values)[1])


@functools.cache
def _dense_truth() -> list[np.ndarray]:
    slopes = functools.partial(_dense_slopes, _dense)
    return [np.asarray(slope) for slope in jax.jit(slopes)(*map(jnp.asarray, _dense_operands()))]


DENSE = [(AUTO, "xyz", True), (AUTO, "xyz", False), (AUTO, "y", True), (AUTO, "y", False), (EXPLICIT, "xz", True)]


@pytest.mark.more
@pytest.mark.parametrize(("kind", "manual", "vma"), DENSE)
def test_points_and_matrices_and_their_gradients(kind: AxisType, manual: str, vma: bool) -> None:
    """Catches a device that takes another's rows, and gradients of a replicated operand counted once for each."""
    operands, devices, cut = _dense_operands(), mesh((2, 2, 2), kind), only(SPEC, manual)
    run = mapped(functools.partial(_dense, spec=SPEC), devices, manual, (cut, P(), P()), cut, check_vma=vma)

    with jax.set_mesh(devices):
        placed = [put(v, devices, spec) for v, spec in zip(operands, (SPEC, P(), P()), strict=True)]
        y, found = jax.jit(lambda *v: (run(*v), _dense_slopes(run, *v)))(*placed)
    x, turns, matrix = operands
    roots = powers(np.arange(16) / 16, None, 16)
    assert error(y, separable(x.astype(complex), [powers(turns, None, 8), matrix, roots])) <= 4e-7
    for one, whole in zip(found, _dense_truth(), strict=True):
        assert error(one, whole) <= 3e-6


@pytest.mark.quick(2)
@pytest.mark.parametrize(("manual", "precision"), [("xyz", "bf16x6"), ("x", "bf16x6"), ("yz", "float32")])
def test_known_points_send_what_the_plan_says(manual: str, precision: str) -> None:
    """Catches rows of a table or of points known on the host, gathered or cut a second time."""
    (x, turns, _), devices = _dense_operands(), mesh((2, 2, 2))
    points = [mf.Points.turns(turns), None]
    plan = mf.plan(SHAPE, mesh=devices, spec=SPEC, points=points, axes=(0, 2), method="kdft", precision=precision)
    a = put(x, devices)

    def body(block: Array) -> Array:
        return mf.kdftn(block, points, axes=(0, 2), spec=SPEC, precision=precision)

    run = inside(body, devices, manual, SPEC)
    truth = separable(x.astype(complex), [powers(turns, None, 8), None, powers(np.arange(16) / 16, None, 16)])
    assert error(jax.jit(run)(a), truth) <= 4e-7
    assert hops(run, a) == plan.collectives


@pytest.mark.quick(1)
@pytest.mark.parametrize("manual", ["xy", "y"])
def test_solving_for_the_input(manual: str) -> None:
    """Catches a residual of one block, or unknowns counted in blocks."""
    devices, x, spec = mesh((2, 4)), noise((8, 16)), P("x", "y")
    jitter = 0.2 * np.random.default_rng(3).random(8)
    points, cut = [mf.Points.turns((np.arange(8) + jitter) / 8), None], only(spec, manual)

    def body(block: Array) -> tuple[Array, Array]:
        found = mf.ikdftn(mf.kdftn(block, points, spec=spec), points, spec=spec, tikhonov=0.1)
        return found.value, found.residual

    value, residual = jax.jit(mapped(body, devices, manual, cut, (cut, P())))(put(x, devices, spec))
    outside = mf.ikdftn(mf.kdftn(put(x, devices, spec), points), points, tikhonov=0.1)
    assert error(value, np.asarray(outside.value)) <= 1e-6
    assert float(residual) == pytest.approx(float(outside.residual), rel=1e-4) and float(residual) > 1e-4
