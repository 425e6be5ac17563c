"""Products of matrices and blocks in split complex, in the precision of a tier."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .chunks import in_chunks, in_runs
from .dtypes import SHORT_TERMS, Dot
from .slices import SlicedProduct, Terms
from .split_complex import Planes, resize, unfolded

TERMS = 128  # matrix columns multiplied at once on the CPU
GROUP = 32  # columns of these per float sum
LONG_TERMS = 2048  # on matrix units, which sum shorter runs: bounds the memory of a matrix block
PRESETS = {  # on GPUs
    "bf16": lax.DotAlgorithmPreset.BF16_BF16_F32,
    "bf16x3": lax.DotAlgorithmPreset.BF16_BF16_F32_X3,
    "bf16x6": lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
}
# The same on TPUs: with a preset the compiler rounded a matrix made in the program to bfloat16 (libtpu 0.0.52).
ON_TPUS = {"bf16": lax.Precision.DEFAULT, "bf16x3": lax.Precision.HIGH, "bf16x6": lax.Precision.HIGHEST}
Forms = tuple[Terms, ...]  # real matrices of a product
Sums = tuple[Array, ...]  # (A,), (re, im), or Gauss's three, kept separate until the last addition


class Factors(NamedTuple):
    """A presplit matrix, (A,), (re, im) or (re + im, re, im), in bfloat16 terms, or in slices with a scale."""

    forms: Forms


# Makes columns (rows, size) of a matrix from a start.
Maker = Callable[[Array | int, int], Planes | Factors]


class RealProduct(NamedTuple):
    """Makes real products by the backend's algorithm for a precision, or from terms of both factors.

    XLA on CPUs adds terms one by one, which loses up to (n / 4 + 1 / 2) roundings; sums of `group` are added in pairs.
    """

    precision: lax.Precision | lax.DotAlgorithmPreset
    terms: int
    group: int = 0  # 0 if all terms are one sum

    def parts(self, matrix: Array) -> Terms:
        return terms_of(matrix, self.terms) if self.terms else (matrix,)

    def laid(self, form: Terms) -> Terms:
        """From (rows, n) to (groups, rows, terms of a group), zero-padded."""
        return tuple(jnp.moveaxis(_grouped(part, 1, self.group), 1, 0) for part in form) if self.group else form

    def along(self, matrix: Terms, x: Array, dim: int) -> Array:
        return self.summed(matrix, x, lambda a, b: jnp.moveaxis(self.dot(a, b, dim), 0, dim))

    def of_tile(self, matrix: Terms, x: Array) -> Array:
        lines, n, width = x.shape
        if width == 1:
            return self.summed(matrix, x.reshape(lines, n), functools.partial(self.dot, dim=1, last=True))[..., None]
        y = self.summed(matrix, x.swapaxes(0, 1).reshape(n, -1), functools.partial(self.dot, dim=0))
        return y.reshape(-1, lines, width).swapaxes(0, 1)

    def dot(self, matrix: Array, x: Array, dim: int, last: bool = False) -> Array:
        """A matrix from `laid` times dimension `dim`; rows become the first or last dimension."""
        both = (matrix, 1 + (self.group > 0)), (_grouped(x, dim, self.group), dim + 1) if self.group else (x, dim)
        (a, of_a), (b, of_b) = reversed(both) if last else both
        if not self.group:
            return lax.dot_general(a, b, (((of_a,), (of_b,)), ((), ())), precision=self.precision)
        contracted = ((of_a,), (of_b,)), ((0,), (dim,)) if not last else ((dim,), (0,))
        return _in_pairs(list(lax.dot_general(a, b, contracted, precision=self.precision)))

    def summed(self, matrix: Terms, x: Array, dot: Callable[[Array, Array], Array]) -> Array:
        if not self.terms:
            return dot(matrix[0], x)
        parts = terms_of(x, self.terms)
        pairs = [(i, order - i) for order in reversed(range(self.terms)) for i in range(order + 1)]
        return functools.reduce(jnp.add, (dot(matrix[i].astype(x.dtype), parts[j]) for i, j in pairs))


def product(
    terms: Sequence[tuple[Maker, Planes]], dim: int, dot: Dot, total: Sums | None = None, *, real: bool = False
) -> Sums:
    """Adds to `total` the products of matrices with dimension `dim` of blocks in split complex.

    Blocks have one shape; rows replace the dimension. `real` keeps only the real part. Costs dot.flops per row and
    element. Sums of runs in two levels keep the error below 4e-7 in float32.
    """
    makers, blocks = [maker for maker, _ in terms], tuple(planes for _, planes in terms)
    summed = functools.partial(_summed, makers=makers, dim=dim, dot=dot, real=real)
    if dot.slices:
        ways = SlicedProduct(dot.slices, dot.unit or "int8", pairs=True), SlicedProduct(dot.slices, "")
        tpu, other = (functools.partial(summed, size=way.run, way=way) for way in ways)
        return lax.platform_dependent(blocks, total, tpu=tpu, default=other)
    exact = RealProduct(lax.Precision.HIGHEST, dot.terms)
    cpu = functools.partial(summed, size=TERMS, way=exact._replace(group=GROUP))
    tpu, other = (functools.partial(summed, size=size, way=exact) for size in (LONG_TERMS, SHORT_TERMS))
    if not dot.terms:
        return lax.platform_dependent(blocks, total, cpu=cpu, tpu=tpu, default=other)
    tpu, cuda = (
        functools.partial(summed, size=LONG_TERMS, way=RealProduct(table[dot.tier], 0)) for table in (ON_TPUS, PRESETS)
    )
    return lax.platform_dependent(blocks, total, cpu=cpu, tpu=tpu, cuda=cuda, default=other)


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
    """The product in runs. The barrier makes the matrix first; fused, XLA would remake it for every tile."""

    def run(maker: Maker, planes: Planes, start: Array | int, size: int, total: Sums | None) -> Sums:
        full = size == planes[0].shape[dim]
        x = planes if full else tuple(lax.dynamic_slice_in_dim(x, start, size, dim) for x in planes)
        forms = forms_of(maker(start, size), dot, way, len(planes) == 2 and not real)
        forms = lax.optimization_barrier(tuple(map(way.laid, forms)))

        def added(x: Planes, total: Sums | None) -> Sums:
            if isinstance(way, SlicedProduct) and len(forms[0]) == 3:
                y = way.complex_along(forms[0], x, dim)
            else:
                y = complex_sums(forms, x, functools.partial(way.along, dim=dim), real)
            return y if total is None else jax.tree.map(jnp.add, total, y)

        return in_chunks(x, total, dim, added, jax.tree.leaves(forms)) if dot.slices else added(x, total)

    for maker, planes in zip(makers, blocks, strict=True):
        total = in_runs(planes[0].shape[dim], size, functools.partial(run, maker, planes), total)
    assert total is not None
    return total


def planes_of(sums: Sums) -> Planes:
    """Gauss's sums are A = (re + im) x, B = re (y - x), C = im (x + y)."""
    return (sums[0] - sums[2], sums[0] + sums[1]) if len(sums) == 3 else sums


def _grouped(x: Array, dim: int, size: int) -> Array:
    many = max(1, -(-x.shape[dim] // size))
    return unfolded(resize(x, dim, many * min(size, x.shape[dim])), dim, many)


def _in_pairs(parts: list[Array]) -> Array:
    while len(parts) > 1:
        parts = [functools.reduce(jnp.add, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def terms_of(x: Array, many: int) -> Terms:
    """Bfloat16 terms of a float32 array, largest first, each the rounded remainder of the previous."""
    parts: list[Array] = []
    for _ in range(many):
        parts.append(lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7))
        x = x - parts[-1]
    return tuple(parts)


def complex_sums(forms: Forms, x: Planes, times: Callable[[Terms, Array], Array], real: bool = False) -> Sums:
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


def forms_of(matrix: Planes | Factors, dot: Dot, way: RealProduct | SlicedProduct, full: bool = False) -> Forms:
    """A product's real matrices, in parts, with re + im for Gauss's; one matrix for complex slices (`full`)."""
    if isinstance(matrix, Factors):
        joined = ((functools.reduce(jnp.add, form).astype(jnp.float32),) for form in matrix.forms)
        return tuple(joined) if isinstance(way, RealProduct) and not way.terms else matrix.forms
    gauss = len(matrix) == 2 and dot.multiplications == 3
    if isinstance(way, SlicedProduct) and full and len(matrix) == 2 and not gauss:
        return (way.complex_parts(*matrix),)
    planes = (matrix[0] + matrix[1], *matrix) if gauss else matrix
    return tuple(map(way.parts, planes))


def masked(matrix: Planes | Factors, kept: Array) -> Planes | Factors:
    return jax.tree.map(lambda part: jnp.where(kept[:, None], part, jnp.zeros((), part.dtype)), matrix)
