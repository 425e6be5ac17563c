"""What the kernels do chunk by chunk: weights of 128 points, a point to each lane, and products of float32 numbers.

A float32 number is the sum of three bfloat16 ones, cut off and not rounded, which is exact. Of the nine products of two
such sums six count (`strips.TERMS`); what is left out is 2^-24 of the whole.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...nufft.grid.form import Form
from ...nufft.grid.window import phi
from .strips import LANES, MANY, SUBLANES, Strip

Ref = Any  # memory that a kernel reads and writes; Pallas names no type for it

T = TypeVar("T")


class Work(NamedTuple):
    """What a kernel works on.

    Attributes:
        strip: its sizes.
        form: the window.
        along: the dimension whose window is replaced by its derivative.
        d: dimensions.
        coils: worked on at a time; of each there are a real and an imaginary plane.
    """

    strip: Strip
    form: Form
    along: int | None
    d: int
    coils: int

    @property
    def unrolled(self) -> int:
        """Chunks in one body of a loop, for the compiler to interleave."""
        return max(4, 8 // self.coils) if self.d == 2 else max(2, 4 // self.coils)


class Chunk(NamedTuple):
    """What the table says of a chunk (see `strips.chunk_table`)."""

    last: Array
    following: Array
    parity: Array
    lead: Array
    row: Array
    then_lead: Array
    then_row: Array
    fresh: Array


def chunk_at(table: Ref, i: Array) -> Chunk:
    """A chunk's column of the table."""
    return Chunk(*(table[k, i & (MANY - 1)] for k in range(8)))


def runs(count: Ref, run: Callable[[Array, Array], Array]) -> None:
    """Calls run(first, end) for the chunks of this step of the grid, each from where the one before says it ended."""
    begin = pl.program_id(1) * MANY
    end = jnp.minimum(begin + MANY, count[0])
    lax.while_loop(lambda i: i < end, lambda i: run(i, end), begin)


def each(
    first: Array, stop: Array, at_once: int, make: Callable[[Array], T], store: Callable[[Array, T], None]
) -> None:
    """Makes and stores chunks; those of one body are all made before the first is stored."""

    def some(i: Array, number: int) -> None:
        for u, made in enumerate([make(i + u) for u in range(number)]):
            store(i + u, made)

    groups = lax.div(stop - first, at_once)
    lax.fori_loop(0, groups, lambda g, _: some(first + g * at_once, at_once), None)
    lax.fori_loop(first + groups * at_once, stop, lambda i, _: some(i, 1), None)


class Copies(NamedTuple):
    """Copies of a strip's real and imaginary planes."""

    both: list[Any]

    def start(self) -> None:
        """Starts both."""
        for one in self.both:
            one.start()

    def wait(self) -> None:
        """Waits for both."""
        for one in self.both:
            one.wait()


def copies(
    slow: Sequence[Ref], fast: Ref, done: Ref, where: tuple[Array, Array, Array], strip: Strip, back: bool = False
) -> Copies:
    """The copies of a strip, from the coil, lead and row that it begins with, to fast memory or back."""
    coil, lead, row = where
    number = fast.shape[0] // 2
    rows = pl.ds(pl.multiple_of(row & -SUBLANES, SUBLANES), strip.fetched)
    both = []
    for part, whole in enumerate(slow):
        there = whole.at[pl.ds(coil * number, number), pl.ds(lead, strip.lead), :, rows, :]
        here = fast.at[pl.ds(part * number, number)]
        both.append(pltpu.make_async_copy(*((here, there) if back else (there, here)), done.at[part]))
    return Copies(both)


def weights(first: Ref, offset: Ref, i: Array, work: Work) -> tuple[Array, Array]:
    """Of a chunk's points the products of the leading windows, (depth, 128), and the last, (cells, 128)."""
    strip, at = work.strip, pl.ds(i & (MANY - 1), 1)
    sizes = (-(-strip.lead // SUBLANES) * SUBLANES, strip.rows, strip.cells)[-work.d :]
    tables = [
        _window(first[j, at, :], offset[j, at, :], size, work.form, work.along == j) for j, size in enumerate(sizes)
    ]
    if work.d == 2:
        return tables[0], tables[1]
    return jnp.concatenate([tables[0][a : a + 1] * tables[1] for a in range(strip.lead)]), tables[2]


def _window(first: Array, offset: Array, cells: int, form: Form, slope: bool) -> Array:
    """phi, or its derivative in the offset, of `cells` cells (sublanes) about points (lanes) that may touch cells from
    `first` on; both (1, 128)."""
    cell = lax.broadcasted_iota(jnp.int32, (cells, LANES), 0).astype(jnp.float32)
    x = cell - (first.astype(jnp.float32) + np.float32((form.reach - 1) / 2)) - offset
    return phi(x, form.width, form.coefficients, int(slope))


def parts(x: Array) -> tuple[Array, Array, Array]:
    """Three numbers of eight bits each that add up to float32 ones."""
    high = _cut(x)
    middle = _cut(x - high)
    return high, middle, x - high - middle


def _cut(x: Array) -> Array:
    bits = lax.bitcast_convert_type(x, jnp.uint32) & np.uint32(0xFFFF0000)
    return lax.bitcast_convert_type(bits, jnp.float32)


def stacked(rows: Sequence[Array], height: int) -> Array:
    """Arrays one below the other, filled up with zeros."""
    missing = height - sum(one.shape[0] for one in rows)
    filled = [*rows, jnp.zeros((missing, LANES), jnp.float32)] if missing else list(rows)
    return jnp.concatenate(filled) if len(filled) > 1 else filled[0]


def product(left: Array, right: Array, over: int) -> Array:
    """The product of bfloat16 numbers, summed in float32 over the left's lanes and a dimension of the right."""
    dims = (((1,), (over,)), ((), ()))
    left, right = left.astype(jnp.bfloat16), right.astype(jnp.bfloat16)
    return lax.dot_general(left, right, dims, preferred_element_type=jnp.float32)


def every_tile(strip: Strip, body: Callable[[Array, Ref], None]) -> None:
    """Calls body(t, lanes) for each 128 cells of the last dimension."""

    def turn(t: Array, _: None) -> None:
        body(t, pl.ds(pl.multiple_of(t * LANES, LANES), LANES))

    lax.fori_loop(0, strip.lane_tiles, turn, None)


def when(condition: Array | bool, action: Callable[[], object]) -> None:
    """Does something where a condition holds."""

    @pl.when(condition)
    def _() -> None:
        action()
