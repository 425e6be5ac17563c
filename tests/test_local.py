"""One device's FFT: both engines against the direct sum, any length."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import dft, error, noise

from meshfft.local import LARGEST_FACTOR, factors, fft, resize

LENGTHS = (1, 2, 3, 5, 8, 16, 37, 61, 64, 96, 97, 100, 128, 144, 210, 243, 256, 509, 1024, 1331)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("engine", ["xla", "matmul"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_leading_dimension(length: int, engine: str, sign: int) -> None:
    """Catches a wrong twiddle, radix order or sign, and a result out of natural order."""
    if engine == "matmul" and factors(length) is None:
        pytest.skip(f"{length} has a prime factor above {LARGEST_FACTOR}: the search never offers this engine for it")
    x = noise((1, length, 3, 2))
    y = jax.jit(lambda b: fft(b, (1,), sign, engine))(x)
    bound = 2e-7 if factors(length) else 3e-7  # XLA goes through a convolution for large primes
    assert error(y, dft(x, (1,), sign=sign)) <= bound


@given(st.integers(1, 5000))
def test_factors_multiply_to_the_length(n: int) -> None:
    """Catches a lost prime, a radix above the bound, or a length refused that can be factored."""
    found = factors(n)
    smooth = all(n % p or p <= LARGEST_FACTOR for p in range(2, n + 1) if all(p % q for q in range(2, int(p**0.5) + 1)))
    assert (found is not None) == smooth
    if found is not None:
        assert int(np.prod(found)) == n and all(1 < r <= LARGEST_FACTOR for r in found)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (3,), (0, 3), (1, 2), (0, 1, 2, 3), (2, 3)])
def test_xla_engine_takes_any_dimensions(dims: tuple[int, ...]) -> None:
    """Catches a dimension transformed twice or not at all: XLA takes three at a time, and only the last ones."""
    x = noise((4, 5, 6, 7))
    assert error(jax.jit(lambda b: fft(b, dims, -1, "xla"))(x), dft(x, dims)) <= 2e-7


def test_matmul_engine_in_double_precision(x64: None) -> None:
    """Catches float32 tables in the complex128 path."""
    x = noise((240, 3), "complex128")
    assert error(jax.jit(lambda b: fft(b, (0,), -1, "matmul"))(x), dft(x, (0,))) <= 1e-15


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_resize_crops_or_pads_the_tail(size: int) -> None:
    """Catches padding in front, or a crop of the wrong end."""
    x = noise((2, 4))
    y = np.zeros((2, size), x.dtype)
    y[:, : min(size, 4)] = x[:, :size]
    np.testing.assert_array_equal(resize(jax.numpy.asarray(x), 1, size), y)
