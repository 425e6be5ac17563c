"""Products: the one place where a matrix meets a block, and where the precision of the product is set.

Knows nothing of Fourier. A complex product of planes is one real product by [[re, -im], [im, re]], four
multiplications, or three (see tiers). In the bfloat16 tiers a real product is a sum of products of bfloat16 terms,
added in float32: by the backend's own algorithm where it has one (TPU, GPU), else by splitting here.

On the CPU the block is multiplied a tile at a time, whose planes are brought together, multiplied and added up while
they are in the cache; elsewhere the compiler lays a whole block out.
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

TERMS = 128  # complex terms of one float sum
GROUP = 16  # runs of TERMS whose sums are added up one after the other
TILE = 512  # positions of a tile on the CPU
PRESETS = {
    "bf16": lax.DotAlgorithmPreset.BF16_BF16_F32,
    "bf16x3": lax.DotAlgorithmPreset.BF16_BF16_F32_X3,
    "bf16x6": lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
}
Terms = tuple[Array, ...]


class Way(NamedTuple):
    """How real products are made: by the backend's algorithm for a precision, or of so many terms of both factors."""

    precision: Any
    terms: int

    def whole(self, matrix: Terms, x: Array, dim: int) -> Array:
        """(planes out, rows, planes in, n) times dimension `dim` of a block."""
        contracted = (((2, 3), (0, dim + 1)), ((), ()))
        return self._sum(matrix, x, lambda a, b: jnp.moveaxis(self._dot(a, b, contracted), 1, dim + 1))

    def tile(self, matrix: Terms, x: Array, axis: int) -> Array:
        """The same of a tile (planes, n, c), or for axis 1 (planes, c, n), as one product of two matrices."""
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


class Factors(NamedTuple):
    """A matrix split beforehand: (A,), (re, im) or (re + im, re, im), each in bfloat16 terms that add up to it."""

    forms: tuple[Terms, ...]


Maker = Callable[[Array | int, int], Planes | Factors]


def product(matrix: Maker, planes: Array, dim: int, dot: Dot, total: Array | None = None) -> Array:
    """Adds to a total the product of a matrix, by its columns, with dimension `dim` of a block of stacked planes.

    Costs dot.flops flops for each row and element of a complex block. Long sums are cut into runs of TERMS, and the
    sums of runs into groups, so that the rounding error stays that of one run: below 4e-7 in float32 up to n = 65536,
    as tests/test_points.py counts it.

    Args:
        matrix: makes the columns (rows, size) from a start on, as planes or as factors.
        planes: (planes, *block).
        dim: the contracted dimension of the block, whose place the rows take.
        dot: how to multiply.
        total: what to add to, (planes, *block) of the result; None for nothing.
    """
    n = planes.shape[dim + 1]
    first = n % TERMS or min(TERMS, n)
    runs = (n - first) // TERMS
    groups = max(runs - 1, 0) // GROUP
    alone = runs - groups * GROUP

    def run(start: Array | int, size: int, total: Array | None) -> Array:
        part = lax.dynamic_slice_in_dim(planes, start, size, dim + 1) if size < n else planes
        return _add_product(matrix(start, size), part, total, dim, dot)

    def group(i: Array, total: Array) -> Array:
        start = first + (alone + i * GROUP) * TERMS
        head = run(start, TERMS, None)
        return total + lax.fori_loop(1, GROUP, lambda j, t: run(start + j * TERMS, TERMS, t), head)

    total = run(0, first, total)
    if alone:
        total = lax.fori_loop(0, alone, lambda i, t: run(first + i * TERMS, TERMS, t), total)
    return lax.fori_loop(0, groups, group, total) if groups else total


def split(x: Array, terms: int) -> Terms:
    """A float32 array as bfloat16 terms, largest first, each the rounded rest of those before it."""
    parts: list[Array] = []
    for _ in range(terms):
        parts.append(lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7))
        x = x - parts[-1]
    return tuple(parts)


def _add_product(matrix: Planes | Factors, x: Array, total: Array | None, dim: int, dot: Dot) -> Array:
    """total + matrix x, in the way of the platform that this is lowered for."""
    own = partial(_multiply, dim=dim, dot=dot, way=Way(lax.Precision.HIGHEST, dot.terms))
    tiled = partial(own, tiled=True)
    if not dot.terms or isinstance(matrix, Factors):
        return lax.platform_dependent(matrix, x, total, cpu=tiled, default=own)
    preset = partial(_multiply, dim=dim, dot=dot, way=Way(PRESETS[dot.tier], 0))
    return lax.platform_dependent(matrix, x, total, cpu=tiled, tpu=preset, cuda=preset, default=own)


def _multiply(
    matrix: Planes | Factors, x: Array, total: Array | None, dim: int, dot: Dot, way: Way, tiled: bool = False
) -> Array:
    forms = _assembled(_forms(matrix, dot, way.terms), len(x))
    if tiled and x.size:
        many, rows = max(len(x), len(forms[0][0]), len(forms) - 1), forms[0][0].shape[1]
        shape = (many, *x.shape[1 : dim + 1], rows, *x.shape[dim + 2 :])
        empty = _varying(jnp.zeros(shape, x.dtype), (forms, x))
        return _by_tiles(lambda part, axis: _planes(forms, part, partial(way.tile, axis=axis)), x, total, dim, empty)
    y = _planes(forms, x, partial(way.whole, dim=dim))
    return y if total is None else total + y


def _forms(matrix: Planes | Factors, dot: Dot, terms: int) -> tuple[Terms, ...]:
    """The real matrices of a product, in terms: with three multiplications re + im is one of them."""
    if isinstance(matrix, Factors):
        return matrix.forms
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


def _planes(forms: tuple[Terms, ...], x: Array, dot: Callable[[Terms, Array], Array]) -> Array:
    """The planes of a product: by Gauss's three real ones, plane by plane, or all at once."""
    if len(forms) == 3:
        re, im = x[:1], x[1:]
        first, second, third = (dot(f, v) for f, v in zip(forms, (re, im - re, re + im), strict=True))
        return jnp.concatenate([first - third, first + second])
    if forms[0][0].shape[2] < len(x):
        return jnp.concatenate([dot(forms[0], plane[None]) for plane in x])
    return dot(forms[0], x)


def _by_tiles(multiply: Callable[..., Array], x: Array, total: Array | None, dim: int, empty: Array) -> Array:
    """The product tile by tile over (planes, before, n, after): some lines of what lies behind n, or a part of one."""
    planes, before, n, after = len(x), math.prod(x.shape[1 : dim + 1]), x.shape[dim + 1], math.prod(x.shape[dim + 2 :])
    flat = x.reshape(planes, before, n, after)
    out = empty if total is None else total
    shape, out = out.shape, out.reshape(len(out), before, -1, after)
    lines = before > 1 and after < TILE
    length, times = (before, 1) if lines else (after, before)
    width = min(length, max(1, TILE // after) if lines else TILE if before > 1 else after)

    def tile(line: Array | int, start: Array | int, width: int, out: Array) -> Array:
        at = (0, start, 0, 0) if lines else (0, line, 0, start)
        many, wide = (width, after) if lines else (1, width)
        size = (len(out), many, out.shape[2], wide)
        y = _of_tile(multiply, lax.dynamic_slice(flat, at, (planes, many, n, wide)))
        return lax.dynamic_update_slice(out, y if total is None else y + lax.dynamic_slice(out, at, size), at)

    full = length // width
    out = lax.fori_loop(0, times * full, lambda i, out: tile(i // full, i % full * width, width, out), out)
    if rest := length - full * width:
        out = lax.fori_loop(0, times, lambda i, out: tile(i, full * width, rest, out), out)
    return out.reshape(shape)


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
