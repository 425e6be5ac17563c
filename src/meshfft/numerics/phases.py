"""Exact phases: roots of unity and Vandermonde blocks, made where they are used.

A phase is reduced to a fraction of a turn in integers that cannot wrap, then to an eighth of a turn either side of an
axis, and only then handed to cos and sin: it is right to one rounding of its last bit for every n k / N below
MAX_LENGTH, and every multiple of a fixed-point turn, in float32 as in float64. (In float32 without the reduction n k
loses 5e-3 at N = 8192.)
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .fixed_point import Limbs
from .split_complex import Planes

MAX_LENGTH = 2**29


def roots(m: Array, length: int, sign: int, real: jax.typing.DTypeLike) -> Planes:
    """exp(sign 2 pi i m / length) for integers 0 <= m < length."""
    m, unit = m.astype(jnp.uint32), jnp.finfo(real).dtype.type
    quarters = (4 * m + length // 2) // length
    rest = (4 * m - quarters * length).astype(jnp.int32)
    return _turned(rest.astype(real) / unit(length) * unit(jnp.pi / 2), quarters, sign)


def circle(turns: Limbs, sign: int, real: jax.typing.DTypeLike) -> Planes:
    """exp(sign 2 pi i turns) for fixed-point turns of two limbs or more."""
    unit = jnp.finfo(real).dtype.type
    quarters = (turns[0] + jnp.uint32(2**29)) >> 30
    rest = (turns[0] - (quarters << 30)).astype(jnp.int32).astype(real) + turns[1].astype(real) * unit(2.0**-32)
    return _turned(rest * unit(2 * np.pi * 2.0**-32), quarters, sign)


def mulmod(a: Array, b: Array, modulus: int) -> Array:
    """a b mod `modulus` in uint32, for 0 <= a, b < modulus <= MAX_LENGTH.

    b is taken a few bits at a time, so nothing wraps.
    """
    a, b = a.astype(jnp.uint32), b.astype(jnp.uint32)
    bits = (modulus - 1).bit_length()
    if 2 * bits <= 32:
        return a * b % modulus
    chunk = 31 - bits
    product = jnp.uint32(0)
    for shift in reversed(range(0, bits, chunk)):
        digit = (b >> shift) & ((1 << chunk) - 1)
        product = ((product << chunk) + a * digit) % modulus
    return product


def vandermonde(k: Array, n: Array, length: int, sign: int, real: jax.typing.DTypeLike) -> Planes:
    """The block V[k, n] = exp(sign 2 pi i k n / length) for integer vectors k and n (paper, equation dft1d_matrix)."""
    return roots(mulmod(k[:, None] % length, n[None, :] % length, length), length, sign, real)


def _turned(angle: Array, quarters: Array, sign: int) -> Planes:
    """exp(sign i angle), turned on by quarters in the same sense."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    odd, half = quarters % 2 == 1, quarters // 2 % 2 == 1
    re, im = jnp.where(odd, -sin, cos), jnp.where(odd, cos, sin)
    im = im if sign > 0 else -im
    return jnp.where(half, -re, re), jnp.where(half, -im, im)
