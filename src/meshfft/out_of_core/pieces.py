"""Pieces: what a pass over the store reads, transforms and writes at a time, counted and as text.

A pass transforms some dimensions of an array in pieces that cut others. Host integers only. Invariant: the pieces of a
pass hold every position of the array once, where they are read and where they are written.
"""

import dataclasses
import functools
import itertools
import math
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..layout.layout import Layout, axis_sizes, dim_name
from ..numerics.units import quantity
from ..operators.transform import Transform
from ..plans.plan import Plan
from ..plans.table import WIDTH, ruled
from .budget import buffer_bytes, host_bytes, peak_bytes
from .partition import Shape, covered

HEADS = ("pass", "layout after", "pieces", "a piece", "reads", "writes", "on disk")


class Piece(NamedTuple):
    """Where a piece lies in the array that a pass reads, and where in the one that it writes."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over the store.

    Attributes:
        dims: the dimensions it transforms.
        before, after: which dimensions its pieces cut, in the array that it reads and in the one that it writes.
        dtype: the type of the numbers it reads.
        plans: a plan for each shape that pieces have, the largest first.
        chunk: what it reads is stored in chunks of this shape, each read whole by every piece that has some of it;
            None where any part of it can be read by itself.
    """

    dims: tuple[int, ...]
    before: Layout
    after: Layout
    dtype: np.dtype
    plans: tuple[Plan, ...]
    chunk: Shape | None = None

    @property
    def out_dtype(self) -> np.dtype:
        """The type of the numbers it writes."""
        return self.dtype if self.copies else self.plans[0].out_dtype

    @property
    def copies(self) -> bool:
        """Whether it transforms nothing: it reads whole chunks, so that none is read several times."""
        return not self.plans

    @functools.cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces in C order: all positions of the array, none twice."""
        return tuple(map(Piece, _boxes(self.before), _boxes(self.after)))

    def plan_of(self, piece: Piece) -> Plan:
        """The plan for a piece."""
        shape = tuple(at.stop - at.start for at in piece.source)
        return next(made for made in self.plans if made.shape == shape)

    @property
    def read_bytes(self) -> int:
        """Bytes read from the disk, whole chunks at a time."""
        return covered(self.before, self._unit) * self.dtype.itemsize

    @property
    def written_bytes(self) -> int:
        return math.prod(self.after.shape) * self.out_dtype.itemsize

    def bytes_of(self, piece: Piece) -> tuple[int, int]:
        """Bytes read and written for a piece."""
        sides = zip(piece.source, self._unit, self.before.shape, strict=True)
        there = math.prod(min(n, -(-at.stop // c) * c) - at.start // c * c for at, c, n in sides)
        back = math.prod(at.stop - at.start for at in piece.target)
        return there * self.dtype.itemsize, back * self.out_dtype.itemsize

    @property
    def piece_bytes(self) -> int:
        """Bytes read for the largest piece."""
        return math.prod(self.before.block) * self.dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk of what it reads."""
        return math.prod(self._unit) * self.dtype.itemsize

    @property
    def _unit(self) -> Shape:
        return self.chunk or (1,) * self.before.ndim

    @property
    def device_bytes(self) -> int:
        """Modelled bytes of each device at the peak."""
        return max((made.peak_bytes for made in self.plans), default=0)

    @property
    def host_bytes(self) -> int:
        """Bytes of the host's copies of the largest piece, as it comes and as one goes."""
        return max((host_bytes(made, self.dtype) for made in self.plans), default=2 * self.piece_bytes)

    @property
    def peak_bytes(self) -> int:
        """Modelled bytes of a process at the peak, where its devices share the host's memory."""
        return max((peak_bytes(made, self.dtype) for made in self.plans), default=2 * self.piece_bytes)


@dataclasses.dataclass(frozen=True)
class Passes:
    """A transform in passes; made by `passes`.

    Attributes:
        steps: the passes, first to last.
        transform: what is computed: dimensions, lengths, sign and factor.
        budget: the bytes that a process may hold; on the host alone where `device_budget` is given.
        device_budget: the bytes that each of its devices may hold, where these have memory of their own.
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
        """Modelled bytes of a process at the worst moment; those of its devices count where they share its memory."""
        apart = self.device_budget is not None
        buffers = (buffer_bytes(self.budget, step.chunk_bytes) for step in self.steps)
        held = (step.host_bytes if apart else step.peak_bytes for step in self.steps)
        return max(map(sum, zip(held, buffers, strict=True)))

    @property
    def read_bytes(self) -> int:
        return sum(step.read_bytes for step in self.steps)

    @property
    def written_bytes(self) -> int:
        return sum(step.written_bytes for step in self.steps)

    @property
    def disk_bytes(self) -> tuple[int, ...]:
        """Bytes on the disk during each pass: what it writes, and what it reads but for the source."""
        written = [step.written_bytes for step in self.steps]
        return tuple(map(sum, zip([0, *written], written, strict=False)))

    @property
    def extra_bytes(self) -> int:
        """Bytes that the disk must have free besides those of the result."""
        return max(self.disk_bytes) - self.steps[-1].written_bytes

    def identity(self) -> dict[str, Any]:
        """What two runs must have in common for pieces of both to make one result; no modelled number is in it."""
        return {
            "shape": list(self.shape),
            "kind": self.transform.name,
            "axes": list(self.transform.dims),
            "lengths": list(self.transform.lengths),
            "scale": self.transform.scale,
            "precision": self.steps[-1].plans[0].dots[0].tier,
            "mesh": axis_sizes(self.steps[-1].plans[0].mesh),
            "pass": {
                str(number): {"pieces of": list(step.before.block), "steps": [plan.name for plan in step.plans]}
                for number, step in enumerate(self.steps, 1)
            },
            "types": [self.dtype.name, *(step.out_dtype.name for step in self.steps)],
        }

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
            "device_bytes": max(step.device_bytes for step in self.steps),
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
            "extra_bytes": self.extra_bytes,
            "passes": [self._step_dict(j) for j in range(len(self.steps))],
        }

    def __str__(self) -> str:
        many = "one pass" if len(self.steps) == 1 else f"{len(self.steps)} passes"
        sizes = ", ".join(f"{k}={v}" for k, v in axis_sizes(self.steps[-1].plans[0].mesh).items()) or "none"
        head = [self._title(), f"{many} over the store, mesh {sizes}, {self._held()}"]
        sums = [quantity(n, "B") for n in (self.read_bytes, self.written_bytes, max(self.disk_bytes))]
        table = ruled([HEADS, *map(self._row, range(len(self.steps))), ("in all", "", "", "", *sums)])
        extra = quantity(self.extra_bytes, "B") if self.extra_bytes else "nothing"
        tail = f"{extra} on the disk besides the output; an interrupted run can be resumed"
        return "\n".join(textwrap.fill(line, WIDTH) for line in head) + f"\n\n{table}\n{textwrap.fill(tail, WIDTH)}"

    def __repr__(self) -> str:
        many = " + ".join(str(len(step.pieces)) for step in self.steps)
        peak = quantity(self.peak_bytes, "B")
        return f"<Passes: {self.transform.name} of {self.shape}, {many} pieces, {peak} at the peak>"

    def _title(self) -> str:
        there, back = (" x ".join(map(str, shape)) for shape in (self.shape, self.out_shape))
        turned = f" {self.dtype.name} to {back}" * ((self.shape, self.dtype) != (self.out_shape, self.out_dtype))
        return f"{self.transform.name} of {there}{turned} {self.out_dtype.name}"

    def _held(self) -> str:
        """What a process holds at the peak, of what it may."""
        words = f"{quantity(self.peak_bytes, 'B')} of {quantity(self.budget, 'B')} a process at the peak"
        if self.device_budget is None:
            return words
        device = max(step.device_bytes for step in self.steps)
        return f"{words}, {quantity(device, 'B')} of {quantity(self.device_budget, 'B')} a device"

    def _row(self, number: int) -> tuple[str, ...]:
        step = self.steps[number]
        done = frozenset(itertools.chain(*(before.dims for before in self.steps[: number + 1])))
        names = "copy" if step.copies else ", ".join(dim_name(dim, step.before.ndim) for dim in step.dims)
        sizes = (step.piece_bytes, step.read_bytes, step.written_bytes, self.disk_bytes[number])
        counts = (str(len(step.pieces)), *(quantity(n, "B") for n in sizes))
        return f"{number + 1}: {names}", step.after.label(done), *counts

    def _step_dict(self, number: int) -> dict[str, Any]:
        step = self.steps[number]
        return {
            "dimensions": list(step.dims),
            "layout": step.before.label(),
            "pieces": len(step.pieces),
            "block": list(step.before.block),
            "peak_bytes": step.peak_bytes,
            "read_bytes": step.read_bytes,
            "written_bytes": step.written_bytes,
            "disk_bytes": self.disk_bytes[number],
            "plan": None if step.copies else step.plans[0].to_dict(),
        }


def _boxes(layout: Layout) -> Iterator[tuple[slice, ...]]:
    """The logical part of every block."""
    sides = (
        [slice(int(start), int(start + count)) for start, count in zip(layout.starts(d), layout.counts(d), strict=True)]
        for d in range(layout.ndim)
    )
    return itertools.product(*sides)
