"""The FFT of lengths with a large prime factor, as a convolution with a chirp (Bluestein 1970).

    X[k] = c[k] sum_n conj(c)[k - n] c[n] x[n],   c[n] = exp(sign pi i n^2 / N),   for 2 n k = n^2 + k^2 - (k - n)^2

The sum is a cyclic convolution of M >= 2 N - 1 points, half of input and output unused:

- "ffts": M = 2 L. The even bins of M are the FFT of c x over L points, the odd ones that of c x w with
  w[n] = exp(-pi i n / L). "lines": the same, a few lines at a time in cache.
- "products": M = R S, n = a S + b, k = c + R d, for matrix units. Bins stay in the products' order (c, d):

      Z[c, d] = sum_b w_S^(b d) w_M^(b c) sum_a w_R^(a c) z[a, b],   and back by the conjugates, d before c.

Invariant: n^2 is reduced modulo 2 N in integers.
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..numerics.phases import host_roots, table

PRIME = 800  # awkward only with a larger prime factor
LONG = 2000  # and only if longer: up to here one dense product costs a TPU less
CACHED_LONG = 3200  # on CPUs: XLA's FFT takes eight lines at a time while they stay in cache
CACHED_PARTS = 4  # or while this many equal parts of a line do
CACHE_BYTES = 2**16  # of the lines transformed at a time
NARROWEST = 16  # fewest columns at a time, adjacent in memory
SIDE = 128  # rows of a matrix unit


@functools.lru_cache(maxsize=1024)
def is_awkward(length: int, cached: bool = False) -> bool:
    """Whether a chirp is cheaper; `cached` is the chip's."""
    long = length > CACHED_LONG and length % CACHED_PARTS > 0 if cached else length > LONG
    return long and max(prime_factors(length)) > PRIME


@functools.lru_cache(maxsize=1024)
def padded_length(length: int) -> int:
    """Length L of the transforms: 4, 5 or 6 times a power of two."""
    return min(m << max(0, (-(-length // m) - 1).bit_length()) for m in (4, 5, 6))


@functools.lru_cache(maxsize=1024)
def prime_factors(n: int) -> tuple[int, ...]:
    p = next((p for p in range(2, math.isqrt(n) + 1) if n % p == 0), n)
    return () if n == 1 else (p, *prime_factors(n // p))


def folds(length: int) -> tuple[int, int]:
    return 2 * -(-length // SIDE), SIDE


@functools.lru_cache(maxsize=16)
def chirp_spectrum(length: int, size: int, sign: int) -> np.ndarray:
    """Spectrum of the conjugate chirp over M points, divided by M."""
    chirp, kernel = _chirp(length, sign).conj(), np.zeros(size, np.complex128)
    kernel[:length] = chirp
    kernel[size - length + 1 :] = chirp[1:][::-1]
    return np.fft.fft(kernel) / size


def chirp_fft(block: Array, dim: int, sign: int, way: str) -> Array:
    """Transforms one dimension of a complex block, unscaled. Costs about 20 L log2 L flops a line by FFTs, L < 1.3 N,
    and 4 (R + S) M complex multiplications by products."""
    if way == "lines":
        return _in_cache(block, dim, sign)
    convolved = _by_products if way == "products" else _by_ffts
    return jnp.moveaxis(convolved(jnp.moveaxis(block, dim, -1), sign), -1, dim)


def _in_cache(block: Array, dim: int, sign: int) -> Array:
    shape, length = block.shape, block.shape[dim]
    before, after = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    width = _width(length, after > 1, block.dtype.itemsize)

    def rows(lines: Array, start: Array | int, width: int) -> Array:
        part = lax.dynamic_slice(lines, (start, 0), (width, length))
        return lax.dynamic_update_slice(lines, _by_ffts(part, sign), (start, 0))

    def columns(lines: Array, start: Array | int, width: int, row: Array) -> Array:
        part = lax.dynamic_slice(lines, (row, 0, start), (1, length, width))
        done = jnp.swapaxes(_by_ffts(jnp.swapaxes(part, 1, 2), sign), 1, 2)
        return lax.dynamic_update_slice(lines, done, (row, 0, start))

    def row(i: Array, lines: Array) -> Array:
        return _looped(lines, after, width, functools.partial(columns, row=i))

    if after == 1:
        return _looped(block.reshape(before, length), before, width, rows).reshape(shape)
    return lax.fori_loop(0, before, row, block.reshape(before, length, after)).reshape(shape)


def _width(length: int, behind: bool, itemsize: int) -> int:
    width = max(1, CACHE_BYTES // (padded_length(length) * itemsize))
    return max(width, NARROWEST) if behind else width


def chirp_points(length: int, lines: int, behind: bool, itemsize: int) -> int:
    """Points that "lines" holds beside a block: M before and after an FFT, of the lines transformed at a time."""
    return 4 * padded_length(length) * min(lines, _width(length, behind, itemsize))


def _looped(lines: Array, many: int, width: int, work: Callable[..., Array]) -> Array:
    width = min(width, many)
    full = many // width if width else 0
    lines = lax.fori_loop(0, full, lambda i, lines: work(lines, start=i * width, width=width), lines)
    rest = many - full * width
    return work(lines, start=full * width, width=rest) if rest else lines


def _by_ffts(lines: Array, sign: int) -> Array:
    length = lines.shape[-1]
    into, spectrum, out = _expanded(fft_tables(length, sign, lines.dtype), lines)
    widths = [(0, 0)] * lines.ndim + [(0, padded_length(length) - length)]
    halves = jnp.fft.fft(jnp.pad(lines[..., None, :] * into, widths)) * spectrum
    halves = jnp.fft.ifft(halves)[..., :length] * out
    return halves[..., 0, :] + halves[..., 1, :]


def _by_products(lines: Array, sign: int) -> Array:
    length = lines.shape[-1]
    folded, rows, roots, columns, over = _product_tables(length, sign, lines.dtype)
    chirp, twiddles, spectrum = _expanded((folded, roots, over), lines)
    widths = [(0, 0)] * (lines.ndim - 1) + [(0, chirp.size - length)]
    product = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
    x = jnp.pad(lines, widths).reshape(*lines.shape[:-1], *folded.shape) * chirp
    x = product("...ab,ac->...cb", x, rows) * twiddles
    x = product("...cb,bd->...cd", x, columns) * spectrum
    x = product("...cd,bd->...cb", x, columns.conj()) * twiddles.conj()
    x = product("...cb,ac->...ab", x, rows.conj()) * chirp
    return x.reshape(*lines.shape[:-1], chirp.size)[..., :length]


def _expanded(tables: Sequence[np.ndarray], lines: Array) -> list[Array]:
    return [jnp.asarray(table).reshape((1,) * (lines.ndim - 1) + table.shape) for table in tables]


def _chirp(length: int, sign: int) -> np.ndarray:
    n = np.arange(length, dtype=np.int64)
    return host_roots(n * n, 2 * length, sign)


@functools.lru_cache(maxsize=16)
def fft_tables(length: int, sign: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """Tables for even and odd bins: the chirp times (1, w), the spectrum, the chirp times (1, conj(w))."""
    chirp, size = _chirp(length, sign), padded_length(length)
    half = host_roots(np.arange(length), 2 * size, -1)
    into, out = (np.stack([chirp, chirp * part]) for part in (half, half.conj()))
    spectrum = chirp_spectrum(length, 2 * size, sign).reshape(size, 2).T * size  # jnp.fft.ifft divides by it
    return tuple(part.astype(dtype) for part in (into, spectrum, out))


@functools.lru_cache(maxsize=16)
def _product_tables(length: int, sign: int, dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """The chirp in (a, b), w_R, w_M, w_S, and the spectrum in (c, d)."""
    rows, columns = folds(length)
    chirp = np.pad(_chirp(length, sign), (0, rows // 2 * columns - length)).reshape(rows // 2, columns)
    spectrum = chirp_spectrum(length, rows * columns, sign).reshape(columns, rows).T
    sizes = ((rows // 2, rows, rows), (rows, columns, rows * columns), (columns, columns, columns))
    first, twiddles, second = (table(*size, -1, np.dtype(np.complex128)) for size in sizes)
    return tuple(part.astype(dtype) for part in (chirp, first, twiddles, second, spectrum))
