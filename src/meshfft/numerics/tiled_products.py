"""Products of whole blocks on machines with caches, a tile at a time.

Blocks are arrays, complex ones as they come. The planes of a tile are parted, multiplied, added up over all matrices
and put together again while they are in the cache, so that memory is read and written once; a result as large as a
block takes the last one's place.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .products import TERMS, Maker, Sums, Terms, Way, complex_sums, forms_of, in_runs, planes_of, plus
from .split_complex import Planes, join, split
from .tiers import Dot

COLUMNS = 2 * TERMS  # of each matrix, made at once and multiplied in runs of TERMS
TILE = 128  # positions of a tile where devices share the cores, each with its own
WIDE = 512  # where one device has them all, which work on a tile together


class Run(NamedTuple):
    """Columns of a matrix that one sum takes in, and the block and the place that they meet.

    They are its real forms (see products); re and im, where both meet every plane, one above the other as one.
    """

    forms: tuple[Terms, ...]
    stacked: bool
    block: int
    start: Array | int

    @property
    def rows(self) -> int:
        return self.forms[0][0].shape[0] // (1 + self.stacked)

    def of(self, planes: Planes, times: Callable[[Terms, Array], Array], real: bool) -> Sums:
        """Their product with a part of a block."""
        if not self.stacked:
            return complex_sums(self.forms, planes, times, real)
        (a, b), *rest = (jnp.split(times(self.forms[0], plane), 2, axis=1) for plane in planes)
        return (a - rest[0][1], b + rest[0][0]) if rest else (a, b)


def product_in_tiles(
    terms: Sequence[tuple[Maker, Array]],
    dim: int,
    dot: Dot,
    total: Array | None = None,
    *,
    real: bool = False,
    tile: int = TILE,
) -> Array:
    """`products.product` of real or complex arrays: the sum itself, added to `total`."""
    way, like = Way(lax.Precision.HIGHEST, dot.terms), terms[0][1]
    before, n, after = math.prod(like.shape[:dim]), like.shape[dim], math.prod(like.shape[dim + 1 :])
    blocks = [block.reshape(before, n, after) for _, block in terms]

    def run(block: int, start: Array | int, size: int) -> Run:
        forms = forms_of(terms[block][0](start, size), dot, way.terms)
        stacked = len(forms) == 2 and not real
        return Run((tuple(map(_stacked, *forms)),) if stacked else forms, stacked, block, start)

    def add(start: Array | int, size: int, total: Array | None) -> Array:
        places = range(0, max(size, 1), TERMS)
        runs = [run(j, start + at, min(TERMS, size - at)) for j in range(len(terms)) for at in places]
        by_tiles = functools.partial(_by_tiles, runs, way=way, real=real, positions=tile)
        if total is not None:
            return by_tiles(blocks, total, sums=True)
        rows, turns = runs[0].rows, runs[0].stacked or len(runs[0].forms) > 1
        dtype = like.real.dtype if real else np.result_type(like.dtype, np.complex64) if turns else like.dtype
        if rows == n and dtype == like.dtype:
            return by_tiles(blocks[:-1], blocks[-1])
        return by_tiles(blocks, jnp.zeros((before, rows, after), dtype))

    done = in_runs(n, COLUMNS // len(terms), add, None if total is None else total.reshape(before, -1, after))
    return done.reshape(*like.shape[:dim], done.shape[1], *like.shape[dim + 1 :])


def _stacked(above: Array, below: Array) -> Array:
    return jnp.concatenate([above, below])


def _by_tiles(
    runs: Sequence[Run], blocks: Sequence[Array], out: Array, way: Way, real: bool, positions: int, sums: bool = False
) -> Array:
    """The products of all runs, added to what is in `out` or written over it; where blocks leave off it is the last."""

    def tile(line: Array | int, place: Array | int, many: int, wide: int, out: Array) -> Array:
        found = []
        for run in runs:
            extent = (many, run.forms[0][0].shape[1], wide)
            planes = split(lax.dynamic_slice([*blocks, out][run.block], (line, run.start, place), extent))
            found.append(run.of(planes, functools.partial(_times, way), real))
        y = join(planes_of(functools.reduce(plus, found)))
        y = y + lax.dynamic_slice(out, (line, 0, place), y.shape) if sums else y
        return lax.dynamic_update_slice(out, y, (line, 0, place))

    empty = 0 in (out.size, runs[0].forms[0][0].size)
    return out if empty else _over_tiles(tile, _varying(out, (runs, blocks)), positions)


def _over_tiles(tile: Callable[..., Array], out: Array, positions: int) -> Array:
    """All tiles of (before, n, after): some lines of what lies behind n, or a part of one."""
    before, _, after = out.shape
    lines = before > 1 and after < positions
    length, times = (before, 1) if lines else (after, before)
    width = min(length, max(1, positions // after) if lines else positions)

    def one(line: Array | int, start: Array | int, width: int, out: Array) -> Array:
        return tile(start, 0, width, after, out) if lines else tile(line, start, 1, width, out)

    full = length // width
    out = lax.fori_loop(0, times * full, lambda i, out: one(i // full, i % full * width, width, out), out)
    if rest := length - full * width:
        out = lax.fori_loop(0, times, lambda i, out: one(i, full * width, rest, out), out)
    return out


def _times(way: Way, form: Terms, part: Array) -> Array:
    """A real matrix times a plane of a tile (lines, n, width), as the product of two matrices."""
    lines, n, width = part.shape
    if width == 1:
        return way.summed(form, part.reshape(lines, n), lambda a, x: way.dot(x, a, 1, 1))[..., None]
    y = way.summed(form, part.swapaxes(0, 1).reshape(n, -1), lambda a, x: way.dot(a, x, 1, 0))
    return y.reshape(-1, lines, width).swapaxes(0, 1)


def _varying(x: Array, like: Any) -> Array:
    """An array that varies over the manual mesh axes that others vary over, as a loop's carry must; XLA folds it."""
    for leaf in jax.tree.leaves(like):
        one = jnp.ravel(leaf)[0]
        x = jnp.where(one == one, x, x)
    return x
