"""Interpolate and spread scattered points on a TPU, in two and three dimensions, float32.

Operands and results are those of nufft/grid/gridding.py; tiles are those of `form.tpu_form`, chunks have 128 points.
The program around the kernels takes complex numbers apart and puts them together, as TPUs have none. A chunk costs the
weights of its points (vector unit: 16 to 28 operations for each row of its tables), and 12 depth x cells x 128 products
a coil (matrix units). Bundles of the compiled schedule for 128 points, and cycles a point where all chunks are full
(libtpu 0.0.52, modelled: nothing ran on a TPU):

                         v5e, one coil              four coils, each    v4, one coil
                         bundles  cycles  binds     cycles              cycles
    2-D w 4 interpolate     70     0.55   vector    0.33                1.15
    2-D w 4 spread          99     0.77   vector    0.56                1.42
    2-D w 7 interpolate     87     0.68   vector                        1.46
    2-D w 7 spread         119     0.93   vector                        1.71
    3-D w 4 interpolate    145     1.13   matrix    0.84                1.70
    3-D w 4 spread         152     1.19   both      0.96                1.81
    3-D w 7 interpolate    208     1.63   both                          2.72
    3-D w 7 spread         204     1.59   both                          2.63

To turn a strip takes about 1,000 cycles in two dimensions (512 cells long) and 350 in three (64 long). Random points,
w 4, all loops of interpolation counted: 2-D, 512 x 512 cells, 65,536 points 0.96 and 10^6 points 0.57 cycles a point;
3-D, 64^3 cells and 65,536 points 1.70, 128^3 and 10^6 points 1.41. The program around the kernel takes 57,000 to 70,000
cycles more where there are 131,072 slots, as the compiler estimates: half of that starts twenty small operations.

To read them: LIBTPU_INIT_ARGS="--xla_jf_dump_to=DIR --xla_jf_dump_llo_text=true" before jax is imported, compile for a
described topology, and take from the kernel's *-final_bundles.txt in DIR the length of the loop over chunks, over the
chunks in its body. No wait for a copy is in that: a strip is copied while the one before is worked on.
"""

import dataclasses
import functools
import math
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...layout.placement import varies_over, varying
from ...nufft.grid import gridding
from ...nufft.grid.form import Form, Slots
from . import interpolating, spreading
from .chunks import Work
from .strips import LANES, MANY, brought_back, chunk_table, laid_out, points_of, slow_shape, strip_of

SMALL = 12 * 2**20  # bytes of fast memory that every TPU has to give; larger strips want one with more
COILS = 4  # at a time, at most
TRIED = 16  # chunks of a trial


def interpolate(block: Array, slots: Slots, form: Form) -> Array:
    """Values (C, slots) at a device's points as nufft/grid/gridding.py; a TPU has a kernel for strips."""
    if block.dtype != jnp.complex64:
        return gridding.interpolate(block, slots, form)

    def by_kernel(block: Array, slots: Slots) -> Array:
        values = jnp.zeros((block.shape[0], slots.cell.shape[0]), block.dtype)
        out = varying([values, block, *jax.tree.leaves(slots)], frozenset())[0]
        return interpolated(block, slots, form, None, out)

    def elsewhere(block: Array, slots: Slots) -> Array:
        return gridding.interpolate(block, slots, form)

    return lax.platform_dependent(block, slots, tpu=by_kernel, default=elsewhere)


def spread(values: Array, slots: Slots, form: Form, shape: tuple[int, ...]) -> Array:
    """The block (C, *shape) of values (C, slots) as nufft/grid/gridding.py; a TPU has a kernel for strips."""
    if values.dtype != jnp.complex64:
        return gridding.spread(values, slots, form, shape)

    def by_kernel(values: Array, slots: Slots) -> Array:
        block = jnp.zeros((values.shape[0], *shape), values.dtype)
        out = varying([block, values, *jax.tree.leaves(slots)], frozenset())[0]
        return spread_out(values, slots, form, None, out)

    def elsewhere(values: Array, slots: Slots) -> Array:
        return gridding.spread(values, slots, form, shape)

    return lax.platform_dependent(values, slots, tpu=by_kernel, default=elsewhere)


def interpolated(
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


def spread_out(
    values: Array, slots: Slots, form: Form, along: int | None, block: Array, interpret: bool = False
) -> Array:
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


@dataclasses.dataclass(frozen=True)
class GriddingTrial:
    """Both kernels of a form, tried before their first use (kept_verdicts.py) in a block (C, B_1, .., B_d)."""

    form: Form
    shape: tuple[int, ...]
    bound = 1e-6  # these and XLA's err by up to 3e-7

    @property
    def name(self) -> str:
        tile = "x".join(map(str, self.form.tile))
        return f"points_interpolate and points_spread of {self.form.reach} cells in tiles of {tile}, of {self.shape}"

    def given(self) -> list[np.ndarray]:
        """A block, values, and tables: chunks of points in tiles anywhere, some slots of which are empty."""
        rng, (coils, *block), tile = np.random.default_rng(0), self.shape, np.array(self.form.tile)
        last = np.array(block) - (self.form.reach - 1) - tile  # where a tile begins, at most
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
        slots, how = Slots(*given), (self.form, None)
        there = interpolated(block, slots, *how, jnp.zeros_like(values), interpret)
        return _reals(there, spread_out(values, slots, *how, jnp.zeros_like(block), interpret))

    def exact(self, *arrays: Array) -> list[Array]:
        def by_xla(block: Array, values: Array, *given: Array) -> list[Array]:
            there = gridding.interpolate(block, Slots(*given), self.form)
            return _reals(there, gridding.spread(values, Slots(*given), self.form, self.shape[1:]))

        return jax.jit(by_xla)(*arrays)


def trials(coils: int, block: tuple[int, ...], form: Form) -> tuple[GriddingTrial, ...]:
    """What is to be tried of a form, in a block as small as leaves the kernels the same."""
    least = (2 * tile + form.reach - 1 for tile in form.tile[:-1])
    return (GriddingTrial(form, (_work(coils, block, form, None).coils, *map(min, block[:-1], least), block[-1])),)


def _reals(*arrays: Array) -> list[Array]:
    return [part for x in arrays for part in (x.real, x.imag)]


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


gridding.KERNELS["strips"] = gridding.Kernels(interpolate, spread, trials)
