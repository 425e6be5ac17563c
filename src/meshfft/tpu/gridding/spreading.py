"""The kernel that spreads, the transpose of the one that interpolates: chunks add up to a strip, turned.

    sums[b, a] = sum_k R[b, k] c[k] L[a, k]

over a strip's points k. At its end the strip is copied in, what was summed is added, and it is copied back. Strips
overlap, so each is copied in only when the one before has been copied back: the copy starts when half of the chunks are
done, and that back goes on under the next strip's.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from .chunks import Ref, Work, chunk_at, copies, each, every_tile, parts, product, runs, stacked, weights, when
from .strips import LANES, MANY, SUBLANES, Strip


def scratch(work: Work) -> list[tuple[int, ...]]:
    """Fast memory: a strip as it comes, and what is to be added to it, turned."""
    strip = work.strip
    raw = (2 * work.coils, strip.lead, strip.lane_tiles, strip.fetched, LANES)
    return [raw, (strip.wide, 2 * work.coils, strip.lane_tiles * LANES, LANES)]


def kernel(
    count: Ref,
    table: Ref,
    first: Ref,
    offset: Ref,
    real_in: Ref,
    imag_in: Ref,
    _: Ref,
    __: Ref,
    real: Ref,
    imag: Ref,
    raw: Ref,
    sums: Ref,
    done: Ref,
    *,
    work: Work,
) -> None:
    """Adds values (coils, MANY, 128), in two planes, of a step of the grid (coils, chunks) to planes of zeros."""
    coil = pl.program_id(0)

    def run(i: Array, end: Array) -> Array:
        now = chunk_at(table, i)
        where, fresh = (coil, now.lead, now.row), now.fresh == 1
        fetched = copies((real, imag), raw, done.at[0], where, work.strip)
        back = copies((real, imag), raw, done.at[1], where, work.strip, back=True)
        end = jnp.minimum(now.following, end)
        stop = jnp.where(fresh, i + lax.div(end - i + 1, 2), end)

        def clear() -> None:
            sums[...] = jnp.zeros(sums.shape, jnp.float32)

        def cells(i: Array) -> list[Array]:
            left, right = weights(first, offset, i, work)
            given = jnp.concatenate([plane[:, pl.ds(i & (MANY - 1), 1), :] for plane in (real_in, imag_in)])
            rows = (given * right[None]).reshape(-1, LANES)
            return _cells(rows, left, work.strip)

        def store(i: Array, made: list[Array]) -> None:
            size, at = work.strip.cells, pl.ds(table[0, i & (MANY - 1)], work.strip.cells)
            for w in range(work.strip.wide):
                for plane in range(2 * work.coils):
                    sums[w, plane, at, :] += made[w][plane * size : (plane + 1) * size]

        def fetch() -> None:
            when(i > 0, back.wait)  # the strip before: all are of one size
            fetched.start()

        def finish() -> None:
            fetched.wait()
            _add(sums, raw, now.row & (SUBLANES - 1), work.strip)
            back.start()
            when(stop == count[0], back.wait)

        when(fresh, clear)
        each(i, stop, work.unrolled, cells, store)
        when(fresh, fetch)
        when(stop == now.following, finish)
        return stop

    runs(count, run)


def _cells(rows: Array, left: Array, strip: Strip) -> list[Array]:
    """What a chunk adds: (planes x cells, 128) for each 128 of the depth, parts of the weights side by side."""
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
    """Adds the sums of a strip, turned back and the parts together, to the strip itself."""

    def tile(t: Array, lanes: Ref) -> None:
        for plane in range(raw.shape[0]):
            x = jnp.concatenate([sums[w, plane, lanes, :].T for w in range(strip.wide)])
            total: Any = sum(x[c * strip.depth : (c + 1) * strip.depth] for c in range(strip.copies))
            for a in range(strip.lead):
                raw[plane, a, t, pl.ds(row, strip.rows), :] += total[a * strip.rows : (a + 1) * strip.rows]

    every_tile(strip, tile)
