"""One device's FFT of dimensions that are not cut.

The engines compute the same sum X[k] = sum_n x[n] exp(sign 2 pi i k n / N):

- "xla": XLA's own FFT. Fastest along the last dimensions; along others it transposes there and back. Long lengths with
  a large prime are convolved with a chirp, each platform its way (see bluestein).
- "chirp": the same, as plans call it where there is such a length.
- "cached": a few lines at a time and in place, so that they stay in a core's cache, without a transpose (see stockham).
- "batched": XLA's on one batch of lines at a time, in place, where memory is short.

XLA's FFT on a GPU writes beside its input (openxla/xla, xla/backends/gpu/runtime/fft_thunk.cc), and cuFFT takes a
workspace besides. In a loop that updates one array only the batch has such copies: 2048^3 complex64, 64 GiB, take 64.1
GiB where the input is donated and 128.1 else, by what XLA's compiler says of a program for an H200 (jax 0.10.2 and
0.11.2; the workspace, here of a batch, is not in that). Invariant: the array keeps its row-major layout. XLA on a GPU
would else carry it through the loop transposed, as the FFT wants its lines, which takes one or two arrays more.
"""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint

from ..collectives.all_to_all import Grid
from ..numerics.dtypes import unit_of
from .bluestein import chirp_fft, folds, is_awkward, padded_length, prime_factors
from .stockham import in_place

BATCH_BYTES = 2**25  # a batch and its transform are about what the second-level cache of an H100 or H200 holds
COPIES = 5  # of a batch: as it lies, in lines, transformed, as it is to lie, and a workspace
LIMIT = 2**31  # of positions, which a loop counts in 32 bits
SUMMED, LARGEST_SUM = 0.14, 131  # roundings for each term of a sum that is all of one sign; terms, at most


def fft(block: Array, dims: tuple[int, ...], sign: int, engine: str, grid: Grid = (), plain: bool = False) -> Array:
    """Transforms dimensions of a complex block, unscaled; "cached" in chunks along a grid (see `in_place`).

    Costs about 5 N log2 N flops a line.
    """
    dims = tuple(d for d in dims if block.shape[d] > 1)
    if engine == "cached":
        with jax.named_scope("fft"):  # profiles know it by its name, as they know XLA's
            return in_place(block, dims, sign, grid, plain)
    if engine == "batched":
        for run in _runs(block.shape, dims, block.dtype.itemsize) if block.size else ():
            block = _in_batches(block, *run, sign)
        return block
    if not any(is_awkward(block.shape[dim]) for dim in dims):
        return _by_xla(block, dims, sign)
    ways = {"cpu": "lines", "tpu": "products", "default": "ffts"}
    branches = {where: functools.partial(_with_chirps, dims=dims, sign=sign, way=way) for where, way in ways.items()}
    return lax.platform_dependent(block, **branches)


def _with_chirps(block: Array, dims: tuple[int, ...], sign: int, way: str) -> Array:
    awkward = tuple(d for d in dims if is_awkward(block.shape[d], cached=way == "lines"))
    for dim in awkward:
        block = chirp_fft(block, dim, sign, way)
    return _by_xla(block, tuple(d for d in dims if d not in awkward), sign)


def _by_xla(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """XLA takes three dimensions at a time. Backward it divides by N, which norm="forward" undoes."""
    while dims:
        last, dims = dims[-3:], dims[:-3]
        block = jnp.fft.fftn(block, axes=last) if sign < 0 else jnp.fft.ifftn(block, axes=last, norm="forward")
    return block


def fft_error(length: int, itemsize: int) -> float:
    """The relative L2 error to expect of one dimension: half a bit of rounding for each of log2 N stages, in the mean.

    Lengths with large primes go through longer transforms, and have twice as much. XLA on a CPU adds up the terms of a
    prime up to 131 one after the other. Of a constant line, or a wave, they grow to a sum p times as large, and 0.14 p
    roundings are the most that was measured.
    """
    if length == 1:
        return 0.0
    prime = max(prime_factors(length))
    stages = math.sqrt(max(math.log2(length), 4.0)) * (2 if prime > 64 else 1)
    return unit_of(itemsize) * math.hypot(stages, SUMMED * prime if prime <= LARGEST_SUM else 0.0)


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


def fits_batches(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> bool:
    """True where every position that a loop counts has 32 bits."""
    return all(max(_sides(shape, *run)) < LIMIT for run in _runs(shape, dims, itemsize))


def batch_bytes(lengths: Sequence[int], itemsize: int) -> int:
    """Bytes that the copies of a batch take."""
    return COPIES * max(BATCH_BYTES, max(lengths) * itemsize)


def batch_passes(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> int:
    """How often the array is read and written: batches are taken out (transposed on the way), transformed, perhaps
    transposed back, and put back.
    """
    return sum(2 * (2 + many + (first + many < len(shape))) for first, many in _runs(shape, dims, itemsize))


def _runs(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> list[tuple[int, int]]:
    """Dimensions, or neighbours together where a batch holds both: the first and the number of each run, last first."""
    runs: list[tuple[int, int]] = []
    for dim in sorted(dims, reverse=True):
        first, many = runs[-1] if runs else (-1, 0)
        if dim + 1 == first and math.prod(shape[dim : first + many]) * itemsize <= BATCH_BYTES:
            runs[-1] = (dim, many + 1)
        else:
            runs.append((dim, 1))
    return runs


def _sides(shape: Sequence[int], first: int, many: int) -> tuple[int, int]:
    """Positions before and behind some dimensions."""
    return math.prod(shape[:first]), math.prod(shape[first + many :])


def _in_batches(block: Array, first: int, many: int, sign: int) -> Array:
    """Some rows with all that is behind the lines, or one row and some columns; then what remains of either."""
    shape, (before, after) = block.shape, _sides(block.shape, first, many)
    lines = shape[first : first + many]
    room = max(1, BATCH_BYTES // (math.prod(lines) * block.dtype.itemsize))
    wide = min(after, room)
    high = min(before, room // after) if wide == after else 1
    across, down = after // wide, before // high

    def batch(row: Array | int, column: Array | int, high: int, wide: int, array: Array) -> Array:
        at = (row, *[0] * many, column)
        part = _rowmajor(lax.dynamic_slice(array, at, (high, *lines, wide)))
        part = _rowmajor(jnp.moveaxis(part, -1, 1))
        part = _rowmajor(fft(part, tuple(range(2, 2 + many)), sign, "xla"))
        return lax.dynamic_update_slice(array, _rowmajor(jnp.moveaxis(part, 1, -1)), at)

    def full(i: Array, array: Array) -> Array:
        return batch(i // across * high, i % across * wide, high, wide, array)

    array = lax.fori_loop(0, down * across, full, block.reshape(before, *lines, after))
    if rest := after - across * wide:
        array = lax.fori_loop(0, before, lambda i, array: batch(i, across * wide, 1, rest, array), array)
    if rest := before - down * high:
        array = batch(down * high, 0, rest, after, array)
    return array.reshape(shape)


def _rowmajor(x: Array) -> Array:
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))
