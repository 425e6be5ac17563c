"""One device's FFT: both engines against the direct sum, any length."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marks import slow_rows
from reference import dft, error, noise

from meshfft.kernels.stockham import LARGEST, NARROWEST, by_columns, in_place, radices
from meshfft.kernels.xla import fft
from meshfft.numerics.split_complex import resize

LENGTHS = (1, 2, 3, 5, 8, 16, 37, 61, 64, 96, 97, 100, 128, 144, 210, 243, 256, 509, 1024, 1331)


@pytest.mark.quick(0, 3, 9, 11, 12, 16, 19)
@pytest.mark.parametrize("length", LENGTHS)
def test_xla_engine(length: int) -> None:
    """Catches a wrong sign or scale: XLA's inverse divides by N, ours must not."""
    x = noise((length, 3, 2))
    bound = 2e-7 if max(radices(length), default=1) < 64 else 3e-7  # XLA takes large primes through a convolution
    both = jax.jit(lambda b: [fft(b, (0,), sign) for sign in (-1, 1)])(x)
    for sign, found in zip((-1, 1), both, strict=True):
        assert error(found, dft(x, (0,), sign=sign)) <= bound, sign


SMOOTH = [1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 27, 32, 64, 96, 128, 243, 256, 1024]
SHAPES = [(0, 16), (0, 5, 7), (3, 0, 17), (2, 3, 0, 4, 5), (2, 0, 1000)]


@pytest.mark.quick(26)
@pytest.mark.parametrize(("length", "flipped"), slow_rows(lambda length, flipped: not flipped, SMOOTH, (False, True)))
def test_stockham_engine(length: int, flipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a wrong twiddle, radix order or sign, a result out of order, and columns lost between groups."""
    monkeypatch.setattr("meshfft.kernels.stockham.SMALL_BYTES", 0)
    arrays = [(noise([n or length for n in shape]), shape.index(0)) for shape in SHAPES]
    signs = [1 if (shape == (0, 5, 7)) != flipped else -1 for shape in SHAPES]
    assert all(by_columns(x.shape, dim, length) for x, dim in arrays)
    found = jax.jit(
        lambda blocks: [in_place(b, (dim,), sign) for b, (_, dim), sign in zip(blocks, arrays, signs, strict=True)]
    )([x for x, _ in arrays])
    for y, (x, dim), sign in zip(found, arrays, signs, strict=True):
        assert error(y, dft(x, (dim,), sign=sign)) <= 2e-7, (x.shape, sign)


def test_small_blocks_compile_no_stages() -> None:
    """Catches stages of columns in programs of small blocks: compiling them takes longer than hundreds of calls."""
    small, large = (jax.ShapeDtypeStruct((64, columns, 64), np.complex64) for columns in (16, 64))
    work = jax.jit(lambda x: in_place(x, (0,), -1))
    texts = [str(work.lower(x).compile().as_text()) for x in (small, large)]
    assert [text.count(" subtract(") > 0 for text in texts] == [False, True]


@given(st.integers(1, 5000))
def test_radices_multiply_to_the_length(n: int) -> None:
    """Catches a lost factor, and a length offered to butterflies that are not there."""
    found = radices(n)
    assert int(np.prod(found)) == n
    assert by_columns((n, NARROWEST), 0, n) == (max(found, default=1) <= LARGEST)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (3,), (0, 3), (1, 2), (0, 1, 2, 3), (2, 3)])
def test_xla_engine_takes_any_dimensions(dims: tuple[int, ...]) -> None:
    """Catches a dimension transformed twice or not at all: XLA takes three at a time, and only the last ones."""
    x = noise((4, 5, 6, 7))
    assert error(jax.jit(lambda b: fft(b, dims, -1))(x), dft(x, dims)) <= 2e-7


def test_stockham_in_double_precision(x64: None) -> None:
    """Catches float32 tables in the complex128 path."""
    x = noise((192, 20), "complex128")
    assert error(jax.jit(lambda b: in_place(b, (0,), -1))(x), dft(x, (0,))) <= 1e-15


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_resize_crops_or_pads_the_tail(size: int) -> None:
    """Catches padding in front, or a crop of the wrong end."""
    x = noise((2, 4))
    y = np.zeros((2, size), x.dtype)
    y[:, : min(size, 4)] = x[:, :size]
    np.testing.assert_array_equal(resize(jax.numpy.asarray(x), 1, size), y)
