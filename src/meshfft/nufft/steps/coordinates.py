"""Coordinates of scattered points as fixed-point turns, on the devices that hold the points.

    V_m[j, n] = exp(sign 2 pi i k_jm n)          rows of Vandermonde matrices
    u = G k mod G                                the place on a grid of G cells: integer cell, and offset

Invariant: a multiple n k is exact modulo a turn. Where a coordinate of a point is not finite, its phases are NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...numerics import phases
from ...numerics.phases import Limbs
from ...numerics.split_complex import Planes


class Coordinates(NamedTuple):
    """Coordinates of some points."""

    limbs: Limbs  # each (coordinates, points)
    lost: Array  # NaN where a coordinate is not finite, else 0

    @property
    def size(self) -> int:
        return int(self.lost.shape[0])

    def phases(self, sign: int, dim: int, start: Array | int, size: int) -> Planes:
        """V[point, n] of one dimension for `size` positions n from `start`."""
        n = (start + jnp.arange(size, dtype=jnp.int32)).astype(jnp.uint32)
        turns = phases.times(n[None, :], tuple(limb[dim][:, None] for limb in self.limbs))
        return tuple(part + self.lost[:, None] for part in phases.circle(turns, sign, self.lost.dtype))

    def part(self, start: Array | int, size: int) -> "Coordinates":
        """`size` points from `start`."""
        return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size, x.ndim - 1), self)

    def in_chunks(self, size: int) -> "Coordinates":
        """Chunks of `size` points along a new first dimension; the last chunk is padded."""
        short = -self.size % size

        def cut(x: Array) -> Array:
            filled = jnp.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, short)])
            return jnp.moveaxis(filled.reshape(*x.shape[:-1], -1, size), -2, 0)

        return jax.tree.map(cut, self)


def fixed(operand: object, unit: str | None, dims: int, real: np.dtype) -> Coordinates:
    """Floats (dims, ...) in some unit, or limbs of that shape if there is none, for phases of a real type."""
    flat = jax.tree.map(lambda leaf: leaf.reshape(dims, -1), operand)
    if unit is None:
        return Coordinates(flat, jnp.zeros(flat[0].shape[1:], real))
    finite = jnp.isfinite(flat)
    of_unit = phases.of_turns if unit == "turns" else phases.of_radians
    limbs = of_unit(jnp.where(finite, flat, jnp.zeros((), flat.dtype)), phases.limbs_for(real))
    return Coordinates(limbs, jnp.where(finite.all(0), jnp.zeros((), real), jnp.full((), jnp.nan, real)))


def located(limbs: Limbs, cells: int, width: int, real: np.dtype) -> tuple[Array, Array]:
    """The lowest cell that a window touches on a ring of cells, and the offset in it, from -1/2 to 1/2."""
    whole, high, *low = phases.times(jnp.uint32(cells), (jnp.zeros_like(limbs[0]), *limbs))
    ahead = high ^ np.uint32(2**31) if width % 2 == 0 else high
    nearest = ahead.astype(jnp.int32)  # of even windows the cell's middle counts, of odd ones its lower end
    offset = nearest.astype(real) * real.type(2.0**-32)
    for j, limb in enumerate(low, 2):
        offset = offset + limb.astype(real) * real.type(2.0 ** (-32 * j))
    up = 1 if width % 2 == 0 else (high >> 31).astype(jnp.int32)
    lowest = whole.astype(jnp.int32) - width // 2 + up
    return jnp.where(lowest < 0, lowest + cells, lowest), offset
