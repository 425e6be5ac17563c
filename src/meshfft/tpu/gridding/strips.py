"""Strips of a block of the fine grid in a TPU's fast memory, and the products in bfloat16 that make float32 ones.

A tile is T_1 x .. x T_d lowest cells, whose points touch A_i = T_i + W - 1 cells. All tiles that differ in the last
dimension alone share a strip: A_1 x .. x A_(d-1) cells by the whole last dimension. It is fetched once, while the strip
before is worked on, and turned, so that the last dimension lies on sublanes, where any first cell will do, and the
D = A_1 .. A_(d-1) cells of the others on the lanes, which a product sums over:

    raw (planes, A_1, lane tiles, rows, 128)  ->  turned (factor, plane, last dimension, 128 x wide)

A float32 number is the sum of three bfloat16 ones, cut off and not rounded, which is exact. Of the nine products of two
such sums six count. Where D is small several of them lie side by side on the lanes: one product sums them all.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from ...nufft.grid.form import Form

LANES, SUBLANES = 128, 8
MANY = 128  # chunks whose points are copied in one go
TERMS = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0))  # parts of the strip and of the weights, largest first
EMPTY = -(2**20)  # where a slot without a point seems to lie: out of every window


class Strip(NamedTuple):
    """The sizes of a strip.

    Attributes:
        lead: cells of the first dimension, 1 in two dimensions.
        rows: cells of the last but one, a multiple of 8.
        cells: of a chunk's tile in the last dimension, a multiple of 8.
        lane_tiles: 128 cells of the last dimension each.
    """

    lead: int
    rows: int
    cells: int
    lane_tiles: int

    @property
    def depth(self) -> int:
        """What is summed over."""
        return self.lead * self.rows

    @property
    def fetched(self) -> int:
        """Rows that a copy takes, from a multiple of 8 on."""
        return self.rows + SUBLANES

    @property
    def wide(self) -> int:
        """Registers' width of the depth."""
        return -(-self.depth // LANES)

    @property
    def copies(self) -> int:
        """Parts that fit side by side on the lanes."""
        return min(3, max(1, LANES // self.depth))

    @property
    def passes(self) -> list[tuple[tuple[int, int], ...]]:
        """The terms of each product, side by side."""
        beside = max(1, LANES // self.depth)
        return [TERMS[i : i + beside] for i in range(0, len(TERMS), beside)]

    @property
    def factors(self) -> list[tuple[int, ...]]:
        """The different left factors: which parts of the strip lie side by side."""
        return list(dict.fromkeys(tuple(i for i, _ in one) for one in self.passes))


def strip_of(form: Form, shape: tuple[int, ...]) -> Strip:
    """The strip of a form in a block (B_1, .., B_d)."""
    cells = [tile + form.reach - 1 for tile in form.tile]
    rows, last = (_up(n, SUBLANES) for n in cells[-2:])
    return Strip(math.prod(cells[:-2]), rows, last, -(-(shape[-1] + last) // LANES))


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def laid_out(plane: Array, strip: Strip) -> Array:
    """A real plane (C, B_1, .., B_d) as (C, B_1, lane tiles, B_2, 128), filled up with zeros."""
    plane = plane.reshape(-1, *_three(plane.shape[1:]))
    lead, tiles, rows, _ = slow_shape(plane.shape[1:], strip)
    room = (lead, rows, tiles * LANES)
    fill = [(0, n - b) for n, b in zip(room, plane.shape[1:], strict=True)]
    return jnp.pad(plane, [(0, 0), *fill]).reshape(-1, lead, rows, tiles, LANES).transpose(0, 1, 3, 2, 4)


def _three(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (3 - len(shape)) + tuple(shape)


def slow_shape(shape: tuple[int, ...], strip: Strip) -> tuple[int, int, int, int]:
    """A plane of a block in the slow memory: strips are copied from a row that is a multiple of 8 on."""
    lead, rows, _ = _three(shape)
    return max(lead, strip.lead), strip.lane_tiles, _up(rows + strip.fetched, SUBLANES), LANES


def brought_back(plane: Array, shape: tuple[int, ...]) -> Array:
    """The real plane (C, B_1, .., B_d) of what `laid_out` makes."""
    lead, rows, last = _three(shape)
    plane = plane.transpose(0, 1, 3, 2, 4).reshape(*plane.shape[:2], plane.shape[3], -1)
    return plane[:, :lead, :rows, :last].reshape(-1, *shape)


def chunk_table(start: Array, count: Array) -> Array:
    """What the kernel asks of each chunk, 8 integers: first cell in the last dimension; the chunk that the next strip
    begins with, or `count`; parity of the strip; first cells of the strip in the first dimension and in the second; of
    the next strip; whether the strip begins here. (8, chunks), filled up to a multiple of MANY."""
    chunks, d = start.shape
    number = jnp.arange(chunks, dtype=jnp.int32)
    lead = start[:, 0] if d == 3 else jnp.zeros_like(start[:, 0])
    strip = jnp.stack([lead, start[:, -2]])
    fresh = (number == 0) | jnp.any(strip != jnp.roll(strip, 1, axis=1), axis=0)
    begins = jnp.where(fresh & (number < count), number, count)
    following = lax.cummin(jnp.concatenate([begins[1:], jnp.reshape(count, 1).astype(jnp.int32)]), reverse=True)
    parity = (jnp.cumsum(fresh.astype(jnp.int32), dtype=jnp.int32) - 1) % 2
    then = strip[:, jnp.minimum(following, chunks - 1)]
    table = jnp.stack([start[:, -1], following, parity, *strip, *then, fresh.astype(jnp.int32)])
    return jnp.pad(table, ((0, 0), (0, -chunks % MANY)))


def points_of(cell: Array, offset: Array, start: Array) -> tuple[Array, Array]:
    """First cells from those of the chunk's tile, and offsets, as (d, chunks, 128); a slot without a point lies far
    away."""
    (chunks, d), fill = start.shape, ((0, 0), (0, -start.shape[0] % MANY), (0, 0))
    cell, offset = (x.T.reshape(d, chunks, LANES) for x in (cell, offset))
    first = jnp.where(cell < 0, EMPTY, cell - start.T[:, :, None])
    return jnp.pad(first, fill), jnp.pad(jnp.where(cell < 0, 0, offset), fill)
