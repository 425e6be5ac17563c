"""FFTs beside all-to-alls: sent in parts, and read in pieces as they arrived (collectives/pieces.py).

planes or pieces -> kernels -> (parts, planes, *sizes) -> all-to-all -> pieces -> kernels
"""

from collections.abc import Sequence
from typing import NamedTuple

from jax import Array, lax

from ...collectives.pieces import Pieces, in_parts
from ...numerics.split_complex import Planes
from . import engine


class Rows(NamedTuple):
    """Some rows of a dimension: those that are transformed and sent at a time."""

    dim: int
    start: int
    size: int


def fft_to_parts(
    given: Planes | Pieces, dims: Sequence[int], sign: int, room: int, rows: Rows, target: int, parts: int
) -> Array:
    """Transforms some rows of a block, and divides dimension `target` into parts: (parts, planes, *sizes)."""
    planes = given.joined() if isinstance(given, Pieces) else given
    chunk = tuple(lax.slice_in_dim(plane, rows.start, rows.start + rows.size, axis=rows.dim) for plane in planes)
    return in_parts(engine.fft(chunk, dims, sign, room), target, parts)


def fft_of_pieces(pieces: Pieces, dims: Sequence[int], sign: int, room: int) -> Planes:
    """Transforms a block that lies in pieces."""
    return engine.fft(pieces.joined(), dims, sign, room)
