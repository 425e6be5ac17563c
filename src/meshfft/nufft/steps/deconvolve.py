"""Deconvolve: an image divided by the transform of the window, which gridding multiplies by.

    y[n] = x[n] / product over dimensions of phihat((n - N // 2) / G)        N modes, G cells of the fine grid

Real, so that it is its own transpose and its own adjoint. Invariant: n - N // 2 is at most N / 2 away from 0, where the
window's transform is far from 0.
"""

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ...layout.layout import Layout, line_shape
from ...machine.chip import Chip
from ...machine.work import Work
from ...numerics.dtypes import Error, real_dtype
from ...numerics.split_complex import Block, scaled
from ...steps.base import Step, names, positions, shift
from ..grid.window import Window


@dataclasses.dataclass(frozen=True)
class Deconvolve(Step):
    """Divides some dimensions by the window's transform."""

    along: tuple[int, ...]
    grid: tuple[int, ...]  # cells of the fine grid along each
    window: Window
    dims: ClassVar[tuple[int, ...]] = ()

    def error(self, itemsize: int) -> Error:
        """That of gridding with the window, for the point and the mode that it is largest for."""
        return Error(len(self.along) * self.window.worst)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        size = math.prod(layout.block)
        return Work(
            vector_flops=2 * len(self.along) * size, memory_bytes=2 * size * itemsize, peak_bytes=2 * size * itemsize
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        real = real_dtype(jax.tree.leaves(block)[0].dtype)
        for dim, cells in zip(self.along, self.grid, strict=True):
            table = jnp.asarray(_reciprocals(self.window, layout.shape[dim], cells).astype(real))
            at, inside = positions(layout, dim, layout.shape[dim])
            factor = jnp.where(inside, table[jnp.minimum(at, layout.shape[dim] - 1)], 0)
            factor = factor.reshape(line_shape(dim, layout.ndim))
            block = jax.tree.map(functools.partial(scaled, factor=factor), block)
        return block

    def transpose(self, layout: Layout) -> "Deconvolve":
        return self

    def insert(self, dim: int) -> "Deconvolve":
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))

    def name(self, layout: Layout) -> str:
        return f"deconvolve {names(self.along, layout)}"


@functools.lru_cache(maxsize=64)
def _reciprocals(window: Window, modes: int, cells: int) -> np.ndarray:
    """1 / phihat of every mode, in float64."""
    return 1 / window.transform((np.arange(modes) - modes // 2) / cells)
