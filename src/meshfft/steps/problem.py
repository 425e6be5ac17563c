"""The problem of a walk, and the records that steps return."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..collectives.levels import Wires, wires_of
from ..collectives.words import WORD
from ..kernels.base import Site
from ..layout.layout import Layout, Spec, hashed_once
from ..machine.chip import Chip
from ..machine.machine import Machine, Work
from ..numerics.dtypes import Dot, Precision, complex_dtype, dots_of
from ..operators.matrices import Matrix
from ..operators.transform import Transform

RINGS = ("auto", "one-way", "two-way")
ENGINE_OPTIONS = ("auto", "xla")
BY_XLA = "engine='xla'"  # the remedy where kernels fail
EFFORTS = ("model", "measure")
LARGE_BYTES = 2**19  # least bytes of a block processed in cached chunks
Ending = Callable[[Layout], tuple[Any, ...]]  # hashable; the steps after a final layout


class Options(NamedTuple):
    """The options of a transform; see `fftn`."""

    method: str = "auto"
    order: str = "natural"
    precision: Precision = None
    multiplications: int | None = None
    ring: str = "auto"
    engine: str = "auto"
    wire: str = "exact"  # one of WIRES, or a `wire_name`
    out_spec: Spec | None = None
    donate: bool = False  # of functions; plans take it in the call
    precompute: bool = False  # of plans
    effort: str = "model"  # of plans
    rank: int = 0  # how many of the model's cheapest walks are left out

    def dtype(self, given: np.dtype) -> np.dtype:
        return complex_dtype(given, self.precision)

    def dots(self, given: np.dtype, chip: Chip) -> tuple[Dot, ...]:
        return dots_of(given, self.precision, self.multiplications, chip.unit, chip.run, chip.splits)

    def wires(self, real: np.dtype, chip: Chip) -> Wires:
        """Raises ValueError as `wires_of`, or if the chip has no bits to encode."""
        wires = wires_of(self.wire, real, chip.planes)
        if chip.unit and real.itemsize > WORD and any(wire.lossy for wire in wires):
            what = f"{chip.name} devices keep float64 in two floats, whose bits no wire encodes"
            raise ValueError(f"wire {self.wire!r}: {what}: use wire='exact', or precision='float32'")
        return wires

    @property
    def within(self) -> float:
        return self.precision if isinstance(self.precision, float) else math.inf

    @property
    def planned(self) -> "Options":
        """The hashable options that a walk depends on."""
        return self._replace(out_spec=None, donate=False)

    @property
    def asked(self) -> dict[str, object]:
        return {"method": self.method, "order": self.order, "wire": self.wire}

    @property
    def words(self) -> tuple[str, str, str]:
        wires = (part.split("=") for part in self.wire.split(","))
        sent = " and ".join(f"{name} on the {''.join(f'{level} ' for level in levels)}wire" for *levels, name in wires)
        return f"method {self.method}", f"{self.order} order", sent * (self.wire != "exact")


USUAL = Options()


@hashed_once
@dataclasses.dataclass(frozen=True)
class Problem:
    start: Layout
    transform: Transform
    machine: Machine
    itemsize: int  # bytes of a complex number
    dots: tuple[Dot, ...]  # products that meet the precision
    options: Options = USUAL
    goal: Layout | None = None  # None accepts any layout with padding only at the tail
    even: bool = False  # the final layout must have no padding
    real: bool = False  # the input is real
    ending: Ending | None = None  # steps after the transform, by final layout
    instead: tuple[Any, ...] = ()  # steps that do transform and ending at once

    @functools.cached_property
    def wires(self) -> Wires:
        return self.options.wires(np.dtype(f"f{self.itemsize // 2}"), self.machine.chip)

    def bytes_at(self, todo: dict[int, Matrix]) -> int:
        return self.itemsize // (2 if self.real_at(todo) else 1)

    def real_at(self, todo: dict[int, Matrix]) -> bool:
        """Whether the array is real before `todo` is transformed."""
        for dim, matrix in zip(self.transform.dims, self.transform.matrices, strict=True):
            if matrix.becomes is not None:
                return (matrix.becomes == "complex") == (dim in todo)
        return self.real

    def todo(self, done: frozenset[int] = frozenset()) -> dict[int, Matrix]:
        pairs = zip(self.transform.dims, self.transform.matrices, strict=True)
        return {dim: matrix for dim, matrix in pairs if dim not in done}

    def large(self, layout: Layout) -> bool:
        """Whether devices share a memory and passes over so large a block dominate."""
        return self.machine.chip.cached and math.prod(layout.block) * self.itemsize >= LARGE_BYTES

    @property
    def sliced(self) -> bool:
        return self.dots[0].slices > 0

    @functools.cached_property
    def best_dots(self) -> tuple[Dot, ...]:
        """The `dots`, without any as fast as another and less accurate."""
        rate, best = self.machine.chip.product_rate, dict[int, Dot]()
        for dot in sorted(self.dots, key=lambda dot: (-rate(dot.tier), dot.error)):
            best.setdefault(dot.multiplications, dot)
        return tuple(best.values())

    @property
    def any_engine(self) -> bool:
        return self.options.engine == "auto"

    def site(self, layout: Layout) -> Site:
        large, alone = self.large(layout), math.prod(layout.parts) == 1
        return Site(self.machine, self.itemsize, self.dots, large, alone, not self.any_engine)

    def ways(self, parts: int, pairs: bool) -> tuple[bool, ...]:
        """Values of `two_way` to try. `pairs`: with a shared memory, a step is faster on two blocks at once."""
        ring = self.options.ring
        if ring != "auto" or parts == 1 or self.machine.chip.cached:
            return (parts > 1 and (ring == "two-way" or (ring == "auto" and pairs)),)
        return (False, True) if parts > 2 and self.machine.network is not None else (False,)

    @functools.cached_property
    def least_rows(self) -> dict[int, int]:
        """Rows of each matrix, in complex numbers for half spectra."""
        pairs = self.todo().items()
        return {d: m.rows if m.becomes is None else max(min(m.rows, m.columns) - 1, 1) for d, m in pairs}

    @functools.cached_property
    def points(self) -> int:
        """Lower bound on the numbers of a block."""
        sizes = (min(n, self.least_rows.get(d, n)) for d, n in enumerate(self.start.shape))
        return math.prod(sizes) // math.prod(self.start.parts)

    @functools.cached_property
    def halves(self) -> int:
        """2 if the array is real throughout."""
        return 2 if self.real and not any(matrix.becomes for matrix in self.transform.matrices) else 1

    @property
    def least_bytes(self) -> int:
        return self.points * self.itemsize // self.halves

    @functools.cached_property
    def most_bytes(self) -> int:
        """Upper bound on the bytes of a block, padding included."""
        parts, todo = math.prod(self.start.parts), self.todo()
        sizes = (max(n, todo[d].rows, todo[d].columns) if d in todo else n for d, n in enumerate(self.start.shape))
        return math.prod(size + parts for size in sizes) // parts * self.itemsize

    def bound(self, work: Work) -> float:
        """Least seconds; overlapped messages may cost nothing."""
        if self.machine.chip.overlaps:
            work = dataclasses.replace(work, sent_bytes=0, hops=0, all_to_alls=0)
        else:
            work = dataclasses.replace(work, sent_bytes=self.wires.least(work.sent_bytes))
        return self.machine.price(dataclasses.replace(work, tier=self.dots[0].tier))

    def bounds(self, flops: Mapping[int, int], work: Work) -> dict[int, float]:
        return {dim: self.bound(dataclasses.replace(work, matrix_flops=n)) for dim, n in flops.items()}


class Least(NamedTuple):
    """Lower bounds on the seconds of one kind of step."""

    move: float = math.inf  # moving mesh axes between dimensions
    strided: float = 0.0  # more if they leave or reach the last dimension
    single: bool = False  # a move is from one dimension to one other
    local: Mapping[int, float] = MappingProxyType({})  # transforming each dimension while uncut
    cut: Mapping[int, float] = MappingProxyType({})  # transforming each dimension while cut


class Numbers(NamedTuple):
    becomes: str | None = None  # of the result: "real" or "complex"; None if unchanged
    planar: bool = False  # blocks are split complex
    dots: tuple[Dot, ...] = ()  # matrix products

    def bytes_after(self, nbytes: int) -> int:
        return {"real": nbytes // 2, "complex": 2 * nbytes}.get(self.becomes or "", nbytes)


class Held(NamedTuple):
    largest: int  # numbers in the largest
    chunk: tuple[int, ...]  # shape
    scratch: int = 0  # bytes of temporaries


def ready(todo: dict[int, Matrix]) -> dict[int, Matrix]:
    """Dimensions that may be next: real-to-complex ones first, complex-to-real ones last."""
    changing = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is not None}
    others = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is None}
    last = any(matrix.becomes == "real" for matrix in changing.values())
    return others if last and others else changing or others


def in_order(some: dict[int, Matrix], rest: dict[int, Matrix]) -> bool:
    """Whether some dimensions may be transformed at once, before the rest, by the rule of `ready`."""
    now, later = ({matrix.becomes for matrix in part.values()} for part in (some, rest))
    return "complex" not in later and ("real" not in now or not later)
