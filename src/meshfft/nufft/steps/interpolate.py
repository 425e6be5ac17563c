"""Interpolate and Spread: between the cells of a fine grid and points anywhere, each device for the points it owns.

    r_j = e_j sum over cells l of the window of point j of Y[l] product over dimensions of phi(l - u_j)

e_j = exp(-2 pi i k_j . (N // 2)) undoes the twist of the grid, exactly, since it is made on the host in float64. Points
are operands: tables of where they lie in the block of their device, halo included. Spread is the exact transpose.
Results lie in the plan's order: slots, as many on every device, of which some are empty and hold 0.

Points may have moved since they were placed, by whole cells as far as windows are wider by (slack). Where one is
farther its value is NaN: nothing says what it should be.
"""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from ...collectives.pieces import Came
from ...kept_verdicts import Trial
from ...layout.layout import Cuts, Layout, even_cuts, line_shape
from ...layout.placement import own
from ...machine.chip import Chip
from ...machine.work import Work
from ...numerics.split_complex import Block, in_complex
from ...steps.base import Step, names, shift
from ..grid.binning import Tables
from ..grid.forms import cost
from ..grid.gridding import kernels_of
from ..grid.weights import Form

NEAR = 1e-4  # of the slack: rounding of points that moved by all of it
Grid = tuple[tuple[int, Cuts], ...]  # sizes and cuts of the fine grid's dimensions, halo included


class Moved(NamedTuple):
    """Tables of points, and how many cells each has moved along every dimension: (d, slots of all devices)."""

    tables: Tables
    shift: Any


@dataclasses.dataclass(frozen=True)
class _Gridding(Step):
    """What both ways share."""

    along: tuple[int, ...]  # dimensions of the grid
    grid: Grid
    slots: int  # of each device
    points: int  # of the device that has the most
    form: Form
    sign: int  # of the phases e_j as they are in the tables: 1, -1 for their conjugates, 0 without
    at: int = 0  # the slot of the tables among the walk's operands
    moving: tuple[tuple[int, int], ...] = ()  # N // 2 and G of each dimension, where points have moved
    dims: ClassVar[tuple[int, ...]] = ()

    @property
    def slot(self) -> int:
        return self.at

    @property
    def cuts(self) -> Cuts:
        """How slots are cut: by all mesh axes that cut the grid."""
        cuts = [cut[:2] for _, cuts in self.grid for cut in cuts]
        return even_cuts(self.slots * math.prod(parts for _, parts in cuts), cuts)

    @property
    def linear(self) -> bool:
        """Not in points that have moved, along which plans have a derivative of their own."""
        return not self.moving

    def operand(self, given: Any, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """The tables of all devices, or of those that are seen here."""
        tables, *shift = given if self.moving else (given,)
        tables = jax.tree.map(lambda leaf: own(leaf, 0, self.cuts, mapped), tables)
        return Moved(tables, *shift) if self.moving else tables

    def operand_spec(self, operand: Any, layout: Layout) -> object:
        names = tuple(cut.axis for cut in self.cuts) or None
        tables, *shift = operand if self.moving else (operand,)
        specs = jax.tree.map(lambda leaf: PartitionSpec(names), tables)
        return Moved(specs, *(PartitionSpec(None, names) for _ in shift)) if self.moving else specs

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """The window's cells of every point; the block is read once, and values are written."""
        grid = math.prod(cuts[-1].span if cuts else size for size, cuts in self.grid)
        coils = math.prod(layout.block) // max(self._share(layout), 1)
        flops, nbytes = cost(self.form, self.points, len(self.along), coils, itemsize, chip.name)
        held = (grid + self.slots) * coils * itemsize + self.slots * 8 * (len(self.along) + 1)
        return Work(vector_flops=flops, memory_bytes=nbytes, peak_bytes=held + grid * coils * itemsize)

    def _share(self, layout: Layout) -> int:
        """Numbers of a block for each coil."""
        raise NotImplementedError

    def _here(self, operand: Any) -> Tables:
        """The tables of this device, of points where they are now."""
        tables, shift = operand if self.moving else (operand, None)
        tables = Tables(*(leaf[0] for leaf in tables))
        if shift is None:
            return tables
        middles, cells = (np.array(numbers).reshape(-1, 1) for numbers in zip(*self.moving, strict=True))
        angle = jnp.sum(shift * (-2 * np.pi * middles / cells).astype(shift.dtype), axis=0)
        turned = lax.complex(jnp.cos(angle), jnp.sin(angle)).astype(tables.phase.dtype)
        near = jnp.all(jnp.abs(shift) <= self.form.slack * (1 + NEAR), axis=0)
        phase = jnp.where(near, tables.phase * turned, jnp.nan)
        return tables._replace(
            offset=tables.offset + shift.T.astype(tables.offset.dtype),
            phase=jnp.where(tables.cell[:, 0] >= 0, phase, 0),
        )

    def _phased(self, values: Array, tables: Tables) -> Array:
        if self.sign == 0:
            return values
        phase = tables.phase if self.sign > 0 else tables.phase.conj()
        return values * phase.astype(values.dtype).reshape(line_shape(values.ndim - 1, values.ndim))

    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        block = tuple(cuts[-1].span if cuts else size for size, cuts in self.grid)
        coils = math.prod(layout.block) // max(self._share(layout), 1)
        return kernels_of(self.form).trials(coils, block, self.form), None

    def at_slot(self, slot: int) -> "_Gridding":
        return dataclasses.replace(self, at=slot)

    def conjugate(self) -> "_Gridding":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "_Gridding":
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))


@dataclasses.dataclass(frozen=True)
class Interpolate(_Gridding):
    """Values at points from the grid around them: the grid's dimensions go, and one of slots comes last."""

    def after(self, layout: Layout) -> Layout:
        rest = [d for d in range(layout.ndim) if d not in self.along]
        size = self.slots * math.prod(cut.parts for cut in self.cuts)
        shape, cuts = tuple(layout.shape[d] for d in rest), tuple(layout.cuts[d] for d in rest)
        return Layout((*shape, size), (*cuts, self.cuts))

    def _share(self, layout: Layout) -> int:
        return math.prod(layout.block[d] for d in self.along)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, operand=operand), block)

    def _apply(self, block: Array, operand: Any) -> Array:
        tables = self._here(operand)
        rest = [d for d in range(block.ndim) if d not in self.along]
        block = jnp.transpose(block, (*rest, *self.along))
        lead, cells = block.shape[: len(rest)], block.shape[len(rest) :]
        values = kernels_of(self.form).interpolate(block.reshape(-1, *cells), tables, self.form)
        return self._phased(values, tables).reshape(*lead, -1)

    def transpose(self, layout: Layout) -> "Spread":
        return Spread(*_fields(self))

    def name(self, layout: Layout) -> str:
        return f"interpolate {names(self.along, layout)} ({self.form.kind}, {self.form.width} cells)"


@dataclasses.dataclass(frozen=True)
class Spread(_Gridding):
    """The transpose: values at points added to the grid around them."""

    def after(self, layout: Layout) -> Layout:
        pairs = list(zip(layout.shape[:-1], layout.cuts[:-1], strict=True))
        for dim, pair in zip(self.along, self.grid, strict=True):
            pairs.insert(dim, pair)
        return Layout(tuple(size for size, _ in pairs), tuple(cuts for _, cuts in pairs))

    def _share(self, layout: Layout) -> int:
        return layout.block[-1]

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout, operand=operand), block)

    def _apply(self, values: Array, layout: Layout, operand: Any) -> Array:
        tables, after = self._here(operand), self.after(layout)
        cells = tuple(after.block[d] for d in self.along)
        values = self._phased(values, tables)
        grid = kernels_of(self.form).spread(values.reshape(-1, values.shape[-1]), tables, self.form, cells)
        grid = grid.reshape(*values.shape[:-1], *cells)
        rest = [d for d in range(after.ndim) if d not in self.along]
        order = [*rest, *self.along]
        return jnp.transpose(grid, [order.index(d) for d in range(after.ndim)])

    def transpose(self, layout: Layout) -> "Interpolate":
        return Interpolate(*_fields(self))

    def name(self, layout: Layout) -> str:
        return f"spread {names(self.along, self.after(layout))} ({self.form.kind}, {self.form.width} cells)"


def _fields(step: _Gridding) -> tuple[Any, ...]:
    return tuple(getattr(step, field.name) for field in dataclasses.fields(step))
