"""Cosine and sine transforms as matrices: DCT and DST of types I to IV, their ends, their inverses.

    M[k, n] = row_end[k] K[k, n] column_end[n]        ends are 1 but in the first and the last row or column

    K    cos                              sin                                  period L
    I    2 cos(pi k n / (N-1))            2 sin(pi (k+1)(n+1) / (N+1))         2 (N-1), 2 (N+1)
    II   2 cos(pi k (2n+1) / 2N)          2 sin(pi (k+1)(2n+1) / 2N)           2 N
    III  the transpose of II                                                   2 N
    IV   2 cos(pi (2k+1)(2n+1) / 4N)      2 sin(pi (2k+1)(2n+1) / 4N)          2 N

Rows of II, columns of III, and both of I are frequencies. The first of cosines, and the last of cosines I and of sines
II and III, is its own image and counts twice; W, a half there, makes up for it: L K^-1 = W K^T W, with W where K^T has
frequencies. SciPy's matrix is K W with W on the columns, or, orthogonalised, sqrt(W) K sqrt(W). A single row is first
and last at once: both ends are its factors.
"""

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from ..numerics.norms import factor
from ..numerics.phases import vandermonde
from ..numerics.split_complex import Planes

FAMILIES = ("cos", "sin")
TYPES = (1, 2, 3, 4)
Ends = tuple[float, float]
_HALVES = {
    ("cos", 1): (0.5, 0.5),
    **{("cos", t): (0.5, 1.0) for t in (2, 3)},
    **{("sin", t): (1.0, 0.5) for t in (2, 3)},
}


@dataclasses.dataclass(frozen=True)
class Trig:
    """The kernel of a cosine or sine transform between two diagonals that differ from 1 at their ends only.

    Attributes:
        family: "cos" or "sin".
        type: 1 to 4.
        length: N, rows and columns.
        row_ends: factors of the first and the last row.
        column_ends: factors of the first and the last column.
    """

    family: str
    type: int
    length: int
    row_ends: Ends = (1.0, 1.0)
    column_ends: Ends = (1.0, 1.0)
    row_axis: ClassVar[int | None] = None
    whole: ClassVar[bool] = True
    becomes: ClassVar[str | None] = None
    planes: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """The family in a word, and the type as a Roman numeral."""
        return f"{'cosine' if self.family == 'cos' else 'sine'} transform {('I', 'II', 'III', 'IV')[self.type - 1]}"

    @property
    def inverse(self) -> "Trig":
        """L times the inverse."""
        return self.transpose().dual

    @property
    def rows(self) -> int:
        return self.length

    @property
    def columns(self) -> int:
        return self.length

    @property
    def period(self) -> float:
        """L, the points of the Fourier transform that this is a part of."""
        shift = 0 if self.type > 1 else 1 if self.family == "sin" else -1
        return 2.0 * (self.length + shift)

    @property
    def turn(self) -> int:
        """D, where every phase is an integer over D of a turn; `block` is exact for D up to phase.MAX_LENGTH."""
        return int(self.period) * {1: 1, 4: 4}.get(self.type, 2)

    @property
    def weights(self) -> tuple[Ends, Ends]:
        """The ends of W on the rows and on the columns."""
        halves, one = _HALVES.get((self.family, self.type), (1.0, 1.0)), (1.0, 1.0)
        return halves if self.type in (1, 2) else one, halves if self.type in (1, 3) else one

    @property
    def dual(self) -> "Trig":
        """L times the inverse of the transpose: M.transpose().dual M = L, whatever the ends."""
        rows, columns = self.weights
        ends = divided(rows, self.row_ends), divided(columns, self.column_ends)
        return dataclasses.replace(self, row_ends=ends[0], column_ends=ends[1])

    def prepare(self, operand: Any, real: DTypeLike) -> Any:
        return operand

    def block(self, operand: Any, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        """The block as one plane, its phases exact; whatever lies beyond N is finite, and no more."""
        shift = int(self.family == "sin")
        k = 2 * rows + 1 if self.type in (3, 4) else rows + shift
        n = 2 * columns + 1 if self.type in (2, 4) else columns + shift
        wave = vandermonde(k, n, self.turn, 1, real)[shift]
        left = 2 * _factors(rows, self.row_ends, self.length, real)[:, None]
        return (left * wave * _factors(columns, self.column_ends, self.length, real)[None, :],)

    def conjugate(self) -> "Trig":
        return self

    def transpose(self) -> "Trig":
        return Trig(self.family, exchanged(self.type), self.length, self.column_ends, self.row_ends)


def trig(
    family: str, type: int, length: int, norm: str | None, orthogonalize: bool | None, inverse: bool
) -> tuple[Trig, float]:
    """The matrix M and the factor that make scipy.fft's transform of x.

        dct(x, type, norm=norm, orthogonalize=orthogonalize) = factor M x        idct, dst, idst likewise

    Args:
        family: "cos" for dct and idct, "sin" for dst and idst.
        type: 1 to 4; the inverse of 2 is 3, and of 3 it is 2.
        length: N.
        norm: as scipy.fft's.
        orthogonalize: weigh first and last terms so that the rows are orthogonal; None means where norm is "ortho".
        inverse: True for idct and idst.

    Returns:
        M, unscaled, and the factor.

    Raises:
        ValueError: the type or the norm is unknown, the length is below one, or below two for cosines of type I.
    """
    if type not in TYPES:
        raise ValueError(f"type {type!r} of a {_name(family)} is unknown: use 1, 2, 3 or 4")
    least = 2 if (family, type) == ("cos", 1) else 1
    if not length >= least:
        raise ValueError(
            f"length {length} is too short for a {_name(family)} of type {type}: give at least {least}"
            + (" points, or use type 2" if least == 2 else " point")
        )
    kernel = Trig(family, exchanged(type) if inverse else int(type), length)
    rows, columns = kernel.weights
    shared = norm == "ortho" if orthogonalize is None else bool(orthogonalize)
    ends = (_roots(rows), _roots(columns)) if shared else ((1.0, 1.0), columns)
    matrix = dataclasses.replace(kernel, row_ends=ends[0], column_ends=ends[1])
    return matrix, factor(int(matrix.period), norm, inverse)


def exchanged(type: int) -> int:
    """The type of the transpose, which is that of the inverse: II and III change places."""
    return {2: 3, 3: 2}.get(type, int(type))


def divided(ends: Ends, by: Ends) -> Ends:
    """The ends of a diagonal over another."""
    return ends[0] / by[0], ends[1] / by[1]


def _name(family: str) -> str:
    return "cosine transform" if family == "cos" else "sine transform"


def _roots(ends: Ends) -> Ends:
    return math.sqrt(ends[0]), math.sqrt(ends[1])


def _factors(index: Array, ends: Ends, length: int, real: DTypeLike) -> Array:
    """The diagonal at some indices; of a single one both ends are factors."""
    first, last = jnp.where(index == 0, ends[0], 1.0), jnp.where(index == length - 1, ends[1], 1.0)
    return (first * last).astype(real)
