"""One device's cosine or sine transform of an uncut dimension, by one FFT of real numbers.

"Folded" is the even samples rising, then the odd ones falling: x_0 x_2 x_4 ... x_5 x_3 x_1. Cosines:

    I    the real FFT of x_0 ... x_N-1 ... x_1, of 2(N-1) points
    II   y_k - i y_(N-k) = 2 exp(-i pi k / 2N) V_k, for k <= N/2, V the real FFT of folded x      Makhoul 1980
    III  its transpose: the inverse real FFT of exp(i pi k / 2N) (x_k - i x_(N-k)), unfolded; x_0 counts half
    IV   even N: the two halves of folded x are the real and imaginary part of N/2 points; folded y likewise
         odd N: a real FFT of folded x, reversed (`_cosines_4_odd`)                               Chan and Ho 1990

Sines of types II and IV are cosines of (-1)^n x_n, reversed; of type III, (-1)^k times cosines of reversed x; of type
I, the imaginary part of the real FFT of 0 x_0 ... x_N-1 0 -x_N-1 ... -x_0, of 2(N+1) points.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..layout.layout import line_shape
from ..numerics.phases import host_roots
from ..numerics.split_complex import interleaved, resize
from ..operators.trig import Ends, Trig, divided
from .base import RealEngine
from .real import XLA_REAL
from .stockham import by_lines
from .xla import fft


def real_lines(matrix: Trig) -> tuple[int, bool]:
    """Points of the real FFT, and whether it is onto real numbers."""
    return int(matrix.period) if matrix.type == 1 else matrix.length, matrix.type == 3


def transform(block: Array, dim: int, matrix: Trig, engine: RealEngine = XLA_REAL, in_place: bool = False) -> Array:
    """M x along a dimension of a real block, unscaled. Costs about 2.5 N log2 N flops a line, twice that for type I,
    and one complex spectrum of memory, of a few lines at a time if in place. Sources: J. Makhoul, "A fast cosine
    transform in one and two dimensions" (1980); S. C. Chan and K. L. Ho, "Direct methods for computing discrete
    sinusoidal transforms" (1990)."""
    if in_place:
        return by_lines(block, dim, functools.partial(transform, dim=dim, matrix=matrix, engine=engine))
    columns = divided(matrix.column_ends, matrix.weights[1])  # the FFTs compute K W
    kernel = _cosines if matrix.family == "cos" else _sines
    lines = kernel(_times(block, dim, _diagonal(matrix.length, columns)), dim, matrix.type, engine)
    return _times(lines, dim, _diagonal(matrix.length, matrix.row_ends))


def _cosines(x: Array, dim: int, type: int, engine: RealEngine) -> Array:
    if type == 4 and x.shape[dim] % 2 == 0:
        return _cosines_4_even(x, dim, engine.products)
    return {1: _cosines_1, 2: _cosines_2, 3: _cosines_3, 4: _cosines_4_odd}[type](x, dim, engine)


def _sines(x: Array, dim: int, type: int, engine: RealEngine) -> Array:
    """With k' = N-1-k, sin pi (k+1)(2n+1) / 2N = (-1)^n cos pi k' (2n+1) / 2N; of types III and IV likewise."""
    if type == 1:
        return _sines_1(x, dim, engine)
    signs = 1.0 - 2.0 * (np.arange(x.shape[dim]) % 2)
    if type == 3:
        return _times(_cosines(jnp.flip(x, dim), dim, type, engine), dim, signs)
    return jnp.flip(_cosines(_times(x, dim, signs), dim, type, engine), dim)


def _half(x: Array, dim: int, engine: RealEngine) -> Array:
    spectrum = engine.half(x, (dim,), -1)
    assert not isinstance(spectrum, tuple), "an array makes an array"
    return spectrum


def _cosines_1(x: Array, dim: int, engine: RealEngine) -> Array:
    mirrored = jnp.concatenate([x, _cut(x, dim, slice(-2, 0, -1))], dim)
    return jnp.real(_half(mirrored, dim, engine))


def _sines_1(x: Array, dim: int, engine: RealEngine) -> Array:
    zero = jnp.zeros_like(_cut(x, dim, slice(1)))
    mirrored = jnp.concatenate([zero, x, zero, -jnp.flip(x, dim)], dim)
    return -jnp.imag(_cut(_half(mirrored, dim, engine), dim, slice(1, -1)))


def _cosines_2(x: Array, dim: int, engine: RealEngine) -> Array:
    n = x.shape[dim]
    waves = 2 * host_roots(np.arange(n // 2 + 1), 4 * n, -1)
    y = _times(_half(_folded(x, dim), dim, engine), dim, waves)
    return jnp.concatenate([jnp.real(y), -jnp.imag(_cut(y, dim, slice((n - 1) // 2, 0, -1)))], dim)


def _cosines_3(x: Array, dim: int, engine: RealEngine) -> Array:
    n = x.shape[dim]
    bins = np.arange(n // 2 + 1)
    waves = np.where((bins == 0) | (2 * bins == n), 1, 2) * host_roots(bins, 4 * n, 1)
    low, high = _cut(x, dim, slice(n // 2 + 1)), jnp.flip(_cut(x, dim, slice(n - n // 2, None)), dim)
    pairs = lax.complex(low, -jnp.concatenate([jnp.zeros_like(_cut(x, dim, slice(1))), high], dim))
    lines = engine.real(_times(pairs, dim, waves), (dim,), n, 1)
    assert not isinstance(lines, tuple), "an array makes an array"
    return _unfolded(lines, dim)


def _cosines_4_even(x: Array, dim: int, products: bool) -> Array:
    """y_2k - i y_(N-1-2k) = 2 sum over n < N/2 of (x_2n + i x_(N-1-2n)) exp(-i pi (4k+1)(4n+1) / 4N)."""
    half = x.shape[dim] // 2
    waves = host_roots(8 * np.arange(half) + 1, 32 * half, -1)
    v = _folded(x, dim)
    pairs = lax.complex(_cut(v, dim, slice(half)), _cut(v, dim, slice(half, None)))
    y = _times(fft(_times(pairs, dim, waves), (dim,), -1, products), dim, 2 * waves)
    return _unfolded(jnp.concatenate([jnp.real(y), -jnp.imag(y)], dim), dim)


def _cosines_4_odd(x: Array, dim: int, engine: RealEngine) -> Array:
    """For odd a = 2k+1 and b = 2n+1, cos 2 pi a b / 8N = s_a s_b cos 2 pi c with signs s that make both 1 mod 8.

    c = u/8 + q p / N, where u N = 1 mod 8, p = b/4 and q = a/2 mod N, and s is + - - + for a = 1 3 5 7 mod 8. In folded
    x, p rises by one from 1/4; q is |(N-1)/2 - k| away from 0, on alternating sides.
    """
    n = x.shape[dim]
    k, half = np.arange(n), n // 2
    signs = np.array([1.0, -1.0, -1.0, 1.0])[k % 4]
    folded = _folded(_times(x, dim, signs), dim)
    v = _half(jnp.roll(folded, pow(4, -1, n), dim), dim, engine)
    side = np.where((k % 2 == 1) == (k <= half), 1, -1)
    waves = 2 * signs * host_roots(side * n, 8, -1)
    down, up = (jnp.real(_times(v, dim, part)) for part in (waves[half::-1], waves[half:]))
    return jnp.concatenate([jnp.flip(down, dim), _cut(up, dim, slice(1, None))], dim)


def _folded(x: Array, dim: int) -> Array:
    odd = _cut(x, dim, slice(1, None, 2))
    return jnp.concatenate([_cut(x, dim, slice(None, None, 2)), jnp.flip(odd, dim)], dim)


def _unfolded(v: Array, dim: int) -> Array:
    n = v.shape[dim]
    even, odd = _cut(v, dim, slice((n + 1) // 2)), jnp.flip(_cut(v, dim, slice((n + 1) // 2, None)), dim)
    return _cut(interleaved(even, resize(odd, dim, even.shape[dim]), dim), dim, slice(n))


def _cut(x: Array, dim: int, part: slice) -> Array:
    return x[(slice(None),) * dim + (part,)]


def _diagonal(length: int, ends: Ends) -> np.ndarray:
    factors = np.ones(length)
    factors[0] *= ends[0]
    factors[-1] *= ends[1]
    return factors


def _times(x: Array, dim: int, factors: np.ndarray) -> Array:
    if (factors == 1).all():
        return x
    return x * factors.astype(x.dtype).reshape(line_shape(dim, x.ndim))
