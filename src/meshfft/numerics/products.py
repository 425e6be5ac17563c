"""Products of matrices and blocks: where they meet, and where the precision of the product is set.

Knows nothing of Fourier. A complex product is four real ones, or three (see `Dot`). In the bfloat16 tiers a real
product is a sum of products of bfloat16 terms, added in float32: by the backend's own algorithm where it has one (TPU,
GPU), else by splitting here. Slices of float64 are for `numerics.slices`.

- `product` takes split complex, and compilers for TPUs and GPUs fuse the additions into the products.
- `product_in_tiles` takes arrays, complex ones as they come, for machines with caches. A tile is split, multiplied,
  added up over all matrices and joined again while it is in the cache, so that memory is read and written once; a
  result as large as a block replaces the last one.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .chunks import in_chunks, in_runs, varied
from .dtypes import Dot
from .slices import SlicedProduct
from .split_complex import Planes, join, split

TERMS = 128  # complex terms of one float sum on the CPU
LONG_TERMS = 2048  # elsewhere: matrix units add up runs of their own width; bounds the memory for a block of the matrix
COLUMNS = 2 * TERMS  # of each matrix, made at once for tiles and multiplied in runs of TERMS
TILE = 128  # positions of a tile where devices share the cores, each with its own
WIDE_TILE = 512  # where one device has them all, which work on a tile together
PRESETS = {
    "bf16": lax.DotAlgorithmPreset.BF16_BF16_F32,
    "bf16x3": lax.DotAlgorithmPreset.BF16_BF16_F32_X3,
    "bf16x6": lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
}
Terms = tuple[Array, ...]
Sums = tuple[Array, ...]  # (A,), (re, im), or Gauss's three, which stay separate until the last is added


class Factors(NamedTuple):
    """A matrix split beforehand, (A,), (re, im) or (re + im, re, im): in bfloat16 terms, or in slices with a scale."""

    forms: tuple[Terms, ...]


# Makes the columns (rows, size) of a matrix from a start on.
Maker = Callable[[Array | int, int], Planes | Factors]


class RealProduct(NamedTuple):
    """How real products are made: by the backend's algorithm for a precision, or of some terms of both factors."""

    precision: lax.Precision | lax.DotAlgorithmPreset
    terms: int

    def parts(self, matrix: Array) -> Terms:
        """What is multiplied of a matrix."""
        return terms_of(matrix, self.terms) if self.terms else (matrix,)

    def along(self, matrix: Terms, x: Array, dim: int) -> Array:
        """(rows, n) times dimension `dim` of a real array."""
        return self.summed(matrix, x, lambda a, b: jnp.moveaxis(self.dot(a, b, 1, dim), 0, dim))

    def of_tile(self, matrix: Terms, x: Array) -> Array:
        """(rows, n) times a real tile (lines, n, width), as the product of two matrices."""
        lines, n, width = x.shape
        if width == 1:
            return self.summed(matrix, x.reshape(lines, n), lambda a, b: self.dot(b, a, 1, 1))[..., None]
        y = self.summed(matrix, x.swapaxes(0, 1).reshape(n, -1), lambda a, b: self.dot(a, b, 1, 0))
        return y.reshape(-1, lines, width).swapaxes(0, 1)

    def dot(self, a: Array, b: Array, of_a: int, of_b: int) -> Array:
        """The product over one dimension of each."""
        return lax.dot_general(a, b, (((of_a,), (of_b,)), ((), ())), precision=self.precision)

    def summed(self, matrix: Terms, x: Array, dot: Callable[[Array, Array], Array]) -> Array:
        """The products of terms that the tier keeps, smallest first."""
        if not self.terms:
            return dot(matrix[0], x)
        parts = terms_of(x, self.terms)
        pairs = [(i, order - i) for order in reversed(range(self.terms)) for i in range(order + 1)]
        return functools.reduce(jnp.add, (dot(matrix[i].astype(x.dtype), parts[j]) for i, j in pairs))


def product(
    terms: Sequence[tuple[Maker, Planes]], dim: int, dot: Dot, total: Sums | None = None, *, real: bool = False
) -> Sums:
    """Adds to sums the products of matrices, by their columns, with dimension `dim` of blocks in split complex.

    Costs dot.flops flops for each row and element of a complex block. Long sums are sums of runs, in two levels, so
    that the error stays that of one run: below 4e-7 in float32 up to n = 65536 (tests/operators/test_points.py).

    The blocks are of one shape, each with what makes the columns of its matrix; rows replace the dimension. With `real`
    only the real part is wanted. `planes_of` makes the result of the sums.
    """
    makers, blocks = [maker for maker, _ in terms], tuple(planes for _, planes in terms)
    summed = functools.partial(_summed, makers=makers, dim=dim, dot=dot, real=real)
    if dot.slices:
        ways = SlicedProduct(dot.slices, dot.unit or "int8", pairs=True), SlicedProduct(dot.slices, "")
        tpu, other = (functools.partial(summed, size=way.run, way=way) for way in ways)
        return lax.platform_dependent(blocks, total, tpu=tpu, default=other)
    exact = RealProduct(lax.Precision.HIGHEST, dot.terms)
    cpu, other = (functools.partial(summed, size=size, way=exact) for size in (TERMS, LONG_TERMS))
    if not dot.terms:
        return lax.platform_dependent(blocks, total, cpu=cpu, default=other)
    preset = functools.partial(summed, size=LONG_TERMS, way=RealProduct(PRESETS[dot.tier], 0))
    return lax.platform_dependent(blocks, total, cpu=cpu, tpu=preset, cuda=preset, default=other)


def _summed(
    blocks: Sequence[Planes],
    total: Sums | None,
    makers: Sequence[Maker],
    dim: int,
    dot: Dot,
    real: bool,
    size: int,
    way: RealProduct | SlicedProduct,
) -> Sums:
    """The product in runs of some size. A matrix is made first: fused into the products it is made for every tile."""

    def run(maker: Maker, planes: Planes, start: Array | int, size: int, total: Sums | None) -> Sums:
        full = size == planes[0].shape[dim]
        x = planes if full else tuple(lax.dynamic_slice_in_dim(x, start, size, dim) for x in planes)
        forms = _forms(maker(start, size), dot, way, len(planes) == 2 and not real)
        forms = tuple(map(way.laid, forms)) if isinstance(way, SlicedProduct) else forms
        forms = lax.optimization_barrier(forms)

        def added(x: Planes, total: Sums | None) -> Sums:
            if isinstance(way, SlicedProduct) and len(forms[0]) == 3:
                y = way.complex_along(forms[0], x, dim)
            else:
                y = _complex_sums(forms, x, functools.partial(way.along, dim=dim), real)
            return y if total is None else jax.tree.map(jnp.add, total, y)

        return in_chunks(x, total, dim, added, jax.tree.leaves(forms)) if dot.slices else added(x, total)

    for maker, planes in zip(makers, blocks, strict=True):
        total = in_runs(planes[0].shape[dim], size, functools.partial(run, maker, planes), total)
    assert total is not None
    return total


def planes_of(sums: Sums) -> Planes:
    """What sums of products stand for: Gauss's are A = (re + im) x, B = re (y - x), C = im (x + y)."""
    return (sums[0] - sums[2], sums[0] + sums[1]) if len(sums) == 3 else sums


def terms_of(x: Array, many: int) -> Terms:
    """A float32 array as bfloat16 terms, largest first, each the rounded rest of those before it."""
    parts: list[Array] = []
    for _ in range(many):
        parts.append(lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7))
        x = x - parts[-1]
    return tuple(parts)


def _complex_sums(
    forms: tuple[Terms, ...], x: Planes, times: Callable[[Terms, Array], Array], real: bool = False
) -> Sums:
    """The sums of a complex product: Gauss's three of three forms, else written out."""
    if len(forms) == 1:
        return tuple(times(forms[0], part) for part in x)
    re, im = forms[-2:]
    if len(x) == 1:
        return times(re, x[0]), times(im, x[0])
    if real:
        return (times(re, x[0]) - times(im, x[1]),)
    if len(forms) == 2:
        return times(re, x[0]) - times(im, x[1]), times(im, x[0]) + times(re, x[1])
    return times(forms[0], x[0]), times(re, x[1] - x[0]), times(im, x[0] + x[1])


def _forms(
    matrix: Planes | Factors, dot: Dot, way: RealProduct | SlicedProduct, full: bool = False
) -> tuple[Terms, ...]:
    """The real matrices of a product, in parts: with three multiplications re + im is one of them; of slices with four
    there is one, where the block and what is wanted are complex in `full`.
    """
    if isinstance(matrix, Factors):
        joined = ((functools.reduce(jnp.add, form).astype(jnp.float32),) for form in matrix.forms)
        return tuple(joined) if isinstance(way, RealProduct) and not way.terms else matrix.forms
    gauss = len(matrix) == 2 and dot.multiplications == 3
    if isinstance(way, SlicedProduct) and full and len(matrix) == 2 and not gauss:
        return (way.complex_parts(*matrix),)
    planes = (matrix[0] + matrix[1], *matrix) if gauss else matrix
    return tuple(map(way.parts, planes))


class Run(NamedTuple):
    """Columns of a matrix that one sum takes in: their real forms, and the block and the index where they meet it.

    Stacked, re and im are one matrix, the one above the other, as both meet every part of the block.
    """

    forms: tuple[Terms, ...]
    stacked: bool
    block: int
    start: Array | int

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.forms[0][0].shape
        return rows // (1 + self.stacked), columns

    def of(self, planes: Planes, times: Callable[[Terms, Array], Array], real: bool) -> Sums:
        """Their product with a part of a block."""
        if not self.stacked:
            return _complex_sums(self.forms, planes, times, real)
        (a, b), *rest = (jnp.split(times(self.forms[0], plane), 2, axis=1) for plane in planes)
        return (a - rest[0][1], b + rest[0][0]) if rest else (a, b)


def product_in_tiles(
    terms: Sequence[tuple[Maker, Array]],
    dim: int,
    dot: Dot,
    total: Array | None = None,
    *,
    real: bool = False,
    wide: bool = False,
) -> Array:
    """`product` of real or complex arrays: the sum itself, added to `total`; `wide` where one device has all cores."""
    way, like = RealProduct(lax.Precision.HIGHEST, dot.terms), terms[0][1]
    before, n, after = math.prod(like.shape[:dim]), like.shape[dim], math.prod(like.shape[dim + 1 :])
    blocks = [block.reshape(before, n, after) for _, block in terms]

    def run(block: int, start: Array | int, size: int) -> Run:
        forms = _forms(terms[block][0](start, size), dot, way)
        if len(forms) != 2 or real:
            return Run(forms, False, block, start)
        return Run((tuple(jnp.concatenate([re, im]) for re, im in zip(*forms, strict=True)),), True, block, start)

    def add(start: Array | int, size: int, total: Array | None) -> Array:
        offsets = range(0, max(size, 1), TERMS)
        runs = [run(j, start + at, min(TERMS, size - at)) for j in range(len(terms)) for at in offsets]
        by_tiles = functools.partial(_by_tiles, runs, way=way, real=real, positions=WIDE_TILE if wide else TILE)
        if total is not None:
            return by_tiles(blocks, total, added=True)
        rows, complex_matrix = runs[0].shape[0], runs[0].stacked or len(runs[0].forms) > 1
        joined = np.result_type(like.dtype, np.complex64) if complex_matrix else like.dtype
        dtype = like.real.dtype if real else joined
        if rows == n and dtype == like.dtype:
            return by_tiles(blocks[:-1], blocks[-1])
        # Any number of the block: it is written over, and zeros XLA would make for all rings of a walk at once.
        first = blocks[0].ravel()[:1] if like.size else jnp.zeros(1, like.dtype)
        return by_tiles(blocks, jnp.broadcast_to((first.real if real else first).astype(dtype), (before, rows, after)))

    done = in_runs(
        n, COLUMNS // len(terms), add, None if total is None else total.reshape(before, total.shape[dim], after)
    )
    return done.reshape(*like.shape[:dim], done.shape[1], *like.shape[dim + 1 :])


def _by_tiles(
    runs: Sequence[Run],
    blocks: Sequence[Array],
    out: Array,
    way: RealProduct,
    real: bool,
    positions: int,
    added: bool = False,
) -> Array:
    """The products of all runs, added to what is in `out` or written over it, which is the block after the last."""

    def tile(line: Array | int, start: Array | int, lines: int, width: int, out: Array) -> Array:
        sums = []
        for run in runs:
            part = lax.dynamic_slice([*blocks, out][run.block], (line, run.start, start), (lines, run.shape[1], width))
            sums.append(run.of(split(part), way.of_tile, real))
        y = join(planes_of(functools.reduce(functools.partial(jax.tree.map, jnp.add), sums)))
        y = y + lax.dynamic_slice(out, (line, 0, start), y.shape) if added else y
        return lax.dynamic_update_slice(out, y, (line, 0, start))

    if 0 in (out.size, *runs[0].shape):
        return out
    return _over_tiles(tile, varied(out, jax.tree.leaves((runs, blocks))), positions)


def _over_tiles(tile: Callable[..., Array], out: Array, positions: int) -> Array:
    """All tiles of (before, n, after): some lines of what lies behind n, or a part of one."""
    before, _, after = out.shape
    lines = before > 1 and after < positions
    length, times = (before, 1) if lines else (after, before)
    most = min(length, max(1, positions // after) if lines else positions)
    # What is left over makes two tiles: a loop of one XLA unrolls, and copies the result for everybody who reads it.
    width = next(width for width in range(most, 0, -1) if length % width % 2 == 0)

    def one(line: Array | int, start: Array | int, width: int, out: Array) -> Array:
        return tile(start, 0, width, after, out) if lines else tile(line, start, 1, width, out)

    full, half = length // width, length % width // 2
    out = lax.fori_loop(0, times * full, lambda i, out: one(i // full, i % full * width, width, out), out)
    if half:
        out = lax.fori_loop(0, 2 * times, lambda i, out: one(i // 2, full * width + i % 2 * half, half, out), out)
    return out
