"""Steps between a fine grid and points that JAX traces: RingGrid and PointExchange.

    r_j = e_j sum over cells l of the window of point j of Y[l] product over dimensions of phi(l - u_j)

e_j = exp(-2 pi i k_j . middles) undoes the phase shift of the grid.

RingGrid: points stay, and the grid circulates on one ring. Every device interpolates its points of each block when that
arrives. In the transpose values stay and sums of blocks are sent.

PointExchange: the grid stays, and points are sent to the owners of their cells. Each pair of devices exchanges `slots`
points in one all-to-all; values return in another. Points without a slot have the value NaN, and in the transpose all
sums are NaN.

Invariant: u = G k mod G is in fixed point, and splits into cell and offset exactly.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...collectives.all_to_all import exchange_packed
from ...collectives.ring import ring_fold, ring_scatter
from ...layout.layout import Layout
from ...machine.chip import Chip
from ...machine.machine import Move, Work
from ...numerics import phases
from ...numerics.dtypes import real_dtype
from ...numerics.phases import Limbs
from ...numerics.split_complex import Planes
from ...operators.matrices import Logarithm
from ...steps.base import Slope
from ...steps.sends import Wired, hops
from ..grid.form import Form, Outs, Slots, cost
from ..grid.gridding import interpolate, spread
from .known_points import GATHER_PASSES
from .point_step import Cells, CoordinateStep, fixed, grid_back, grid_last, located

SORT_PASSES = 2  # over keys and numbers, per bit of the number of points


class Sorted(NamedTuple):
    """Points sorted by the block of the grid that they need."""

    order: Array  # point at each place
    cell: Array  # (2 points, d): lowest touched cell, in the block; the second half is empty
    offset: Array  # (2 points, d)
    first: Array  # place of the first point of every block, then the number of points

    @property
    def size(self) -> int:
        return int(self.order.shape[0])


@dataclasses.dataclass(frozen=True)
class RingGrid(CoordinateStep, Wired):
    cells: tuple[int, ...]
    middles: tuple[int, ...]  # of e_j; zeros for none
    form: Form  # "points" or "gather", without slack, in chunks of 1 that may be empty
    outs: Outs = ()  # several values of a point in a last dimension of the batch, with derivatives of the window

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        parts, count, d = math.prod(self.grid.parts), math.prod(self.points.block), len(self.along)
        coils = self.batch(layout)
        flops, nbytes = cost(self.form, count, coils, itemsize)
        tables, block = count * 8 * d, coils * math.prod(self.grid.block) * itemsize
        sent = self.message_bytes((coils, *self.grid.block), itemsize)
        return Work(
            vector_flops=flops,
            memory_bytes=nbytes + self._sorting + parts * (tables + 2 * count * coils * itemsize + block),
            sent_bytes=(parts - 1) * sent,
            hops=parts - 1,
            moves=(Move("ring", self.axes, sent, parts - 1),),
            parts=parts,
            peak_bytes=3 * block + 4 * count * coils * itemsize + 4 * tables,
        )

    def ends(self, layout: Layout) -> tuple[Layout, Layout]:
        if not self.outs:
            return super().ends(layout)
        at = layout.ndim - self.points.ndim - 1
        if self.transposed:
            return super().ends(layout.without([at]))[0], layout
        values = super().ends(layout)[1]
        return layout, values.insert(values.ndim - self.points.ndim, len(self.outs), ())

    def passages(self, layout: Layout) -> float:
        return hops(math.prod(self.grid.parts), self.transposed)

    @property
    def _sorting(self) -> int:
        count = math.prod(self.points.block)
        return SORT_PASSES * 8 * count * max(count, 2).bit_length()

    def _apply(self, block: Array, layout: Layout, operand: object) -> Array:
        real = real_dtype(block.dtype)
        places, phase = self._of_cells(operand) if isinstance(operand, Cells) else self._of_turns(operand, real)
        points = self._sorted(places, real)
        array, values = self.ends(layout)
        if self.transposed:
            given = self.clear_points(block, values).reshape(-1, points.size) * phase
            return grid_back(self._sums(given, points), array, self.along)
        found = self._values(grid_last(block, self.along), points) * phase
        return self.clear_points(found.reshape(values.block), values)

    def _values(self, held: Array, points: Sorted) -> Array:
        """Values (batch, points) from this device's block (batch, *cells)."""

        def add(total: Array | None, *held: tuple[Array, Array]) -> Array:
            for shard, at in held:
                values = interpolate(shard, self._of_block(points, at), self.form, *self.outs)
                if total is None:
                    total = jnp.zeros((len(values), 2 * points.size), values.dtype)
                values = values + lax.dynamic_slice_in_dim(total, points.first[at], points.size, 1)
                total = lax.dynamic_update_slice_in_dim(total, values, points.first[at], 1)
            assert total is not None
            return total

        values = self.over_wire(ring_fold)(add, held, self.axes)[:, : points.size]
        return jnp.zeros_like(values).at[:, points.order].set(values, unique_indices=True)

    def _sums(self, values: Array, points: Sorted) -> Array:
        """This device's block (batch, *cells) of the sum over all values."""
        mine = jnp.pad(jnp.take(values, points.order, 1), ((0, 0), (0, points.size)))

        def term(at: Array) -> Array:
            part = lax.dynamic_slice_in_dim(mine, points.first[at], points.size, 1)
            return spread(part, self._of_block(points, at), self.form, self.grid.block, *self.outs)

        return self.over_wire(ring_scatter)(term, self.axes)

    def _of_cells(self, operand: Cells) -> tuple[Limbs, Array]:
        place, (re, im) = jax.tree.map(lambda leaf: leaf.reshape(len(leaf), -1), operand)
        return place, lax.complex(re, -self.sign * im)

    def _of_turns(self, operand: object, real: np.dtype) -> tuple[Limbs, Array]:
        """The places of points in cells (d, points), and e_j."""
        coordinates = fixed(operand, self.unit, len(self.along), real)

        def along(given: tuple[Array, Array, Limbs]) -> tuple[Limbs, Limbs]:
            cells, middle, limbs = given
            return phases.times(cells, (jnp.zeros_like(limbs[0]), *limbs)), phases.times(middle, limbs)

        sizes = (np.array(one, np.uint32) for one in (self.cells, self.middles))
        places, turns = lax.map(along, (*sizes, coordinates.limbs))  # a loop, as XLA would repeat all of it at each use
        re, im = phases.circle(functools.reduce(phases.add, zip(*turns, strict=True)), self.sign, real)
        return places, lax.complex(re + coordinates.lost, im)[None]

    def _sorted(self, places: Limbs, real: np.dtype) -> Sorted:
        def along(given: tuple[Array, Array, Limbs]) -> tuple[Array, Array, Array]:
            size, bare, place = given
            lowest, offset = located(place, size, self.form.width, real)
            part = lax.div(lowest, bare)
            return part, lowest - part * bare, offset

        sizes = np.array([self.cells, [n - self.form.reach + 1 for n in self.grid.block]], np.int32)
        owners, cells, offsets = lax.map(along, (*sizes, places))
        at = jnp.zeros_like(owners[0])
        for parts, part in zip(self.grid.parts, owners, strict=True):
            at = at * np.int32(parts) + part
        order, blocks = self._order(at, cells), math.prod(self.grid.parts)
        first = jnp.searchsorted(at[order], jnp.arange(blocks + 1, dtype=jnp.int32)).astype(jnp.int32)
        cell, offset = (part.T[order] for part in (cells, offsets))
        more = ((0, at.size), (0, 0))
        return Sorted(order, jnp.pad(cell, more), jnp.pad(offset, more), first)

    def _order(self, at: Array, cells: Array) -> Array:
        """Order by block, then by cell as far as bits allow.

        One uint32 has block, cell and point number: XLA sorts single numbers five times as fast as pairs.
        """
        number, block = (at.shape[0] - 1).bit_length(), (math.prod(self.grid.parts) - 1).bit_length()
        free = 32 - number - block
        if free < 0:
            return lax.sort((at, lax.iota(jnp.int32, at.shape[0])), num_keys=1)[1]
        flat = jnp.zeros(at.shape, jnp.uint32)
        for cell, size in zip(cells, self.grid.block, strict=True):
            flat = flat * np.uint32(size) + cell.astype(jnp.uint32)
        exact = (math.prod(self.grid.block) - 1).bit_length()
        kept = min(exact, free)
        keys = at.astype(jnp.uint32) << np.uint32(kept) | flat >> np.uint32(exact - kept)
        packed = lax.sort(keys << np.uint32(number) | lax.iota(jnp.uint32, at.shape[0]))
        return (packed & np.uint32(2**number - 1)).astype(jnp.int32)

    def _of_block(self, points: Sorted, at: Array) -> Slots:
        first = points.first[at]
        cell, offset = (lax.dynamic_slice_in_dim(part, first, points.size) for part in (points.cell, points.offset))
        count = points.first[at + 1] - first
        mine = (lax.iota(jnp.int32, points.size) < count)[:, None]
        return Slots(jnp.where(mine, cell, -1), offset, jnp.zeros_like(cell), count)

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> list[Slope]:
        """d (e_j r_j) = sum over dimensions of d k_j times G e_j r'_j + (sign 2 pi i middle) e_j r_j."""
        assert isinstance(change, Logarithm)
        turns = change.angle if self.unit == "turns" else change.angle / (2 * np.pi)
        parts = [turn * cells for turn, cells in zip(turns, self.cells, strict=True)]
        planes: list[Planes] = [(part, jnp.zeros_like(part)) for part in parts]
        ways: list[tuple[int, ...]] = [(j,) for j in range(len(parts))]
        shared = not (self.outs or self.transposed)
        if any(self.middles) or shared:
            angle = sum(turn * (self.sign * 2 * np.pi * n) for turn, n in zip(turns, self.middles, strict=True))
            planes, ways = [*planes, (jnp.zeros_like(parts[0]), jnp.asarray(angle))], [*ways, ()]
        batch = self.ends(layout)[1].ndim - self.points.ndim
        factors, every = planes, [tuple((*out, *way) for out in self.outs) for way in ways]
        dim = None if self.outs else batch
        if not self.outs:
            factors, every = [tuple(jnp.stack(part) for part in zip(*planes, strict=True))], [tuple(ways)]
        value = len(parts) if shared else None
        slopes: list[Slope] = []
        for factor, outs in zip(factors, every, strict=True):
            wide, step = (
                tuple(jnp.expand_dims(part, range(batch)) for part in factor),
                dataclasses.replace(self, outs=outs),
            )
            slopes.append(Slope(wide, step, (), dim) if self.transposed else Slope((), step, wide, dim, value))
        return slopes

    def name(self, layout: Layout) -> str:
        way = "ring" if type(self) is RingGrid else "points sent"
        return self.named(layout, f"{way}, {self.form.width} cells")


@dataclasses.dataclass(frozen=True)
class PointExchange(RingGrid):
    slots: int = 1  # per pair of devices

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        parts, d, coils = math.prod(self.grid.parts), len(self.along), self.batch(layout)
        many, count = parts * self.slots, math.prod(self.points.block)
        flops, nbytes = cost(self.form, many, coils, itemsize)
        sizes = (many * d * (4 + itemsize // 2), parts * self.message_bytes((coils, self.slots), itemsize))
        grid = math.prod(self.grid.block) * coils * itemsize
        return Work(
            vector_flops=flops,
            memory_bytes=nbytes + self._sorting + GATHER_PASSES * sum(sizes),
            sent_bytes=sum(sizes) // parts * (parts - 1),
            all_to_alls=2 * (parts > 1),
            moves=tuple(Move("all-to-all", self.axes, size, 1) for size in sizes) if parts > 1 else (),
            peak_bytes=2 * grid + 4 * sum(sizes) + 2 * count * coils * itemsize + 4 * count * d * itemsize,
        )

    def passages(self, layout: Layout) -> float:
        return math.prod(self.grid.parts) > 1

    def _values(self, held: Array, points: Sorted) -> Array:
        at, _ = self._at(points)
        found = interpolate(held, self._came(points, at), self.form, *self.outs)
        values = self.over_wire(exchange_packed)(found, self.axes, 1, 1)
        lost = jnp.full((len(values), points.size), jnp.nan, values.dtype)
        return lost.at[:, jnp.append(points.order, points.size)[at]].set(values, mode="drop")

    def _sums(self, values: Array, points: Sorted) -> Array:
        at, full = self._at(points)
        mine = jnp.where(full.any(), jnp.nan, jnp.take(values, points.order, 1))
        filled = jnp.take(mine, at, 1, mode="fill", fill_value=0)
        sent = self.over_wire(exchange_packed)(filled, self.axes, 1, 1)
        return spread(sent, self._came(points, at), self.form, self.grid.block, *self.outs)

    def _at(self, points: Sorted) -> tuple[Array, Array]:
        """The place of each slot's point, `size` if empty; and devices that need more slots."""
        first, last = points.first[:-1, None], points.first[1:, None]
        at = first + lax.iota(jnp.int32, self.slots)[None]
        return jnp.where(at < last, at, points.size).ravel(), last[:, 0] - first[:, 0] > self.slots

    def _came(self, points: Sorted, at: Array) -> Slots:
        """Slots from all devices; cells and offsets are one message."""
        mine = (at < points.size)[:, None]
        cell, offset = jnp.where(mine, points.cell[at], -1), points.offset[at]
        bits = lax.bitcast_convert_type(offset, jnp.int32).reshape(len(at), -1)
        table = exchange_packed(jnp.concatenate([cell, bits], 1).T, self.axes, 1, 1).T
        cell, bits = table[:, : cell.shape[1]], table[:, cell.shape[1] :]
        bits = bits.reshape(*cell.shape, -1) if offset.dtype.itemsize == 8 else bits
        offset = lax.bitcast_convert_type(bits, offset.dtype)
        return Slots(cell, offset, jnp.zeros_like(cell), jnp.int32(len(at)))
