"""The FFT of lengths with a large prime factor, as a convolution with a chirp (Bluestein's algorithm).

    X[k] = c[k] sum_n conj(c)[k - n] c[n] x[n],   c[n] = exp(sign pi i n^2 / N),   for 2 n k = n^2 + k^2 - (k - n)^2

The sum is a convolution, done by two FFTs of a length M >= 2 N - 1 without large primes. For N = 8191 XLA's own way
costs 7 times as much as N = 8192 on eight CPU devices that share two cores, this one 3.7 times: a few lines at a time,
which stay in cache, on one core for each device. On a single device both cost 6 times (`benchmarks/awkward.py`). Other
chips do all lines at once.

Invariant: n^2 is reduced modulo 2 N in integers before any cosine is taken, and tables are rounded once.
Source: Bluestein, A linear filtering approach to the computation of discrete Fourier transform, 1970.
"""

import functools
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

PRIME = 800  # above this factor XLA's own FFT costs more, on CPUs and on TPUs
CACHE_BYTES = 2**19  # lines worked on at a time: half of a core's second-level cache


@functools.cache
def is_awkward(length: int) -> bool:
    """True where the largest prime factor is so large that the chirp is cheaper."""
    return max(prime_factors(length), default=1) > PRIME


@functools.cache
def padded_length(length: int) -> int:
    """The length M of the convolution: 4, 5 or 6 times a power of two."""
    least = 2 * length - 1
    return min(m << max(0, (-(-least // m) - 1).bit_length()) for m in (4, 5, 6))


@functools.cache
def prime_factors(n: int) -> tuple[int, ...]:
    """The prime factors of n in rising order."""
    p = next((p for p in range(2, math.isqrt(n) + 1) if n % p == 0), n)
    return () if n == 1 else (p, *prime_factors(n // p))


def chirp_fft(block: Array, dim: int, sign: int, cached: bool) -> Array:
    """Transforms one whole dimension of a complex block, unscaled; a few lines at a time where these are `cached`.

    Costs about 10 M log2 M flops a line, M < 2.6 N.
    """
    if cached:
        return _in_cache(block, dim, sign)
    return jnp.moveaxis(_convolved(jnp.moveaxis(block, dim, -1), sign), -1, dim)


def _in_cache(block: Array, dim: int, sign: int) -> Array:
    """Some lines after the other, in place; what remains of them once."""
    shape, length = block.shape, block.shape[dim]
    before, after = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    width = max(1, CACHE_BYTES // (padded_length(length) * block.dtype.itemsize))
    if after == 1:
        rows = functools.partial(_rows, sign=sign)
        return _looped(block.reshape(before, length), 0, before, width, rows).reshape(shape)
    lines = block.reshape(before, length, after)

    def row(i: Array, lines: Array) -> Array:
        columns = functools.partial(_columns, row=i, sign=sign)
        return _looped(lines, 2, after, width, columns)

    return lax.fori_loop(0, before, row, lines).reshape(shape)


def _looped(lines: Array, axis: int, many: int, width: int, work: Callable[..., Array]) -> Array:
    """All of `many` lines, `width` at a time."""
    width = min(width, many)
    groups = many // width if width else 0
    lines = lax.fori_loop(0, groups, lambda i, lines: work(lines, start=i * width, width=width), lines)
    rest = many - groups * width
    return work(lines, start=groups * width, width=rest) if rest else lines


def _rows(lines: Array, start: Array | int, width: int, sign: int) -> Array:
    part = lax.dynamic_slice(lines, (start, 0), (width, lines.shape[1]))
    return lax.dynamic_update_slice(lines, _convolved(part, sign), (start, 0))


def _columns(lines: Array, start: Array | int, width: int, row: Array, sign: int) -> Array:
    part = lax.dynamic_slice(lines, (row, 0, start), (1, lines.shape[1], width))
    done = jnp.swapaxes(_convolved(jnp.swapaxes(part, 1, 2), sign), 1, 2)
    return lax.dynamic_update_slice(lines, done, (row, 0, start))


def _convolved(lines: Array, sign: int) -> Array:
    """The FFT along the last axis."""
    length = lines.shape[-1]
    chirp, spectrum = (jnp.asarray(part) for part in _tables(length, sign, lines.dtype))
    widths = [(0, 0)] * (lines.ndim - 1) + [(0, padded_length(length) - length)]
    product = jnp.fft.fft(jnp.pad(lines * chirp, widths)) * spectrum
    return jnp.fft.ifft(product, norm="forward")[..., :length] * chirp


@functools.cache
def _tables(length: int, sign: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The chirp, and the spectrum of its conjugate over M."""
    size, n = padded_length(length), np.arange(length, dtype=np.int64)
    chirp = np.exp(sign * 1j * np.pi * ((n * n % (2 * length)) / length))
    kernel = np.zeros(size, np.complex128)
    kernel[:length] = chirp.conj()
    kernel[size - length + 1 :] = chirp[1:][::-1].conj()
    return chirp.astype(dtype), (np.fft.fft(kernel) / size).astype(dtype)
