"""RingGrid: between a fine grid and points that JAX traces. Points stay on their devices, the grid goes round one ring.

    r_j = e_j sum over cells l of the window of point j of Y[l] product over dimensions of phi(l - u_j)

e_j = exp(-2 pi i k_j . (N // 2)) undoes the twist of the grid. Every device sorts its own points by the block that they
need, and interpolates them as that block comes by, halo included. So there is nothing to know beforehand and nothing to
overflow, wherever the points are. Of the transpose values stay, and sums of blocks of the grid travel.

Invariant: u = G k mod G is a fixed-point number, of which integer cell and offset are taken apart exactly. A point with
a coordinate that is not finite has the value NaN.
"""

import dataclasses
import functools
import math
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...collectives.ring import ring_fold, ring_scatter
from ...layout.layout import Layout
from ...machine.chip import Chip
from ...machine.work import Move, Work
from ...numerics import phases
from ...numerics.dtypes import real_dtype
from ...numerics.split_complex import Block, in_complex
from ...steps.base import Slope, Step, names, shift
from ..grid.forms import cost
from ..grid.gridding import Form, interpolate, spread
from .interpolate import Grid
from .sides import after_points, before_points, clear_points, operand_at, spec_at
from .turns import Turns, located, prepared

SORT_PASSES = 2  # over keys and numbers, for each bit of the number of points


class Sorted(NamedTuple):
    """The points of a device, by the block of the grid that they need."""

    order: Array  # the point at each place
    cell: Array  # (2 points, d), the lowest cell touched, in the block; as many empty places behind
    offset: Array  # (2 points, d)
    first: Array  # place of the first point of every block, and the number of points


@dataclasses.dataclass(frozen=True)
class Slots:
    """The points of one block, as kernels take them."""

    cell: Array
    offset: Array
    start: Array
    count: Array


@dataclasses.dataclass(frozen=True)
class RingGrid(Step):
    """Values at points from blocks of a fine grid with their halos, or with `transposed` the transpose of that.

    Batch dimensions come first in the layout of the values, in their order, then the dimensions of `points`.
    """

    along: tuple[int, ...]  # dimensions of the grid
    grid: Grid  # their sizes and cuts, halo included
    cells: tuple[int, ...]  # of the fine grid
    middles: tuple[int, ...]  # of e_j along each dimension; zeros where there is none
    points: Layout  # of the values, without batch dimensions: cut by the mesh axes that cut the grid
    form: Form  # "points" or "gather", without slack
    unit: str | None = None  # of coordinates that are floats, "turns" or "radians"; None of fixed-point turns
    sign: int = -1  # of the exponent of e_j
    slope: tuple[int, ...] = ()  # dimensions whose window is replaced by its derivative in the offset, see gridding
    transposed: bool = False
    slot: int | None = 0  # which of the walk's operands the coordinates are
    dims: ClassVar[tuple[int, ...]] = ()

    def after(self, layout: Layout) -> Layout:
        if self.transposed:
            return before_points(layout, self.along, self.grid, self.points)
        return after_points(layout, self.along, self.points)

    @property
    def _parts(self) -> tuple[int, ...]:
        return tuple(math.prod(cut.parts for cut in cuts) for _, cuts in self.grid)

    @property
    def _block(self) -> tuple[int, ...]:
        """Cells of a block along each dimension, halo included."""
        return tuple(cuts[-1].span if cuts else size for size, cuts in self.grid)

    @property
    def _axes(self) -> tuple[str, ...]:
        return tuple(cut.axis for _, cuts in self.grid for cut in cuts)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Windows of all points, a sort, tables and values once for each block; blocks travel, halos too."""
        parts, count, block = math.prod(self._parts), math.prod(self.points.block), math.prod(self._block)
        values = layout if self.transposed else self.after(layout)
        coils = math.prod(values.block) // max(count, 1)
        flops, nbytes = cost(self.form, count, len(self.along), coils, itemsize, chip.name)
        tables, sent = count * 8 * len(self.along), coils * block * itemsize
        sorting = SORT_PASSES * 8 * count * max(count, 2).bit_length()
        return Work(
            vector_flops=flops,
            memory_bytes=nbytes + sorting + parts * (tables + 2 * count * coils * itemsize + sent),
            sent_bytes=(parts - 1) * sent,
            hops=parts - 1,
            moves=(Move("ring", self._axes, sent, parts - 1),),
            parts=parts,
            peak_bytes=3 * sent + 4 * count * coils * itemsize + 4 * tables,
        )

    def _turned(self, ndim: int) -> list[int]:
        """The dimensions of the grid's layout, batch dimensions first."""
        return [*(d for d in range(ndim) if d not in self.along), *self.along]

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        one = self._spread if self.transposed else self._interpolated
        return in_complex(functools.partial(one, layout=layout, operand=operand), block)

    def _interpolated(self, block: Array, layout: Layout, operand: object) -> Array:
        turns = prepared(operand, self.unit, len(self.along), real_dtype(block.dtype))
        after, points, form = self.after(layout), self._sorted(turns), dataclasses.replace(self.form, chunk=1)
        held = block.transpose(self._turned(block.ndim)).reshape(-1, *self._block)

        def add(total: Array | None, *held: tuple[Array, Array]) -> Array:
            for shard, at in held:
                first = points.first[at]
                values = interpolate(shard, self._of_block(points, at), form, self.slope)
                if total is None:
                    total = jnp.zeros((len(values), 2 * turns.size), values.dtype)
                values = values + lax.dynamic_slice_in_dim(total, first, turns.size, 1)
                total = lax.dynamic_update_slice_in_dim(total, values, first, 1)
            assert total is not None
            return total

        values = ring_fold(add, held, self._axes)[:, : turns.size]
        values = jnp.zeros_like(values).at[:, points.order].set(values, unique_indices=True)
        return clear_points((values * self._phase(turns)).reshape(after.block), after, self.points)

    def _spread(self, values: Array, layout: Layout, operand: object) -> Array:
        turns = prepared(operand, self.unit, len(self.along), real_dtype(values.dtype))
        after, points, form = self.after(layout), self._sorted(turns), dataclasses.replace(self.form, chunk=1)
        mine = clear_points(values, layout, self.points).reshape(-1, turns.size) * self._phase(turns)
        mine = jnp.pad(jnp.take(mine, points.order, 1), ((0, 0), (0, turns.size)))

        def term(at: Array) -> Array:
            part = lax.dynamic_slice_in_dim(mine, points.first[at], turns.size, 1)
            return spread(part, self._of_block(points, at), form, self._block, self.slope)

        order = self._turned(after.ndim)
        sums = ring_scatter(term, self._axes).reshape([after.block[d] for d in order])
        return sums.transpose(np.argsort(order))

    def _phase(self, turns: Turns) -> Array:
        """e_j, and NaN of points that are lost."""
        parts = (
            phases.times(jnp.uint32(n), tuple(limb[j] for limb in turns.limbs)) for j, n in enumerate(self.middles)
        )
        re, im = phases.circle(functools.reduce(phases.add, parts), self.sign, turns.lost.dtype)
        return lax.complex(re + turns.lost, im)[None]

    def _sorted(self, turns: Turns) -> Sorted:
        """Where the points lie, side by side those that need the same block, and in it those of the same cell."""
        cells, offsets, at = [], [], jnp.zeros(turns.size, jnp.int32)
        for j, (size, block, parts) in enumerate(zip(self.cells, self._block, self._parts, strict=True)):
            limbs = tuple(limb[j] for limb in turns.limbs)
            lowest, offset = located(limbs, size, self.form.width, turns.lost.dtype)
            bare = block - self.form.reach + 1
            at = at * parts + lowest // bare
            cells.append(lowest % bare)
            offsets.append(offset)
        order, blocks = self._order(at, cells), math.prod(self._parts)
        first = jnp.searchsorted(at[order], jnp.arange(blocks + 1, dtype=jnp.int32)).astype(jnp.int32)
        cell, offset = (jnp.stack(part, -1)[order] for part in (cells, offsets))
        more = ((0, turns.size), (0, 0))
        return Sorted(order, jnp.pad(cell, more), jnp.pad(offset, more), first)

    def _order(self, at: Array, cells: list[Array]) -> Array:
        """Points by block, then as far as bits are left by cell: one number holds all and the point's own, as XLA sorts
        single numbers five times as fast as pairs."""
        number, block = (at.shape[0] - 1).bit_length(), (math.prod(self._parts) - 1).bit_length()
        free = 32 - number - block
        if free < 0:
            return lax.sort((at, lax.iota(jnp.int32, at.shape[0])), num_keys=1)[1]
        flat = jnp.zeros(at.shape, jnp.uint32)
        for cell, size in zip(cells, self._block, strict=True):
            flat = flat * np.uint32(size) + cell.astype(jnp.uint32)
        exact = (math.prod(self._block) - 1).bit_length()
        kept = min(exact, free)
        keys = at.astype(jnp.uint32) << np.uint32(kept) | flat >> np.uint32(exact - kept)
        packed = lax.sort(keys << np.uint32(number) | lax.iota(jnp.uint32, at.shape[0]))
        return (packed & np.uint32(2**number - 1)).astype(jnp.int32)

    def _of_block(self, points: Sorted, at: Array) -> Slots:
        """The points of one block, before others that count as none."""
        first, size = points.first[at], points.order.shape[0]
        cell, offset = (lax.dynamic_slice_in_dim(part, first, size) for part in (points.cell, points.offset))
        count = points.first[at + 1] - first
        mine = (lax.iota(jnp.int32, size) < count)[:, None]
        return Slots(jnp.where(mine, cell, -1), offset, jnp.zeros_like(cell), count)

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """The coordinates where their values are stored."""
        return operand_at(given, self.points, mapped)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return spec_at(operand, self.points)

    @property
    def linear(self) -> bool:
        """Not in coordinates that are floats."""
        return self.unit is None

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> list[Slope]:
        """d (e_j r_j) = sum over dimensions of d k_j times G e_j r'_j + (sign 2 pi i middle) e_j r_j."""
        assert isinstance(change, Array)
        values = layout if self.transposed else self.after(layout)
        turns = change if self.unit == "turns" else change / (2 * np.pi)
        turns = jnp.expand_dims(turns, tuple(range(1, 1 + values.ndim - self.points.ndim)))
        pairs: list[Slope] = []
        for j, cells in enumerate(self.cells):
            pairs.append(((), dataclasses.replace(self, slope=(*self.slope, j)), (turns[j] * cells,)))
        if any(self.middles):
            angle = sum(turns[j] * (self.sign * 2 * np.pi * n) for j, n in enumerate(self.middles))
            pairs.append(((), self, (jnp.zeros_like(turns[0]), jnp.asarray(angle))))
        return [pair[::-1] for pair in pairs] if self.transposed else pairs

    def at_slot(self, slot: int) -> "RingGrid":
        return dataclasses.replace(self, slot=slot)

    def transpose(self, layout: Layout) -> "RingGrid":
        return dataclasses.replace(self, transposed=not self.transposed)

    def conjugate(self) -> "RingGrid":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "RingGrid":
        """Of a batch dimension, which comes first on both ends."""
        assert dim == 0, "the dimensions of the grid and of the points are not the same"
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))

    def name(self, layout: Layout) -> str:
        grid = self.after(layout) if self.transposed else layout
        what = "spread" if self.transposed else "interpolate"
        return f"{what} {names(self.along, grid)} (ring, {self.form.width} cells)"
