"""KeptDense: a dense ring whose matrix rows stay on the devices.

    X[k] = sum_n V[k, n] x[n],   V[k, :] for the rows k of a device, (planes, rows, columns), is the operand

Transpose and conjugate use the same rows: sums travel for the transpose, unless V is symmetric. Without rows, as in a
caller's `jit`, whose program would copy them, the step makes them as RingDense does.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec
from jax.typing import DTypeLike

from ..layout.elements import positions
from ..layout.layout import AnyMesh, Layout, mapped_axes
from ..machine.chip import Chip
from ..machine.machine import Work
from ..numerics.products import masked
from ..numerics.split_complex import Block
from ..operators.matrices import Dense, Matrix, Roots
from ..operators.operands import operand_of
from .base import Step
from .ring_dense import RingDense

KEPT_PASSES = 2  # a run of columns is copied before its product


@dataclasses.dataclass(frozen=True)
class KeptDense(RingDense):
    """`matrix` is that of the kept rows in both directions."""

    conjugated: bool = False
    keeps: ClassVar[bool] = True

    @property
    def remade(self) -> RingDense:
        matrix = self.matrix.conjugate() if self.conjugated else self.matrix
        return self._ring(matrix, None if matrix.row_axis is None else self.slot)

    @property
    def _dense(self) -> RingDense:
        rows, columns, planes = self.matrix.rows, self.matrix.columns, self.matrix.planes
        return self._ring(Dense(rows, columns, conjugated=self.conjugated, planes=planes), self.slot)

    def _ring(self, matrix: Matrix, slot: int | None) -> RingDense:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(RingDense)}
        return RingDense(**{**fields, "matrix": matrix, "slot": slot})

    def nbytes(self, layout: Layout, itemsize: int) -> int:
        """Bytes of a device's rows, for elements of `itemsize` bytes."""
        rows, columns = self._ends(layout)
        plane = itemsize if self.real else itemsize // 2
        return self.matrix.planes * plane * rows.block[self.dim] * columns.storage[self.dim]

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        work, kept = super().work(layout, itemsize, chip), self.nbytes(layout, itemsize)
        return dataclasses.replace(work, memory_bytes=work.memory_bytes + KEPT_PASSES * kept, beside_bytes=kept)

    def _phase_flops(self, chip: Chip) -> int:
        return 0

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return (self._dense if _is_kept(operand) else self.remade).apply(block, layout, operand)

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        return given if _is_kept(given) else self.remade.operand(given, layout, mapped)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return self.rows_spec(layout) if _is_kept(operand) else self.remade.operand_spec(operand, layout)

    def rows_spec(self, layout: Layout) -> PartitionSpec:
        return PartitionSpec(None, self._ends(layout)[0].axes[self.dim] or None)

    def made(self, operand: object, layout: Layout, real: DTypeLike) -> Array:
        """This device's rows, from the operand of `remade`."""
        rows, columns = self._ends(layout)
        k, logical = positions(rows, self.dim, self.matrix.rows)
        n = jnp.arange(columns.positions(self.dim).max(initial=-1) + 1, dtype=jnp.int32)
        made = self.matrix.block(self.matrix.prepare(operand, real), k, n, real)
        return jnp.stack(jax.tree.leaves(masked(made, logical)))

    def transpose(self, layout: Layout) -> "KeptDense":
        back = dataclasses.replace(self, sizes=(layout.shape[self.dim],), cuts=layout.cuts[self.dim])
        square = isinstance(self.matrix, Roots) and self.matrix.rows == self.matrix.columns
        symmetric = square and self.cuts == layout.cuts[self.dim]
        return back if symmetric else dataclasses.replace(back, transposed=not self.transposed)

    def conjugate(self) -> "KeptDense":
        return dataclasses.replace(self, conjugated=not self.conjugated)

    def invert(self, layout: Layout) -> Step:
        unitary = isinstance(self.matrix, Roots) or self.matrix.inverse is None
        return self.transpose(layout).conjugate() if unitary else self.remade.invert(layout)

    def name(self, layout: Layout) -> str:
        return super().name(layout).replace("(dense", "(dense, kept rows")


def _is_kept(operand: object) -> bool:
    return isinstance(operand, Array)


@dataclasses.dataclass(frozen=True, eq=False)
class KeptRows:
    """A step's rows on a mesh, cut as it takes them; made at the first call."""

    step: KeptDense
    layout: Layout
    mesh: AnyMesh | None
    source: Any  # of the matrix
    real: np.dtype

    @property
    def nbytes(self) -> int:
        return self.step.nbytes(self.layout, self.real.itemsize * (1 if self.step.real else 2))

    def operand(self, real: DTypeLike) -> object:
        """The rows; the matrix's operand in a traced program, or if the mesh is only described."""
        described = self.mesh is not None and not isinstance(self.mesh, Mesh)
        traced = isinstance(jnp.zeros(()), Tracer) or mapped_axes(jax.sharding.get_abstract_mesh())
        return operand_of(self.source, real) if described or traced else self._rows

    @functools.cached_property
    def _rows(self) -> Array:
        plain = self.step.remade
        stored = plain.operand(operand_of(self.source, self.real), self.layout)
        make = functools.partial(self.step.made, layout=self.layout, real=self.real)
        if isinstance(self.mesh, Mesh):
            before, after = plain.operand_spec(stored, self.layout), self.step.rows_spec(self.layout)
            make = jax.shard_map(make, mesh=self.mesh, in_specs=(before,), out_specs=after, check_vma=False)
        return jax.jit(make)(stored)


def kept_rows(
    taking: Sequence[tuple[int, Step, Layout]], sources: Sequence[Any], mesh: AnyMesh | None, real: np.dtype
) -> tuple[Any, ...]:
    every = list(sources)
    for slot, step, layout in taking:
        if isinstance(step, KeptDense):
            every[slot] = KeptRows(step, layout, mesh, every[slot], real)
    return tuple(every)
