"""Wavenumbers, derivatives and the Poisson equation, against waves whose answers are known."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.padded_array import stored_of


class Box(NamedTuple):
    """Samples on a mesh, and the period along each axis."""

    mesh: tuple[int, ...]
    spec: P
    shape: tuple[int, ...]
    kind: AxisType
    lengths: tuple[float, ...]


BOXES = {
    "slab": Box((8,), P("x"), (16, 9, 12), AxisType.Auto, (1.0, 2.5, 7.0)),
    "pencil": Box((2, 4), P("x", "y"), (12, 16, 7), AxisType.Explicit, (3.0, 0.5, 1.0)),
    "block": Box((2, 2, 2), P("x", "y", "z"), (10, 6, 14), AxisType.Explicit, (2.0, 2.0, 0.25)),
    "line": Box((8,), P("x"), (24,), AxisType.Auto, (6.0,)),
    "crossed": Box((2, 4), P(None, ("y", "x")), (11, 8), AxisType.Auto, (1.0, 1.0)),
}


def _put(x: np.ndarray, box: Box) -> Array:
    return jax.device_put(x, NamedSharding(mesh(box.mesh, box.kind), box.spec))


def _along(box: Box, dim: int) -> np.ndarray:
    """Coordinates in radians of the first period."""
    n = box.shape[dim]
    return (2 * np.pi * np.arange(n) / n).reshape([-1 if d == dim else 1 for d in range(len(box.shape))])


def _waves(box: Box, orders: tuple[int, ...], dtype: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Five random waves below the Nyquist ones, and their derivative of these orders along each dimension."""
    rng, many = np.random.default_rng(seed), len(box.shape)
    x, y = np.zeros(box.shape, complex), np.zeros(box.shape, complex)
    for _ in range(5):
        j = [int(rng.integers(-((n - 1) // 2), (n - 1) // 2 + 1)) for n in box.shape]
        wave = np.exp(1j * (rng.random() * 7 + sum(j[d] * _along(box, d) for d in range(many))))
        factor = np.prod([(2j * np.pi * j[d] / box.lengths[d]) ** orders[d] for d in range(many)])
        x, y = x + wave, y + factor * wave
    return (x, y) if np.dtype(dtype).kind == "c" else (x.real, y.real)


def _sharded(y: Array, like: Array) -> bool:
    return y.sharding.is_equivalent_to(like.sharding, y.ndim)


@given(cases(), st.sampled_from(["fft", "rfft"]), st.sampled_from(["natural", "any"]), st.booleans())
def test_wavenumbers_are_numpys_laid_out_as_the_spectrum(case: Case, kind: str, order: str, given: bool) -> None:
    """Catches a wrong sign, order, length or axis, numbers in the padding, and a line that is cut otherwise."""
    devices = mesh(case.mesh)
    plan = mf.plan(case.shape, mesh=devices, spec=case.spec, axes=case.axes, kind=kind, order=order)
    lengths = [0.5 + 3 * d for d in case.axes] if given else None
    found, layout = mf.wavenumbers(plan, lengths), plan.out_layout
    assert len(found) == len(case.axes)
    for place, (dim, k) in enumerate(zip(case.axes, found, strict=True)):
        n, half = case.shape[dim], kind == "rfft" and place == len(case.axes) - 1
        truth = (np.fft.rfftfreq if half else np.fft.fftfreq)(n, (lengths[place] if lengths else n) / n / 2 / np.pi)
        np.testing.assert_allclose(np.asarray(k).ravel(), truth, rtol=1.2e-7)
        assert np.count_nonzero(stored_of(k)) == np.count_nonzero(truth) and k.dtype == np.float32
        assert stored_of(k).shape == tuple(layout.storage[d] if d == dim else 1 for d in range(len(case.shape)))
        spec = P(*(part if d == dim else None for d, part in enumerate(layout.spec)))
        assert k.sharding.is_equivalent_to(NamedSharding(devices, spec), k.ndim)


def test_wavenumbers_follow_s_dtype_and_described_meshes(x64: None) -> None:
    """Catches the input's size taken for the transform's, float32 in double plans, and a mesh that has no devices."""
    plan = mf.plan((6, 5), s=(8, 12), dtype="float64", kind="rfft")
    first, last = mf.wavenumbers(plan)
    np.testing.assert_allclose(first[:, 0], 2 * np.pi * np.fft.fftfreq(8), rtol=1e-15)
    np.testing.assert_allclose(last[0], 2 * np.pi * np.fft.rfftfreq(12), rtol=1e-15)
    described = mf.plan((8, 16), mesh=AbstractMesh((4,), ("x",)), spec=P("x"), order="any")
    assert [k.shape for k in mf.wavenumbers(described)] == [(8, 1), (1, 16)]
    (real,) = mf.wavenumbers(mf.plan((5,), kind="hfft"))
    np.testing.assert_allclose(real, 2 * np.pi * np.fft.fftfreq(8), rtol=1e-7)


@pytest.mark.quick(0)
@pytest.mark.parametrize("name", ["block", "line"])
def test_wavenumbers_meet_the_spectrum_without_traffic(name: str) -> None:
    """Catches numbers that are gathered, or a padded half spectrum that does not fit them, within jit and outside."""
    box = BOXES[name]
    devices = mesh(box.mesh, box.kind)
    plan = mf.plan(box.shape, mesh=devices, spec=box.spec, kind="rfft", order="any")
    assert name != "line" or not plan.out_layout.even
    x, truth = _waves(box, (0,) * (len(box.shape) - 1) + (1,), "float32", 3)

    def slope(x: Array) -> Array:
        return plan.inverse(1j * mf.wavenumbers(plan, box.lengths)[-1].astype(plan.dtype) * plan(x))

    a, run = _put(x.astype("float32"), box), jax.jit(slope)
    assert error(run(a), truth) <= 2e-6 and error(slope(a), truth) <= 2e-6
    both = {kind: 2 * count for kind, count in plan.collectives.items()}
    assert name == "line" or collectives(run.lower(a).compile()) == both


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", slow_but(["pencil", "line", "crossed"], BOXES))
def test_odd_wavenumbers_differentiate_as_derivative_does(x64: None, name: str) -> None:
    """Catches a Nyquist frequency that is kept, lost in even functions or for odd sizes, or 0 by another rule.

    Real noise through half and through whole spectra: with the plain k these two differ by several per cent.
    """
    box = BOXES[name]
    x, devices = _put(noise(box.shape, "float64", 8), box), mesh(box.mesh, box.kind)
    for dim, length in enumerate(box.lengths):
        truth = mf.derivative(x, dim, lengths=length)
        for kind in ("rfft", "fft"):
            plan = mf.plan(box.shape, mesh=devices, spec=box.spec, dtype="float64", kind=kind)
            plain, odd = (mf.wavenumbers(plan, box.lengths, odd=one)[dim] for one in (False, True))
            a = mf.shard(np.asarray(x).astype(plan.in_dtype), devices, box.spec)
            assert error(plan.inverse(1j * odd.astype(complex) * plan(a)), np.asarray(truth)) <= 1e-12
            nyquist = (box.shape[dim] % 2 == 0) * np.pi * box.shape[dim] / length
            assert error(odd, np.where(np.isclose(abs(plain), nyquist), 0, plain)) == 0
            found = error(plan.inverse(1j * plain.astype(complex) * plan(a)), np.asarray(truth))
            assert found <= 1e-12 if box.shape[dim] % 2 or (kind, dim) == ("rfft", len(box.shape) - 1) else found > 0.01


DERIVATIVES: list[tuple[str, Any, Any, str]] = [
    ("slab", 0, 1, "float32"),
    ("slab", 2, 3, "complex64"),
    ("pencil", -2, 2, "float32"),
    ("block", 2, 1, "complex64"),
    ("block", (0, 2), (2, 1), "float32"),
    ("line", 0, 1, "float32"),
    ("crossed", 1, 1, "float32"),
    ("crossed", (1, 0), (1, 1), "complex64"),
]


@pytest.mark.quick(5)
@pytest.mark.parametrize(("name", "axis", "order", "dtype"), DERIVATIVES)
def test_derivatives_of_waves(name: str, axis: Any, order: Any, dtype: str) -> None:
    """Catches a wrong power, sign, axis or length, a complex result of real samples, and a lost sharding."""
    box = BOXES[name]
    many = len(box.shape)
    asked = {axis % many: order} if isinstance(axis, int) else dict(zip(axis, order, strict=True))
    x, truth = _waves(box, tuple(asked.get(d, 0) for d in range(many)), dtype, 5)
    length = box.lengths[axis] if isinstance(axis, int) else [box.lengths[d] for d in axis]
    a = _put(x.astype(dtype), box)
    y = mf.derivative(a, axis, order=order, lengths=length)
    assert y.dtype == np.dtype(dtype) and _sharded(y, a)
    assert error(y, truth) <= 1e-5  # relative to the wave that is amplified least


@pytest.mark.quick(2, 5, 7, 8)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 12])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_derivatives_of_every_order_of_short_lines(x64: None, n: int, dtype: str) -> None:
    """Catches the Nyquist wave given an odd derivative, or denied an even one, and 0 to the power 0."""
    j = np.fft.fftfreq(n, 1 / n)
    x = noise((n, 3), dtype, n)
    for order in range(4):
        kept = (2 * abs(j) != n) | (order % 2 == 0)
        truth = np.fft.ifft(((2j * np.pi * j / n) ** order * kept)[:, None] * np.fft.fft(x, axis=0), axis=0)
        y = mf.derivative(x, 0, order=order)
        assert y.dtype == np.dtype(dtype)
        np.testing.assert_allclose(y, truth if np.iscomplexobj(x) else truth.real, atol=1e-13 * np.pi**order)


@pytest.mark.quick(5, 6)
@pytest.mark.parametrize("name", list(BOXES))
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_poisson_of_a_product_of_cosines(name: str, dtype: str) -> None:
    """Catches a wrong sign or length, a mean that is not dropped, or divided by, and a lost sharding."""
    box = BOXES[name]
    many, j = len(box.shape), (2, 1, 3)
    u = np.prod(np.broadcast_arrays(*(np.cos(j[d] * _along(box, d) + d) for d in range(many))), axis=0)
    u = u * (1 - 2j) if dtype == "complex64" else u
    square = sum((2 * np.pi * j[d] / box.lengths[d]) ** 2 for d in range(many))
    f = _put((3 - square * u).astype(dtype), box)
    found = mf.poisson(f, box.lengths)
    assert found.dtype == np.dtype(dtype) and _sharded(found, f)
    assert error(found, u) <= 5e-6 and abs(np.mean(np.asarray(found))) <= 1e-7


def test_poisson_of_some_axes_and_of_any_scale() -> None:
    """Catches an axis too many, means taken over all lines, and squares that overflow or underflow float32."""
    box = BOXES["pencil"]
    u = np.cos(_along(box, 1) + _along(box, 2)) * (1 + _along(box, 0))
    square = (2 * np.pi / 0.5) ** 2 + (2 * np.pi / 3.0) ** 2
    f = _put((_along(box, 0) - square * u).astype("float32"), box)
    assert error(mf.poisson(f, (0.5, 3.0), axes=(1, 2)), u) <= 1e-6
    x = np.cos(_along(BOXES["line"], 0)).astype("float32")
    for length, size in ((1e-20, 1e10), (1e20, 1e-10)):
        found = np.asarray(mf.poisson(np.float32(size) * x, (length,)), float)
        assert error(found / size / (length / 2 / np.pi) ** 2, -x) <= 1e-6


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "derivative": lambda x, spec=None: mf.derivative(x, (2, 0), order=(1, 2), spec=spec),
    "poisson": lambda x, spec=None: mf.poisson(x, (2.0, 3.0, 4.0), spec=spec),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("box", ["slab", "pencil", "block"])
def test_half_the_traffic_and_no_gathers(name: str, box: str) -> None:
    """Catches a walk in natural order, and anything but its all-to-alls in the compiled text."""
    at, axes = BOXES[box], (2, 0) if name == "derivative" else None
    devices = mesh(at.mesh, at.kind)
    described = devices.abstract_mesh
    plan = mf.plan(at.shape, mesh=described, spec=at.spec, axes=axes, kind="rfft", order="any")
    run = jax.jit(lambda x: FUNCTIONS[name](x, at.spec))
    found = collectives(run.lower(_put(noise(at.shape, "float32"), at)).compile())
    assert found == {kind: 2 * count for kind, count in plan.collectives.items()}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_gradients_are_exact(x64: None, name: str, kind: AxisType) -> None:
    """Catches a wrong or gathering gradient: of a quadratic function, finite differences are exact."""
    box = BOXES["block"]._replace(kind=kind)
    spec = box.spec if kind == AxisType.Auto else None
    x, t = _put(noise(box.shape, "float64"), box), _put(noise(box.shape, "float64", 1), box)

    def loss(x: Array) -> Array:
        return jnp.sum(FUNCTIONS[name](x, spec) ** 2 * np.arange(1.0, box.shape[2] + 1)[None, None])

    gradient = jax.jit(jax.grad(loss))
    slope = float(jnp.sum(gradient(x) * t))
    assert slope == pytest.approx(float(jax.jit(loss)(x + t) - jax.jit(loss)(x - t)) / 2, rel=1e-11)
    assert "all-gather" not in collectives(gradient.lower(x).compile())


def test_arrays_of_every_kind() -> None:
    """Catches a path that needs a mesh, planes that return joined, and a batch that is not mapped."""
    box = BOXES["block"]
    x = noise(box.shape)
    truth = np.fft.ifft(2j * np.pi * _odd(box.shape[1])[:, None] * np.fft.fft(x, axis=1), axis=1)
    for a in (x, x.tolist(), jnp.asarray(x), jax.device_put(x, jax.devices()[3]), _put(x, box)):
        assert error(mf.derivative(a, 1), truth) <= 1e-6
    re, im = mf.derivative((_put(x.real, box), _put(x.imag, box)), 1)
    assert error(re, truth.real) <= 1e-6 and error(im, truth.imag) <= 1e-6
    assert mf.derivative(np.arange(8, dtype="int8"), 0).dtype == np.float32
    each = jax.jit(jax.vmap(lambda line: mf.derivative(line, 0)))(_put(x, box))
    assert error(each, truth) <= 1e-6


def _odd(n: int) -> np.ndarray:
    f = np.fft.fftfreq(n)
    return np.where(abs(f) == 0.5, 0, f)


def test_constants_under_a_context_mesh() -> None:
    """Catches an array that shows no mesh, where only the context has one."""
    x = noise((8, 8, 8), "float32")
    for kind in (AxisType.Auto, AxisType.Explicit):
        spec = P("x", "y", "z") if kind == AxisType.Auto else None
        with jax.set_mesh(mesh((2, 2, 2), kind)):
            y = jax.jit(lambda spec=spec: mf.poisson(jnp.asarray(x), spec=spec))()
        assert error(y, np.asarray(mf.poisson(x))) <= 1e-6


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_on_a_mesh_of_one_device(kind: AxisType) -> None:
    """Catches an array taken for sharded, and refused within jit, because it names axes of size 1."""
    x = jax.device_put(noise((6, 4), "float32"), NamedSharding(mesh((1,), kind), P("x")))
    y = jax.jit(mf.poisson)(x)
    assert error(y, np.asarray(mf.poisson(np.asarray(x)))) <= 1e-6 and _sharded(y, x)


def _auto(x: np.ndarray) -> Array:
    return _put(x, BOXES["slab"])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_wavenumbers_of_a_box_of_two_pi_are_integers(dtype: str, x64: None) -> None:
    """Catches 14.999999999999998: a mask |k| < n / 3 then keeps one wave of a pair."""
    for n in (30, 45, 96, 354):
        (k,) = mf.wavenumbers(mf.plan((n,), dtype=dtype), (2 * np.pi,))
        np.testing.assert_array_equal(k, np.rint(np.fft.fftfreq(n, 1 / n)))


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "inverse": (lambda: mf.wavenumbers(mf.plan((8,), inverse=True)), ValueError, "inverse.*give the forward plan"),
    "a shape": (lambda: mf.wavenumbers((8, 8)), TypeError, "plan is a tuple: give the plan"),  # type: ignore[arg-type]
    "an array": (lambda: mf.wavenumbers(np.ones(4)), TypeError, "plan is a ndarray: give the plan"),  # type: ignore[arg-type]
    "points": (
        lambda: mf.wavenumbers(mf.plan((8,), points=[mf.Points.turns([0.1])])),
        ValueError,
        "no wavenumbers: plan without points=",
    ),
    "cosines": (
        lambda: mf.wavenumbers(mf.plan((8,), dtype="float32", kind="dct-3")),
        ValueError,
        "cosines and sines of type 3",
    ),
    "lengths": (lambda: mf.wavenumbers(mf.plan((8, 8)), (1.0,)), ValueError, "1 lengths for 2 axes"),
    "no length": (lambda: mf.poisson(np.ones((4, 4)), (1.0, 0.0)), ValueError, "length 0.0 is no period"),
    "infinite": (lambda: mf.derivative(np.ones(4), 0, lengths=np.inf), ValueError, "length inf is no period"),
    "words": (lambda: mf.poisson(np.ones((4,)), "1"), TypeError, "give a period for each axis"),  # type: ignore[arg-type]
    "axis": (lambda: mf.derivative(np.ones((4, 4)), 2), ValueError, "axis 2 is out of range.* 2 dimensions"),
    "axis twice": (lambda: mf.derivative(np.ones((4, 4)), (0, 0)), ValueError, "axis 0 is given twice"),
    "no axis": (lambda: mf.poisson(np.ones((4, 4)), axes=()), ValueError, "axes is empty"),
    "half an axis": (lambda: mf.derivative(np.ones(4), 0.5), TypeError, "give a sequence of integers"),  # type: ignore[call-overload]
    "order": (lambda: mf.derivative(np.ones(4), 0, order=-1), ValueError, "how often to differentiate, 0 or more"),
    "orders": (lambda: mf.derivative(np.ones((4, 4)), (0, 1), order=(1,)), ValueError, "1 orders for 2 axes"),
    "number": (lambda: mf.poisson(np.float32(1)), ValueError, "single number"),
    "words as data": (lambda: mf.poisson(np.array(["a"])), TypeError, "not numeric"),
    "spec": (lambda: mf.poisson(_auto(noise((16, 9, 12))), spec=P("y")), ValueError, "names mesh axis 'y'"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.more
@pytest.mark.parametrize("manual", ["xyz", "xz"])
def test_inside_a_callers_shard_map(manual: str) -> None:
    """Catches wavenumbers of the whole spectrum put to one block of it, and products that need whole arrays begun."""
    x, spec, devices = noise((16, 24, 14), "float32"), P("x", "y", "z"), mesh((2, 2, 2))
    a, cut = jax.device_put(x, NamedSharding(devices, spec)), P(*(axis if axis in manual else None for axis in "xyz"))

    def inside(body: Callable[[Array], Array]) -> Array:
        run = jax.shard_map(body, mesh=devices, in_specs=cut, out_specs=cut, axis_names=set(manual))
        return jax.jit(run)(a)

    solved, along = mf.poisson(a), mf.derivative(a, (0, 2), order=(1, 2))
    assert error(inside(lambda b: mf.poisson(b, spec=spec)), np.asarray(solved)) <= 1e-6
    assert error(inside(lambda b: mf.derivative(b, (0, 2), order=(1, 2), spec=spec)), np.asarray(along)) <= 1e-6
    plan = mf.plan(x.shape, mesh=devices, spec=spec, kind="rfft")

    def filtered(b: Array) -> Array:
        kx, ky, kz = mf.wavenumbers(plan)
        return plan.inverse(plan(b) * jnp.exp(-(kx**2 + ky**2 + kz**2)).astype(plan.dtype))

    if manual == "xyz":
        assert error(inside(filtered), np.asarray(jax.jit(filtered)(a))) <= 1e-6
    for body in (lambda b: mf.convolve(b, b, spec=spec), lambda b: mf.power_spectrum(b, spec=spec).power):
        if manual == "xyz":
            continue
        with pytest.raises(NotImplementedError, match=r"maps all mesh axes .* or call it outside of shard_map"):
            inside(body)
