"""Reconstructions of data and maps in any unit, against least squares in float64."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import meshfft as mf

DRAW = np.random.default_rng(0)
TURNS = DRAW.uniform(-0.5, 0.5, (30, 2))
MAPS, DATA = ((DRAW.standard_normal(shape) + 1j).astype("complex64") for shape in ((2, 4, 4), (2, 30)))


def _least_squares() -> np.ndarray:
    pixels = np.stack(np.meshgrid(*[np.arange(4) - 2] * 2, indexing="ij"), -1).reshape(-1, 2)
    phases = np.exp(-2j * np.pi * TURNS @ pixels.T)
    encode = np.concatenate([phases * one.ravel() for one in MAPS])
    return np.linalg.lstsq(encode, DATA.ravel().astype(complex), rcond=None)[0].reshape(4, 4)


@pytest.mark.more
@pytest.mark.parametrize("l2", [0.0, 1e-9])
def test_units_of_data_and_maps_change_nothing(l2: float) -> None:
    """Catches an image of zeros, or NaN, from data whose squares are no numbers in single precision."""
    for data, maps in ((1e-24, 1), (1e-15, 1), (1e20, 1), (1, 1e-22), (1, 1e20), (1e-12, 1e-12)):
        values, seen = DATA * np.float32(data), MAPS * np.float32(maps)
        found = mf.reconstruct(values, mf.Scattered.turns(TURNS), (4, 4), maps=seen, iterations=60, tol=1e-6, l2=l2)
        image, expected = np.asarray(found.image, complex) * maps / data, _least_squares()
        assert np.linalg.norm(image - expected) < 5e-6 * np.linalg.norm(expected), (data, maps)


def test_real_values_on_explicit_axes() -> None:
    """Catches an imaginary part of real values outside of `jit`, which JAX refuses on Explicit axes."""
    mesh, points = jax.make_mesh((2, 4), ("x", "y"), (AxisType.Explicit,) * 2), mf.Scattered.turns(TURNS)
    how: Any = {"density": 0, "iterations": 2}
    found = mf.reconstruct(DATA.real, points, (4, 4), mesh=mesh, spec=P(None, "x", "y"), **how)
    alone = mf.reconstruct(DATA.real.astype("complex64"), points, (4, 4), **how)
    assert np.allclose(found.image, alone.image, atol=1e-4 * np.abs(alone.image).max())


def test_the_remedy_inside_jit() -> None:
    """Catches a normal operator made inside `jit` whose kernel one trace keeps for another, as of a solver in it."""
    images = mf.scattered_plan((1, 4, 4), mf.Scattered.turns(TURNS), origin="centre")
    value = DATA[:1]

    @jax.jit
    def found(d: jax.Array) -> jax.Array:
        solved: jax.Array = jax.scipy.sparse.linalg.cg(images.normal(), images.adjoint(d), maxiter=60)[0]
        return solved

    pixels = np.stack(np.meshgrid(*[np.arange(4) - 2] * 2, indexing="ij"), -1).reshape(-1, 2)
    phases = np.exp(-2j * np.pi * TURNS @ pixels.T)
    expected = np.linalg.lstsq(phases, value[0].astype(complex), rcond=None)[0].reshape(4, 4)
    assert np.linalg.norm(np.asarray(found(value))[0] - expected) < 1e-4 * np.linalg.norm(expected)


def test_wrong_calls_are_refused_with_the_remedy() -> None:
    """Catches messages of JAX inside `jit`, `grad` and `vmap`, and of Python for weights and sizes of a wrong kind."""
    points, wrong = mf.Scattered.turns(TURNS), list[tuple[Callable[[], Any], type[Exception], str]]()

    def found(data: Any, shape: Any = (4, 4), **how: Any) -> Any:
        return mf.reconstruct(data, points, shape, iterations=1, **how).image

    outside = "traced: call it outside of jit, grad and vmap"
    wrong += [(lambda: jax.jit(found)(DATA), TypeError, outside), (lambda: jax.vmap(found)(DATA), TypeError, outside)]
    wrong += [(lambda: jax.grad(lambda x: abs(found(x)).sum())(DATA.real), TypeError, outside)]
    wrong += [(partial(found, DATA, l2=one), ValueError, "l2 is .*no weight") for one in (None, "a", 1j, np.nan)]
    wrong += [(lambda: found(DATA, tv="a"), ValueError, "tv is 'a', which is no weight: give 0 or more")]
    wrong += [
        (lambda: found(DATA, 4), ValueError, r"shape is \(4,\), the points have 2 coordinates"),
        (lambda: found(DATA, (4.0, 4)), TypeError, "shape is"),
        (lambda: mf.reconstruct(DATA, cast(Any, TURNS), (4, 4)), TypeError, "mf.Scattered.turns"),
    ]
    for call, kind, words in wrong:
        with pytest.raises(kind, match=words):
            call()


def test_the_remedy_for_a_small_tolerance() -> None:
    """Catches options that `reconstruct` has not in the message, and one that does not help."""
    found: Any = partial(mf.reconstruct, points=mf.Scattered.turns(TURNS), shape=(4, 4), iterations=1, density=0)
    double, remedy = DATA.astype("complex128"), r"1e-06, or complex128 values after .*'jax_enable_x64', True\)$"
    with pytest.raises(ValueError, match=remedy):
        found(double, tol=1e-10)
    with jax.enable_x64(True):
        with pytest.raises(ValueError, match=remedy):
            found(DATA, tol=np.float32(1e-10))
        assert found(double, tol=1e-10).image.dtype == np.complex128
        with pytest.raises(ValueError, match=r"use tol >= 1e-12$"):
            found(double, tol=1e-13)
