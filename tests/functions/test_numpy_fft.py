"""numpy.fft's functions on JAX arrays: arguments, placement, jit, gradients, vmap, and refusals."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives

SHAPE, SPEC = (16, 24, 32), P("x", "y", "z")
KINDS = (AxisType.Auto, AxisType.Explicit)


def _put(x: np.ndarray, spec: P = SPEC, kind: AxisType = AxisType.Explicit) -> Array:
    return jax.device_put(x, NamedSharding(mesh((2, 2, 2), kind), spec))


def _spec(y: Array) -> P:
    assert isinstance(y.sharding, NamedSharding)
    return y.sharding.spec


@pytest.mark.quick(0)
@pytest.mark.parametrize("method", ["transpose", "kdft"])
def test_every_method_resizes(method: str) -> None:
    """Catches s honoured by one step only."""
    x = noise(SHAPE)
    y = mf.fftn(_put(x), s=(8, 26, 64), method=method)
    assert error(y, np.fft.fftn(x.astype(complex), s=(8, 26, 64), axes=(0, 1, 2))) <= 4e-7 and _spec(y) == SPEC


def test_axes_move_where_the_result_divides() -> None:
    """Catches a gather, or a refusal, where another dimension can carry the mesh axis."""
    x = noise((16, 24))
    a = jax.device_put(x, NamedSharding(mesh((8,), AxisType.Explicit), P("x")))
    y = mf.fft(a, 17, axis=0)
    assert error(y, np.fft.fft(x.astype(complex), 17, axis=0)) <= 4e-7 and _spec(y) == P(None, "x")


DTYPES = ("bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64")


@pytest.mark.quick(0, 1, 2, 3, 6, 7)
@pytest.mark.parametrize("dtype", DTYPES)
def test_narrow_types_become_complex64(dtype: str) -> None:
    """Catches a type that is refused or that loses its values on the way."""
    x = jnp.asarray(np.arange(64).reshape(8, 8) % 5).astype(dtype)
    y = mf.fftn(x)
    assert y.dtype == np.complex64 and error(y, dft(np.asarray(x.astype("complex64")), (0, 1))) <= 2e-7


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_wide_types_become_complex128_where_jax_has_it(x64: None, dtype: str) -> None:
    """Catches NumPy's promotion not followed under 64-bit types."""
    x = np.arange(64).reshape(8, 8).astype(dtype)
    y = mf.fftn(x)
    assert y.dtype == np.complex128 and error(y, dft(x, (0, 1))) <= 2e-15
    assert mf.fftn(x, precision="float32").dtype == np.complex64
    assert mf.fftn(x.real.astype("float32"), precision="float64").dtype == np.complex128


def _arrays() -> dict[str, Any]:
    x = noise((8, 8))
    devices = mesh((8,))
    return {
        "NumPy": x,
        "list": x.tolist(),
        "one device": jnp.asarray(x),
        "another device": jax.device_put(x, jax.devices()[3]),
        "replicated": jax.device_put(x, NamedSharding(devices, P())),
        "mesh of one": jax.device_put(x, NamedSharding(mesh((1,)), P("x"))),
    }


@pytest.mark.parametrize("where", list(_arrays()))
def test_unsharded_arrays_just_work(where: str) -> None:
    """Catches a path that needs a mesh, and a result that moved to other devices."""
    a = _arrays()[where]
    y = mf.fftn(a)
    assert error(y, dft(noise((8, 8)), (0, 1))) <= 2e-7
    if isinstance(a, Array):
        assert y.devices() == a.devices()
        assert error(jax.jit(mf.fftn)(a), dft(noise((8, 8)), (0, 1))) <= 2e-7


@pytest.mark.quick(0)
@pytest.mark.parametrize("order", ["natural", "any"])
def test_jit_explicit_needs_nothing(order: str) -> None:
    """Catches a sharding lost in tracing."""
    x = noise(SHAPE)
    y = jax.jit(lambda a: mf.fftn(a * 2, order=order))(_put(x))
    assert error(y, 2 * dft(x, (0, 1, 2))) <= 4e-7
    assert order == "any" or _spec(y) == SPEC


def test_jit_auto_takes_spec() -> None:
    """Catches a spec that is not heeded under Auto axes, where JAX hides the sharding of traced arrays."""
    x = noise(SHAPE)
    a = _put(x, kind=AxisType.Auto)
    run = jax.jit(lambda a: mf.fftn(a, spec=SPEC))
    assert error(run(a), dft(x, (0, 1, 2))) <= 4e-7 and _spec(run(a)) == SPEC
    with jax.set_mesh(mesh((2, 2, 2), AxisType.Auto)):
        assert error(jax.jit(lambda: mf.fftn(jnp.asarray(x), spec=SPEC))(), dft(x, (0, 1, 2))) <= 4e-7


def _loss(run: Callable[[Array], Array], weights: np.ndarray) -> Callable[[Array], Array]:
    return lambda a: jnp.sum(jnp.abs(run(a)) ** 2 * weights)


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["transpose", "cooley-tukey", "kdft"])
def test_gradients_match_one_device(kind: AxisType, method: str) -> None:
    """Catches a wrong or gathering gradient; real input, so that promotion is differentiated too."""
    x, weights = noise((8, 16, 8), "float32"), noise((8, 16, 8), "float32", 1) ** 2
    spec = SPEC if kind == AxisType.Auto else None
    gradient = jax.jit(jax.grad(_loss(lambda a: mf.fftn(a, method=method, spec=spec), weights)))
    truth = 2 * np.fft.ifftn(np.fft.fftn(x.astype(float)) * weights, norm="forward").real
    a = _put(x, kind=kind)
    assert error(gradient(a), truth) <= 2e-6
    if kind == AxisType.Explicit:
        assert _spec(gradient(a)) == SPEC
    assert not {"all-gather", "all-reduce"} & set(collectives(gradient.lower(a).compile()))


def test_forward_mode_and_its_reverse() -> None:
    """Catches a missing rule: jvp, vjp, linearize, and grad of grad."""
    x, t = noise((8, 8, 8)), noise((8, 8, 8), seed=1)
    y, dy = jax.jvp(mf.fftn, (_put(x),), (_put(t),))
    assert error(y, dft(x, (0, 1, 2))) <= 4e-7 and error(dy, dft(t, (0, 1, 2))) <= 4e-7
    _, push = jax.linearize(mf.fftn, _put(x))
    assert error(push(_put(t)), dft(t, (0, 1, 2))) <= 4e-7

    def energy(v: Array) -> Array:
        return jnp.sum(jnp.abs(mf.fft(v)) ** 4)

    v = jnp.asarray(noise((8,), "float32"))
    hessian = jax.hessian(energy)(v)
    truth = jax.hessian(lambda v: jnp.sum(jnp.abs(jnp.fft.fft(v)) ** 4))(v)
    assert error(hessian, np.asarray(truth)) <= 1e-5


@pytest.mark.quick(0, 3, 4, 11, 13, 14)
@pytest.mark.parametrize(
    "spec", [P(None, "y", "z"), P("x", "y", "z"), P(("x", "y"), "z"), P("x"), P("x", None, ("z", "y"))]
)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_vmap_keeps_a_sharded_batch(spec: P, axis: int) -> None:
    """Catches a batch dimension gathered, or transformed, under vmap without any annotation."""
    x = noise((16, 8, 24))
    a, others = _put(x, spec), [d for d in range(3) if d != axis]
    run = jax.jit(jax.vmap(mf.fft2, axis, axis))
    y = run(a)
    assert error(y, dft(x, others)) <= 4e-7 and y.sharding.is_equivalent_to(a.sharding, 3)
    assert not {"all-gather", "all-reduce"} & set(collectives(run.lower(a).compile()))


def test_vmap_of_grad_and_nested_vmap() -> None:
    """Catches rules that do not compose."""
    x = noise(SHAPE)
    each = jax.jit(jax.vmap(jax.grad(lambda b: jnp.sum(jnp.abs(mf.fft2(b)) ** 2))))
    assert error(each(_put(x)), 2 * 24 * 32 * x.conj()) <= 4e-7
    y = jax.jit(jax.vmap(jax.vmap(mf.fft)))(_put(x))
    assert error(y, dft(x, (2,))) <= 4e-7 and _spec(y) == SPEC


def test_vmap_under_auto_axes_takes_spmd_axis_name() -> None:
    """Catches a gathered batch where vmap itself names the mesh axis."""
    run = jax.jit(jax.vmap(lambda b: mf.fft2(b, spec=P("y", "z")), spmd_axis_name="x"))
    a = _put(noise(SHAPE), kind=AxisType.Auto)
    assert error(run(a), dft(noise(SHAPE), (1, 2))) <= 4e-7
    assert "all-gather" not in collectives(run.lower(a).compile())


def test_scan_remat_and_repetition() -> None:
    """Catches state between calls, and a primitive that control flow cannot carry."""
    x = noise(SHAPE)

    def body(carry: Array, _: None) -> tuple[Array, None]:
        return jax.checkpoint(lambda c: mf.ifftn(mf.fftn(c)))(carry), None

    y, _ = jax.jit(lambda a: jax.lax.scan(body, a, None, length=5))(_put(x))
    assert error(y, x) <= 2e-6


def test_shapes_beyond_memory_are_evaluated_without_arrays() -> None:
    """Catches allocation, and products of sizes that overflow 32 or 64 bits."""
    devices = mesh((2, 2, 2), AxisType.Explicit)
    x = jax.ShapeDtypeStruct((2**14, 2**13, 2**13), np.complex64, sharding=NamedSharding(devices, SPEC))
    y = jax.eval_shape(lambda a: mf.ifftn(a, norm="ortho"), x)
    assert y.shape == x.shape and y.dtype == np.complex64


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "axis": (lambda: mf.fftn(_put(noise(SHAPE)), axes=(3,)), ValueError, "axis 3 is out of range.* 3 dimensions"),
    "lengths": (lambda: mf.fftn(_put(noise(SHAPE)), s=(4,), axes=(0, 1)), ValueError, "s has 1 lengths for 2 axes"),
    "zero length": (lambda: mf.fft(np.zeros(4), 0), ValueError, "length 0 along axis 0.* at least one point"),
    "empty": (lambda: mf.rfft(np.zeros(0)), ValueError, "length 0 along axis 0"),
    "norm": (lambda: mf.fft(np.zeros(4), norm="unit"), ValueError, "norm 'unit' is unknown.*'ortho'"),
    "method": (lambda: mf.fft(np.zeros(4), method="fast"), ValueError, "method 'fast' is unknown.*'cooley-tukey'"),
    "order": (lambda: mf.fft(np.zeros(4), order="C"), ValueError, "order 'C' is unknown.*'natural', 'any'"),
    "precision": (lambda: mf.fft(np.zeros(4), precision="half"), ValueError, "precision 'half' is unknown"),
    "float64 off": (lambda: mf.fft(np.zeros(4), precision="float64"), ValueError, "jax_enable_x64"),
    "objects": (lambda: mf.fft(np.array([{}, None])), TypeError, "dtype object is not numeric"),
    "strings": (lambda: mf.fft(np.array(["a", "b"])), TypeError, "not numeric"),
    "keyword": (lambda: mf.fft(np.zeros(4), workers=2), TypeError, "workers"),  # type: ignore[call-overload]
    "spec of one device": (
        lambda: mf.fft(jnp.zeros(8), spec=P("x")),
        ValueError,
        "lies on one device: use jax.device_put",
    ),
    "other spec": (lambda: mf.fftn(_put(noise(SHAPE)), spec=P("y")), ValueError, "sharded as .*drop spec="),
    "line alone": (
        lambda: mf.fft(_put(noise((8,)), P("x")), method="transpose"),
        ValueError,
        "needs a second dimension",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value) or case == "keyword"


def test_big_endian_arrays_as_files_hold_them() -> None:
    """Catches bytes taken in the wrong order, or refused: NIfTI and HDF5 files are often big-endian."""
    x = np.arange(8, dtype=">f4")
    assert error(mf.fft(x), dft(x, (0,))) <= 2e-7
    np.testing.assert_array_equal(mf.gather(mf.shard(x, mesh((2,)), P("x"))), x)


def test_without_jit() -> None:
    """Catches a primitive whose eager rule calls itself."""
    with jax.disable_jit():
        assert error(mf.fft(jnp.asarray(noise((8,)))), dft(noise((8,)), (0,))) <= 2e-7
