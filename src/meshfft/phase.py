"""Exact phases: roots of unity and Vandermonde blocks, made where they are used.

A phase n k / N is reduced to a fraction of a turn in integers that cannot wrap, then to a quarter turn either side of
an axis, and only then handed to cos and sin: exp(sign 2 pi i m / N) is right to one rounding of its last bit for every
N below MAX_LENGTH, in float32 as in float64. (In float32 without the reduction n k loses 5e-3 at N = 8192.)
"""

import jax
import jax.numpy as jnp
from jax import Array

MAX_LENGTH = 2**29


def roots(m: Array, length: int, sign: int, dtype: jax.typing.DTypeLike) -> Array:
    """exp(sign 2 pi i m / length) for integers 0 <= m < length, as complex `dtype`."""
    m, real = m.astype(jnp.uint32), jnp.finfo(dtype).dtype
    quarter = (4 * m + length // 2) // length
    rest = (4 * m - quarter * length).astype(jnp.int32)
    angle = rest.astype(real) / real.type(length) * real.type(sign * jnp.pi / 2)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    odd, half, turn = quarter % 2 == 1, quarter // 2 % 2 == 1, real.type(sign)
    re = jnp.where(odd, -turn * sin, cos)
    im = jnp.where(odd, turn * cos, sin)
    return jax.lax.complex(jnp.where(half, -re, re), jnp.where(half, -im, im))


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


def vandermonde(k: Array, n: Array, length: int, sign: int, dtype: jax.typing.DTypeLike) -> Array:
    """The block V[k, n] = exp(sign 2 pi i k n / length) for integer vectors k and n (paper, equation dft1d_matrix)."""
    return roots(mulmod(k[:, None] % length, n[None, :] % length, length), length, sign, dtype)
