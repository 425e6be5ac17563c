"""Types and precision tiers: the type a transform computes in, its products, and the expected error.

A float32 is exactly a sum of three bfloat16, each 2^-8 of the previous one. Matrix units compute

    bf16     x1 y1                                                     1 pass
    bf16x3   x1 y1 + x1 y2 + x2 y1                                     3 passes
    bf16x6   x1 y1 + x1 y2 + x2 y1 + x1 y3 + x2 y2 + x3 y1             6 passes, as accurate as float32

int8xS makes a float64 product of S (S + 1) / 2 exact products of 8-bit slices (see slices). int8x7 replaces "float64"
on devices without it.

Source: Henry, Tang and Heinecke, arXiv:1904.06376, used by Lu et al., section II-A.
"""

import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .units import bound


class Tier(NamedTuple):
    """A precision tier of real products.

    Attributes:
        terms: bfloat16 terms of each factor; 0 if the type itself is multiplied.
        passes: products of terms per real product.
        error: relative L2 error of a sum of LONGEST complex products, for 4 or 3 multiplications (`benchmarks bounds`),
            in bf16 and bf16x3 also of constants and spikes; in float32 and float64 equal numbers may lose more
            (RingDense.error).
        limit: largest error allowed when the plan chooses between 4 and 3.
        slices: 8-bit slices of each float64 factor, if sliced.
    """

    terms: int
    passes: int
    error: dict[int, float]
    limit: float
    slices: int = 0


class Error(NamedTuple):
    """Bounds on the relative L2 error of a step."""

    noise: float = 0.0  # rounding of noise: independent between steps
    equal: float = 0.0  # rounding of equal numbers, all the same way: adds up over steps
    lost: float = 0.0  # of the data sent
    condition: float = 1.0  # largest over smallest singular value: bounds the growth of earlier `lost`

    @staticmethod
    def of_all(errors: Iterable["Error"]) -> "Error":
        every = tuple(errors)
        noise, equal = math.hypot(*(error.noise for error in every)), sum(error.equal for error in every)
        lost = math.expm1(sum(math.log1p(error.lost) for error in every))
        return Error(noise, equal, lost, math.prod(error.condition for error in every))


SHORT_TERMS = 256  # of a product on a GPU, whose sums lose in proportion; each run passes over the result
LONGEST = 65536  # terms; a tier's error is valid for no more
UNITS = ("int8", "int8 long", "bf16")  # that multiply slices on TPUs
ROUNDING = {"": 2.0**-52, **dict.fromkeys(UNITS, 2.0**-46)}  # of sums in float64, or in pairs of float32


def unit_of(itemsize: int) -> float:
    return 2.0**-24 if itemsize == 8 else 2.0**-53


def added_error(many: int, itemsize: int) -> float:
    """Largest relative error of adding `many` equal complex numbers one by one.

    Between two powers of two all additions round the same way, by up to half a unit in the last place. The worst reach
    many / 4 + 1 / 2 roundings; up to four are exact.
    """
    return (many / 4 + 0.5) * unit_of(itemsize) if many > 4 else 0.0


def sliced_error(slices: int, multiplications: int, n: int) -> float:
    """Relative L2 error of a complex product of n terms by S slices of 8 bits, without the rounding of its sums.

    A line of root mean square r is scaled by 2^e, within a factor two of its largest entry, so 2^e <= 2.04 sqrt(n) r
    (equality for a single nonzero entry). Matrices of magnitudes up to one, mean 0.7, have e = 1. Slices act as random
    numbers of mean square (2^8)^2 / 12; those of one large entry may all be 128, 3^(1/2) times that. Per term, on
    average and relative to 0.7 r:

        omitted products, slices i + j = S + 2     (S - 1)^(1/2) 2^(16 - 8 (S + 2)) 2^2 2^(1 + e) 3^(1/2) / 12 / (0.7 r)
                                                    = 1.63 (S - 1)^(1/2) 2^(-8 S) (2^e / r)
        truncation of the block after slice S      12^(-1/2) 2^(1 - 8 S) (2^e / r) = 0.58 2^(-8 S) (2^e / r)

    The rest is below 2 % of these, the sum below (3 S)^(1/2) 2^(-8 S) (2^e / r); n terms multiply error and value by
    n^(1/2). Gauss's three products have factors up to twice as large, 1.5 times on average.
    """
    return 2.04 * math.sqrt(3 * slices * max(n, 1)) * 2.0 ** (-8 * slices) * {4: 1.0, 3: 1.5}[multiplications]


def _sliced(slices: int) -> Tier:
    errors = {m: math.hypot(sliced_error(slices, m, LONGEST), ROUNDING[""]) for m in (4, 3)}
    return Tier(0, slices * (slices + 1) // 2, errors, errors[3], slices)


TIERS = {
    "float32": Tier(0, 1, {4: 3.9e-7, 3: 5.5e-7}, 4e-7),
    "float64": Tier(0, 1, {4: 8e-16, 3: 1.2e-15}, 1e-15),
    "bf16x6": Tier(3, 6, {4: 2.5e-7, 3: 3.9e-7}, 4e-7),
    "bf16x3": Tier(2, 3, {4: 1.9e-5, 3: 2.1e-5}, 2.1e-5),
    "bf16": Tier(1, 1, {4: 6.5e-3, 3: 9.5e-3}, 9.5e-3),
    **{f"int8x{slices}": _sliced(slices) for slices in (7, 6, 5, 4)},
}
WIDE = ("float64", "int8x7", "int8x6", "int8x5", "int8x4")  # of complex128, and of split complex float64
PRECISIONS = ("default", *TIERS)
Precision = str | float | None  # one of PRECISIONS, or an error bound
MOST_DIMENSIONS = 3  # assumed when an error bound selects a tier


class Dot(NamedTuple):
    """A precision tier, and the real multiplications per complex one.

    Gauss's three for (a + ib)(c + id) are (a + b) c, a (d - c) and b (c + d): three quarters of the work of four, 1.4
    times the error, and less relative accuracy for small imaginary parts. `unit`, one of UNITS, multiplies slices on a
    device without float64, whose values are pairs of float32. A float sum adds `run` terms one by one; 0 if unknown, or
    if tiles add them.
    """

    tier: str
    multiplications: int
    unit: str = ""
    run: int = 0

    @property
    def terms(self) -> int:
        return TIERS[self.tier].terms

    @property
    def pairs(self) -> int:
        """Real products per multiplication, without negligible pairs of terms."""
        return max(self.terms * (self.terms + 1) // 2, 1)

    @property
    def slices(self) -> int:
        return TIERS[self.tier].slices

    @property
    def error(self) -> float:
        return self.error_over(LONGEST)

    def error_over(self, n: int) -> float:
        if not self.slices:
            return TIERS[self.tier].error[self.multiplications]
        return math.hypot(sliced_error(self.slices, self.multiplications, n), ROUNDING[self.unit])

    @property
    def flops(self) -> int:
        """Real operations per complex multiplication and addition, passes not counted."""
        return 2 * self.multiplications


def dots_of(
    dtype: np.dtype,
    precision: Precision,
    multiplications: int | None,
    unit: str = "",
    run: int = 0,
    splits: bool = False,
) -> tuple[Dot, ...]:
    """The `Dot`s that the plan may choose from: all within the tier's limit, or the requested one.

    If no tier is named, bf16x6 is a choice too on a TPU, which splits float32 anyway: its bound is no larger, even with
    three multiplications. GPUs that split take it alone: their sums of float32 lose more.
    """
    if multiplications not in (None, 3, 4):
        raise ValueError(f"multiplications is {multiplications!r}: use 3 or 4, or None to choose")
    tier = _tier_of(dtype, precision)
    if unit and tier == "float64":
        within = precision if isinstance(precision, float) else 0.0
        tier = next((fewer for fewer in reversed(WIDE[1:]) if reaches(fewer, within)), "int8x7")
    split = splits and tier == "float32" and precision != tier
    tiers = (tier,) * (not split or not run) + ("bf16x6",) * split
    unit = unit if TIERS[tier].slices else ""
    if multiplications is not None:
        return (Dot(tiers[-1], multiplications, unit, run),)
    return tuple(Dot(t, m, unit, run) for t in tiers for m, error in TIERS[t].error.items() if error <= TIERS[t].limit)


def reaches(tier: str, error: float) -> bool:
    return MOST_DIMENSIONS**0.5 * TIERS[tier].limit <= error


def check_reached(precision: Precision, error: float, beside: str = "") -> None:
    """Raises ValueError if the error exceeds the bound: tiers are chosen before the walk is known."""
    if isinstance(precision, float) and not error <= precision:
        what = f"precision {precision:g} is out of reach of this transform, whose error may be {bound(error)}"
        raise ValueError(f"{what}: give at least that{beside}")


def is_wide(precision: Precision) -> bool:
    return not reaches("float32", precision) if isinstance(precision, float) else precision in WIDE


def complex_dtype(dtype: np.dtype, precision: Precision) -> np.dtype:
    """A transform's complex type: NumPy's promotion, within JAX's enabled types."""
    return np.dtype(np.complex128 if _tier_of(dtype, precision) in WIDE else np.complex64)


def _tier_of(dtype: np.dtype, precision: Precision) -> str:
    check_numeric(dtype)
    said = f"precision {precision:g}" if isinstance(precision, float) else ""
    if isinstance(precision, float):  # see `check_reached`
        precision = "float32" if reaches("float32", precision) else "float64"
    if precision is not None and precision not in PRECISIONS:
        remedy = f"use one of {', '.join(map(repr, PRECISIONS))}, or an error to stay within, as 1e-10"
        raise ValueError(f"precision {precision!r} is unknown: {remedy}")
    wide, asked = wide_types(), precision if precision != "default" else None
    double = dtype in (np.float64, np.complex128) or (dtype.kind in "iu" and dtype.itemsize == 8 and wide)
    tier = asked or ("float64" if double else "float32")
    if tier in WIDE and not wide:
        switch = "call jax.config.update('jax_enable_x64', True) first"
        raise ValueError(f"{said or asked or dtype} needs 64-bit types, which are off: {switch}")
    return tier


@functools.lru_cache(maxsize=64)
def check_numeric(dtype: np.dtype) -> None:
    numeric = jnp.issubdtype(dtype, jnp.number) and dtype.kind != "m"
    if not (numeric or jnp.issubdtype(dtype, jnp.bool_)):
        raise TypeError(f"dtype {dtype} is not numeric: give an array of numbers")
    if dtype.itemsize > 16 or (dtype.kind == "f" and dtype.itemsize > 8):
        raise TypeError(f"JAX has no {dtype}: use complex128 at most")


def check_fits(values: np.ndarray) -> None:
    """Raises OverflowError for integers of 64 bits that JAX would wrap to 32."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or wide_types() or not values.size:
        return
    bounds, ends = np.iinfo(f"{values.dtype.kind}4"), (int(values.min()), int(values.max()))
    if ends[0] < bounds.min or ends[1] > bounds.max:
        remedy = "give x.astype('float32'), or call jax.config.update('jax_enable_x64', True) first"
        raise OverflowError(f"the array has {max(ends, key=abs)}, which 32 bits do not hold: {remedy}")


def check_planned(given: np.dtype, planned: np.dtype, precision: Precision) -> None:
    """Raises TypeError for floats of 64 bits that a plan of 32 would round without a word."""
    if given.kind in "fc" and complex_dtype(given, precision).itemsize > planned.itemsize:
        remedy = f"make the plan with dtype={str(given)!r}, or with precision='float32' to round the array"
        raise TypeError(f"the array is {given}, and the plan computes in {planned}: {remedy}")


def wide_types() -> bool:
    return bool(jax.dtypes.canonicalize_dtype("complex128") == np.complex128)


def real_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.finfo(dtype).dtype)


def promoted(a: DTypeLike, b: DTypeLike) -> np.dtype:
    with jax.numpy_dtype_promotion("standard"):
        return np.dtype(jnp.promote_types(a, b))
