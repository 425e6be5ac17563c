"""Route: values from the devices that own their points to where the caller has them, and back.

Owners hold values in slots, a caller along dimensions of its own, cut as it likes by the same mesh axes. Every device
gathers what it has for each other one, all send in one all-to-all, and every device picks its values from what came.
All pairs send as many values as the fullest pair has. Both ways are gathers with tables made on the host: a permutation
is transposed by its inverse.
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

from ...layout.layout import Cuts, Layout
from ...layout.placement import own
from ...machine.chip import Chip
from ...machine.work import Move, Work
from ...numerics.split_complex import Block
from ...steps.base import Step

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
class Route(Step):
    """Brings values from slots to the caller's dimensions, or back."""

    slots: int  # of all devices
    cuts: Cuts  # of the slots
    points: Layout  # of the values as the caller has them
    most: int  # values that a pair of devices exchanges at the most
    home: bool = True
    at: int = 0
    dims: ClassVar[tuple[int, ...]] = ()

    @property
    def slot(self) -> int:
        return self.at

    @property
    def axes(self) -> tuple[str, ...]:
        """The ring of all devices that own points."""
        return tuple(cut.axis for cut in self.cuts)

    def after(self, layout: Layout) -> Layout:
        rest = layout.ndim - (1 if self.home else self.points.ndim)
        last = self.points if self.home else Layout((self.slots,), (self.cuts,))
        return Layout(layout.shape[:rest], layout.cuts[:rest]) + last

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        return jax.tree.map(lambda leaf: own(leaf, 0, self.cuts, mapped), given)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return jax.tree.map(lambda leaf: PartitionSpec(self.axes) if self.axes else PartitionSpec(), operand)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Two gathers, and values that travel."""
        before, after, parts = math.prod(layout.block), math.prod(self.after(layout).block), self._parts
        each = self.most * math.prod(layout.block[: layout.ndim - (1 if self.home else self.points.ndim)])
        sent = each * parts * itemsize if parts > 1 else 0
        return Work(
            memory_bytes=GATHER_PASSES * itemsize * (each * parts + after),
            sent_bytes=sent * (parts - 1) // parts,
            all_to_alls=int(parts > 1),
            moves=(Move("all-to-all", self.axes, sent, 1),) if parts > 1 else (),
            peak_bytes=itemsize * (before + after + 2 * each * parts),
        )

    @property
    def _parts(self) -> int:
        return math.prod(cut.parts for cut in self.cuts)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return jax.tree.map(functools.partial(self._apply, layout=layout, operand=operand), block)

    def _apply(self, block: Array, layout: Layout, operand: Any) -> Array:
        way = operand.home if self.home else operand.back
        after = self.after(layout).block
        lead = block.shape[: layout.ndim - (1 if self.home else self.points.ndim)]
        values = _picked(block.reshape(math.prod(lead), -1), way.send[0])
        if self._parts > 1:
            values = values.reshape(values.shape[0], self._parts, -1)
            values = lax.all_to_all(values, self.axes, 1, 1, tiled=True).reshape(values.shape[0], -1)
            values = _picked(values, way.take[0])
        return values.reshape(after)

    def transpose(self, layout: Layout) -> "Route":
        return dataclasses.replace(self, home=not self.home)

    def at_slot(self, slot: int) -> "Route":
        return dataclasses.replace(self, at=slot)

    def insert(self, dim: int) -> "Route":
        return self

    def name(self, layout: Layout) -> str:
        return "values home" if self.home else "values to their owners"


def _picked(values: Array, at: Array) -> Array:
    """The values at some positions, 0 beyond the last."""
    return jnp.take(values, at, axis=1, mode="fill", fill_value=0)


def ways(order: np.ndarray, slots: int, points: Layout, cuts: Cuts) -> tuple[Ways, int]:
    """The tables of both ways, and how many values the fullest pair exchanges.

    Args:
        order: for each point, raveled as the caller has them, its slot among those of all devices.
        slots: of each device.
        points: the layout of the points as the caller has them, cut by the axes of the slots.
        cuts: of the slots, whose ring numbers the devices.
    """
    parts, here = math.prod(cut.parts for cut in cuts), math.prod(points.block)
    holder, place = _homes(points, cuts)
    owner = order // slots
    slot = order - owner * slots
    if parts == 1:
        there, back = np.full((1, here), slots, np.int32), np.full((1, slots), here, np.int32)
        there[0, place], back[0, slot] = slot, place
        nothing = np.zeros((1, 0), np.int32)
        return Ways(Way(there, nothing), Way(back, nothing)), 0
    pair = owner * parts + holder
    counts = np.bincount(pair, minlength=parts * parts)
    most = max(int(counts.max()), 1)
    by_pair = _sorted(pair)
    rank = np.empty(len(order), np.int64)
    rank[by_pair] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    to_home = _way(owner, slot, slots, holder, holder * here + place, here, rank, most, parts)
    return Ways(to_home, _way(holder, place, here, owner, order, slots, rank, most, parts)), most


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


def _sorted(keys: np.ndarray) -> np.ndarray:
    """The order of small integers, by the radix sort that NumPy has of 16 bits."""
    return np.argsort(keys.astype(np.uint16) if keys.max(initial=0) < 2**16 else keys, kind="stable")
