"""Halo: extends every block of a dimension by cells of its neighbours (`functions.halo`), or adds such cells to them.

One permute for each neighbour a halo reaches. The dimension is a ring if periodic, else the halo beyond its ends is
zero. Halos of successive dimensions include the corners. The transpose adds every halo to the cells it was copied from.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.ring import permuted
from ..layout.layout import Layout, resized
from ..machine.chip import Chip
from ..machine.machine import Move, Work
from ..numerics.split_complex import Block
from .base import OneDim, names
from .sends import Wired


@dataclasses.dataclass(frozen=True)
class Halo(OneDim, Wired):
    before: int
    behind: int
    periodic: bool = True
    transposed: bool = False

    def after(self, layout: Layout) -> Layout:
        cells = (-1 if self.transposed else 1) * (self.before + self.behind)
        return resized(layout, (self.dim,), (layout.shape[self.dim] + cells * layout.parts[self.dim],))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        before, after = (math.prod(one.block) * itemsize for one in (layout, self.after(layout)))
        parts, axes = layout.parts[self.dim], layout.axes[self.dim]
        bare = self.after(layout) if self.transposed else layout
        beside = layout.block[: self.dim], layout.block[self.dim + 1 :]
        shares = [(b - a) for hops, a, b in self._hops(bare) if self._sends(hops, parts)]
        sizes = [self.message_bytes((*beside[0], cells, *beside[1]), itemsize) for cells in shares]
        moves = tuple(Move("ring", axes, nbytes, 1) for nbytes in sizes)
        return Work(
            memory_bytes=before + after,
            sent_bytes=sum(move.nbytes for move in moves),
            hops=len(moves),
            moves=moves,
            peak_bytes=before + after,
        )

    def passages(self, layout: Layout) -> float:
        return layout.parts[self.dim] > 1

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        one, bare = (self._drop, self.after(layout)) if self.transposed else (self._put, layout)
        return self.on_arrays(functools.partial(one, bare=bare), block)

    def _hops(self, bare: Layout) -> Iterator[tuple[int, int, int]]:
        """Devices ahead of the sender, and the nearest and farthest cell of each part of the halos."""
        cells = max(bare.block[self.dim], 1)
        for sign, width in ((1, self.before), (-1, self.behind)):
            for hops, first in enumerate(range(0, width, cells), 1):
                yield sign * hops, first, min(first + cells, width)

    def _sends(self, hops: int, parts: int) -> bool:
        return hops % parts != 0 if self.periodic else abs(hops) < parts

    def _sent(self, part: Array, bare: Layout, hops: int) -> Array:
        """A part of a halo from the device `hops` before; zeros from beyond the ends."""
        axes, parts = bare.axes[self.dim], bare.parts[self.dim]
        if not self._sends(hops, parts):
            return part if self.periodic else jnp.zeros_like(part)
        sources = [(i - hops) % parts if self.periodic or 0 <= i - hops < parts else None for i in range(parts)]
        return self.over_wire(permuted)(part, axes, sources)

    def _put(self, block: Array, bare: Layout) -> Array:
        dim, count = self.dim, self._count(bare)
        before, behind = list[Array](), list[Array]()
        for hops, a, b in self._hops(bare):
            first = count - (b - a) if hops > 0 else 0
            part = self._sent(lax.dynamic_slice_in_dim(block, first, b - a, dim), bare, hops)
            (before if hops > 0 else behind).append(part)
        whole = lax.concatenate([*before[::-1], block, *behind], dim)
        if isinstance(count, int) or not behind:
            return whole
        return lax.dynamic_update_slice_in_dim(whole, lax.concatenate(behind, dim), self.before + count, dim)

    def _drop(self, block: Array, bare: Layout) -> Array:
        dim, count = self.dim, self._count(bare)
        kept = lax.slice_in_dim(block, self.before, self.before + bare.block[dim], axis=dim)
        if not isinstance(count, int):
            kept = jnp.where(lax.broadcasted_iota(np.int32, kept.shape, dim) < count, kept, jnp.zeros_like(kept))
        for hops, a, b in self._hops(bare):
            at, to = (self.before - b, count - (b - a)) if hops > 0 else (self.before + count + a, 0)
            part = self._sent(lax.dynamic_slice_in_dim(block, at, b - a, dim), bare, -hops)
            part = part + lax.dynamic_slice_in_dim(kept, to, b - a, dim)
            kept = lax.dynamic_update_slice_in_dim(kept, part, to, dim)
        return kept

    def _count(self, bare: Layout) -> Array | int:
        counts = bare.counts(self.dim)
        if (counts == counts[0]).all():
            return int(counts[0])
        return jnp.asarray(counts.astype(np.int32))[lax.axis_index(bare.axes[self.dim])]

    def transpose(self, layout: Layout) -> "Halo":
        return dataclasses.replace(self, transposed=not self.transposed)

    def name(self, layout: Layout) -> str:
        cells = f"{self.before} + {self.behind}" if self.before else str(self.behind)
        return f"{'add halo' if self.transposed else 'halo'} {names((self.dim,), layout)} of {cells}"
