"""Exchange: one swap or several at once, of pieces that are arrays of their own."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ..collectives.chunks import Grid, Pieces, cut, divided, exchange, join, split
from ..kernels.local import resize
from ..layout.layout import Layout
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.split_complex import Block
from .base import Step, shift
from .swap import Swap

PASSES = 4  # sending reads and writes the block; so does packing or unpacking where no step beside it works on pieces
STRIDED = 8  # passes more where pieces are parts of the last dimension: short runs, one beside the other


@dataclasses.dataclass(frozen=True)
class Exchange(Step):
    """Swaps done at once: each device sends a piece to every other in the product of their mesh axes.

    The pieces are not packed into one array (see apart), which pays where devices share a memory, and not where one
    large message is better than many.

    Attributes:
        swaps: as they would follow one another. No axis moves twice, and none arrives in a dimension that another left.
        chunks: how each piece is cut again, to what all exchanges of a walk can send; each chunk in an all_to_all.
    """

    swaps: tuple[Swap, ...]
    chunks: Grid = ()
    dims: ClassVar[tuple[int, ...]] = ()
    keeps: ClassVar[bool] = True

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for swap in self.swaps for axis in swap.axes)

    @property
    def parts(self) -> int:
        return math.prod(swap.parts for swap in self.swaps)

    @property
    def taken(self) -> Grid:
        """How the block is taken apart."""
        return (*((swap.target, swap.parts) for swap in self.swaps), *self.chunks)

    @property
    def joined(self) -> Grid:
        """How what was received is put together."""
        return (*((swap.source, swap.parts) for swap in reversed(self.swaps)), *self.chunks)

    def piece(self, layout: Layout) -> tuple[int, ...]:
        """Shape of what goes to one device, all chunks together."""
        after, targets = self.after(layout), {swap.target for swap in self.swaps}
        return tuple(after.block[d] if d in targets else layout.block[d] for d in range(layout.ndim))

    def part(self, layout: Layout) -> tuple[int, ...]:
        """Shape of a chunk of it."""
        return divided(self.piece(layout), self.chunks)

    def largest(self, layout: Layout) -> int:
        """Numbers in the largest array that it makes: the block, padded as it is sent."""
        return max(
            math.prod(self.piece(layout)) * self.parts, *(math.prod(at.block) for at in (layout, self.after(layout)))
        )

    def after(self, layout: Layout) -> Layout:
        return functools.reduce(lambda reached, swap: swap.after(reached), self.swaps, layout)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """All of the padded block leaves but one piece."""
        padded = math.prod(self.piece(layout)) * self.parts * itemsize
        many = math.prod(parts for _, parts in self.chunks)
        ends = [{swap.target for swap in self.swaps}, {swap.source for swap in self.swaps}]
        strided = sum(layout.ndim - 1 in dims for dims in ends)
        return Work(
            memory_bytes=(PASSES + STRIDED * strided) * padded,
            sent_bytes=padded // self.parts * (self.parts - 1),
            all_to_alls=many * (self.parts > 1),
            moves=(Move("all-to-all", self.axes, padded // many, many),),
            peak_bytes=4 * padded,
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        return jax.tree.map(functools.partial(self._apply, layout=layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        pieces: Pieces = {(): block}
        for swap, _, after in self._stages(layout):
            size = after.block[swap.target] * swap.parts
            padded = {key: resize(piece, swap.target, size) for key, piece in pieces.items()}
            opened = {key: split(piece, swap.target, swap.parts) for key, piece in padded.items()}
            pieces = {(*key, j): part for key, parts in opened.items() for j, part in enumerate(parts)}
        chunks = {key: cut(piece, self.chunks) for key, piece in pieces.items()}
        sent = [exchange([parts[at] for parts in chunks.values()], self.axes) for at in chunks[next(iter(chunks))]]
        came = [dict(zip(chunks[key], parts, strict=True)) for key, *parts in zip(chunks, *sent, strict=True)]
        pieces = {key: join(parts, self.chunks) for key, parts in zip(chunks, came, strict=True)}
        for swap, _, after in self._stages(layout):
            keys = dict.fromkeys(key[1:] for key in pieces)
            lines = {key: [pieces[j, *key] for j in range(swap.parts)] for key in keys}
            joined = {key: jnp.concatenate(parts, swap.source) for key, parts in lines.items()}
            pieces = {key: resize(piece, swap.source, after.block[swap.source]) for key, piece in joined.items()}
        return pieces[()]

    def transpose(self, layout: Layout) -> "Exchange":
        swaps = tuple(swap.transpose(before) for swap, before, _ in self._stages(layout))
        return Exchange(swaps[::-1], self.chunks)

    def insert(self, dim: int) -> "Exchange":
        chunks = tuple((shift(d, dim), parts) for d, parts in self.chunks)
        return Exchange(tuple(swap.insert(dim) for swap in self.swaps), chunks)

    def name(self, layout: Layout) -> str:
        names = [swap.name(before) for swap, before, _ in self._stages(layout)]
        return ", ".join([names[0], *(name.removeprefix("swap ") for name in names[1:])])

    def _stages(self, layout: Layout) -> Iterator[tuple[Swap, Layout, Layout]]:
        """Each swap, the layout it starts from, and the one it leaves."""
        for swap in self.swaps:
            yield swap, layout, (layout := swap.after(layout))
