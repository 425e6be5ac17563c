"""Types of numbers: which arrays are numeric, and what a transform of them computes in."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import check

# What a caller may ask for, and the complex type that the transform then computes and returns.
PRECISIONS: dict[str, np.dtype[Any]] = {"float32": np.dtype(np.complex64), "float64": np.dtype(np.complex128)}


def check_numeric(dtype: np.dtype) -> None:
    """Raises TypeError unless the elements are numbers or truth values of a type that JAX has."""
    numeric = jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)
    check(bool(numeric), f"dtype {dtype} is not numeric: give an array of numbers", TypeError)
    wide = dtype.itemsize > 16 or (dtype.kind == "f" and dtype.itemsize > 8)
    check(not wide, f"JAX has no {dtype}: use complex128 at most", TypeError)


def complex_dtype(dtype: np.dtype, precision: str | None) -> np.dtype:
    """The complex type a transform of `dtype` computes in: NumPy's promotion, as far as JAX has it switched on.

    Raises:
        TypeError: the type is not numeric, or wider than any JAX has.
        ValueError: an unknown precision, or 64 bits asked for while they are off.
    """
    check_numeric(dtype)
    known = ", ".join(map(repr, PRECISIONS))
    check(precision in (None, "default", *PRECISIONS), f"precision {precision!r} is unknown: use 'default', {known}")
    wide = jax.dtypes.canonicalize_dtype("complex128") == np.complex128
    whole = dtype.kind in "biu"
    natural = "float64" if dtype in (np.float64, np.complex128) or (whole and wide) else "float32"
    chosen = precision if precision in PRECISIONS else natural
    check(
        wide or chosen == "float32",
        f"{chosen if precision in PRECISIONS else dtype} needs 64-bit types, which are off: call "
        "jax.config.update('jax_enable_x64', True) first",
    )
    return PRECISIONS[chosen]
