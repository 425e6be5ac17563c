"""Swap: mesh axes leave one dimension and cut another, in one all_to_all."""

import dataclasses
import math
from typing import Any, ClassVar

import jax
from jax import Array

from ..collectives.all_to_all import exchange
from ..kernels.local import resize
from ..layout.layout import Cuts, Layout, join_axes
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.split_complex import Block
from .base import Step, names, shift

PASSES = 6  # packing, exchanging and unpacking each read and write the block
TILED_PASSES = 8  # where memory is tiled, packing and unpacking also transpose tiles


@dataclasses.dataclass(frozen=True)
class Swap(Step):
    """Mesh axes leave dimension `source` and make the cuts `leaves` in `target`, padded at its end where they do not
    divide.
    """

    source: int
    target: int
    leaves: Cuts
    dims: ClassVar[tuple[int, ...]] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(cut.axis for cut in self.leaves)

    @property
    def parts(self) -> int:
        return math.prod(cut.parts for cut in self.leaves)

    def after(self, layout: Layout) -> Layout:
        source, target = layout.cuts[self.source][: -len(self.leaves)], layout.cuts[self.target] + self.leaves
        opened = layout.replace(self.source, layout.shape[self.source], source)
        return opened.replace(self.target, layout.shape[self.target], target)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """All of the padded block leaves but one part in p.

        Packing, exchanging and unpacking each read and write it.
        """
        shape = list(layout.block)
        shape[self.target] = self.after(layout).block[self.target] * self.parts
        padded = math.prod(shape) * itemsize
        return Work(
            memory_bytes=(TILED_PASSES if chip.planes else PASSES) * padded,
            sent_bytes=padded // self.parts * (self.parts - 1),
            all_to_alls=int(self.parts > 1),
            moves=(Move("all-to-all", self.axes, padded, 1),),
            peak_bytes=4 * padded,
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        return self.exchange(block, layout)

    def exchange(self, block: Block, layout: Layout, kept: int | None = None) -> Block:
        """The swap of a block, or of a part of it that holds some rows of dimension `kept`."""
        after = self.after(layout).block

        def swap(block: Array) -> Array:
            if self.target != kept:
                block = resize(block, self.target, after[self.target] * self.parts)
            block = exchange(block, self.axes, self.target, self.source)
            return block if self.source == kept else resize(block, self.source, after[self.source])

        return jax.tree.map(swap, block)

    def transpose(self, layout: Layout) -> "Swap":
        return Swap(self.target, self.source, layout.cuts[self.source][-len(self.leaves) :])

    def insert(self, dim: int) -> "Swap":
        return dataclasses.replace(self, source=shift(self.source, dim), target=shift(self.target, dim))

    def name(self, layout: Layout) -> str:
        return f"swap {join_axes(self.axes)}: {names((self.source,), layout)} -> {names((self.target,), layout)}"
