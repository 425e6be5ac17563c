"""One device's FFT of a real block along uncut dimensions: half spectra, and back (formulas: RealEngine in base.py).

XLA's own costs 0.9 of a complex one on a TPU, its transpose 1.35, by the compiler's cycles. Where factors.py knows a
cheaper way than XLA's one long product, lines become complex. Products, for matrix units, cost half. Up to DENSE points
these are one product with the N columns

    cos(2 pi k n / N), 0 <= k <= N // 2,      sign sin(2 pi k n / N), 0 < k < N / 2.

Above, N = N1 N2 with n = n1 + N1 n2 and k = k1 N2 + k2, in two stages, the second for k <= N // 2 only:

    A[k2, n1] = sum_n2 x[n1 + N1 n2] w_N2^(n2 k2),   X[k1 N2 + k2] = sum_n1 w_N1^(n1 k1) w_N^(n1 k2) A[k2, n1].
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..layout.layout import line_shape
from ..machine.chip import Chip, rounded_up
from ..machine.machine import Work
from ..numerics.phases import table
from ..numerics.split_complex import Block, Planes, folded, join, like, resize, scaled, split, unfolded
from .base import Lines, Offer, RealEngine, Site
from .factors import largest, way_of
from .xla import XLA, fft, twiddled

# Passes over a block of reals around one product, around two stages, and inside these; real products of two stages.
# Fitted to the cycles of TPU v3 and v5e.
DENSE_PASSES, STAGE_PASSES, FED_PASSES = 3, 8, 20
STAGE_PRODUCTS = 5
SHARES = {False: 0.9, True: 1.35}  # by `onto_real`: XLA's cost on a TPU over that of complex lines
XLA_DIMS = 3  # most of one call of XLA's real FFT
SIDE = 128  # rows of a matrix unit
DENSE = 4 * SIDE  # most points of one product; above, two stages are cheaper
RUN = 32  # terms of one float sum on CPUs, which add one term after another
HostPlanes = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class XlaReal(RealEngine):
    by_xla: ClassVar[bool] = True
    name = "xla"
    products: bool = False

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        products = site.machine.chip.side > 1
        if 1 < len(lines.dims) <= XLA_DIMS:
            yield cls(products), lines.dims
        if not products or not factors(lines.lengths[-1]):
            yield cls(products), lines.dims[-1:]

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        whole = XLA.work(lines, itemsize, chip)
        if chip.side > 1:
            last = SHARES[lines.onto_real] if way_of(lines.lengths[-1]).by_xla else 1.0
            share = (last + (len(lines.dims) - 1) / 2) / len(lines.dims)  # other dimensions have half the lines
            return dataclasses.replace(
                whole,
                matrix_flops=round(share * whole.matrix_flops),
                memory_bytes=round(2 * share * whole.memory_bytes),
                fed_bytes=round(2 * share * whole.fed_bytes),
            )
        copies = 2 * lines.onto_real if chip.switched else 0
        if chip.cached:
            copies = 1 if lines.behind else 2 * lines.onto_real
        more = (copies * lines.points + chip.cached * 2 * lines.points // lines.lengths[-1]) * itemsize
        return dataclasses.replace(whole, vector_flops=whole.vector_flops // 2, peak_bytes=whole.peak_bytes + more)

    def half(self, block: Block, dims: tuple[int, ...], sign: int) -> Block:
        (x,) = split(block)
        complex_lines = self._takes_ffts(x, dims, x.shape[dims[-1]])
        y = _half_by_ffts(x, dims) if complex_lines else jnp.fft.rfftn(x, axes=dims)
        y = jnp.conj(y) if sign > 0 else y  # both have sign -1
        return split(y) if isinstance(block, tuple) else y

    def real(self, block: Block, dims: tuple[int, ...], length: int, sign: int) -> Block:
        y = join(split(block))
        y = jnp.conj(y) if sign < 0 else y
        x = (_real_by_ffts if self._takes_ffts(y, dims, length) else _real_by_xla)(y, dims, length)
        return (x,) if isinstance(block, tuple) else x

    def _takes_ffts(self, x: Array, dims: tuple[int, ...], length: int) -> bool:
        """Whether XLA would make one long product where complex lines take a cheaper way."""
        return self.products and not all(way_of(n).by_xla for n in (*(x.shape[d] for d in dims[:-1]), length))


def _half_by_ffts(x: Array, dims: tuple[int, ...]) -> Array:
    lines = fft(lax.complex(x, jnp.zeros_like(x)), dims[-1:], -1, products=True)
    return fft(resize(lines, dims[-1], x.shape[dims[-1]] // 2 + 1), dims[:-1], -1, products=True)


def _real_by_ffts(y: Array, dims: tuple[int, ...], length: int) -> Array:
    lines = resize(fft(y, dims[:-1], 1, products=True), dims[-1], length)
    return fft(lines, dims[-1:], 1, products=True).real


def _real_by_xla(y: Array, dims: tuple[int, ...], length: int) -> Array:
    """XLA's irfftn has sign +1 and doubles all bins but 0 and N / 2: these are halved first."""
    shape = [y.shape[d] for d in dims[:-1]] + [length]
    halves = np.where(_inner(length), 0.5, 1.0).astype(y.real.dtype)
    return jnp.fft.irfftn(scaled(y, halves.reshape(line_shape(dims[-1], y.ndim))), shape, axes=dims, norm="forward")


@dataclasses.dataclass(frozen=True)
class Products(RealEngine):
    by_xla: ClassVar[bool] = True
    name = "matmul"

    @classmethod
    def offers(cls, lines: Lines, site: Site) -> Iterator[Offer]:
        if site.machine.chip.side > 1 and factors(lines.lengths[-1]):
            yield cls(), lines.dims[-1:]

    def work(self, lines: Lines, itemsize: int, chip: Chip) -> Work:
        (length,), points = lines.lengths, lines.points
        dense = len(factors(length)) == 1
        return Work(
            matrix_flops=2 * (rounded_up(length, chip.side) if dense else STAGE_PRODUCTS * SIDE) * points,
            tier="bf16x6",
            memory_bytes=(DENSE_PASSES if dense else STAGE_PASSES) * points * itemsize,
            fed_bytes=0 if dense else FED_PASSES * points * itemsize,
            peak_bytes=6 * points * itemsize,
        )

    def half(self, block: Block, dims: tuple[int, ...], sign: int) -> Block:
        ((x,), (dim,)) = split(block), dims
        return like(block, _to_half(x, dim, sign))

    def real(self, block: Block, dims: tuple[int, ...], length: int, sign: int) -> Block:
        x = _from_half(split(block), dims[0], length, sign)
        return (x,) if isinstance(block, tuple) else x


XLA_REAL = XlaReal()


@functools.lru_cache(maxsize=1024)
def factors(length: int) -> tuple[int, ...]:
    """Stages of "matmul": (N,) or (N2, N1); () if it has no product."""
    if length <= DENSE:
        return (length,)
    low = largest(length, SIDE)
    return (low, length // low) if low < length <= low * SIDE else ()


def _to_half(x: Array, dim: int, sign: int) -> Planes:
    length = x.shape[dim]
    columns, *rest = factors(length)
    if not rest:
        return _unpacked(_times(x, _packed(length, sign), dim), dim)
    (rows,) = rest
    x = unfolded(x, dim, columns)
    re, im = (_times(x, part, dim) for part in _roots(columns, columns, columns, sign))
    y = _product(twiddled((re, im), dim, sign), _roots(rows, _kept(length), rows, sign), dim + 1, dim)
    return tuple(resize(folded(plane, dim), dim, length // 2 + 1) for plane in y)


def _from_half(planes: Planes, dim: int, length: int, sign: int) -> Array:
    columns, *rest = factors(length)
    if not rest:
        cosines, sines = planes
        sines = lax.slice_in_dim(sines, 1, 1 + length - cosines.shape[dim], axis=dim)  # the rest is zero
        return _times(lax.concatenate([cosines, sines], dim), _packed(length, -sign).T, dim)
    (rows,) = rest
    kept = _kept(length)
    y = tuple(unfolded(resize(plane, dim, kept * columns), dim, kept) for plane in planes)
    a = twiddled(_product(y, _roots(kept, rows, rows, sign), dim, dim + 1), dim, sign)
    re, im = _roots(columns, columns, columns, sign)
    return folded(_times(a[0], re, dim) - _times(a[1], im, dim), dim)


def _kept(length: int) -> int:
    return length // 2 // factors(length)[0] + 1


def _inner(length: int) -> np.ndarray:
    """True for the bins that stand for two: 0 < k < N / 2."""
    k = np.arange(length // 2 + 1)
    return (k > 0) & (2 * k < length)


def _roots(rows: int, columns: int, length: int, sign: int) -> HostPlanes:
    roots = table(rows, columns, length, sign, np.dtype(complex))
    return roots.real, roots.imag


def _packed(length: int, sign: int) -> np.ndarray:
    """Cosines and sines of the dense product, (n, packed k)."""
    re, im = _roots(length, length // 2 + 1, length, sign)
    return np.concatenate([re, im[:, _inner(length)]], axis=1)


def _unpacked(y: Array, dim: int) -> Planes:
    """Planes from packed columns: the imaginary one is the tail, shifted by one."""
    length = y.shape[dim]
    half, zero = length // 2 + 1, jnp.zeros((), y.dtype)
    moved = [(1 - half, 2 * half - 1 - length, 0) if d == dim else (0, 0, 0) for d in range(y.ndim)]
    im = jnp.where(_inner(length).reshape(line_shape(dim, y.ndim)), lax.pad(y, zero, moved), zero)
    return resize(y, dim, half), im


def _product(a: Planes, matrix: HostPlanes, dim: int, to: int) -> Planes:
    (x, y), (re, im) = a, matrix
    both = _times(x + y, re, dim, to)
    return both - _times(y, re + im, dim, to), both + _times(x, im - re, dim, to)


def _times(x: Array, matrix: np.ndarray, dim: int, to: int | None = None) -> Array:
    """Contracts `dim` with a matrix's rows; its columns are at `to`, or replace it. CPUs add short float sums."""
    rounded, to = matrix.astype(x.dtype), dim if to is None else to

    def contracted(x: Array, matrix: np.ndarray) -> Array:
        y = lax.dot_general(x, matrix, (((dim,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)
        return jnp.moveaxis(y, -1, to)

    def by_runs(x: Array) -> Array:
        runs = [(start, min(start + RUN, len(rounded))) for start in range(0, len(rounded), RUN)]
        parts = (contracted(lax.slice_in_dim(x, *run, axis=dim), rounded[slice(*run)]) for run in runs)
        return functools.reduce(jnp.add, parts)

    return lax.platform_dependent(x, cpu=by_runs, default=lambda x: contracted(x, rounded))
