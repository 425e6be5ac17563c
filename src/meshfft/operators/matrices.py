"""Matrices of a ring, and the blocks of them that a device makes.

A matrix is a static description; `block(operand, rows, columns, real)` is its block in split complex for index vectors
of rows and of consecutive columns. An operand, sharded like the rows, has the data:

    Roots      V[k, n] = exp(sign 2 pi i k n / N)    uniform samples, from exact integer phases; no operand
    HalfRoots  the same for k = 0 ... N // 2, between real lines and their half spectra; no operand
    Trig       cosines and sines (see trig); no operand
    Samples    V[k, n] = z_k^-n                      any samples; operand: log z_k, as floats or limbs
    Dense      any matrix; operand: its rows
    Blocks     any matrix; a function makes its blocks; no operand

A ring takes a matrix to be zero outside rows x columns.
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..numerics import phases
from ..numerics.phases import Floats, Limbs, vandermonde
from ..numerics.products import Factors
from ..numerics.split_complex import Planes, split
from ..numerics.split_complex import conjugate as conjugate_of

Operand = Any  # a Logarithm for Samples, an array for Dense
L = TypeVar("L")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matrix(abc.ABC):
    """A matrix of a ring.

    Attributes:
        row_axis: the axis of the rows in its operand's leaves; None without an operand.
        conjugated: its entries are the conjugates of those described.
        planes: real arrays per block, 1 if all entries are known to be real.
    """

    row_axis: ClassVar[int | None] = None
    conjugated: bool = False
    planes: int = 2

    if TYPE_CHECKING:  # dataclasses would take properties here for defaults of fields

        @property
        def rows(self) -> int: ...
        @property
        def columns(self) -> int: ...

    @property
    def becomes(self) -> str | None:
        """Returns "complex" if it maps real numbers to complex ones, "real" if complex to real, else None."""
        return None

    @property
    def whole(self) -> "Matrix":
        return self

    @property
    def denominator(self) -> int:
        """D, if its phases are integers over D of a turn; exact for D below MAX_LENGTH."""
        return max(self.rows, self.columns)

    @property
    def period(self) -> float | None:
        """L, the matrix times `inverse`; None without such an inverse."""
        return None

    @property
    def condition(self) -> float:
        return 1.0

    @property
    def has_fft(self) -> bool:
        """Invertible matrices transform all their uniform samples."""
        return self.period is not None

    @property
    def inverse(self) -> "Matrix | None":
        return None

    def prepare(self, operand: Operand, real: DTypeLike) -> Operand:
        return operand

    @abc.abstractmethod
    def block(self, operand: Operand, rows: Array, columns: Array, real: DTypeLike) -> Planes | Factors: ...

    def conjugate(self) -> Self:
        return dataclasses.replace(self, conjugated=not self.conjugated)

    def transpose(self) -> "Matrix":
        raise NotImplementedError("its operand lies with the rows")


@dataclasses.dataclass(frozen=True)
class Roots(Matrix):
    length: int
    sign: int
    rows: int
    columns: int

    @property
    def period(self) -> float | None:
        return self.length if self.rows == self.columns == self.length else None

    @property
    def inverse(self) -> "Roots":
        return self.conjugate().transpose()

    def block(self, operand: Operand, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        return vandermonde(rows, columns, self.length, self.sign, real)

    def conjugate(self) -> "Roots":
        return dataclasses.replace(self, sign=-self.sign)

    def transpose(self) -> "Roots":
        return dataclasses.replace(self, rows=self.columns, columns=self.rows)


@dataclasses.dataclass(frozen=True)
class HalfRoots(Matrix):
    """Real lines of `length` points to half spectra, X[k] = w_k sum_n x[n] exp(sign 2 pi i k n / N), or the transpose.

    The transpose is x[n] = Re sum_k w_k X[k] exp(sign 2 pi i k n / N). All weights are 1; or, if `weighted`, 2 for a k
    that also represents N - k. A weighted and an unweighted one of opposite signs multiply to N.
    """

    length: int
    sign: int
    onto_real: bool
    weighted: bool

    @property
    def rows(self) -> int:
        return self.length if self.onto_real else self.half

    @property
    def columns(self) -> int:
        return self.half if self.onto_real else self.length

    @property
    def half(self) -> int:
        return self.length // 2 + 1

    @property
    def becomes(self) -> str:
        return "real" if self.onto_real else "complex"

    @property
    def period(self) -> float:
        return self.length

    @property
    def condition(self) -> float:
        """Most numbers represent two of the spectrum."""
        return math.sqrt(2)

    @property
    def inverse(self) -> "HalfRoots":
        return HalfRoots(self.length, -self.sign, not self.onto_real, not self.weighted)

    def block(self, operand: Operand, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        k = columns[None, :] if self.onto_real else rows[:, None]
        weights = self.weights(k).astype(real)
        return tuple(weights * plane for plane in vandermonde(rows, columns, self.length, self.sign, real))

    def weights(self, k: Array) -> Array:
        return 1 + ((k > 0) & (2 * k < self.length) & self.weighted).astype(k.dtype)

    def conjugate(self) -> "HalfRoots":
        return dataclasses.replace(self, sign=-self.sign)

    def transpose(self) -> "HalfRoots":
        return dataclasses.replace(self, onto_real=not self.onto_real)


class Logarithm(NamedTuple, Generic[L]):
    """log z: floats (rows,), angles in a unit and radii to base e; or fixed point (limbs, rows), turns and base 2."""

    angle: L
    radius: L | None


def limbs_of(
    floats: Logarithm[Floats], unit: str, real: DTypeLike, rest: Logarithm[Floats] | None = None
) -> Logarithm[Limbs]:
    limbs = phases.limbs_for(real)
    angle = (phases.of_turns if unit == "turns" else phases.of_radians)(floats.angle, limbs)
    radius = None if floats.radius is None else phases.of_logarithm(floats.radius, limbs)
    if rest is None:
        return Logarithm(angle, radius)
    low = limbs_of(rest, unit, real)
    return Logarithm(phases.add(angle, low.angle), phases.add(radius, low.radius) if radius and low.radius else radius)


@dataclasses.dataclass(frozen=True)
class Samples(Matrix):
    """`unit` is that of the operand's angles, None for limbs."""

    rows: int
    columns: int
    unit: str | None = None
    row_axis = -1

    def prepare(self, operand: Operand, real: DTypeLike) -> Logarithm[Limbs]:
        return operand if self.unit is None else limbs_of(operand, self.unit, real)

    def block(self, operand: Logarithm[Limbs], rows: Array, columns: Array, real: DTypeLike) -> Planes:
        angle, radius = operand
        n = columns.astype(jnp.uint32)[None, :]
        turns = phases.times(n, tuple(limb[:, None] for limb in angle))
        re, im = phases.circle(turns, 1 if self.conjugated else -1, real)
        if radius is None:
            return re, im
        size = phases.power_of_two(phases.negative(phases.times(n, tuple(limb[:, None] for limb in radius))), real)
        return size * re, size * im

    def slope(self, change: Logarithm[Array]) -> Planes:
        """d log V[k, n] / n in split complex for a change of floats: V' = n slope V."""
        angle = change.angle * (2 * np.pi if self.unit == "turns" else 1.0)
        return jnp.zeros_like(angle) if change.radius is None else -change.radius, angle if self.conjugated else -angle


@dataclasses.dataclass(frozen=True)
class Dense(Matrix):
    """The operand has rows (planes, rows, columns), or terms of them, (forms, terms, rows, columns)."""

    rows: int
    columns: int
    row_axis = -2

    def block(self, operand: Array, rows: Array, columns: Array, real: DTypeLike) -> Planes | Factors:
        part = lax.dynamic_slice_in_dim(operand, columns[0] if columns.size else 0, columns.shape[0], -1)
        if part.ndim == 4 and not self.conjugated:
            return Factors(tuple(tuple(form) for form in part))
        planes = tuple(part if part.ndim == 3 else part[-2:].astype(real).sum(1))
        return conjugate_of(planes) if self.conjugated else planes


@dataclasses.dataclass(frozen=True)
class Blocks(Matrix):
    """`function(rows, columns)` makes blocks from int32 index vectors."""

    function: Callable[[Array, Array], Array]
    rows: int
    columns: int
    transposed: bool = False

    def block(self, operand: Operand, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        block = self.function(columns, rows).T if self.transposed else self.function(rows, columns)
        planes = tuple(plane.astype(real) for plane in split(block))
        return conjugate_of(planes) if self.conjugated else planes

    def transpose(self) -> "Blocks":
        return dataclasses.replace(self, rows=self.columns, columns=self.rows, transposed=not self.transposed)
