"""Margin: trims the halo cells on both sides of every block, or pads blocks with zeros there.

    block of n + 2 m cells  ->  its n inner ones  ->  n + 2 m with m zeros on either side

Local. Invariant: margin cells, NaN included, reach no result.
"""

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..layout.layout import Layout, resized
from ..machine.chip import Chip
from ..machine.work import Work
from ..numerics.split_complex import Block
from .base import Chunked, names, shift
from .problem import Held


@dataclasses.dataclass(frozen=True)
class Margin(Chunked):
    widths: tuple[tuple[int, int], ...]  # (dimension, cells on either side of a block)
    onto: bool  # pads instead of trimming
    dims: ClassVar[tuple[int, ...]] = ()

    def after(self, layout: Layout) -> Layout:
        sign = 1 if self.onto else -1
        grown = (layout.shape[d] + 2 * sign * m * layout.parts[d] for d, m in self.widths)
        return resized(layout, tuple(d for d, _ in self.widths), tuple(grown))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        inner, wide = sorted(itemsize * math.prod(one.block) for one in (layout, self.after(layout)))
        return Work(
            memory_bytes=inner + (wide if self.onto else inner), peak_bytes=2 * inner, beside_bytes=wide - inner
        )

    def held(self, layout: Layout, itemsize: int) -> Held:
        wide = self.after(layout) if self.onto else layout
        return Held(math.prod(wide.block), wide.block)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        return jax.tree.map(functools.partial(self._apply, ndim=layout.ndim), block)

    def _apply(self, block: Array, ndim: int) -> Array:
        widths, sign = dict(self.widths), 1 if self.onto else -1  # negative widths crop
        around = [(sign * widths.get(d, 0), sign * widths.get(d, 0), 0) for d in range(ndim)]
        return lax.pad(block, jnp.zeros((), block.dtype), around)

    def transpose(self, layout: Layout) -> "Margin":
        return dataclasses.replace(self, onto=not self.onto)

    def insert(self, dim: int) -> "Margin":
        return dataclasses.replace(self, widths=tuple((shift(d, dim), m) for d, m in self.widths))

    def name(self, layout: Layout) -> str:
        cells = ", ".join(f"{names((d,), layout)} by {m}" for d, m in self.widths)
        return f"{'pad' if self.onto else 'trim'} {cells}"
