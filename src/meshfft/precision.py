"""Products: the one place where a matrix meets a block, and where the precision of the product is set.

Knows nothing of Fourier. A complex product of planes is four real ones, or three (see tiers). In the bfloat16 tiers a
real product is a sum of products of bfloat16 terms, added in float32: by the backend's own algorithm where it has one
(TPU, GPU), else by splitting here.

On the CPU the block is multiplied a tile at a time, whose planes are brought together, multiplied by [[re, -im],
[im, re]] and added up while they are in the cache; elsewhere planes stay apart, and the compiler fuses the additions
into the products.
"""

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .planes import Planes
from .tiers import Dot

TERMS = 128  # complex terms of one float sum on the CPU
LONG_TERMS = 2048  # elsewhere: matrix units add up runs of their own width; bounds the memory for a block of the matrix
GROUP = 16  # runs whose sums are added up one after the other
TILE = 512  # positions of a tile on the CPU
PRESETS = {
    "bf16": lax.DotAlgorithmPreset.BF16_BF16_F32,
    "bf16x3": lax.DotAlgorithmPreset.BF16_BF16_F32_X3,
    "bf16x6": lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
}
Terms = tuple[Array, ...]
Sums = tuple[Array, ...]  # (A,), (re, im), or Gauss's three, which stay apart until the last is added


class Factors(NamedTuple):
    """A matrix split beforehand: (A,), (re, im) or (re + im, re, im), each in bfloat16 terms that add up to it."""

    forms: tuple[Terms, ...]


class Way(NamedTuple):
    """How real products are made: by the backend's algorithm for a precision, or of so many terms of both factors."""

    precision: Any
    terms: int

    def whole(self, matrix: Terms, x: Array, dim: int) -> Array:
        """(rows, n) times dimension `dim` of a plane."""
        contracted = (((1,), (dim,)), ((), ()))
        return self._sum(matrix, x, lambda a, b: jnp.moveaxis(self._dot(a, b, contracted), 0, dim))

    def tile(self, matrix: Terms, x: Array, axis: int) -> Array:
        """(planes out, rows, planes in, n) times (planes, n, c), or for axis 1 (planes, c, n), as one product."""
        out, rows, planes, n = matrix[0].shape

        def leading(a: Array, b: Array) -> Array:
            a, b = a.reshape(out * rows, planes * n), b.reshape(planes * n, -1)
            return self._dot(a, b, (((1,), (0,)), ((), ()))).reshape(out, rows, -1)

        def trailing(a: Array, b: Array) -> Array:
            a, b = a.reshape(out * rows, planes * n), b.swapaxes(0, 1).reshape(-1, planes * n)
            return self._dot(b, a, (((1,), (1,)), ((), ()))).reshape(-1, out, rows).swapaxes(0, 1)

        return self._sum(matrix, x, trailing if axis else leading)

    def _dot(self, a: Array, b: Array, contracted: Any) -> Array:
        return lax.dot_general(a, b, contracted, precision=self.precision)

    def _sum(self, matrix: Terms, x: Array, dot: Callable[[Array, Array], Array]) -> Array:
        """The products of terms that the tier keeps, smallest first."""
        if not self.terms:
            return dot(matrix[0], x)
        parts = split(x, self.terms)
        pairs = [(i, order - i) for order in reversed(range(self.terms)) for i in range(order + 1)]
        return functools.reduce(jnp.add, (dot(matrix[i].astype(x.dtype), parts[j]) for i, j in pairs))


Maker = Callable[[Array | int, int], Planes | Factors]
Adder = Callable[[Planes | Factors, Planes, Sums | None], Sums]


def product(matrix: Maker, planes: Planes, dim: int, dot: Dot, total: Sums | None = None) -> Sums:
    """Adds to sums the product of a matrix, by its columns, with dimension `dim` of the planes of a block.

    Costs dot.flops flops for each row and element of a complex block. Long sums are cut into runs of TERMS, and the
    sums of runs into groups, so that the rounding error stays that of one run: below 4e-7 in float32 up to n = 65536,
    as tests/test_points.py counts it.

    Args:
        matrix: makes the columns (rows, size) from a start on, as planes or as factors.
        planes: one or two.
        dim: the contracted dimension of the block, whose place the rows take.
        dot: how to multiply.
        total: what to add to; None for nothing.

    Returns:
        The sums, from which `planes_of` makes the planes of the result.
    """

    def by(size: int, add: Callable[..., Planes], way: Way) -> Callable[[Planes, Sums | None], Sums]:
        return lambda x, total: _in_runs(matrix, x, total, dim, size, partial(add, dim=dim, dot=dot, way=way))

    exact = Way(lax.Precision.HIGHEST, dot.terms)
    cpu, other = by(TERMS, _add_by_tiles, exact), by(LONG_TERMS, _add, exact)
    if not dot.terms:
        return lax.platform_dependent(planes, total, cpu=cpu, default=other)
    preset = by(LONG_TERMS, _add, Way(PRESETS[dot.tier], 0))
    return lax.platform_dependent(planes, total, cpu=cpu, tpu=preset, cuda=preset, default=other)


def planes_of(sums: Sums) -> Planes:
    """The planes that sums of products stand for: Gauss's are A = (re + im) x, B = re (y - x), C = im (x + y)."""
    return (sums[0] - sums[2], sums[0] + sums[1]) if len(sums) == 3 else sums


def split(x: Array, terms: int) -> Terms:
    """A float32 array as bfloat16 terms, largest first, each the rounded rest of those before it."""
    parts: list[Array] = []
    for _ in range(terms):
        parts.append(lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7))
        x = x - parts[-1]
    return tuple(parts)


def _in_runs(matrix: Maker, planes: Planes, total: Sums | None, dim: int, size: int, add: Adder) -> Planes:
    """The product, `size` columns at a time: the first run, then runs one by one, then groups of them."""
    n = planes[0].shape[dim]
    first = n % size or min(size, n)
    runs = (n - first) // size
    groups = max(runs - 1, 0) // GROUP
    alone = runs - groups * GROUP

    def run(start: Array | int, size: int, total: Sums | None) -> Planes:
        part = tuple(lax.dynamic_slice_in_dim(x, start, size, dim) for x in planes) if size < n else planes
        return add(matrix(start, size), part, total)

    def group(i: Array, total: Planes) -> Planes:
        start = first + (alone + i * GROUP) * size
        head = run(start, size, None)
        return _plus(total, lax.fori_loop(1, GROUP, lambda j, t: run(start + j * size, size, t), head))

    total = run(0, first, total)
    if alone:
        total = lax.fori_loop(0, alone, lambda i, t: run(first + i * size, size, t), total)
    return lax.fori_loop(0, groups, group, total) if groups else total


def _add(matrix: Planes | Factors, x: Planes, total: Sums | None, dim: int, dot: Dot, way: Way) -> Planes:
    """total + matrix x, plane by plane. The matrix is made first: fused into the products it is made for every tile."""
    forms = lax.optimization_barrier(_forms(matrix, dot, way.terms))
    y = _complex(forms, x, partial(way.whole, dim=dim))
    return y if total is None else _plus(total, y)


def _complex(forms: tuple[Terms, ...], x: Planes, times: Callable[[Terms, Array], Array]) -> Sums:
    """The sums of a complex product: Gauss's three where there are as many forms, else written out."""
    if len(forms) == 1:
        return tuple(times(forms[0], plane) for plane in x)
    re, im = forms[-2:]
    if len(x) == 1:
        return times(re, x[0]), times(im, x[0])
    if len(forms) == 2:
        return times(re, x[0]) - times(im, x[1]), times(im, x[0]) + times(re, x[1])
    return times(forms[0], x[0]), times(re, x[1] - x[0]), times(im, x[0] + x[1])


def _add_by_tiles(matrix: Planes | Factors, x: Planes, total: Sums | None, dim: int, dot: Dot, way: Way) -> Planes:
    """total + matrix x, tile by tile."""
    forms = _assembled(_forms(matrix, dot, way.terms), len(x))
    if not x[0].size:
        return _add(matrix, x, total, dim, dot, way)
    many, rows = max(len(x), len(forms[0][0]), len(forms)), forms[0][0].shape[1]
    shape = (*x[0].shape[:dim], rows, *x[0].shape[dim + 1 :])
    empty = tuple(_varying(jnp.zeros(shape, x[0].dtype), (forms, x)) for _ in range(many))
    return _by_tiles(lambda part, axis: _stacked(forms, part, partial(way.tile, axis=axis)), x, total, dim, empty)


def _forms(matrix: Planes | Factors, dot: Dot, terms: int) -> tuple[Terms, ...]:
    """The real matrices of a product, in terms: with three multiplications re + im is one of them."""
    if isinstance(matrix, Factors):
        whole = ((functools.reduce(jnp.add, form).astype(jnp.float32),) for form in matrix.forms)
        return matrix.forms if terms else tuple(whole)
    gauss = len(matrix) == 2 and dot.multiplications == 3
    planes = (matrix[0] + matrix[1], *matrix) if gauss else matrix
    return tuple(split(plane, terms) if terms else (plane,) for plane in planes)


def _assembled(forms: tuple[Terms, ...], planes: int) -> tuple[Terms, ...]:
    """Real matrices (planes out, rows, planes in, columns): one for all planes, or one for each product."""
    if len(forms) == 1 or (len(forms) == 3 and planes == 2):
        return tuple(tuple(term[None, :, None, :] for term in form) for form in forms)
    pairs = tuple(zip(*forms[-2:], strict=True))
    if planes == 1:
        return (tuple(jnp.stack([re, im])[:, :, None, :] for re, im in pairs),)
    return (tuple(jnp.stack([jnp.stack([re, -im], 1), jnp.stack([im, re], 1)]) for re, im in pairs),)


def _stacked(forms: tuple[Terms, ...], x: Array, dot: Callable[[Terms, Array], Array]) -> Array:
    """The stacked planes of a tile's product: by Gauss's three real ones, plane by plane, or all at once."""
    if len(forms) == 3:
        return jnp.concatenate(_complex(forms, (x[:1], x[1:]), dot))
    if forms[0][0].shape[2] < len(x):
        return jnp.concatenate([dot(forms[0], plane[None]) for plane in x])
    return dot(forms[0], x)


def _by_tiles(multiply: Callable[..., Array], x: Planes, total: Sums | None, dim: int, empty: Planes) -> Planes:
    """The product tile by tile over (before, n, after): some lines of what lies behind n, or a part of one."""
    before, n, after = math.prod(x[0].shape[:dim]), x[0].shape[dim], math.prod(x[0].shape[dim + 1 :])
    flat = [plane.reshape(before, n, after) for plane in x]
    out = empty if total is None else total
    shape, out = out[0].shape, tuple(plane.reshape(before, -1, after) for plane in out)
    lines = before > 1 and after < TILE
    length, times = (before, 1) if lines else (after, before)
    width = min(length, max(1, TILE // after) if lines else TILE)

    def tile(line: Array | int, start: Array | int, width: int, out: Planes) -> Planes:
        at = (start, 0, 0) if lines else (line, 0, start)
        many, wide = (width, after) if lines else (1, width)
        y = _of_tile(multiply, jnp.stack([lax.dynamic_slice(plane, at, (many, n, wide)) for plane in flat]))
        if total is not None:
            y = y + jnp.stack([lax.dynamic_slice(plane, at, y.shape[1:]) for plane in out])
        return tuple(lax.dynamic_update_slice(plane, part, at) for plane, part in zip(out, y, strict=True))

    full = length // width
    out = lax.fori_loop(0, times * full, lambda i, out: tile(i // full, i % full * width, width, out), out)
    if rest := length - full * width:
        out = lax.fori_loop(0, times, lambda i, out: tile(i, full * width, rest, out), out)
    return tuple(plane.reshape(shape) for plane in out)


def _varying(zeros: Array, like: Any) -> Array:
    """Zeros that vary over the manual mesh axes that other arrays vary over, as a loop's carry must; XLA folds them."""
    for leaf in jax.tree.leaves(like):
        zeros = jnp.where(False, leaf.ravel()[0].astype(zeros.dtype), zeros)
    return zeros


def _of_tile(multiply: Callable[..., Array], part: Array) -> Array:
    """The product of a tile (planes, lines, n, width), as that of two matrices."""
    planes, lines, n, width = part.shape
    if width == 1:
        return multiply(part.reshape(planes, lines, n), axis=1)[..., None]
    y = multiply(part.swapaxes(1, 2).reshape(planes, n, lines * width), axis=0)
    return y.reshape(len(y), -1, lines, width).swapaxes(1, 2)


def _plus(a: Planes, b: Planes) -> Planes:
    return tuple(map(jnp.add, a, b))
