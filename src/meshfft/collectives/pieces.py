"""Pieces: a block of planes as received from several all-to-alls, for a kernel that reads it in place.

Kernels write messages (parts, planes, *sizes), a part for each device; a received one is a piece of the block.
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

MOST_PARTS = 16  # most parts that are copied into the block one by one


class Rows(NamedTuple):
    dim: int
    start: int
    size: int


class Came(NamedTuple):
    source: int
    dim: int
    parts: int
    pieces: int


class Ports(NamedTuple):
    """What kernels read and write: some rows of planes, or pieces; planes, or (dimension, parts) of one array."""

    rows: Rows | None = None
    came: Came | None = None
    sent: tuple[int, int] | None = None


PLANES = Ports()


@dataclasses.dataclass(frozen=True)
class Pieces:
    """A block of planes in pieces, each (parts, planes, *sizes). Positions of `source` are (part, row), those of `dim`,
    which chunks cut, (chunk, row); if both are one dimension, (part, chunk, row)."""

    arrays: tuple[Array, ...]
    source: int
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
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
        return self.arrays[0].shape[0]

    @property
    def came(self) -> Came:
        return Came(self.source, self.dim, self.parts, len(self.arrays))

    def joined(self) -> Planes:
        """Copies the pieces into planes, part by part if parts are few."""
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
        _, _, *sizes = self.arrays[0].shape
        at = [0] * len(sizes)
        at[self.source] = part * sizes[self.source] * (len(self.arrays) if self.source == self.dim else 1)
        at[self.dim] += chunk * sizes[self.dim]
        return at


def joined(block: B | Pieces) -> B | Planes:
    return block.joined() if isinstance(block, Pieces) else block


def in_parts(planes: Planes, dim: int, parts: int) -> Array:
    """Copies planes into one array (parts, planes, *sizes), with a dimension split into parts."""
    return jnp.moveaxis(unfolded(jnp.stack(planes), dim + 1, parts), dim + 1, 0)


def exchange_parts(sent: Array, axis_names: tuple[str, ...], wire: Wire = EXACT) -> Array:
    """Sends a part to each device of the ring of mesh axes and returns the parts received, as one message."""
    return carried(lambda parts: lax.all_to_all(parts, axis_names, 0, 0), sent, wire, first=1)


def taken(block: Array, dim: int, start: int, size: int) -> Array:
    """Some rows of every part, merged into one dimension."""
    return folded(lax.slice_in_dim(block, start, start + size, axis=dim + 1), dim)


def assembled(chunks: Sequence[Array], dim: int, parts: int) -> Array:
    """Joins chunks of rows of every part, each written when it arrives."""
    rows = [unfolded(chunk, dim, parts) for chunk in chunks]
    shape, many = rows[0].shape, sum(chunk.shape[dim + 1] for chunk in rows)
    result, start = lax.empty((*shape[: dim + 1], many, *shape[dim + 2 :]), chunks[0].dtype), 0
    for chunk in rows:
        result = lax.dynamic_update_slice_in_dim(result, chunk, start, dim + 1)
        start += chunk.shape[dim + 1]
    return folded(result, dim)


def _brought(piece: Array, source: int) -> Array:
    return folded(jnp.moveaxis(piece, 0, source), source)
