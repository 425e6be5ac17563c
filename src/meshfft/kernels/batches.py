"""XLA's FFT on one batch of lines at a time, in place, where memory is short.

XLA's FFT on a GPU writes beside its input (openxla/xla, xla/backends/gpu/runtime/fft_thunk.cc), and cuFFT takes a
workspace besides. In a loop that updates one array only the batch has such copies: 2048^3 complex64, 64 GiB, take 64.1
GiB where the input is donated and 128.1 else, by what XLA's compiler says of a program for an H200 (jax 0.10.2 and
0.11.2; the workspace, here of a batch, is not in that). Invariant: the array keeps its row-major layout. XLA on a GPU
would else carry it through the loop transposed, as the FFT wants its lines, which takes one or two arrays more.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint

from ..collectives.all_to_all import Grid
from ..machine.chip import Chip
from ..machine.work import Work
from .engine import Engine, Lines, Offer, Site
from .xla import XLA, fft

BATCH_BYTES = 2**25  # a batch and its transform are about what the second-level cache of an H100 or H200 holds
COPIES = 5  # of a batch: as it lies, in lines, transformed, as it is to lie, and a workspace
LIMIT = 2**31  # of positions, which a loop counts in 32 bits


@dataclasses.dataclass(frozen=True)
class Batched(Engine[Array]):
    """Batches of lines. They cost more passes, so that a search takes them only where all at once does not fit."""

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        chip = site.machine.chip
        if chip.capacity is not None and chip.side == 1 and lines.block == lines.shape:
            if fits(lines.block, lines.dims, site.itemsize):
                yield cls(), lines.dims

    @property
    def name(self) -> str:
        return "batched"

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        alive = (math.prod(lines.block) + lines.points) * itemsize + batch_bytes(lines.lengths, itemsize)
        nbytes = passes(lines.block, lines.dims, itemsize) * lines.points * itemsize
        return dataclasses.replace(XLA.work(lines, itemsize, chip), memory_bytes=nbytes, peak_bytes=alive)

    def apply(self, block: Array, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Array:
        return in_batches(block, dims, sign)


def in_batches(block: Array, dims: tuple[int, ...], sign: int) -> Array:
    """Transforms dimensions of a complex block, unscaled, one batch after the other."""
    dims = tuple(d for d in dims if block.shape[d] > 1)
    for run in _runs(block.shape, dims, block.dtype.itemsize) if block.size else ():
        block = _in_batches(block, *run, sign)
    return block


def fits(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> bool:
    """True where every position that a loop counts has 32 bits."""
    return all(max(_sides(shape, *run)) < LIMIT for run in _runs(shape, dims, itemsize))


def batch_bytes(lengths: Sequence[int], itemsize: int) -> int:
    """Bytes that the copies of a batch take."""
    return COPIES * max(BATCH_BYTES, max(lengths) * itemsize)


def passes(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> int:
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
        part = _rowmajor(fft(part, tuple(range(2, 2 + many)), sign))
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
