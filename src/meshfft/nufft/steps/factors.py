"""Factors along dimensions, around the transform to a fine grid: Deconvolve and PhaseShift.

    y[n] = x[n] / product over dimensions of phihat((n - N // 2) / G)                     Deconvolve
    Y[g] -> Y[g] product over dimensions of exp(sign 2 pi i g (N // 2) / G)               PhaseShift

Deconvolve divides N modes by the transform of the window; n - N // 2 is at most N / 2 from 0, where phihat is large.
phihat is even, so modes are counted from -N // 2. The FFT counts from 0, and PhaseShift makes up for it. With G = 2 N
its factors are powers of i.
"""

import dataclasses
import functools
import math
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from ...layout.elements import positions
from ...layout.layout import Layout, line_shape, shift
from ...machine.chip import Chip
from ...machine.machine import Work
from ...numerics.dtypes import Error, real_dtype
from ...numerics.phases import mulmod, roots
from ...numerics.split_complex import Block, Planes, in_planes, scaled
from ...steps.base import Step, names
from ..grid.window import Window, gain


@dataclasses.dataclass(frozen=True)
class _Factor(Step):
    """Multiplies by a factor for each position along some dimensions; its own transpose. Abstract."""

    along: tuple[int, ...]
    dims: ClassVar[tuple[int, ...]] = ()

    def transpose(self, layout: Layout) -> Self:
        return self

    def insert(self, dim: int) -> Self:
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))


@dataclasses.dataclass(frozen=True)
class Deconvolve(_Factor):
    grid: tuple[int, ...]
    window: Window

    def error(self, layout: Layout, itemsize: int) -> Error:
        return Error(len(self.along) * self.window.worst, condition=gain(self.window) ** len(self.along))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        size = math.prod(layout.block)
        nbytes = 2 * size * itemsize
        return Work(vector_flops=2 * len(self.along) * size, memory_bytes=nbytes, peak_bytes=nbytes)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        real = real_dtype(jax.tree.leaves(block)[0].dtype)
        for dim, cells in zip(self.along, self.grid, strict=True):
            table = jnp.asarray(_reciprocals(self.window, layout.shape[dim], cells).astype(real))
            at, inside = positions(layout, dim, layout.shape[dim])
            factor = jnp.where(inside, table[jnp.minimum(at, layout.shape[dim] - 1)], 0)
            factor = factor.reshape(line_shape(dim, layout.ndim))
            block = jax.tree.map(functools.partial(scaled, factor=factor), block)
        return block

    def name(self, layout: Layout) -> str:
        return f"deconvolve {names(self.along, layout)}"


@functools.lru_cache(maxsize=64)
def _reciprocals(window: Window, modes: int, cells: int) -> np.ndarray:
    return 1 / window.transform((np.arange(modes) - modes // 2) / cells)


@dataclasses.dataclass(frozen=True)
class PhaseShift(_Factor):
    middles: tuple[int, ...]
    sign: int

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """One pass, which XLA fuses with the halo."""
        size = math.prod(layout.block)
        nbytes = size * itemsize
        return Work(vector_flops=6 * len(self.along) * size, memory_bytes=nbytes, peak_bytes=2 * nbytes)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        real = real_dtype(jax.tree.leaves(block)[0].dtype)

        def run(planes: Planes) -> Planes:
            for dim, middle in zip(self.along, self.middles, strict=True):
                cells = layout.shape[dim]
                at, _ = positions(layout, dim, cells)
                turns = mulmod(at % cells, jnp.asarray(middle % cells, at.dtype), cells)
                cos, sin = (part.reshape(line_shape(dim, layout.ndim)) for part in roots(turns, cells, self.sign, real))
                planes = planes[0] * cos - planes[1] * sin, planes[0] * sin + planes[1] * cos
            return planes

        return in_planes(run, block)

    def conjugate(self) -> "PhaseShift":
        return dataclasses.replace(self, sign=-self.sign)

    def name(self, layout: Layout) -> str:
        return f"phase shift {names(self.along, layout)}"
