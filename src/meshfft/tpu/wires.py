"""TPU kernels that encode planes as words and decode them, each in one pass over memory.

    planes, tile by tile -> the largest of each run -> integers -> words      (and back)

A grid step takes some shares, one group of runs (Tiled) and some rows.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ..collectives import words
from ..collectives.wires import KERNELS, LANES, LEAST_ROOM, SUBLANES, Tiled
from ..numerics.split_complex import Planes
from .lines.blocks import call
from .lines.memory import Index, Indices, LineSpan, Ref

BLOCK = 2**21  # most bytes of planes in a grid step, which holds two, and two of words
# Takes form, sources, targets, share and rows.
TileKernel = Callable[[Tiled, Sequence[Ref], Sequence[Ref], Index, LineSpan], None]


def encode(form: Tiled, first: int, *planes: Array, interpret: bool = False) -> Array:
    """Words of planes whose dimensions before `first` count shares: the same bits as `form.encode` gives."""
    lead = planes[0].shape[:first]
    grid = _Grid(form, math.prod(lead))
    sources = [plane.reshape(grid.plane_shape) for plane in planes]
    target = jax.ShapeDtypeStruct((grid.shares, *form.message), jnp.uint32)
    (message,) = _run(grid, _encode, "encode", sources, [target], interpret)
    return message.reshape(*lead, *form.message)


def decode(form: Tiled, first: int, message: Array, interpret: bool = False) -> Planes:
    """Planes of such words: the bits of `form.decode`."""
    lead = message.shape[:first]
    grid = _Grid(form, math.prod(lead))
    planes = [jax.ShapeDtypeStruct(grid.plane_shape, jnp.float32)] * form.form.planes
    found = _run(grid, _decode, "decode", [message.reshape(grid.shares, *form.message)], planes, interpret)
    return tuple(plane.reshape(*lead, *form.shape) for plane in found)


class _Grid(NamedTuple):
    form: Tiled
    shares: int

    @property
    def plane_shape(self) -> tuple[int, ...]:
        *lead, rows, last = self.form.shape
        return (self.shares, math.prod(lead), rows, last)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        _, _, rows, last = self.plane_shape
        _, group, _, _ = self.form.form.shape
        across = min(group, last // LANES)
        room = BLOCK // (4 * group * LANES * self.form.form.planes)
        high = _divisor(rows // SUBLANES, room // SUBLANES) * SUBLANES if rows >= SUBLANES else rows
        return _divisor(self.shares, room // high), group // across, high, across * LANES

    @property
    def steps(self) -> tuple[int, int, int]:
        return (self.shares // self.sizes[0], self.form.form.shape[0], self.plane_shape[2] // self.sizes[2])

    def spec(self, x: Array | jax.ShapeDtypeStruct) -> pl.BlockSpec:
        if x.dtype == jnp.uint32:
            sizes = (self.sizes[0], None, self.form.message[1], self.sizes[2], LANES)
            return pl.BlockSpec(sizes, lambda share, group, row: (share, group, 0, row, 0))
        beside = self.plane_shape[3] // self.sizes[3]
        if beside == 1:
            return pl.BlockSpec(self.sizes, lambda share, group, row: (share, group, row, 0))
        return pl.BlockSpec(
            self.sizes, lambda share, group, row: (share, lax.div(group, beside), row, lax.rem(group, beside))
        )


def _run(
    grid: _Grid, tile: TileKernel, name: str, sources: list[Array], targets: list[jax.ShapeDtypeStruct], interpret: bool
) -> list[Array]:
    (shares, _, rows, _), many = grid.sizes, len(sources)
    high, bits, parallel = min(rows, SUBLANES), grid.form.coded.bits + 1, (pltpu.PARALLEL,) * len(grid.steps)

    def body(*refs: Ref) -> None:
        def one(j: Array, _: None) -> None:
            share, row = lax.div(j, rows // high), lax.rem(j, rows // high)
            tile(grid.form, refs[:many], refs[many:], share, pl.ds(pl.multiple_of(row * high, high), high))

        lax.fori_loop(0, shares * rows // high, one, None)

    return call(
        body,
        sources,
        targets,
        name=f"wire_{name}{bits}_{high}",
        interpret=interpret,
        grid=grid.steps,
        in_specs=list(map(grid.spec, sources)),
        out_specs=list(map(grid.spec, targets)),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=LEAST_ROOM, dimension_semantics=parallel),
    )


def _encode(form: Tiled, sources: Sequence[Ref], targets: Sequence[Ref], share: Index, rows: LineSpan) -> None:
    (target,), bits, exponents = targets, form.coded.bits, list[Array]()

    def tile(plane: int, at: int) -> Array:  # read twice, for the largest and for the integers, to save registers
        return sources[plane][(share, *_place(sources[plane], rows, at))]

    for begin, places in _runs(form):
        largest = functools.reduce(jnp.maximum, (words.finite(tile(*at)) for together in places for at in together))
        exponents.append(words.exponent(largest))
        scale = words.scale(bits - exponents[-1], jnp.float32)
        for j, together in enumerate(places):
            for k, word in enumerate(form.coded.pack([words.code(tile(*at), scale, bits) for at in together])):
                target[share, begin + k * len(places) + j, rows, :] = word
    (target[share, form.message[1] - 1, rows, :],) = words.pack16([*exponents, jnp.zeros_like(exponents[0])][:2])


def _decode(form: Tiled, sources: Sequence[Ref], targets: Sequence[Ref], share: Index, rows: LineSpan) -> None:
    (source,), bits = sources, form.coded.bits
    exponents = words.unpack16([source[share, form.message[1] - 1, rows, :]])
    for (begin, places), exponent in zip(_runs(form), exponents, strict=False):
        scale, many = words.scale(exponent - bits, jnp.float32), form.form.rows // len(places)
        for j, together in enumerate(places):
            codes = form.coded.unpack([source[share, begin + k * len(places) + j, rows, :] for k in range(many)])
            for (plane, at), code in zip(together, codes, strict=True):
                targets[plane][(share, *_place(targets[plane], rows, at))] = words.value(code, scale, bits)


def _runs(form: Tiled) -> Iterator[tuple[int, list[list[tuple[int, int]]]]]:
    """First word of each run of a group, and the planes and positions packed together."""
    inner = form.form
    step = form.coded.group // inner.planes
    size = inner.length // step
    for run in range(inner.runs):
        parts = [(plane, run * inner.length + part * size) for plane in range(inner.planes) for part in range(step)]
        yield run * inner.rows, [[(plane, at + j) for plane, at in parts] for j in range(size)]


def _place(ref: Ref, rows: LineSpan, position: int) -> Indices:
    lead, tile = divmod(position, ref.shape[3] // LANES)
    return lead, rows, pl.ds(tile * LANES, LANES)


def _divisor(number: int, most: int) -> int:
    return max(d for d in range(1, max(1, min(number, most)) + 1) if number % d == 0)


KERNELS["tpu"] = (encode, decode)
