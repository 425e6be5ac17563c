"""One device's FFT in float64 by integer products: dense factors, mostly of at most 128 points.

With N = R M, n = M a + b and k = c + R d,

    X[c + R d] = sum_b w_M^(b d) w_N^(b c) sum_a w_R^(a c) x[M a + b],   w_N = exp(sign 2 pi i / N),

where the inner sum is a product by slices (numerics/slices.py), the outer one the same transform of M points.
Invariant: blocks are split complex, and twiddle factors are rounded to float64 once.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.all_to_all import Grid
from ..machine.chip import LANES, Chip, rounded_up
from ..machine.machine import Work
from ..numerics.chunks import CHUNK, chunks, in_chunks
from ..numerics.dtypes import ROUNDING, Dot, Error
from ..numerics.phases import MAX_LENGTH, host_roots
from ..numerics.products import Factors, planes_of, product
from ..numerics.slices import HELD, cost, host_slices
from ..numerics.split_complex import Planes, unfolded
from .base import Engine, Lines, Offer, Site
from .factors import balanced
from .xla import twiddled

SIDE = 128
LONGEST = 1024  # points of a prime factor; a dense step makes longer matrices as it multiplies
LONG_HELD = 160  # bytes per number of a line longer than a chunk, by TPU v5e's compiler
TWIDDLE_FLOPS = 200  # per complex number: four products, two sums, in pairs of float32
TWIDDLE_PASSES = 4  # with a transpose
START_FLOPS = 230_000_000  # overhead of one product of few lines: 39 us on v5e
SPLIT = 1.5  # times the operations of a stage if a length has several, whose rows are short: 1.3 to 1.6 on v5e


@dataclasses.dataclass(frozen=True)
class SlicedFFT(Engine[Planes]):
    by_xla: ClassVar[bool] = True
    dot: Dot
    planar: ClassVar[bool] = True
    slices: ClassVar[bool] = True

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        pairs = zip(lines.dims, lines.lengths, strict=True)
        if dims := tuple(d for d, n in pairs if radices(n) is not None):
            yield from ((cls(dot), dims) for dot in site.dots)

    @property
    def name(self) -> str:
        return self.dot.tier

    @property
    def dots(self) -> tuple[Dot, ...]:
        return (self.dot,)

    def error(self, length: int, itemsize: int) -> Error:
        return Error(fft_error(length, self.dot))

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        points = lines.points
        each = [balanced(length, SIDE) for length in lines.lengths]
        factors = [radix for radices in each for radix in radices]
        flops, nbytes = cost(self.dot, points, points, self.dot.multiplications, chip.fast_bytes)
        between = len(factors) - len(lines.lengths)
        stages = sum(len(radices) * (SPLIT if len(radices) > 1 else 1) for radices in each)
        last = len(lines.block) - 1
        if last not in lines.dims and chip.side > 1:  # it stays the columns of tiles
            stages *= rounded_up(lines.block[last], LANES) / max(lines.block[last], 1)
        return Work(
            matrix_flops=self.dot.flops * points * sum(rounded_up(radix, chip.side) for radix in factors),
            tier=self.dot.tier,
            vector_flops=round(stages * flops) + len(factors) * START_FLOPS + between * TWIDDLE_FLOPS * points,
            memory_bytes=len(factors) * nbytes + TWIDDLE_PASSES * between * points * itemsize,
            # block, array worked on in place, and a copy, as TPUs keep float64 in two arrays
            peak_bytes=(math.prod(lines.block) + 2 * points) * itemsize + scratch(lines.shape, lines.dims),
        )

    def apply(self, block: Planes, dims: tuple[int, ...], sign: int, grid: Grid = (), first: bool = False) -> Planes:
        return fft(block, dims, sign, self.dot)


@functools.lru_cache(maxsize=1024)
def radices(length: int) -> tuple[int, ...] | None:
    """Factors of a length, one product each; None if one or the length is too long."""
    factors = balanced(length, SIDE)
    return factors if max(factors) <= LONGEST and length <= MAX_LENGTH else None


def fft(planes: Planes, dims: tuple[int, ...], sign: int, dot: Dot) -> Planes:
    """Transforms dimensions of float64 planes, unscaled: 8 R flops a point for each factor R and pass of the tier."""
    for dim in dims:
        if planes[0].shape[dim] > 1:
            planes = in_chunks((), planes, dim, functools.partial(_lines, dim=dim, sign=sign, dot=dot))
    return planes


def _lines(_: Planes, lines: Planes | None, dim: int, sign: int, dot: Dot) -> Planes:
    assert lines is not None
    return _transformed(lines, dim, radices(lines[0].shape[dim]) or (), sign, dot)


def fft_error(length: int, dot: Dot) -> float:
    """Expected relative L2 error of one dimension, by products and twiddle factors."""
    factors = balanced(length, SIDE)
    squares = sum(dot.error_over(radix) ** 2 for radix in factors) + (len(factors) - 1) * ROUNDING[dot.unit] ** 2
    return float(squares**0.5) if length > 1 else 0.0


def scratch(block: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Temporary bytes besides the block: for a chunk, or a longer line with its twiddle factors."""
    largest = max((math.prod(block) // chunks(block, dim)[1] for dim in dims), default=0)
    return (HELD if largest <= CHUNK else LONG_HELD) * largest


def matrices(length: int, dot: Dot) -> int:
    """Bytes of the matrices for the sums of all weights at once, made where no matrix unit is (see SlicedProduct)."""
    return 4 * (dot.slices * max(balanced(length, SIDE))) ** 2 * (not dot.unit and dot.multiplications == 4)


def _transformed(planes: Planes, dim: int, factors: tuple[int, ...], sign: int, dot: Dot) -> Planes:
    shape, (radix, *rest) = planes[0].shape, factors
    split = tuple(unfolded(plane, dim, radix) for plane in planes)
    maker = functools.partial(_columns, radix, sign, dot)
    lines = planes_of(product([(maker, split)], dim, dot))
    if rest:
        lines = twiddled(lines, dim, sign)
        lines = _transformed(lines, dim + 1, tuple(rest), sign, dot)
    return tuple(plane.swapaxes(dim, dim + 1).reshape(shape) for plane in lines)


def _columns(length: int, sign: int, dot: Dot, start: Array | int, size: int) -> Factors:
    def cut(leaf: np.ndarray) -> Array:
        return lax.dynamic_slice_in_dim(jnp.asarray(leaf), start, size, 2)

    forms = _factor(length, sign, dot.slices, dot.multiplications)
    return Factors(tuple((*map(cut, digits), jnp.asarray(scale)) for *digits, scale in forms))


@functools.lru_cache(maxsize=64)
def _factor(length: int, sign: int, slices: int, multiplications: int) -> tuple[tuple[np.ndarray, ...], ...]:
    """exp(sign 2 pi i k n / N) in slices with powers of two: three real forms, or one real product."""
    entries = host_roots(np.outer(np.arange(length), np.arange(length)), length, sign)
    re, im = entries.real, entries.imag
    scale = np.full((1, 1), 2.0)
    if multiplications == 3:  # |re + im| is up to sqrt(2)
        forms = (((re + im) / 2, 2 * scale), (re, scale), (im, scale))
        return tuple((host_slices(form, slices)[::-1], by) for form, by in forms)
    both = np.concatenate([re, im]), np.concatenate([-im, re])
    return ((*(host_slices(form, slices)[::-1] for form in both), scale),)
