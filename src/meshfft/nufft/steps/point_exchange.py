"""PointExchange: between a fine grid and points that JAX traces. The grid stays, points go to the cells' owners.

Every device sends each other one as many points as there are slots, filled or not, in one all-to-all; values travel
back in another. The cost does not grow with the grid, as that of RingGrid does. But how many points a pair of devices
needs is not known beforehand: those without a slot have the value NaN. If their values are to be spread, the sums are
NaN too, so that no error is silent.
"""

import dataclasses
import math

import jax.numpy as jnp
from jax import Array, lax

from ...collectives.all_to_all import exchange_packed
from ...layout.layout import Layout
from ...machine.chip import Chip
from ...machine.work import Move, Work
from ..grid.form import Form, Slots, cost
from ..grid.gridding import interpolate, spread
from .ring_grid import RingGrid, Sorted
from .value_exchange import GATHER_PASSES


@dataclasses.dataclass(frozen=True)
class PointExchange(RingGrid):
    """Values at points from blocks of a fine grid with their halos."""

    slots: int = 1  # of each pair of devices

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Windows of all slots, a sort, and gathers on both sides of what travels: tables, and values."""
        parts, d, coils = math.prod(self.grid.parts), len(self.along), self.batch(layout)
        many, count = parts * self.slots, math.prod(self.points.block)
        flops, nbytes = cost(self.form, many, d, coils, itemsize, chip.name)
        sizes = (many * d * (4 + itemsize // 2), many * coils * itemsize)
        grid = math.prod(self.grid.block) * coils * itemsize
        return Work(
            vector_flops=flops,
            memory_bytes=nbytes + self._sorting + GATHER_PASSES * sum(sizes),
            sent_bytes=sum(sizes) // parts * (parts - 1),
            all_to_alls=2 * (parts > 1),
            moves=tuple(Move("all-to-all", self.axes, size, 1) for size in sizes) if parts > 1 else (),
            peak_bytes=2 * grid + 4 * sum(sizes) + 2 * count * coils * itemsize + 4 * count * d * itemsize,
        )

    def _values(self, held: Array, points: Sorted) -> Array:
        at, _ = self._at(points)
        values = self._exchanged(interpolate(held, self._came(points, at), self._each, self.slope))
        lost = jnp.full((len(values), points.size), jnp.nan, values.dtype)
        return lost.at[:, jnp.append(points.order, points.size)[at]].set(values, mode="drop")

    def _sums(self, values: Array, points: Sorted) -> Array:
        at, full = self._at(points)
        mine = jnp.where(full.any(), jnp.nan, jnp.take(values, points.order, 1))
        sent = self._exchanged(jnp.take(mine, at, 1, mode="fill", fill_value=0))
        return spread(sent, self._came(points, at), self._each, self.grid.block, self.slope)

    @property
    def _each(self) -> Form:
        """The form for slots of which any may be empty."""
        return dataclasses.replace(self.form, chunk=1)

    def _at(self, points: Sorted) -> tuple[Array, Array]:
        """The place of the point in every slot, or one behind the last; and which devices have more than slots."""
        first, last = points.first[:-1, None], points.first[1:, None]
        at = first + lax.iota(jnp.int32, self.slots)[None]
        return jnp.where(at < last, at, points.size).ravel(), last[:, 0] - first[:, 0] > self.slots

    def _came(self, points: Sorted, at: Array) -> Slots:
        """The points that all devices sent here, cells and offsets in one message of integers."""
        mine = (at < points.size)[:, None]
        cell, offset = jnp.where(mine, points.cell[at], -1), points.offset[at]
        bits = lax.bitcast_convert_type(offset, jnp.int32).reshape(len(at), -1)
        table = self._exchanged(jnp.concatenate([cell, bits], 1).T).T
        cell, bits = table[:, : cell.shape[1]], table[:, cell.shape[1] :]
        bits = bits.reshape(*cell.shape, -1) if offset.dtype.itemsize == 8 else bits
        offset = lax.bitcast_convert_type(bits, offset.dtype)
        return Slots(cell, offset, jnp.zeros_like(cell), jnp.int32(len(at)))

    def _exchanged(self, rows: Array) -> Array:
        """Slots of all devices from slots for all devices, along the last dimension."""
        return exchange_packed(rows, self.axes, 1, 1)

    def name(self, layout: Layout) -> str:
        return super().name(layout).replace("(ring", f"(points sent, {self.slots} slots a pair")
