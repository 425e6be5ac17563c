"""What every step answers, and the two lines they share."""

from typing import Any, Protocol

from ..layout.layout import Layout, dim_name
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.split_complex import Block


class Step(Protocol):
    """What the search and the walk know of a step; `layout` is always the one it starts from."""

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions it transforms."""

    @property
    def slot(self) -> int | None:
        """Which of the walk's operands it takes, if any."""

    @property
    def planar(self) -> bool:
        """True where it works on planes."""

    @property
    def becomes(self) -> str | None:
        """What numbers the array is made of afterwards, "real" or "complex"; None where they stay what they are."""

    def error(self, itemsize: int) -> float:
        """The relative L2 error to expect of it, in complex numbers of so many bytes."""

    def after(self, layout: Layout) -> Layout:
        """The layout it leaves."""

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """What it costs one device of a kind, for elements of so many bytes before it."""

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        """One device's new block, in the form of the old one."""

    def transpose(self, layout: Layout) -> "Step":
        """The step back from `after(layout)` to `layout` by the transposed matrix."""

    def conjugate(self) -> "Step":
        """The step by the conjugate matrix."""

    def invert(self, layout: Layout) -> "Step":
        """The step back whose product with this one is a number: the adjoint, but for weights."""

    def insert(self, dim: int) -> "Step":
        """The step once the array has a new dimension before `dim`."""

    def name(self, layout: Layout) -> str:
        """A few words for tables."""


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
