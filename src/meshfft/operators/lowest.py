"""Lowest: a transform to its lowest frequencies, so that no other is sent, stored or transformed again.

    X[k] = sum_n V[k, n] x[n]   for k = 0, 1, ..., -2, -1, in the order of numpy.fft.fftfreq for the modes kept

Invariant: V V^H = L on these, so the adjoint over L is the inverse for samples without other frequencies.
"""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from ..numerics.products import Factors
from ..numerics.split_complex import Planes
from .matrices import Matrix, Operand, Roots
from .transform import Transform


@dataclasses.dataclass(frozen=True)
class Lowest(Matrix):
    """A matrix's rows for its `count` lowest frequencies in FFT order, else its first rows.

    The transpose, `onto` samples, has these columns.
    """

    full: Matrix
    count: int
    onto: bool = False

    @property
    def whole(self) -> Matrix:
        return self.full

    @property
    def rows(self) -> int:
        return self.full.rows if self.onto else self.count

    @property
    def columns(self) -> int:
        return self.count if self.onto else self.full.columns

    @property
    def becomes(self) -> str | None:
        return self.full.becomes

    @property
    def denominator(self) -> int:
        return self.full.denominator

    @property
    def period(self) -> float | None:
        return self.full.period

    @property
    def condition(self) -> float:
        return self.full.condition

    @property
    def inverse(self) -> "Lowest | None":
        back = self.full.inverse
        return None if back is None else dataclasses.replace(self, full=back, onto=not self.onto)

    def block(self, operand: Operand, rows: Array, columns: Array, real: DTypeLike) -> Planes | Factors:
        at = (rows, self._at(columns)) if self.onto else (self._at(rows), columns)
        return self.full.block(operand, *at, real)

    def _at(self, index: Array) -> Array:
        if not isinstance(self.full, Roots):
            return index
        return jnp.where(2 * index < self.count, index, index + (self.full.length - self.count))

    def conjugate(self) -> "Lowest":
        return dataclasses.replace(self, full=self.full.conjugate())

    def transpose(self) -> "Lowest":
        return dataclasses.replace(self, full=self.full.transpose(), onto=not self.onto)


def lowest(transform: Transform, modes: Sequence[int]) -> Transform:
    """The transform to as many modes along each axis; -1 for all, a half spectrum's without the negative."""
    each = tuple(modes) * (len(transform.dims) if len(modes) == 1 else 1)
    if len(each) != len(transform.dims):
        raise ValueError(
            f"modes has {len(each)} numbers for {len(transform.dims)} axes: give one, or one for each axis"
        )
    matrices = []
    for dim, matrix, many in zip(transform.dims, transform.matrices, each, strict=True):
        n = matrix.columns
        if many != -1 and not 1 <= many <= n:
            raise ValueError(f"modes is {many} along axis {dim}, which has {n} points: give 1 to {n}, or -1 for all")
        rows = many if matrix.becomes is None else many // 2 + 1
        matrices.append(matrix if many in (-1, n) else Lowest(matrix, rows))
    return transform._replace(matrices=tuple(matrices))
