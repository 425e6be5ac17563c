"""Types of numbers and tiers of precision: what a transform computes in, how it multiplies, and the error to expect.

A float32 number is a sum of three bfloat16 numbers, to the last bit: x = x1 + x2 + x3, each 2^-8 of the one before. A
matrix unit that multiplies bfloat16 and adds in float32 makes a product from

    bf16     x1 y1                                                     1 pass
    bf16x3   x1 y1 + x1 y2 + x2 y1                                     3 passes
    bf16x6   x1 y1 + x1 y2 + x2 y1 + x1 y3 + x2 y2 + x3 y1             6 passes, as good as float32

Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations" (arXiv:1904.06376), which Lu et al., section II-A, rely on.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike


class Tier(NamedTuple):
    """How real factors are multiplied.

    Attributes:
        terms: bfloat16 terms of each factor; 0 where the type itself is multiplied.
        passes: products of terms that are added up.
        error: relative L2 error of a complex product of up to 65536 terms, by real multiplications in each: 4 or 3.
            Held against measurements by tests/numerics/test_products.py; single short vectors may have half as much
            again.
        limit: the largest error where the plan chooses between 4 and 3.
    """

    terms: int
    passes: int
    error: dict[int, float]
    limit: float


TIERS = {
    "float32": Tier(0, 1, {4: 3.9e-7, 3: 5.5e-7}, 4e-7),
    "float64": Tier(0, 1, {4: 8e-16, 3: 1.2e-15}, 1e-15),
    "bf16x6": Tier(3, 6, {4: 2.5e-7, 3: 3.9e-7}, 4e-7),
    "bf16x3": Tier(2, 3, {4: 6e-6, 3: 9e-6}, 1e-5),
    "bf16": Tier(1, 1, {4: 3.2e-3, 3: 4.8e-3}, 5e-3),
}
PRECISIONS = ("default", *TIERS)


class Dot(NamedTuple):
    """A way to multiply: the tier, and the real multiplications in a complex one.

    Four are (a + ib)(c + id) written out. Three (Gauss) are (a + b) c, a (d - c) and b (c + d), three quarters of the
    work for 1.4 times the error, and small imaginary parts lose relative accuracy.
    """

    tier: str
    multiplications: int

    @property
    def terms(self) -> int:
        """bfloat16 terms of each factor, or 0."""
        return TIERS[self.tier].terms

    @property
    def error(self) -> float:
        """The relative L2 error to expect of a complex matrix product."""
        return TIERS[self.tier].error[self.multiplications]

    @property
    def flops(self) -> int:
        """Real operations for one complex multiplication and addition, passes not counted."""
        return 2 * self.multiplications


def dots_of(dtype: np.dtype, precision: str | None, multiplications: int | None) -> tuple[Dot, ...]:
    """The ways to multiply that the plan may choose from: those within the tier's limit, or the one asked for.

    Raises:
        TypeError, ValueError: as `complex_dtype`, or a number of multiplications that is not 3 or 4.
    """
    if multiplications not in (None, 3, 4):
        raise ValueError(f"multiplications is {multiplications!r}: use 3 or 4, or None to choose")
    tier = _tier_of(dtype, precision)
    if multiplications is not None:
        return (Dot(tier, multiplications),)
    return tuple(dot for m in (4, 3) if (dot := Dot(tier, m)).error <= TIERS[tier].limit)


def complex_dtype(dtype: np.dtype, precision: str | None) -> np.dtype:
    """The complex type a transform of `dtype` computes in: NumPy's promotion, as far as JAX has it switched on.

    Raises:
        TypeError: the type is not numeric, or wider than any JAX has.
        ValueError: an unknown precision, or 64 bits asked for while they are off.
    """
    return np.dtype(np.complex128 if _tier_of(dtype, precision) == "float64" else np.complex64)


def _tier_of(dtype: np.dtype, precision: str | None) -> str:
    """The tier that a precision means for an array of `dtype`; by default that of NumPy's promotion."""
    check_numeric(dtype)
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is unknown: use one of " + ", ".join(map(repr, PRECISIONS)))
    wide, asked = wide_types(), precision if precision != "default" else None
    double = dtype in (np.float64, np.complex128) or (dtype.kind in "biu" and wide)
    tier = asked or ("float64" if double else "float32")
    if tier == "float64" and not wide:
        raise ValueError(
            f"{asked or dtype} needs 64-bit types, which are off: call jax.config.update('jax_enable_x64', True) first"
        )
    return tier


@functools.lru_cache(maxsize=64)
def check_numeric(dtype: np.dtype) -> None:
    """Raises TypeError unless the elements are numbers or truth values of a type that JAX has."""
    if not (jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)):
        raise TypeError(f"dtype {dtype} is not numeric: give an array of numbers")
    if dtype.itemsize > 16 or (dtype.kind == "f" and dtype.itemsize > 8):
        raise TypeError(f"JAX has no {dtype}: use complex128 at most")


def wide_types() -> bool:
    """Whether 64-bit types are switched on, here and now."""
    return bool(jax.dtypes.canonicalize_dtype("complex128") == np.complex128)


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The type of a complex number's parts; a real type's own."""
    return np.dtype(np.finfo(dtype).dtype)


def promoted(a: DTypeLike, b: DTypeLike) -> np.dtype:
    """The type that holds both, where implicit promotion is switched off too: a caller gave both on purpose."""
    with jax.numpy_dtype_promotion("standard"):
        return np.dtype(jnp.promote_types(a, b))
