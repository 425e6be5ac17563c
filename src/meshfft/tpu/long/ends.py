"""Where the second kernel of long lines writes X[i + A j]: planes, or the parts that are sent, both planes in one.

Results come as j for one i, or for eight. Of the dimension itself part p has rows p R ... p R + R - 1:

    R < A     (B j, A / R, planes, .., R, ..)        i is in part i / R of those of j
    R >= A    (parts, planes, .., R / A, A, ..)      j is in part j / (R / A)
    another   (parts, planes, .., B, A, ..)          the part of a block is known by its place
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..lines.calls import Placed
from ..lines.radices import SUBLANES
from ..lines.sources import Ref, div, rem

Sizes = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Plane:
    """A plane of a block (N, planes, rows, columns), or as `form` says where N and planes are."""

    ref: Ref
    plane: int
    form: str = (
        "rows"  # "divided" (N, parts, planes, rows, ..), "parts" (parts, planes, N, ..), "other" (planes, N, ..)
    )

    def __getitem__(self, index: tuple[Any, Any, Any]) -> Any:
        parts = [self.ref[at] for at in self._places(index)]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def __setitem__(self, index: tuple[Any, Any, Any], value: Any) -> None:
        places = self._places(index)
        size = value.shape[0] // len(places)
        for h, at in enumerate(places):
            self.ref[at] = lax.slice_in_dim(value, h * size, (h + 1) * size) if len(places) > 1 else value

    def _places(self, index: tuple[Any, Any, Any]) -> list[tuple[Any, ...]]:
        k, *behind = index
        if self.form == "divided":
            return [(k, h, self.plane, *behind) for h in range(self.ref.shape[1])]
        if self.form == "parts":
            many = self.ref.shape[2]
            return [(div(k, many), self.plane, rem(k, many), *behind)]
        return [(self.plane, k, *behind) if self.form == "other" else (k, self.plane, *behind)]


@dataclasses.dataclass(frozen=True)
class Sent:
    """What is written: the dimension is B times A, and `dim`, if there is one, in parts."""

    lead: tuple[int, ...]
    first: int  # A
    second: int  # B
    rest: tuple[int, ...]
    dim: int | None = None  # of all, with the dimension as one
    parts: int = 1

    @property
    def tiled(self) -> bool:
        return len(self.rest) == 1

    @property
    def rows(self) -> int:
        """Of a part."""
        sizes = (*self.lead, self.first * self.second, *self.rest)
        return sizes[len(self.lead) if self.dim is None else self.dim] // self.parts

    @property
    def form(self) -> str:
        """That of a block."""
        if self.dim != len(self.lead):
            return "other"
        if self.rows >= self.first:
            return "parts"
        return "divided" if self.tiled and self.rows < SUBLANES else "rows"

    @property
    def result(self) -> tuple[int, ...]:
        """Planes, or (parts, planes, ..)."""
        shape = [*self.lead, self.first * self.second, *self.rest]
        if self.dim is None:
            return tuple(shape)
        shape[self.dim] //= self.parts
        return (self.parts, 2, *shape)

    def refuses(self, rest: Sizes) -> bool:
        """True where blocks of such sizes are not within one part, or parts are not of whole blocks."""
        lead = len(self.lead)
        if self.dim != lead:
            sizes = (*[None] * lead, None, *rest)
            return self.dim is not None and bool(self.rows % (sizes[self.dim] or 1))
        rows, first = self.rows, self.first
        even = rows % first == 0 if rows >= first else first % rows == 0
        tile = SUBLANES if self.tiled else 1
        return not even or (rows % tile != 0 and tile % rows != 0) or first % tile != 0

    def planes(self, target: Sequence[Ref]) -> tuple[Any, Any]:
        """The two planes of a block."""
        if self.dim is None:
            return target[0], target[1]
        return Plane(target[0], 0, self.form), Plane(target[0], 1, self.form)

    def placed(self, rest: Sizes, steps: tuple[int, ...]) -> Placed:
        """Blocks of whole lines for one i, or eight, at each step (.., i, ..)."""
        ndim, eight = len(self.lead), SUBLANES if self.tiled else None
        none: Sizes = (None,) * ndim
        whole = (*self.lead, self.second, self.first, *self.rest)
        sizes = (*none, self.second, eight, *rest)
        if self.dim is None:
            return Placed(whole, sizes, steps, lambda *at: (*at[:ndim], 0, *at[ndim:]), arrays=2)
        if self.dim != ndim:
            return self._other(whole, sizes, steps)
        rows, first, second = self.rows, self.first, self.second
        if rows >= first:
            shape: tuple[int, ...] = (self.parts, 2, *self.lead, rows // first, first, *self.rest)
            block: Sizes = (self.parts, 2, *none, rows // first, eight, *rest)
            return Placed(shape, block, steps, lambda *at: (0, 0, *at[:ndim], 0, *at[ndim:]))
        shape = (second, first // rows, 2, *self.lead, rows, *self.rest)
        if self.form == "divided":
            block = (second, SUBLANES // rows, 2, *none, rows, *rest)
            return Placed(shape, block, steps, lambda *at: (0, at[ndim], 0, *at[:ndim], 0, *at[ndim + 1 :]))
        each = rows // (eight or 1)

        def place(*at: Any) -> tuple[Any, ...]:
            return (0, div(at[ndim], each), 0, *at[:ndim], rem(at[ndim], each), *at[ndim + 1 :])

        return Placed(shape, (second, None, 2, *none, eight, *rest), steps, place)

    def _other(self, whole: tuple[int, ...], sizes: Sizes, steps: tuple[int, ...]) -> Placed:
        """Parts of another dimension."""
        assert self.dim is not None
        ndim = len(self.lead)
        dim = self.dim + (self.dim > ndim)
        shape = (self.parts, 2, *whole[:dim], self.rows, *whole[dim + 1 :])
        each = self.rows // (sizes[dim] or 1)

        def place(*at: Any) -> tuple[Any, ...]:
            index = [*at[:ndim], 0, *at[ndim:]]
            part, index[dim] = div(index[dim], each), rem(index[dim], each)
            return (part, 0, *index)

        return Placed(shape, (None, 2, *sizes), steps, place)


def sent_of(
    lead: tuple[int, ...], first: int, second: int, rest: tuple[int, ...], sent: tuple[int, int] | None
) -> Sent | None:
    """What is written, if parts are equal."""
    target, parts = (None, 1) if sent is None else sent
    sizes = (*lead, first * second, *rest)
    if target is not None and sizes[target] % parts:
        return None
    return Sent(lead, first, second, rest, target, parts)
