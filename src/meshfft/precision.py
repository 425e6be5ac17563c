"""Products: the one place where a matrix meets a block, and where the precision of the product is set.

Knows nothing of Fourier. Everything is real planes. A complex product is four real ones, [re; im] of the matrix with
each plane of the block, or three (see tiers). In the bfloat16 tiers a real product is a sum of products of bfloat16
terms, added in float32: by the backend's own algorithm where it has one (TPU, GPU), else by splitting here.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .planes import Planes
from .tiers import Dot

TERMS = 256  # of one float sum
PRESETS = {
    "bf16": lax.DotAlgorithmPreset.BF16_BF16_F32,
    "bf16x3": lax.DotAlgorithmPreset.BF16_BF16_F32_X3,
    "bf16x6": lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
}
Terms = tuple[Array, ...]


class Factors(NamedTuple):
    """A matrix as real products take it: (A,), (re, im) or (re + im, re, im), each in terms that add up to it."""

    forms: tuple[Terms, ...]


def product(matrix: Callable[[Array | int, int], Planes | Factors], planes: Planes, dim: int, dot: Dot) -> Planes:
    """Contracts the columns of a matrix with dimension `dim` of a block.

    Costs dot.flops m flops for each element of a complex block. Long sums are cut into runs of TERMS that are added up
    afterwards, so that the rounding error stays that of one run: 3e-7 at any n in float32, where one sum of 8192 terms
    has 4e-7.

    Args:
        matrix: makes the columns (m, size) from a start on, as planes or as factors.
        planes: of the block.
        dim: the contracted dimension of the block, whose place the rows take.
        dot: how to multiply.
    """
    n = planes[0].shape[dim]
    first = n % TERMS or min(TERMS, n)

    def run(start: Array | int, size: int) -> Planes:
        part = tuple(lax.dynamic_slice_in_dim(plane, start, size, dim) for plane in planes)
        return _multiply(matrix(start, size), part, dim, dot)

    def add_run(i: Array, total: Planes) -> Planes:
        return tuple(a + b for a, b in zip(total, run(first + i * TERMS, TERMS), strict=True))

    total = run(0, first)
    runs = (n - first) // TERMS
    return lax.fori_loop(0, runs, add_run, total) if runs else total


def split(x: Array, terms: int) -> Terms:
    """A float32 array as bfloat16 terms, largest first, each the rounded rest of those before it."""
    parts: list[Array] = []
    for _ in range(terms):
        parts.append(lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7))
        x = x - parts[-1]
    return tuple(parts)


def forms(planes: Planes, dot: Dot) -> Planes:
    """The real matrices that a product needs of one with these planes; what three multiplications add up, is added."""
    if len(planes) == 2 and dot.multiplications == 3:
        return planes[0] + planes[1], *planes
    return planes


def _multiply(matrix: Planes | Factors, planes: Planes, dim: int, dot: Dot) -> Planes:
    """By terms where the matrix comes in terms, by the type itself, or by the backend's algorithm where it has one."""
    by_terms = functools.partial(_by_terms, dim=dim, terms=dot.terms)
    if isinstance(matrix, Factors):
        return _complex(matrix.forms, planes, by_terms, dim)
    whole = forms(matrix, dot)
    if not dot.terms:
        return _complex(whole, planes, functools.partial(_real, dim=dim, precision=lax.Precision.HIGHEST), dim)

    def preset(whole: Planes, planes: Planes) -> Planes:
        return _complex(whole, planes, functools.partial(_real, dim=dim, precision=PRESETS[dot.tier]), dim)

    def own(whole: Planes, planes: Planes) -> Planes:
        return _complex(tuple(split(form, dot.terms) for form in whole), planes, by_terms, dim)

    return lax.platform_dependent(whole, planes, tpu=preset, cuda=preset, default=own)


def _complex(forms: tuple, planes: Planes, multiply: Callable[..., Array], dim: int) -> Planes:
    """The planes of a product from real products: of one real form, of [re; im] stacked, or of Gauss's three."""
    if len(forms) == 1:
        return tuple(multiply(forms[0], plane) for plane in planes)
    if len(forms) == 3 and len(planes) == 2:
        re, im = planes
        first, second, third = (multiply(f, x) for f, x in zip(forms, (re, im - re, re + im), strict=True))
        return first - third, first + second
    stacked = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), *forms[-2:])
    halves = [jnp.split(multiply(stacked, plane), 2, dim) for plane in planes]
    if len(planes) == 1:
        return tuple(halves[0])
    (re_re, im_re), (re_im, im_im) = halves
    return re_re - im_im, im_re + re_im


def _by_terms(form: Terms, plane: Array, dim: int, terms: int) -> Array:
    """The products of terms that a tier keeps, smallest first, added in float32."""
    parts = split(plane, terms)
    pairs = [(i, j) for total in reversed(range(terms)) for i in range(total + 1) for j in [total - i]]
    products = (_real(form[i].astype(plane.dtype), parts[j], dim, lax.Precision.HIGHEST) for i, j in pairs)
    return functools.reduce(jnp.add, products)


def _real(matrix: Array, plane: Array, dim: int, precision: lax.PrecisionLike) -> Array:
    """A real matrix (m, n) times dimension `dim` of a plane."""
    out = lax.dot_general(matrix, plane, (((1,), (dim,)), ((), ())), precision=precision)
    return jnp.moveaxis(out, 0, dim)
