"""Lengths with a large prime factor: the chirp against direct sums, along any dimension."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, noise

import meshfft as mf
from meshfft.kernels.base import fft_error, flops_of
from meshfft.kernels.bluestein import (
    CACHE_BYTES,
    NARROWEST,
    _chirp,
    chirp_fft,
    folds,
    is_awkward,
    padded_length,
    prime_factors,
)
from meshfft.kernels.factors import way_of
from meshfft.kernels.xla import Xla, fft
from meshfft.layout.layout import Layout
from meshfft.machine.chips import CHIPS
from meshfft.operators.matrices import Roots
from meshfft.steps import LocalFFT

PRIMES = (809, 1009, 1613, 2053)
WAYS = ("lines", "products", "ffts")


@functools.partial(jax.jit, static_argnums=(1, 2))
def every_way(x: Array, dim: int, sign: int) -> dict[str, Array]:
    return {way: chirp_fft(x, dim, sign, way) for way in WAYS}


def truth(x: np.ndarray, dim: int, sign: int) -> np.ndarray:
    """The sum itself, with phases reduced in integers."""
    n = np.arange(x.shape[dim])
    matrix = np.exp(sign * 2j * np.pi * (np.outer(n, n) % len(n)) / len(n))
    return np.moveaxis(np.tensordot(matrix, x.astype(complex), (1, dim)), 0, dim)


@pytest.mark.more
@settings(max_examples=8)
@given(st.sampled_from(PRIMES), st.sampled_from([1, 2, 3]), st.integers(0, 2), st.sampled_from([-1, 1]), st.data())
def test_lines_wherever_they_lie(prime: int, factor: int, dim: int, sign: int, data: st.DataObject) -> None:
    """Catches a wrong chirp, sign or crop, lines taken from another place, and what remains of groups left out."""
    shape = [data.draw(st.integers(1, 5)) for _ in range(3)]
    shape[dim] = prime * (factor if prime < 1000 else 1)
    x = noise(tuple(shape), "complex64")
    expected = truth(x, dim, sign)
    bound = 2 * fft_error(shape[dim], 8).noise
    for way, found in every_way(x, dim, sign).items():
        assert error(found, expected) < bound, way


@pytest.mark.quick(1, 2, 3, 6, 9)
@pytest.mark.parametrize("lines", [1, 7, 8, 17, 33])
@pytest.mark.parametrize("last", [True, False])
def test_more_lines_than_stay_in_cache(lines: int, last: bool) -> None:
    """Catches groups that overlap or leave lines out: 8 lines of 811 points, or 16 strided ones."""
    length = 811
    assert CACHE_BYTES // (padded_length(length) * 8) == 8 and NARROWEST == 16
    x = noise((lines, length) if last else (length, lines), "complex64")
    found = jax.jit(lambda x: chirp_fft(x, int(last), -1, "lines"))(x)
    assert error(np.asarray(found), np.fft.fft(x.astype(complex), axis=int(last))) < 4e-7


@pytest.mark.quick(3, 11, 12)
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("length", [1, 2, 3, 127, 128, 129, 1009])
def test_double_precision(length: int, sign: int, x64: None) -> None:
    """Catches tables or sums in single precision, and convolutions that wrap round, or are empty, at the edges."""
    x = noise((3, length), "complex128")
    for way, found in every_way(x, 1, sign).items():
        assert error(found, truth(x, 1, sign)) < 4e-15, way


def test_phases_of_long_lines() -> None:
    """Catches squares that wrap in 32 bits, and phases of millions of periods rounded before they are reduced."""
    length = 1_000_003
    chirp = _chirp(length, -1)
    n = np.arange(0, length, 997).astype(object)
    exact = np.exp(-1j * np.pi * (n * n % (2 * length) / length).astype(float))
    np.testing.assert_allclose(chirp[::997], exact, rtol=0, atol=2e-15)


@pytest.mark.parametrize("length", [1, 2, 797, 1009, 1999, 2003, 2048, 3203, 3244, 8191, 8192, 16382, 65537])
def test_which_lengths_and_how_long(length: int) -> None:
    """Catches powers of two that take the long way, convolutions that wrap round, and lengths that are slow again."""
    prime = max(prime_factors(length), default=1)
    assert is_awkward(length) == (length > 2000 and prime > 800)
    assert is_awkward(length, cached=True) == (length in (3203, 8191, 16382, 65537))
    size, (rows, columns) = padded_length(length), folds(length)
    assert length <= size <= max(4, 1.3 * length) and max(prime_factors(size)) <= 5
    assert 2 * length - 1 <= rows * columns < 2 * length + 2 * columns
    assert (
        flops_of(length) > 15 * np.log2(length) if is_awkward(length) else flops_of(length) <= 5 * np.log2(length) + 1
    )


def test_a_matrix_unit_takes_the_chirp_for_what_it_is() -> None:
    """Catches a price of one dense product of 8191 points, and the four products counted over half of their points."""
    assert way_of(8191).rows == (128,) * 8 and way_of(8192).rows == (128, 64)
    layout = Layout((512, 8191), ((), ()))
    steps = (LocalFFT((1,), Roots(8191, -1, 8191, 8191), (8191,), (8191,), Xla(chirp)) for chirp in (True, False))
    works = [step.work(layout, 8, CHIPS["v3"]) for step in steps]
    assert all(work.matrix_flops == 6 * 1024 * 512 * 8191 for work in works)
    assert works[0].peak_bytes == 7 * 512 * 8191 * 8 > works[1].peak_bytes


@pytest.mark.parametrize(("length", "way"), [(8191, "lines"), (3244, ""), (1009, ""), (2 * 4099, "lines")])
def test_which_way_on_a_cpu(length: int, way: str) -> None:
    """Catches lengths that XLA does well taken through a loop, awkward ones that are not, and ways of other chips."""
    text = jax.jit(lambda x: fft(x, (1,), -1)).lower(jnp.zeros((3, length), "complex64")).as_text()
    assert ("while" in text) == (way == "lines") and "dot_general" not in text


@pytest.mark.quick(1)
@pytest.mark.parametrize("spec", [P("x"), P(None, "x")])
def test_a_sharded_array(spec: P) -> None:
    """Catches a length that is awkward only once it is whole on a device; value, sharding and gradient."""
    mesh = jax.make_mesh((2,), ("x",), (AxisType.Auto,))
    x = noise((8, 2 * 1613), "complex64")
    placed = jax.device_put(x, NamedSharding(mesh, spec))
    assert any("chirp" in stage.name for stage in mf.plan(x.shape, mesh=mesh, spec=spec, method="transpose").stages)
    y = mf.fftn(placed, method="transpose")
    assert y.sharding == placed.sharding
    assert error(np.asarray(y), np.fft.fftn(x.astype(complex))) < 4e-7
    weights = noise(x.shape, "complex64", 1)
    there = jax.device_put(weights, placed.sharding)
    pulled = jax.grad(lambda x: jnp.sum(jnp.real(mf.fftn(x, method="transpose", spec=spec) * there)))(placed)
    assert error(np.asarray(pulled), np.fft.fftn(weights.astype(complex))) < 4e-7
