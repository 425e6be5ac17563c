"""Every kind of transform under every transformation of JAX, on sharded arrays, against one device."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives

SPEC = P("x", "y")


class Kind(NamedTuple):
    """A transform, JAX's own on one device, and an input of it."""

    ours: Callable[..., Array]
    single: Callable[[Array], Array]
    shape: tuple[int, ...]
    dtype: str


def _sine(x: Array) -> Array:
    """DST-II by JAX's cosine transform: signs before it, the other order after."""
    for axis in range(x.ndim):
        signs = 1 - 2 * (jnp.arange(x.shape[axis], dtype=x.dtype) % 2)
        y = jax.scipy.fft.dct(x * signs.reshape([-1 if d == axis else 1 for d in range(x.ndim)]), axis=axis)
        x = jnp.flip(y, axis)
    return x


KINDS = {
    "fftn": Kind(mf.fftn, jnp.fft.fftn, (8, 12, 6), "complex64"),
    "rfftn": Kind(mf.rfftn, jnp.fft.rfftn, (8, 12, 6), "float32"),
    "irfftn": Kind(mf.irfftn, jnp.fft.irfftn, (8, 12, 4), "complex64"),
    "hfft": Kind(mf.hfft, jnp.fft.hfft, (8, 12, 4), "complex64"),
    "dctn": Kind(mf.dctn, jax.scipy.fft.dctn, (8, 12, 6), "float32"),
    "dstn": Kind(mf.dstn, _sine, (8, 12, 6), "float32"),
    "fftshift": Kind(mf.fftshift, jnp.fft.fftshift, (8, 12, 6), "complex64"),
}
EACH = pytest.mark.parametrize("name", KINDS)


def _put(x: Any, spec: P = SPEC, kind: AxisType = AxisType.Explicit) -> Array:
    return jax.device_put(x, NamedSharding(mesh((2, 4), kind), spec))


def _input(name: str, seed: int = 0) -> np.ndarray:
    return noise(KINDS[name].shape, KINDS[name].dtype, seed)


def _loss(transform: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A number whose second derivatives are not zero."""
    return lambda x: jnp.sum(jnp.abs(transform(x)) ** 2) + jnp.sum(jnp.real(transform(x)) ** 3) / 100


def _same(ours: Any, single: Any, bound: float = 4e-6) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(single), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and error(a, np.asarray(b)) <= bound


@pytest.mark.quick(3)
@EACH
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_jit_value_and_gradient(name: str, kind: AxisType) -> None:
    """Catches a gather or a lost sharding under jit, and a gradient that differs from one device's."""
    ours, single, _, _ = KINDS[name]
    x = _input(name)
    a, options = _put(x, kind=kind), {} if kind == AxisType.Explicit else {"spec": SPEC}
    with jax.set_mesh(mesh((2, 4), kind)):
        run = jax.jit(jax.value_and_grad(_loss(lambda x: ours(x, **options))))
        value, gradient = run(a)
        assert "all-gather" not in collectives(run.lower(a).compile())
    expected, truth = jax.value_and_grad(_loss(single))(jnp.asarray(x))
    _same((value, gradient), (expected, truth))
    assert gradient.sharding.is_equivalent_to(a.sharding, a.ndim)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", slow_but(KINDS.keys() - {"dstn"}, KINDS))  # its rules are those of dctn
def test_forward_reverse_and_both(name: str) -> None:
    """Catches a missing or wrong rule: jvp, vjp, linearize, and a Hessian-vector product; of fftn without jit too.

    Also a walk whose derivative moves with more than its array, seen by the derivative of a derivative, both forward.
    """

    def rules(transform: Callable[[Array], Array], x: Array, v: Array) -> list[Any]:
        y, along = jax.linearize(transform, x)
        forward, second = jax.jvp(transform, (x,), (v,)), jax.jvp(jax.grad(_loss(transform)), (x,), (v,))
        twice = jax.jvp(lambda x: jax.jvp(lambda x: jnp.square(transform(x)), (x,), (v,))[1], (x,), (v,))
        return [forward, y, along(v), jax.vjp(transform, x)[1](y), second, twice]

    ours, single, _, _ = KINDS[name]
    x, v = _input(name), _input(name, 1)
    with jax.set_mesh(mesh((2, 4), AxisType.Explicit)):
        found = jax.jit(rules, static_argnums=0)(ours, a := _put(x), b := _put(v))
        if name == "fftn":
            _same(rules(ours, a, b), found)
    _same(found, jax.jit(rules, static_argnums=0)(single, jnp.asarray(x), jnp.asarray(v)))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["rfft", "irfft", "fft", "dct"])
def test_whole_jacobians(name: str) -> None:
    """Catches batching of tangents and cotangents: jacfwd and jacrev of a sharded line, and of its gradient."""
    x = noise((8, 3), "complex64" if name == "fft" else "float32")
    a = jax.device_put(x, NamedSharding(mesh((2,), AxisType.Explicit), P(None, None)))
    ours = lambda x: jnp.abs(getattr(mf, name)(x, axis=0)) ** 2  # noqa: E731
    library = jax.scipy.fft if name == "dct" else jnp.fft
    single = lambda x: jnp.abs(getattr(library, name)(x, axis=0)) ** 2  # noqa: E731
    with jax.set_mesh(mesh((2,), AxisType.Explicit)):
        if name != "fft":
            _same(jax.jacfwd(ours)(a), jax.jacfwd(single)(jnp.asarray(x)))
            _same(jax.jacrev(ours)(a), jax.jacrev(single)(jnp.asarray(x)))
        else:
            _same(jax.jacfwd(ours, holomorphic=False)(a.real), jax.jacfwd(single)(jnp.asarray(x.real)))


@pytest.mark.quick(3)
@EACH
@pytest.mark.parametrize("cut", [None, "x"])
def test_vmap_of_a_batch_sharded_or_not(name: str, cut: str | None) -> None:
    """Catches a batch dimension gathered or transformed, in front or behind."""
    ours, single, _, _ = KINDS[name]
    x = np.stack([_input(name, seed) for seed in range(4)])
    for place in (0, 3):
        a = np.moveaxis(x, 0, place)
        spec: list[Any] = [None, "y", None]
        spec.insert(place, cut)
        run = jax.jit(jax.vmap(ours, in_axes=place, out_axes=place))
        b = _put(a, P(*spec))
        with jax.set_mesh(mesh((2, 4), AxisType.Explicit)):
            y = run(b)
            assert "all-gather" not in collectives(run.lower(b).compile())
        assert error(y, np.moveaxis(np.asarray(jax.vmap(single)(jnp.asarray(x))), 0, place)) <= 4e-6
        assert isinstance(y.sharding, NamedSharding) and (y.sharding.spec + (None,) * 4)[place] == cut


@pytest.mark.quick(3)
@EACH
def test_scan_remat_and_conditions(name: str) -> None:
    """Catches a transform that control flow, or a second evaluation of the forward pass, cannot carry."""
    ours, single, _, _ = KINDS[name]

    def steps(transform: Callable[[Array], Array], x: Array) -> Array:
        def step(carry: Array, scale: Array) -> tuple[Array, Array]:
            y = jax.checkpoint(transform)(carry)
            return carry * scale.astype(carry.dtype), jax.lax.cond(
                scale > 0, lambda y: jnp.sum(jnp.abs(y) ** 2), lambda y: 0.0, y
            )

        return jnp.sum(jax.lax.scan(step, x, jnp.asarray([0.5, -0.5, 2.0]))[1])

    x = _input(name)
    with jax.set_mesh(mesh((2, 4), AxisType.Explicit)):
        found = jax.jit(jax.value_and_grad(lambda x: steps(ours, x)))(_put(x))
    _same(found, jax.value_and_grad(lambda x: steps(single, x))(jnp.asarray(x)))


@pytest.mark.quick(0, 3)
@pytest.mark.parametrize("name", ["fftn", "dctn", "dstn", "fftshift"])  # the rest have no room for their results
def test_donated_arrays_are_gone_and_others_are_not(name: str) -> None:
    """Catches an input overwritten although it was not given away, and a donation that is not taken up."""
    ours, single, _, _ = KINDS[name]
    x = _input(name)
    kept = _put(x)
    for _ in range(3):
        _same(ours(kept), single(jnp.asarray(x)))
    np.testing.assert_array_equal(kept, x)
    given = _put(x)
    y = jax.jit(ours, donate_argnums=0)(given)
    _same(y, single(jnp.asarray(x)))
    assert given.is_deleted()


@EACH
def test_shapes_of_two_to_the_forty_without_arrays(name: str) -> None:
    """Catches allocation while shapes are worked out, and products of sizes that wrap at 2^31."""
    ours, single, _, dtype = KINDS[name]
    shape = (2**14, 2**13, 2**13 + (2 if name in ("irfftn", "hfft") else 0))
    where = NamedSharding(mesh((2, 4), AxisType.Explicit), SPEC)
    found = jax.eval_shape(ours, jax.ShapeDtypeStruct(shape, dtype, sharding=where))
    if name != "dstn":
        truth = jax.eval_shape(single, jax.ShapeDtypeStruct(shape, dtype))
        assert (found.shape, found.dtype) == (truth.shape, truth.dtype)
    assert found.sharding.spec == SPEC or found.shape[:2] == shape[:2]


def test_normalisation_beyond_two_to_the_thirty_one() -> None:
    """Catches a factor made in int32: of 2^40 points it would be infinite, or negative."""
    for kind, dtype in (("fft", "complex64"), ("rfft", "float32"), ("dct-2", "float32")):
        plan = mf.plan((2**14, 2**13, 2**13), kind=kind, dtype=dtype, norm="forward")
        assert plan.transform.scale == pytest.approx(2.0**-40 / (8 if kind == "dct-2" else 1))


def test_a_batch_without_members_and_axes_of_one() -> None:
    """Catches division by zero sizes, and lines of one point that are sent about."""
    for name, (ours, single, _, dtype) in KINDS.items():
        if name == "hfft":
            continue
        last = 2 if name == "irfftn" else 1
        x = jnp.ones((1, 1, last), dtype)
        _same(ours(x), single(x))
        axes = {"axes": (1, 2)} if name != "fftshift" else {}
        empty = ours(jnp.ones((0, 4, 5), dtype), **axes)
        assert empty.shape[:2] == (0, 4) and empty.size == 0
    sharded = jax.device_put(np.zeros((0, 8, 6), np.float32), NamedSharding(mesh((2, 4)), P(None, "x", None)))
    assert mf.rfftn(sharded, axes=(1, 2)).shape == (0, 8, 4)
