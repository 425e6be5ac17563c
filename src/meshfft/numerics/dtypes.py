"""Types of numbers: which arrays are numeric, and what a transform of them computes in."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .tiers import TIERS, Dot, dots

PRECISIONS = ("default", *TIERS)
MULTIPLICATIONS = (None, 3, 4)


@functools.lru_cache(maxsize=64)
def check_numeric(dtype: np.dtype) -> None:
    """Raises TypeError unless the elements are numbers or truth values of a type that JAX has."""
    numeric = jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)
    if not numeric:
        raise TypeError(f"dtype {dtype} is not numeric: give an array of numbers")
    wide = dtype.itemsize > 16 or (dtype.kind == "f" and dtype.itemsize > 8)
    if wide:
        raise TypeError(f"JAX has no {dtype}: use complex128 at most")


def wide_types() -> bool:
    """Whether 64-bit types are switched on, here and now."""
    return bool(jax.dtypes.canonicalize_dtype("complex128") == np.complex128)


def complex_dtype(dtype: np.dtype, precision: str | None) -> np.dtype:
    """The complex type a transform of `dtype` computes in: NumPy's promotion, as far as JAX has it switched on.

    Raises:
        TypeError: the type is not numeric, or wider than any JAX has.
        ValueError: an unknown precision, or 64 bits asked for while they are off.
    """
    return np.dtype(np.complex128 if tier_of(dtype, precision) == "float64" else np.complex64)


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The type of a complex type's planes; a real type's own."""
    return np.dtype(np.finfo(dtype).dtype)


def tier_of(dtype: np.dtype, precision: str | None) -> str:
    """The tier that a precision means for an array of `dtype`; by default that of NumPy's promotion.

    Raises:
        TypeError, ValueError: as `complex_dtype`.
    """
    check_numeric(dtype)
    known = ", ".join(map(repr, PRECISIONS))
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is unknown: use one of {known}")
    wide = wide_types()
    natural = dtype in (np.float64, np.complex128) or (dtype.kind in "biu" and wide)
    asked = precision not in (None, "default")
    tier = str(precision) if asked else "float64" if natural else "float32"
    if not wide and tier == "float64":
        raise ValueError(
            f"{tier if asked else dtype} needs 64-bit types, which are off: call "
            "jax.config.update('jax_enable_x64', True) first"
        )
    return tier


def dots_of(dtype: np.dtype, precision: str | None, multiplications: Any) -> tuple[Dot, ...]:
    """The ways to multiply that the plan may choose from.

    Raises:
        TypeError, ValueError: as `complex_dtype`, or a number of multiplications that is not 3 or 4.
    """
    if multiplications not in MULTIPLICATIONS:
        raise ValueError(f"multiplications is {multiplications!r}: use 3 or 4, or None to choose")
    return dots(tier_of(dtype, precision), multiplications)


def promoted(a: Any, b: Any) -> np.dtype:
    """The type that holds both, where implicit promotion is switched off too: a caller gave both on purpose."""
    with jax.numpy_dtype_promotion("standard"):
        return np.dtype(jnp.promote_types(a, b))
