"""Exact phases: roots of unity n k / N, and multiples of any angle or logarithm as fixed-point numbers.

A phase is reduced to an eighth of a turn in integers, before cos and sin: its error is one rounding for every N below
MAX_LENGTH. (In float32 alone n k loses 5e-3 at N = 8192.)

A fixed-point number is a tuple of uint32 limbs, most significant first, and wraps: multiples of a fraction of a turn
are exact modulo a turn. Two limbs hold a turn to 2^-64, and a base-two logarithm to 2^-48: enough for float32 up to n =
2^21. Logarithms on the host are in two float64: a power z^-n multiplies their error by n.
"""

import functools
import itertools
import math
from fractions import Fraction
from types import ModuleType
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from .split_complex import Planes

Limbs = tuple[Array, ...]
Floats = Array | np.ndarray
Two = tuple[np.ndarray, np.ndarray]  # a number in two floats, the second at most half a unit of the first
Complex = tuple[Two, Two]
F = TypeVar("F")
MAX_LENGTH = 2**29
LOOKED_UP = 2**14  # longest period whose roots CPUs look up: twice 128 KiB in float64
QUARTERS = np.array([1, 1j, -1, -1j])  # exp(2 pi i j / 4)
DIGIT = 16  # bits taken from a float at a time
INTEGER_BITS = 16  # of a logarithm before the point
# floor(2^192 c) for c = 1 / (2 pi) and c = log2(e) / 2
INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E410
HALF_LOG2_E = 0xB8AA3B295C17F0BBBE87FED0691D3E88EB577AA8DD695A58
_LOG_2: Two = np.array(0.6931471805599453), np.array(2.3190468138462996e-17)
_SQUARINGS, _TERMS = 9, 13  # series of exp at numbers below 3.3 / 2^9: the next term is below 1e-37
_EXACT = [Fraction(1, math.factorial(term)) for term in range(_TERMS + 1)]
_SERIES: list[Two] = [(np.array(float(x)), np.array(float(x - Fraction(float(x))))) for x in _EXACT]


def vandermonde(k: Array, n: Array, length: int, sign: int, real: DTypeLike) -> Planes:
    """V[k, n] = exp(sign 2 pi i k n / length) for integer vectors k and n (paper, dft1d_matrix).

    CPUs look up the roots of a short period: their cos and sin take longer than a product.
    """
    m = mulmod(k[:, None] % length, n[None, :] % length, length)
    if length > LOOKED_UP:
        return roots(m, length, sign, real)
    turn = table(2, length, length, sign, np.result_type(real, np.complex64))[1]

    def looked_up(m: Array) -> Planes:
        return tuple(jnp.asarray(part).at[m].get(mode="promise_in_bounds") for part in (turn.real, turn.imag))

    return lax.platform_dependent(m, cpu=looked_up, default=lambda m: roots(m, length, sign, real))


@functools.lru_cache(maxsize=64)
def table(rows: int, columns: int, length: int, sign: int, dtype: np.dtype) -> np.ndarray:
    """exp(sign 2 pi i r c / length) on the host, reduced exactly in 64-bit integers, rounded once."""
    return host_roots(np.outer(np.arange(rows), np.arange(columns)), length, sign).astype(dtype)


def host_roots(m: np.ndarray, length: int, sign: int) -> np.ndarray:
    """exp(sign 2 pi i m / length) in the host's widest float; float64 angles would lose up to eight roundings."""
    m = m % length
    quarters = (4 * m + length // 2) // length
    angle = (4 * m - quarters * length) / np.longdouble(length) * (2 * np.arctan(np.longdouble(1)))
    return np.exp(sign * 1j * angle) * QUARTERS[sign * quarters % 4]


def roots(m: Array, length: int, sign: int, real: DTypeLike) -> Planes:
    assert length <= MAX_LENGTH, "else 32 bits do not hold 4 m + length / 2"
    m, unit = m.astype(jnp.uint32), jnp.finfo(real).dtype.type
    quarters = (4 * m + length // 2) // length
    rest = (4 * m - quarters * length).astype(jnp.int32)
    return _rotated(rest.astype(real) / unit(length) * unit(jnp.pi / 2), quarters, sign)


def mulmod(a: Array, b: Array, modulus: int) -> Array:
    """a b mod `modulus` in uint32, for 0 <= a, b < modulus <= MAX_LENGTH, by a few bits of b at a time."""
    a, b, bits = a.astype(jnp.uint32), b.astype(jnp.uint32), (modulus - 1).bit_length()
    assert modulus <= MAX_LENGTH, "else 32 bits do not hold a digit's product"
    if 2 * bits <= 32:
        return a * b % modulus
    chunk = 31 - bits
    product = jnp.uint32(0)
    for shift in reversed(range(0, bits, chunk)):
        digit = (b >> shift) & ((1 << chunk) - 1)
        product = ((product << chunk) + a * digit) % modulus
    return product


def circle(turns: Limbs, sign: int, real: DTypeLike) -> Planes:
    unit = jnp.finfo(real).dtype.type
    quarters = (turns[0] + jnp.uint32(2**29)) >> 30
    rest = (turns[0] - (quarters << 30)).astype(jnp.int32).astype(real) + turns[1].astype(real) * unit(2.0**-32)
    return _rotated(rest * unit(2 * np.pi * 2.0**-32), quarters, sign)


def _rotated(angle: Array, quarters: Array, sign: int) -> Planes:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    odd, half = quarters % 2 == 1, quarters // 2 % 2 == 1
    re, im = jnp.where(odd, -sin, cos), jnp.where(odd, cos, sin)
    im = im if sign > 0 else -im
    return jnp.where(half, -re, re), jnp.where(half, -im, im)


def power_of_two(logarithm: Limbs, real: DTypeLike) -> Array:
    unit = jnp.finfo(real).dtype.type
    exponent = logarithm[0].astype(jnp.int32) >> (32 - INTEGER_BITS)
    fraction = (logarithm[0] & jnp.uint32((1 << (32 - INTEGER_BITS)) - 1)).astype(real)
    fraction *= unit(2.0 ** (INTEGER_BITS - 32))
    for j, limb in enumerate(logarithm[1:], 2):
        fraction += limb.astype(real) * unit(2.0 ** (INTEGER_BITS - 32 * j))
    return jnp.ldexp(jnp.exp2(fraction), exponent)


def limbs_for(real: DTypeLike) -> int:
    return 2 if jnp.finfo(real).bits == 32 else 3


def of_turns(turns: Floats, limbs: int) -> Limbs:
    """Digits modulo a turn: exact floors of the magnitude, then two's complement."""
    xp = _module(turns)
    rest, words = xp.abs(turns) - xp.floor(xp.abs(turns)), []
    for _ in range(limbs):
        word = xp.zeros(turns.shape, "uint32")
        for _ in range(32 // DIGIT):
            rest = rest * np.array(2.0**DIGIT, turns.dtype)
            word = (word << np.uint32(DIGIT)) | xp.floor(rest).astype("uint32")
            rest = rest - xp.floor(rest)
        words.append(word)
    return _signed(turns, tuple(words))


def of_radians(radians: Floats, limbs: int) -> Limbs:
    return _multiple(radians, INVERSE_TURN, 0, 0, limbs)


def of_logarithm(logarithm: Floats, limbs: int) -> Limbs:
    """Base-two logarithm from a signed natural one below 2^15 / log2 e."""
    return _multiple(logarithm, HALF_LOG2_E, 1, INTEGER_BITS, limbs)


def _multiple(values: Floats, fraction: int, exponent: int, integer_bits: int, limbs: int) -> Limbs:
    """values fraction 2^(exponent - 192), by the fraction's digits that are left modulo 1: exact to a unit.

    Source: Payne and Hanek, Radian reduction for trigonometric functions, SIGNUM Newsletter 18, 1983.
    """
    xp = _module(values)
    digits, zero = int(xp.finfo(values.dtype).nmant) + 1, np.uint32(0)
    mantissa, power = xp.frexp(xp.abs(values))
    start = power.astype("int32") + np.int32(exponent - integer_bits - digits)  # digit with the weight 1/2
    word, bit = start >> np.int32(5), (start & np.int32(31)).astype("uint32")
    words = [np.uint32(fraction >> (160 - 32 * j) & 0xFFFFFFFF) for j in range(6)]
    held = [
        functools.reduce(xp.bitwise_or, (xp.where(word == j - i, one, zero) for j, one in enumerate(words)))
        for i in range(limbs + 3)
    ]
    window = [a << bit | b >> (np.uint32(31) - bit) >> np.uint32(1) for a, b in itertools.pairwise(held)]
    high = xp.floor(mantissa * 2.0 ** (digits - 32))  # 0 in float32
    low = mantissa * 2.0**digits - high * 2.0**32
    product = times(low.astype("uint32"), tuple(window[: limbs + 1]))
    if digits > 32:
        product = add(product, times(high.astype("uint32"), tuple(window[1:])))
    return _signed(values, product[:limbs])


def _signed(values: Floats, words: Limbs) -> Limbs:
    return tuple(_module(values).where(values < 0, n, w) for n, w in zip(negative(words), words, strict=True))


def _module(values: Floats) -> ModuleType:
    return np if isinstance(values, np.ndarray) else jnp


def add(a: Limbs, b: Limbs) -> Limbs:
    carry, total = a[-1] * 0, []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        low = x + y
        both = low + carry
        carry = ((low < x) | (both < low)).astype("uint32")
        total.append(both)
    return tuple(reversed(total))


def negative(words: Limbs) -> Limbs:
    one = (*(word * 0 for word in words[:-1]), words[-1] * 0 + np.uint32(1))
    return add(tuple(~word for word in words), one)


def times(n: Array | np.ndarray | np.uint32, limbs: Limbs) -> Limbs:
    carry, product = limbs[-1] * np.uint32(0), []
    for limb in reversed(limbs):
        low = n * limb
        both = low + carry
        carry = _high(n, limb) + (both < low).astype("uint32")
        product.append(both)
    return tuple(reversed(product))


def _high(a: Any, b: Array) -> Array:
    low, mask = np.uint32(16), np.uint32(0xFFFF)
    a1, a0, b1, b0 = a >> low, a & mask, b >> low, b & mask
    middle = (a0 * b0 >> low) + (a1 * b0 & mask) + (a0 * b1 & mask)
    return a1 * b1 + (a1 * b0 >> low) + (a0 * b1 >> low) + (middle >> low)


def logarithm(z: np.ndarray) -> tuple[Two, Two]:
    """log |z| and the angle of nonzero complex numbers, in two floats each; ValueError if one is not finite.

        log z = a + (z exp(-a) - 1),   a the logarithm in one float64

    exp(-a) uses two floats: its series at a / 2^9, squared nine times. The omitted square of the bracket is below
    1e-31. Source: Dekker, A floating-point technique for extending the available precision, Numer. Math. 18, 1971.
    """
    finite(z)
    exponent = np.frexp(np.maximum(np.abs(z.real), np.abs(z.imag)))[1]
    re, im = (np.ldexp(part, -exponent) for part in (z.real, z.imag))
    radius, angle = np.log(np.hypot(re, im)), np.arctan2(im, re)
    (one, low), (high, rest) = _times(((re, 0 * re), (im, 0 * im)), _exp(-radius, -angle))
    many = exponent.astype(float)
    whole = _product(_LOG_2, (many, 0 * many))
    return _plus(whole, _two_sum(radius, (one - 1) + low)), _two_sum(angle, high + rest)


def finite(values: F) -> F:
    """Raises ValueError if a host array has a value that is not finite."""
    if isinstance(values, np.ndarray) and not np.isfinite(values).all():
        raise ValueError(f"point {np.argmin(np.isfinite(values))} is not finite: give finite points")
    return values


def of_radii(radii: np.ndarray) -> Two:
    """log r of real numbers in two floats; ValueError if one is not positive."""
    if not (radii > 0).all():
        bad = np.argmin(radii > 0)
        raise ValueError(f"radius {bad} is {radii.ravel()[bad]}: give positive radii")
    return logarithm(radii.astype(np.complex128))[0]


def snapped(log_radius: np.ndarray) -> np.ndarray | None:
    """None if all radii are 1 to rounding."""
    return log_radius if np.abs(log_radius).max(initial=0.0) > 4 * np.finfo(np.float64).eps else None


def spiral(a: complex | Array, w: complex | Array, m: int) -> tuple[Two, Two]:
    """log |z| and the angle of z = a w^-k, k < m, in two floats each."""
    k = np.arange(m, dtype=float)
    radius, angle = (
        _plus((high[:1], low[:1]), _product((-high[1:], -low[1:]), (k, 0 * k)))
        for high, low in logarithm(np.array([a, w], np.complex128))
    )
    return radius, angle


def _plus(a: Two, b: Two) -> Two:
    high, low = _two_sum(a[0], b[0])
    return _two_sum(high, low + (a[1] + b[1]))


def _exp(re: np.ndarray, im: np.ndarray) -> Complex:
    x = (re * 2.0**-_SQUARINGS, 0 * re), (im * 2.0**-_SQUARINGS, 0 * im)
    power = _SERIES[-1], (0 * re, 0 * re)
    for coefficient in reversed(_SERIES[:-1]):
        real, imaginary = _times(power, x)
        power = _plus(real, coefficient), imaginary
    for _ in range(_SQUARINGS):
        power = _times(power, power)
    return power


def _times(a: Complex, b: Complex) -> Complex:
    (ar, ai), (br, bi) = a, b
    minus = -ai[0], -ai[1]
    return _plus(_product(ar, br), _product(minus, bi)), _plus(_product(ar, bi), _product(ai, br))


def _product(a: Two, b: Two) -> Two:
    high, (a1, a2), (b1, b2) = a[0] * b[0], _halves(a[0]), _halves(b[0])
    low = ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2
    return _two_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def _halves(a: np.ndarray) -> Two:
    """A float as a sum of two of 26 bits, whose products are exact."""
    wide = a * (2.0**27 + 1)
    high = wide - (wide - a)
    return high, a - high


def _two_sum(a: np.ndarray, b: np.ndarray) -> Two:
    """a + b and its rounding error (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)
