"""Tiles, which a pass reads, transforms and writes one at a time: their bytes, and a table.

    bytes of a process = incoming tile + outgoing tile + devices x Plan.peak_bytes + 3 transfers in + 3 out

Invariant: the tiles of a pass cover every position of its input and of its output once.
"""

import bisect
import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..io.grid import Box, boxes_of, shape_of
from ..layout.layout import AnyMesh, Layout, axis_sizes, dim_name
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import Shape
from ..numerics.units import quantity
from ..operators.transform import Transform
from ..plans.plan import Plan
from ..plans.table import filled, ruled

TRANSFER_BYTES = 2**25  # larger transfers are no faster
COPIED = 3  # times that a source is read in place of read, written and read as a copy
HEADS = ("pass", "layout after", "tiles", "a tile", "reads", "writes", "on disk")


def transfer_bytes(budget: int) -> int:
    return min(budget // 16, TRANSFER_BYTES)


def buffer_bytes(budget: int, chunk_bytes: int = 1) -> int:
    """Bytes of buffers: a transfer (at least one chunk) held three times, in a tile, in chunks and as file bytes."""
    return min(3 * budget // 8, 6 * TRANSFER_BYTES) + 3 * max(0, chunk_bytes - transfer_bytes(budget))


def budget_for(held: int, chunk_bytes: int) -> int:
    """The least budget that has room for tiles of so many bytes and for the buffers."""
    most = 2 * (held + 3 * chunk_bytes) + 16
    return bisect.bisect_left(range(most), True, key=lambda budget: held + buffer_bytes(budget, chunk_bytes) <= budget)


def given_dtype(plan: Plan, dtype: np.dtype) -> np.dtype:
    """Type of a plan's input for stored numbers: real if they are."""
    return plan.in_dtype if dtype.kind == "c" else real_dtype(plan.dtype)


def held_bytes(plan: Plan, dtype: np.dtype, shared: bool) -> int:
    """Host bytes for tiles stored as `dtype`, plus the devices' peaks if `shared`.

    The incoming tile may be converted while the last one is being written.
    """
    given = given_dtype(plan, dtype)
    comes = math.prod(plan.shape) * (dtype.itemsize + (given.itemsize if given != dtype else 0))
    devices = math.prod(axis_sizes(plan.mesh).values()) if shared else 0
    return comes + math.prod(plan.out_shape) * plan.out_dtype.itemsize + devices * plan.peak_bytes


def covered(layout: Layout, chunk: Shape) -> int:
    """Positions read if every block is read in whole chunks: a chunk in two blocks counts twice."""
    sides = []
    for dim, (size, side) in enumerate(zip(layout.shape, chunk, strict=True)):
        firsts = layout.starts(dim)
        ends = np.minimum(size, -(-(firsts + layout.counts(dim)) // side) * side)
        sides.append(int((ends - firsts // side * side).sum()))
    return math.prod(sides)


def runs(layout: Layout, *, fortran: bool = False) -> int:
    """Contiguous runs on disk of all blocks of an array."""
    order = slice(None, None, -1 if fortran else 1)
    shape, parts = layout.shape[order], layout.parts[order]
    last = max((d for d, count in enumerate(parts) if count > 1), default=None)
    return 1 if last is None else math.prod(shape[:last]) * parts[last]


class Tile(NamedTuple):
    source: Box
    target: Box


@dataclasses.dataclass(frozen=True)
class Pass:
    dims: tuple[int, ...]
    before: Layout
    dtype: np.dtype
    plans: tuple[Plan, ...]  # one for each shape of tiles, the largest first; none for a copy
    chunk: Shape  # of the input, read whole; all ones if any part can be read alone

    @functools.cached_property
    def after(self) -> Layout:
        layout = self.before
        for dim in self.dims:
            layout = layout.resize(dim, self.plans[0].out_shape[dim])
        return layout

    @property
    def out_dtype(self) -> np.dtype:
        return self.plans[0].out_dtype if self.plans else self.dtype

    @functools.cached_property
    def tiles(self) -> tuple[Tile, ...]:
        return tuple(map(Tile, boxes_of(self.before), boxes_of(self.after)))

    def plan_of(self, tile: Tile) -> Plan | None:
        return next(plan for plan in self.plans if plan.shape == shape_of(tile.source)) if self.plans else None

    @property
    def read_bytes(self) -> int:
        return covered(self.before, self.chunk) * self.dtype.itemsize

    @property
    def written_bytes(self) -> int:
        return math.prod(self.after.shape) * self.out_dtype.itemsize

    def bytes_of(self, tile: Tile) -> tuple[int, int]:
        sides = zip(tile.source, self.chunk, self.before.shape, strict=True)
        read = math.prod(min(n, -(-at.stop // c) * c) - at.start // c * c for at, c, n in sides)
        return read * self.dtype.itemsize, math.prod(shape_of(tile.target)) * self.out_dtype.itemsize

    @property
    def tile_bytes(self) -> int:
        return math.prod(self.before.block) * self.dtype.itemsize

    def held_bytes(self, shared: bool) -> int:
        return max((held_bytes(plan, self.dtype, shared) for plan in self.plans), default=2 * self.tile_bytes)


@dataclasses.dataclass(frozen=True, repr=False)
class Passes:
    """A transform in passes; made by `passes`.

    Attributes:
        steps: the passes, first to last.
        transform: dimensions, lengths, sign and factor.
        budget: the bytes that a process may hold; on the host alone if
            `device_budget` is given.
        device_budget: the bytes that each of its devices may hold, if these
            have separate memory.

    >>> made = mf.passes((64, 64, 64), budget=2**28)
    >>> len(made.steps), made.read_bytes
    (1, 2097152)
    """

    steps: tuple[Pass, ...]
    transform: Transform
    budget: int
    device_budget: int | None = None

    @property
    def shape(self) -> Shape:
        """Logical shape of the input."""
        return self.steps[0].before.shape

    @property
    def out_shape(self) -> Shape:
        """Logical shape of the result."""
        return self.steps[-1].after.shape

    @property
    def dtype(self) -> np.dtype:
        """The type of the input."""
        return self.steps[0].dtype

    @property
    def out_dtype(self) -> np.dtype:
        """The type of the result."""
        return self.steps[-1].out_dtype

    @property
    def peak_bytes(self) -> int:
        """Modelled peak bytes of what `budget` bounds."""
        shared = self.device_budget is None
        chunks = (math.prod(step.chunk) * step.dtype.itemsize for step in self.steps)
        buffers = (buffer_bytes(self.budget, nbytes) for nbytes in chunks)
        return max(step.held_bytes(shared) + nbytes for step, nbytes in zip(self.steps, buffers, strict=True))

    @property
    def device_bytes(self) -> int:
        """Modelled peak bytes of each device."""
        return max(plan.peak_bytes for step in self.steps for plan in step.plans)

    @property
    def read_bytes(self) -> int:
        return sum(step.read_bytes for step in self.steps)

    @property
    def written_bytes(self) -> int:
        return sum(step.written_bytes for step in self.steps)

    @property
    def disk_bytes(self) -> tuple[int, ...]:
        """Bytes on the disk during each pass, besides those of the source."""
        written = [step.written_bytes for step in self.steps]
        return tuple(map(sum, zip([0, *written], written, strict=False)))

    @property
    def extra_bytes(self) -> int:
        """Bytes that the disk must have free besides those of the result."""
        return max(self.disk_bytes) - self.steps[-1].written_bytes

    @property
    def mesh(self) -> AnyMesh | None:
        """The mesh that every tile is transformed on."""
        return self.steps[-1].plans[0].mesh

    def to_dict(self) -> dict[str, Any]:
        """The passes as plain values, for JSON."""
        names = ("budget", "device_budget", "peak_bytes", "device_bytes", "read_bytes", "written_bytes", "extra_bytes")
        return {
            "shape": list(self.shape),
            "out_shape": list(self.out_shape),
            "kind": self.transform.name,
            "dtype": self.dtype.name,
            "out_dtype": self.out_dtype.name,
            **{name: getattr(self, name) for name in names},
            "passes": [
                {
                    "dimensions": list(step.dims),
                    "layout": step.before.label(),
                    "tiles": len(step.tiles),
                    "block": list(step.before.block),
                    "peak_bytes": step.held_bytes(shared=True),
                    "read_bytes": step.read_bytes,
                    "written_bytes": step.written_bytes,
                    "disk_bytes": disk,
                    "plan": step.plans[0].to_dict() if step.plans else None,
                }
                for step, disk in zip(self.steps, self.disk_bytes, strict=True)
            ],
        }

    def __str__(self) -> str:
        there, back = (" x ".join(map(str, shape)) for shape in (self.shape, self.out_shape))
        changed = f" {self.dtype.name} to {back}" * ((self.shape, self.dtype) != (self.out_shape, self.out_dtype))
        title = f"{self.transform.name} of {there}{changed} {self.out_dtype.name}"
        many = "one pass" if len(self.steps) == 1 else f"{len(self.steps)} passes"
        mesh = ", ".join(f"{name}={size}" for name, size in axis_sizes(self.mesh).items()) or "none"
        held = f"{quantity(self.peak_bytes, 'B')} of {quantity(self.budget, 'B')} a process at the peak"
        if self.device_budget is not None:
            held += f", {quantity(self.device_bytes, 'B')} of {quantity(self.device_budget, 'B')} a device"
        head = (title, f"{many} over the disk, mesh {mesh}, {held}")
        extra = quantity(self.extra_bytes, "B") if self.extra_bytes else "nothing"
        tail = [f"{extra} on the disk besides the output; an interrupted run can be resumed", *self._advice()]
        return "\n".join((*map(filled, head), "", self._table(), *map(filled, tail)))

    def _advice(self) -> Iterator[str]:
        """The budget that has room to copy the source first, which moves as many bytes as reading it three times."""
        first, chunk_bytes = self.steps[0], math.prod(self.steps[0].chunk) * self.dtype.itemsize
        times = first.read_bytes / (math.prod(self.shape) * self.dtype.itemsize)
        if times > COPIED:
            enough = quantity(1.01 * budget_for(2 * chunk_bytes, chunk_bytes), "B")  # three digits must not round down
            why = f"the source is read {times:.0f} times, as its chunks are large"
            yield f"{why}: at most {COPIED} with {enough} a process"

    def __repr__(self) -> str:
        many = " + ".join(str(len(step.tiles)) for step in self.steps)
        peak = quantity(self.peak_bytes, "B")
        return f"<Passes: {self.transform.name} of {self.shape}, {many} tiles, {peak} at the peak>"

    def _table(self) -> str:
        rows, done = list[tuple[str, ...]]([HEADS]), frozenset[int]()
        for number, (step, disk) in enumerate(zip(self.steps, self.disk_bytes, strict=True), 1):
            done = done.union(step.dims)
            names = ", ".join(dim_name(dim, step.before.ndim) for dim in step.dims) if step.plans else "copy"
            sizes = (quantity(n, "B") for n in (step.tile_bytes, step.read_bytes, step.written_bytes, disk))
            rows.append((f"{number}: {names}", step.after.label(done), str(len(step.tiles)), *sizes))
        sums = (quantity(n, "B") for n in (self.read_bytes, self.written_bytes, max(self.disk_bytes)))
        return ruled([*rows, ("in all", "", "", "", *sums)])
