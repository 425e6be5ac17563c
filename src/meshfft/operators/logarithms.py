"""Logarithms of numbers in two float64: a power z^-n multiplies the error of one float64 by n.

    log z = a + (z exp(-a) - 1),   a the logarithm in one float64

exp(-a) uses two floats: its series at a / 2^9, squared nine times. The omitted square of the bracket is below 1e-31.
Source: Dekker, A floating-point technique for extending the available precision, Numer. Math. 18, 1971.
"""

import math
from fractions import Fraction
from typing import TypeVar

import numpy as np
from jax import Array

Two = tuple[np.ndarray, np.ndarray]  # a number in two floats, the second at most half a unit of the first
Complex = tuple[Two, Two]
F = TypeVar("F")
_SQUARINGS, _TERMS = 9, 13  # series of exp at numbers below 3.3 / 2^9: the next term is below 1e-37
_LOG_2: Two = np.array(0.6931471805599453), np.array(2.3190468138462996e-17)


def logarithm(z: np.ndarray) -> tuple[Two, Two]:
    """log |z| and the angle of nonzero complex numbers, in two floats each; ValueError if one is not finite."""
    finite(z)
    exponent = np.frexp(np.maximum(np.abs(z.real), np.abs(z.imag)))[1]
    re, im = (np.ldexp(part, -exponent) for part in (z.real, z.imag))
    radius, angle = np.log(np.hypot(re, im)), np.arctan2(im, re)
    (one, low), (high, rest) = _times(((re, 0 * re), (im, 0 * im)), _exp(-radius, -angle))
    many = exponent.astype(float)
    whole = _product(_LOG_2, (many, 0 * many))
    return _plus(whole, _two_sum(radius, (one - 1) + low)), _two_sum(angle, high + rest)


def finite(values: F) -> F:
    """The values; raises ValueError if a host array has one that is not finite."""
    if isinstance(values, np.ndarray) and not np.isfinite(values).all():
        raise ValueError(f"point {np.argmin(np.isfinite(values))} is not finite: give finite points")
    return values


def of_radii(radii: np.ndarray) -> Two:
    """log r of real numbers in two floats; ValueError if one is not positive."""
    if not (radii > 0).all():
        bad = np.argmin(radii > 0)
        raise ValueError(f"radius {bad} is {radii.ravel()[bad]}: give positive radii")
    return logarithm(radii.astype(np.complex128))[0]


def spiral(a: complex | Array, w: complex | Array, m: int) -> tuple[Two, Two]:
    k = np.arange(m, dtype=float)
    radius, angle = (
        _plus((high[:1], low[:1]), _product((-high[1:], -low[1:]), (k, 0 * k)))
        for high, low in logarithm(np.array([a, w], np.complex128))
    )
    return radius, angle


def snapped(log_radius: np.ndarray) -> np.ndarray | None:
    """None if all radii are 1 to rounding."""
    return log_radius if np.abs(log_radius).max(initial=0.0) > 4 * np.finfo(np.float64).eps else None


def _plus(a: Two, b: Two) -> Two:
    high, low = _two_sum(a[0], b[0])
    return _two_sum(high, low + (a[1] + b[1]))


def _exp(re: np.ndarray, im: np.ndarray) -> Complex:
    x = (re * 2.0**-_SQUARINGS, 0 * re), (im * 2.0**-_SQUARINGS, 0 * im)
    power = _constant(_TERMS, re), (0 * re, 0 * re)
    for term in reversed(range(_TERMS)):
        real, imaginary = _times(power, x)
        power = _plus(real, _constant(term, re)), imaginary
    for _ in range(_SQUARINGS):
        power = _times(power, power)
    return power


def _constant(term: int, like: np.ndarray) -> Two:
    value = Fraction(1, math.factorial(term))
    return np.full_like(like, float(value)), np.full_like(like, float(value - Fraction(float(value))))


def _times(a: Complex, b: Complex) -> Complex:
    (ar, ai), (br, bi) = a, b
    minus = -ai[0], -ai[1]
    return _plus(_product(ar, br), _product(minus, bi)), _plus(_product(ar, bi), _product(ai, br))


def _product(a: Two, b: Two) -> Two:
    high = a[0] * b[0]
    (a1, a2), (b1, b2) = _halves(a[0]), _halves(b[0])
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
