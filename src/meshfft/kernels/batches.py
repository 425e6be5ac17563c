"""XLA's FFT on one batch of lines at a time, in place, if memory is short.

XLA's FFT on a GPU writes to a second array (openxla/xla, xla/backends/gpu/runtime/fft_thunk.cc), and cuFFT needs a
workspace. In a loop only the batch is copied: 2048^3 complex64, 64 GiB, takes 64.1 GiB if the input is donated, else
128.1 (XLA's compiler for an H200, jax 0.10.2 and 0.11.2, without the workspace). Invariant: the array keeps its
row-major layout. Otherwise XLA on a GPU transposes it for the whole loop, at one or two arrays more.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental.layout import Layout, with_layout_constraint

from ..collectives.all_to_all import Grid
from ..machine.chip import Chip
from ..machine.work import Work
from .engine import Engine, Lines, Offer, Site
from .xla import XLA, fft

BATCH_BYTES = 2**25  # a batch and its transform about fill the second-level cache of an H100 or H200
COPIES = 5  # of a batch: sliced, in lines, transformed, transposed back, and a workspace
LIMIT = 2**31  # bound on positions, which a loop counts in 32 bits


@dataclasses.dataclass(frozen=True)
class Batched(Engine[Array]):
    """FFTs in batches. They cost more passes, so a search takes them only if one call exceeds memory."""

    by_xla: ClassVar[bool] = True

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
    dims = tuple(d for d in dims if block.shape[d] > 1)
    for run in _runs(block.shape, dims, block.dtype.itemsize) if block.size else ():
        block = _in_batches(block, *run, sign)
    return block


def fits(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> bool:
    return all(max(_sides(shape, *run)) < LIMIT for run in _runs(shape, dims, itemsize))


def batch_bytes(lengths: Sequence[int], itemsize: int) -> int:
    return COPIES * max(BATCH_BYTES, max(lengths) * itemsize)


def passes(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> int:
    """Reads and writes of the array: batches are taken out, transformed and put back, transposed if needed."""
    return sum(2 * (2 + many + (first + many < len(shape))) for first, many in _runs(shape, dims, itemsize))


def _runs(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> list[tuple[int, int]]:
    """(first, number) of neighbouring dimensions that a batch holds together, last first."""
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
