"""Kernels of a TPU's vector unit that write and read words: one pass over memory each way.

    planes, tile by tile -> the largest of each run -> integers -> words      (and back)

A step of the grid has some shares, a group of runs (wire.Tiled) and some rows. What a run or a word is made of lies in
the same place of several tiles, so that all is elementwise. Cost: the planes read once and the words written once, or
the other way round.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ..collectives import words
from ..collectives.messages import KERNELS
from ..collectives.wire import LANES, LEAST_ROOM, SUBLANES, Tiled, Wire, form_of
from ..layout.placement import varies_over, varying
from ..numerics.split_complex import Planes

BLOCK = 2**21  # bytes of planes that a step of the grid has, at most: two are held, and two of words

Ref = Any  # memory that a kernel reads and writes; Pallas names no type for it
Kernel = Callable[[Sequence[Ref], Sequence[Ref], Any, Any], None]  # sources, targets, share, rows


def encode(form: Tiled, first: int, *planes: Array, interpret: bool = False) -> Array:
    """The words of planes whose shares are their dimensions from `first` on: the bits of `form.encode`."""
    lead = planes[0].shape[:first]
    grid = _Grid(form, math.prod(lead))
    target = (jax.ShapeDtypeStruct((grid.shares, *form.message), jnp.uint32), grid.message)
    sources = [(plane.reshape(grid.plane_shape), grid.plane) for plane in planes]
    (message,) = _run(grid, functools.partial(_encode, form), "encode", sources, [target], interpret)
    return message.reshape(*lead, *form.message)


def decode(form: Tiled, first: int, message: Array, interpret: bool = False) -> Planes:
    """The planes that such words stand for: the bits of `form.decode`."""
    lead = message.shape[:first]
    grid = _Grid(form, math.prod(lead))
    target = (jax.ShapeDtypeStruct(grid.plane_shape, jnp.float32), grid.plane)
    source = (message.reshape(grid.shares, *form.message), grid.message)
    planes = _run(grid, functools.partial(_decode, form), "decode", [source], [target] * form.form.planes, interpret)
    return tuple(plane.reshape(*lead, *form.shape) for plane in planes)


@dataclasses.dataclass(frozen=True)
class WireTrial:
    """The kernels of a form, tried before their first use (kept_verdicts.py): their bits, and those of XLA."""

    form: Tiled
    shares: int
    bound = 0.0

    @property
    def name(self) -> str:
        form = self.form
        return f"wire_encode and wire_decode of {self.shares} x {form.shape} in {form.form.wire.name}"

    def given(self) -> list[np.ndarray]:
        rng, shape = np.random.default_rng(0), (self.shares, *self.form.shape)
        return [rng.standard_normal(shape, np.float32) for _ in range(self.form.form.planes)]

    def found(self, *arrays: Array, interpret: bool) -> list[Array]:
        message = encode(self.form, 1, *arrays, interpret=interpret)
        return [message, *decode(self.form, 1, message, interpret)]

    def exact(self, *arrays: Array) -> list[Array]:
        message = jax.jit(lambda *planes: self.form.encode(planes, 1))(*arrays)
        return [message, *jax.jit(lambda words: self.form.decode(words, jnp.float32, 1))(message)]


def wire_trials(share: tuple[int, ...], wire: Wire) -> tuple[WireTrial, ...]:
    """What is to be tried where such shares are sent, both planes in one message."""
    form = form_of((2, *share), 1, wire) if wire.lossy else None
    return (WireTrial(form, shares=2),) if isinstance(form, Tiled) else ()


class _Grid(NamedTuple):
    """How shares are cut into the blocks of steps: shares, groups of runs, rows."""

    form: Tiled
    shares: int

    @property
    def plane_shape(self) -> tuple[int, ...]:
        *lead, rows, last = self.form.shape
        return (self.shares, math.prod(lead), rows, last)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Of a block of a plane."""
        _, _, rows, last = self.plane_shape
        _, group, _, _ = self.form.form.shape
        across = min(group, last // LANES)
        room = BLOCK // (4 * group * LANES * self.form.form.planes)
        high = _divisor(rows // SUBLANES, room // SUBLANES) * SUBLANES if rows >= SUBLANES else rows
        return _divisor(self.shares, room // high), group // across, high, across * LANES

    @property
    def steps(self) -> tuple[int, int, int]:
        return (self.shares // self.sizes[0], self.form.form.shape[0], self.plane_shape[2] // self.sizes[2])

    @property
    def plane(self) -> pl.BlockSpec:
        beside = self.plane_shape[3] // self.sizes[3]
        if beside == 1:
            return pl.BlockSpec(self.sizes, lambda share, group, row: (share, group, row, 0))
        return pl.BlockSpec(
            self.sizes, lambda share, group, row: (share, lax.div(group, beside), row, lax.rem(group, beside))
        )

    @property
    def message(self) -> pl.BlockSpec:
        sizes = (self.sizes[0], None, self.form.message[1], self.sizes[2], LANES)
        return pl.BlockSpec(sizes, lambda share, group, row: (share, group, 0, row, 0))


def _run(
    grid: _Grid,
    kernel: Kernel,
    name: str,
    sources: Sequence[tuple[Array, pl.BlockSpec]],
    targets: Sequence[tuple[jax.ShapeDtypeStruct, pl.BlockSpec]],
    interpret: bool,
) -> list[Array]:
    """Runs a kernel over all blocks, for a share and a tile's rows at a time."""
    arrays, (shares, _, rows, _) = [array for array, _ in sources], grid.sizes
    high = min(rows, SUBLANES)
    type_of = jax.typeof(arrays[0]).manual_axis_type
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=type_of) for x, _ in targets]

    def body(*refs: Ref) -> None:
        def one(j: Any, _: None) -> None:
            share, row = lax.div(j, rows // high), lax.rem(j, rows // high)
            kernel(refs[: len(arrays)], refs[len(arrays) :], share, pl.ds(pl.multiple_of(row * high, high), high))

        lax.fori_loop(0, shares * rows // high, one, None)

    bits = words.BITS[grid.form.form.wire.name] + 1
    call = pl.pallas_call(
        body,
        grid=grid.steps,
        in_specs=[spec for _, spec in sources],
        out_specs=[spec for _, spec in targets],
        out_shape=shapes,
        compiler_params=pltpu.CompilerParams(
            vmem_limit_bytes=LEAST_ROOM, dimension_semantics=(pltpu.PARALLEL,) * len(grid.steps)
        ),
        interpret=interpret,
        name=f"wire_{name}{bits}_{high}",
    )
    with jax.enable_x64(False):  # Pallas takes Python's integers for 64 bits otherwise, and refuses them
        return list(call(*varying(arrays, varies_over(arrays[0]))))


def _encode(form: Tiled, sources: Sequence[Ref], targets: Sequence[Ref], share: Any, rows: Any) -> None:
    (target,), bits, exponents = targets, words.BITS[form.form.wire.name], list[Array]()
    for begin, places in _runs(form):
        tiles = [[_tile(sources[plane], share, rows, at) for plane, at in together] for together in places]
        largest = functools.reduce(jnp.maximum, (words.finite(tile()) for together in tiles for tile in together))
        exponents.append(words.exponent(largest))
        scale = words.scale(bits - exponents[-1], jnp.float32)
        for j, together in enumerate(tiles):
            for k, word in enumerate(words.pack([words.code(tile(), scale, bits) for tile in together])):
                target[share, begin + k * len(tiles) + j, rows, :] = word
    (target[share, form.message[1] - 1, rows, :],) = words.pack([*exponents, jnp.zeros_like(exponents[0])][:2])


def _decode(form: Tiled, sources: Sequence[Ref], targets: Sequence[Ref], share: Any, rows: Any) -> None:
    (source,), bits = sources, words.BITS[form.form.wire.name]
    exponents = words.unpack([source[share, form.message[1] - 1, rows, :]])
    for (begin, places), exponent in zip(_runs(form), exponents, strict=False):
        scale, many = words.scale(exponent - bits, jnp.float32), form.form.rows // len(places)
        for j, together in enumerate(places):
            codes = words.unpack([source[share, begin + k * len(places) + j, rows, :] for k in range(many)])
            for (plane, at), code in zip(together, codes, strict=True):
                _set(targets[plane], share, rows, at, words.value(code, scale, bits))


def _runs(form: Tiled) -> Iterator[tuple[int, list[list[tuple[int, int]]]]]:
    """Of each run of a group its first word, and the planes and positions that are packed together."""
    inner = form.form
    step = inner.parts // inner.planes
    size = inner.length // step
    for run in range(inner.runs):
        parts = [(plane, run * inner.length + part * size) for plane in range(inner.planes) for part in range(step)]
        yield run * inner.rows, [[(plane, at + j) for plane, at in parts] for j in range(size)]


def _tile(ref: Ref, share: Any, rows: Any, position: int) -> Callable[[], Array]:
    """Reads a tile when it is called: once for the largest and once for the integers, as registers are few."""
    return lambda: ref[(share, *_place(ref, rows, position))]


def _set(ref: Ref, share: Any, rows: Any, position: int, value: Array) -> None:
    ref[(share, *_place(ref, rows, position))] = value


def _place(ref: Ref, rows: Any, position: int) -> tuple[Any, ...]:
    lead, tile = divmod(position, ref.shape[3] // LANES)
    return lead, rows, pl.ds(tile * LANES, LANES)


def _divisor(number: int, most: int) -> int:
    """The largest divisor up to a bound."""
    return max(d for d in range(1, max(1, min(number, most)) + 1) if number % d == 0)


KERNELS["tpu"] = (encode, decode)
