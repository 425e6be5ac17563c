"""Cases: a task, which all baselines share, and a library with its options; plain values that a file can hold."""

import math
from typing import NamedTuple

from meshfft.layout.layout import AXES

from ..rows import Values


class Task(NamedTuple):
    shape: tuple[int, ...]
    dtype: str = "complex64"
    kind: str = "fft"


class Case(NamedTuple):
    """One way to do a task; order and ring are meshfft's."""

    task: Task
    library: str  # meshfft, or a baseline by its name in the table
    mesh: tuple[int, ...] = ()  # devices, or MPI ranks, along axes; axis i cuts dimension i; empty for one
    method: str = ""  # meshfft's, or what distinguishes two cases of a baseline
    order: str = ""
    ring: str = ""

    @property
    def spec(self) -> tuple[str | None, ...]:
        return tuple(AXES[: len(self.mesh)]) + (None,) * (len(self.task.shape) - len(self.mesh)) if self.mesh else ()

    @property
    def devices(self) -> int:
        return math.prod(self.mesh)

    def to_dict(self) -> Values:
        own: Values = self._asdict()
        return {"library": self.library, **own.pop("task")._asdict(), **own, "spec": self.spec, "devices": self.devices}


def balanced(count: int, parts: int) -> tuple[int, ...]:
    """A number as a product of `parts` nearly equal factors, in rising order."""
    if parts == 1:
        return (count,)
    first = max(f for f in range(1, count + 1) if count % f == 0 and f**parts <= count)
    return (first, *balanced(count // first, parts - 1))


def usual_meshes(count: int, ndim: int) -> list[tuple[int, ...]]:
    """Slab, pencil and block of so many devices, as far as they differ and the array has dimensions for them."""
    found = (balanced(count, parts) for parts in range(1, min(ndim, 3) + 1))
    return [mesh for mesh in found if min(mesh) > 1] or [(count,)]
