"""`product` of arrays for machines with caches, and its memory.

A tile is split, multiplied, summed over all matrices and joined in cache; a result as large as a block replaces the
last block. Sums of more than SINGLE runs of COLUMNS use two floats (Kahan), with the error of one run: a complex array
per plane has the sum and what it lost, as XLA updates one array in place but would copy two for every tile.
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
from .products import GROUP, TERMS, Maker, RealProduct, Sums, complex_sums, forms_of, planes_of
from .slices import Terms
from .split_complex import Planes, join, split

COLUMNS = 2 * TERMS  # of each matrix made at once and multiplied in runs of TERMS
TILE = 128  # positions of a tile if each device has separate cores
WIDE_TILE = 512  # positions if one device has all cores, which share a tile
SINGLE = 4  # sums added in one float: four equal ones round correctly


class Run(NamedTuple):
    """A matrix's columns in one sum: real forms, perhaps stacked as re above im, and their block."""

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
    return parts * math.ceil(n / COLUMNS) > SINGLE


def equal_error(n: int, dot: Dot, itemsize: int) -> float:
    """Largest relative error of a sum of n equal complex terms, in runs or tiles; at most 2.42 times that for Gauss's
    products.
    """
    if dot.run:
        lost = added_error(min(n, dot.run), itemsize) + added_error(math.ceil(n / dot.run), itemsize)
    else:
        lost = added_error(min(n, GROUP), itemsize) + 2 * unit_of(itemsize)
    return lost * {4: 1.0, 3: 2.42}[dot.multiplications]


def product_in_tiles(
    terms: Sequence[tuple[Maker, Array]],
    dim: int,
    dot: Dot,
    total: Sums | None = None,
    *,
    real: bool = False,
    wide: bool = False,
    two: bool = False,
) -> Sums:
    """The product, new or added to `total`; with `two` a complex array per plane, which `sum_of` joins."""
    way, like = RealProduct(lax.Precision.HIGHEST, dot.terms, GROUP), terms[0][1]
    before, n, after = math.prod(like.shape[:dim]), like.shape[dim], math.prod(like.shape[dim + 1 :])
    blocks = [block.reshape(before, n, after) for _, block in terms]

    def run(block: int, start: Array | int, size: int) -> Run:
        forms = forms_of(terms[block][0](start, size), dot, way)
        rows, stacked = forms[0][0].shape[0], len(forms) == 2 and not real
        if stacked:
            forms = (tuple(jnp.concatenate([re, im]) for re, im in zip(*forms, strict=True)),)
        return Run(tuple(map(way.laid, forms)), stacked, (rows, size), block, start)

    def add(start: Array | int, size: int, total: Sums | None) -> Sums:
        offsets = range(0, max(size, 1), TERMS)
        runs = [run(j, start + at, min(TERMS, size - at)) for j in range(len(terms)) for at in offsets]
        by_tiles = functools.partial(_by_tiles, runs, way=way, real=real, two=two, positions=width_of(wide))
        if total is not None:
            return by_tiles(blocks, total, added=True)
        rows, complex_matrix = runs[0].shape[0], runs[0].stacked or len(runs[0].forms) > 1
        joined = np.result_type(like.dtype, np.complex64) if complex_matrix else like.dtype
        dtype = like.real.dtype if real else joined
        planes = 2 if two and dtype.kind == "c" else 1
        dtype = np.result_type(dtype, np.complex64) if two else dtype
        # A broadcast element, all overwritten: XLA would make zeros for all rings of a walk at once.
        first = blocks[0].ravel()[:1] if like.size else jnp.zeros(1, like.dtype)
        new = jnp.broadcast_to((first.real if real else first).astype(dtype), (before, rows, after))
        if rows == n and dtype == like.dtype and planes == 1:
            return by_tiles(blocks[:-1], (blocks[-1],))
        return by_tiles(blocks, (new,) * planes)

    lines = None if total is None else tuple(part.reshape(before, part.shape[dim], after) for part in total)
    done = in_runs(n, COLUMNS // len(terms), add, lines, together=False)
    return tuple(part.reshape(*like.shape[:dim], part.shape[1], *like.shape[dim + 1 :]) for part in done)


def width_of(wide: bool) -> int:
    """Positions of a tile."""
    return WIDE_TILE if wide else TILE


def in_loop(lines: int, wide: bool) -> bool:
    """Whether tiles are in a loop, as there are two full ones or more."""
    return lines >= 2 * width_of(wide)


def sum_of(total: Sums, two: bool) -> Array:
    return join(tuple(pair.real for pair in total)) if two else total[0]


def _added(pair: Array, y: Array) -> Array:
    """The pair of a sum and its loss, plus y; XLA does not reorder float sums."""
    high, y = pair.real, y + pair.imag
    both = high + y
    return lax.complex(both, y - (both - high))


def _by_tiles(
    runs: Sequence[Run],
    blocks: Sequence[Array],
    out: Sums,
    way: RealProduct,
    real: bool,
    two: bool,
    positions: int,
    added: bool = False,
) -> Sums:
    """The products of all runs, added to `out` (perhaps the last block) or replacing it."""

    def tile(line: Array | int, start: Array | int, lines: int, width: int, out: Sums) -> Sums:
        sums = []
        for run in runs:
            block = [*blocks, out[0]][run.block]
            part = lax.dynamic_slice(block, (line, run.start, start), (lines, run.shape[1], width))
            sums.append(run.of(split(part), way.of_tile, real))
        planes = planes_of(functools.reduce(functools.partial(jax.tree.map, jnp.add), sums))
        new = planes if two else (join(planes),)
        old = (lax.dynamic_slice(part, (line, 0, start), y.shape) for part, y in zip(out, new, strict=True))
        if added:
            new = tuple(map(_added if two else jnp.add, old, new))
        elif two:
            new = tuple(lax.complex(y, jnp.zeros_like(y)) for y in new)
        return tuple(lax.dynamic_update_slice(a, b, (line, 0, start)) for a, b in zip(out, new, strict=True))

    if 0 in (out[0].size, *runs[0].shape):
        return out
    leaves = jax.tree.leaves((runs, blocks))
    return _over_tiles(tile, tuple(varied(part, leaves) for part in out), positions)


def _over_tiles(tile: Callable[..., Sums], out: Sums, positions: int) -> Sums:
    before, _, after = out[0].shape
    lines, width = _tile(before, after, positions)
    length, times = (before, 1) if lines else (after, before)

    def one(line: Array | int, start: Array | int, width: int, out: Sums) -> Sums:
        return tile(start, 0, width, after, out) if lines else tile(line, start, 1, width, out)

    full, half = length // width, length % width // 2
    out = lax.fori_loop(0, times * full, lambda i, out: one(i // full, i % full * width, width, out), out)
    if half:
        out = lax.fori_loop(0, 2 * times, lambda i, out: one(i // 2, full * width + i % 2 * half, half, out), out)
    return out


def _tile(before: int, after: int, positions: int) -> tuple[bool, int]:
    """Whether tiles cut the positions before, and their width."""
    lines = before > 1 and after < positions
    length = before if lines else after
    most = min(length, max(1, positions // after) if lines else positions)
    # At least two tiles: XLA unrolls a loop of one, and copies the result for each reader.
    return lines, next(width for width in range(most, 0, -1) if length % width % 2 == 0)


def _each_run(columns: int, size: int) -> list[int]:
    first, single, _ = runs(columns, size, together=False)
    return [min(TERMS, n - at) for n in (first, size * (single > 0)) for at in range(0, n, TERMS)]


def bytes_at_once(
    shape: tuple[int, int, int, int],
    terms: Sequence[int],
    planes: int,
    products: int,
    itemsize: int,
    real: int,
    wide: bool,
) -> int:
    """Bytes of matrices and tiles of `product_in_tiles`, as XLA allocates them on CPUs.

        bytes = columns of matrices at once * rows + slices of a tile + real products of its groups of columns

    Matrices outside loops exist together, plus one in a loop, where tiles share memory. `terms` counts each call's
    matrices, each of `planes` real ones; `shape` is (positions before, rows, columns, positions after);
    `products` counts a group's real products; `itemsize` and `real` are bytes of the larger element and its real part.
    """
    before, rows, columns, after = shape
    lines = before * after
    width, unrolled, looped, first = min(lines, width_of(wide)), list[int](), 0, 0
    group, column = rows * products * real, planes * real * rows
    for many in terms:
        first, single, _ = runs(columns, COLUMNS // many, together=False)
        whole = math.ceil(first / GROUP) * GROUP if first > GROUP and lines > 2 else first
        unrolled.append(many * whole + COLUMNS * (single == 1))
        looped = max(looped, COLUMNS * (single > 1))
    if lines < 3:  # products of vectors, not in whole groups
        cut = max(looped, sum(unrolled)) if len(terms) == 1 else looped + sum(unrolled) * 4 // 5
        cut += 2 * COLUMNS * (planes == 1 and products == 2 and len(terms) > 1)  # per plane
        return (cut + GROUP) * (column + real * rows * (planes > 1)) + width * group * math.ceil(cut / GROUP)
    most = COLUMNS * (2 if planes > 3 else 1)  # of bfloat16 terms XLA keeps those of two runs
    short = first if first > GROUP and first % GROUP else 0  # copied to whole groups, as is its slice
    if lines <= width_of(wide):  # one tile: a run's matrices go when its products are there
        each = [size for many in terms for size in _each_run(columns, COLUMNS // many) * many]
        made = [column * (n if n % GROUP == 0 or n < GROUP else math.ceil(n / GROUP) * GROUP + n) for n in each]
        left = [width * group * math.ceil(n / GROUP) for n in each]
        if len(terms) > 1:
            return sum(made) + sum(left)
        return max((sum(made[at:]) + sum(left[: at + 1]) for at in range(len(each))), default=0)
    if not in_loop(lines, wide):  # the sums of all calls are there at once
        cut = sum(unrolled) + looped
        return (cut + short * sum(terms)) * column + width * group * max(math.ceil(cut / GROUP), sum(terms))
    cut = min(max(terms) * columns, most)
    across, many = _tile(before, after, width_of(wide))
    width = many * after if across else width
    slices = cut * itemsize * (2 if planes > 2 else 1)
    tile = width * (slices * (2 if short else 1) + group * max(math.ceil(cut / GROUP), max(terms)))
    at_once = max(sum(unrolled), looped) if len(terms) == 1 else sum(unrolled) + looped
    return column * (at_once + short) + tile


def bytes_beside(
    shape: tuple[int, int, int, int],
    block: int,
    out: int,
    parts: int,
    held: int,
    uneven: bool,
    complex_sums: bool,
    two: bool,
    wide: bool,
) -> int:
    """Bytes of input, result, shards and sums of a ring that holds `held` blocks, as measured."""
    before, _, columns, after = shape
    lines, largest = before * after, max(block, out)
    if lines <= width_of(wide):
        padded = columns > GROUP and columns % GROUP > 0
        blocks = 3 if parts > 1 or uneven or padded or complex_sums else 2
        return (blocks + two + uneven) * largest
    more = 2 - parts + parts * uneven if parts < 3 else parts < 7
    more += parts == 2 and not in_loop(lines * 2 // 3, wide)  # XLA may unroll two tiles
    if not complex_sums and parts > 4:
        more += 2 + uneven if parts < 7 else after == 1
    return held * block + more * largest
