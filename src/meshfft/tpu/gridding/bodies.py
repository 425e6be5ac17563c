"""The kernels that interpolate and spread, chunk by chunk of a strip (chunks.py).

    interpolate   r[k] = sum_b R[b, k] sum_a strip[b, a] L[a, k]
    spread        sums[b, a] = sum_k R[b, k] r[k] L[a, k],   added to a strip that is copied in and back

for points k on lanes, cells b of the last dimension on sublanes, and cells a of the other dimensions, which a product
sums over. The next strip is copied while one is interpolated. Strips overlap, so spreading copies one in only after the
previous one is copied back. The copy in starts when half of the chunks are done; the copy back overlaps the next strip.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from ..lines.memory import Ref
from ..lines.radices import LANES, SUBLANES
from .chunks import (
    MANY,
    Copies,
    Strip,
    Task,
    chunk_at,
    copies,
    each,
    every_tile,
    parts,
    product,
    runs,
    stacked,
    weights,
)


class Body(NamedTuple):
    name: str
    run: Callable[..., None]
    scratch: Callable[[Task], list[tuple[int, ...]]]


def _interpolate(*refs: Ref, task: Task) -> None:
    count, table, first, offset, real, imag, real_out, imag_out, raw, transposed, done = refs
    coil = pl.program_id(0)

    def fetched(lead: Array, row: Array, parity: Array) -> Copies:
        return copies((real, imag), raw.at[parity], done.at[parity], (coil, lead, row), task.strip)

    def run(i: Array, end: Array) -> Array:
        now = chunk_at(table, i)

        def begin() -> None:
            this = fetched(now.lead, now.row, now.parity)
            pl.when(i == 0)(this.start)
            pl.when(now.following < count[0])(fetched(now.then_lead, now.then_row, 1 - now.parity).start)
            this.wait()
            _transpose(raw.at[now.parity], transposed, now.row & (SUBLANES - 1), task.strip)

        def values(i: Array) -> Array:
            return _values(transposed, table[0, i & (MANY - 1)], weights(first, offset, i, task), task)

        def store(i: Array, made: Array) -> None:
            for part, out in enumerate((real_out, imag_out)):
                out[:, pl.ds(i & (MANY - 1), 1), :] = made[part * task.coils : (part + 1) * task.coils]

        pl.when(now.fresh == 1)(begin)
        stop = jnp.minimum(now.following, end)
        each(i, stop, task.unrolled, values, store)
        return stop

    runs(count, run)


def _interpolate_scratch(task: Task) -> list[tuple[int, ...]]:
    strip = task.strip
    raw = (2, 2 * task.coils, strip.lead, strip.lane_tiles, strip.fetched, LANES)
    return [raw, (len(strip.factors), strip.wide, 2 * task.coils, strip.lane_tiles * LANES, LANES)]


def _transpose(raw: Ref, transposed: Ref, row: Array, strip: Strip) -> None:
    """Moves the last dimension to sublanes; parts stay in float32, so that any sublane can be the first."""
    copies, lane = max(1, LANES // strip.depth), lax.broadcasted_iota(jnp.int32, (LANES, LANES), 1)

    def tile(t: Array, lanes: Ref) -> None:
        for plane in range(raw.shape[0]):
            rows = [raw[plane, a, t, pl.ds(row, strip.rows), :] for a in range(strip.lead)]
            x = stacked(rows * copies, strip.wide * LANES)
            for w in range(strip.wide):
                given = parts(x[w * LANES : (w + 1) * LANES].T)
                for f, which in enumerate(strip.factors):
                    y = given[which[-1]]
                    for g in reversed(range(len(which) - 1)):
                        y = jnp.where(lane < (g + 1) * strip.depth, given[which[g]], y)
                    transposed[f, w, plane, lanes, :] = y

    every_tile(strip, tile)


def _values(transposed: Ref, at: Array, tables: tuple[Array, Array], task: Task) -> Array:
    strip, total = task.strip, jnp.zeros((), jnp.float32)
    given = parts(tables[0])
    for terms in strip.passes:
        factor = strip.factors.index(tuple(i for i, _ in terms))
        right = stacked([given[j] for _, j in terms], strip.wide * LANES)
        for w in range(strip.wide):
            left = [transposed[factor, w, plane, pl.ds(at, strip.cells), :] for plane in range(2 * task.coils)]
            total = total + product(jnp.concatenate(left), right[w * LANES : (w + 1) * LANES], 0)
    total = total.reshape(2 * task.coils, strip.cells, LANES) * tables[1][None]
    return jnp.sum(total, axis=1, keepdims=True)


def _spread(*refs: Ref, task: Task) -> None:
    count, table, first, offset, real_in, imag_in, _, _, real, imag, raw, sums, done = refs
    coil, strip = pl.program_id(0), task.strip

    def run(i: Array, end: Array) -> Array:
        now = chunk_at(table, i)
        where, fresh = (coil, now.lead, now.row), now.fresh == 1
        fetched = copies((real, imag), raw, done.at[0], where, strip)
        back = copies((real, imag), raw, done.at[1], where, strip, back=True)
        end = jnp.minimum(now.following, end)
        stop = jnp.where(fresh, i + lax.div(end - i + 1, 2), end)

        def clear() -> None:
            sums[...] = jnp.zeros(sums.shape, jnp.float32)

        def cells(i: Array) -> list[Array]:
            left, right = weights(first, offset, i, task)
            given = jnp.concatenate([plane[:, pl.ds(i & (MANY - 1), 1), :] for plane in (real_in, imag_in)])
            return _cells((given * right[None]).reshape(-1, LANES), left, strip)

        def store(i: Array, made: list[Array]) -> None:
            size, at = strip.cells, pl.ds(table[0, i & (MANY - 1)], strip.cells)
            for w in range(strip.wide):
                for plane in range(2 * task.coils):
                    sums[w, plane, at, :] += made[w][plane * size : (plane + 1) * size]

        def fetch() -> None:
            pl.when(i > 0)(back.wait)  # the previous strip: all have one size
            fetched.start()

        def finish() -> None:
            fetched.wait()
            _add(sums, raw, now.row & (SUBLANES - 1), strip)
            back.start()
            pl.when(stop == count[0])(back.wait)

        pl.when(fresh)(clear)
        each(i, stop, task.unrolled, cells, store)
        pl.when(fresh)(fetch)
        pl.when(stop == now.following)(finish)
        return stop

    runs(count, run)


def _spread_scratch(task: Task) -> list[tuple[int, ...]]:
    strip = task.strip
    raw = (2 * task.coils, strip.lead, strip.lane_tiles, strip.fetched, LANES)
    return [raw, (strip.wide, 2 * task.coils, strip.lane_tiles * LANES, LANES)]


def _cells(rows: Array, left: Array, strip: Strip) -> list[Array]:
    """Sums of a chunk: (planes x cells, 128) for each 128 of the depth, with parts of the weights side by side."""
    of_rows, of_left, size = parts(rows), parts(left), rows.shape[0]
    totals = [jnp.zeros((size, LANES), jnp.float32)] * strip.wide
    for j in range(0, 3, strip.copies):
        right = stacked(of_left[j : j + strip.copies], strip.wide * LANES)
        for w in range(strip.wide):
            made = product(jnp.concatenate(of_rows[: 3 - j]), right[w * LANES : (w + 1) * LANES], 1)
            for i in range(3 - j):
                totals[w] = totals[w] + made[i * size : (i + 1) * size]
    return totals


def _add(sums: Ref, raw: Ref, row: Array, strip: Strip) -> None:
    def tile(t: Array, lanes: Ref) -> None:
        for plane in range(raw.shape[0]):
            x = jnp.concatenate([sums[w, plane, lanes, :].T for w in range(strip.wide)])
            total: Any = sum(x[c * strip.depth : (c + 1) * strip.depth] for c in range(strip.copies))
            for a in range(strip.lead):
                raw[plane, a, t, pl.ds(row, strip.rows), :] += total[a * strip.rows : (a + 1) * strip.rows]

    every_tile(strip, tile)


INTERPOLATING = Body("interpolating", _interpolate, _interpolate_scratch)
SPREADING = Body("spreading", _spread, _spread_scratch)
