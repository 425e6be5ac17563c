"""Balanced digits to base 256 of real numbers, for integer products.

    x = 2^e sum_i d_i 2^(1 - 8 i),   -128 <= d_i <= 127,   i = 1 ... S

Invariant: inputs are scaled to magnitudes below 127 / 128; only the digits after S and the final rounding are lost.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

BITS = 8  # bits of a slice, sign included
HIGH = 4  # slices in the first 32-bit integer of a number; the second has the rest, at most three
Terms = tuple[Array, ...]


def singles(y: Array, many: int) -> Terms:
    """Float32 numbers that add up to a float64, largest first."""
    parts = list[Array]()
    for left in reversed(range(many)):
        parts.append(y.astype(jnp.float32))
        y = y - parts[-1].astype(y.dtype) if left else y
    return tuple(parts)


def limbs(parts: Terms, slices: int) -> list[Array]:
    """Integers in units of the last slice, from sums of float32 in (-1, 1); the second has the slices after HIGH."""
    high, low = BITS * min(slices, HIGH) - 1, BITS * max(slices - HIGH, 0)
    first = jnp.round(parts[0] * jnp.float32(2.0**high))
    rests = (parts[0] - first * jnp.float32(2.0**-high), *parts[1:])
    units = [part * jnp.float32(2.0 ** (high + low)) for part in rests]
    whole = [jnp.round(part) for part in units]
    left = jnp.round(sum(unit - one for unit, one in zip(units, whole, strict=True)))
    behind = functools.reduce(jnp.add, (one.astype(jnp.int32) for one in (*whole, left)))
    return [first.astype(jnp.int32), behind] if low else [first.astype(jnp.int32) + behind]


def one_by_one(integers: list[Array], slices: int) -> Terms:
    found = _bytes(integers, slices)
    many = (min(slices, HIGH), slices - HIGH)
    each = [(one << (24 - BITS * i)) >> 24 for one, n in zip(found, many, strict=False) for i in reversed(range(n))]
    # The barrier makes all digits at once; otherwise the TPU compiler recomputes the integers for each.
    return tuple(lax.optimization_barrier([digit.astype(jnp.int8) for digit in each]))


def at_once(integers: list[Array], slices: int) -> Array:
    """The balanced digits as one array (S, ...), in few operations."""
    found, first = _bytes(integers, slices), min(slices, HIGH)
    at = jnp.arange(slices, dtype=jnp.int32).reshape(-1, *[1] * found[0].ndim)
    up = 24 - BITS * (jnp.where(at < first, first, slices) - 1 - at)
    return ((jnp.where(at < first, found[0], found[-1]) << up) >> 24).astype(jnp.int8)


def _bytes(integers: list[Array], slices: int) -> list[Array]:
    """Integers whose bytes are the digits: digit + 128 is a byte of the number, and - 128 flips its top bit."""
    carry, found = jnp.int32(0), list[Array]()
    for limb, many in reversed(list(zip(integers, (min(slices, HIGH), slices - HIGH), strict=False))):
        each = jnp.uint32(sum(128 << BITS * i for i in range(many))).astype(jnp.int32)
        total = limb + carry + each
        carry = total >> (BITS * many if many < HIGH else 31)
        found.insert(0, total ^ each)
    return found


def carried(orders: list[Array]) -> tuple[Array, list[Array]]:
    """Sum of int32 numbers, each of 2^-8 the weight of the previous one: an int32 and the bytes after it."""
    value, low = orders[-1], list[Array]()
    for order in reversed(orders[:-1]):
        low.insert(0, value & 255)
        value = order + (value >> BITS)
    return value, low


def joined(value: Array, low: list[Array], dtype: np.dtype) -> Array:
    """An int32 and the bytes after it, rounded to float64."""
    total = value.astype(dtype)
    for first in range(0, len(low), 3):  # 24 bits, a float32
        group = _grouped(low[first : first + 3])
        total = total + jnp.asarray(group, jnp.float32).astype(dtype) * 2.0 ** (-BITS * (first + 3))
    return total


def pair(value: Array, low: list[Array]) -> tuple[Array, Array]:
    """`joined` as two float32; the sums need the first group of 24 bits to be zero or larger than the rest."""
    low = [value & 255, *low]
    first, *others = (jnp.asarray(part, jnp.float32) for part in (value >> BITS, *map(_grouped, (low[:3], low[3:6]))))
    second, third = (part * jnp.float32(2.0 ** (-BITS * at)) for part, at in zip(others, (3, 6), strict=True))
    high = first + second
    low_part = (second - (high - first)) + third
    total = high + low_part
    by = jnp.float32(2.0**BITS)
    return total * by, (low_part - (total - high)) * by


def _grouped(low: list[Array]) -> Array:
    return functools.reduce(jnp.add, (part << (BITS * (2 - j)) for j, part in enumerate(low)))


def host_slices(matrix: np.ndarray, slices: int) -> np.ndarray:
    """Slices of a real matrix of magnitudes up to one, in the host's widest float; the scale is 2."""
    value = np.rint(matrix * np.asarray(2.0 ** (BITS * slices - 2), matrix.dtype)).astype(np.int64)
    digits = list[np.ndarray]()
    for _ in range(slices - 1):
        digits.insert(0, (value + 128 & 255) - 128)
        value = (value - digits[0]) >> BITS
    return np.stack([value, *digits]).astype(np.int8)
