"""Interpolation and spreading of scattered points on a TPU, in two and three dimensions, float32.

    interpolate   r[k] = sum_b R[b, k] sum_a strip[b, a] L[a, k]
    spread        sums[b, a] = sum_k R[b, k] r[k] L[a, k],   added to a strip that is copied in and back

for points k on lanes, cells b of the last dimension on sublanes, and cells a of the other dimensions, which a product
sums over (strips.py). The next strip is copied while one is interpolated. Strips overlap, so spreading copies one in
only when half of its own chunks are done and the previous one is back.

Operands and results are those of nufft/grid/gridding.py, with tiles of `form.tpu_form` and chunks of 128 points. A
chunk costs the weights of its points (vector unit: 16 to 28 operations for each row of its tables), and 12 depth x
cells x 128 products a coil (matrix units).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ..machine.chip import rounded_up
from ..nufft.grid import gridding as by_xla
from ..nufft.grid.form import Form, Slots
from ..numerics.split_complex import Shape
from . import strips
from .lines.blocks import call
from .lines.memory import Ref
from .lines.radices import LANES, SUBLANES
from .strips import MANY, SMALL, Copies, Strip, Task, task_of

EMPTY = -(2**20)  # place of a slot without a point, outside every window
OnSlots = Callable[[Array, Slots], Array]


def interpolate(block: Array, slots: Slots, form: Form) -> Array:
    by_kernel, elsewhere = (functools.partial(way, form=form) for way in (interpolated, by_xla.interpolate))
    return _on_tpu(by_kernel, elsewhere, block, slots)


def spread(values: Array, slots: Slots, form: Form, shape: Shape) -> Array:
    by_kernel, elsewhere = (functools.partial(way, form=form, shape=shape) for way in (spread_out, by_xla.spread))
    return _on_tpu(by_kernel, elsewhere, values, slots)


def _on_tpu(by_kernel: OnSlots, elsewhere: OnSlots, x: Array, slots: Slots) -> Array:
    if x.dtype != jnp.complex64:
        return elsewhere(x, slots)
    return lax.platform_dependent(x, slots, tpu=by_kernel, default=elsewhere)


def interpolated(block: Array, slots: Slots, form: Form, interpret: bool = False) -> Array:
    task = task_of(block.shape[0], block.shape[1:], form)
    points = _points(slots)
    planes = [_opened(plane, task.strip) for plane in (block.real, block.imag)]
    shape = (block.shape[0], *points[0].shape[1:])
    real, imag = _run(_interpolate, task, slots, [*points, *planes], shape, interpret)
    values = jnp.where(points[0][:1] >= 0, lax.complex(real, imag), 0)
    return values.reshape(block.shape[0], -1)[:, : slots.cell.shape[0]]


def spread_out(values: Array, slots: Slots, form: Form, shape: Shape, interpret: bool = False) -> Array:
    coils, task = values.shape[0], task_of(values.shape[0], shape, form)
    points = _points(slots)
    chunks = values.shape[1] // LANES
    given = jnp.pad(values.reshape(coils, chunks, LANES), ((0, 0), (0, -chunks % MANY), (0, 0)))
    given = jnp.where(points[0][:1] >= 0, given, 0)
    zeros = [jnp.zeros((coils, *_slow_shape(shape, task.strip)), jnp.float32)] * 2
    operands = [*points, given.real, given.imag, *zeros]
    planes = _run(_spread, task, slots, operands, zeros[0].shape, interpret)
    return lax.complex(*(_closed(plane, shape) for plane in planes))


def _opened(plane: Array, strip: Strip) -> Array:
    """A real plane (C, B_1, .., B_d) as (C, B_1, lane tiles, B_2, 128), padded with zeros."""
    plane = plane.reshape(-1, *_three(plane.shape[1:]))
    lead, tiles, rows, _ = _slow_shape(plane.shape[1:], strip)
    fill = [(0, n - b) for n, b in zip((lead, rows, tiles * LANES), plane.shape[1:], strict=True)]
    return jnp.pad(plane, [(0, 0), *fill]).reshape(-1, lead, rows, tiles, LANES).transpose(0, 1, 3, 2, 4)


def _closed(plane: Array, shape: Shape) -> Array:
    lead, rows, last = _three(shape)
    plane = plane.transpose(0, 1, 3, 2, 4).reshape(*plane.shape[:2], plane.shape[3], -1)
    return plane[:, :lead, :rows, :last].reshape(-1, *shape)


def _slow_shape(shape: Shape, strip: Strip) -> tuple[int, int, int, int]:
    """A block's plane in slow memory: strips are copied from a row that is a multiple of 8."""
    lead, rows, _ = _three(shape)
    return max(lead, strip.lead), strip.lane_tiles, rounded_up(rows + strip.fetched, SUBLANES), LANES


def _three(shape: Shape) -> tuple[int, ...]:
    return (1,) * (3 - len(shape)) + tuple(shape)


def _points(slots: Slots) -> tuple[Array, Array]:
    """First cells relative to the tile's, and offsets, (d, chunks, 128); empty slots are far away."""
    (chunks, d), fill = slots.start.shape, ((0, 0), (0, -slots.start.shape[0] % MANY), (0, 0))
    cell, offset = (x.T.reshape(d, chunks, LANES) for x in (slots.cell, slots.offset))
    first = jnp.where(cell < 0, EMPTY, cell - slots.start.T[:, :, None])
    return jnp.pad(first, fill), jnp.pad(jnp.where(cell < 0, 0, offset), fill)


def _run(
    body: Callable[..., None], task: Task, slots: Slots, operands: list[Array], shape: Shape, interpret: bool
) -> list[Array]:
    count = jnp.minimum(slots.count, slots.start.shape[0]).astype(jnp.int32)
    operands = [jnp.reshape(count, 1), strips.chunk_table(slots.start, count), *operands]
    adds = body is _spread
    scratch = [pltpu.VMEM(one, jnp.float32) for one in task.scratch(adds)]
    integers, point, coil, anywhere = _blocks(task)
    return call(
        functools.partial(body, task=task),
        operands,
        [jax.ShapeDtypeStruct(shape, jnp.float32)] * 2,
        name="spreading" if adds else "interpolating",
        interpret=interpret,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(shape[0] // task.coils, operands[1].shape[1] // MANY),
            in_specs=[integers, point, point, *[coil] * (2 * adds), anywhere, anywhere],
            out_specs=[anywhere if adds else coil] * 2,
            scratch_shapes=[*scratch, pltpu.SemaphoreType.DMA((2, 2))],
        ),
        input_output_aliases={len(operands) - 2: 0, len(operands) - 1: 1} if adds else {},
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=max(task.bytes, SMALL) + 2 * 2**20),
    )


def _blocks(task: Task) -> tuple[pl.BlockSpec, ...]:
    def at(step: Array, count: Array) -> Array:
        # a step without points repeats the last block, so that nothing is copied
        return jnp.minimum(step, lax.div(jnp.maximum(count[0] - 1, 0), MANY))

    return (
        pl.BlockSpec((8, MANY), lambda c, i, n: (0, at(i, n)), memory_space=pltpu.SMEM),
        pl.BlockSpec((task.d, MANY, LANES), lambda c, i, n: (0, at(i, n), 0)),
        pl.BlockSpec((task.coils, MANY, LANES), lambda c, i, n: (c, at(i, n), 0)),
        pl.BlockSpec(memory_space=pl.ANY),
    )


def _interpolate(*refs: Ref, task: Task) -> None:
    count, table, first, offset, real, imag, real_out, imag_out, raw, transposed, done = refs
    coil = pl.program_id(0)

    def fetched(lead: Array, row: Array, parity: Array) -> Copies:
        return strips.copies((real, imag), raw.at[parity], done.at[parity], (coil, lead, row), task.strip)

    def run(i: Array, end: Array) -> Array:
        now = strips.chunk_at(table, i)

        def begin() -> None:
            this = fetched(now.lead, now.row, now.parity)
            pl.when(i == 0)(this.start)
            pl.when(now.following < count[0])(fetched(now.then_lead, now.then_row, 1 - now.parity).start)
            this.wait()
            _transpose(raw.at[now.parity], transposed, now.row & (SUBLANES - 1), task.strip)

        def values(i: Array) -> Array:
            return _values(transposed, table[0, i & (MANY - 1)], strips.weights(first, offset, i, task), task)

        def store(i: Array, made: Array) -> None:
            for part, out in enumerate((real_out, imag_out)):
                out[:, pl.ds(i & (MANY - 1), 1), :] = made[part * task.coils : (part + 1) * task.coils]

        pl.when(now.fresh == 1)(begin)
        stop = jnp.minimum(now.following, end)
        strips.each(i, stop, task.unrolled, values, store)
        return stop

    strips.runs(count, run)


def _transpose(raw: Ref, transposed: Ref, row: Array, strip: Strip) -> None:
    """Moves the last dimension to sublanes, in float32, so that any sublane can be the first."""
    copies, lane = max(1, LANES // strip.depth), lax.broadcasted_iota(jnp.int32, (LANES, LANES), 1)

    def tile(t: Array, lanes: Ref) -> None:
        for plane in range(raw.shape[0]):
            rows = [raw[plane, a, t, pl.ds(row, strip.rows), :] for a in range(strip.lead)]
            x = strips.stacked(rows * copies, strip.wide * LANES)
            for w in range(strip.wide):
                given = strips.parts(x[w * LANES : (w + 1) * LANES].T)
                for f, which in enumerate(strip.factors):
                    y = given[which[-1]]
                    for g in reversed(range(len(which) - 1)):
                        y = jnp.where(lane < (g + 1) * strip.depth, given[which[g]], y)
                    transposed[f, w, plane, lanes, :] = y

    strips.every_tile(strip, tile)


def _values(transposed: Ref, at: Array, tables: tuple[Array, Array], task: Task) -> Array:
    strip, total = task.strip, jnp.zeros((), jnp.float32)
    given = strips.parts(tables[0])
    for terms in strip.passes:
        factor = strip.factors.index(tuple(i for i, _ in terms))
        right = strips.stacked([given[j] for _, j in terms], strip.wide * LANES)
        for w in range(strip.wide):
            left = [transposed[factor, w, plane, pl.ds(at, strip.cells), :] for plane in range(2 * task.coils)]
            total = total + strips.product(jnp.concatenate(left), right[w * LANES : (w + 1) * LANES], 0)
    total = total.reshape(2 * task.coils, strip.cells, LANES) * tables[1][None]
    return jnp.sum(total, axis=1, keepdims=True)


def _spread(*refs: Ref, task: Task) -> None:
    count, table, first, offset, real_in, imag_in, _, _, real, imag, raw, sums, done = refs
    coil, strip = pl.program_id(0), task.strip

    def run(i: Array, end: Array) -> Array:
        now = strips.chunk_at(table, i)
        where, fresh = (coil, now.lead, now.row), now.fresh == 1
        fetched = strips.copies((real, imag), raw, done.at[0], where, strip)
        back = strips.copies((real, imag), raw, done.at[1], where, strip, back=True)
        end = jnp.minimum(now.following, end)
        stop = jnp.where(fresh, i + lax.div(end - i + 1, 2), end)

        def clear() -> None:
            sums[...] = jnp.zeros(sums.shape, jnp.float32)

        def cells(i: Array) -> list[Array]:
            left, right = strips.weights(first, offset, i, task)
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
        strips.each(i, stop, task.unrolled, cells, store)
        pl.when(fresh)(fetch)
        pl.when(stop == now.following)(finish)
        return stop

    strips.runs(count, run)


def _cells(rows: Array, left: Array, strip: Strip) -> list[Array]:
    """Sums of a chunk: (planes x cells, 128) for each 128 of the depth."""
    of_rows, of_left, size = strips.parts(rows), strips.parts(left), rows.shape[0]
    totals = [jnp.zeros((size, LANES), jnp.float32)] * strip.wide
    for j in range(0, 3, strip.copies):
        right = strips.stacked(of_left[j : j + strip.copies], strip.wide * LANES)
        for w in range(strip.wide):
            made = strips.product(jnp.concatenate(of_rows[: 3 - j]), right[w * LANES : (w + 1) * LANES], 1)
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

    strips.every_tile(strip, tile)
