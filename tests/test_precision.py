"""Products of complex matrices and blocks, and what type a transform computes in."""

import functools

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import Array
from reference import error, noise

from meshfft.dtypes import complex_dtype
from meshfft.planes import Planes, join, split
from meshfft.precision import TERMS, product
from meshfft.tiers import Dot

FLOAT32 = Dot("float32", 4)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _product(matrix: Array, block: Array, dim: int, dot: Dot) -> Array:
    """A product with a matrix held whole."""

    def columns(start: Array | int, size: int) -> Planes:
        return tuple(jax.lax.dynamic_slice_in_dim(plane, start, size, 1) for plane in split(matrix))

    return join(product(columns, split(block), dim, dot))


@pytest.mark.parametrize("n", [1, 7, TERMS - 1, TERMS, TERMS + 1, 3 * TERMS, 4000])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_product_contracts_any_dimension_with_the_error_of_one_run(n: int, dim: int) -> None:
    """Catches a run left out or taken twice, a dimension in the wrong place, and one long float sum (4e-7 at 4000)."""
    shape = [3, 4, 2]
    shape[dim] = n
    matrix, block = noise((5, n), seed=1), noise(shape, seed=2)
    truth = np.moveaxis(np.tensordot(matrix.astype(complex), block.astype(complex), (1, dim)), 0, dim)
    assert error(_product(matrix, block, dim, FLOAT32), truth) <= 4e-7


def test_long_sums_lose_no_more_than_short_ones() -> None:
    """Catches the error growing with n: dense float32 transforms promise 4e-7 at N = 8192."""
    k = np.arange(64) * 127
    turns = np.outer(k, np.arange(8192)) % 8192 / 8192
    matrix, x = np.exp(-2j * np.pi * turns), noise((8192, 16))
    y = _product(matrix.astype(np.complex64), x, 0, FLOAT32)
    assert error(y, matrix @ x.astype(complex)) <= 3.5e-7


@pytest.mark.parametrize(
    ("dtype", "wide", "precision", "result"),
    [
        ("float32", False, None, "complex64"),
        ("float32", True, None, "complex64"),
        ("float16", True, "default", "complex64"),
        ("int64", True, None, "complex128"),
        ("bool", True, None, "complex128"),
        ("int32", False, None, "complex64"),
        ("float64", True, None, "complex128"),
        ("complex128", True, "float32", "complex64"),
        ("float32", True, "float64", "complex128"),
    ],
)
def test_promotion(dtype: str, wide: bool, precision: str | None, result: str) -> None:
    """Catches a promotion that is not NumPy's, and precision= not obeyed."""
    with jax.enable_x64(wide):
        assert complex_dtype(np.dtype(dtype), precision) == result
        assert complex_dtype(np.dtype(ml_dtypes.bfloat16), None) == "complex64"


def test_types_that_cannot_be_computed_in_are_refused() -> None:
    """Catches a silent loss: 64-bit types while they are off, and types wider than JAX has."""
    for dtype in ("float64", "complex128"):
        with pytest.raises(ValueError, match=f"{dtype} needs 64-bit types"):
            complex_dtype(np.dtype(dtype), None)
    with pytest.raises(TypeError, match="use complex128 at most"):
        complex_dtype(np.dtype(np.longdouble), None)
    with pytest.raises(TypeError, match="not numeric"):
        complex_dtype(np.dtype("M8[s]"), None)
