"""Interpolate and spread scattered points on a TPU, in two and three dimensions, float32: see strips.py.

Operands and results are those of kernels/gridding.py, its tiles those of `strips.tpu_form`, its chunks of 128 points.
"""

import functools
import math
from types import ModuleType

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...layout.placement import varies_over, varying
from ..window_weights import Form, Slots
from . import interpolating, spreading
from .chunks import Work
from .strips import LANES, MANY, brought_back, chunk_table, laid_out, points_of, slow_shape, strip_of

SMALL = 12 * 2**20  # bytes of fast memory that every TPU has to give; larger strips want one with more
COILS = 4  # at a time, at most


def interpolate(
    block: Array, slots: Slots, form: Form, along: int | None, out: Array, interpret: bool = False
) -> Array:
    """Values (C, slots) at the points from a block (C, B_1, .., B_d); `out` says what the result is like."""
    work = _work(block.shape[0], block.shape[1:], form, along)
    points = points_of(slots.cell, slots.offset, slots.start)
    planes = [laid_out(plane, work.strip) for plane in (block.real, block.imag)]
    shape = (out.shape[0], *points[0].shape[1:])
    real, imag = _run(interpolating, work, slots, [*points, *planes], shape, out, interpret)
    values = jnp.where(points[0][:1] >= 0, lax.complex(real, imag), 0)
    return values.reshape(out.shape[0], -1)[:, : out.shape[1]]


def spread(values: Array, slots: Slots, form: Form, along: int | None, block: Array, interpret: bool = False) -> Array:
    """The block (C, B_1, .., B_d) that values (C, slots) add up to; `block` says what it is like."""
    coils, *shape = block.shape
    work = _work(coils, tuple(shape), form, along)
    points = points_of(slots.cell, slots.offset, slots.start)
    chunks = values.shape[1] // LANES
    given = jnp.pad(values.reshape(coils, chunks, LANES), ((0, 0), (0, _filled(chunks) - chunks), (0, 0)))
    given = jnp.where(points[0][:1] >= 0, given, 0)
    zeros = [jnp.zeros((coils, *slow_shape(tuple(shape), work.strip)), jnp.float32)] * 2
    operands = [*points, given.real, given.imag, *zeros]
    planes = _run(spreading, work, slots, operands, zeros[0].shape, block, interpret)
    return lax.complex(*(brought_back(plane, tuple(shape)) for plane in planes))


def _filled(chunks: int) -> int:
    return -(-chunks // MANY) * MANY


def _work(coils: int, shape: tuple[int, ...], form: Form, along: int | None) -> Work:
    """As many coils at a time as a small fast memory holds."""
    strip = strip_of(form, shape)
    works = [Work(strip, form, along, len(shape), n) for n in range(1, COILS + 1) if coils % n == 0]
    return max([w for w in works if _bytes(w) <= SMALL], default=works[0], key=lambda work: work.coils)


def _bytes(work: Work) -> int:
    """Fast memory of a kernel: its scratch, twice its blocks, and some for what does not stay in registers."""
    numbers = max(sum(math.prod(s) for s in module.scratch(work)) for module in (interpolating, spreading))
    return 4 * (numbers + 2 * MANY * LANES * (2 * work.d + 2 * work.coils)) + 2 * 2**20


def _run(
    module: ModuleType,
    work: Work,
    slots: Slots,
    operands: list[Array],
    shape: tuple[int, ...],
    like: Array,
    interpret: bool,
) -> list[Array]:
    """One kernel over all chunks, MANY of them in a step, and some coils after the others: two planes of a shape."""
    count = jnp.minimum(slots.count, slots.start.shape[0]).astype(jnp.int32)
    operands = [jnp.reshape(count, 1), chunk_table(slots.start, count), *operands]
    adds = module is spreading
    out = jax.ShapeDtypeStruct(shape, jnp.float32, manual_axis_type=jax.typeof(like).manual_axis_type)
    scratch = [pltpu.VMEM(one, jnp.float32) for one in module.scratch(work)]
    integers, point, coil, anywhere = _blocks(work)
    call = pl.pallas_call(
        functools.partial(module.kernel, work=work),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(shape[0] // work.coils, operands[1].shape[1] // MANY),
            in_specs=[integers, point, point, *[coil] * (2 * adds), anywhere, anywhere],
            out_specs=[anywhere if adds else coil] * 2,
            scratch_shapes=[*scratch, pltpu.SemaphoreType.DMA((2, 2))],
        ),
        out_shape=[out] * 2,
        input_output_aliases={len(operands) - 2: 0, len(operands) - 1: 1} if adds else {},
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=max(_bytes(work), SMALL) + 2 * 2**20),
        interpret=interpret,
        name=module.__name__.rpartition(".")[2],
    )
    with jax.enable_x64(False):  # Pallas takes Python's integers for 64 bits otherwise, and refuses them
        return list(call(*varying(operands, varies_over(like))))


def _blocks(work: Work) -> tuple[pl.BlockSpec, ...]:
    """What a step copies of the table, of points, of values; and what is left where it lies."""

    def at(step: Array, count: Array) -> Array:
        # a step without points stays at the last that has some, so that nothing is copied
        return jnp.minimum(step, lax.div(jnp.maximum(count[0] - 1, 0), MANY))

    return (
        pl.BlockSpec((8, MANY), lambda c, i, n: (0, at(i, n)), memory_space=pltpu.SMEM),
        pl.BlockSpec((work.d, MANY, LANES), lambda c, i, n: (0, at(i, n), 0)),
        pl.BlockSpec((work.coils, MANY, LANES), lambda c, i, n: (c, at(i, n), 0)),
        pl.BlockSpec(memory_space=pl.ANY),
    )
