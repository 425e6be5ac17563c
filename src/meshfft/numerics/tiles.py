"""`product` of arrays, complex ones as they come, for machines with caches; and the memory that it takes.

A tile is split, multiplied, summed over all matrices and joined while it is in the cache, so memory is read and written
once; a result as large as a block replaces the last one. Sums of more than SINGLE runs of COLUMNS are kept in two
floats, the second what the first has lost (Kahan): the error is that of one run, however many there are.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .chunks import in_runs, runs, varied
from .dtypes import Dot, added_error, unit_of
from .products import GROUP, TERMS, Maker, RealProduct, Sums, Terms, complex_sums, forms_of, planes_of
from .split_complex import Planes, join, split

COLUMNS = 2 * TERMS  # of each matrix, made at once and multiplied in runs of TERMS
TILE = 128  # positions of a tile where devices share the cores, each with its own
WIDE_TILE = 512  # where one device has them all, which work on a tile together
SINGLE = 4  # sums that are added up in one float: four equal ones round to what they should
Total = tuple[Array, ...]  # a sum in one float or in two


class Run(NamedTuple):
    """Columns of a matrix that one sum takes in: their real forms, and the block and index that they meet.

    Stacked, re and im are one matrix, re above im, since both meet every part of the block.
    """

    forms: tuple[Terms, ...]
    stacked: bool
    shape: tuple[int, int]  # rows and columns
    block: int
    start: Array | int

    def of(self, planes: Planes, times: Callable[[Terms, Array], Array], real: bool) -> Sums:
        if not self.stacked:
            return complex_sums(self.forms, planes, times, real)
        (a, b), *rest = (jnp.split(times(self.forms[0], plane), 2, axis=1) for plane in planes)
        return (a - rest[0][1], b + rest[0][0]) if rest else (a, b)


def in_two_floats(n: int, parts: int = 1) -> bool:
    """Whether sums of n columns from each of some blocks are kept in two floats."""
    return parts * math.ceil(n / COLUMNS) > SINGLE


def equal_error(n: int, dot: Dot, itemsize: int) -> float:
    """The largest relative error of a sum of n equal complex terms.

    A group loses most; groups, runs and shards of different sizes lose up to two roundings more. Gauss's three products
    have x, y - x and x + y for the parts x and y, with at most 2.42 times the error.
    """
    lost = added_error(min(n, GROUP), itemsize) + 2 * unit_of(itemsize)
    return lost * {4: 1.0, 3: 2.42}[dot.multiplications]


def product_in_tiles(
    terms: Sequence[tuple[Maker, Array]],
    dim: int,
    dot: Dot,
    total: Total | None = None,
    *,
    real: bool = False,
    wide: bool = False,
    two: bool = False,
) -> Total:
    """`product` of arrays, added to `total`, in `two` floats or one; `wide`: one device has all cores."""
    way, like = RealProduct(lax.Precision.HIGHEST, dot.terms, GROUP), terms[0][1]
    before, n, after = math.prod(like.shape[:dim]), like.shape[dim], math.prod(like.shape[dim + 1 :])
    blocks = [block.reshape(before, n, after) for _, block in terms]

    def run(block: int, start: Array | int, size: int) -> Run:
        forms = forms_of(terms[block][0](start, size), dot, way)
        rows, stacked = forms[0][0].shape[0], len(forms) == 2 and not real
        if stacked:
            forms = (tuple(jnp.concatenate([re, im]) for re, im in zip(*forms, strict=True)),)
        return Run(tuple(map(way.laid, forms)), stacked, (rows, size), block, start)

    def add(start: Array | int, size: int, total: Total | None) -> Total:
        offsets = range(0, max(size, 1), TERMS)
        runs = [run(j, start + at, min(TERMS, size - at)) for j in range(len(terms)) for at in offsets]
        by_tiles = functools.partial(_by_tiles, runs, way=way, real=real, positions=WIDE_TILE if wide else TILE)
        if total is not None:
            return by_tiles(blocks, total, added=True)
        rows, complex_matrix = runs[0].shape[0], runs[0].stacked or len(runs[0].forms) > 1
        joined = np.result_type(like.dtype, np.complex64) if complex_matrix else like.dtype
        dtype = like.real.dtype if real else joined
        # Any number of the block: it is written over, and zeros XLA would make for all rings of a walk at once.
        first = blocks[0].ravel()[:1] if like.size else jnp.zeros(1, like.dtype)
        new = jnp.broadcast_to((first.real if real else first).astype(dtype), (before, rows, after))
        if rows == n and dtype == like.dtype:
            return by_tiles(blocks[:-1], (blocks[-1], new)[: 1 + two])
        return by_tiles(blocks, (new,) * (1 + two))

    lines = None if total is None else tuple(part.reshape(before, part.shape[dim], after) for part in total)
    done = in_runs(n, COLUMNS // len(terms), add, lines, together=False)
    return tuple(part.reshape(*like.shape[:dim], part.shape[1], *like.shape[dim + 1 :]) for part in done)


def _added(total: Total, y: Array) -> Total:
    """A sum with one more number; XLA does not reorder sums of floats."""
    if len(total) == 1:
        return (total[0] + y,)
    high, low = total
    y = y + low
    both = high + y
    return both, y - (both - high)


def _by_tiles(
    runs: Sequence[Run],
    blocks: Sequence[Array],
    out: Total,
    way: RealProduct,
    real: bool,
    positions: int,
    added: bool = False,
) -> Total:
    """The products of all runs, added to `out` or written over it, which is the block after the last."""

    def tile(line: Array | int, start: Array | int, lines: int, width: int, out: Total) -> Total:
        sums = []
        for run in runs:
            block = [*blocks, out[0]][run.block]
            part = lax.dynamic_slice(block, (line, run.start, start), (lines, run.shape[1], width))
            sums.append(run.of(split(part), way.of_tile, real))
        y = join(planes_of(functools.reduce(functools.partial(jax.tree.map, jnp.add), sums)))
        old = tuple(lax.dynamic_slice(part, (line, 0, start), y.shape) for part in out)
        new = _added(old, y) if added else (y, jnp.zeros_like(y))[: len(out)]
        return tuple(lax.dynamic_update_slice(a, b, (line, 0, start)) for a, b in zip(out, new, strict=True))

    if 0 in (out[0].size, *runs[0].shape):
        return out
    leaves = jax.tree.leaves((runs, blocks))
    return _over_tiles(tile, tuple(varied(part, leaves) for part in out), positions)


def _over_tiles(tile: Callable[..., Total], out: Total, positions: int) -> Total:
    """All tiles of (before, n, after): some lines of what lies behind n, or a part of one."""
    before, _, after = out[0].shape
    lines = before > 1 and after < positions
    length, times = (before, 1) if lines else (after, before)
    most = min(length, max(1, positions // after) if lines else positions)
    # What is left over makes two tiles: a loop of one XLA unrolls, and copies the result for everybody who reads it.
    width = next(width for width in range(most, 0, -1) if length % width % 2 == 0)

    def one(line: Array | int, start: Array | int, width: int, out: Total) -> Total:
        return tile(start, 0, width, after, out) if lines else tile(line, start, 1, width, out)

    full, half = length // width, length % width // 2
    out = lax.fori_loop(0, times * full, lambda i, out: one(i // full, i % full * width, width, out), out)
    if half:
        out = lax.fori_loop(0, 2 * times, lambda i, out: one(i // 2, full * width + i % 2 * half, half, out), out)
    return out


def bytes_at_once(
    shape: tuple[int, int], lines: int, terms: Sequence[int], planes: int, itemsize: int, real: int, wide: bool
) -> int:
    """Bytes of matrices and tiles of `product_in_tiles`, by what XLA makes of it on CPUs.

        bytes = 2 * (columns of matrices at once * rows + slices of a tile + their products)

    XLA makes all matrices outside loops at once, and one more in a loop; tiles share their memory. All is there twice.

    Args:
        shape: rows and columns of each matrix.
        lines: positions beside the dimension.
        terms: how many matrices each call multiplies by.
        planes: real matrices that one is made of.
        itemsize, real: bytes of the larger of a block's and a result's elements, and of its real part.
        wide: one device has all cores.
    """
    rows, columns = shape
    width, at_once = min(lines, WIDE_TILE if wide else TILE), columns_at_once(columns, terms)
    cut = at_once if lines < 2 * width else min(max(terms) * columns, 2 * COLUMNS)  # else tiles are in loops
    tile = width * (cut + math.ceil(cut / GROUP) * rows) * itemsize
    return 2 * (planes * real * rows * at_once + tile)


def columns_at_once(columns: int, terms: Sequence[int]) -> int:
    unrolled, looped = 0, 0
    for many in terms:
        first, single, _ = runs(columns, COLUMNS // many, together=False)
        unrolled += many * math.ceil(first / GROUP) * GROUP + COLUMNS * (single == 1)
        looped = max(looped, COLUMNS * (single > 1))
    return unrolled + looped
