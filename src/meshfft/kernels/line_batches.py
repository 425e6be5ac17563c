"""Whole dimensions a group of lines at a time, in place: memory for one array where all at once would take several.

    for every group:   array[group] = transform(array[group])

XLA's FFT on a GPU writes beside its input, and cuFFT takes a workspace besides. In a loop that updates one array only
the group has such copies: 2048^3 complex64, 64 GiB, take 64.1 GiB where the input is donated and 128.1 else, by what
XLA's compiler says of a program for an H200 (jax 0.10.2 and 0.11.2; the workspace, here of a group, is not in that).

Knows nothing of Fourier. Invariant: the array keeps its row-major layout. XLA on a GPU would else carry it through the
loop as the transform wants its lines, transposed, which takes one or two arrays more.

Source: openxla/xla, xla/backends/gpu/runtime/fft_thunk.cc, where no FFT is in place.
"""

import math
from collections.abc import Callable, Sequence

from jax import Array, lax
from jax import numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

GROUP_BYTES = 2**25  # a group and its transform are about what the second-level cache of an H100 or H200 holds
COPIES = 5  # of a group: as it lies, in lines, transformed, as it is to lie, and a workspace
LIMIT = 2**31  # of positions, which a loop counts in 32 bits
Transform = Callable[[Array, int], Array]


def in_groups(block: Array, dims: Sequence[int], transform: Transform) -> Array:
    """Transforms some dimensions, one after the other, or neighbours together where a group holds both.

    Args:
        block: the array.
        dims: which dimensions.
        transform: of the last so many dimensions of an array, whose shape it keeps.
    """
    for first, many in _joined(block.shape, dims, block.dtype.itemsize) if block.size else ():
        block = _grouped(block, first, many, transform)
    return block


def fits_groups(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> bool:
    """True where every position that a loop counts has 32 bits."""
    return all(max(_sides(shape, *run)) < LIMIT for run in _joined(shape, dims, itemsize))


def group_bytes(lengths: Sequence[int], itemsize: int) -> int:
    """Bytes that the copies of a group take."""
    return COPIES * max(GROUP_BYTES, max(lengths) * itemsize)


def passes(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> int:
    """How often the array is read and written: groups are taken out (lines turned on the way), transformed, perhaps
    turned back, and put back.
    """
    return sum(2 * (2 + many + (first + many < len(shape))) for first, many in _joined(shape, dims, itemsize))


def _joined(shape: Sequence[int], dims: Sequence[int], itemsize: int) -> list[tuple[int, int]]:
    """The first dimension and the number of each run, the last first."""
    runs: list[tuple[int, int]] = []
    for dim in sorted(dims, reverse=True):
        first, many = runs[-1] if runs else (-1, 0)
        small = math.prod(shape[dim : first + many]) * itemsize <= GROUP_BYTES
        if dim + 1 == first and small:
            runs[-1] = (dim, many + 1)
        else:
            runs.append((dim, 1))
    return runs


def _sides(shape: Sequence[int], first: int, many: int) -> tuple[int, int]:
    """Positions before and behind some dimensions."""
    return math.prod(shape[:first]), math.prod(shape[first + many :])


def _grouped(block: Array, first: int, many: int, transform: Transform) -> Array:
    """Some rows with all that is behind the lines, or one row and some columns; then what remains of either."""
    shape, (before, after) = block.shape, _sides(block.shape, first, many)
    lines = shape[first : first + many]
    room = max(1, GROUP_BYTES // (math.prod(lines) * block.dtype.itemsize))
    wide = min(after, room)
    high = min(before, room // after) if wide == after else 1
    across, down = after // wide, before // high

    def group(row: Array | int, column: Array | int, high: int, wide: int, array: Array) -> Array:
        at = (row, *[0] * many, column)
        part = _rowmajor(lax.dynamic_slice(array, at, (high, *lines, wide)))
        part = _rowmajor(jnp.moveaxis(part, -1, 1))
        part = _rowmajor(transform(part, many))
        return lax.dynamic_update_slice(array, _rowmajor(jnp.moveaxis(part, 1, -1)), at)

    def full(i: Array, array: Array) -> Array:
        return group(i // across * high, i % across * wide, high, wide, array)

    array = lax.fori_loop(0, down * across, full, block.reshape(before, *lines, after))
    if rest := after - across * wide:
        array = lax.fori_loop(0, before, lambda i, array: group(i, across * wide, 1, rest, array), array)
    if rest := before - down * high:
        array = group(down * high, 0, rest, after, array)
    return array.reshape(shape)


def _rowmajor(x: Array) -> Array:
    return with_layout_constraint(x, Layout(major_to_minor=tuple(range(x.ndim))))
