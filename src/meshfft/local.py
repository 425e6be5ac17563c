"""One device's FFT of dimensions that it holds whole.

The engines compute the same sum X[k] = sum_n x[n] exp(sign 2 pi i k n / N):

- "xla": XLA's own FFT. Fastest along the last dimensions; along others it transposes there and back. Long lengths with
  a large prime are convolved with a chirp, each platform its way (see chirp).
- "chirp": the same, as plans call it where there is such a length.
- "stockham": radices 4, 2 and 3, N = r_1 r_2 ... r_L, without a transpose. With n = a M + b and k = c + r k', by stages

      y[c, b] = exp(sign 2 pi i b c / N) sum_a exp(sign 2 pi i a c / r) x[a, b],   then the same over b with N <- M.

  Each stage puts its new index c in front, so the last one leaves k in natural order. All stages are done for a few
  columns at a time, which stay in cache: memory is read and written once.

Tables are made in float64 on the host from exact integer phases and rounded once.
"""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .chirp import chirp_fft, folds, is_awkward, padded_length, prime_factors

CACHE_BYTES = 2**19  # columns worked on at a time: half of a core's second-level cache (EPYC 9004: 1 MiB)
NARROWEST = 16  # elements behind the dimension, below which vector units idle


def fft(block: Array, dims: tuple[int, ...], sign: int, engine: str) -> Array:
    """Transforms whole dimensions of a complex block, unscaled.

    Costs about 5 N log2 N flops a line.
    """
    dims = tuple(d for d in dims if block.shape[d] > 1)
    if engine == "stockham":
        with jax.named_scope("fft"):  # profiles know it by its name, as they know XLA's
            return functools.reduce(lambda block, dim: _stockham(block, dim, sign), dims, block)
    if not any(is_awkward(block.shape[dim]) for dim in dims):
        return _by_xla(block, dims, sign)
    ways = {"cpu": "lines", "tpu": "products", "default": "ffts"}
    branches = {where: functools.partial(_with_chirps, dims=dims, sign=sign, way=way) for where, way in ways.items()}
    return lax.platform_dependent(block, **branches)


def fft_error(length: int, itemsize: int) -> float:
    """The relative L2 error to expect of one dimension: half a bit of rounding for each of log2 N stages, in the mean.

    Lengths with large primes go through longer transforms, and have twice as much.
    """
    if length == 1:
        return 0.0
    unit = (2.0**-24 if itemsize == 8 else 2.0**-53) * (2 if max(prime_factors(length)) > 64 else 1)
    return unit * math.sqrt(max(math.log2(length), 4.0))


def flops_of(length: int) -> float:
    """Flops for each point of a line: 5 log2 N, and more where it goes through a longer one."""
    if not is_awkward(length):
        return 5 * math.log2(max(length, 1))
    size = padded_length(length)
    return (4 * 5 * math.log2(size) + 12) * size / length + 26


def fits_stockham(block: Sequence[int], dim: int, length: int) -> bool:
    """True where "stockham" may be offered: a length of twos and threes, and whole vectors behind the dimension."""
    return math.prod(block[dim + 1 :]) >= NARROWEST and max(radices(length), default=1) <= 4


@functools.cache
def radices(length: int) -> tuple[int, ...]:
    """Fours first, then the prime factors that are left, in rising order."""
    fours, rest = 0, length
    while rest % 4 == 0:
        fours, rest = fours + 1, rest // 4
    return (4,) * fours + prime_factors(rest)


@functools.cache
def balanced(length: int, side: int) -> tuple[int, ...]:
    """Two or three factors of at most `side` for the stages of a transform by products; a large prime stands alone.

    Up to twice the side one product is cheaper than two stages.
    """
    if length <= 2 * side:
        return (length,)
    low = max((d for d in range(2, side + 1) if length % d == 0), default=1)
    return (length,) if low == 1 else (low, *balanced(length // low, side))


@functools.cache
def stages(length: int, side: int) -> tuple[int, ...]:
    """The factors of the products that a transform takes on a matrix unit, each over all points of a line.

    A chirp goes there and back over twice the points.
    """
    rows, columns = folds(length)
    return (rows, columns, columns, rows) * 2 if is_awkward(length) else balanced(length, side)


@functools.cache
def table(rows: int, columns: int, length: int, sign: int, dtype: np.dtype) -> np.ndarray:
    """exp(sign 2 pi i r c / length), reduced exactly in 64-bit integers, rounded once."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    return np.exp(sign * 2j * np.pi * (turns / length)).astype(dtype)


def resize(block: Array, dim: int, size: int) -> Array:
    """Crops a dimension, or pads it with zeros at the tail, to `size`."""
    kept = lax.slice_in_dim(block, 0, min(size, block.shape[dim]), axis=dim)
    widths = [(0, size - kept.shape[dim] if d == dim else 0) for d in range(block.ndim)]
    return jnp.pad(kept, widths) if size > kept.shape[dim] else kept


def _with_chirps(block: Array, dims: tuple[int, ...], sign: int, way: str) -> Array:
    awkward = tuple(d for d in dims if is_awkward(block.shape[d], cached=way == "lines"))
    block = functools.reduce(lambda block, dim: chirp_fft(block, dim, sign, way), awkward, block)
    return _by_xla(block, tuple(d for d in dims if d not in awkward), sign)


def _by_xla(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """XLA takes three dimensions at a time."""
    while dims:
        block, dims = _xla_fft(block, dims[-3:], sign), dims[:-3]
    return block


def _xla_fft(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """XLA's FFT is unscaled forward; backward it divides by N, which norm="forward" undoes."""
    return jnp.fft.fftn(block, axes=dims) if sign < 0 else jnp.fft.ifftn(block, axes=dims, norm="forward")


def _stockham(block: Array, dim: int, sign: int) -> Array:
    """Columns by columns in place: full groups in a loop, what remains once."""
    shape = block.shape
    before, length, after = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    width = min(after, max(NARROWEST, CACHE_BYTES // (length * block.dtype.itemsize)))
    groups = after // width
    lines = block.reshape(before, length, after)

    def columns(lines: Array, row: Array | int, column: Array | int, width: int) -> Array:
        part = lax.dynamic_slice(lines, (row, 0, column), (1, length, width))
        done = _stages(part.reshape(length, width), sign).reshape(1, length, width)
        return lax.dynamic_update_slice(lines, done, (row, 0, column))

    def full(i: Array, lines: Array) -> Array:
        return columns(lines, i // groups, i % groups * width, width)

    lines = lax.fori_loop(0, before * groups, full, lines)
    if rest := after - groups * width:
        lines = lax.fori_loop(0, before, lambda i, lines: columns(lines, i, groups * width, rest), lines)
    return lines.reshape(shape)


def _stages(lines: Array, sign: int) -> Array:
    """The FFT along dimension 0 of (N, columns); `done` counts the outputs already in front."""
    shape, done, left = lines.shape, 1, lines.shape[0]
    for radix in radices(left):
        rest = left // radix
        lines = _butterfly(lines.reshape(done, radix, rest, -1), radix, sign)
        if rest > 1:
            lines = lines * table(radix, rest, left, sign, lines.dtype)[:, None, :, None]
        done, left = done * radix, rest
    return lines.reshape(shape)


def _butterfly(lines: Array, radix: int, sign: int) -> Array:
    """The DFT over dimension 1 of (done, radix, rest, columns), whose outputs come out in front."""
    x = [lines[:, a] for a in range(radix)]
    if radix == 4:
        even, odd, turned = x[0] + x[2], x[1] + x[3], _quarter(x[1] - x[3], sign)
        return jnp.stack([even + odd, x[0] - x[2] + turned, even - odd, x[0] - x[2] - turned])
    if radix == 2:
        return jnp.stack([x[0] + x[1], x[0] - x[1]])
    pair, turned = x[1] + x[2], _quarter((x[1] - x[2]) * math.sqrt(0.75), sign)
    return jnp.stack([x[0] + pair, x[0] - pair * 0.5 + turned, x[0] - pair * 0.5 - turned])


def _quarter(x: Array, sign: int) -> Array:
    """A quarter turn, without a product."""
    return lax.complex(-sign * jnp.imag(x), sign * jnp.real(x))
