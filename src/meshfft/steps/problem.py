"""The problem of a walk: from which layout to which, which matrices along which dimensions, on what machine.

Below it, the records in which steps answer what the search and the walk ask.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..collectives.wire import EXACT, Wire
from ..kernels.engine import Site
from ..layout.layout import Layout, hashed_once
from ..machine.machine import Machine
from ..machine.work import Work
from ..numerics.dtypes import Dot
from ..operators.matrices import Matrix
from ..operators.transform import Transform

RINGS = ("auto", "one-way", "two-way")  # modes of a ring
ENGINES = ("auto", "xla")  # of local FFTs: the cheapest, or XLA's alone
LEAST_BITS = 16  # of a number on a wire
LARGE_BYTES = 2**18  # of a block that is worked on chunk by chunk in a cache: a smaller one lies in it anyway
Ending = Callable[[Layout], tuple[Any, ...]]  # hashable; the steps that follow from a final layout


@hashed_once
@dataclasses.dataclass(frozen=True)
class Problem:
    """What a walk has to do."""

    start: Layout  # in which the array comes
    transform: Transform  # the dimensions, and the matrix along each
    machine: Machine  # what prices a step
    itemsize: int  # bytes of a complex number; a real one has half as many
    dots: tuple[Dot, ...]  # the ways to multiply that the precision asked for allows
    method: str = "auto"  # a key of METHODS
    goal: Layout | None = None  # the layout wanted, or None for any whose padding, if it has some, lies at the tail
    even: bool = False  # accept only a final layout without padding
    real: bool = False  # the array comes real
    ring: str = "auto"  # the mode of rings, one of RINGS
    engine: str = "auto"  # of local FFTs, one of ENGINES
    wire: Wire = EXACT  # what numbers travel as
    ending: Ending | None = None  # what follows the transform, as the final layout has it

    def bytes_at(self, todo: dict[int, Matrix]) -> int:
        """Bytes of an element while these dimensions are still to be transformed."""
        return self.itemsize // (2 if self.real_at(todo) else 1)

    def real_at(self, todo: dict[int, Matrix]) -> bool:
        """Whether the array is real while these dimensions are still to be transformed."""
        for dim, matrix in zip(self.transform.dims, self.transform.matrices, strict=True):
            if matrix.becomes is not None:
                return (matrix.becomes == "complex") == (dim in todo)
        return self.real

    def todo(self, done: frozenset[int] = frozenset()) -> dict[int, Matrix]:
        """The dimensions still to be transformed, with their matrices."""
        pairs = zip(self.transform.dims, self.transform.matrices, strict=True)
        return {dim: matrix for dim, matrix in pairs if dim not in done}

    def large(self, layout: Layout) -> bool:
        """True where devices share a memory, and a block is so large that passes over it are what costs."""
        return self.machine.chip.cached and math.prod(layout.block) * self.itemsize >= LARGE_BYTES

    @property
    def sliced(self) -> bool:
        """True where products are made of slices of float64 (numerics/slices.py)."""
        return self.dots[0].slices > 0

    def site(self, layout: Layout) -> Site:
        """What engines ask, for a block of this layout."""
        large, alone = self.large(layout), math.prod(layout.parts) == 1
        return Site(self.machine, self.itemsize, self.dots, large, alone, self.engine == "xla")

    def ways(self, parts: int, pairs: bool) -> tuple[bool, ...]:
        """Whether blocks may travel both ways round a ring at once: as is asked, or as the machine sends best.

        `pairs` says that where devices share a memory a step is faster for two blocks than for each of them.
        """
        if self.ring != "auto" or parts == 1 or self.machine.chip.cached:
            return (parts > 1 and (self.ring == "two-way" or (self.ring == "auto" and pairs)),)
        return (False, True) if parts > 2 and self.machine.network is not None else (False,)

    @functools.cached_property
    def least_rows(self) -> dict[int, int]:
        """Of each matrix its rows; where it halves a spectrum, in complex numbers on either side."""
        pairs = self.todo().items()
        return {d: m.rows if m.becomes is None else max(min(m.rows, m.columns) - 1, 1) for d, m in pairs}

    @functools.cached_property
    def points(self) -> int:
        """Numbers of a block, at least, on every walk."""
        sizes = (min(n, self.least_rows.get(d, n)) for d, n in enumerate(self.start.shape))
        return math.prod(sizes) // math.prod(self.start.parts)

    @functools.cached_property
    def halves(self) -> int:
        """2 where the array is real from beginning to end, so that all costs half as much."""
        return 2 if self.real and not any(matrix.becomes for matrix in self.transform.matrices) else 1

    @property
    def least_bytes(self) -> int:
        """Bytes of a block, at least."""
        return self.points * self.itemsize // self.halves

    @property
    def pass_bytes(self) -> int:
        """Bytes that a local transform reads and writes, at least: a cache can do two dimensions in one pass."""
        return 2 * self.least_bytes // (2 if self.machine.chip.cached else 1)

    def bound(self, work: Work) -> float:
        """The least seconds of some work; where devices send while they compute, what travels may cost nothing."""
        if self.machine.chip.overlaps:
            work = dataclasses.replace(work, sent_bytes=0, hops=0, all_to_alls=0)
        elif self.wire.lossy:
            work = dataclasses.replace(work, sent_bytes=work.sent_bytes * LEAST_BITS // (8 * self.wire.real))
        return self.machine.price(dataclasses.replace(work, tier=self.dots[0].tier))


class Least(NamedTuple):
    """Lower bounds on the seconds of one kind of step, from which the search bounds what lies ahead."""

    move: float = math.inf  # moving mesh axes from one dimension to another
    strided: float = 0.0  # additional, if they leave or reach the last dimension
    local: Mapping[int, float] = MappingProxyType({})  # transforming each dimension while no mesh axis cuts it
    cut: Mapping[int, float] = MappingProxyType({})  # transforming each dimension while it stays cut


class Numbers(NamedTuple):
    """The numbers that a step works on."""

    becomes: str | None = None  # type of the result, "real" or "complex"; None if it is that of the block
    planar: bool = False  # blocks are split complex
    dots: tuple[Dot, ...] = ()  # matrix products

    def bytes_after(self, nbytes: int) -> int:
        """Bytes of an element of the result."""
        return {"real": nbytes // 2, "complex": 2 * nbytes}.get(self.becomes or "", nbytes)


class Held(NamedTuple):
    """The arrays that a step makes."""

    largest: int  # numbers in the largest
    chunk: tuple[int, ...]  # shape
    scratch: int = 0  # bytes of temporaries


def ready(todo: dict[int, Matrix]) -> dict[int, Matrix]:
    """The dimensions that may come next: real lines become complex first, and complex ones real last."""
    changing = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is not None}
    others = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is None}
    last = any(matrix.becomes == "real" for matrix in changing.values())
    return others if last and others else changing or others
