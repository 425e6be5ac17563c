"""One device's FFT of dimensions that it holds whole.

Two engines compute the same sum X[k] = sum_n x[n] exp(sign 2 pi i k n / N):

- "xla": XLA's own FFT. Fastest along the last dimensions; along others it transposes there and back.
- "matmul": mixed radix by matrix products, N = r_1 r_2 ... r_L. With n = a M + b and k = c + r k', stage by stage

      y[c, b] = exp(sign 2 pi i b c / N) sum_a exp(sign 2 pi i a c / r) x[a, b],   then the same over b with N <- M.

  Each product puts its new index c in front, so the last one leaves k in natural order without a transpose. It wants
  the dimension in front of the block, where the products read and write whole rows.

Tables are made in float64 on the host from exact integer phases and rounded once.
"""

import functools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

LARGEST_FACTOR = 64


def fft(block: Array, dims: tuple[int, ...], sign: int, engine: str) -> Array:
    """Transforms whole dimensions of a complex block, unscaled.

    Costs 5 N log2 N flops a line ("xla") or 8 N (r_1 + ... + r_L) ("matmul").
    """
    dims = tuple(d for d in dims if block.shape[d] > 1)
    if engine == "matmul":
        for dim in dims:
            block = _matmul_fft(block, dim, sign)
        return block
    while dims:
        block, dims = _xla_fft(block, dims[-3:], sign), dims[:-3]
    return block


def factors(length: int) -> tuple[int, ...] | None:
    """The radices of the matmul engine:

    as few as can be, near equal, none above LARGEST_FACTOR; None if a prime is larger.
    """
    primes = _primes(length)
    if primes and primes[-1] > LARGEST_FACTOR:
        return None
    stages = max(1, math.ceil(math.log(length, 20))) if length > LARGEST_FACTOR else 1
    while True:
        radices = [1] * stages
        for prime in reversed(primes):
            radices[radices.index(min(radices))] *= prime
        if max(radices) <= LARGEST_FACTOR:
            return tuple(sorted((r for r in radices if r > 1), reverse=True))
        stages += 1


def leads(shape: Sequence[int], dim: int) -> bool:
    """True where nothing longer than 1 stands in front of a dimension."""
    return math.prod(shape[:dim]) == 1


def resize(block: Array, dim: int, size: int) -> Array:
    """Crops a dimension, or pads it with zeros at the tail, to `size`."""
    kept = lax.slice_in_dim(block, 0, min(size, block.shape[dim]), axis=dim)
    widths = [(0, size - kept.shape[dim] if d == dim else 0) for d in range(block.ndim)]
    return jnp.pad(kept, widths) if size > kept.shape[dim] else kept


def _xla_fft(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """XLA's FFT is unscaled forward; backward it divides by N, which norm="forward" undoes."""
    return jnp.fft.fftn(block, axes=dims) if sign < 0 else jnp.fft.ifftn(block, axes=dims, norm="forward")


def _matmul_fft(block: Array, dim: int, sign: int) -> Array:
    """The FFT along the first dimension longer than 1; `done` counts the outputs already in front."""
    radices, done, left = factors(block.shape[dim]), 1, block.shape[dim]
    assert radices is not None and leads(block.shape, dim), "the search offers this engine only where it fits"
    lines = block
    for radix in radices:
        rest = left // radix
        lines = lines.reshape(done, radix, rest, -1)
        lines = jnp.einsum("ca,dabm->cdbm", _table(radix, radix, radix, sign, lines.dtype), lines, precision="highest")
        if rest > 1:
            lines = lines * _table(radix, rest, left, sign, lines.dtype)[:, None, :, None]
        done, left = done * radix, rest
    return lines.reshape(block.shape)


@functools.cache
def _table(rows: int, columns: int, length: int, sign: int, dtype: np.dtype) -> np.ndarray:
    """exp(sign 2 pi i r c / length), reduced exactly in 64-bit integers, rounded once."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    return np.exp(sign * 2j * np.pi * (turns / length)).astype(dtype)


@functools.cache
def _primes(n: int) -> tuple[int, ...]:
    """The prime factors of n in rising order."""
    p = next((p for p in range(2, math.isqrt(n) + 1) if n % p == 0), n)
    return () if n == 1 else (p, *_primes(n // p))
