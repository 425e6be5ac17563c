"""Calls of kernels: blocks of arrays that each grid step reads and writes, tables, and scratch memory."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...layout.placement import varying
from ...machine.chip import rounded_up
from ...numerics.split_complex import Planes, Shape
from .along import FFTLine
from .memory import Arrived, Index, Parted, Ref, div, rem
from .radices import LANES, SUBLANES

BUFFERS = 2  # of a block: one is used while another is copied
MARGIN = 2**20  # bytes for values that do not stay in registers
WIDE = (512, 256, 128)
OnPlanes = Callable[[Planes], Planes]
BlockSizes = tuple[int | None, ...]
BlockIndex = Callable[..., tuple[Index, ...]]  # maps a grid step to a block


@dataclasses.dataclass(frozen=True)
class Blocked:
    """Blocks of arrays of one shape; a size of None hides a dimension from the kernel.

    The last block may reach over the end. `place` maps a grid step to a block, by default the next. `views` makes the
    kernel's view of the arrays.
    """

    shape: Shape
    sizes: BlockSizes
    arrays: int = 2
    place: BlockIndex = lambda *step: step
    grid: tuple[int, ...] | None = None
    views: Callable[[Sequence[Ref]], Any] = tuple
    known_bytes: int | None = None

    @property
    def bytes(self) -> int:
        return self.known_bytes or 4 * self.arrays * BUFFERS * math.prod(size or 1 for size in self.sizes)

    @property
    def steps(self) -> tuple[int, ...]:
        return self.grid or steps_of(self.shape, self.sizes)

    def specs(self) -> list[pl.BlockSpec]:
        return [pl.BlockSpec(self.sizes, self.place)] * self.arrays

    def begun(self, dim: int, position: int) -> "Blocked":
        shift = position // (self.sizes[dim] or 1)

        def place(*step: Index) -> tuple[Index, ...]:
            at = self.place(*step)
            return (*at[:dim], at[dim] + shift, *at[dim + 1 :])

        return dataclasses.replace(self, place=place) if shift else self

    def holds(self, dim: int) -> bool:
        size = self.sizes[dim]
        return size is not None and size >= self.shape[dim]

    def sent(self, dim: int, parts: int) -> "Blocked":
        """The blocks of one array (parts, planes, ..), with a dimension in parts."""
        if self.holds(dim):
            inside = sum(size is not None for size in self.sizes[:dim])
            return self._divided(dim, parts, 1, lambda refs: (Parted(refs[0], 0, inside), Parted(refs[0], 1, inside)))
        return self._divided(dim, parts, 1, lambda refs: (refs[0].at[0], refs[0].at[1]))

    def came(self, dim: int, parts: int, pieces: int, line: FFTLine) -> "Blocked":
        """The blocks of received pieces (parts, planes, ..) of these planes."""
        registers = self.shape[dim] // parts // pieces // (1 if line.untiled else SUBLANES)
        return self._divided(dim, parts, pieces, lambda refs: Arrived(refs, registers))

    def _divided(self, dim: int, parts: int, arrays: int, views: Callable[[Sequence[Ref]], Any]) -> "Blocked":
        rows, size = self.shape[dim] // parts // arrays, self.sizes[dim] or 1
        shape = (parts, 2, *self.shape[:dim], rows, *self.shape[dim + 1 :])

        def place(*step: Index) -> tuple[Index, ...]:
            at = list(self.place(*step))
            part, at[dim] = div(at[dim], rows // size), rem(at[dim], rows // size)
            return (part, 0, *at)

        blocks = Blocked(shape, (None, 2, *self.sizes), arrays, place, self.steps, views, self.bytes)
        if not self.holds(dim):
            return blocks
        sizes = (parts, 2, *self.sizes[:dim], rows, *self.sizes[dim + 1 :])
        return dataclasses.replace(blocks, sizes=sizes, place=lambda *step: (0, 0, *self.place(*step)))


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel, its blocks, and scratch memories of two planes each.

    `twist` is a table of scalar weights, and the row for each grid step; `fixed` are tables for all steps.
    """

    name: str
    transform: Callable[..., None]  # takes the kernel, tables, source, scratch memories and target
    lines: tuple[FFTLine, ...]
    source: Blocked
    target: Blocked
    scratch: tuple[tuple[int, ...], ...]
    twist: tuple[np.ndarray, Callable[..., Index]] | None = None
    fixed: tuple[np.ndarray, ...] = ()

    @functools.cached_property
    def bytes(self) -> int:
        tables = sum(line.table_bytes for line in self.lines) + sum(table.nbytes for table in self.fixed)
        scratch = 8 * sum(map(math.prod, self.scratch))
        return self.source.bytes + self.target.bytes + scratch + tables + MARGIN

    def run(self, arrays: Sequence[Array], interpret: bool) -> list[Array]:
        tables, specs = zip(*self._tables(), strict=True)
        target, steps = self.target, self.source.steps
        parallel = (pltpu.PARALLEL,) * len(steps)
        ends = list(itertools.accumulate((len(tables), self.source.arrays, target.arrays)))

        def body(*refs: Ref) -> None:
            source, written = (refs[begin:end] for begin, end in itertools.pairwise(ends))
            scratch = [(refs[j], refs[j + 1]) for j in range(ends[2], len(refs), 2)]
            self.transform(self, refs[: ends[0]], self.source.views(source), scratch, target.views(written))

        return call(
            body,
            [*map(jnp.asarray, tables), *arrays],
            [jax.ShapeDtypeStruct(target.shape, jnp.float32)] * target.arrays,
            name=self.name,
            interpret=interpret,
            grid=steps,
            in_specs=[*specs, *self.source.specs()],
            out_specs=target.specs(),
            scratch_shapes=[pltpu.VMEM(sizes, jnp.float32) for sizes in self.scratch for _ in range(2)],
            compiler_params=pltpu.CompilerParams(vmem_limit_bytes=self.bytes, dimension_semantics=parallel),
        )

    def _tables(self) -> Iterator[tuple[np.ndarray, pl.BlockSpec]]:
        """For each line, twiddles of passes as scalars, of the last as registers; then weights."""
        for line in self.lines:
            passes, last = line.tables()
            yield passes, pl.BlockSpec(memory_space=pltpu.SMEM)
            yield last, _copied_once(last)
        for table in self.fixed:
            yield table, _copied_once(table)
        if self.twist is not None:
            table, row = self.twist
            sizes = (None, *table.shape[1:])
            yield table, pl.BlockSpec(sizes, lambda *step: (row(*step), 0, 0), memory_space=pltpu.SMEM)


def _copied_once(table: np.ndarray) -> pl.BlockSpec:
    return pl.BlockSpec(table.shape, lambda *step: (0,) * table.ndim, pipeline_mode=pl.Buffered(1))


def call(
    body: Callable[..., None],
    arrays: Sequence[Array],
    results: Sequence[jax.ShapeDtypeStruct],
    *,
    name: str,
    interpret: bool,
    **how: Any,
) -> list[Array]:
    """Calls a kernel; arrays and results vary over the mesh axes of any array."""
    arrays = varying(arrays, frozenset())
    varies = jax.typeof(arrays[0]).manual_axis_type
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=varies) for x in results]
    run = pl.pallas_call(body, shapes, interpret=interpret, name=name, **how)
    with jax.enable_x64(False):  # otherwise Pallas takes Python's integers for 64 bits
        return list(run(*arrays))


def linear_on_tpu(kernels: OnPlanes, by_xla: OnPlanes, transpose: OnPlanes, given: Planes, interpret: bool) -> Planes:
    """Runs kernels on a TPU, or if Pallas interprets them; else XLA. Kernels have no rule for transposes."""

    def forward(_: None, given: Planes) -> Planes:
        with jax.named_scope("fft"):  # profiles find it by the name of XLA's FFT
            return kernels(given) if interpret else lax.platform_dependent(given, tpu=kernels, default=by_xla)

    return jax.custom_derivatives.linear_call(forward, lambda _, cts: transpose(cts), None, given)


def scratch_of(tiles: int, *lines: FFTLine) -> tuple[int, ...]:
    return tiles, rounded_up(max(line.rows for line in lines), SUBLANES), LANES


def steps_of(shape: Sequence[int], sizes: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(-(-n // (size or 1)) for n, size in zip(shape, sizes, strict=True))


def result_of(shape: Shape, sent: tuple[int, int] | None) -> tuple[int, ...]:
    if sent is None:
        return shape
    dim, parts = sent
    return (parts, 2, *shape[:dim], shape[dim] // parts, *shape[dim + 1 :])
