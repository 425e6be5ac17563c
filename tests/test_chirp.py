"""Lengths with a large prime factor: the chirp against direct sums, wherever the dimension lies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, noise

import meshfft as mf
from meshfft.chirp import CACHE_BYTES, PRIME, _tables, chirp_fft, is_awkward, padded_length, prime_factors
from meshfft.local import fft, fft_error, flops_of

PRIMES = (809, 1009, 1613, 2053)


def truth(x: np.ndarray, dim: int, sign: int) -> np.ndarray:
    """The sum itself, with phases reduced in integers."""
    n = np.arange(x.shape[dim])
    matrix = np.exp(sign * 2j * np.pi * (np.outer(n, n) % len(n)) / len(n))
    return np.moveaxis(np.tensordot(matrix, x.astype(complex), (1, dim)), 0, dim)


@settings(max_examples=8)
@given(st.sampled_from(PRIMES), st.sampled_from([1, 2, 3]), st.integers(0, 2), st.sampled_from([-1, 1]), st.data())
def test_lines_wherever_they_lie(prime: int, factor: int, dim: int, sign: int, data: st.DataObject) -> None:
    """Catches a wrong chirp, sign or crop, lines taken from another place, and what remains of groups left out."""
    shape = [data.draw(st.integers(1, 5)) for _ in range(3)]
    shape[dim] = prime * (factor if prime < 1000 else 1)
    x = noise(tuple(shape), "complex64")
    expected = truth(x, dim, sign)
    bound = 2 * fft_error(shape[dim], 8)
    for cached in (True, False):
        assert error(np.asarray(chirp_fft(jnp.asarray(x), dim, sign, cached)), expected) < bound


@pytest.mark.parametrize("lines", [1, 31, 33, 64])
@pytest.mark.parametrize("last", [True, False])
def test_more_lines_than_stay_in_cache(lines: int, last: bool) -> None:
    """Catches groups that overlap or leave lines out: they hold 32 lines of 811 points, the last one what remains."""
    length = 811
    assert CACHE_BYTES // (padded_length(length) * 8) == 32
    x = noise((lines, length) if last else (length, lines), "complex64")
    found = jax.jit(lambda x: fft(x, (int(last),), -1, "chirp"))(x)
    assert error(np.asarray(found), np.fft.fft(x.astype(complex), axis=int(last))) < 4e-7


def test_double_precision(x64: None) -> None:
    """Catches tables or sums in single precision."""
    x = noise((3, 1009), "complex128")
    assert error(np.asarray(fft(jnp.asarray(x), (1,), 1, "chirp")), truth(x, 1, 1)) < 4e-15


def test_phases_of_long_lines() -> None:
    """Catches squares that wrap in 32 bits, and phases of millions of turns rounded before they are reduced."""
    length = 1_000_003
    chirp, _ = _tables(length, -1, np.dtype("complex128"))
    n = np.arange(0, length, 997).astype(object)
    exact = np.exp(-1j * np.pi * (n * n % (2 * length) / length).astype(float))
    np.testing.assert_allclose(chirp[::997], exact, rtol=0, atol=2e-15)


@pytest.mark.parametrize("length", [1, 2, 797, 800, 1024, 811, 1622, 8191, 16382, 65537])
def test_which_lengths_and_how_long(length: int) -> None:
    """Catches powers of two that take the long way, convolutions that wrap round, and lengths that are slow again."""
    assert is_awkward(length) == (max(prime_factors(length), default=1) > PRIME)
    size = padded_length(length)
    assert 2 * length - 1 <= size <= max(4, 2.6 * length) and max(prime_factors(size)) <= 5
    assert (
        flops_of(length) > 15 * np.log2(length) if is_awkward(length) else flops_of(length) <= 5 * np.log2(length) + 1
    )


@pytest.mark.parametrize("spec", [P("x"), P(None, "x")])
def test_a_sharded_array(spec: P) -> None:
    """Catches a length that is awkward only once it is whole on a device; value, sharding and gradient."""
    mesh = jax.make_mesh((4,), ("x",), (AxisType.Auto,))
    x = noise((8, 4 * 811), "complex64")
    placed = jax.device_put(x, NamedSharding(mesh, spec))
    assert any("chirp" in stage.name for stage in mf.plan(x.shape, mesh=mesh, spec=spec, method="transpose").stages)
    y = mf.fftn(placed, method="transpose")
    assert y.sharding == placed.sharding
    assert error(np.asarray(y), np.fft.fftn(x.astype(complex))) < 4e-7
    weights = noise((8, 4 * 811), "complex64", 1)
    there = jax.device_put(weights, placed.sharding)
    pulled = jax.grad(lambda x: jnp.sum(jnp.real(mf.fftn(x, method="transpose", spec=spec) * there)))(placed)
    assert error(np.asarray(pulled), np.fft.fftn(weights.astype(complex))) < 4e-7
