"""Matrices that a ring multiplies by: what each is, and how a device makes the block it needs.

A matrix is a static description; `block(operand, rows, columns, real)` gives the planes of its block at index vectors
of some rows and some successive columns. What a matrix cannot make from indices is its operand, and lies with the rows:

    Roots      V[k, n] = exp(sign 2 pi i k n / N)    uniform samples, from exact integer phases; no operand
    HalfRoots  the same for k = 0 ... N // 2, between real lines and their half spectra; no operand
    Samples    V[k, n] = z_k^-n                      any samples; operand: log z_k, as floats or limbs
    Dense      any matrix; operand: its rows
    Blocks     any matrix; a function makes its blocks; no operand

Outside rows x columns a matrix counts as zero; a ring sees to that.
"""

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..numerics.phases import (
    circle,
    limbs_for,
    negative,
    of_logarithm,
    of_radians,
    of_turns,
    power_of_two,
    times,
    vandermonde,
)
from ..numerics.products import Factors
from ..numerics.split_complex import Planes, conjugate, split


class Matrix(Hashable, Protocol):
    """What a ring knows of a matrix. `row_axis` is that of its operand's leaves, or None where there is no operand."""

    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def row_axis(self) -> int | None: ...
    @property
    def whole(self) -> bool:
        """True for a transform of all its uniform samples, which an FFT can do."""

    @property
    def becomes(self) -> str | None:
        """The numbers it makes of others, "complex" of real ones or "real" of complex; None where it makes the same."""

    @property
    def planes(self) -> int:
        """Planes of its entries: 1 where all of them are known to be real."""

    def prepare(self, operand: Any, real: DTypeLike) -> Any:
        """What blocks are made of: the operand, or what is worked out from it once for all blocks."""

    def block(self, operand: Any, rows: Array, columns: Array, real: DTypeLike) -> Planes | Factors: ...
    def conjugate(self) -> "Matrix": ...
    def transpose(self) -> "Matrix":
        """The transpose, of a matrix without an operand."""

    @property
    def period(self) -> float | None:
        """L, where `inverse` times the matrix is L; None where no matrix of these kinds is its inverse."""

    @property
    def inverse(self) -> "Matrix | None": ...


@dataclasses.dataclass(frozen=True)
class Roots:
    """Uniform samples of the unit circle: exp(sign 2 pi i k n / length)."""

    length: int
    sign: int
    rows: int
    columns: int
    row_axis: ClassVar[int | None] = None
    becomes: ClassVar[str | None] = None
    planes: ClassVar[int] = 2

    @property
    def whole(self) -> bool:
        return self.rows == self.columns == self.length

    @property
    def period(self) -> float | None:
        return self.length if self.whole else None

    @property
    def inverse(self) -> "Roots":
        return self.conjugate().transpose()

    def prepare(self, operand: Any, real: DTypeLike) -> Any:
        return operand

    def block(self, operand: Any, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        return vandermonde(rows, columns, self.length, self.sign, real)

    def conjugate(self) -> "Roots":
        return dataclasses.replace(self, sign=-self.sign)

    def transpose(self) -> "Roots":
        return dataclasses.replace(self, rows=self.columns, columns=self.rows)


@dataclasses.dataclass(frozen=True)
class HalfRoots:
    """Real lines of `length` points to their half spectra, X[k] = w_k sum_n x[n] exp(sign 2 pi i k n / N), or the
    transpose of that, x[n] = Re sum_k w_k X[k] exp(sign 2 pi i k n / N).

    All weights are 1, or 2 for a k that stands for N - k as well: N is the product of the one with those and the other
    without, with signs opposed.
    """

    length: int
    sign: int
    onto_real: bool
    weighted: bool
    row_axis: ClassVar[int | None] = None
    whole: ClassVar[bool] = True
    planes: ClassVar[int] = 2

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
    def period(self) -> float | None:
        return self.length

    @property
    def inverse(self) -> "HalfRoots":
        return HalfRoots(self.length, -self.sign, not self.onto_real, not self.weighted)

    def prepare(self, operand: Any, real: DTypeLike) -> Any:
        return operand

    def block(self, operand: Any, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        k = columns[None, :] if self.onto_real else rows[:, None]
        weights = self.weights(k).astype(real)
        return tuple(weights * plane for plane in vandermonde(rows, columns, self.length, self.sign, real))

    def weights(self, k: Array) -> Array:
        """w_k at integer k."""
        return 1 + ((k > 0) & (2 * k < self.length) & self.weighted).astype(k.dtype)

    def conjugate(self) -> "HalfRoots":
        return dataclasses.replace(self, sign=-self.sign)

    def transpose(self) -> "HalfRoots":
        return dataclasses.replace(self, onto_real=not self.onto_real)


class Logarithm(NamedTuple):
    """log z of samples: the angle, and off the unit circle the logarithm of the radius.

    Floats of shape (rows,), the angle in turns or radians and the radius to base e; or (limbs, rows) of fixed-point
    numbers, the angle in turns and the radius to base two.
    """

    angle: Any
    radius: Any


@dataclasses.dataclass(frozen=True)
class Samples:
    """Any samples of the z-plane: z_k^-n, or its conjugate. `unit` is that of the operand's angles, None for limbs."""

    rows: int
    columns: int
    unit: str | None = None
    conjugated: bool = False
    row_axis: ClassVar[int | None] = -1
    whole: ClassVar[bool] = False
    becomes: ClassVar[str | None] = None
    planes: ClassVar[int] = 2
    period: ClassVar[float | None] = None
    inverse: ClassVar[Matrix | None] = None

    def prepare(self, operand: Logarithm, real: DTypeLike) -> Logarithm:
        return operand if self.unit is None else limbs_of(operand, self.unit, real)

    def block(self, operand: Logarithm, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        angle, radius = operand
        n = columns.astype(jnp.uint32)[None, :]
        turns = times(n, tuple(limb[:, None] for limb in angle))
        re, im = circle(turns, 1 if self.conjugated else -1, real)
        if radius is None:
            return re, im
        size = power_of_two(negative(times(n, tuple(limb[:, None] for limb in radius))), real)
        return size * re, size * im

    def slope(self, change: Logarithm) -> Planes:
        """The planes of d log V[k, n] / n for a change of floats: V' = n slope V."""
        turn = change.angle * (2 * np.pi if self.unit == "turns" else 1.0)
        return jnp.zeros_like(turn) if change.radius is None else -change.radius, turn if self.conjugated else -turn

    def conjugate(self) -> "Samples":
        return dataclasses.replace(self, conjugated=not self.conjugated)

    def transpose(self) -> "Samples":
        raise NotImplementedError("its operand lies with the rows")


def limbs_of(floats: Logarithm, unit: str, real: DTypeLike) -> Logarithm:
    """Logarithms of samples as limbs enough for a type; NumPy's float64 keeps all its digits."""
    many = limbs_for(real)
    angle = (of_turns if unit == "turns" else of_radians)(floats.angle, many)
    if floats.radius is None:
        return Logarithm(angle, None)
    return Logarithm(angle, of_logarithm(floats.radius, many))


@dataclasses.dataclass(frozen=True)
class Dense:
    """Any matrix, given by its rows: (planes, rows, columns), or split in terms, (forms, terms, rows, columns)."""

    rows: int
    columns: int
    conjugated: bool = False
    planes: int = 2
    row_axis: ClassVar[int | None] = -2
    whole: ClassVar[bool] = False
    becomes: ClassVar[str | None] = None
    period: ClassVar[float | None] = None
    inverse: ClassVar[Matrix | None] = None

    def prepare(self, operand: Any, real: DTypeLike) -> Any:
        return operand

    def block(self, operand: Array, rows: Array, columns: Array, real: DTypeLike) -> Planes | Factors:
        part = lax.dynamic_slice_in_dim(operand, columns[0], columns.shape[0], -1)
        if part.ndim == 4 and not self.conjugated:
            return Factors(tuple(tuple(form) for form in part))
        planes = tuple(part if part.ndim == 3 else part[-2:].astype(real).sum(1))
        return conjugate(planes) if self.conjugated else planes

    def conjugate(self) -> "Dense":
        return dataclasses.replace(self, conjugated=not self.conjugated)

    def transpose(self) -> "Dense":
        raise NotImplementedError("its operand lies with the rows")


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Any matrix, of which `function(rows, columns)` makes blocks from int32 index vectors."""

    function: Callable[[Array, Array], Array]
    rows: int
    columns: int
    transposed: bool = False
    conjugated: bool = False
    planes: int = 2
    row_axis: ClassVar[int | None] = None
    whole: ClassVar[bool] = False
    becomes: ClassVar[str | None] = None
    period: ClassVar[float | None] = None
    inverse: ClassVar[Matrix | None] = None

    def prepare(self, operand: Any, real: DTypeLike) -> Any:
        return operand

    def block(self, operand: Any, rows: Array, columns: Array, real: DTypeLike) -> Planes:
        block = self.function(columns, rows).T if self.transposed else self.function(rows, columns)
        planes = tuple(plane.astype(real) for plane in split(block))
        return conjugate(planes) if self.conjugated else planes

    def conjugate(self) -> "Blocks":
        return dataclasses.replace(self, conjugated=not self.conjugated)

    def transpose(self) -> "Blocks":
        return dataclasses.replace(self, rows=self.columns, columns=self.rows, transposed=not self.transposed)
