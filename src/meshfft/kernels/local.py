"""One device's FFT of dimensions that it holds whole.

The engines compute the same sum X[k] = sum_n x[n] exp(sign 2 pi i k n / N):

- "xla": XLA's own FFT. Fastest along the last dimensions; along others it transposes there and back. Long lengths with
  a large prime are convolved with a chirp, each platform its way (see chirp).
- "chirp": the same, as plans call it where there is such a length.
- "grouped": XLA's on a group of lines after the other, in place, where memory is short (see line_batches).
- "cached": a few lines at a time and in place, so that they stay in a core's cache, without a transpose (see stockham).
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..collectives.all_to_all import Grid
from .bluestein import chirp_fft, folds, is_awkward, padded_length, prime_factors
from .line_batches import in_groups
from .stockham import in_place


def fft(block: Array, dims: tuple[int, ...], sign: int, engine: str, grid: Grid = (), whole: bool = False) -> Array:
    """Transforms whole dimensions of a complex block, unscaled; "cached" in pieces along a grid (see `in_place`).

    Costs about 5 N log2 N flops a line.
    """
    dims = tuple(d for d in dims if block.shape[d] > 1)
    if engine == "cached":
        with jax.named_scope("fft"):  # profiles know it by its name, as they know XLA's
            return in_place(block, dims, sign, grid, whole)
    if engine == "grouped":
        return in_groups(block, dims, lambda part, many: fft(part, tuple(range(part.ndim))[-many:], sign, "xla"))
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


@functools.lru_cache(maxsize=1024)
def balanced(length: int, side: int) -> tuple[int, ...]:
    """Two or three factors of at most `side` for the stages of a transform by products; a large prime stands alone.

    Up to twice the side one product is cheaper than two stages.
    """
    if length <= 2 * side:
        return (length,)
    low = max((d for d in range(2, side + 1) if length % d == 0), default=1)
    return (length,) if low == 1 else (low, *balanced(length // low, side))


@functools.lru_cache(maxsize=1024)
def stages(length: int, side: int) -> tuple[int, ...]:
    """The factors of the products that a transform takes on a matrix unit, each over all points of a line.

    A chirp goes there and back over twice the points.
    """
    rows, columns = folds(length)
    return (rows, columns, columns, rows) * 2 if is_awkward(length) else balanced(length, side)


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
