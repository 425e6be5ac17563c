"""The contract of a step, and a few lines that steps share.

    search     offers, exact, least, dims, after, work, becomes
    fusion     sent, in_chunks, grids, fuse
    walk       transpose, conjugate, invert, insert, error, lost, condition, wired, planar, joint, held, trials, name
    executor   apply, apply_pieces; of a step that takes an operand: slot, operand, operand_spec, tabled, linear, slopes

A new step is a file with a subclass of Step, and a place in METHODS (walks/search.py) if a search is to use it.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.all_to_all import Grid
from ..collectives.dimensions import resize
from ..collectives.pieces import Came, Pieces
from ..collectives.wire import Wire
from ..kept_verdicts import Trial
from ..layout.layout import Layout, dim_name, line_shape
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.dtypes import Dot, Error
from ..numerics.split_complex import Block, Planes
from ..operators.matrices import HalfRoots, Matrix, Roots
from ..operators.trig import Trig
from .problem import Problem

B = TypeVar("B", bound=Block)
M = TypeVar("M", Roots, HalfRoots, Roots | HalfRoots, Trig, Matrix)


class Least(NamedTuple):
    """Lower bounds on the seconds of a step of one kind, from which the search adds up what lies ahead."""

    move: float = math.inf  # of moving mesh axes from one dimension to another
    strided: float = 0.0  # more than that, where they leave or come to the last dimension
    local: Mapping[int, float] = MappingProxyType({})  # of transforming each dimension that no mesh axis cuts
    cut: Mapping[int, float] = MappingProxyType({})  # of transforming each dimension that stays cut


class Held(NamedTuple):
    """The arrays that a step makes."""

    largest: int  # numbers in the largest
    chunk: tuple[int, ...]  # shape of those that it works on
    scratch: int = 0  # bytes that it works on at a time besides


class Step(abc.ABC):
    """One step of a walk: a pure function on one device's block, which knows the layout it leaves.

    Steps are frozen dataclasses. The defaults are those of a step that needs nothing but the array. `layout` is always
    the one that the step starts from.
    """

    by_slices: ClassVar[bool] = True  # it works in float64 by slices too, where matrix units have no float64
    exact: ClassVar[bool] = False  # offered only where a dimension is as long as its matrix, which may be done for it

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Step"]:
        """The steps of this kind that may be taken from a layout, with these dimensions still to be transformed."""
        return iter(())

    @classmethod
    def least(cls, problem: Problem) -> Least:
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

    def bytes_after(self, nbytes: int) -> int:
        """Bytes of an element after it: a complex number has two reals."""
        return {"real": nbytes // 2, "complex": 2 * nbytes}.get(self.becomes or "", nbytes)

    @property
    def planar(self) -> bool:
        """True where it works on split complex blocks."""
        return False

    def joint(self, layout: Layout) -> bool:
        """True where it sends both planes in one message."""
        return False

    @property
    def dots(self) -> tuple[Dot, ...]:
        """How it multiplies matrices, if it does."""
        return ()

    def error(self, itemsize: int) -> Error:
        """The relative L2 error of its arithmetic, in complex numbers of `itemsize` bytes."""
        return Error()

    def lost(self, layout: Layout) -> float:
        """The largest relative L2 error of what it sends; `condition` is that of its result over that of its block."""
        return 0.0

    @property
    def condition(self) -> float:
        """The largest singular value of what it computes over the least."""
        return 1.0

    def wired(self, wire: Wire) -> "Step":
        """The step, sending numbers by a wire."""
        return self

    def after(self, layout: Layout) -> Layout:
        """The layout it leaves."""
        return layout

    @abc.abstractmethod
    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """What it costs one device, for elements of `itemsize` bytes before it."""

    @abc.abstractmethod
    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block | Pieces:
        """One device's new block, in the form of the old one; in pieces where the next step takes them."""

    @property
    def takes_pieces(self) -> tuple[int, ...]:
        """What it transforms of a block that it takes as an exchange left it; nothing where it takes none so."""
        return ()

    def apply_pieces(self, pieces: Pieces, layout: Layout) -> Block | Pieces:
        """The same of a block in pieces, of a step that takes them."""
        return self.apply(pieces.joined(), layout)

    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        """Of the kernels it has on a TPU, where `came` says which pieces it takes; and how those lie that it leaves."""
        return (), None

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
        """The step, sending chunks of this shape at a time."""
        return self

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """The chunks that it cuts its block into, and those that it joins its result from."""
        return (), ()

    def fuse(self, before: "Step | None", after: "Step | None") -> "Step":
        """The step as it is best done between its neighbours: on the chunks that one joins, or the other cuts."""
        return self

    def held(self, layout: Layout, itemsize: int) -> Held | None:
        """The arrays that it makes; None where they may be larger than the block before it and the one after it."""
        return None

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

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """Its operand as it is stored on the devices; of axes that are mapped already every device takes its own."""
        return given

    def operand_spec(self, operand: object, layout: Layout) -> object:
        """How the leaves of the stored operand are sharded."""
        raise NotImplementedError("no operand")

    def tabled(self, sources: tuple[object, ...], slot: int) -> tuple["Step", np.ndarray] | None:
        """The step with a table, computed on the host, as its operand in `slot`; None where that does not pay."""
        return None

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> "list[Slope]":
        """Its derivative in its operand: a sum of steps of its kind, itself or others, each between two factors."""
        raise NotImplementedError("linear in its operand")


# Planes of a factor before a step, the step, planes of a factor behind it. They broadcast to the array; () is none.
Slope = tuple[Planes, Step, Planes]


@dataclasses.dataclass(frozen=True)
class MatrixStep(Step, Generic[M]):
    """A step that multiplies one dimension by a matrix, or several at once. Abstract."""

    dims: tuple[int, ...]
    matrix: M  # of the last dimension
    sizes: tuple[int, ...]  # positions of the result along each; beyond the matrix it is zero

    @property
    def dim(self) -> int:
        """The only dimension, or the last."""
        return self.dims[-1]

    @property
    def becomes(self) -> str | None:
        return self.matrix.becomes

    @property
    def condition(self) -> float:
        return self.matrix.condition

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


def resized(layout: Layout, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Layout:
    """The layout with other sizes of some dimensions."""
    return functools.reduce(lambda at, pair: at.resize(*pair), zip(dims, sizes, strict=True), layout)


def positions(layout: Layout, dim: int, limit: int) -> tuple[Array, Array]:
    """The positions of this device's block, and which of them are logical and below `limit`."""
    index = lax.axis_index(layout.axes[dim]) if layout.axes[dim] else 0
    offsets = jnp.arange(layout.block[dim], dtype=jnp.int32)
    at = jnp.asarray(layout.starts(dim), jnp.int32)[index] + offsets
    return at, (offsets < jnp.asarray(layout.counts(dim), jnp.int32)[index]) & (at < limit)


def cleared(block: B, layout: Layout, dim: int, limit: int) -> B:
    """The block, in any form, with zeros where it is padding, and from `limit` on."""
    read = positions(layout, dim, limit)[1].reshape(line_shape(dim, layout.ndim))
    return jax.tree.map(lambda part: jnp.where(read, part, 0), block)


def shift(dim: int, inserted: int) -> int:
    """The index of a dimension once another was inserted before `inserted`."""
    return dim + (dim >= inserted)


def names(dims: tuple[int, ...], layout: Layout) -> str:
    """The dimensions as tables name them."""
    return ", ".join(dim_name(d, layout.ndim) for d in dims)


def resize_each(block: B, dims: tuple[int, ...], sizes: tuple[int, ...]) -> B:
    """The block, in any form, with dimensions cropped or padded with zeros at the tail."""
    pairs = [*zip(dims, sizes, strict=True)]
    return jax.tree.map(lambda part: functools.reduce(lambda x, pair: resize(x, *pair), pairs, part), block)
