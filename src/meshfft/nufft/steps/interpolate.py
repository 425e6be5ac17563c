"""Interpolate: from the cells of a fine grid to points anywhere, each device for the points it owns; or transposed.

    r_j = e_j sum over cells l of the window of point j of Y[l] product over dimensions of phi(l - u_j)

e_j = exp(-2 pi i k_j . middles) undoes the phase shift of the grid; the host makes it in float64. Points are operands:
tables of where they are in the block of their device, halo included. Values are in the plan's order: the same number of
slots on every device, of which some are empty and hold 0.

Points may have moved since they were placed by up to `slack` cells. The value of one that is farther is NaN.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from ...collectives.pieces import Came
from ...kept_verdicts import Trial
from ...layout.layout import Layout
from ...machine.chip import Chip
from ...machine.work import Work
from ...numerics.split_complex import Block, in_complex
from ...steps.base import names
from ..grid.binning import Tables
from ..grid.form import Form, Slots, cost
from ..grid.gridding import kernels_of
from .point_step import PointStep, grid_back, grid_last, own_tables, table_specs

NEAR = 1e-4  # of the slack: rounding of points that moved by all of it


class Moved(NamedTuple):
    """Tables of points, and how many cells each has moved along every dimension: (d, slots of all devices)."""

    tables: Tables
    shift: Any


@dataclasses.dataclass(frozen=True)
class Interpolate(PointStep):
    """Values in slots from the grid around their points; `sign` is 0 without the phases e_j."""

    cells: tuple[int, ...]  # of the fine grid along each dimension
    middles: tuple[int, ...]  # of e_j
    form: Form
    most: int  # points of the device that has the most

    def operand(self, given: Any, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        tables, *shift = given if isinstance(given, Moved) else (given,)
        tables = own_tables(tables, self.points.cuts[0], mapped)
        return Moved(tables, *shift) if shift else tables

    def operand_spec(self, operand: Any, layout: Layout) -> object:
        if isinstance(operand, Moved):
            return Moved(table_specs(operand.tables, self.axes), PartitionSpec(None, self.axes or None))
        return table_specs(operand, self.axes)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """The window's cells of every point; the block is read once, and values are written."""
        d, coils = len(self.along), self.batch(layout)
        grid, slots = math.prod(self.grid.block), math.prod(self.points.block)
        flops, nbytes = cost(self.form, self.most, d, coils, itemsize, chip.name)
        held = (2 * grid + slots) * coils * itemsize + slots * 8 * (d + 1)
        return Work(vector_flops=flops, memory_bytes=nbytes, peak_bytes=held)

    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        return kernels_of(self.form).trials(self.batch(layout), self.grid.block, self.form), None

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return in_complex(functools.partial(self._apply, layout=layout, operand=operand), block)

    def _apply(self, block: Array, layout: Layout, operand: Any) -> Array:
        tables, kernels = self._here(operand), kernels_of(self.form)
        slots = Slots(*tables[:4])
        if self.transposed:
            values = self._phased(block.reshape(-1, block.shape[-1]), tables)
            return grid_back(kernels.spread(values, slots, self.form, self.grid.block), self.after(layout), self.along)
        values = kernels.interpolate(grid_last(block, self.along), slots, self.form)
        return self._phased(values, tables).reshape(self.after(layout).block)

    def _here(self, operand: Any) -> Tables:
        """The tables of this device, with points where they are now."""
        moved = isinstance(operand, Moved)
        tables = Tables(*(leaf[0] for leaf in (operand.tables if moved else operand)))
        if not moved:
            return tables
        shift, (middles, cells) = operand.shift, (np.array(part)[:, None] for part in (self.middles, self.cells))
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
        phase = tables.phase if self.sign < 0 else tables.phase.conj()
        return values * phase.astype(values.dtype)[None]

    def name(self, layout: Layout) -> str:
        what = "spread" if self.transposed else "interpolate"
        return f"{what} {names(self.along, self.ends(layout)[0])} ({self.form.kind}, {self.form.width} cells)"
