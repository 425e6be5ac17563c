"""How the kernels are called: tables, blocks of what comes and goes, scratch memory, and the fast memory they take."""

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

from ...layout.placement import varies_over, varying
from .along import Line
from .sources import Planes as Refs

BUFFERS = 2  # of a block: one is worked on while another travels
MARGIN = 2**20  # bytes for what does not stay in registers
WIDE = (512, 256, 128)  # columns of a block
MANY_REGISTERS = 2**25  # bytes of fast memory that only TPUs with 64 registers have
Kernel = Callable[[Sequence[Any], Any, list[Refs], Any], None]  # tables, sources, scratch, targets


@dataclasses.dataclass(frozen=True)
class Side:
    """Arrays of one shape, and the block of each that a step of the grid has.

    A size of None is one position of a dimension that the kernel does not see. The last block may reach over the end.
    `begin` is a dimension, and the position at which arrays that are longer begin to be read.
    """

    shape: tuple[int, ...]
    sizes: tuple[int | None, ...]
    arrays: int = 2  # real and imaginary planes
    begin: tuple[int, int] = (0, 0)

    @property
    def bytes(self) -> int:
        """Of all blocks."""
        return 4 * self.arrays * BUFFERS * math.prod(size or 1 for size in self.sizes)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps along each dimension."""
        return tuple(-(-n // (size or 1)) for n, size in zip(self.shape, self.sizes, strict=True))

    def specs(self) -> list[pl.BlockSpec]:
        """Of every array."""
        return [pl.BlockSpec(self.sizes, self.place)] * self.arrays

    def place(self, *step: Any) -> tuple[Any, ...]:
        """Which block of an array a step of the grid has."""
        (dim, position), order = self.begin, list(step)
        order[dim] += position // (self.sizes[dim] or 1)
        return tuple(order)


@dataclasses.dataclass(frozen=True)
class Divided:
    """Arrays of both planes, in parts of one dimension: one that is sent, or the pieces that arrived."""

    side: Side  # of a plane that is not divided
    dim: int
    parts: int
    arrays: int = 1

    @property
    def whole(self) -> bool:
        """True where a block has all parts, and else a share of one."""
        size = self.side.sizes[self.dim]
        return size is not None and size >= self.side.shape[self.dim]

    @property
    def rows(self) -> int:
        """Of a part."""
        return self.side.shape[self.dim] // self.parts // self.arrays

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.parts, 2, *self._with(self.side.shape, self.rows))

    @property
    def bytes(self) -> int:
        """Of all blocks."""
        return 4 * 2 * BUFFERS * math.prod(size or 1 for size in self.side.sizes)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps along each dimension."""
        return self.side.steps

    def specs(self) -> list[pl.BlockSpec]:
        """Of every array."""
        if self.whole:
            sizes = (self.parts, 2, *self._with(self.side.sizes, self.rows))
            return [pl.BlockSpec(sizes, lambda *step: (0, 0, *self.side.place(*step)))] * self.arrays
        each = self.rows // (self.side.sizes[self.dim] or 1)

        def at(*step: Any) -> tuple[Any, ...]:
            place = list(self.side.place(*step))
            part, place[self.dim] = lax.div(place[self.dim], np.int32(each)), lax.rem(place[self.dim], np.int32(each))
            return (part, 0, *place)

        return [pl.BlockSpec((None, 2, *self.side.sizes), at)] * self.arrays

    def _with(self, sizes: tuple[Any, ...], size: int) -> tuple[Any, ...]:
        return (*sizes[: self.dim], size, *sizes[self.dim + 1 :])


@dataclasses.dataclass(frozen=True)
class Placed:
    """Arrays whose blocks are where `place` says, of a step of the grid; a size of None is one position."""

    shape: tuple[int, ...]
    sizes: tuple[int | None, ...]
    steps: tuple[int, ...]
    place: Callable[..., tuple[Any, ...]]
    arrays: int = 1

    @property
    def bytes(self) -> int:
        """Of all blocks."""
        return 4 * self.arrays * BUFFERS * math.prod(size or 1 for size in self.sizes)

    def specs(self) -> list[pl.BlockSpec]:
        """Of every array."""
        return [pl.BlockSpec(self.sizes, self.place)] * self.arrays


@dataclasses.dataclass(frozen=True)
class Job:
    """What a kernel works on: lines, blocks that come and go, and scratch memories of two planes each.

    `twist` is a table of weights, as scalars, and which row of it a step of the grid has.
    `fixed` are more tables, the same for every step; `more` are sizes of more scratch memories.
    """

    lines: tuple[Line, ...]
    source: Side | Divided | Placed
    target: Side | Divided | Placed
    scratch: tuple[int, ...]  # sizes of one plane
    memories: int = 1
    at_once: int = 2  # tiles in one body of a loop: independent work for the compiler to interleave
    twist: tuple[np.ndarray, Callable[..., Any]] | None = None
    fixed: tuple[np.ndarray, ...] = ()
    more: tuple[tuple[int, ...], ...] = ()

    @functools.cached_property
    def bytes(self) -> int:
        """Of fast memory."""
        tables = sum(line.table_bytes for line in self.lines) + sum(table.nbytes for table in self.fixed)
        scratch = 8 * sum(map(math.prod, self.scratches))
        return self.source.bytes + self.target.bytes + scratch + tables + MARGIN

    @property
    def scratches(self) -> tuple[tuple[int, ...], ...]:
        """Sizes of every scratch memory, of one plane."""
        return (self.scratch,) * self.memories + self.more

    def run(self, kernel: Kernel, name: str, arrays: Sequence[Array], interpret: bool) -> list[Array]:
        """Runs the kernel over all blocks."""
        tables, specs = zip(*self._tables(), strict=True)
        like, target = arrays[0], self.target
        out = jax.ShapeDtypeStruct(target.shape, like.dtype, manual_axis_type=jax.typeof(like).manual_axis_type)
        ends = list(itertools.accumulate((len(tables), self.source.arrays, target.arrays)))

        def body(*refs: Any) -> None:
            scratch = [(refs[j], refs[j + 1]) for j in range(ends[2], len(refs), 2)]
            kernel(refs[: ends[0]], refs[ends[0] : ends[1]], scratch, refs[ends[1] : ends[2]])

        call = pl.pallas_call(
            body,
            grid=self.source.steps,
            in_specs=[*specs, *self.source.specs()],
            out_specs=target.specs(),
            out_shape=[out] * target.arrays,
            scratch_shapes=[pltpu.VMEM(sizes, jnp.float32) for sizes in self.scratches for _ in range(2)],
            compiler_params=pltpu.CompilerParams(
                vmem_limit_bytes=self.bytes, dimension_semantics=(pltpu.PARALLEL,) * len(self.source.steps)
            ),
            interpret=interpret,
            name=name,
        )
        with jax.enable_x64(False):  # Pallas takes Python's integers for 64 bits otherwise, and refuses them
            return list(call(*varying([*map(jnp.asarray, tables), *arrays], varies_over(like))))

    def _tables(self) -> Iterator[tuple[np.ndarray, pl.BlockSpec]]:
        """Of each line the numbers of the passes, which lie where scalars do, and the last pass's, which are registers;
        and those of the twist."""
        for line in self.lines:
            passes, last = line.tables()
            yield passes, pl.BlockSpec(memory_space=pltpu.SMEM)
            yield last, _whole(last)
        for table in self.fixed:
            yield table, _whole(table)
        if self.twist is not None:
            table, place = self.twist
            sizes = (None, *table.shape[1:])
            yield table, pl.BlockSpec(sizes, lambda *at: (place(*at), 0, 0), memory_space=pltpu.SMEM)


def _whole(table: np.ndarray) -> pl.BlockSpec:
    """A table that is brought once."""
    return pl.BlockSpec(table.shape, lambda *at: (0,) * table.ndim, pipeline_mode=pl.Buffered(1))


def rounded(size: int, to: int) -> int:
    """The size, up to a multiple."""
    return -(-size // to) * to
