"""One device's FFT of real blocks: both engines against the direct sum, and as transposes of one another."""

import math
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import dft, error, noise
from strategies import SIZES

from meshfft.kernels.base import fft_error
from meshfft.kernels.real import DENSE, SIDE, Products, XlaReal, factors
from meshfft.kernels.xla import fft
from meshfft.numerics.split_complex import Block, in_complex, split

ENGINES = ("xla", "matmul")
SMALL = (1, 2, 3, 4, 31, 32, 33, 97, 128, 210)
LONG = (257, 509, 511, 512, 513, 521, 720, 1000, 1023, 1024, 1331, 2048)
DIMS = ((0,), (1,), (2,), (3,), (2, 3), (3, 0), (1, 3, 2))


def half_spectrum(x: Block, dims: tuple[int, ...], sign: int, engine: str) -> Block:
    """By XLA, or the last dimension by products if there are any, and the rest by XLA."""
    if engine != "matmul" or not factors(split(x)[0].shape[dims[-1]]):
        return XlaReal(engine != "xla").half(x, dims, sign)
    return (
        in_complex(lambda y: fft(y, dims[:-1], sign), Products().half(x, dims[-1:], sign))
        if dims[:-1]
        else (Products().half(x, dims, sign))
    )


def from_half_spectrum(y: Block, dims: tuple[int, ...], length: int, sign: int, engine: str) -> Block:
    """Back from that."""
    if engine != "matmul" or not factors(length):
        return XlaReal(engine != "xla").real(y, dims, length, sign)
    y = in_complex(lambda y: fft(y, dims[:-1], sign), y) if dims[:-1] else y
    return Products().real(y, dims[-1:], length, sign)


def half(x: np.ndarray, dims: tuple[int, ...], sign: int) -> np.ndarray:
    """The direct sum, cropped to the bins that are kept."""
    return np.take(dft(x, dims, sign=sign), np.arange(x.shape[dims[-1]] // 2 + 1), dims[-1])


def from_half(y: np.ndarray, dims: tuple[int, ...], length: int, sign: int) -> np.ndarray:
    """The real part of the direct sum over the bins there are."""
    whole = dft(y, dims[:-1], sign=sign)
    turns = np.outer(np.arange(length), np.arange(y.shape[dims[-1]])) % length / length
    return np.moveaxis(np.tensordot(np.exp(sign * 2j * np.pi * turns), whole, (1, dims[-1])), 0, dims[-1]).real


def halved(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """The shape of half of the spectrum."""
    return tuple(n // 2 + 1 if d == dim else n for d, n in enumerate(shape))


def errors(shape: tuple[int, ...], dims: tuple[int, ...], sign: int, engine: str, real: str = "f") -> list[float]:
    """Errors of the transform and of its transpose."""
    wide, seed, length = "complex64" if real == "f" else "complex128", sum(shape), shape[dims[-1]]
    x, y = noise(shape, real, seed), noise(halved(shape, dims[-1]), wide, seed)

    @jax.jit
    def both(x: jax.Array, y: jax.Array) -> tuple[Block, Block]:
        return half_spectrum(x, dims, sign, engine), from_half_spectrum(y, dims, length, sign, engine)

    spectrum, back = both(x, y)
    assert (spectrum.dtype, back.dtype) == (y.dtype, x.dtype)
    return [error(spectrum, half(x, dims, sign)), error(back, from_half(y, dims, length, sign))]


@pytest.mark.quick(16, 43)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("length", SMALL + LONG)
def test_any_length(length: int, engine: str) -> None:
    """Catches a wrong twiddle, factor, Nyquist bin or packed sine, and an error above what plans print."""
    found = errors((3, length, 2), (1,), -1 if length % 3 else 1, engine)
    own = engine == "matmul" and bool(factors(length))
    assert max(found) <= min(fft_error(length, 8).noise, 2e-7 if own else 1.0)


@pytest.mark.quick(2, 6, 12, 13, 14, 15, 17, 20, 22)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_dimensions_in_any_order(dims: tuple[int, ...], sign: int, engine: str) -> None:
    """Catches a wrong sign, a half taken of another dimension than the last, and a dimension left out."""
    assert max(errors((4, 5, 6, 7), dims, sign, engine)) <= 2e-7


@given(st.data(), st.lists(st.sampled_from((*SIZES, 96)), min_size=1, max_size=3), st.sampled_from(ENGINES))
def test_drawn_blocks(data: st.DataObject, shape: list[int], engine: str) -> None:
    """Catches dimensions of size 1, 2 or 3 that are dropped or halved wrongly among others."""
    order = data.draw(st.permutations(range(len(shape))))
    dims = tuple(order[: data.draw(st.integers(1, len(shape)))])
    assert max(errors(tuple(shape), dims, data.draw(st.sampled_from((-1, 1))), engine)) <= 2e-7


@pytest.mark.quick(1, 2, 4, 6, 9)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("length", [1, 2, 48, 97, 513, 720])
def test_double_precision(length: int, engine: str, x64: None) -> None:
    """Catches tables rounded to float32."""
    assert max(errors((2, length, 3), (0, 1), 1, engine, "d")) <= 2e-15


@pytest.mark.quick(1, 2, 6)
@pytest.mark.parametrize("length, sign", [(1, -1), (2, 1), (3, -1), (12, 1), (33, 1), (600, -1), (615, 1)])
def test_transpose_is_what_jax_makes_of_it(length: int, sign: int) -> None:
    """Catches doubled bins, and a conjugate or sign that JAX's own transposition does not have."""
    x, y = jax.numpy.asarray(noise((3, length), "f")), jax.numpy.asarray(noise((3, length // 2 + 1)))

    @jax.jit
    def everything(x: jax.Array, y: jax.Array) -> list[tuple[Block, Block]]:
        (back,) = jax.vjp(lambda x: half_spectrum(x, (0, 1), sign, "xla"), x)[1](y)
        (spectrum,) = jax.linear_transpose(lambda y: from_half_spectrum(y, (0, 1), length, sign, "xla"), y)(x)
        own = [
            (from_half_spectrum(y, (0, 1), length, sign, engine), half_spectrum(x, (0, 1), sign, engine))
            for engine in ENGINES
        ]
        return [(back, spectrum), *own]

    (back, spectrum), *own = jax.tree.map(np.asarray, everything(x, y))
    for found_back, found_spectrum in own:
        assert error(found_back, back) <= 4e-7 and error(found_spectrum, spectrum) <= 4e-7


@pytest.mark.quick(2, 6, 7)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("length", [1, 2, 33, 600, 614])
def test_planes_stay_planes(length: int, engine: str) -> None:
    """Catches planes returned as a complex array, exchanged, or computed otherwise."""
    x, y = noise((2, length), "f"), noise((2, length // 2 + 1))
    there = jax.jit(partial(half_spectrum, dims=(0, 1), sign=-1, engine=engine))
    back = jax.jit(partial(from_half_spectrum, dims=(0, 1), length=length, sign=-1, engine=engine))
    re, im = map(np.asarray, there((x,)))
    assert error(re + 1j * im, np.asarray(there(x))) <= 2e-8
    (real,) = back((np.real(y), np.imag(y)))
    assert error(real, np.asarray(back(y))) <= 2e-8


@pytest.mark.parametrize("length", [340, 1326, 2003, 2190])
def test_tpus_take_no_long_product(length: int) -> None:
    """Catches real lines that XLA would transform by one product of N x N on a TPU, or wrong ones instead."""
    sign = -1 if length % 2 else 1
    for dims in ((1,), (2, 1)):
        assert max(errors((3, length, 2), dims, sign, "xla on a TPU")) <= max(fft_error(length, 8).noise, 4e-7)
    x = jax.ShapeDtypeStruct((3, length), "f")
    text = str(jax.make_jaxpr(lambda x: half_spectrum(x, (1,), sign, "xla on a TPU"))(x))
    assert f"fft_lengths=({length},)" not in text and "fft_type=2" not in text


@given(st.integers(1, 40000))
def test_factors_fill_a_matrix_unit(length: int) -> None:
    """Catches factors that lose points or outgrow the unit, and a length with two good factors that has no stages."""
    found = factors(length)
    fits = any(length % d == 0 and length // d <= SIDE for d in range(2, SIDE + 1))
    assert len(found) == (1 if length <= DENSE else 2 * fits)
    assert math.prod(found) == (length if found else 1)
    assert len(found) < 2 or max(found) <= SIDE


@pytest.mark.parametrize("length", [1, 97, DENSE, 2 * DENSE])
def test_matmul_makes_products_only(length: int) -> None:
    """Catches a silent fall back to XLA, and products over more than half of the outputs."""
    x, y = jax.ShapeDtypeStruct((length,), "f"), jax.ShapeDtypeStruct((length // 2 + 1,), "complex64")
    forward = jax.make_jaxpr(lambda x: half_spectrum(x, (0,), -1, "matmul"))(x)
    backward = jax.make_jaxpr(lambda y: from_half_spectrum(y, (0,), length, -1, "matmul"))(y)
    for text in (str(forward), str(backward)):
        assert "fft" not in text and "rev" not in text and "dot_general" in text
