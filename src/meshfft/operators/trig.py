"""Cosine and sine transforms as matrices: DCT and DST of types I to IV, their ends, their inverses.

    M[k, n] = row_end[k] K[k, n] column_end[n]        ends are 1 but in the first and the last row or column

    K    cos                              sin                                  period L
    I    2 cos(pi k n / (N-1))            2 sin(pi (k+1)(n+1) / (N+1))         2 (N-1), 2 (N+1)
    II   2 cos(pi k (2n+1) / 2N)          2 sin(pi (k+1)(2n+1) / 2N)           2 N
    III  the transpose of II                                                   2 N
    IV   2 cos(pi (2k+1)(2n+1) / 4N)      2 sin(pi (2k+1)(2n+1) / 4N)          2 N

Frequencies that are their own image count twice: the first of cosines, the last of cosines I and of sines II and III.
They are rows of II, columns of III, both of I. W is 1/2 there, so L K^-1 = W K^T W, with W where K^T has frequencies.
SciPy's matrix is K W with W on the columns, or, orthogonalised, sqrt(W) K sqrt(W).
"""

import dataclasses
import math

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from ..numerics.phases import vandermonde
from ..numerics.split_complex import Planes
from .matrices import Matrix, Operand

FAMILIES = ("cos", "sin")
TYPES = (1, 2, 3, 4)
Ends = tuple[float, float]
HALVES = {
    ("cos", 1): (0.5, 0.5),
    ("cos", 2): (0.5, 1.0),
    ("cos", 3): (0.5, 1.0),
    ("sin", 2): (1.0, 0.5),
    ("sin", 3): (1.0, 0.5),
}


@dataclasses.dataclass(frozen=True)
class Trig(Matrix):
    family: str
    type: int
    length: int
    row_ends: Ends = (1.0, 1.0)
    column_ends: Ends = (1.0, 1.0)
    planes: int = dataclasses.field(default=1, kw_only=True)

    @property
    def name(self) -> str:
        return f"{_word(self.family)} {('I', 'II', 'III', 'IV')[self.type - 1]}"

    @property
    def rows(self) -> int:
        return self.length

    @property
    def columns(self) -> int:
        return self.length

    @property
    def period(self) -> float:
        """L, the points of the Fourier transform that contains it."""
        shift = 0 if self.type > 1 else 1 if self.family == "sin" else -1
        return 2.0 * (self.length + shift)

    @property
    def denominator(self) -> int:
        return int(self.period) * {1: 1, 4: 4}.get(self.type, 2)

    @property
    def weights(self) -> tuple[Ends, Ends]:
        """The ends of W on rows and columns."""
        halves, one = HALVES.get((self.family, self.type), (1.0, 1.0)), (1.0, 1.0)
        return halves if self.type in (1, 2) else one, halves if self.type in (1, 3) else one

    @property
    def condition(self) -> float:
        """Orthogonal with ends sqrt(W) on both sides, so the ratio of its ends to those."""
        factors = 1.0
        for ends, weights in zip((self.row_ends, self.column_ends), self.weights, strict=True):
            each = (1.0, *(end / math.sqrt(weight) for end, weight in zip(ends, weights, strict=True)))
            factors *= max(each) / min(each)
        return factors

    @property
    def inverse(self) -> "Trig":
        back = self.transpose()
        rows, columns = back.weights
        ends = divided(rows, back.row_ends), divided(columns, back.column_ends)
        return dataclasses.replace(back, row_ends=ends[0], column_ends=ends[1])

    def block(self, operand: Operand, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        """The block, with exact phases; entries beyond N are finite."""
        shift = int(self.family == "sin")
        k = 2 * rows + 1 if self.type in (3, 4) else rows + shift
        n = 2 * columns + 1 if self.type in (2, 4) else columns + shift
        wave = vandermonde(k, n, self.denominator, 1, real)[shift]
        left = 2 * self._factors(rows, self.row_ends, real)[:, None]
        return (left * wave * self._factors(columns, self.column_ends, real)[None, :],)

    def _factors(self, index: Array, ends: Ends, real: DTypeLike) -> Array:
        first, last = jnp.where(index == 0, ends[0], 1.0), jnp.where(index == self.length - 1, ends[1], 1.0)
        return (first * last).astype(real)

    def conjugate(self) -> "Trig":
        return self

    def transpose(self) -> "Trig":
        return Trig(self.family, _transposed(self.type), self.length, self.column_ends, self.row_ends)


def trig(family: str, type: int, length: int, orthogonalize: bool, inverse: bool) -> Trig:
    """The unscaled matrix of scipy.fft's dct, dst, idct or idst; if orthogonalized, with orthogonal rows."""
    if type not in TYPES:
        raise ValueError(f"type {type!r} of a {_word(family)} is unknown: use 1, 2, 3 or 4")
    least = 2 if (family, type) == ("cos", 1) else 1
    if length < least:
        remedy = "give at least 2 points, or use type 2" if least == 2 else "give at least 1 point"
        raise ValueError(f"length {length} is too short for a {_word(family)} of type {type}: {remedy}")
    kernel = Trig(family, _transposed(type) if inverse else int(type), length)
    rows, columns = kernel.weights
    if not orthogonalize:
        return dataclasses.replace(kernel, column_ends=columns)
    rows, columns = ((math.sqrt(first), math.sqrt(last)) for first, last in (rows, columns))
    return dataclasses.replace(kernel, row_ends=rows, column_ends=columns)


def divided(ends: Ends, by: Ends) -> Ends:
    return ends[0] / by[0], ends[1] / by[1]


def _transposed(type: int) -> int:
    """The type of the transpose and of the inverse."""
    return {2: 3, 3: 2}.get(type, int(type))


def _word(family: str) -> str:
    return "cosine transform" if family == "cos" else "sine transform"
