"""Blocks: which positions of the array each device holds in a layout, and what it is given by whom between two.

    held(layout, device)            = positions [start, stop) of each dimension, padding left out
    received(before, after, device) = held(before, giver) meets held(after, device), for every giver

Both follow from the cuts of the layouts alone; no step is asked what it does. Devices are coordinates along the mesh
axes, and numbered in the order of the mesh.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from meshfft.layout.layout import Layout

Device = tuple[int, ...]  # coordinates along the mesh axes, in their order
Sizes = Mapping[str, int]


class Box(NamedTuple):
    """Positions [start, stop) along each dimension."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many along each dimension."""
        return tuple(max(stop - start, 0) for start, stop in zip(self.starts, self.stops, strict=True))

    @property
    def points(self) -> int:
        """How many in all."""
        return math.prod(self.lengths)

    def meet(self, other: "Box") -> "Box":
        """The positions that are in both."""
        starts, stops = tuple(map(max, self.starts, other.starts)), tuple(map(min, self.stops, other.stops))
        return Box(starts, tuple(map(max, starts, stops)))


class Piece(NamedTuple):
    """What one device gives another."""

    giver: Device
    box: Box


def count_of(sizes: Sizes) -> int:
    """How many devices a mesh has."""
    return math.prod(sizes.values())


def number(device: Device, sizes: Sizes) -> int:
    """A device's place in the mesh."""
    return int(np.ravel_multi_index(device, tuple(sizes.values()))) if sizes else 0


def held(layout: Layout, device: Device, sizes: Sizes) -> Box:
    """The positions a device holds; none along a dimension of which it has padding only."""
    at = dict(zip(sizes, device, strict=True))
    return box_of(layout, [_shard(layout, dim, at) for dim in range(layout.ndim)])


def box_of(layout: Layout, shards: Sequence[int]) -> Box:
    """The positions of one shard of each dimension."""
    starts = tuple(int(layout.starts(dim)[shard]) for dim, shard in enumerate(shards))
    counts = (int(layout.counts(dim)[shard]) for dim, shard in enumerate(shards))
    return Box(starts, tuple(start + count for start, count in zip(starts, counts, strict=True)))


def owner(layout: Layout, shards: Sequence[int], sizes: Sizes) -> Device:
    """The device that holds one shard of each dimension; where mesh axes are idle, the first of those that do."""
    at: dict[str, int] = {}
    for cuts, shard in zip(layout.cuts, shards, strict=True):
        indices = np.unravel_index(shard, tuple(cut.parts for cut in cuts)) if cuts else ()
        at |= {cut.axis: int(index) for cut, index in zip(cuts, indices, strict=True)}
    return tuple(at.get(axis, 0) for axis in sizes)


def ring(axes: Sequence[str], device: Device, sizes: Sizes) -> list[Device]:
    """The devices that differ from this one along some axes, in ring order from this one on; the last axis fastest."""
    names, counts = list(sizes), [sizes[axis] for axis in axes]
    first = int(np.ravel_multi_index([device[names.index(axis)] for axis in axes], counts)) if axes else 0
    found = []
    for place in range(math.prod(counts)):
        index = np.unravel_index((first + place) % math.prod(counts), counts) if axes else ()
        there = dict(zip(axes, map(int, index), strict=True))
        found.append(tuple(there.get(axis, at) for axis, at in zip(names, device, strict=True)))
    return found


def moved(before: Layout, after: Layout) -> tuple[str, ...]:
    """The mesh axes that cut another dimension than before."""
    then, now = ({axis: dim for dim, axes in enumerate(one.axes) for axis in axes} for one in (before, after))
    return tuple(axis for axis in then if now.get(axis) != then[axis])


def received(before: Layout, after: Layout, device: Device, sizes: Sizes) -> list[Piece]:
    """What a device holds afterwards, by who held it before; its own part first, then in ring order."""
    mine = held(after, device, sizes)
    pieces = (
        Piece(giver, held(before, giver, sizes).meet(mine)) for giver in ring(moved(before, after), device, sizes)
    )
    return [piece for piece in pieces if piece.box.points]


def outside(layout: Layout, dims: Sequence[int]) -> list[tuple[int, ...]]:
    """The shards at the front of some dimensions: those first along at least one of them, and along all others.

    Along a single dimension or two, everything lies in the front.
    """
    ranges = [range(layout.parts[dim] if dim in dims else 1) for dim in range(layout.ndim)]
    shards = itertools.product(*ranges)
    return [at for at in shards if len(dims) < 3 or any(at[dim] == 0 for dim in dims)]


def _shard(layout: Layout, dim: int, at: Mapping[str, int]) -> int:
    """Which shard of a dimension the device with these coordinates holds."""
    cuts = layout.cuts[dim]
    return int(np.ravel_multi_index([at[cut.axis] for cut in cuts], [cut.parts for cut in cuts])) if cuts else 0
