"""Interpolation and spreading of scattered points on a TPU, in two and three dimensions, float32.

Operands and results are those of nufft/grid/gridding.py; tiles are those of `form.tpu_form`, chunks have 128 points.
The surrounding program splits and joins complex numbers, which TPUs lack. A chunk costs the weights of its points
(vector unit: 16 to 28 operations for each row of its tables), and 12 depth x cells x 128 products a coil (matrix
units): 0.55 to 1.7 cycles a point of a full chunk on v5e, by the compiled schedules (libtpu 0.0.52, modelled: nothing
ran on a TPU).
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...nufft.grid import gridding
from ...nufft.grid.form import Form, Slots
from ..lines.blocks import call, rounded
from ..lines.radices import LANES, SUBLANES
from .bodies import INTERPOLATING, SPREADING, Body
from .chunks import MANY, Strip, Task, strip_of

SMALL = 12 * 2**20  # bytes of fast memory that every TPU can give; larger strips need more
COILS = 4  # most coils at a time
TRIED = 16
EMPTY = -(2**20)  # place of a slot without a point, outside every window
OnSlots = Callable[[Array, Slots], Array]


def interpolate(block: Array, slots: Slots, form: Form) -> Array:
    by_kernel, elsewhere = (functools.partial(way, form=form) for way in (interpolated, gridding.interpolate))
    return _on_tpu(by_kernel, elsewhere, block, slots)


def spread(values: Array, slots: Slots, form: Form, shape: tuple[int, ...]) -> Array:
    by_kernel, elsewhere = (functools.partial(way, form=form, shape=shape) for way in (spread_out, gridding.spread))
    return _on_tpu(by_kernel, elsewhere, values, slots)


def _on_tpu(by_kernel: OnSlots, elsewhere: OnSlots, x: Array, slots: Slots) -> Array:
    if x.dtype != jnp.complex64:
        return elsewhere(x, slots)
    made: Array = lax.platform_dependent(x, slots, tpu=by_kernel, default=elsewhere)
    return made


def interpolated(block: Array, slots: Slots, form: Form, interpret: bool = False) -> Array:
    task = _task(block.shape[0], block.shape[1:], form)
    points = _points(slots)
    planes = [_opened(plane, task.strip) for plane in (block.real, block.imag)]
    shape = (block.shape[0], *points[0].shape[1:])
    real, imag = _run(INTERPOLATING, task, slots, [*points, *planes], shape, interpret)
    values = jnp.where(points[0][:1] >= 0, lax.complex(real, imag), 0)
    return values.reshape(block.shape[0], -1)[:, : slots.cell.shape[0]]


def spread_out(values: Array, slots: Slots, form: Form, shape: tuple[int, ...], interpret: bool = False) -> Array:
    coils, task = values.shape[0], _task(values.shape[0], shape, form)
    points = _points(slots)
    chunks = values.shape[1] // LANES
    given = jnp.pad(values.reshape(coils, chunks, LANES), ((0, 0), (0, -chunks % MANY), (0, 0)))
    given = jnp.where(points[0][:1] >= 0, given, 0)
    zeros = [jnp.zeros((coils, *_slow_shape(shape, task.strip)), jnp.float32)] * 2
    operands = [*points, given.real, given.imag, *zeros]
    planes = _run(SPREADING, task, slots, operands, zeros[0].shape, interpret)
    return lax.complex(*(_closed(plane, shape) for plane in planes))


def _opened(plane: Array, strip: Strip) -> Array:
    """A real plane (C, B_1, .., B_d) as (C, B_1, lane tiles, B_2, 128), padded with zeros."""
    plane = plane.reshape(-1, *_three(plane.shape[1:]))
    lead, tiles, rows, _ = _slow_shape(plane.shape[1:], strip)
    fill = [(0, n - b) for n, b in zip((lead, rows, tiles * LANES), plane.shape[1:], strict=True)]
    return jnp.pad(plane, [(0, 0), *fill]).reshape(-1, lead, rows, tiles, LANES).transpose(0, 1, 3, 2, 4)


def _closed(plane: Array, shape: tuple[int, ...]) -> Array:
    lead, rows, last = _three(shape)
    plane = plane.transpose(0, 1, 3, 2, 4).reshape(*plane.shape[:2], plane.shape[3], -1)
    return plane[:, :lead, :rows, :last].reshape(-1, *shape)


def _slow_shape(shape: tuple[int, ...], strip: Strip) -> tuple[int, int, int, int]:
    """Shape of a block's plane in slow memory: copies of strips start at a row that is a multiple of 8."""
    lead, rows, _ = _three(shape)
    return max(lead, strip.lead), strip.lane_tiles, rounded(rows + strip.fetched, SUBLANES), LANES


def _three(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (3 - len(shape)) + tuple(shape)


def chunk_table(start: Array, count: Array) -> Array:
    """Eight integers for each chunk, (8, chunks), padded to a multiple of MANY: see `chunks.Chunk`.

    First cell in the last dimension; the first chunk of the next strip, or `count`; parity of the strip; first cells of
    the
    strip in the first dimension and in the second; of the next strip; whether the strip begins here.
    """
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


def _points(slots: Slots) -> tuple[Array, Array]:
    """First cells from those of the chunk's tile, and offsets, as (d, chunks, 128); empty slots are far away."""
    (chunks, d), fill = slots.start.shape, ((0, 0), (0, -slots.start.shape[0] % MANY), (0, 0))
    cell, offset = (x.T.reshape(d, chunks, LANES) for x in (slots.cell, slots.offset))
    first = jnp.where(cell < 0, EMPTY, cell - slots.start.T[:, :, None])
    return jnp.pad(first, fill), jnp.pad(jnp.where(cell < 0, 0, offset), fill)


def _task(coils: int, shape: tuple[int, ...], form: Form) -> Task:
    strip = strip_of(form, shape)
    tasks = [Task(strip, form, n) for n in range(1, COILS + 1) if coils % n == 0]
    return max([task for task in tasks if _bytes(task) <= SMALL], default=tasks[0], key=lambda task: task.coils)


def _bytes(task: Task) -> int:
    numbers = max(sum(map(math.prod, body.scratch(task))) for body in (INTERPOLATING, SPREADING))
    return 4 * (numbers + 2 * MANY * LANES * (2 * task.d + 2 * task.coils)) + 2 * 2**20


def _run(
    body: Body,
    task: Task,
    slots: Slots,
    operands: list[Array],
    shape: tuple[int, ...],
    interpret: bool,
) -> list[Array]:
    count = jnp.minimum(slots.count, slots.start.shape[0]).astype(jnp.int32)
    operands = [jnp.reshape(count, 1), chunk_table(slots.start, count), *operands]
    adds = body is SPREADING
    scratch = [pltpu.VMEM(one, jnp.float32) for one in body.scratch(task)]
    integers, point, coil, anywhere = _blocks(task)
    return call(
        functools.partial(body.run, task=task),
        operands,
        [jax.ShapeDtypeStruct(shape, jnp.float32)] * 2,
        name=body.name,
        interpret=interpret,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(shape[0] // task.coils, operands[1].shape[1] // MANY),
            in_specs=[integers, point, point, *[coil] * (2 * adds), anywhere, anywhere],
            out_specs=[anywhere if adds else coil] * 2,
            scratch_shapes=[*scratch, pltpu.SemaphoreType.DMA((2, 2))],
        ),
        input_output_aliases={len(operands) - 2: 0, len(operands) - 1: 1} if adds else {},
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=max(_bytes(task), SMALL) + 2 * 2**20),
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


@dataclasses.dataclass(frozen=True)
class GriddingTrial:
    """Trial of both kernels before their first use (kept.py), in a block (C, B_1, .., B_d)."""

    form: Form
    shape: tuple[int, ...]
    bound = 1e-6  # the kernels and XLA err by up to 3e-7

    @property
    def name(self) -> str:
        tile = "x".join(map(str, self.form.tile))
        return f"points_interpolate and points_spread of {self.form.reach} cells in tiles of {tile}, of {self.shape}"

    def given(self) -> list[np.ndarray]:
        rng, (coils, *block), tile = np.random.default_rng(0), self.shape, np.array(self.form.tile)
        last = np.array(block) - (self.form.reach - 1) - tile  # last start of a tile
        start = np.unique(np.minimum(rng.integers(0, last + 1, (TRIED, len(tile))) // tile * tile, last), axis=0)
        slots = (len(start) * LANES, len(tile))
        cell = np.repeat(start, LANES, 0) + rng.integers(0, tile, slots)
        cell[(rng.uniform(size=len(cell)) < 0.1) | (np.arange(len(cell)) >= len(cell) - LANES)] = -1
        offset = rng.uniform(-0.5, 0.5, slots).astype(np.float32)
        pairs = (rng.standard_normal((2, *n)) for n in (self.shape, (coils, slots[0])))
        ends = [(re + 1j * im).astype(np.complex64) for re, im in pairs]
        return [*ends, cell.astype(np.int32), offset, start.astype(np.int32), np.array(len(start) - 1, np.int32)]

    def found(self, *arrays: Array, interpret: bool) -> list[Array]:
        block, values, *given = arrays
        there = interpolated(block, Slots(*given), self.form, interpret)
        return _reals(there, spread_out(values, Slots(*given), self.form, self.shape[1:], interpret))

    def exact(self, *arrays: Array) -> list[Array]:
        def by_xla(block: Array, values: Array, *given: Array) -> list[Array]:
            there = gridding.interpolate(block, Slots(*given), self.form)
            return _reals(there, gridding.spread(values, Slots(*given), self.form, self.shape[1:]))

        return jax.jit(by_xla)(*arrays)


def trials(coils: int, block: tuple[int, ...], form: Form) -> tuple[GriddingTrial, ...]:
    least = (2 * tile + form.reach - 1 for tile in form.tile[:-1])
    return (GriddingTrial(form, (_task(coils, block, form).coils, *map(min, block[:-1], least), block[-1])),)


def _reals(*arrays: Array) -> list[Array]:
    return [part for x in arrays for part in (x.real, x.imag)]


gridding.KERNELS["strips"] = gridding.Kernels(interpolate, spread, trials)
