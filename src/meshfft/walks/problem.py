"""What a walk has to do: from which layout to which, which matrices along which dimensions, on what machine."""

import dataclasses

from ..layout.layout import Layout
from ..machine.machine import Machine
from ..machine.work import Work
from ..numerics.tiers import Dot
from ..operators.matrices import Matrix
from ..operators.transform import Transform
from ..steps import Step


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a walk has to do, and on what.

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

    def work(self, step: Step, layout: Layout, todo: dict[int, Matrix]) -> Work:
        """What a step costs a device."""
        size = self.itemsize // 2 if self.real_at(todo) else self.itemsize
        return step.work(layout, size, self.machine.chip)

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
