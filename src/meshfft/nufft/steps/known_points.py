"""Steps for points that the host has placed on the owners of their cells: Interpolate and ValueExchange.

    r_j = e_j sum over cells l of the window of point j of Y[l] product over dimensions of phi(l - u_j)

Interpolate: e_j = exp(-2 pi i k_j . middles) undoes the phase shift of the grid. Values are in the plan's order: as
many slots on every device, 0 in empty ones. Points may move by up to `slack` cells; beyond, their value is NaN.

ValueExchange: from slots to the caller's dimensions, by gathers before and after one all-to-all. All pairs send as many
values as the fullest pair, which may have 30 times the mean. Then two all-to-alls are cheaper: each device deals its
values out to all devices, which send them on. The transpose of a permutation is its inverse, so both directions are
gathers.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, cast

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from ...collectives.all_to_all import Came, exchange_packed
from ...kept import Trial
from ...layout.layout import Cuts, Layout
from ...machine.chip import Chip
from ...machine.machine import Machine, Move, Work
from ...numerics.split_complex import Block
from ...steps.base import Kernels
from ...steps.sends import Wired
from ..grid.binning import Tables, radix_order
from ..grid.form import Form, Slots, cost
from ..grid.gridding import kernels_of
from .point_step import PointStep, TakesTables, grid_back, grid_last, own_tables, table_specs

NEAR = 1e-4  # tolerance relative to the slack, for rounding
GATHER_PASSES = 4  # over memory, of a gather of single numbers
ValuePlace = tuple[np.ndarray, int]  # position of each value, and how many values its device has


class Moved(NamedTuple):
    """Tables of points, and their displacements in cells: (d, slots of all devices)."""

    tables: Tables[Array]
    shift: Any


@dataclasses.dataclass(frozen=True)
class Interpolate(PointStep, Kernels):
    cells: tuple[int, ...]
    middles: tuple[int, ...]
    form: Form
    most: int  # points that set the time

    def operand(self, given: Any, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        tables, *shift = given if isinstance(given, Moved) else (given,)
        tables = own_tables(tables, self.points.cuts[0], mapped)
        return Moved(tables, *shift) if shift else tables

    def operand_spec(self, operand: Any, layout: Layout) -> object:
        if isinstance(operand, Moved):
            return Moved(table_specs(operand.tables, self.axes), PartitionSpec(None, self.axes or None))
        return table_specs(operand, self.axes)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        d, coils = len(self.along), self.batch(layout)
        grid, slots = math.prod(self.grid.block), math.prod(self.points.block)
        flops, nbytes = cost(self.form, self.most, coils, itemsize)
        held = (2 * grid + slots) * coils * itemsize + slots * 8 * (d + 1)
        return Work(vector_flops=flops, memory_bytes=nbytes, peak_bytes=held)

    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        return kernels_of(self.form).trials(self.batch(layout), self.grid.block, self.form), None

    def _apply(self, block: Array, layout: Layout, operand: Tables[Array] | Moved) -> Array:
        tables, kernels = self._here(operand), kernels_of(self.form)
        slots = Slots(*tables[:4])
        if self.transposed:
            values = self._phased(block.reshape(-1, block.shape[-1]), tables)
            return grid_back(kernels.spread(values, slots, self.form, self.grid.block), self.after(layout), self.along)
        values = kernels.interpolate(grid_last(block, self.along), slots, self.form)
        return self._phased(values, tables).reshape(self.after(layout).block)

    def _here(self, operand: Tables[Array] | Moved) -> Tables[Array]:
        tables = Tables(*(leaf[0] for leaf in (operand.tables if isinstance(operand, Moved) else operand)))
        if not isinstance(operand, Moved):
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

    def _phased(self, values: Array, tables: Tables[Array]) -> Array:
        if self.sign == 0:
            return values
        phase = tables.phase if self.sign < 0 else tables.phase.conj()
        return values * phase.astype(values.dtype)[None]

    def name(self, layout: Layout) -> str:
        return self.named(layout, f"{self.form.kind}, {self.form.width} cells")


class Ways(NamedTuple):
    """Gathers of both directions, with all-to-alls between them; an index beyond the end reads 0."""

    home: tuple[np.ndarray | Array, ...]  # each (devices, values)
    back: tuple[np.ndarray | Array, ...]


@dataclasses.dataclass(frozen=True)
class ValueExchange(TakesTables, Wired):
    slots: Layout  # of values in the plan's order, without batch
    points: Layout
    most: tuple[int, ...]  # values of a pair of devices, in each all-to-all on the way home

    @property
    def axes(self) -> tuple[str, ...]:
        return self.slots.axes[0]

    def after(self, layout: Layout) -> Layout:
        rest = self._batch(layout)
        return layout.along(range(rest)) + (self.slots if self.transposed else self.points)

    def _batch(self, layout: Layout) -> int:
        return layout.ndim - (self.points if self.transposed else self.slots).ndim

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        return own_tables(given, self.slots.cuts[0], mapped)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return table_specs(operand, self.axes)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        before, after, parts = math.prod(layout.block), math.prod(self.after(layout).block), self.slots.parts[0]
        batch = math.prod(layout.block[: self._batch(layout)])
        sent = [parts * self.message_bytes((batch, most), itemsize) for most in self.most]
        return Work(
            memory_bytes=GATHER_PASSES * (sum(sent) + after * itemsize),
            sent_bytes=sum(sent) * (parts - 1) // parts,
            all_to_alls=len(sent),
            moves=tuple(Move("all-to-all", self.axes, one, 1) for one in sent),
            peak_bytes=itemsize * (before + after) + 2 * max(sent, default=0),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        one = functools.partial(self._apply, layout=layout, operand=cast(Ways, operand))
        return self.on_arrays(one, block)

    def passages(self, layout: Layout) -> float:
        return len(self.most)

    def _apply(self, block: Array, layout: Layout, operand: Ways) -> Array:
        first, *others = operand.back if self.transposed else operand.home
        values = _picked(block.reshape(math.prod(block.shape[: self._batch(layout)]), -1), first[0])
        for at in others:
            values = _picked(self.over_wire(exchange_packed)(values, self.axes, 1, 1), at[0])
        return values.reshape(self.after(layout).block)

    def insert(self, dim: int) -> "ValueExchange":
        return self

    def name(self, layout: Layout) -> str:
        twice = " (dealt out, sent on)" * (len(self.most) > 1)
        return ("values to their owners" if self.transposed else "values home") + twice


def _picked(values: Array, at: Array) -> Array:
    return jnp.take(values, at, axis=1, mode="fill", fill_value=0)


class Hop(NamedTuple):
    """An all-to-all: the number of each value within its pair of devices, and the most of a pair."""

    number: np.ndarray
    most: int

    @classmethod
    def of(cls, pair: np.ndarray) -> Self:
        return cls(_numbers(pair, pair), int(np.bincount(pair).max()))


def exchange_of(
    order: np.ndarray, before: Layout, points: Layout, slot: int, machine: Machine, itemsize: int
) -> tuple[ValueExchange, Ways]:
    """The step from slots, the last dimension of `before`, to the caller's points, and its tables.

    `order` has the slot of each point.
    """
    slots = before.along([-1])
    parts, each, here = slots.parts[0], slots.block[0], math.prod(points.block)
    if parts == 1:
        home, back = order.astype(np.int32)[None], np.full((1, each), here, np.int32)
        back[0, order] = np.arange(here, dtype=np.int32)
        return ValueExchange(slots, points, (), slot=slot), Ways((home,), (back,))
    holder, place = _homes(points, slots.cuts[0])
    owner = order // each
    start, end = (order - owner * each, each), (place, here)

    def found(path: list[np.ndarray], *hops: Hop) -> tuple[ValueExchange, Ways]:
        step = ValueExchange(slots, points, tuple(hop.most for hop in hops), slot=slot)
        return step, Ways(_way(path, hops, start, end, parts), _way(path[::-1], hops[::-1], end, start, parts))

    def price(*most: int) -> float:
        return machine.price(ValueExchange(slots, points, most).work(before, itemsize, machine.chip))

    pair = owner * parts + holder
    direct, dealt = Hop.of(pair), -(-int(np.bincount(owner).max()) // parts)
    if price(direct.most) > price(dealt, -(-here // parts)):  # the second is at least that
        turn = _numbers(owner, pair)
        middle = (turn + owner) % parts
        onward = Hop.of(middle * parts + holder)
        if price(direct.most) > price(dealt, onward.most):
            return found([owner, middle, holder], Hop(turn // parts, dealt), onward)
    return found([owner, holder], direct)


def _numbers(group: np.ndarray, key: np.ndarray) -> np.ndarray:
    """The number of each value within its group; keys sort by group, then within it."""
    counts, numbers = np.bincount(group), np.empty(len(group), np.int64)
    numbers[radix_order(key)] = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


def _way(
    path: list[np.ndarray], hops: Sequence[Hop], start: ValuePlace, end: ValuePlace, parts: int
) -> tuple[np.ndarray, ...]:
    """A table for each device that a value visits: where to find the value of each place."""
    found, put = [start], list[ValuePlace]()
    for (here, onto), (number, most) in zip(itertools.pairwise(path), hops, strict=True):
        put.append((onto * most + number, parts * most))
        found.append((here * most + number, parts * most))
    put.append(end)
    tables = []
    for device, (source, sources), (target, targets) in zip(path, found, put, strict=True):
        table = np.full(parts * targets, sources, np.int32)
        table[device * targets + target] = source
        tables.append(table.reshape(parts, -1))
    return tuple(tables)


def _homes(points: Layout, cuts: Cuts) -> tuple[np.ndarray, np.ndarray]:
    """Ring number of each point's device, and the position there."""
    axes, sizes = [axis for by in points.axes for axis in by], {cut.axis: cut.parts for cut in cuts}
    ring = np.arange(math.prod(sizes.values()), dtype=np.int32).reshape([cut.parts for cut in cuts])
    numbers = ring.transpose([[cut.axis for cut in cuts].index(axis) for axis in axes]).ravel()
    holder = place = np.zeros((), np.int32)
    for dim, (parts, block) in enumerate(zip(points.parts, points.block, strict=True)):
        shard, inside = np.divmod(np.flatnonzero(points.logical(dim)).astype(place.dtype), block)
        holder, place = np.add.outer(holder * parts, shard), np.add.outer(place * block, inside)
    return numbers[holder.ravel()], place.ravel()
