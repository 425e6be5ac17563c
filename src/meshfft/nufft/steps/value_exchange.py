"""ValueExchange: values from the devices that own their points to where the caller has them, and back.

Owners hold values in slots; a caller has them along its own dimensions, cut in any way by the same mesh axes. Every
device gathers its values for each other one, all send in one all-to-all, and every device picks its values from those
received. All pairs send as many values as the fullest pair. Both ways are gathers with tables made on the host: a
permutation is transposed by its inverse.
"""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...layout.layout import Cuts, Layout
from ...machine.chip import Chip
from ...machine.work import Move, Work
from ...numerics.split_complex import Block
from ...steps.base import Step
from ..grid.binning import radix_order
from .point_step import own_tables, table_specs

GATHER_PASSES = 4  # passes over memory that a gather of single numbers costs


class Way(NamedTuple):
    """Tables of one way, by device: an index beyond the end stands for 0."""

    send: np.ndarray | Array  # (devices, devices * most): for each receiver positions among the values here
    take: np.ndarray | Array  # (devices, values there): positions among what came


class Ways(NamedTuple):
    """Tables of both ways."""

    home: Way
    back: Way


@dataclasses.dataclass(frozen=True)
class ValueExchange(Step):
    """Brings values from slots to the caller's dimensions, or back."""

    slots: Layout  # of values in the plan's order, without batch dimensions
    points: Layout  # of values as the caller has them
    most: int  # values that a pair of devices exchanges at most
    home: bool = True
    slot: int | None = 0
    dims: ClassVar[tuple[int, ...]] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The ring of all devices that own points."""
        return self.slots.axes[0]

    def after(self, layout: Layout) -> Layout:
        rest = self._batch(layout)
        return Layout(layout.shape[:rest], layout.cuts[:rest]) + (self.points if self.home else self.slots)

    def _batch(self, layout: Layout) -> int:
        """Batch dimensions."""
        return layout.ndim - (self.slots if self.home else self.points).ndim

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        return own_tables(given, self.slots.cuts[0], mapped)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return table_specs(operand, self.axes)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Two gathers, and values that travel."""
        before, after, parts = math.prod(layout.block), math.prod(self.after(layout).block), self.slots.parts[0]
        each = self.most * math.prod(layout.block[: self._batch(layout)])
        sent = each * parts * itemsize if parts > 1 else 0
        return Work(
            memory_bytes=GATHER_PASSES * itemsize * (each * parts + after),
            sent_bytes=sent * (parts - 1) // parts,
            all_to_alls=int(parts > 1),
            moves=(Move("all-to-all", self.axes, sent, 1),) if parts > 1 else (),
            peak_bytes=itemsize * (before + after + 2 * each * parts),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return jax.tree.map(functools.partial(self._apply, layout=layout, operand=operand), block)

    def _apply(self, block: Array, layout: Layout, operand: Any) -> Array:
        way, parts = operand.home if self.home else operand.back, self.slots.parts[0]
        values = _picked(block.reshape(math.prod(block.shape[: self._batch(layout)]), -1), way.send[0])
        if parts > 1:
            values = values.reshape(values.shape[0], parts, -1)
            values = lax.all_to_all(values, self.axes, 1, 1, tiled=True).reshape(values.shape[0], -1)
            values = _picked(values, way.take[0])
        return values.reshape(self.after(layout).block)

    def transpose(self, layout: Layout) -> "ValueExchange":
        return dataclasses.replace(self, home=not self.home)

    def at_slot(self, slot: int) -> "ValueExchange":
        return dataclasses.replace(self, slot=slot)

    def insert(self, dim: int) -> "ValueExchange":
        return self

    def name(self, layout: Layout) -> str:
        return "values home" if self.home else "values to their owners"


def _picked(values: Array, at: Array) -> Array:
    """The values at some positions, 0 beyond the last."""
    return jnp.take(values, at, axis=1, mode="fill", fill_value=0)


def exchange_of(order: np.ndarray, slots: Layout, points: Layout, slot: int) -> tuple[ValueExchange, Ways]:
    """The step from slots to the points as a caller has them, and the tables of both ways.

    Args:
        order: for each point, raveled as the caller has them, its slot among those of all devices.
        slots: the layout of the slots, whose ring numbers the devices.
        points: the layout of the points as the caller has them, cut by the axes of the slots.
        slot: of the tables among the walk's operands.
    """
    parts, each, here = slots.parts[0], slots.block[0], math.prod(points.block)
    holder, place = _homes(points, slots.cuts[0])
    owner = order // each
    inside = order - owner * each
    if parts == 1:
        there, back = np.full((1, here), each, np.int32), np.full((1, each), here, np.int32)
        there[0, place], back[0, inside] = inside, place
        nothing = np.zeros((1, 0), np.int32)
        return ValueExchange(slots, points, 0, slot=slot), Ways(Way(there, nothing), Way(back, nothing))
    pair = owner * parts + holder
    counts = np.bincount(pair, minlength=parts * parts)
    most = max(int(counts.max()), 1)
    by_pair = radix_order(pair)
    rank = np.empty(len(order), np.int64)
    rank[by_pair] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    to_home = _way(owner, inside, each, holder, holder * here + place, here, rank, most, parts)
    back_to_owners = _way(holder, place, here, owner, order, each, rank, most, parts)
    return ValueExchange(slots, points, most, slot=slot), Ways(to_home, back_to_owners)


def _way(
    sender: np.ndarray,
    source: np.ndarray,
    sources: int,
    receiver: np.ndarray,
    target: np.ndarray,
    targets: int,
    rank: np.ndarray,
    most: int,
    parts: int,
) -> Way:
    """One way: value i of a pair travels at position `rank`; a target is numbered through all devices."""
    send = np.full(parts * parts * most, sources, np.int32)
    send[(sender * parts + receiver) * most + rank] = source
    take = np.full(parts * targets, parts * most, np.int32)
    take[target] = sender * most + rank
    return Way(send.reshape(parts, -1), take.reshape(parts, -1))


def _homes(points: Layout, cuts: Cuts) -> tuple[np.ndarray, np.ndarray]:
    """Of each point, raveled, the device that holds it, numbered by the ring of the slots, and its position there."""
    axes, sizes = [axis for by in points.axes for axis in by], {cut.axis: cut.parts for cut in cuts}
    ring = np.arange(math.prod(sizes.values())).reshape([cut.parts for cut in cuts])
    numbers = ring.transpose([[cut.axis for cut in cuts].index(axis) for axis in axes]).ravel()
    holder, place = np.zeros(points.shape, np.int64), np.zeros(points.shape, np.int64)
    for dim, (size, block) in enumerate(zip(points.shape, points.block, strict=True)):
        shards = np.repeat(np.arange(points.parts[dim]), points.counts(dim))
        inside = np.arange(size) - points.starts(dim)[shards]
        shape = [size if d == dim else 1 for d in range(points.ndim)]
        holder = holder * points.parts[dim] + shards.reshape(shape)
        place = place * block + inside.reshape(shape)
    return numbers[holder.ravel()], place.ravel()
