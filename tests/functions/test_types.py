"""Types, empty arrays and refusals of NumPy's names, as jax.numpy.fft has them."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import meshfft as mf

NAMES = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "irfft", "irfft2", "irfftn", "hfft")
REAL = ("rfft", "rfft2", "rfftn", "ihfft")
NARROW = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "complex64")
WIDE = (*NARROW, "int64", "uint64", "float64", "complex128")
EAGER = ("fft2", "irfftn", "hfft", "rfftn")  # all names read an array by the same code; a program each takes long
HALF = ("float16", "bfloat16")  # jax.numpy.fft has no real transform of these; meshfft has complex64


def _types(dtypes: tuple[str, ...]) -> dict[tuple[str, str], Any]:
    """Types of meshfft's and jax.numpy.fft's results, if they differ."""
    mesh, found = jax.make_mesh((2,), ("x",)), {}
    for dtype in dtypes:
        x = jnp.ones((4, 6), dtype)
        for name in (*NAMES, *(REAL if dtype[:7] != "complex" else ())):
            wanted = np.dtype("complex64")
            if not (name in REAL and dtype in HALF):
                wanted = jax.eval_shape(getattr(jnp.fft, name), x).dtype
            types = {jax.eval_shape(getattr(mf, name), x).dtype}
            if name in EAGER:
                types.add(getattr(mf, name)(mf.shard(x, mesh, P("x"))).dtype)
            if name == "fft":
                types.add(mf.plan((4, 6), dtype=dtype, kind="fft").out_dtype)
            if types != {wanted}:
                found[name, dtype] = (types, wanted)
    return found


@pytest.mark.more
def test_types_are_those_of_jax() -> None:
    """Catches integers and truth values that are computed in another type than jax.numpy.fft's, without x64."""
    assert _types(NARROW) == {}


@pytest.mark.more
def test_types_are_those_of_jax_in_64_bits(x64: None) -> None:
    """Catches small integers that become complex128, twice the memory and traffic, because x64 is on."""
    assert _types(WIDE) == {}


@pytest.mark.quick(0)
@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0), (0, 0), (3, 0, 5)])
def test_nothing_is_transformed_to_nothing(shape: tuple[int, ...]) -> None:
    """Catches empty arrays that are refused, or return another shape or type than jax.numpy.fft."""
    x = np.zeros(shape, np.float32)
    cut = mf.shard(x, jax.make_mesh((2, 4), ("x", "y")), P(*("x", "y")[: len(shape)]))
    for name in ("fft", "ifft", "fftn", "ifftn"):
        wanted = getattr(jnp.fft, name)(x)
        for y in (getattr(mf, name)(x), getattr(mf, name)(cut)):
            assert (y.shape, y.dtype) == (wanted.shape, wanted.dtype)
    if shape[-1]:
        assert mf.rfftn(x).shape == (*shape[:-1], shape[-1] // 2 + 1)
        assert mf.irfftn(x).shape == (*shape[:-1], 2 * (shape[-1] - 1))
    else:
        for name in ("rfftn", "irfftn", "dctn"):
            with pytest.raises(ValueError, match="point"):
                getattr(mf, name)(x)
    with pytest.raises(ValueError, match="length 0"):
        mf.fftn(x, s=(0,) * len(shape))


def test_lengths_may_be_none() -> None:
    """Catches `s=(None, 5)`, which NumPy reads as the array's own length, refused or read as something else."""
    x = np.random.default_rng(0).standard_normal((3, 4))
    lengths: Any = (None, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy would rather have -1
        wanted = np.fft.fftn(x, s=lengths, axes=(0, 1))
    np.testing.assert_allclose(np.asarray(mf.fftn(x, s=lengths, axes=(0, 1))), wanted, atol=1e-5)
    assert mf.plan((3, 4), s=list(lengths)).out_shape == (3, 5)


def test_several_axes_are_a_wrong_value() -> None:
    """Catches the type of exception that JAX's own tests look for, and text that is no list of axes."""
    with pytest.raises(ValueError, match=r"axis is \[1, 1\]: give an integer"):
        mf.fft(np.ones((2, 2)), axis=[1, 1])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="axis is 'x'"):
        mf.fft(np.ones((2, 2)), axis="x")  # type: ignore[call-overload]


@pytest.mark.quick(0, 4)
@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "float32", "complex64"])
def test_no_axes_give_a_spectrum_too(dtype: str) -> None:
    """Catches results whose type depends on whether `axes` is empty: integers became float32."""
    x, mesh = np.arange(8).reshape(2, 4).astype(dtype), jax.make_mesh((2, 4), ("x", "y"))
    for name in ("fftn", "ifftn"):
        wanted = getattr(jnp.fft, name)(x, axes=())
        for a in (x, mf.shard(x, mesh, P("x", "y"))):
            y = getattr(mf, name)(a, axes=())
            assert y.dtype == wanted.dtype
            np.testing.assert_array_equal(np.asarray(y), x.astype("complex64"))
    assert mf.plan((2, 4), axes=(), dtype="float32").out_dtype == "complex64"
    assert mf.dctn(x.real.astype("float32"), axes=()).dtype == "float32"


def test_numbers_have_no_axes() -> None:
    """Catches a range of axes that ends before it begins: the message for a scalar proposed axes "0 to -1"."""
    with pytest.raises(ValueError, match="axis -1 is out of range: the array has 0 dimensions, a number without axes"):
        mf.fft(3.0)
    with pytest.raises(ValueError, match="axis 2 is out of range: the array has 2 dimensions, give one from -2 to 1"):
        mf.fft(np.ones((2, 2)), axis=2)
