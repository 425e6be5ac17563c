"""The weights of a window about scattered points, and the form in which one device works on them.

A point lies at an offset v in (-1/2, 1/2] cells from the middle of the W = width + 2 slack cells that it may touch.
With s = max(1 - z^2, 0) the weight of cell l, counted from the lowest one that it may touch, is

    phi(z) = s q(s - 1/2),   z = (l - (W - 1)/2 - v) 2/width,

which is zero beyond the window, as its derivatives in v are: (-2/width)^n d^n phi/dz^n. Invariant: an empty slot has
cell -1 and weighs nothing, whatever its offset.
"""

import functools
from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
from jax import Array, lax
from numpy.polynomial import Polynomial


class Slots(Protocol):
    """The points of one device in slots, K to a chunk; see nufft/grid/binning.py."""

    @property
    def cell(self) -> Array:
        """The lowest cell touched, (slots, d), -1 where there is no point."""

    @property
    def offset(self) -> Array:
        """The offsets, (slots, d)."""

    @property
    def start(self) -> Array:
        """The first cell of every chunk's tile, (chunks, d)."""

    @property
    def count(self) -> Array:
        """The chunks that hold points, which come first."""


@dataclass(frozen=True)
class Form:
    """How one device interpolates and spreads: point by point ("points"), by gathers, or by dense products ("tiles").

    Attributes:
        kind: "points", "gather", "tiles", or "strips", which are tiles of such shapes as TPUs want.
        tile: lowest cells of a chunk's points lie in a tile of this shape.
        chunk: slots of a chunk.
        width: cells of the window in every dimension.
        slack: cells by which a point may have moved since it was placed, to either side.
        coefficients: of q in s - 1/2, lowest first.
    """

    kind: str
    tile: tuple[int, ...]
    chunk: int
    width: int
    slack: int
    coefficients: tuple[float, ...]

    @property
    def reach(self) -> int:
        """Cells that a point may touch in each dimension."""
        return self.width + 2 * self.slack


def weights(offset: Array, lowest: Array | None, cells: int, form: Form, order: int, dim: int = -1) -> Array:
    """phi of `cells` cells on a new dimension, or a derivative of it in the offset; `lowest` says where among them the
    first cell is that the point may touch: it is the first of them where there is None."""
    shape = list(offset.shape)
    shape.insert(dim % (offset.ndim + 1), cells)
    cell = lax.broadcasted_iota(jnp.int32, shape, dim % (offset.ndim + 1))
    if lowest is not None:
        cell = cell - jnp.expand_dims(lowest, dim)
    z = (cell.astype(offset.dtype) - (form.reach - 1) / 2 - jnp.expand_dims(offset, dim)) * (2 / form.width)
    s = jnp.maximum(1 - z * z, 0)
    if order == 0:
        return s * _polynomial(form.coefficients, s - 0.5)
    even, odd = (_polynomial(part, s - 0.5) for part in _derived(form.coefficients, order))
    return jnp.where(s > 0, even + z * odd, 0) * (-2 / form.width) ** order


@functools.lru_cache(maxsize=64)
def _derived(coefficients: tuple[float, ...], order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Polynomials a and b in t = s - 1/2 with d^n phi / dz^n = a + z b; ds/dz = -2 z and z^2 = 1/2 - t."""
    even, odd = Polynomial(coefficients) * Polynomial([0.5, 1.0]), Polynomial([0.0])
    for _ in range(order):
        even, odd = odd - Polynomial([1.0, -2.0]) * odd.deriv(), -2 * even.deriv()
    return tuple(map(float, even.coef)), tuple(map(float, odd.coef))


def _polynomial(coefficients: tuple[float, ...], t: Array) -> Array:
    sum_ = jnp.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        sum_ = sum_ * t + float(c)
    return sum_
