"""The contract of a step: members of every step, and protocols of some.

    search     offers, least, dims, after, work
    walk       error, numbers, fuse, apply, transpose, conjugate, invert, insert, name

`sends`, `chunked`, `takes` and `kernels` return the step if it has that protocol. `layout` is the one before the step.
"""

import abc
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from ..collectives.all_to_all import Came, Grid, Pieces
from ..collectives.levels import Wires
from ..kept import Trial
from ..layout.layout import Layout, dim_name, resized, shift
from ..machine.chip import Chip
from ..machine.machine import Work
from ..numerics.dtypes import Error
from ..numerics.split_complex import Block, Planes
from ..operators.matrices import HalfRoots, Matrix, Roots
from ..operators.trig import Trig
from .problem import Held, Least, Numbers, Problem

M = TypeVar("M", Roots, HalfRoots, Roots | HalfRoots, Trig, Matrix)


class Step(abc.ABC):
    """Subclasses are frozen dataclasses."""

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Step"]:
        """Steps of this kind for a layout; dimensions in `todo` are not transformed yet."""
        return iter(())

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """Lower bounds on the cost of this kind, none if another kind's suffice. Too high a bound loses walks."""
        return Least()

    if TYPE_CHECKING:  # dataclasses would take a property here for the default of a step's field

        @property
        def dims(self) -> tuple[int, ...]:
            """The dimensions it transforms."""

    def after(self, layout: Layout) -> Layout:
        return layout

    @abc.abstractmethod
    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Cost on one device, for input elements of `itemsize` bytes."""

    def error(self, layout: Layout, itemsize: int) -> Error:
        """Relative L2 errors of arithmetic and of messages, for complex numbers of `itemsize` bytes."""
        return Error()

    @property
    def numbers(self) -> Numbers:
        return Numbers()

    @abc.abstractmethod
    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block | Pieces:
        """The new block in the form of the old one, or in pieces if the next step takes them."""

    def fuse(self, before: "Step | None", after: "Step | None") -> "Step":
        return self

    @abc.abstractmethod
    def transpose(self, layout: Layout) -> "Step":
        """The step from `after(layout)` back by the transposed matrix."""

    def conjugate(self) -> "Step":
        return self

    def invert(self, layout: Layout) -> "Step":
        """The step back that inverts this one up to a scalar."""
        return self.transpose(layout).conjugate()

    @abc.abstractmethod
    def insert(self, dim: int) -> "Step":
        """The step with one more dimension before `dim`."""

    @abc.abstractmethod
    def name(self, layout: Layout) -> str:
        """A short name for tables."""

    @property
    def sends(self) -> "Sends | None":
        return self if isinstance(self, Sends) else None

    @property
    def chunked(self) -> "Chunked | None":
        return self if isinstance(self, Chunked) else None

    @property
    def takes(self) -> "Takes | None":
        return self if isinstance(self, Takes) else None

    @property
    def kernels(self) -> "Kernels | None":
        return self if isinstance(self, Kernels) else None


class Sends(Step):
    @abc.abstractmethod
    def wired(self, wires: Wires) -> Step:
        """The step over the outer wire; a separate stage inside domains goes over the inner one."""

    @abc.abstractmethod
    def joint(self, layout: Layout) -> bool:
        """Whether both planes share one message."""


class Chunked(Step):
    """Cuts its block into equal chunks, or joins it from them."""

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """The grids that cut its block and join its result."""
        return (), ()

    @abc.abstractmethod
    def held(self, layout: Layout, itemsize: int) -> Held | None:
        """Arrays that it makes; None if they may exceed the blocks before and after."""

    def sent(self, layout: Layout) -> tuple[int, ...] | None:
        """Shape sent without packing; None if it sends nothing or packs."""
        return None

    def in_chunks(self, layout: Layout, chunk: tuple[int, ...]) -> Step:
        return self


class Slope(NamedTuple):
    first: Planes  # broadcastable factors, () for 1, before the step and after it
    step: Step
    last: Planes
    dim: int | None = None  # for several terms: their dimension, in step and factors only
    value: int | None = None  # the term that is the step's own result


class Takes(Step):
    if TYPE_CHECKING:  # a field

        @property
        def slot(self) -> int | None:
            """Its operand's index in the walk, if it needs one."""

    @abc.abstractmethod
    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """The operand as devices store it, only the local part along mapped axes."""

    @abc.abstractmethod
    def operand_spec(self, operand: object, layout: Layout) -> object:
        """Shardings of the stored operand's leaves."""

    def tabled(self, sources: tuple[object, ...], slot: int) -> tuple[Step, np.ndarray] | None:
        """The step with a table from the host as operand `slot`, if that pays."""
        return None

    @property
    def linear(self) -> bool:
        """Whether it is linear in its operand; else `slopes` gives the derivative."""
        return True

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> list[Slope]:
        """Derivative along a change of the operand: steps, each between two factors, summed."""
        raise NotImplementedError("linear in its operand")


class Kernels(Step):
    """A step that may have special kernels."""

    @property
    def takes_pieces(self) -> tuple[int, ...]:
        """Dimensions that it transforms in received pieces."""
        return ()

    def apply_pieces(self, pieces: Pieces, layout: Layout) -> Block | Pieces:
        return self.apply(pieces.joined(), layout)

    @abc.abstractmethod
    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        """Trials of its kernels for the pieces it takes; then the pieces it leaves."""


@dataclasses.dataclass(frozen=True)
class MatrixStep(Step, Generic[M]):
    """Multiplies one or several dimensions by a matrix. Abstract."""

    dims: tuple[int, ...]
    matrix: M  # of the last dimension
    sizes: tuple[int, ...]  # of the result; zero beyond the matrix

    @property
    def dim(self) -> int:
        return self.dims[-1]

    @property
    def numbers(self) -> Numbers:
        return Numbers(self.matrix.becomes)

    def after(self, layout: Layout) -> Layout:
        return resized(layout, self.dims, self.sizes)

    def transpose(self, layout: Layout) -> Self:
        sizes = tuple(layout.shape[d] for d in self.dims)
        return dataclasses.replace(self, matrix=self.matrix.transpose(), sizes=sizes)

    def conjugate(self) -> Self:
        return dataclasses.replace(self, matrix=self.matrix.conjugate())

    def invert(self, layout: Layout) -> Step:
        back = self.transpose(layout)
        return dataclasses.replace(back, matrix=self.matrix.inverse or back.matrix.conjugate())

    def insert(self, dim: int) -> Self:
        return dataclasses.replace(self, dims=tuple(shift(d, dim) for d in self.dims))


@dataclasses.dataclass(frozen=True)
class OneDim(Step):
    """A step along one dimension, without a transform. Abstract."""

    dim: int
    dims: ClassVar[tuple[int, ...]] = ()

    def insert(self, dim: int) -> Self:
        return dataclasses.replace(self, dim=shift(self.dim, dim))


def reached(layout: Layout, steps: Iterable[Step]) -> tuple[Layout, ...]:
    """The layout before each step, and after the last."""
    return tuple(itertools.accumulate(steps, lambda at, step: step.after(at), initial=layout))


def slot_of(step: Step) -> int | None:
    return step.takes.slot if step.takes else None


def at_slot(step: Step, slot: int) -> Step:
    """The step with its operand, if it takes one, in another slot."""
    return step if slot_of(step) is None else dataclasses.replace(cast(Any, step), slot=slot)


def names(dims: tuple[int, ...], layout: Layout) -> str:
    return ", ".join(dim_name(d, layout.ndim) for d in dims)
