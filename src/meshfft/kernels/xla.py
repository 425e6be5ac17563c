"""XLA's own FFT of dimensions that no mesh axis cuts; all but the last are transposed there and back. Long lengths with
a large prime use a chirp (bluestein.py), and on TPUs some use two stages (factors.py).

XLA's FFT on a GPU writes to a second array, and cuFFT needs a workspace. If memory is short, a loop transforms a batch
of lines at a time in place. Invariant: the array keeps its row-major layout; otherwise XLA transposes it for the whole
loop, which takes one or two more arrays.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.all_to_all import Grid
from ..layout.layout import LIMIT
from ..layout.placement import row_major
from ..machine.chip import Chip, rounded_up
from ..machine.machine import Work
from ..numerics.phases import mulmod, roots, table
from ..numerics.split_complex import Planes, folded, join, split, times, unfolded
from .base import Engine, Lines, Offer, Site, flops_of
from .bluestein import chirp_fft, is_awkward
from .factors import LONG, takes_chirp, way_of

# Passes over a block on a matrix unit: transposes per dimension, and three real products per stage. Fitted to the
# cycles of TPU v3 and v5p.
UNIT_PASSES = 3
STAGE_PASSES = 5
TWIDDLE_PASSES, TWIDDLE_COPIES = 3, 2  # more for each length in two, fitted to TPU v5e
CALL_DIMS = 3  # most of one call
BEHIND_PASSES = 10  # for each dimension behind the lines, which are transposed
MOVED_PASSES = 4  # for all of them on a GPU
CACHED_PASSES, CACHED_BEHIND = 2, 8  # on a CPU, and for all dimensions behind; fitted to blocks of 30 kB to 2 MB
BATCH_BYTES = 2**25  # a batch and its transform about fill the second-level cache of an H100 or H200
COPIES = 5  # of a batch: sliced, in lines, transformed, transposed back, workspace
TABLE = 2**16  # most points of a host table


@dataclasses.dataclass(frozen=True)
class Xla(Engine[Array]):
    by_xla: ClassVar[bool] = True
    chirp: bool = False  # longer lines for a large prime
    products: bool = False  # on a matrix unit

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        chip = site.machine.chip
        yield cls(any(takes_chirp(length, chip) for length in lines.lengths), chip.side > 1), lines.dims

    @classmethod
    def least(cls, rows: int, points: float, nbytes: int, site: Site) -> Work:
        """Arithmetic and one pass over memory; in a cache two dimensions share a pass."""
        chip = site.machine.chip
        if chip.side > 1:
            return Work(int(6 * sum(way_of(rows).rows) * points), "bf16x6", memory_bytes=2 * nbytes)
        passes = 1 if chip.cached else 2
        return Work(vector_flops=int(5 * points * math.log2(max(rows, 1))), memory_bytes=passes * nbytes)

    @property
    def name(self) -> str:
        return "chirp" if self.chirp else "xla"

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        """Products on a matrix unit, else 5 N log2 N flops a line; transposes if dimensions are behind."""
        points, wide = lines.points, 2 if self.chirp and not chip.cached else 1
        behind = lines.behind
        copies = 1 + (behind > 0) if chip.cached and not self.chirp else 3 * wide  # CPUs transpose into the result
        if chip.switched and not self.chirp:  # result, workspace of cuFFT, moved lines
            several = len(lines.dims) > CALL_DIMS
            copies = 2 + (behind > 0 or several) + several
        ways = [way_of(length) for length in lines.lengths] if chip.side > 1 else []
        copies += TWIDDLE_COPIES * any(way.twos for way in ways)
        alive = (math.prod(lines.block) + copies * points) * itemsize
        if ways:
            radices = [radix for way in ways for radix in way.rows]
            rows = sum(rounded_up(radix, chip.side) for radix in radices)
            times = UNIT_PASSES * len(ways) + TWIDDLE_PASSES * sum(way.twos for way in ways)
            return Work(
                matrix_flops=6 * rows * points,
                tier="bf16x6",
                memory_bytes=times * points * itemsize,
                fed_bytes=STAGE_PASSES * len(radices) * points * itemsize,
                peak_bytes=alive,
            )
        if chip.cached:
            passes = CACHED_PASSES + CACHED_BEHIND * (behind > 0)
        else:
            passes = MOVED_PASSES * (behind > 0) if chip.switched else BEHIND_PASSES * behind
        passes += 2 * len(lines.dims)
        flops = round(points * sum(map(flops_of, lines.lengths)))
        return Work(vector_flops=flops, memory_bytes=passes * points * itemsize, peak_bytes=alive)

    def apply(self, block: Array, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Array:
        return fft(block, dims, sign, self.products)


XLA = Xla()


def fft(block: Array, dims: tuple[int, ...], sign: int, products: bool = False) -> Array:
    """Transforms dimensions of a complex block, unscaled. Costs about 5 N log2 N flops a line.

    Where it is not known to run on a matrix unit (`products`), only long lines have a program for each platform: these
    take time to trace.
    """
    dims = tuple(d for d in dims if block.shape[d] > 1)
    lengths = [block.shape[dim] for dim in dims]
    if products:
        return _each_way(block, dims, sign, "products")
    if not any(is_awkward(length) or (length > LONG and not way_of(length).by_xla) for length in lengths):
        return _by_xla(block, dims, sign)
    ways = {"cpu": "lines", "tpu": "products", "default": "ffts"}
    branches = {where: functools.partial(_each_way, dims=dims, sign=sign, way=way) for where, way in ways.items()}
    return lax.platform_dependent(block, **branches)


def _each_way(block: Array, dims: tuple[int, ...], sign: int, way: str) -> Array:
    rest = list[int]()
    for dim in dims:
        best, chirp = way_of(block.shape[dim]), is_awkward(block.shape[dim], way == "lines")
        if way == "products" and best.radix:
            block = _in_two(block, dim, best.radix, sign)
        elif best.chirp if way == "products" else chirp:
            block = chirp_fft(block, dim, sign, way)
        else:
            rest.append(dim)
    return _by_xla(block, tuple(rest), sign)


def _in_two(block: Array, dim: int, radix: int, sign: int) -> Array:
    lines = _each_way(unfolded(block, dim, radix), (dim,), sign, "products")
    lines = _each_way(join(twiddled(split(lines), dim, sign)), (dim + 1,), sign, "products")
    return folded(lines.swapaxes(dim, dim + 1), dim)


def _by_xla(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """Three dimensions per call, not by jnp.fft, which traces longer. Backward XLA divides by N."""
    while dims:
        last, dims = dims[-CALL_DIMS:], dims[:-CALL_DIMS]
        order = (*(d for d in range(block.ndim) if d not in last), *last)
        lengths = tuple(block.shape[d] for d in last)
        moved = block if order == tuple(range(block.ndim)) else lax.transpose(block, order)
        lines = lax.fft(moved, lax.FftType.FFT if sign < 0 else lax.FftType.IFFT, lengths)
        lines = lines if sign < 0 else lines * lines.dtype.type(math.prod(lengths))
        block = lines if moved is block else lax.transpose(lines, np.argsort(order))
    return block


def twiddled(lines: Planes, dim: int, sign: int) -> Planes:
    """lines[r, c] exp(sign 2 pi i r c / N) along `dim` and the next dimension, of N points in all."""
    rows, columns = lines[0].shape[dim : dim + 2]
    length, real = rows * columns, lines[0].dtype
    if length <= TABLE:
        entries = table(rows, columns, length, sign, np.dtype(complex))
        factors: Planes = (jnp.asarray(entries.real, real), jnp.asarray(entries.imag, real))
    else:
        c, b = jnp.arange(rows, dtype=jnp.uint32)[:, None], jnp.arange(columns, dtype=jnp.uint32)[None, :]
        factors = roots(mulmod(c, b, length), length, sign, real)
    shape = tuple(n if d in (dim, dim + 1) else 1 for d, n in enumerate(lines[0].shape))
    return times(lines, tuple(part.reshape(shape) for part in factors))


@dataclasses.dataclass(frozen=True)
class Batched(Engine[Array]):
    """XLA's FFT in batches. They cost more passes, so a search takes them only if memory is short."""

    by_xla: ClassVar[bool] = True
    name = "batched"

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        chip = site.machine.chip
        if chip.capacity is not None and chip.side == 1 and lines.block == lines.shape:
            if fits(lines.block, lines.dims, site.itemsize):
                yield cls(), lines.dims

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        batch = COPIES * max(BATCH_BYTES, max(lines.lengths) * itemsize)
        alive = (math.prod(lines.block) + lines.points) * itemsize + batch
        runs = _runs(lines.block, lines.dims, itemsize)
        passes = sum(2 * (2 + many + (first + many < len(lines.block))) for first, many in runs)
        nbytes = passes * lines.points * itemsize
        return dataclasses.replace(XLA.work(lines, itemsize, chip), memory_bytes=nbytes, peak_bytes=alive)

    def apply(self, block: Array, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Array:
        dims = tuple(d for d in dims if block.shape[d] > 1)
        for run in _runs(block.shape, dims, block.dtype.itemsize) if block.size else ():
            block = _in_batches(block, *run, sign)
        return block


def fits(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> bool:
    return all(max(_sides(shape, *run)) < LIMIT for run in _runs(shape, dims, itemsize))


def _runs(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> list[tuple[int, int]]:
    """(first, number) of neighbouring dimensions that a batch holds, last first."""
    runs: list[tuple[int, int]] = []
    for dim in sorted(dims, reverse=True):
        first, many = runs[-1] if runs else (-1, 0)
        if dim + 1 == first and math.prod(shape[dim : first + many]) * itemsize <= BATCH_BYTES:
            runs[-1] = (dim, many + 1)
        else:
            runs.append((dim, 1))
    return runs


def _sides(shape: Sequence[int], first: int, many: int) -> tuple[int, int]:
    return math.prod(shape[:first]), math.prod(shape[first + many :])


def _in_batches(block: Array, first: int, many: int, sign: int) -> Array:
    """Batches of rows with all columns, or of columns of one row; then the remainders."""
    shape, (before, after) = block.shape, _sides(block.shape, first, many)
    lines = shape[first : first + many]
    room = max(1, BATCH_BYTES // (math.prod(lines) * block.dtype.itemsize))
    wide = min(after, room)
    high = min(before, room // after) if wide == after else 1
    across, down = after // wide, before // high

    def batch(row: Array | int, column: Array | int, high: int, wide: int, array: Array) -> Array:
        at = (row, *[0] * many, column)
        part = row_major(lax.dynamic_slice(array, at, (high, *lines, wide)))
        part = row_major(jnp.moveaxis(part, -1, 1))
        part = row_major(fft(part, tuple(range(2, 2 + many)), sign))
        return lax.dynamic_update_slice(array, row_major(jnp.moveaxis(part, 1, -1)), at)

    def full(i: Array, array: Array) -> Array:
        return batch(i // across * high, i % across * wide, high, wide, array)

    array = lax.fori_loop(0, down * across, full, block.reshape(before, *lines, after))
    if rest := after - across * wide:
        array = lax.fori_loop(0, before, lambda i, array: batch(i, across * wide, 1, rest, array), array)
    if rest := before - down * high:
        array = batch(down * high, 0, rest, after, array)
    return array.reshape(shape)
