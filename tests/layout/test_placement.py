"""Cotangents and constants that JAX makes itself, in every family of functions and under both kinds of mesh axes."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives

SPEC = P("x", None)
SHAPE = (8, 4)
MATRICES = [noise((8, 8), "float32", 5), None]
POINTS = [mf.Points.turns(np.linspace(0.0, 0.9, 8)), None]


class Family(NamedTuple):
    """A function of an array, its arguments, and the type of the array."""

    of: Callable[..., Any]
    dtype: str = "float32"


FAMILIES = {
    "fftn": Family(mf.fftn, "complex64"),
    "rfftn": Family(mf.rfftn),
    "irfftn": Family(mf.irfftn, "complex64"),
    "dctn": Family(mf.dctn),
    "kdftn": Family(lambda x, **how: mf.kdftn(x, POINTS, **how), "complex64"),
    "apply_separable": Family(lambda x, **how: mf.apply_separable(MATRICES, x, **how)),
    "fftshift": Family(mf.fftshift),
    "derivative": Family(lambda x, **how: mf.derivative(x, 0, **how)),
    "poisson": Family(mf.poisson),
    "convolve": Family(lambda x, **how: mf.convolve(x, x, **how)),
    "power_spectrum": Family(lambda x, **how: mf.power_spectrum(x, bins=3, **how).power),
}
KINDS = pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
EACH = pytest.mark.parametrize("name", [*FAMILIES, "plan"])


def _devices(kind: AxisType) -> Mesh:
    return mesh((4,), kind)


def _function(name: str, kind: AxisType) -> tuple[Callable[..., Any], Array, np.ndarray]:
    """A function of a sharded array as a user would call it inside `jit`, the array, and its values."""
    family = FAMILIES.get(name, Family(mf.fftn, "complex64"))
    x = noise(SHAPE, family.dtype)
    a = jax.device_put(x, NamedSharding(_devices(kind), SPEC))
    if name == "plan":
        return mf.plan(SHAPE, mesh=_devices(kind), spec=SPEC), a, x
    how = {"spec": SPEC} if kind == AxisType.Auto else {}
    return lambda x: family.of(x, **how), a, x


def _truth(name: str) -> Callable[..., Any]:
    return FAMILIES[name].of if name in FAMILIES else mf.fftn


def _near(kind: AxisType) -> contextlib.AbstractContextManager[Any]:
    """Explicit axes in eager code are JAX's only under set_mesh; Auto ones need none."""
    return jax.set_mesh(_devices(kind)) if kind == AxisType.Explicit else contextlib.nullcontext()


@pytest.mark.quick(17)
@EACH
@KINDS
def test_cotangents_from_numpy(name: str, kind: AxisType) -> None:
    """Catches a reversed walk that finds no devices, or refuses an array without devices."""
    f, a, x = _function(name, kind)
    y, back = jax.vjp(f, a)
    cotangent = noise(y.shape, y.dtype.name, 7)
    (found,) = back(cotangent)
    (truth,) = jax.vjp(_truth(name), jnp.asarray(x))[1](jnp.asarray(cotangent))
    assert error(found, np.asarray(truth)) <= 2e-6
    assert name == "power_spectrum" or found.sharding.is_equivalent_to(a.sharding, 2)


@pytest.mark.quick(4, 6)
@EACH
@KINDS
def test_cotangents_that_jax_makes(name: str, kind: AxisType) -> None:
    """Catches the same within `jit`, where the gradient of a linear function needs nothing of the array itself."""
    f, a, x = _function(name, kind)
    with _near(kind):
        run = jax.jit(jax.grad(lambda v: f(v).real.sum()))
        found, compiled = run(a), run.lower(a).compile()
    truth = jax.grad(lambda v: _truth(name)(v).real.sum())(jnp.asarray(x))
    size = float(np.linalg.norm(x))  # some gradients are zero
    assert float(np.linalg.norm(np.asarray(found) - np.asarray(truth))) <= 2e-6 * (float(np.linalg.norm(truth)) + size)
    assert "all-gather" not in collectives(compiled)


@pytest.mark.quick(0)
@KINDS
def test_at_once_and_whole_jacobians(kind: AxisType) -> None:
    """Catches cotangents made outside of `jit`, batches of them, and NumPy tangents."""
    f, a, x = _function("fftn", kind)
    with _near(kind):
        found = jax.grad(lambda v: f(v).real.sum())(a.real)
        inside = jax.grad(jax.jit(lambda v: f(v).real.sum()))(a.real)
    truth = np.asarray(jax.grad(lambda v: mf.fftn(v).real.sum())(jnp.asarray(x.real)))
    assert error(found, truth) <= 1e-6 and error(inside, truth) <= 1e-6
    rows = jax.jacrev(lambda v: f(v).real)(a.real)
    assert error(rows, np.asarray(jax.jacrev(lambda v: mf.fftn(v).real)(jnp.asarray(x.real)))) <= 1e-6
    if kind == AxisType.Explicit:
        jax.test_util.check_grads(f, (a,), 2, atol=0.1, rtol=0.1)


@pytest.mark.quick(1)
@KINDS
@pytest.mark.parametrize("near", [False, True])
def test_arrays_made_inside_jit_are_brought_to_a_plan(kind: AxisType, near: bool) -> None:
    """Catches constants and random numbers that a plan refuses, or that `jit` has no devices for; their gradients."""
    plan, truth = mf.plan(SHAPE, mesh=_devices(kind), spec=SPEC), 3 * np.fft.fft2(np.ones(SHAPE))
    made = lambda s: plan(s * jnp.ones(SHAPE))  # noqa: E731
    with jax.set_mesh(_devices(kind)) if near else contextlib.nullcontext():
        y = jax.jit(made)(3.0)
        value, gradient = jax.jit(jax.value_and_grad(lambda s: made(s).real.sum()))(3.0)
        key = jax.random.key(0)
        spread = jax.jit(lambda key: plan(jax.random.normal(key, SHAPE)))(key)
        batch = jax.jit(lambda: jax.vmap(plan)(jnp.ones((3, *SHAPE))))()
    assert error(y, truth) <= 1e-6 and y.sharding.is_equivalent_to(NamedSharding(_devices(kind), SPEC), 2)
    assert float(value) == pytest.approx(96) and float(gradient) == pytest.approx(32)
    assert error(spread, np.fft.fft2(jax.random.normal(key, SHAPE))) <= 1e-6
    assert error(batch, np.broadcast_to(truth / 3, (3, *SHAPE))) <= 1e-6


@pytest.mark.parametrize("transformed", [jax.jit, jax.grad, jax.linearize])
def test_a_plan_says_itself_where_an_array_lies_otherwise(transformed: Any) -> None:
    """Catches JAX's message about shard_map's specs or cotangents, if a traced array shows another sharding."""
    devices = _devices(AxisType.Explicit)
    plan = mf.plan(SHAPE, mesh=devices, spec=SPEC)
    other = jax.device_put(noise(SHAPE, "float32"), NamedSharding(devices, P(None, "x")))
    beside = jax.device_put(noise(SHAPE, "float32"), NamedSharding(mesh((2, 2), AxisType.Explicit), P("x", "y")))
    refused = r"sharded as P\(None, 'x'\), the plan takes P\('x', None\) .*use jax.reshard\(x, NamedSharding\(plan.mesh"
    call = jax.linearize if transformed is jax.linearize else lambda f, x: transformed(f)(x)
    for run in (plan, plan.inverse, plan.adjoint):
        loss = lambda v, run=run: run(v).real.sum()  # noqa: E731
        with jax.set_mesh(devices), pytest.raises(ValueError, match=refused):
            call(loss, other)
        with pytest.raises(ValueError, match=r"the plan's mesh has {'x': 4}, the array's {'x': 2, 'y': 2}"):
            call(loss, beside)
    with jax.set_mesh(devices), pytest.raises(ValueError, match=r"axes \(Auto,\), that of jax.set_mesh \(Explicit,\)"):
        call(lambda v: mf.plan(SHAPE, mesh=_devices(AxisType.Auto), spec=SPEC)(v).real.sum(), other)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_another_mesh_than_the_one_set_is_refused(kind: AxisType) -> None:
    """Catches JAX's words on a context mesh that should match the one passed to shard_map."""
    plan = mf.plan(SHAPE, mesh=_devices(kind), spec=SPEC)
    a = jax.device_put(noise(SHAPE), NamedSharding(_devices(kind), SPEC))
    uneven = mf.shard(noise((7, 3)), _devices(kind), SPEC)
    with jax.set_mesh(mesh((2, 2), kind)):
        for call, whose in ((mf.fftn, "array's"), (lambda x: mf.pad_spectrum(x, (16, 4), kind="fft"), "array's")):
            with pytest.raises(
                ValueError, match=rf"the {whose} mesh has {{'x': 4}}, .*set_mesh {{'x': 2, 'y': 2}}: set"
            ):
                call(a)
        with pytest.raises(ValueError, match="the plan's mesh has"):
            plan(a)
        with pytest.raises(ValueError, match="the array's mesh has"):
            mf.fftn(uneven)
        if kind == AxisType.Explicit:
            with pytest.raises(ValueError, match="the array's mesh has"):
                jax.jit(mf.fftn)(a)
    other = AxisType.Auto if kind == AxisType.Explicit else AxisType.Explicit
    with jax.set_mesh(_devices(other)), pytest.raises(ValueError, match=r"mesh has axes \(.*set_mesh \(.*mf.shard"):
        mf.fftn(a)


def test_axes_of_one_device_stay_in_the_type() -> None:
    """Catches a walk that drops an Explicit axis of size 1, which the type of a traced array has all the same."""
    x = noise(SHAPE, "float32")
    a = jax.device_put(x, NamedSharding(mesh((1,), AxisType.Explicit), SPEC))
    y = jax.jit(lambda a: mf.idctn(a, method="kdft"))(a)
    assert error(mf.dctn(y), x.astype(float)) <= 2e-6 and y.sharding == a.sharding
