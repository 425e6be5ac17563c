"""Deal: between a fine grid and points that JAX traces. The grid stays, points go to the devices that own their cells.

Every device sends each other one as many points as there are slots, filled or not, in one all-to-all; values travel
back in another. What that costs does not grow with the grid, where RingGrid sends all of it round. But how many points
a pair of devices needs is not known beforehand: those that find no slot have the value NaN, and where values of such
points are to be spread, those that do find one are NaN instead, so that no sum is wrong without a word.
"""

import dataclasses
import math

import jax.numpy as jnp
from jax import Array, lax

from ...collectives.all_to_all import exchange_packed
from ...layout.layout import Layout
from ...machine.chip import Chip
from ...machine.work import Move, Work
from ...numerics.dtypes import real_dtype
from ..grid.forms import cost
from ..grid.gridding import Form, interpolate, spread
from .ring_grid import SORT_PASSES, RingGrid, Slots, Sorted
from .route import GATHER_PASSES
from .sides import clear_points
from .turns import Turns, prepared


@dataclasses.dataclass(frozen=True)
class Deal(RingGrid):
    """Values at points from blocks of a fine grid with their halos, or with `transposed` the transpose of that."""

    room: int = 1  # slots of each pair of devices

    @property
    def _devices(self) -> int:
        return math.prod(self._parts)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Windows of all slots, a sort, and gathers on both sides of what travels: tables, and values."""
        parts, many, d = self._devices, self._devices * self.room, len(self.along)
        values = layout if self.transposed else self.after(layout)
        coils = math.prod(values.block) // max(math.prod(self.points.block), 1)
        flops, nbytes = cost(self.form, many, d, coils, itemsize, chip.name)
        count = math.prod(self.points.block)
        sorting = SORT_PASSES * 8 * count * max(count, 2).bit_length()
        sizes = (many * d * (4 + itemsize // 2), many * coils * itemsize)
        grid = math.prod(self._block) * coils * itemsize
        return Work(
            vector_flops=flops,
            memory_bytes=nbytes + sorting + GATHER_PASSES * sum(sizes),
            sent_bytes=sum(sizes) // parts * (parts - 1),
            all_to_alls=2 * (parts > 1),
            moves=tuple(Move("all-to-all", self._axes, size, 1) for size in sizes) if parts > 1 else (),
            peak_bytes=2 * grid + 4 * sum(sizes) + 2 * count * coils * itemsize + 4 * count * d * itemsize,
        )

    def _interpolated(self, block: Array, layout: Layout, operand: object) -> Array:
        turns = prepared(operand, self.unit, len(self.along), real_dtype(block.dtype))
        after, points = self.after(layout), self._sorted(turns)
        at, _ = self._at(points, turns)
        held = block.transpose(self._turned(block.ndim)).reshape(-1, *self._block)
        values = self._exchanged(interpolate(held, self._came(points, at), self._each, self.slope))
        lost = jnp.full((len(values), turns.size), jnp.nan, values.dtype)
        places = jnp.append(points.order, turns.size)[at]
        values = lost.at[:, places].set(values, mode="drop")
        return clear_points((values * self._phase(turns)).reshape(after.block), after, self.points)

    def _spread(self, values: Array, layout: Layout, operand: object) -> Array:
        turns = prepared(operand, self.unit, len(self.along), real_dtype(values.dtype))
        after, points = self.after(layout), self._sorted(turns)
        at, full = self._at(points, turns)
        mine = clear_points(values, layout, self.points).reshape(-1, turns.size) * self._phase(turns)
        mine = jnp.where(full.any(), jnp.nan, jnp.take(mine, points.order, 1))
        sent = self._exchanged(jnp.take(mine, at, 1, mode="fill", fill_value=0))
        order = self._turned(after.ndim)
        sums = spread(sent, self._came(points, at), self._each, self._block, self.slope)
        sums = sums.reshape([after.block[d] for d in order])
        return sums.transpose([order.index(d) for d in range(after.ndim)])

    @property
    def _each(self) -> Form:
        """The form for slots of which any may be empty."""
        return dataclasses.replace(self.form, chunk=1)

    def _at(self, points: Sorted, turns: Turns) -> tuple[Array, Array]:
        """Of every slot the place of its point, or one behind the last; and which devices have more than slots."""
        first, last = points.first[:-1, None], points.first[1:, None]
        at = first + lax.iota(jnp.int32, self.room)[None]
        return jnp.where(at < last, at, turns.size).ravel(), last[:, 0] - first[:, 0] > self.room

    def _came(self, points: Sorted, at: Array) -> Slots:
        """The points that all devices sent here, cells and offsets in one message of integers."""
        mine = (at < points.order.shape[0])[:, None]
        cell, offset = jnp.where(mine, points.cell[at], -1), points.offset[at]
        bits = lax.bitcast_convert_type(offset, jnp.int32).reshape(len(at), -1)
        table = self._exchanged(jnp.concatenate([cell, bits], 1).T).T
        cell, bits = table[:, : cell.shape[1]], table[:, cell.shape[1] :]
        bits = bits.reshape(*cell.shape, -1) if offset.dtype.itemsize == 8 else bits
        offset = lax.bitcast_convert_type(bits, offset.dtype)
        return Slots(cell, offset, jnp.zeros_like(cell), jnp.int32(len(at)))

    def _exchanged(self, rows: Array) -> Array:
        """Slots of all devices from slots for all devices, along the last dimension."""
        return exchange_packed(rows, self._axes, 1, 1)

    def name(self, layout: Layout) -> str:
        return super().name(layout).replace("(ring", f"(dealt, {self.room} slots a pair")
