"""Cases: what is computed, and how and by whom; plain values, so that they go to a file and back.

task    shape, type, kind, and samples where they are not the uniform ones: what all baselines share
case    a task, a baseline, and its way: mesh, spec, method, order, precision
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from meshfft.layout.layout import AXES

Entry = None | str | tuple[str, ...]
POINTS = "points"  # what baselines call a transform of nonuniform points


class Task(NamedTuple):
    """What is computed.

    Attributes:
        shape: of the input.
        dtype: of the input.
        kind: one of meshfft's kinds.
        samples: of random points, so many along each dimension; none where the points are the uniform ones.
    """

    shape: tuple[int, ...]
    dtype: str = "complex64"
    kind: str = "fft"
    samples: tuple[int, ...] = ()

    @property
    def what(self) -> str:
        """The kind, or POINTS."""
        return POINTS if self.samples else self.kind


class Layout(NamedTuple):
    """Mesh sizes along AXES, and the mesh axes that cut each dimension."""

    mesh: tuple[int, ...]
    spec: tuple[Entry, ...]

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        return math.prod(self.mesh)


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to do a task.

    Attributes:
        library: meshfft, or a baseline by its name in the table.
        shape, dtype, kind, samples: as Task.
        mesh: devices, or MPI ranks, along mesh axes; none for one device.
        spec: the mesh axes that cut each dimension.
        method: meshfft's, or what distinguishes two cases of a baseline.
        order: meshfft's.
        precision: meshfft's.
        ring: meshfft's.
    """

    library: str
    shape: tuple[int, ...]
    dtype: str = "complex64"
    kind: str = "fft"
    samples: tuple[int, ...] = ()
    mesh: tuple[int, ...] = ()
    spec: tuple[Entry, ...] = ()
    method: str = ""
    order: str = ""
    precision: str = ""
    ring: str = ""

    @property
    def task(self) -> Task:
        """What it computes."""
        return Task(self.shape, self.dtype, self.kind, self.samples)

    @property
    def layout(self) -> Layout:
        """Where its input lies."""
        return Layout(self.mesh, self.spec)

    @property
    def devices(self) -> int:
        """Devices or ranks."""
        return math.prod(self.mesh)

    @property
    def name(self) -> str:
        """Who, and which way."""
        precision = "" if self.precision == "default" else self.precision
        return " ".join(filter(None, (self.library, self.method, self.ring, self.order, precision)))

    def to_dict(self) -> dict[str, Any]:
        """The case as plain values, and its number of devices."""
        return {**dataclasses.asdict(self), "devices": self.devices}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Case":
        """The case among the values of a row."""
        values = {"library": values.get("peer"), **values}  # as rows called it before
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: _frozen(values[name]) for name in names if name in values})


def case_of(task: Task, baseline: str, layout: Layout | None = None, **way: Any) -> Case:
    """A way of a baseline to do a task."""
    mesh, spec = layout or Layout((), ())
    return Case(baseline, *task, mesh=mesh, spec=spec, **way)


def layout_of(mesh: Sequence[int], ndim: int) -> Layout:
    """Mesh axis i cuts dimension i."""
    return Layout(tuple(mesh), tuple(AXES[: len(mesh)]) + (None,) * (ndim - len(mesh)))


def balanced(count: int, parts: int) -> tuple[int, ...]:
    """A number as so many factors, as near to each other as they can be, in rising order."""
    if parts == 1:
        return (count,)
    first = max(f for f in range(1, count + 1) if count % f == 0 and f**parts <= count)
    return (first, *balanced(count // first, parts - 1))


def usual_meshes(count: int, ndim: int) -> list[tuple[int, ...]]:
    """Slab, pencil and block of so many devices, as far as they differ and the array has dimensions for them."""
    found = (balanced(count, parts) for parts in range(1, min(ndim, 3) + 1))
    return [mesh for mesh in found if min(mesh) > 1] or [(count,)]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
