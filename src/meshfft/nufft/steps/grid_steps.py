"""Steps of the fine grid: Deconvolve and PhaseShift around the transform to it, and TileBalance before its points.

    y[n] = x[n] / product over dimensions of phihat((n - N // 2) / G)                     Deconvolve
    Y[g] -> Y[g] product over dimensions of exp(sign 2 pi i g (N // 2) / G)               PhaseShift
    block -> block, followed in its first dimension by rows with lent tiles               TileBalance

phihat is even, and large within N / 2 of 0, so modes are counted from -N // 2. The FFT counts from 0, and PhaseShift
makes up for it; with G = 2 N its factors are powers of i.

nufft/grid/balance.py plans the rounds of TileBalance. The transpose adds the rows to the blocks they were copied from.
"""

import dataclasses
import functools
import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...collectives.ring import permuted
from ...layout.elements import positions
from ...layout.layout import Layout, line_shape, resized, shift
from ...machine.chip import Chip
from ...machine.machine import Move, Work
from ...numerics.dtypes import Error, real_dtype
from ...numerics.phases import mulmod, roots
from ...numerics.split_complex import Block, Planes, in_planes, scaled
from ...steps.base import Step, names
from ...steps.sends import Wired
from ..grid.balance import Pairs, appended
from ..grid.window import Window, gain
from .point_step import TakesTables, grid_back, grid_last, own_tables, table_specs


@dataclasses.dataclass(frozen=True)
class _Factor(Step):
    """Multiplies by a factor for each position; its own transpose. Abstract."""

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
        """One pass; XLA fuses it with the halo."""
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


@dataclasses.dataclass(frozen=True)
class TileBalance(TakesTables, Wired):
    along: tuple[int, ...]  # dimensions of the grid, whose mesh axes form the ring
    rounds: tuple[tuple[Pairs, int], ...]  # (sender, receiver) pairs, and tiles per message
    tile: tuple[int, ...]  # cells of a tile, with halo

    def after(self, layout: Layout) -> Layout:
        first, (rows, _) = self.along[0], self._appended(layout)
        rows = -rows if self.transposed else rows
        return resized(layout, (first,), (layout.shape[first] + rows * layout.parts[first],))

    def axes(self, layout: Layout) -> tuple[str, ...]:
        return tuple(axis for d in self.along for axis in layout.axes[d])

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        cuts = tuple(cut for d in self.along for cut in layout.cuts[d])
        return own_tables(given, cuts, mapped)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return table_specs(operand, self.axes(layout))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        before, after = (math.prod(one.block) * itemsize for one in (layout, self.after(layout)))
        rest = math.prod(layout.block[d] for d in range(layout.ndim) if d not in self.along)
        sizes = [self.message_bytes((tiles, rest, *self.tile), itemsize) for _, tiles in self.rounds]
        moves = tuple(Move("ring", self.axes(layout), nbytes, 1) for nbytes in sizes)
        sent = sum(move.nbytes for move in moves)
        return Work(
            memory_bytes=before + after + 4 * sent,
            sent_bytes=sent,
            hops=len(moves),
            moves=moves,
            peak_bytes=before + after + 2 * sent,
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        one = self._home if self.transposed else self._lent
        return self.on_arrays(functools.partial(one, layout=layout, starts=operand[0]), block)

    def _lent(self, block: Array, layout: Layout, starts: Array) -> Array:
        block = grid_last(block, self.along)
        received, first = [], 0
        for pairs, tiles in self.rounds:
            message = lax.map(functools.partial(self._cut, block), starts[first : first + tiles])
            sources = _sources(pairs, layout, self.along)
            received.append(self.over_wire(permuted)(message, self.axes(layout), sources))
            first += tiles
        rows, at = self._appended(layout)
        behind = jnp.zeros((block.shape[0], rows, *block.shape[2:]), block.dtype)
        behind = _added(behind, jnp.concatenate(received), at)
        return grid_back(lax.concatenate([block, behind], 1), self.after(layout), self.along)

    def _home(self, block: Array, layout: Layout, starts: Array) -> Array:
        block = grid_last(block, self.along)
        rows, at = self._appended(layout)
        bare = block.shape[1] - rows
        kept, behind = block[:, :bare], block[:, bare:]
        tiles = lax.map(functools.partial(self._cut, behind), jnp.asarray(at))
        first = 0
        for pairs, many in self.rounds:
            back = tuple((helper, owner) for owner, helper in pairs)
            sources = _sources(back, layout, self.along)
            message = self.over_wire(permuted)(tiles[first : first + many], self.axes(layout), sources)
            kept = _added(kept, message, starts[first : first + many])
            first += many
        return grid_back(kept, self.after(layout), self.along)

    def _appended(self, layout: Layout) -> tuple[int, np.ndarray]:
        return appended(sum(tiles for _, tiles in self.rounds), self.tile, layout.along(self.along).block)

    def _cut(self, block: Array, start: Array) -> Array:
        zero = jnp.zeros((), start.dtype)
        return lax.dynamic_slice(block, (zero, *start), (block.shape[0], *self.tile))

    def insert(self, dim: int) -> "TileBalance":
        return dataclasses.replace(self, along=tuple(shift(d, dim) for d in self.along))

    def name(self, layout: Layout) -> str:
        return f"{'return' if self.transposed else 'lend'} tiles of {names(self.along, layout)}"


def _sources(pairs: Pairs, layout: Layout, along: tuple[int, ...]) -> list[int | None]:
    senders = {receiver: sender for sender, receiver in pairs}
    return [senders.get(device) for device in range(math.prod(layout.parts[d] for d in along))]


def _added(block: Array, tiles: Array, starts: Array | np.ndarray) -> Array:
    """Adds tiles (tiles, coils, cells) one by one, as they may overlap."""
    starts = jnp.asarray(starts, jnp.int32)

    def add(i: Array, block: Array) -> Array:
        at = (jnp.zeros((), jnp.int32), *starts[i])
        return lax.dynamic_update_slice(block, lax.dynamic_slice(block, at, tiles.shape[1:]) + tiles[i], at)

    return lax.fori_loop(np.int32(0), np.int32(len(tiles)), add, block)
