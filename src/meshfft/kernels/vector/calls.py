"""How the kernels are called: blocks of two planes, tables, scratch memory, and the fast memory that all take."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...layout.placement import varies_over, varying
from ...numerics.split_complex import Planes
from .along import Line

BUFFERS = 2 * 2 * 2  # blocks in fast memory: two planes, come and gone, one worked on while another travels
SCRATCH = 2 * 2  # scratch memories: two of two planes
MARGIN = 2**20  # for what does not stay in registers
WIDE = (512, 256, 128)  # columns of a block
MANY_REGISTERS = 2**25  # bytes of fast memory that only TPUs with 64 registers have


@dataclasses.dataclass(frozen=True)
class Blocks:
    """What one step of a kernel's grid works on: the sizes of its block, and how an array is cut into such.

    A size of None is one position of a dimension that the kernel does not see.
    """

    sizes: tuple[int | None, ...]
    scratch: tuple[int, ...]  # sizes of one plane

    def grid(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Steps along each dimension; blocks may reach over the end."""
        return tuple(-(-n // (size or 1)) for n, size in zip(shape, self.sizes, strict=True))

    @property
    def numbers(self) -> int:
        return math.prod(size or 1 for size in self.sizes)


def fast_bytes(lines: Sequence[Line], blocks: Blocks) -> int:
    """Bytes of fast memory that a kernel takes."""
    tables = sum(2 * table.nbytes for line in lines for table in line.tables()[1:])
    return 4 * (BUFFERS * blocks.numbers + SCRATCH * math.prod(blocks.scratch)) + tables + MARGIN


def call(
    kernel: Callable[..., None], name: str, planes: Planes, lines: Sequence[Line], blocks: Blocks, interpret: bool
) -> Planes:
    """Runs a kernel(tables of each line, source, scratch, target) over all blocks of two planes."""
    tables = [table for line in lines for table in line.tables()]
    spec = pl.BlockSpec(blocks.sizes, lambda *at: at)
    like = planes[0]
    out = jax.ShapeDtypeStruct(like.shape, like.dtype, manual_axis_type=jax.typeof(like).manual_axis_type)

    def body(*refs: Any) -> None:
        given, (xr, xi, yr, yi, *scratch) = refs[: len(tables)], refs[len(tables) :]
        pairs = [given[j : j + 2] for j in range(0, len(given), 2)]
        kernel(pairs, (xr, xi), [tuple(scratch[:2]), tuple(scratch[2:])], (yr, yi))

    run = pl.pallas_call(
        body,
        grid=blocks.grid(like.shape),
        in_specs=[*map(_table, tables), spec, spec],
        out_specs=[spec, spec],
        out_shape=[out, out],
        scratch_shapes=[pltpu.VMEM(blocks.scratch, jnp.float32)] * SCRATCH,
        compiler_params=pltpu.CompilerParams(
            vmem_limit_bytes=fast_bytes(lines, blocks), dimension_semantics=(pltpu.PARALLEL,) * like.ndim
        ),
        interpret=interpret,
        name=name,
    )
    with jax.enable_x64(False):  # Pallas takes Python's integers for 64 bits otherwise, and refuses them
        operands: list[Array] = varying([*map(jnp.asarray, tables), *planes], varies_over(like))
        re, im = run(*operands)
    return re, im


def _table(table: np.ndarray) -> pl.BlockSpec:
    """Numbers of the passes lie where scalars do; the last pass's are registers."""
    if table.ndim == 1:
        return pl.BlockSpec(memory_space=pltpu.SMEM)
    return pl.BlockSpec(table.shape, lambda *at: (0,) * table.ndim)


def rounded(size: int, to: int) -> int:
    """The size, up to a multiple."""
    return -(-size // to) * to
