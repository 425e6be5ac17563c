"""Tiles: what a pass over the disk reads, transforms and writes at a time, counted and as text.

A pass transforms some dimensions of an array in tiles that cut others. Host integers only. Invariant: the tiles of a
pass hold every position of the array once, where they are read and where they are written.
"""

import dataclasses
import functools
import math
import textwrap
from typing import Any, NamedTuple

import numpy as np

from ..io.grid import Box
from ..layout.layout import AnyMesh, Layout, axis_sizes, dim_name
from ..numerics.units import quantity
from ..operators.transform import Transform
from ..plans.plan import Plan
from ..plans.table import WIDTH, ruled
from .partition import Shape, boxes_of, buffer_bytes, covered, held_bytes

HEADS = ("pass", "layout after", "tiles", "a tile", "reads", "writes", "on disk")


class Tile(NamedTuple):
    """Where a tile lies in the array that a pass reads, and where in the one that it writes."""

    source: Box
    target: Box


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over the disk.

    Attributes:
        dims: the dimensions it transforms.
        before: which dimensions its tiles cut in the array that it reads.
        dtype: the type of the numbers it reads.
        plans: a plan for each shape that tiles have, the largest first; none where it only copies, so that each chunk
            of the source is read once.
        chunk: what it reads is stored in chunks of this shape, each read whole by every tile that has some of it; all
            ones where any part of it can be read by itself.
    """

    dims: tuple[int, ...]
    before: Layout
    dtype: np.dtype
    plans: tuple[Plan, ...]
    chunk: Shape

    @functools.cached_property
    def after(self) -> Layout:
        """Which dimensions its tiles cut in the array that it writes."""
        layout = self.before
        for dim in self.dims:
            layout = layout.resize(dim, self.plans[0].out_shape[dim])
        return layout

    @property
    def out_dtype(self) -> np.dtype:
        """The type of the numbers it writes."""
        return self.plans[0].out_dtype if self.plans else self.dtype

    @functools.cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """The tiles in C order: all positions of the array, none twice."""
        return tuple(map(Tile, boxes_of(self.before), boxes_of(self.after)))

    def plan_of(self, tile: Tile) -> Plan | None:
        """The plan for a tile; None where it is only copied."""
        shape = tuple(at.stop - at.start for at in tile.source)
        return next(plan for plan in self.plans if plan.shape == shape) if self.plans else None

    @property
    def read_bytes(self) -> int:
        """Bytes read from the disk, whole chunks at a time."""
        return covered(self.before, self.chunk) * self.dtype.itemsize

    @property
    def written_bytes(self) -> int:
        return math.prod(self.after.shape) * self.out_dtype.itemsize

    def bytes_of(self, tile: Tile) -> tuple[int, int]:
        """Bytes read and written for a tile."""
        sides = zip(tile.source, self.chunk, self.before.shape, strict=True)
        read = math.prod(min(n, -(-at.stop // c) * c) - at.start // c * c for at, c, n in sides)
        written = math.prod(at.stop - at.start for at in tile.target)
        return read * self.dtype.itemsize, written * self.out_dtype.itemsize

    @property
    def tile_bytes(self) -> int:
        """Bytes of the largest tile as it is stored."""
        return math.prod(self.before.block) * self.dtype.itemsize

    def held_bytes(self, shared: bool) -> int:
        """Modelled bytes of a process at the peak: the host's copies, and its devices where these share memory."""
        return max((held_bytes(plan, self.dtype, shared) for plan in self.plans), default=2 * self.tile_bytes)


@dataclasses.dataclass(frozen=True, repr=False)
class Passes:
    """A transform in passes; made by `passes`.

    Attributes:
        steps: the passes, first to last.
        transform: what is computed: dimensions, lengths, sign and factor.
        budget: the bytes that a process may hold; on the host alone where
            `device_budget` is given.
        device_budget: the bytes that each of its devices may hold, where these
            have memory of their own.

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
        """Modelled bytes of a process at the worst moment; those of its
        devices count where they share its memory.
        """
        shared = self.device_budget is None
        chunks = (math.prod(step.chunk) * step.dtype.itemsize for step in self.steps)
        buffers = (buffer_bytes(self.budget, nbytes) for nbytes in chunks)
        return max(step.held_bytes(shared) + nbytes for step, nbytes in zip(self.steps, buffers, strict=True))

    @property
    def device_bytes(self) -> int:
        """Modelled bytes of each device at the worst moment."""
        return max(plan.peak_bytes for step in self.steps for plan in step.plans)

    @property
    def read_bytes(self) -> int:
        return sum(step.read_bytes for step in self.steps)

    @property
    def written_bytes(self) -> int:
        return sum(step.written_bytes for step in self.steps)

    @property
    def disk_bytes(self) -> tuple[int, ...]:
        """Bytes on the disk during each pass: what it writes, and what it
        reads but for the source.
        """
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
        return {
            "shape": list(self.shape),
            "out_shape": list(self.out_shape),
            "kind": self.transform.name,
            "dtype": self.dtype.name,
            "out_dtype": self.out_dtype.name,
            "budget": self.budget,
            "device_budget": self.device_budget,
            "peak_bytes": self.peak_bytes,
            "device_bytes": self.device_bytes,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "extra_bytes": self.extra_bytes,
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
        tail = f"{extra} on the disk besides the output; an interrupted run can be resumed"
        return "\n".join(
            (*(textwrap.fill(line, WIDTH) for line in head), "", self._table(), textwrap.fill(tail, WIDTH))
        )

    def __repr__(self) -> str:
        many = " + ".join(str(len(step.tiles)) for step in self.steps)
        peak = quantity(self.peak_bytes, "B")
        return f"<Passes: {self.transform.name} of {self.shape}, {many} tiles, {peak} at the peak>"

    def _table(self) -> str:
        """A row for each pass, and the sums."""
        rows, done = list[tuple[str, ...]]([HEADS]), frozenset[int]()
        for number, (step, disk) in enumerate(zip(self.steps, self.disk_bytes, strict=True), 1):
            done = done.union(step.dims)
            names = ", ".join(dim_name(dim, step.before.ndim) for dim in step.dims) if step.plans else "copy"
            sizes = (quantity(n, "B") for n in (step.tile_bytes, step.read_bytes, step.written_bytes, disk))
            rows.append((f"{number}: {names}", step.after.label(done), str(len(step.tiles)), *sizes))
        sums = (quantity(n, "B") for n in (self.read_bytes, self.written_bytes, max(self.disk_bytes)))
        return ruled([*rows, ("in all", "", "", "", *sums)])
