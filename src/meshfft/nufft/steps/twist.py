"""Twist: the fine grid as if modes had been counted from the middle of the image.

    Y[g] -> Y[g] product over dimensions of exp(sign 2 pi i g (N // 2) / G)

A window's transform is even, so modes are counted from -N // 2 on; the transform counts them from 0. With G = 2 N the
factors are powers of i.
"""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from ...layout.layout import Layout, line_shape
from ...machine.chip import Chip
from ...machine.work import Work
from ...numerics.dtypes import real_dtype
from ...numerics.phases import mulmod, roots
from ...numerics.split_complex import Block, Planes, in_planes
from ...steps.base import Step, names, positions, shift


@dataclasses.dataclass(frozen=True)
class Twist(Step):
    """Multiplies by roots of unity along some dimensions."""

    along: tuple[int, ...]
    middles: tuple[int, ...]  # N // 2 along each
    sign: int
    dims: ClassVar[tuple[int, ...]] = ()

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """It is one pass with the halo behind it, which XLA fuses."""
        size = math.prod(layout.block)
        return Work(
            vector_flops=6 * len(self.along) * size, memory_bytes=size * itemsize, peak_bytes=2 * size * itemsize
        )

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

    def transpose(self, layout: Layout) -> "Twist":
        return self

    def conjugate(self) -> "Twist":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "Twist":
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))

    def name(self, layout: Layout) -> str:
        return f"twist {names(self.along, layout)}"
