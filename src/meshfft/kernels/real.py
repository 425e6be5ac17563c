"""One device's FFT of a real block, of dimensions that are not cut: half of the spectrum, and back.

    half_spectrum        X[k] = sum_n x[n] exp(sign 2 pi i k n / N),   0 <= k <= N // 2 in the last of the dimensions
    from_half_spectrum   x[n] = Re sum_{k=0}^{N // 2} X[k] exp(sign 2 pi i k n / N),   its transpose: nothing is doubled

over all dimensions jointly, unscaled. Engines:

- "xla": XLA's own real FFT, jointly over three dimensions. On a TPU it saves nothing: it costs 0.9 of a complex one and
  its transpose 1.35, by the compiler's cycles.
- "matmul", for matrix units: the last dimension by real products with half of a complex transform's work, the others by
  XLA. Up to DENSE points it is one product with the N columns

      cos(2 pi k n / N), 0 <= k <= N // 2,      sign sin(2 pi k n / N), 0 < k < N / 2,

  which leaves out the sines that are zero, so that N columns fill the unit. Above, N = N1 N2 with n = n1 + N1 n2 and
  k = k1 N2 + k2, in two stages, of which the second makes only the rows that hold k <= N // 2:

      A[k2, n1] = sum_n2 x[n1 + N1 n2] w_N2^(n2 k2),   X[k1 N2 + k2] = sum_n1 w_N1^(n1 k1) w_N^(n1 k2) A[k2, n1].

  Nothing is reversed and the result is contiguous. Other lengths (large primes, above SIDE^2) fall back to "xla".

The transpose takes the same stages backwards. Tables come from exact integer phases in float64, rounded once.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..numerics.phases import table
from ..numerics.split_complex import Block, Planes, join, like, scaled, split
from .local import balanced, fft, resize

SIDE = 128  # rows of a matrix unit; larger units take the same factors
DENSE = 4 * SIDE  # points up to which one product is cheaper than two stages, by the TPU compiler's cycles
RUN = 32  # terms of one float sum on the CPU, whose products add up one after the other
HostPlanes = tuple[np.ndarray, np.ndarray]


def half_spectrum(block: Block, dims: tuple[int, ...], sign: int, engine: str) -> Block:
    """The transform of a real block, an array or its one plane; the last of the dimensions, of N points, comes out with
    N // 2 + 1.

    Costs about half of `local.fft`.
    """
    (x,) = split(block)
    if engine == "matmul" and factors(x.shape[dims[-1]]):
        return like(block, _others(_to_half(x, dims[-1], sign), dims, sign))
    y = jnp.fft.rfftn(x, axes=dims[-3:])  # of sign -1: with the other it is the conjugate
    y = fft(jnp.conj(y) if sign > 0 else y, dims[:-3], sign, "xla")
    return split(y) if isinstance(block, tuple) else y


def from_half_spectrum(block: Block, dims: tuple[int, ...], length: int, sign: int, engine: str) -> Block:
    """The transpose of `half_spectrum` as a real-linear map: the real part of the sum over half of a spectrum, an array
    or two planes; the last of the dimensions comes out with `length` points.

    It doubles nothing: an inverse transform multiplies by 1, 2, ..., 2, 1 first (for odd N the last is doubled too).
    """
    if engine == "matmul" and factors(length):
        x = _from_half(_others(split(block), dims, sign), dims[-1], length, sign)
    else:  # XLA's has sign +1 and doubles all bins but 0 and N / 2
        y = fft(join(split(block)), dims[:-3], sign, "xla")
        shape = [y.shape[d] for d in dims[-3:-1]] + [length]
        halves = np.where(_inner(length), 0.5, 1.0).astype(y.real.dtype)
        y = scaled(jnp.conj(y) if sign < 0 else y, _along(halves, dims[-1], y.ndim))
        x = jnp.fft.irfftn(y, shape, axes=dims[-3:], norm="forward")
    return (x,) if isinstance(block, tuple) else x


@functools.lru_cache(maxsize=1024)
def factors(length: int) -> tuple[int, ...]:
    """The stages of "matmul": (N,), or (N2, N1); none where it has no product of its own."""
    if length <= DENSE:
        return (length,)
    low = balanced(length, SIDE)[0]
    return (low, length // low) if low < length <= low * SIDE else ()


def _others(planes: Planes, dims: tuple[int, ...], sign: int) -> Planes:
    """All but the last of the dimensions, by XLA."""
    return split(fft(join(planes), dims[:-1], sign, "xla")) if len(dims) > 1 else planes


def _to_half(x: Array, dim: int, sign: int) -> Planes:
    """Half of the spectrum of one dimension, by products."""
    length = x.shape[dim]
    columns, *rest = factors(length)
    if not rest:
        return _unpacked(_times(x, _packed(length, sign), dim), dim)
    (rows,) = rest
    x = _folded(x, dim, columns)
    re, im = (_times(x, part, dim) for part in _roots(columns, columns, columns, sign))
    y = _product(_twiddled((re, im), dim, sign), _roots(rows, _kept(length), rows, sign), dim + 1, dim)
    return tuple(resize(_flat(plane, dim), dim, length // 2 + 1) for plane in y)


def _from_half(planes: Planes, dim: int, length: int, sign: int) -> Array:
    """The same stages backwards, by the transposed tables."""
    columns, *rest = factors(length)
    if not rest:
        cosines, sines = planes
        sines = lax.slice_in_dim(sines, 1, 1 + length - cosines.shape[dim], axis=dim)  # the others are zero
        return _times(lax.concatenate([cosines, sines], dim), _packed(length, -sign).T, dim)
    (rows,) = rest
    kept = _kept(length)
    y = tuple(_folded(resize(plane, dim, kept * columns), dim, kept) for plane in planes)
    a = _twiddled(_product(y, _roots(kept, rows, rows, sign), dim, dim + 1), dim, sign)
    re, im = _roots(columns, columns, columns, sign)
    return _flat(_times(a[0], re, dim) - _times(a[1], im, dim), dim)


def _kept(length: int) -> int:
    """The values of k1 that hold k <= N // 2."""
    return length // 2 // factors(length)[0] + 1


def _inner(length: int) -> np.ndarray:
    """True for the bins of half of a spectrum that stand for two of all: 0 < k < N / 2."""
    k = np.arange(length // 2 + 1)
    return (k > 0) & (2 * k < length)


def _roots(rows: int, columns: int, length: int, sign: int) -> HostPlanes:
    """exp(sign 2 pi i r c / length) in split complex, not yet rounded."""
    roots = table(rows, columns, length, sign, np.dtype(complex))
    return roots.real, roots.imag


def _packed(length: int, sign: int) -> np.ndarray:
    """The cosines and sines of the dense product, (n, packed k)."""
    re, im = _roots(length, length // 2 + 1, length, sign)
    return np.concatenate([re, im[:, _inner(length)]], axis=1)


def _unpacked(y: Array, dim: int) -> Planes:
    """The planes that were packed: the imaginary one is the tail, moved by one, zero where it has no sines."""
    length = y.shape[dim]
    half, zero = length // 2 + 1, jnp.zeros((), y.dtype)
    moved = [(1 - half, 2 * half - 1 - length, 0) if d == dim else (0, 0, 0) for d in range(y.ndim)]
    im = jnp.where(_along(_inner(length), dim, y.ndim), lax.pad(y, zero, moved), zero)
    return resize(y, dim, half), im


def _twiddled(a: Planes, dim: int, sign: int) -> Planes:
    """a[k2, n1] w_N^(n1 k2), in dimension `dim` and the next."""
    columns, rows = a[0].shape[dim : dim + 2]
    re, im = (_along(part, dim, a[0].ndim).astype(a[0].dtype) for part in _roots(columns, rows, columns * rows, sign))
    return a[0] * re - a[1] * im, a[0] * im + a[1] * re


def _product(a: Planes, matrix: HostPlanes, dim: int, to: int) -> Planes:
    """Dimension `dim` times a complex matrix, as three real products (Gauss); the result stands at `to`."""
    (x, y), (re, im) = a, matrix
    both = _times(x + y, re, dim, to)
    return both - _times(y, re + im, dim, to), both + _times(x, im - re, dim, to)


def _times(x: Array, matrix: np.ndarray, dim: int, to: int | None = None) -> Array:
    """Contracts dimension `dim` with the rows of a matrix; its columns stand at `to`, or replace it.

    On the CPU it is the sum of short float sums.
    """
    rounded, to = matrix.astype(x.dtype), dim if to is None else to

    def contracted(x: Array, matrix: np.ndarray) -> Array:
        y = lax.dot_general(x, matrix, (((dim,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)
        return jnp.moveaxis(y, -1, to)

    def by_runs(x: Array) -> Array:
        runs = [(start, min(start + RUN, len(rounded))) for start in range(0, len(rounded), RUN)]
        parts = (contracted(lax.slice_in_dim(x, *run, axis=dim), rounded[slice(*run)]) for run in runs)
        return functools.reduce(jnp.add, parts)

    return lax.platform_dependent(x, cpu=by_runs, default=lambda x: contracted(x, rounded))


def _folded(x: Array, dim: int, rows: int) -> Array:
    """A dimension as two, the first of some rows."""
    return x.reshape(*x.shape[:dim], rows, -1, *x.shape[dim + 1 :])


def _flat(x: Array, dim: int) -> Array:
    """A dimension and the next as one."""
    return x.reshape(*x.shape[:dim], -1, *x.shape[dim + 2 :])


def _along(values: np.ndarray, dim: int, ndim: int) -> np.ndarray:
    """Values that vary along `dim`, and the dimensions that follow it if they have more."""
    return values.reshape(*(1,) * dim, *values.shape, *(1,) * (ndim - dim - values.ndim))
