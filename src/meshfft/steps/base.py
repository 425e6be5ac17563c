"""The contract of a step, the problem that steps are offered for, and a few lines that steps share.

    search     offers, least, dims, after, work, becomes
    fusion     sent, in_chunks, taken, joined, fuse
    walk       transpose, conjugate, invert, insert, error, planar, held, scratch, name
    executor   apply; of a step that takes an operand: slot, operand, operand_spec, tabled, linear, slopes

A new step is a file with a subclass of Step, and a place in METHODS (walks/candidates.py) if a search is to use it.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..collectives.all_to_all import Grid
from ..layout.layout import Layout, dim_name
from ..machine.chip import Chip
from ..machine.machine import Machine
from ..machine.work import Work
from ..numerics.dtypes import Dot
from ..numerics.split_complex import Block, Planes
from ..operators.matrices import Matrix
from ..operators.transform import Transform

LARGE_BYTES = 2**18  # of a block that is worked on in a cache, piece by piece: a smaller one lies in it anyway


class Least(NamedTuple):
    """Lower bounds on the seconds of a step of one kind, from which the search adds up what lies ahead.

    Attributes:
        move: of moving mesh axes from one dimension to another.
        strided: more than that, where they leave or come to the last dimension.
        whole: of transforming a dimension that every device holds whole; dimensions that it can transform so.
        cut: the same of a dimension that stays cut.
    """

    move: float = math.inf
    strided: float = 0.0
    whole: Mapping[int, float] = MappingProxyType({})
    cut: Mapping[int, float] = MappingProxyType({})


class Held(NamedTuple):
    """The arrays that a step makes: numbers in the largest, and the shape of the pieces that it works on."""

    largest: int
    piece: tuple[int, ...]


class Step(abc.ABC):
    """One step of a walk: a pure function on one device's block, which knows the layout it leaves.

    Steps are frozen dataclasses. The defaults are those of a step that needs nothing but the array: they stand here
    once, rather than in the file of every step. `layout` is always the one that the step starts from.
    """

    @classmethod
    def offers(cls, problem: "Problem", layout: Layout, todo: dict[int, Matrix]) -> Iterator["Step"]:
        """The steps of this kind that may be taken from a layout, with these dimensions still to be transformed."""
        return iter(())

    @classmethod
    def least(cls, problem: "Problem") -> Least:
        """Bounds on what a step of this kind costs, wherever it is offered: one that is too high loses walks.

        A kind for which another's bounds hold, as for a pipeline those of its parts, needs none of its own.
        """
        return Least()

    if TYPE_CHECKING:  # a field of some steps: dataclasses would take a property here for the field's default

        @property
        def dims(self) -> tuple[int, ...]:
            """The dimensions it transforms."""

    @property
    def becomes(self) -> str | None:
        """What numbers the array is made of afterwards, "real" or "complex"; None where they stay what they are."""
        return None

    @property
    def planar(self) -> bool:
        """True where it works on planes."""
        return False

    @property
    def dots(self) -> tuple[Dot, ...]:
        """How it multiplies matrices, if it does."""
        return ()

    def error(self, itemsize: int) -> float:
        """The relative L2 error to expect of it, in complex numbers of so many bytes."""
        return 0.0

    def after(self, layout: Layout) -> Layout:
        """The layout it leaves."""
        return layout

    @abc.abstractmethod
    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """What it costs one device of a kind, for elements of so many bytes before it."""

    @abc.abstractmethod
    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        """One device's new block, in the form of the old one."""

    @abc.abstractmethod
    def transpose(self, layout: Layout) -> "Step":
        """The step back from `after(layout)` to `layout` by the transposed matrix."""

    def conjugate(self) -> "Step":
        """The step by the conjugate matrix."""
        return self

    def invert(self, layout: Layout) -> "Step":
        """The step back whose product with this one is a number: the adjoint, but for weights."""
        return self.transpose(layout).conjugate()

    @abc.abstractmethod
    def insert(self, dim: int) -> "Step":
        """The step once the array has a new dimension before `dim`."""

    @abc.abstractmethod
    def name(self, layout: Layout) -> str:
        """A few words for tables."""

    def sent(self, layout: Layout) -> tuple[int, ...] | None:
        """Shape of the arrays that it sends without packing them; None where it packs, or exchanges nothing."""
        return None

    def in_chunks(self, layout: Layout, chunk: tuple[int, ...]) -> "Step":
        """The step, sending chunks of this shape instead of whole pieces."""
        return self

    @property
    def taken(self) -> Grid:
        """How it takes its block apart."""
        return ()

    @property
    def joined(self) -> Grid:
        """How it puts its result together."""
        return ()

    def fuse(self, before: "Step | None", after: "Step | None") -> "Step":
        """The step as it is best done between its neighbours: on the pieces that one leaves, or the other takes."""
        return self

    def held(self, layout: Layout) -> Held | None:
        """The arrays that it makes; None where they may be larger than the block before it and the one after it."""
        return None

    def scratch(self, itemsize: int) -> int:
        """Bytes that it works on at a time besides those."""
        return 0

    @property
    def slot(self) -> int | None:
        """Which of the walk's operands it takes, if any."""
        return None

    @property
    def linear(self) -> bool:
        """Whether it is linear in its operand; where not, `slopes` gives the derivative."""
        return True

    def at_slot(self, slot: int) -> "Step":
        """The step with its operand in another slot; a step without one stays as it is."""
        return self

    def operand(self, given: Any, layout: Layout, mapped: frozenset[str] = frozenset()) -> Any:
        """Its operand as it is stored on the devices; of axes that are mapped already every device takes its own."""
        return given

    def operand_spec(self, operand: Any, layout: Layout) -> Any:
        """How the leaves of the stored operand are sharded."""
        raise NotImplementedError("no operand")

    def tabled(self, sources: tuple[Any, ...], slot: int) -> tuple["Step", Any] | None:
        """The step with a table, computed on the host, as its operand in `slot`; None where that does not pay."""
        return None

    def slopes(self, change: Any, layout: Layout, mapped: frozenset[str]) -> tuple[Planes, Planes]:
        """Factors along its dimension, before and after it, between which it is its own derivative in its operand."""
        raise NotImplementedError("linear in its operand")


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a walk has to do: from which layout to which, which matrices along which dimensions, on what machine.

    Attributes:
        start: the layout the array comes in.
        transform: the dimensions, and the matrix along each.
        method: a key of METHODS.
        goal: the layout wanted, or None for any whose padding, if it has some, lies at the tail.
        even: accept only a final layout without padding.
        machine: what prices a step.
        itemsize: bytes of a complex number; a real one has half as many.
        dots: the ways to multiply that the precision asked for allows.
        real: the array comes real.
    """

    start: Layout
    transform: Transform
    method: str
    goal: Layout | None
    even: bool
    machine: Machine
    itemsize: int
    dots: tuple[Dot, ...]
    real: bool = False

    def bytes_at(self, todo: dict[int, Matrix]) -> int:
        """Bytes of an element while these dimensions are still to be transformed."""
        return self.itemsize // 2 if self.real_at(todo) else self.itemsize

    def real_at(self, todo: dict[int, Matrix]) -> bool:
        """Whether the array is real while these dimensions are still to be transformed."""
        for dim, matrix in zip(self.transform.dims, self.transform.matrices, strict=True):
            if matrix.becomes is not None:
                return (matrix.becomes == "complex") == (dim in todo)
        return self.real

    def todo(self, done: frozenset[int]) -> dict[int, Matrix]:
        """The dimensions still to be transformed, with their matrices."""
        pairs = zip(self.transform.dims, self.transform.matrices, strict=True)
        return {dim: matrix for dim, matrix in pairs if dim not in done}

    def large(self, layout: Layout) -> bool:
        """True where devices share a memory, and a block is so large that passes over it are what costs."""
        return self.machine.chip.cached and math.prod(layout.block) * self.itemsize >= LARGE_BYTES

    @functools.cached_property
    def least_rows(self) -> dict[int, int]:
        """Of each matrix its rows; where it halves a spectrum, in complex numbers on either side."""
        pairs = self.todo(frozenset()).items()
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
        """Bytes that transforming a whole dimension reads and writes, at least: a cache can do two in one pass."""
        return 2 * self.least_bytes // (2 if self.machine.chip.cached else 1)

    def bound(self, **counts: Any) -> float:
        """The least seconds of some work; where devices send while they compute, what travels may cost nothing."""
        if self.machine.chip.overlaps:
            counts = {name: n for name, n in counts.items() if name not in ("sent_bytes", "hops", "all_to_alls")}
        return self.machine.price(Work(tier=self.dots[0].tier, **counts))


def ready(todo: dict[int, Matrix]) -> dict[int, Matrix]:
    """The dimensions that may come next: real lines become complex first, and complex ones real last."""
    turning = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is not None}
    others = {dim: matrix for dim, matrix in todo.items() if matrix.becomes is None}
    last = any(matrix.becomes == "real" for matrix in turning.values())
    return others if last and others else turning or others


def turned(nbytes: int, step: Step) -> int:
    """Bytes of an element after a step: a complex number has two reals."""
    return {"real": nbytes // 2, "complex": 2 * nbytes}.get(step.becomes or "", nbytes)


def shift(dim: int, inserted: int) -> int:
    """Where a dimension stands once another was inserted before `inserted` or it."""
    return dim + (dim >= inserted)


def names(dims: tuple[int, ...], layout: Layout) -> str:
    """The dimensions as tables name them."""
    return ", ".join(dim_name(d, layout.ndim) for d in dims)


def padded(size: int, side: int) -> int:
    """A size as a matrix unit of so many rows works on it."""
    return -(-size // side) * side
