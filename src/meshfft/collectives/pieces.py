"""Pieces: a block of planes as all-to-alls of one chunk after another left it, for a kernel that reads it as it lies.

A kernel writes what is sent as (parts, planes, *sizes): one part for each device, both planes in one message. What is
received has the same form, one part from each device, and is a piece of the block.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ..numerics.split_complex import B, Planes
from .dimensions import folded, unfolded
from .messages import carried
from .wire import EXACT, Wire

MOST_PARTS = 16  # that are written into the block each by itself


class Rows(NamedTuple):
    """Some rows of a dimension: those that are transformed and sent at a time."""

    dim: int
    start: int
    size: int


class Came(NamedTuple):
    """Where pieces lie: see Pieces."""

    source: int
    dim: int
    parts: int
    pieces: int


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A block of planes in pieces, each (parts, planes, *sizes).

    The positions of dimension `source` are (part, row), and those of `dim`, which chunks cut, (chunk, row); where both
    are one dimension (part, chunk, row).
    """

    arrays: tuple[Array, ...]
    source: int
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the block."""
        parts, _, *sizes = self.arrays[0].shape
        sizes[self.source] *= parts
        sizes[self.dim] *= len(self.arrays)
        return tuple(sizes)

    @property
    def piece(self) -> int:
        """Positions of `dim` in a piece."""
        return int(self.arrays[0].shape[2 + self.dim])

    @property
    def parts(self) -> int:
        """How many devices each piece came from."""
        return self.arrays[0].shape[0]

    def joined(self) -> Planes:
        """The planes of the block: a copy, of one part after another where they are few."""
        if self.parts > MOST_PARTS:
            parts = self.parts if self.dim == self.source else 1
            planes = range(self.arrays[0].shape[1])
            chunks = [[_brought(one[:, plane], self.source) for one in self.arrays] for plane in planes]
            return tuple(assembled(plane, self.dim, parts) for plane in chunks)
        first = self.arrays[0]
        whole = [lax.empty(self.shape, first.dtype) for _ in range(first.shape[1])]
        for chunk, array in enumerate(self.arrays):
            for part, plane in itertools.product(range(self.parts), range(len(whole))):
                whole[plane] = lax.dynamic_update_slice(whole[plane], array[part, plane], self._corner(part, chunk))
        return tuple(whole)

    def _corner(self, part: int, chunk: int) -> list[int]:
        """Where a part of a chunk begins in the block."""
        _, _, *sizes = self.arrays[0].shape
        at = [0] * len(sizes)
        at[self.source] = part * sizes[self.source] * (len(self.arrays) if self.source == self.dim else 1)
        at[self.dim] += chunk * sizes[self.dim]
        return at


def joined(block: B | Pieces) -> B | Planes:
    """The block itself, or put together from its pieces."""
    return block.joined() if isinstance(block, Pieces) else block


def in_parts(planes: Planes, dim: int, parts: int) -> Array:
    """The planes as one array (parts, planes, *sizes), with a dimension divided into parts: a copy."""
    return jnp.moveaxis(unfolded(jnp.stack(planes), dim + 1, parts), dim + 1, 0)


def exchange_parts(sent: Array, axis_names: tuple[str, ...], wire: Wire = EXACT) -> Array:
    """Sends a part to each device of the ring of mesh axes, in ring order, and returns what came from each, in one
    message.
    """
    return carried(lambda parts: lax.all_to_all(parts, axis_names, 0, 0), sent, wire, first=1)


def taken(block: Array, dim: int, start: int, size: int) -> Array:
    """Some rows of every part, as one dimension."""
    return folded(lax.slice_in_dim(block, start, start + size, axis=dim + 1), dim)


def assembled(chunks: Sequence[Array], dim: int, parts: int) -> Array:
    """The dimension from chunks of rows of every part, each written to its rows when it arrives."""
    rows = [unfolded(chunk, dim, parts) for chunk in chunks]
    shape, many = rows[0].shape, sum(chunk.shape[dim + 1] for chunk in rows)
    result, start = lax.empty((*shape[: dim + 1], many, *shape[dim + 2 :]), chunks[0].dtype), 0
    for chunk in rows:
        result = lax.dynamic_update_slice_in_dim(result, chunk, start, dim + 1)
        start += chunk.shape[dim + 1]
    return folded(result, dim)


def _brought(piece: Array, source: int) -> Array:
    """The parts of one plane one after the other along their dimension."""
    return folded(jnp.moveaxis(piece, 0, source), source)
