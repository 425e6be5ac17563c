"""Fixed-point numbers in 32-bit limbs: the phase and the magnitude of z^-n to every digit, without float64.

A number is a tuple of uint32 arrays, most significant first, and wraps: the multiple n T of a fraction of a turn T is
exact modulo a turn, where floating point keeps fewer digits the larger n is (float32: 2e-4 at n = 4096). Two limbs hold
a turn to 2^-64. A logarithm to base two has its point after 16 bits, so two limbs hold it to 2^-48: enough for float32
up to n = 2^21.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Limbs = tuple[Array, ...]
Real = jax.typing.DTypeLike
DIGIT = 16  # bits taken from a float at a time
WHOLE = 16  # bits of a logarithm before the point
# floor(2^192 c) of c = 1 / (2 pi) and of c = log2(e) / 2
INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E410
HALF_LOG2_E = 0xB8AA3B295C17F0BBBE87FED0691D3E88EB577AA8DD695A58


def count(real: Real) -> int:
    """Limbs whose last bit no type can see: two for float32, three for float64."""
    return 2 if jnp.finfo(real).bits == 32 else 3


def of_turns(turns: Any, limbs: int) -> Limbs:
    """A number of turns, modulo one."""
    return _fixed(turns, 0, limbs)


def of_radians(radians: Any, limbs: int) -> Limbs:
    """An angle over 2 pi, modulo one."""
    return _multiple(radians, INVERSE_TURN, 0, 0, limbs)


def of_logarithm(logarithm: Any, limbs: int) -> Limbs:
    """A natural logarithm, signed and below 2^15 / log2 e, to base two."""
    return _multiple(logarithm, HALF_LOG2_E, 1, WHOLE, limbs)


def add(a: Limbs, b: Limbs) -> Limbs:
    """a + b, wrapping."""
    carry, total = a[-1] * 0, []
    for x, y in zip(reversed(a), reversed(b), strict=True):
        low = x + y
        both = low + carry
        carry = ((low < x) | (both < low)).astype("uint32")
        total.append(both)
    return tuple(reversed(total))


def times(n: Array, limbs: Limbs) -> Limbs:
    """The multiple by uint32 integers n, wrapping."""
    carry, product = jnp.uint32(0), []
    for limb in reversed(limbs):
        low = n * limb
        both = low + carry
        carry = _high(n, limb) + (both < low).astype(jnp.uint32)
        product.append(both)
    return tuple(reversed(product))


def power_of_two(logarithm: Limbs, real: Real) -> Array:
    """Two to a signed logarithm: the whole part becomes the exponent, only the fraction meets exp2."""
    unit = jnp.finfo(real).dtype.type
    whole = logarithm[0].astype(jnp.int32) >> (32 - WHOLE)
    fraction = (logarithm[0] & jnp.uint32((1 << (32 - WHOLE)) - 1)).astype(real) * unit(2.0 ** (WHOLE - 32))
    for j, limb in enumerate(logarithm[1:], 2):
        fraction += limb.astype(real) * unit(2.0 ** (WHOLE - 32 * j))
    return jnp.ldexp(jnp.exp2(fraction), whole)


def _multiple(values: Any, fraction: int, exponent: int, whole: int, limbs: int) -> Limbs:
    """values fraction 2^(exponent - 192): the sum of products of halves with pieces of the fraction, each exact."""
    xp = _module(values)
    digits = int(xp.finfo(values.dtype).nmant) + 1
    bits, (mantissa, power) = digits // 2, xp.frexp(values)
    high = xp.ldexp(xp.floor(xp.ldexp(mantissa, digits - bits)), power + bits - digits)
    pieces = [fraction >> (192 - bits * j) & (1 << bits) - 1 for j in range(1, (64 + 4 * bits) // bits + 1)]
    scaled = [np.ldexp(np.array(piece, values.dtype), exponent - bits * j) for j, piece in enumerate(pieces, 1)]
    products = (half * piece for half in (high, values - high) for piece in scaled)
    return functools.reduce(add, (_fixed(product, whole, limbs) for product in products))


def _fixed(values: Any, whole: int, limbs: int) -> Limbs:
    """Digits of the magnitude by exact floors, then two's complement. What lies above the whole bits is cut away."""
    xp = _module(values)
    rest = xp.abs(values) * np.array(2.0**-whole, values.dtype)
    rest, words = rest - xp.floor(rest), []
    for _ in range(limbs):
        word = xp.zeros(values.shape, "uint32")
        for _ in range(32 // DIGIT):
            rest = rest * np.array(2.0**DIGIT, values.dtype)
            word = (word << np.uint32(DIGIT)) | xp.floor(rest).astype("uint32")
            rest = rest - xp.floor(rest)
        words.append(word)
    return tuple(xp.where(values < 0, n, w) for n, w in zip(negative(tuple(words)), words, strict=True))


def negative(words: Limbs) -> Limbs:
    """Minus the number, wrapping."""
    one = (*(word * 0 for word in words[:-1]), words[-1] * 0 + np.uint32(1))
    return add(tuple(~word for word in words), one)


def _high(a: Array, b: Array) -> Array:
    """The upper 32 bits of a product."""
    low, mask = jnp.uint32(16), jnp.uint32(0xFFFF)
    a1, a0, b1, b0 = a >> low, a & mask, b >> low, b & mask
    middle = (a0 * b0 >> low) + (a1 * b0 & mask) + (a0 * b1 & mask)
    return a1 * b1 + (a1 * b0 >> low) + (a0 * b1 >> low) + (middle >> low)


def _module(values: Any) -> Any:
    """NumPy for host arrays, so that their float64 is kept; jax.numpy for traced ones."""
    return np if isinstance(values, np.ndarray) else jnp
