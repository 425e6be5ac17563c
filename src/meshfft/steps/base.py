"""The contract of a step: what every step answers, and what only some have.

    search     offers, least, dims, after, work
    walk       error, numbers, fuse, transpose, conjugate, invert, insert, name
    executor   apply

`sends`, `chunked`, `takes` and `kernels` are the step itself if it also has that protocol (Sends, Chunked, Takes,
Kernels), else None. `layout` is always the one that the step starts from.

A new step is a file with a subclass of Step, and a place in METHODS (walks/search.py) if a search is to use it.
"""

import abc
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np

from ..collectives.all_to_all import Grid
from ..collectives.pieces import Came, Pieces
from ..collectives.wire import EXACT, Wire
from ..kept_verdicts import Trial
from ..layout.layout import Layout, dim_name, resized
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.dtypes import Error
from ..numerics.split_complex import Block, Planes
from ..operators.matrices import HalfRoots, Matrix, Roots
from ..operators.trig import Trig
from .problem import Held, Least, Numbers, Problem

M = TypeVar("M", Roots, HalfRoots, Roots | HalfRoots, Trig, Matrix)


class Step(abc.ABC):
    """One step of a walk: a pure function of one device's block, which knows the layout it leaves.

    Steps are frozen dataclasses.
    """

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Step"]:
        """The steps of this kind that can start from a layout while the dimensions in `todo` are not transformed."""
        return iter(())

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """Bounds on the cost of this kind of step, wherever it is offered. Too high a bound loses walks.

        A kind needs none if the bounds of another kind hold for it.
        """
        return Least()

    if TYPE_CHECKING:  # a field of some steps: dataclasses would take a property here for the field's default

        @property
        def dims(self) -> tuple[int, ...]:
            """The dimensions it transforms."""

    def after(self, layout: Layout) -> Layout:
        """The layout it leaves."""
        return layout

    @abc.abstractmethod
    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """What it costs one device, for elements of `itemsize` bytes before it."""

    def error(self, layout: Layout, itemsize: int) -> Error:
        """Relative L2 errors of its arithmetic and of what it sends; `itemsize` is that of complex numbers."""
        return Error()

    @property
    def numbers(self) -> Numbers:
        return Numbers()

    @abc.abstractmethod
    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block | Pieces:
        """One device's new block, in the form of the old one; in pieces if the next step takes them."""

    def fuse(self, before: "Step | None", after: "Step | None") -> "Step":
        """The step adapted to its neighbours."""
        return self

    @abc.abstractmethod
    def transpose(self, layout: Layout) -> "Step":
        """The step from `after(layout)` to `layout` by the transposed matrix."""

    def conjugate(self) -> "Step":
        """The step by the conjugate matrix."""
        return self

    def invert(self, layout: Layout) -> "Step":
        """The step back whose product with this one is a scalar."""
        return self.transpose(layout).conjugate()

    @abc.abstractmethod
    def insert(self, dim: int) -> "Step":
        """The step for an array with one more dimension before `dim`."""

    @abc.abstractmethod
    def name(self, layout: Layout) -> str:
        """A few words for tables."""

    @property
    def sends(self) -> "Sends | None":
        return None

    @property
    def chunked(self) -> "Chunked | None":
        return None

    @property
    def takes(self) -> "Takes | None":
        return None

    @property
    def kernels(self) -> "Kernels | None":
        return None


class Sends(Step):
    """A step that sends numbers over a wire."""

    @property
    def sends(self) -> "Sends":
        return self

    @abc.abstractmethod
    def wired(self, wire: Wire) -> Step:
        """The step, sending over another wire."""

    @abc.abstractmethod
    def joint(self, layout: Layout) -> bool:
        """Whether one message has both planes."""


@dataclasses.dataclass(frozen=True)
class Wired(Sends):
    """A step that sends over one wire, both planes in one message if that is lossy."""

    wire: Wire = dataclasses.field(default=EXACT, kw_only=True)

    def wired(self, wire: Wire) -> Self:
        return dataclasses.replace(self, wire=wire)

    def joint(self, layout: Layout) -> bool:
        return self.wire.lossy


class Chunked(Step):
    """A step whose block is cut into equal chunks, or joined from them."""

    @property
    def chunked(self) -> "Chunked":
        return self

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """The chunks that its block is cut into, and those that its result is joined from."""
        return (), ()

    @abc.abstractmethod
    def held(self, layout: Layout, itemsize: int) -> Held | None:
        """The arrays that it makes; None if they may be larger than the blocks on either side."""

    def sent(self, layout: Layout) -> tuple[int, ...] | None:
        """Shape of the arrays that it sends without packing; None if it sends none or packs them."""
        return None

    def in_chunks(self, layout: Layout, chunk: tuple[int, ...]) -> Step:
        """The step, sending one chunk of this shape at a time."""
        return self


# Planes of a factor before a step, the step, planes of a factor after it. They broadcast to the array; () is none.
Slope = tuple[Planes, Step, Planes]


class Takes(Step):
    """A step that takes an operand besides the array."""

    if TYPE_CHECKING:  # a field

        @property
        def slot(self) -> int | None:
            """Which of the walk's operands it takes; None if its matrix needs none."""

    @property
    def takes(self) -> "Takes":
        return self

    @abc.abstractmethod
    def at_slot(self, slot: int) -> "Takes":
        """The step with its operand in another slot."""

    @abc.abstractmethod
    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """The operand as devices store it; over mesh axes that are mapped already, each device's own part."""

    @abc.abstractmethod
    def operand_spec(self, operand: object, layout: Layout) -> object:
        """How the leaves of the stored operand are sharded."""

    def tabled(self, sources: tuple[object, ...], slot: int) -> tuple[Step, np.ndarray] | None:
        """The step with a table, computed on the host, as its operand in `slot`; None if that does not pay."""
        return None

    @property
    def linear(self) -> bool:
        """Whether it is linear in its operand; if not, `slopes` gives the derivative."""
        return True

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> list[Slope]:
        """The derivative along a change of the operand: a sum of the step between two factors."""
        raise NotImplementedError("linear in its operand")


class Kernels(Step):
    """A step that may have kernels of its own on some devices."""

    @property
    def kernels(self) -> "Kernels":
        return self

    @property
    def takes_pieces(self) -> tuple[int, ...]:
        """The dimensions that it transforms of a block in the pieces that an exchange left; () if it takes none."""
        return ()

    def apply_pieces(self, pieces: Pieces, layout: Layout) -> Block | Pieces:
        """`apply` for a block in pieces."""
        return self.apply(pieces.joined(), layout)

    @abc.abstractmethod
    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        """Trials of its kernels, given the pieces that it takes; and the pieces that it leaves."""


@dataclasses.dataclass(frozen=True)
class MatrixStep(Step, Generic[M]):
    """A step that multiplies one dimension by a matrix, or several at once. Abstract."""

    dims: tuple[int, ...]
    matrix: M  # of the last dimension
    sizes: tuple[int, ...]  # of the result along each; beyond the matrix it is zero

    @property
    def dim(self) -> int:
        """The only dimension, or the last."""
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

    def invert(self, layout: Layout) -> Self:
        back = self.transpose(layout)
        return dataclasses.replace(back, matrix=self.matrix.inverse or back.matrix.conjugate())

    def insert(self, dim: int) -> Self:
        return dataclasses.replace(self, dims=tuple(shift(d, dim) for d in self.dims))


def wired(step: Step, wire: Wire) -> Step:
    """The step, sending over a wire if it sends."""
    return step.sends.wired(wire) if step.sends else step


def slot_of(step: Step) -> int | None:
    """Which of the walk's operands the step takes, if any."""
    return step.takes.slot if step.takes else None


def at_slot(step: Step, slot: int) -> Step:
    """The step with its operand, if it takes one, in another slot."""
    return step.takes.at_slot(slot) if step.takes and slot_of(step) is not None else step


def shift(dim: int, inserted: int) -> int:
    """The index of a dimension once another was inserted before `inserted`."""
    return dim + (dim >= inserted)


def names(dims: tuple[int, ...], layout: Layout) -> str:
    """The dimensions as tables name them."""
    return ", ".join(dim_name(d, layout.ndim) for d in dims)
