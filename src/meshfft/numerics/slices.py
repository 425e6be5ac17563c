"""Error-free float64 products from small integers (Ozaki's scheme), for matrix units without float64.

Each row of the matrix and each line of the block is scaled by a power of two and cut into S slices, 8-bit integers

    x = 2^e sum_i d_i 2^(1 - 8 i),   -128 <= d_i <= 127,   i = 1 ... S

The products of slices with i + j <= S + 1 are exact: in int32 below 2^17 terms, in bfloat16 with float32 sums up to
2^10. Invariant: inputs are scaled to magnitudes below 127 / 128, and the only errors are the truncation after slice S,
the omitted products (`dtypes.sliced_error`) and the rounding of the sum.

Source: Ozaki, Ogita, Oishi and Rump, Numer. Algorithms 59, 2012; Ootomo, Ozaki and Yokota, arXiv:2306.11975.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .chunks import CHUNK
from .dtypes import TIERS, Dot

BITS = 8  # of a slice, sign included
HIGH = 4  # slices in the first 32-bit integer of a number
ROOM = 1 + 2.0**-6  # extra downscaling of lines, so that the first slice rounds to at most 127
LEAST, LEAST_OF_PAIRS = -1000, -100  # smallest exponents of the scale of a line
# (operations, bytes) per sliced number and per sum of products, from the TPU v5e compiler's cycles. If fast memory does
# not hold a chunk's sums, each product reads and writes them.
SLICE_COST, SUM_COST = (340, 8), (200, 16)
SPILLED = {"int8": 8, "int8 long": 3, "bf16": 3}
HELD = 112  # bytes per complex number of a chunk: slices, sums and results
TERMS = {**dict.fromkeys(("", "int8", "int8 long"), 2**17 - 1), "bf16": 2**10}  # added exactly, each below 2^14
RUN = 2048  # most columns of a matrix per sum
WHOLE = 2**23  # largest matrix, in bytes, for the sums of all weights at once
Terms = tuple[Array, ...]


def cost(dot: Dot, numbers: int, sums: int, reals: int, fast: float) -> tuple[int, int]:
    """Operations and bytes besides the products, for `numbers` to slice and `sums` of `reals` products each."""
    each = 2 if reals == 4 else reals
    spilled = SPILLED.get(dot.unit, 0) * (reals // each) * TIERS[dot.tier].passes * (fast < HELD * CHUNK)
    flops, nbytes = (each * (numbers * one + sums * two) for one, two in zip(SLICE_COST, SUM_COST, strict=True))
    return flops, nbytes + each * sums * spilled


class SlicedProduct(NamedTuple):
    """Real products by slices: slices per factor, matrix unit, and whether float64 is a pair of float32, as on TPUs.

    Without a matrix unit, one int8 product by a half-zero matrix makes the sums for all i + j: twice the work, a third
    of the instructions to compile; above WHOLE, each i + j has its own products.
    """

    slices: int
    unit: str
    pairs: bool = False

    @property
    def run(self) -> int:
        """Columns of a matrix that one sum adds exactly."""
        return min(RUN, TERMS[self.unit] // (1 if self.unit == "bf16" else 2 * self.slices))

    @property
    def long(self) -> bool:
        return self.unit != "int8"

    def laid(self, form: Terms) -> Terms:
        """A matrix in slices (S, rows, n), side by side (rows, S n), or for all weights (S, rows, S n)."""
        *digits, scale = form
        if not self.unit and self.slices * digits[0].size <= WHOLE:
            return *map(_of_all_weights, digits), scale
        return *(jnp.concatenate(list(each), 1) if self.long else each for each in digits), scale

    def parts(self, *matrices: Array) -> Terms:
        digits, scale = self.sliced(matrices, 1)
        return *(_stacked(each)[::-1] for each in digits), scale

    def complex_parts(self, re: Array, im: Array) -> Terms:
        return self.parts(jnp.concatenate([re, im]), jnp.concatenate([-im, re]))

    def sliced(self, arrays: Terms, axis: int) -> tuple[tuple[Terms | Array, ...], Array]:
        """Int8 slices, largest first, and the arrays' shared power of two; NaN for lines without one."""
        scaled, scale = (_pairs if self.pairs else _doubles)(arrays, axis)
        digits = one_by_one if self.unit else at_once
        return tuple(digits(limbs(parts, self.slices), self.slices) for parts in scaled), scale

    def along(self, matrix: Terms, x: Array, dim: int) -> Array:
        return self.summed(matrix, (x,), dim)

    def complex_along(self, matrix: Terms, planes: Terms, dim: int) -> Terms:
        re, im = jnp.split(self.summed(matrix, planes, dim), 2, dim)
        return re, im

    def summed(self, matrix: Terms, arrays: Terms, dim: int) -> Array:
        """Lines stand side by side, as TPUs pad the last two dimensions of slices and sums to tiles."""
        *digits, scale = matrix
        others = np.delete(arrays[0].shape, dim)
        columns = tuple(jnp.moveaxis(x, dim, 0).reshape(x.shape[dim], math.prod(others)) for x in arrays)
        lines, line_scale = self.sliced(columns, 0)
        scale = (scale.reshape(-1, 1) * 2.0 ** (2 - 2 * BITS)).astype(line_scale.dtype)
        value, low = carried(self._orders(digits, lines))
        if self.pairs:
            high, rest = (part * scale * line_scale for part in pair(value, low))
            sums = high.astype(arrays[0].dtype) + rest.astype(arrays[0].dtype)
        else:
            sums = joined(value, low, arrays[0].dtype) * (scale * line_scale)
        return jnp.moveaxis(sums.reshape(len(sums), *others), 0, dim)

    def _orders(self, matrices: list[Array], lines: tuple[Terms | Array, ...]) -> list[Array]:
        if not self.unit and matrices[0].ndim == 3:
            column = jnp.concatenate([digits.reshape(-1, digits.shape[-1]) for digits in map(_stacked, lines)])
            return list(self._dot(jnp.concatenate(matrices, 2), column))
        each, n = tuple(map(tuple, lines)), len(lines[0][0])
        if self.long:
            each = lax.optimization_barrier(tuple((jnp.concatenate(digits),) for digits in each))
        return [self._order(pairs, matrices, each, n) for pairs in range(1, self.slices + 1)]

    def _order(self, pairs: int, matrices: list[Array], lines: tuple[Terms, ...], n: int) -> Array:
        """Sum of all products of slices i and j with i + j = pairs + 1: (rows, lines), as int32."""
        if not self.long:
            some = (zip(a[self.slices - pairs :], x, strict=False) for a, x in zip(matrices, lines, strict=True))
            return functools.reduce(jnp.add, (self._dot(*one) for each in some for one in each))
        many = max(1, TERMS[self.unit] // max(n, 1))
        first, runs = (self.slices - pairs) * n, [(k, min(k + many, pairs)) for k in range(0, pairs, many)]
        each = (
            self._dot(a[:, first + k * n : first + end * n], x[0][k * n : end * n])
            for a, x in zip(matrices, lines, strict=True)
            for k, end in runs
        )
        return functools.reduce(jnp.add, each)

    def _dot(self, a: Array, b: Array) -> Array:
        kind, wide = (jnp.bfloat16, jnp.float32) if self.unit == "bf16" else (jnp.int8, jnp.int32)
        contracted = (((a.ndim - 1,), (0,)), ((), ()))
        y = lax.dot_general(a.astype(kind), b.astype(kind), contracted, preferred_element_type=wide)
        return y.astype(jnp.int32)


def _doubles(arrays: Terms, axis: int) -> tuple[Iterable[Terms], Array]:
    """Float32 parts of arrays over a shared power of two, and that."""
    largest = _largest(arrays, axis)
    exponent = jnp.maximum(jnp.frexp(largest * ROOM)[1], LEAST)
    one = jnp.ones((), largest.dtype)
    down, up = jnp.ldexp(one, -exponent), jnp.ldexp(one, exponent)
    # A line with NaN, infinity, or numbers whose scale overflows becomes NaN.
    up = jnp.where((largest < jnp.inf) & (down * up == 1), up, jnp.nan)
    return (singles(x * down, 3) for x in arrays), up


def _pairs(arrays: Terms, axis: int) -> tuple[Iterable[Terms], Array]:
    """`_doubles` for pairs, with powers of two from bits: the TPU compiler has no float64 frexp."""
    pairs, room = [singles(x, 2) for x in arrays], jnp.float32(ROOM)
    largest = _largest([high for high, _ in pairs], axis) * room
    exponent = (lax.bitcast_convert_type(largest, jnp.int32) >> 23) - 126
    exponent = jnp.clip(exponent, LEAST_OF_PAIRS, 126)
    down, up = (lax.bitcast_convert_type((127 + sign * exponent) << 23, jnp.float32) for sign in (-1, 1))
    up = jnp.where(largest < up, up, jnp.nan)
    return (tuple(part * down for part in pair) for pair in pairs), up


def _largest(arrays: Sequence[Array], axis: int) -> Array:
    return functools.reduce(jnp.maximum, (jnp.max(jnp.abs(x), axis, keepdims=True, initial=0.0) for x in arrays))


def _stacked(digits: Terms | Array) -> Array:
    return digits if isinstance(digits, Array) else jnp.stack(digits)


def _of_all_weights(digits: Array) -> Array:
    """Matrix (S, rows, S n) that makes the sums of all weights, from slices (S, rows, n), smallest first."""
    slices, rows, n = digits.shape
    row = jnp.pad(digits.swapaxes(0, 1).reshape(rows, slices * n), ((0, 0), (0, slices * n)))
    first = ((slices - pairs) * n for pairs in range(1, slices + 1))
    return jnp.stack([row[:, start : start + slices * n] for start in first])


def singles(y: Array, many: int) -> Terms:
    """Float32 numbers that add up to a float64, largest first."""
    parts = list[Array]()
    for left in reversed(range(many)):
        parts.append(y.astype(jnp.float32))
        y = y - parts[-1].astype(y.dtype) if left else y
    return tuple(parts)


def limbs(parts: Terms, slices: int) -> list[Array]:
    """Integers in units of the last slice, from float32 sums in (-1, 1); the second has the slices after HIGH."""
    high, low = BITS * min(slices, HIGH) - 1, BITS * max(slices - HIGH, 0)
    first = jnp.round(parts[0] * jnp.float32(2.0**high))
    rests = (parts[0] - first * jnp.float32(2.0**-high), *parts[1:])
    units = [part * jnp.float32(2.0 ** (high + low)) for part in rests]
    whole = [jnp.round(part) for part in units]
    left = jnp.round(sum(unit - one for unit, one in zip(units, whole, strict=True)))
    behind = functools.reduce(jnp.add, (one.astype(jnp.int32) for one in (*whole, left)))
    return [first.astype(jnp.int32), behind] if low else [first.astype(jnp.int32) + behind]


def one_by_one(integers: list[Array], slices: int) -> Terms:
    found = _bytes(integers, slices)
    many = (min(slices, HIGH), slices - HIGH)
    each = [(one << (24 - BITS * i)) >> 24 for one, n in zip(found, many, strict=False) for i in reversed(range(n))]
    # Otherwise the TPU compiler recomputes the integers for each digit.
    return tuple(lax.optimization_barrier([digit.astype(jnp.int8) for digit in each]))


def at_once(integers: list[Array], slices: int) -> Array:
    """The digits as one array (S, ...)."""
    found, first = _bytes(integers, slices), min(slices, HIGH)
    at = jnp.arange(slices, dtype=jnp.int32).reshape(-1, *[1] * found[0].ndim)
    up = 24 - BITS * (jnp.where(at < first, first, slices) - 1 - at)
    return ((jnp.where(at < first, found[0], found[-1]) << up) >> 24).astype(jnp.int8)


def _bytes(integers: list[Array], slices: int) -> list[Array]:
    """Integers whose bytes are the digits: digit + 128 is a byte of the number, and - 128 flips its top bit."""
    carry, found = jnp.int32(0), list[Array]()
    for limb, many in reversed(list(zip(integers, (min(slices, HIGH), slices - HIGH), strict=False))):
        each = jnp.uint32(sum(128 << BITS * i for i in range(many))).astype(jnp.int32)
        total = limb + carry + each
        carry = total >> (BITS * many if many < HIGH else 31)
        found.insert(0, total ^ each)
    return found


def carried(orders: list[Array]) -> tuple[Array, list[Array]]:
    """Sum of int32 numbers, each of 2^-8 the previous one's weight: an int32 and the bytes after it."""
    value, low = orders[-1], list[Array]()
    for order in reversed(orders[:-1]):
        low.insert(0, value & 255)
        value = order + (value >> BITS)
    return value, low


def joined(value: Array, low: list[Array], dtype: np.dtype) -> Array:
    """An int32 and the bytes after it, rounded to float64."""
    total = value.astype(dtype)
    for first in range(0, len(low), 3):  # 24 bits, a float32
        group = _grouped(low[first : first + 3])
        total = total + jnp.asarray(group, jnp.float32).astype(dtype) * 2.0 ** (-BITS * (first + 3))
    return total


def pair(value: Array, low: list[Array]) -> tuple[Array, Array]:
    """`joined` as two float32; the sums need the first group of 24 bits to be zero or larger than the rest."""
    low = [value & 255, *low]
    first, *others = (jnp.asarray(part, jnp.float32) for part in (value >> BITS, *map(_grouped, (low[:3], low[3:6]))))
    second, third = (part * jnp.float32(2.0 ** (-BITS * at)) for part, at in zip(others, (3, 6), strict=True))
    high = first + second
    low_part = (second - (high - first)) + third
    total = high + low_part
    by = jnp.float32(2.0**BITS)
    return total * by, (low_part - (total - high)) * by


def _grouped(low: list[Array]) -> Array:
    return functools.reduce(jnp.add, (part << (BITS * (2 - j)) for j, part in enumerate(low)))


def host_slices(matrix: np.ndarray, slices: int) -> np.ndarray:
    """Slices of a real matrix of magnitudes up to one, in the host's widest float; the scale is 2."""
    value = np.rint(matrix * np.asarray(2.0 ** (BITS * slices - 2), matrix.dtype)).astype(np.int64)
    digits = list[np.ndarray]()
    for _ in range(slices - 1):
        digits.insert(0, (value + 128 & 255) - 128)
        value = (value - digits[0]) >> BITS
    return np.stack([value, *digits]).astype(np.int8)
