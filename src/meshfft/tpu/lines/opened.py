"""A long dimension split in two, N = A B: how it is read, and where X[i + A j] is written."""

import dataclasses
import math
from collections.abc import Sequence

from .blocks import PLANES, Blocked, Divided, Ends, Sizes, steps_of
from .memory import Index, Parted, PlaneView, Ref, Refs, div, legible, rem
from .radices import SUBLANES, radices


@dataclasses.dataclass(frozen=True)
class Opened:
    lead: tuple[int, ...]
    first: int  # A
    parts: int  # L
    pieces: int
    rows: int
    rest: tuple[int, ...]
    came: bool

    @property
    def tiled(self) -> bool:
        return len(self.rest) == 1

    @property
    def eight(self) -> int | None:
        return SUBLANES if self.tiled else None

    @property
    def second(self) -> int:
        """B."""
        return self.parts * self.pieces * self.rows

    @property
    def length(self) -> int:
        return self.first * self.second


def opened(shape: Sequence[int], dim: int, ends: Ends = PLANES) -> Opened | None:
    """How a dimension is split in two, or None if there are no factors or they do not fit the pieces."""
    lead, rest, came = tuple(shape[:dim]), tuple(shape[dim + 1 :]), ends.came
    tile = SUBLANES if len(rest) == 1 else 1
    first = _factor(shape[dim], tile, came.parts if came else shape[dim])
    if not first or (ends.rows and ends.rows.dim == dim):
        return None
    if came and (came.source != dim or came.dim != dim or shape[dim] % (came.parts * came.pieces)):
        return None
    parts, pieces = (came.parts // first, came.pieces) if came else (1, 1)
    rows = shape[dim] // (first * parts * pieces)
    made = Opened(lead, first, parts, pieces, rows, rest, came is not None)
    readable = made.tiled or legible(radices(made.second)[0], parts, pieces)
    return made if rows % tile == 0 and readable else None


def target_of(of: Opened, rest: Sizes, sent: tuple[int, int] | None) -> Blocked | Divided | None:
    """Target of X[i + A j], for all j and one i, or eight: planes, or parts that consist of whole blocks.

    Part p of the dimension itself has rows p R ... p R + R - 1:

        R >= A    (parts, planes, .., R / A, A, ..)      j is in part j / (R / A)
        R < A     (B j, A / R, planes, .., R, ..)        i is in part i / R of those of j
    """
    ndim, eight = len(of.lead), of.eight or 1
    none: Sizes = (None,) * ndim
    steps = (*of.lead, -(-of.first // eight), *steps_of(of.rest, rest))
    whole, sizes = (*of.lead, of.second, of.first, *of.rest), (*none, of.second, of.eight, *rest)
    planes = Blocked(whole, sizes, place=lambda *at: (*at[:ndim], 0, *at[ndim:]), grid=steps)
    if sent is None:
        return planes
    dim, parts = sent
    size = of.length if dim == ndim else whole[dim + (dim > ndim)]
    rows, left = divmod(size, parts)
    if left:
        return None
    if dim != ndim:
        divided = Divided(planes, dim + (dim > ndim), parts)
        return divided if rows % (sizes[divided.dim] or 1) == 0 else None
    small, large = sorted((rows, of.first))
    if large % small or (rows % eight and eight % rows) or of.first % eight:
        return None
    if rows >= of.first:
        return Divided(planes, ndim, parts)
    shape = (of.second, of.first // rows, 2, *of.lead, rows, *of.rest)
    if rows < eight:
        block: Sizes = (of.second, eight // rows, 2, *none, rows, *rest)
        return Blocked(shape, block, 1, lambda *at: (0, at[ndim], 0, *at[:ndim], 0, *at[ndim + 1 :]), steps, _shared)
    each = rows // eight

    def within(*at: Index) -> tuple[Index, ...]:
        return (0, div(at[ndim], each), 0, *at[:ndim], rem(at[ndim], each), *at[ndim + 1 :])

    return Blocked(shape, (of.second, None, 2, *none, of.eight, *rest), 1, within, steps, both)


def result_of(shape: tuple[int, ...], sent: tuple[int, int] | None) -> tuple[int, ...]:
    if sent is None:
        return shape
    dim, parts = sent
    return (parts, 2, *shape[:dim], shape[dim] // parts, *shape[dim + 1 :])


def both(refs: Sequence[Ref]) -> Refs:
    return PlaneView(refs[0], 0), PlaneView(refs[0], 1)


def _shared(refs: Sequence[Ref]) -> Refs:
    return Parted(refs[0], 0, 0, lead=1), Parted(refs[0], 1, 0, lead=1)


def _factor(length: int, multiple: int, parts: int) -> int:
    """A, up to the root of the length, such that both factors have radices and A divides `parts`; 0 if none."""
    divisors = (d for d in range(math.isqrt(length), 0, -1) if length % d == 0 and length // d % multiple == 0)
    return next((d for d in divisors if radices(d) and radices(length // d) and parts % d == 0), 0)
