"""The kernel that interpolates: from a strip, turned, to the values of its chunks.

    r[k] = sum_b R[b, k] sum_a turned[b, a] L[a, k]

for points k on lanes, cells b of the last dimension on sublanes, and the cells a of the others, which a product sums
over. While one strip is worked on the next is copied.
"""

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from .chunks import Copies, Ref, Work, chunk_at, copies, each, every_tile, parts, product, runs, stacked, weights, when
from .strips import LANES, MANY, SUBLANES, Strip


def scratch(work: Work) -> list[tuple[int, ...]]:
    """Fast memory: a strip as it comes, twice, and turned, in the parts that products take."""
    strip = work.strip
    raw = (2, 2 * work.coils, strip.lead, strip.lane_tiles, strip.fetched, LANES)
    return [raw, (len(strip.factors), strip.wide, 2 * work.coils, strip.lane_tiles * LANES, LANES)]


def kernel(
    count: Ref,
    table: Ref,
    first: Ref,
    offset: Ref,
    real: Ref,
    imag: Ref,
    real_out: Ref,
    imag_out: Ref,
    raw: Ref,
    turned: Ref,
    done: Ref,
    *,
    work: Work,
) -> None:
    """Values (coils, MANY, 128), in two planes, of a step of the grid (coils, chunks)."""
    coil = pl.program_id(0)

    def fetched(lead: Array, row: Array, parity: Array) -> Copies:
        return copies((real, imag), raw.at[parity], done.at[parity], (coil, lead, row), work.strip)

    def run(i: Array, end: Array) -> Array:
        now = chunk_at(table, i)

        def begin() -> None:
            this = fetched(now.lead, now.row, now.parity)
            when(i == 0, this.start)
            when(now.following < count[0], fetched(now.then_lead, now.then_row, 1 - now.parity).start)
            this.wait()
            _turn(raw.at[now.parity], turned, now.row & (SUBLANES - 1), work.strip)

        def values(i: Array) -> Array:
            return _values(turned, table[0, i & (MANY - 1)], weights(first, offset, i, work), work)

        def store(i: Array, made: Array) -> None:
            for part, out in enumerate((real_out, imag_out)):
                out[:, pl.ds(i & (MANY - 1), 1), :] = made[part * work.coils : (part + 1) * work.coils]

        when(now.fresh == 1, begin)
        stop = jnp.minimum(now.following, end)
        each(i, stop, work.unrolled, values, store)
        return stop

    runs(count, run)


def _turn(raw: Ref, turned: Ref, row: Array, strip: Strip) -> None:
    """Puts the last dimension on sublanes; the parts stay in float32, so that any sublane can come first."""
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
                    turned[f, w, plane, lanes, :] = y

    every_tile(strip, tile)


def _values(turned: Ref, at: Array, tables: tuple[Array, Array], work: Work) -> Array:
    strip, total = work.strip, jnp.zeros((), jnp.float32)
    given = parts(tables[0])
    for terms in strip.passes:
        factor = strip.factors.index(tuple(i for i, _ in terms))
        right = stacked([given[j] for _, j in terms], strip.wide * LANES)
        for w in range(strip.wide):
            left = [turned[factor, w, plane, pl.ds(at, strip.cells), :] for plane in range(2 * work.coils)]
            total = total + product(jnp.concatenate(left), right[w * LANES : (w + 1) * LANES], 0)
    total = total.reshape(2 * work.coils, strip.cells, LANES) * tables[1][None]
    return jnp.sum(total, axis=1, keepdims=True)
