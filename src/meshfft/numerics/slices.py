"""Float64 products of small integers, error-free (Ozaki's scheme): for matrix units that have no float64.

Each row of the matrix and each line of the block is scaled by a power of two and cut into S slices, integers of 8 bits
with sign,

    x = 2^e sum_i d_i 2^(1 - 8 i),   -128 <= d_i <= 127,   i = 1 ... S,

and of the S^2 products of slices those with i + j <= S + 1 are made, S (S + 1) / 2 of them. Their sums are integers. A
unit for int8 adds them in int32, exactly below 2^17 terms; one for bfloat16, which holds 8 bits, in float32, exactly up
to 2^10. Sums with the same i + j are of one weight, and all are added as integers: the result is rounded once, to
float64. Both units make the same integers, so that results agree to the last bit.

Values are float64 arrays: processors have the type, and for TPUs their compiler keeps pairs of float32, which hold 48
bits (it takes every operation here; complex128 it does not take, so complex numbers are split). Invariant: all is exact
but what is cut off behind slice S and the products left out; `dtypes.sliced_error` has the bound.

Source: Ozaki, Ogita, Oishi and Rump, Error-free transformations of matrix multiplication, Numer. Algorithms 59, 2012;
on integer units Ootomo, Ozaki and Yokota, arXiv:2306.11975.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

BITS = 8  # of a slice, its sign among them
HIGH = 4  # slices of the first 32-bit integer that a number becomes; the second has the others, three at most
ROOM = 1 + 2.0**-6  # by which lines are scaled down besides, so that the first slice rounds to 127 at most
LEAST = -1000  # exponent of the smallest lines that are scaled up to one
PARTS = 3  # float32 numbers that add up to a float64; where that is a pair, two
# Of each number that is sliced, and of each sum of products: operations and bytes beside the products, by the cycles
# that the compiler for TPU v5e estimates (0.31 and 0.19 a number).
SLICE_COST, SUM_COST = (500, 80), (100, 72)
HELD = (
    12  # slices of a block and the sums of their products, in blocks: 3 forms of 7 bytes twice, 7 sums of 3, and them
)
TERMS = {"int8": 2**17 - 1, "bf16": 2**10}  # that a unit adds exactly, each below 2^14
RUN = 2048  # columns of a matrix, at most, that one sum takes in
Terms = tuple[Array, ...]


def cost(sliced: int, sums: int) -> tuple[int, int]:
    """Operations and bytes of memory beside the products, for some numbers that are sliced and some sums."""
    flops, nbytes = (sliced * one + sums * other for one, other in zip(SLICE_COST, SUM_COST, strict=True))
    return flops, nbytes


class Slices(NamedTuple):
    """The slices (S, ...) of real lines, largest first, and the power of two of each line; NaN where it has none."""

    digits: Array
    scale: Array


class SlicedProduct(NamedTuple):
    """Real products by slices: how many each factor has, the unit that multiplies them, and how many it takes at once:
    matrices side by side are one longer product, with one sum to read and write, but a CPU copies them for that.
    """

    slices: int
    unit: str
    together: int

    @property
    def run(self) -> int:
        """Columns of a matrix that one sum takes in exactly."""
        return min(RUN, TERMS[self.unit] // (self.slices if self.unit == "int8" else 1))

    def parts(self, matrix: Array) -> Terms:
        """What is multiplied of a matrix (rows, n): its slices, smallest first, and the powers of its rows."""
        digits, scale = sliced(matrix, 1, self.slices)
        return digits[::-1], scale

    def along(self, matrix: Terms, x: Array, dim: int) -> Array:
        """(rows, n) in slices times dimension `dim` of a real float64 array."""
        digits, scale = matrix
        block = sliced(x, dim, self.slices)
        total = _joined([self._order(pairs, digits, block.digits, dim) for pairs in range(1, self.slices + 1)], x.dtype)
        rows = (scale * 2.0 ** (2 - 2 * BITS)).reshape(-1, *[1] * (x.ndim - 1))
        return jnp.moveaxis(total, 0, dim) * (jnp.moveaxis(rows, 0, dim) * block.scale)

    def _order(self, pairs: int, matrix: Array, x: Array, dim: int) -> Array:
        """The sum of all products of slice i and slice j with i + j = pairs + 1, as int32."""
        matrix = matrix[self.slices - pairs :]
        many = min(self.together, max(1, TERMS[self.unit] // max(matrix.shape[2], 1)))
        some = (slice(k, min(k + many, pairs)) for k in range(0, pairs, many))
        return functools.reduce(jnp.add, (self._dot(matrix[part], x[part], dim) for part in some))

    def _dot(self, a: Array, b: Array, dim: int) -> Array:
        """The exact sum over slices and columns: (rows, ...)."""
        contracted: tuple[tuple[int, ...], tuple[int, ...]] = ((0, 2), (0, dim + 1))
        if len(a) == 1:
            a, b, contracted = a[0], b[0], ((1,), (dim,))
        kind, wide = (jnp.bfloat16, jnp.float32) if self.unit == "bf16" else (jnp.int8, jnp.int32)
        sums = lax.dot_general(a.astype(kind), b.astype(kind), (contracted, ((), ())), preferred_element_type=wide)
        return sums.astype(jnp.int32)


def sliced(x: Array, axis: int, slices: int) -> Slices:
    """Float64 lines along an axis in up to 7 slices."""
    largest = jnp.max(jnp.abs(x), axis, keepdims=True, initial=0.0)
    exponent = jnp.maximum(jnp.frexp(largest * ROOM)[1], LEAST)
    one = jnp.ones((), x.dtype)
    down, up = jnp.ldexp(one, -exponent), jnp.ldexp(one, exponent)
    # In a line with NaN or infinity, or numbers so large that their scale leaves the type, all is NaN.
    up = jnp.where((largest < jnp.inf) & (down * up == 1), up, jnp.nan)
    pairs, others = (functools.partial(_limbs, parts=parts, slices=slices) for parts in (PARTS - 1, PARTS))
    limbs = lax.platform_dependent(x * down, tpu=pairs, default=others)
    counts = (min(slices, HIGH), slices - HIGH)
    return Slices(_digits(list(zip(limbs, counts, strict=False))), up)


def _limbs(y: Array, parts: int, slices: int) -> Terms:
    """Numbers between -1 and 1 as integers in units of their last slice, the slices behind HIGH in one of their own.

    By float32 numbers that add up to them, as TPUs compute in.
    """
    high, low, rests = BITS * min(slices, HIGH) - 1, BITS * max(slices - HIGH, 0), list[Array]()
    for _ in range(parts):
        rests.append(y.astype(jnp.float32))
        y = y - rests[-1].astype(y.dtype)
    first = jnp.round(rests[0] * 2.0**high)
    rests[0] = rests[0] - first * 2.0**-high
    units = [part * 2.0 ** (high + low) for part in rests]
    whole = [jnp.round(part) for part in units]
    left = jnp.round(sum(unit - one for unit, one in zip(units, whole, strict=True)))
    behind = functools.reduce(jnp.add, (one.astype(jnp.int32) for one in (*whole, left)))
    return (first.astype(jnp.int32), behind) if low else (first.astype(jnp.int32) + behind,)


def _digits(limbs: list[tuple[Array, int]]) -> Array:
    """The balanced digits to base 256 of integers (value, digits), largest first."""
    digits, carry = list[Array](), jnp.int32(0)
    for limb, many in reversed(limbs):
        carry = limb + carry
        for _ in range(many - (limb is limbs[0][0])):
            digits.append(((carry + 128) & 255) - 128)
            carry = (carry - digits[-1]) >> BITS
    # Behind a barrier all are made at once: a TPU's compiler would else go back to the integers for each.
    return jnp.stack(lax.optimization_barrier([digit.astype(jnp.int8) for digit in (*digits, carry)][::-1]))


def _joined(orders: list[Array], dtype: np.dtype) -> Array:
    """The sum of int32 numbers, each 2^-8 of the weight of the one before: carried as integers, then rounded."""
    value, low = orders[-1], list[Array]()
    for order in reversed(orders[:-1]):
        low.insert(0, value & 255)
        value = order + (value >> BITS)
    total = value.astype(dtype)
    for first in range(0, len(low), 3):  # 24 bits, a float32
        group = sum(part << (BITS * (2 - j)) for j, part in enumerate(low[first : first + 3]))
        total = total + jnp.asarray(group, jnp.float32).astype(dtype) * 2.0 ** (-BITS * (first + 3))
    return total


def host_slices(matrix: np.ndarray, slices: int) -> tuple[np.ndarray, np.ndarray]:
    """The slices of a real matrix of magnitudes up to one, in the widest float that the host has."""
    value = np.rint(matrix * np.asarray(2.0 ** (BITS * slices - 2), matrix.dtype)).astype(np.int64)
    digits = list[np.ndarray]()
    for _ in range(slices - 1):
        digits.insert(0, (value + 128 & 255) - 128)
        value = (value - digits[0]) >> BITS
    return np.stack([value, *digits]).astype(np.int8), np.full((1, 1), 2.0)
