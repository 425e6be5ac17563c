"""The contract of a step: what the search, the walk and the executor ask of it, and the lines that steps share."""

import abc
from typing import TYPE_CHECKING, Any

from ..layout.layout import Layout, dim_name
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.split_complex import Block, Planes
from ..numerics.tiers import Dot


class Step(abc.ABC):
    """One step of a walk: a pure function on one device's block, which knows the layout it leaves.

    Steps are frozen dataclasses. The defaults are those of a step that needs nothing but the array: they stand here
    once, rather than in the file of every step. `layout` is always the one that the step starts from.
    """

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


def turned(nbytes: int, step: Step) -> int:
    """Bytes of an element after a step: a complex number has two reals."""
    return {"real": nbytes // 2, "complex": 2 * nbytes}.get(step.becomes or "", nbytes)


def resized(layout: Layout, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Layout:
    """The layout with other sizes of some dimensions."""
    for dim, size in zip(dims, sizes, strict=True):
        layout = layout.resize(dim, size)
    return layout


def shift(dim: int, inserted: int) -> int:
    """Where a dimension stands once another was inserted before `inserted` or it."""
    return dim + (dim >= inserted)


def names(dims: tuple[int, ...], layout: Layout) -> str:
    """The dimensions as tables name them."""
    return ", ".join(dim_name(d, layout.ndim) for d in dims)


def padded(size: int, side: int) -> int:
    """A size as a matrix unit of so many rows works on it."""
    return -(-size // side) * side
