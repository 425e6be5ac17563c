"""Arguments in every form of NumPy, SciPy and JAX, beside the same call with plain integers."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from reference import noise

import meshfft as mf

X = noise((6, 4, 8), "float32")
INTEGERS: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "array": np.array,
    "narrow": lambda values: np.array(values, np.uint8),
    "list of NumPy's": lambda values: [np.int32(v) for v in values],
    "array of arrays without dimensions": lambda values: [np.array(v) for v in values],
    "jax": jnp.array,
    "generator": lambda values: (v for v in values),
    "keys": lambda values: dict.fromkeys(values),
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "axes": lambda form: mf.fftn(X, axes=form((0, 2))),
    "lengths": lambda form: mf.fftn(X, s=form((5, 3))),
    "both": lambda form: mf.irfftn(X, form((5, 7)), form((1, 2))),
    "real": lambda form: mf.rfft2(X, axes=form((2, 1))),
    "cosines": lambda form: mf.dctn(X, s=form((5, 3)), axes=form((0, 1))),
    "shift": lambda form: mf.fftshift(X, form((0, 2))),
    "kdft": lambda form: mf.kdftn(X, axes=form((2, 1))),
    "solve": lambda form: mf.ikdftn(X, s=form((4, 3)), axes=form((0, 1))).value,
    "matrices": lambda form: mf.apply_separable([np.ones((2, 8)), np.ones((3, 4))], X, axes=form((2, 1))),
    "convolve": lambda form: mf.convolve(X, X, axes=form((1, 2))),
    "derivative": lambda form: mf.derivative(X, form((0, 1)), order=form((1, 2))),
    "derivative of walls": lambda form: mf.derivative(
        X, form((0, 1)), lengths=form((2, 3)), boundary=["neumann", "periodic"]
    ),
    "poisson": lambda form: mf.poisson(X, form((2, 3)), axes=form((0, 1))),
    "walls": lambda form: mf.poisson(X, form((2, 3)), axes=form((0, 1)), boundary=["periodic", "neumann"]),
    "open": lambda form: mf.poisson(X, form((2, 3, 4)), axes=form((0, 1, 2)), boundary="open"),
    "helmholtz": lambda form: mf.helmholtz(X, -1.0, form((2, 3)), axes=form((0, 1))),
    "halo": lambda form: mf.halo(X, form((2, 1)), axes=form((0, 1))),
    "power": lambda form: mf.power_spectrum(X, form((2, 3)), bins=form((0, 1, 5)), axes=form((0, 1))).power,
    "wavenumbers": lambda form: mf.wavenumbers(mf.plan(form((4, 6))), form((2, 3)))[1],
    "modes": lambda form: mf.plan((4, 6), modes=form((3, 5)))(noise((4, 6))),
    "plan": lambda form: mf.plan(form((4, 6)), s=form((2, 3)), axes=form((1, 0)))(noise((4, 6))),
}
ALONE: dict[str, Callable[[Any], Any]] = {
    "axes": lambda two: mf.fftn(X, axes=two),
    "length": lambda two: mf.fftn(X, s=two),
    "n": lambda two: mf.fft(X, n=two, axis=two),
    "shift": lambda two: mf.fftshift(X, two),
    "derivative": lambda two: mf.derivative(X, two, order=two, lengths=two),
    "bins": lambda two: mf.power_spectrum(X, bins=two).power,
    "plan": lambda two: mf.plan(two)(np.ones(2)),
    "points": lambda two: mf.kdftn(
        X, [mf.Points.uniform(two), mf.Points.zoom(0, 0.1, two), mf.Points.chirp(1, 1j, two)]
    ),
    "frequencies": lambda two: mf.fftfreq(two),
}


def _equal(ours: Any, theirs: Array) -> None:
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.quick(42, 50, 112, 126, 140)
@pytest.mark.parametrize("form", INTEGERS)
@pytest.mark.parametrize("name", CALLS)
def test_integers_in_every_form(name: str, form: str) -> None:
    """Catches arrays, NumPy's integers and other iterables for axes, lengths, orders and periods refused or misread."""
    _equal(CALLS[name](INTEGERS[form]), CALLS[name](tuple))


@pytest.mark.quick(0, 4, 12, 24, 28)
@pytest.mark.parametrize(
    "two", [np.int64(2), np.array(2), np.uint8(2), jnp.array(2)], ids=lambda two: type(two).__name__
)
@pytest.mark.parametrize("name", ALONE)
def test_one_integer_in_every_form(name: str, two: Any) -> None:
    """Catches an integer of NumPy or JAX, typed or not, that is refused although 2 is accepted."""
    _equal(ALONE[name](two), ALONE[name](2))


@pytest.mark.parametrize("axes", [0.5, "01", True, np.array([0.0, 1.0]), np.array(1.5), [[0, 1]], (0, None)], ids=repr)
def test_what_is_no_integer_is_refused_by_name(axes: Any) -> None:
    """Catches numbers rounded to axes, and an error that does not name the argument."""
    with pytest.raises(TypeError, match=r"axes is .*: give a sequence of integers"):
        mf.fftn(X, axes=axes)


def test_traced_axes_are_refused_by_name() -> None:
    """Catches JAX's own error for an argument that has to be known before tracing."""
    with pytest.raises(TypeError, match=r"axes is .*: give a sequence of integers"):
        jax.jit(lambda x, axes: mf.fftn(x, axes=axes))(X, np.array([0]))


def test_a_wire_of_one_level_in_every_form() -> None:
    """Catches a mapping that cannot be a key of the plans, is read once, or is another plan than its text."""
    forms = ({"outer": "int16"}, MappingProxyType({"outer": "int16"}), "outer=int16")
    assert {mf.plan((4, 6), wire=form).options.wire for form in forms} == {"outer=int16"}
    assert mf.plan((4, 6), wire={"outer": "int16", "inner": "int16"}).options.wire == "int16"
    for form in forms:
        np.testing.assert_array_equal(mf.fftn(X, wire=form), mf.fftn(X))
