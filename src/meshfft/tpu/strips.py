"""Strips of a grid and chunks of 128 points in a kernel, one point to a lane: weights, and products of float32 numbers.

A tile is T_1 x .. x T_d lowest cells, whose points touch A_i = T_i + W - 1 cells. Tiles that differ in the last
dimension alone share a strip: A_1 x .. x A_(d-1) cells by the whole last dimension. It is copied while the strip before
is processed, and transposed: then the last dimension is on sublanes, where any cell can be the first, and the
D = A_1 .. A_(d-1) cells of the other dimensions are on the lanes, which a product sums over:

    raw (planes, A_1, lane tiles, rows, 128)  ->  transposed (factor, wide, plane, last dimension, 128)

A float32 number is the exact sum of three truncated bfloat16 ones. Six of the nine products of two such sums count
(`TERMS`); the rest are 2^-24 of the whole. If D is small, several products are side by side on the lanes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ..machine.chip import rounded_up
from ..nufft.grid.form import Form
from ..nufft.grid.window import phi
from ..numerics.split_complex import Shape
from .lines.memory import Ref
from .lines.radices import LANES, SUBLANES

SMALL = 12 * 2**20  # bytes of fast memory that every TPU has
COILS = 4  # most coils at a time
MANY = 128  # chunks whose points are copied at once
TERMS = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0))  # parts of the strip and of the weights, largest first
T = TypeVar("T")


class Strip(NamedTuple):
    lead: int  # cells of the first dimension, 1 in two dimensions
    rows: int  # of the last but one, a multiple of 8
    cells: int  # of a chunk's tile in the last dimension, a multiple of 8
    lane_tiles: int  # of 128 cells of the last dimension

    @property
    def depth(self) -> int:
        return self.lead * self.rows

    @property
    def fetched(self) -> int:
        return self.rows + SUBLANES

    @property
    def wide(self) -> int:
        return -(-self.depth // LANES)

    @property
    def copies(self) -> int:
        return min(3, max(1, LANES // self.depth))

    @property
    def passes(self) -> list[tuple[tuple[int, int], ...]]:
        beside = max(1, LANES // self.depth)
        return [TERMS[i : i + beside] for i in range(0, len(TERMS), beside)]

    @property
    def factors(self) -> list[tuple[int, ...]]:
        return list(dict.fromkeys(tuple(i for i, _ in one) for one in self.passes))


class Task(NamedTuple):
    strip: Strip
    form: Form
    coils: int

    @property
    def d(self) -> int:
        return len(self.form.tile)

    @property
    def unrolled(self) -> int:
        return max(4, 8 // self.coils) if self.d == 2 else max(2, 4 // self.coils)

    def scratch(self, adds: bool) -> list[tuple[int, ...]]:
        """Shapes of the strip as copied, and of its lines or sums; interpolation copies a second one."""
        strip = self.strip
        raw = (2 * self.coils, strip.lead, strip.lane_tiles, strip.fetched, LANES)
        lines = (strip.wide, 2 * self.coils, strip.lane_tiles * LANES, LANES)
        return [raw, lines] if adds else [(2, *raw), (len(strip.factors), *lines)]

    @property
    def bytes(self) -> int:
        numbers = max(sum(map(math.prod, self.scratch(adds))) for adds in (False, True))
        return 4 * (numbers + 2 * MANY * LANES * (2 * self.d + 2 * self.coils)) + 2 * 2**20


def task_of(coils: int, shape: Shape, form: Form) -> Task:
    cells = [tile + form.reach - 1 for tile in form.tile]
    rows, last = (rounded_up(n, SUBLANES) for n in cells[-2:])
    strip = Strip(math.prod(cells[:-2]), rows, last, -(-(shape[-1] + last) // LANES))
    tasks = [Task(strip, form, n) for n in range(1, COILS + 1) if coils % n == 0]
    return max([task for task in tasks if task.bytes <= SMALL], default=tasks[0], key=lambda task: task.coils)


class Chunk(NamedTuple):
    last: Array  # first cell in the last dimension
    following: Array  # first chunk of the next strip, or the number of chunks
    parity: Array  # of the strip
    lead: Array  # first cell of the strip in the first dimension
    row: Array  # and in the second
    then_lead: Array  # of the next strip
    then_row: Array
    fresh: Array  # whether the strip begins here


def chunk_table(start: Array, count: Array) -> Array:
    """The integers of each `Chunk`, (8, chunks), padded to a multiple of MANY."""
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


def chunk_at(table: Ref, i: Array) -> Chunk:
    return Chunk(*(table[k, i & (MANY - 1)] for k in range(8)))


def runs(count: Ref, run: Callable[[Array, Array], Array]) -> None:
    """Calls run(first, end) over this grid step's chunks; it returns the next first."""
    begin = pl.program_id(1) * MANY
    end = jnp.minimum(begin + MANY, count[0])
    lax.while_loop(lambda i: i < end, lambda i: run(i, end), begin)


def each(first: Array, stop: Array, many: int, make: Callable[[Array], T], store: Callable[[Array, T], None]) -> None:
    """Makes and stores chunks; a loop body makes all of its `many` before it stores one."""

    def some(i: Array, number: int) -> None:
        for u, made in enumerate([make(i + u) for u in range(number)]):
            store(i + u, made)

    groups = lax.div(stop - first, many)
    lax.fori_loop(0, groups, lambda g, _: some(first + g * many, many), None)
    lax.fori_loop(first + groups * many, stop, lambda i, _: some(i, 1), None)


class Copies(NamedTuple):
    both: list[Any]

    def start(self) -> None:
        for one in self.both:
            one.start()

    def wait(self) -> None:
        for one in self.both:
            one.wait()


def copies(
    slow: Sequence[Ref], fast: Ref, done: Ref, where: tuple[Array, Array, Array], strip: Strip, back: bool = False
) -> Copies:
    """Copies of a strip from a coil, lead and row to fast memory, or back."""
    coil, lead, row = where
    number = fast.shape[0] // 2
    rows = pl.ds(pl.multiple_of(row & -SUBLANES, SUBLANES), strip.fetched)
    both = []
    for part, whole in enumerate(slow):
        there = whole.at[pl.ds(coil * number, number), pl.ds(lead, strip.lead), :, rows, :]
        here = fast.at[pl.ds(part * number, number)]
        both.append(pltpu.make_async_copy(*((here, there) if back else (there, here)), done.at[part]))
    return Copies(both)


def weights(first: Ref, offset: Ref, i: Array, task: Task) -> tuple[Array, Array]:
    """A chunk's products of the leading windows, (depth, 128), and its last windows, (cells, 128).

    A window has phi of cells (sublanes) about points (lanes), which touch cells from `first` on.
    """
    strip, form, at = task.strip, task.form, pl.ds(i & (MANY - 1), 1)

    def window(j: int, cells: int) -> Array:
        low, shift = first[j, at, :], offset[j, at, :]
        cell = lax.broadcasted_iota(jnp.int32, (cells, LANES), 0).astype(jnp.float32)
        x = cell - (low.astype(jnp.float32) + np.float32((form.reach - 1) / 2)) - shift
        return phi(x, form.width, form.coefficients)

    *lead, last = map(window, range(task.d), (rounded_up(strip.lead, SUBLANES), strip.rows, strip.cells)[-task.d :])
    if task.d == 2:
        return lead[0], last
    return jnp.concatenate([lead[0][a : a + 1] * lead[1] for a in range(strip.lead)]), last


def parts(x: Array) -> tuple[Array, Array, Array]:
    """Three numbers of eight bits each, with the sum x."""
    high = _cut(x)
    middle = _cut(x - high)
    return high, middle, x - high - middle


def _cut(x: Array) -> Array:
    bits = lax.bitcast_convert_type(x, jnp.uint32) & np.uint32(0xFFFF0000)
    return lax.bitcast_convert_type(bits, jnp.float32)


def stacked(rows: Sequence[Array], height: int) -> Array:
    missing = height - sum(one.shape[0] for one in rows)
    filled = [*rows, jnp.zeros((missing, LANES), jnp.float32)] if missing else list(rows)
    return jnp.concatenate(filled) if len(filled) > 1 else filled[0]


def product(left: Array, right: Array, over: int) -> Array:
    """The product of bfloat16 numbers, summed in float32."""
    dims = (((1,), (over,)), ((), ()))
    left, right = left.astype(jnp.bfloat16), right.astype(jnp.bfloat16)
    return lax.dot_general(left, right, dims, preferred_element_type=jnp.float32)


def every_tile(strip: Strip, body: Callable[[Array, Ref], None]) -> None:
    def tile(t: Array, _: None) -> None:
        body(t, pl.ds(pl.multiple_of(t * LANES, LANES), LANES))

    lax.fori_loop(0, strip.lane_tiles, tile, None)
