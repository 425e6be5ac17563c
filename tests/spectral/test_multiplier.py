"""A spectrum times a function of the wavenumbers, against NumPy's transforms forward and back."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import dft, error, mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.inspect.hlo import collectives

SHAPE, SPEC, LENGTHS = (16, 12, 10), P("x", "y", "z"), (2.0, 3.0, 0.5)
KINDS = (AxisType.Auto, AxisType.Explicit)
EITHER = slow_rows(lambda kind, flag: (kind == AxisType.Auto) == flag, KINDS, (False, True))


def _put(
    x: np.ndarray, kind: AxisType = AxisType.Explicit, spec: P = SPEC, sizes: tuple[int, ...] = (2, 2, 2)
) -> Array:
    return jax.device_put(x, NamedSharding(mesh(sizes, kind), spec))


def _grids(shape: tuple[int, ...], axes: tuple[int, ...], lengths: Any, odd: bool = False) -> list[np.ndarray]:
    found = []
    for axis, length in zip(axes, lengths, strict=True):
        n = shape[axis]
        j = np.fft.fftfreq(n, 1 / n)
        k = 2 * np.pi * np.where(odd & (2 * abs(j) == n), 0, j) / length
        found.append(k.reshape([-1 if d == axis else 1 for d in range(len(shape))]))
    return found


def _filter(*k: Any) -> Any:
    """Another number for every axis, and none that is the same for k and -k."""
    return sum(jnp.exp(-((j + 1) * line**2) / 9) for j, line in enumerate(k)) + 0.25


def _force(kx: Any, ky: Any, kz: Any, odd: Any) -> tuple[Any, ...]:
    square = kx**2 + ky**2 + kz**2
    potential = jnp.where(square > 0, -1 / jnp.where(square > 0, square, 1), 0)
    wide = np.result_type(potential.dtype, np.complex64)
    return tuple(-1j * (q.astype(potential.dtype) * potential).astype(wide) for q in odd)


def _truth(x: np.ndarray, factor: Any, axes: tuple[int, ...]) -> np.ndarray:
    y = dft(dft(x, axes) * np.asarray(factor), axes, sign=1) / np.prod([x.shape[d] for d in axes])
    return y if np.iscomplexobj(x) else y.real


@given(cases(power=1), st.sampled_from(["float32", "complex64"]), st.sampled_from(KINDS), st.booleans())
def test_as_numpy_transforms_and_multiplies(case: Case, dtype: str, kind: AxisType, traced: bool) -> None:
    """Catches wavenumbers of another axis, order or length, half a spectrum multiplied wrongly, and a lost sharding."""
    x, lengths = noise(case.shape, dtype), tuple(1.0 + d for d in range(len(case.axes)))
    a, spec = (
        _put(x, kind, case.spec, case.mesh),
        case.spec if kind == AxisType.Auto and np.prod(case.mesh) > 1 else None,
    )

    def run(a: Array) -> Array:
        return mf.multiply_spectrum(a, _filter, axes=case.axes, lengths=lengths, spec=spec)

    y = (jax.jit(run) if traced else run)(a)
    truth = _truth(x, _filter(*_grids(case.shape, case.axes, lengths)), case.axes)
    assert error(y, truth) <= 2e-6 and y.dtype == a.dtype
    assert y.sharding.is_equivalent_to(a.sharding, y.ndim)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("kind", "traced", "dtype"),
    slow_rows(
        lambda kind, traced, dtype: (kind == AxisType.Auto) == traced == (dtype == "float64"),
        KINDS,
        (False, True),
        ("float64", "complex128"),
    ),
)
def test_the_force_of_a_potential_in_four_transforms(x64: None, kind: AxisType, traced: bool, dtype: str) -> None:
    """Catches a force that disagrees with derivatives of the potential, noise at the Nyquist frequency included, and
    more trips than one there and three back."""
    x = noise(SHAPE, dtype)
    a, spec = _put(x, kind), SPEC if kind == AxisType.Auto else None
    found = mf.plan(
        SHAPE, mesh=mesh((2, 2, 2)), dtype=dtype, kind="fft" if x.dtype.kind == "c" else "rfft", order="any"
    )

    def run(a: Array) -> Any:
        return mf.multiply_spectrum(a, _force, lengths=LENGTHS, odd=True, spec=spec)

    forces = (jax.jit(run) if traced else run)(a)
    potential = mf.poisson(a, LENGTHS)
    for axis, force in enumerate(forces):
        assert error(force, -np.asarray(mf.derivative(potential, axis, lengths=LENGTHS[axis]))) <= 1e-13
        assert force.sharding.is_equivalent_to(a.sharding, 3) and force.dtype == x.dtype
    counts = collectives(jax.jit(run).lower(a).compile())
    assert counts.get("all-to-all") == 4 * found.collectives["all-to-all"] and "all-gather" not in counts


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("kind", "traced"), slow_rows(lambda kind, traced: (kind == AxisType.Auto) == traced, KINDS, (False, True))
)
def test_gradients_in_the_array_and_in_what_f_closes_over(x64: None, kind: AxisType, traced: bool) -> None:
    """Catches a parameter that is not differentiated, a gradient that gathers, and padding that makes it nan."""
    x, t = (_put(noise(SHAPE, "float64", seed), kind) for seed in (0, 1))
    spec = SPEC if kind == AxisType.Auto else None

    def loss(x: Array, width: Any) -> Array:
        y = mf.multiply_spectrum(x, lambda kx, ky, kz: jnp.exp(-width * (kx**2 + ky**2 + kz**2) / 99), spec=spec)
        return jnp.sum(y**2 * np.arange(1.0, SHAPE[2] + 1)[None, None])

    gradient = jax.grad(loss, (0, 1))
    with jax.set_mesh(mesh((2, 2, 2), kind)):  # which JAX itself wants of a sum's cotangent outside of `jit`
        along_x, along_width = (jax.jit(gradient) if traced else gradient)(x, 0.7)
    slope = float(loss(x + t, 0.7) - loss(x - t, 0.7)) / 2
    assert float(jnp.sum(along_x * t)) == pytest.approx(slope, rel=1e-11)
    assert float(along_width) == pytest.approx(float(loss(x, 0.7001) - loss(x, 0.6999)) / 2e-4, rel=1e-6)
    assert "all-gather" not in collectives(jax.jit(gradient).lower(x, 0.7).compile())


@pytest.mark.more
def test_arrays_of_every_kind() -> None:
    """Catches a path that needs a mesh, planes that return joined, a batch, a block, and a tree of one."""
    x = noise(SHAPE)
    truth = _truth(x, _filter(*_grids(SHAPE, (0, 1, 2), LENGTHS)), (0, 1, 2))
    for a in (x, jnp.asarray(x), jax.device_put(x, jax.devices()[3]), _put(x), _put(x, AxisType.Auto)):
        assert error(mf.multiply_spectrum(a, _filter, lengths=LENGTHS), truth) <= 1e-6
    (re, im), two = mf.multiply_spectrum((_put(x.real), _put(x.imag)), lambda *k: [_filter(*k), 2], lengths=LENGTHS)
    assert error(re, truth.real) <= 1e-6 and error(im, truth.imag) <= 1e-6 and error(two[0], 2 * x.real) <= 1e-6
    each = jax.jit(jax.vmap(lambda part: mf.multiply_spectrum(part, _filter)))(x)
    assert error(each, np.stack([np.asarray(mf.multiply_spectrum(part, _filter)) for part in x])) <= 1e-6
    blocks = jax.shard_map(
        lambda part: mf.multiply_spectrum(part, _filter, lengths=LENGTHS, spec=SPEC),
        mesh=mesh((2, 2, 2)),
        in_specs=SPEC,
        out_specs=SPEC,
    )
    assert error(blocks(_put(x, AxisType.Auto)), truth) <= 1e-6


def test_a_new_function_at_every_call_compiles_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Catches a program kept, or compiled, for every lambda of a loop over time."""
    x = _put(noise(SHAPE, "float32"))

    def step(t: float) -> Array:
        return mf.multiply_spectrum(x, lambda kx, ky, kz: jnp.exp(-t * (kx**2 + ky**2 + kz**2)))

    step(0.0)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for t in (0.1, 0.2, 0.3):
            step(t).block_until_ready()
    assert not [record for record in caplog.records if "ompil" in record.getMessage()]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("kind", "traced"), slow_rows(lambda kind, traced: (kind == AxisType.Auto) == traced, KINDS, (False, True))
)
def test_sizes_that_the_mesh_does_not_divide(x64: None, kind: AxisType, traced: bool) -> None:
    """Catches padding that is taken for data, of the array or of the spectrum, and a gradient that f spoils there."""
    shape = (10, 9, 7)
    x = noise(shape, "float64")
    a, (kx, ky, kz) = mf.shard(x, mesh((2, 2, 2), kind), SPEC), _grids(shape, (0, 1, 2), LENGTHS)
    factor = _force(kx, ky, kz, _grids(shape, (0, 1, 2), LENGTHS, True))

    def run(a: Any) -> Any:
        return mf.multiply_spectrum(a, _force, lengths=LENGTHS, odd=True)

    for force, one in zip((jax.jit(run) if traced else run)(a), factor, strict=True):
        assert (
            isinstance(force, mf.PaddedArray)
            and isinstance(a, mf.PaddedArray)
            and force.shape == shape
            and force.spec == a.spec
        )
        assert error(mf.gather(force), _truth(x, one, (0, 1, 2))) <= 1e-13
    gradient = jax.jit(jax.grad(lambda a: sum(jnp.sum(y.stored**2) for y in run(a))))(a)
    forces = [_truth(x, one, (0, 1, 2)) for one in factor]
    truth = [2 * _truth(y, np.conj(one), (0, 1, 2)) for y, one in zip(forces, factor, strict=True)]
    assert error(mf.gather(gradient), np.sum(truth, 0)) <= 1e-12


def test_strict_types() -> None:
    """Catches a product of two types or of two ranks, which JAX can be configured to refuse."""
    x = _put(noise(SHAPE, "float32"))
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        for f in (lambda kx, ky, kz: kx**2, lambda kx, ky, kz: jax.lax.complex(ky, ky), lambda *k: 3):
            jax.jit(lambda x, f=f: mf.multiply_spectrum(x, f))(x)
            mf.multiply_spectrum(x, f)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no function": (lambda: mf.multiply_spectrum(np.ones(4), 2.0), TypeError, "give a function of the wavenumbers"),  # type: ignore[arg-type]
    "nothing": (lambda: mf.multiply_spectrum(np.ones(4), lambda k: None), TypeError, "let it return a factor"),
    "shape": (
        lambda: mf.multiply_spectrum(np.ones(4), lambda k: k[:2]),
        ValueError,
        r"shape \(2,\).*spectrum of \(3,\)",
    ),
    "rank": (lambda: mf.multiply_spectrum(np.ones(4), lambda k: k[None]), ValueError, r"shape \(1, 3\)"),
    "lengths": (lambda: mf.multiply_spectrum(np.ones(4), _filter, lengths=(1.0, 2.0)), ValueError, "2 lengths for 1"),
    "axes": (lambda: mf.multiply_spectrum(np.ones(4), _filter, axes=(1,)), ValueError, "axis 1 is out of range"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
