"""Products of planes: where a matrix meets a block, and where the precision of the product is set.

Knows nothing of Fourier. A complex product of planes is four real ones, or three (see tiers). In the bfloat16 tiers a
real product is a sum of products of bfloat16 terms, added in float32: by the backend's own algorithm where it has one
(TPU, GPU), else by splitting here. Planes stay apart, and compilers for TPUs and GPUs fuse the additions into the
products; a CPU is better off with tiles (see tiled_products).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from .split_complex import Planes
from .tiers import Dot

TERMS = 128  # complex terms of one float sum on the CPU
LONG_TERMS = 2048  # elsewhere: matrix units add up runs of their own width; bounds the memory for a block of the matrix
GROUP = 16  # runs whose sums are added up one after the other
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
        return self.summed(matrix, x, lambda a, b: jnp.moveaxis(self.dot(a, b, 1, dim), 0, dim))

    def dot(self, a: Array, b: Array, of_a: int, of_b: int) -> Array:
        """The product over one dimension of each."""
        return lax.dot_general(a, b, (((of_a,), (of_b,)), ((), ())), precision=self.precision)

    def summed(self, matrix: Terms, x: Array, dot: Callable[[Array, Array], Array]) -> Array:
        """The products of terms that the tier keeps, smallest first."""
        if not self.terms:
            return dot(matrix[0], x)
        parts = split(x, self.terms)
        pairs = [(i, order - i) for order in reversed(range(self.terms)) for i in range(order + 1)]
        return functools.reduce(jnp.add, (dot(matrix[i].astype(x.dtype), parts[j]) for i, j in pairs))


Maker = Callable[[Array | int, int], Planes | Factors]
Total = TypeVar("Total")


def product(
    terms: Sequence[tuple[Maker, Planes]], dim: int, dot: Dot, total: Sums | None = None, *, real: bool = False
) -> Sums:
    """Adds to sums the products of matrices, by their columns, with dimension `dim` of the planes of blocks.

    Costs dot.flops flops for each row and element of a complex block. Long sums are cut into runs, and the sums of runs
    into groups, so that the rounding error stays that of one run: below 4e-7 in float32 up to n = 65536, as
    tests/operators/test_points.py counts it.

    Args:
        terms: for each block what makes the columns (rows, size) of its matrix from a start on, as planes or as
            factors, and its planes, one or two; blocks are of one shape.
        dim: the contracted dimension of the blocks, whose place the rows take.
        dot: how to multiply.
        total: what to add to; None for nothing.
        real: only the real part of a complex product is wanted.

    Returns:
        The sums, from which `planes_of` makes the planes of the result.
    """
    makers, blocks = [maker for maker, _ in terms], tuple(planes for _, planes in terms)

    def by(size: int, way: Way) -> Callable[[tuple[Planes, ...], Sums | None], Sums]:
        def in_turn(blocks: tuple[Planes, ...], total: Sums | None) -> Sums:
            for maker, planes in zip(makers, blocks, strict=True):
                add = functools.partial(_add, maker, planes, dim=dim, dot=dot, way=way, real=real)
                total = in_runs(planes[0].shape[dim], size, add, total)
            assert total is not None
            return total

        return in_turn

    exact = Way(lax.Precision.HIGHEST, dot.terms)
    cpu, other = by(TERMS, exact), by(LONG_TERMS, exact)
    if not dot.terms:
        return lax.platform_dependent(blocks, total, cpu=cpu, default=other)
    preset = by(LONG_TERMS, Way(PRESETS[dot.tier], 0))
    return lax.platform_dependent(blocks, total, cpu=cpu, tpu=preset, cuda=preset, default=other)


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


def in_runs(n: int, size: int, run: Callable[[Array | int, int, Total | None], Total], total: Total | None) -> Total:
    """Adds `run(start, size, total)` over n columns: the first run, then runs one by one, then groups of them."""
    first = n % size or min(size, n)
    runs = (n - first) // size
    groups = max(runs - 1, 0) // GROUP
    alone = runs - groups * GROUP

    def group(i: Array, total: Total) -> Total:
        start = first + (alone + i * GROUP) * size
        head = run(start, size, None)
        return plus(total, lax.fori_loop(1, GROUP, lambda j, t: run(start + j * size, size, t), head))

    done = run(0, first, total)
    if alone:
        done = lax.fori_loop(0, alone, lambda i, t: run(first + i * size, size, t), done)
    return lax.fori_loop(0, groups, group, done) if groups else done


def complex_sums(
    forms: tuple[Terms, ...], x: Planes, times: Callable[[Terms, Array], Array], real: bool = False
) -> Sums:
    """The sums of a complex product: Gauss's three where there are as many forms, else written out."""
    if len(forms) == 1:
        return tuple(times(forms[0], plane) for plane in x)
    re, im = forms[-2:]
    if len(x) == 1:
        return times(re, x[0]), times(im, x[0])
    if real:
        return (times(re, x[0]) - times(im, x[1]),)
    if len(forms) == 2:
        return times(re, x[0]) - times(im, x[1]), times(im, x[0]) + times(re, x[1])
    return times(forms[0], x[0]), times(re, x[1] - x[0]), times(im, x[0] + x[1])


def forms_of(matrix: Planes | Factors, dot: Dot, terms: int) -> tuple[Terms, ...]:
    """The real matrices of a product, in terms: with three multiplications re + im is one of them."""
    if isinstance(matrix, Factors):
        whole = ((functools.reduce(jnp.add, form).astype(jnp.float32),) for form in matrix.forms)
        return matrix.forms if terms else tuple(whole)
    gauss = len(matrix) == 2 and dot.multiplications == 3
    planes = (matrix[0] + matrix[1], *matrix) if gauss else matrix
    return tuple(split(plane, terms) if terms else (plane,) for plane in planes)


def plus(a: Total, b: Total) -> Total:
    """The sum of two pytrees."""
    return jax.tree.map(jnp.add, a, b)


def _add(
    maker: Maker,
    planes: Planes,
    start: Array | int,
    size: int,
    total: Sums | None,
    dim: int,
    dot: Dot,
    way: Way,
    real: bool,
) -> Sums:
    """total + matrix x, plane by plane. The matrix is made first: fused into the products it is made for every tile."""
    whole = size == planes[0].shape[dim]
    x = planes if whole else tuple(lax.dynamic_slice_in_dim(x, start, size, dim) for x in planes)
    forms = lax.optimization_barrier(forms_of(maker(start, size), dot, way.terms))
    y = complex_sums(forms, x, functools.partial(way.whole, dim=dim), real)
    return y if total is None else plus(total, y)
