"""Exchange: mesh axes leave dimensions and cut others, in one all-to-all."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import Array

from ..collectives import all_to_all
from ..collectives.all_to_all import Chunks, Grid, Stages, count, cut, divided, join, split
from ..collectives.levels import Wires
from ..collectives.wires import Wire
from ..layout.layout import Layout, shift
from ..layout.moves import AxisMove, at_once, moves_from
from ..machine.chip import Chip
from ..machine.machine import Move, Work
from ..machine.network import STAGES
from ..numerics.dtypes import Error
from ..numerics.split_complex import Block, folded, in_complex, resize, resize_each, unfolded
from ..operators.matrices import Matrix
from .base import Chunked
from .problem import LARGE_BYTES, Held, Least, Problem
from .sends import Wired

PASSES = 4  # over the block: to send it, and to pack, unpack or (GPU) transpose it once (docs/speed.md)
STRIDED = 8  # more if chunks cut the last dimension: runs are short
PACKED_PASSES = 6  # packing, exchanging and unpacking each read and write the block
STAGE_PASSES = 4  # more for a second stage
TILED_PASSES = 8  # in tiled memory, packing and unpacking also transpose tiles
MOST_CHUNKS = 16  # most devices to receive a chunk each: every chunk is an array


def axis_moves(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> tuple[tuple[AxisMove, Layout], ...]:
    """Moves of mesh axes, with the layout after each."""
    once = problem.goal is None and problem.options.method == "transpose" and not problem.machine.chip.cached
    return moves_from(layout, problem.goal, frozenset(todo), once)


@dataclasses.dataclass(frozen=True)
class Exchange(Wired, Chunked):
    """Each device sends a share of its block to every other along the axes that move. Packed shares form one large
    message; with a shared memory, shares are separate arrays.
    """

    moves: tuple[AxisMove, ...]  # in order; no axis moves twice, or into a dimension that another left
    chunks: Grid = ()  # of each share; an all-to-all each
    packed: bool = False
    stages: Stages = ()  # of a packed move: inside domains, then between them
    near: Wire | None = None  # of the first stage; None if it is the second's
    dims: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["Exchange"]:
        """Single packed moves; with a shared memory or a switch, also several. Axes move for "kdft" only if the result
        would not divide otherwise.
        """
        stays = problem.goal is not None and problem.goal.axes == problem.start.axes
        if problem.options.method == "kdft" and (stays or not problem.even):
            return
        switched = problem.machine.chip.switched
        if not (switched or problem.large(layout)):
            single = (cls((move,), packed=True) for move, _ in axis_moves(problem, layout, todo))
            yield from (step for one in single for step in one._in_stages(problem))
            return
        queue: list[tuple[tuple[AxisMove, ...], Layout]] = [((), layout)]
        reached = set[Layout]()  # one exchange each
        for done, at in queue:  # grows
            for move, after in axis_moves(problem, at, todo):
                if after in reached or not at_once(moves := (*done, move)):
                    continue
                few = switched or math.prod(one.parts for one in moves) <= MOST_CHUNKS
                if few or not done:
                    reached.add(after)
                    yield from cls(moves, packed=switched or not few)._in_stages(problem)
                    queue += [(moves, after)] if few else []

    def _in_stages(self, problem: Problem) -> Iterator["Exchange"]:
        yield self
        if self.packed and len(self.moves) == 1 and (stages := problem.machine.stages(self.axes)):
            yield dataclasses.replace(self, stages=stages)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        nbytes, chip, cached = problem.least_bytes, problem.machine.chip, problem.machine.chip.cached
        packs = nbytes < LARGE_BYTES or math.prod(problem.start.parts) > MOST_CHUNKS
        always = not chip.switched and not (cached and problem.most_bytes >= LARGE_BYTES)
        passes = PACKED_PASSES if always else PASSES
        more = (PACKED_PASSES - PASSES if packs else STRIDED) if cached and not always else 0
        move = problem.bound(Work(memory_bytes=passes * nbytes, sent_bytes=nbytes // 2, all_to_alls=1))
        return Least(move=move, strided=problem.bound(Work(memory_bytes=more * nbytes)), single=always)

    def wired(self, wires: Wires) -> Self:
        near = wires.inner if self.stages and wires.inner != wires.outer else None
        step = super().wired(wires)
        return step if near == step.near else dataclasses.replace(step, near=near)

    @property
    def wires(self) -> tuple[Wire, ...]:
        return (self.wire,) if self.near is None else (self.near, self.wire)

    def joint(self, layout: Layout) -> bool:
        return self.lossy or self.near is not None

    def error(self, layout: Layout, itemsize: int) -> Error:
        return Error.of_all(Error(lost=each.error * (self.parts > 1)) for each in self.wires)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for move in self.moves for axis in move.axes)

    @property
    def parts(self) -> int:
        return math.prod(move.parts for move in self.moves)

    @property
    def grids(self) -> tuple[Grid, Grid]:
        moves = () if self.packed else self.moves
        cut = (*((move.target, move.parts) for move in moves), *self.chunks)
        return cut, (*((move.source, move.parts) for move in moves[::-1]), *self.chunks)

    def sent(self, layout: Layout) -> tuple[int, ...] | None:
        return None if self.packed else self.share(layout)

    def share(self, layout: Layout) -> tuple[int, ...]:
        after, targets = self.after(layout).block, {move.target for move in self.moves}
        return tuple(after[d] if d in targets else size for d, size in enumerate(layout.block))

    def in_chunks(self, layout: Layout, chunk: tuple[int, ...]) -> "Exchange":
        sizes = enumerate(zip(self.share(layout), chunk, strict=True))
        return dataclasses.replace(self, chunks=tuple((dim, n // size) for dim, (n, size) in sizes if n > size))

    def held(self, layout: Layout, itemsize: int) -> Held | None:
        if self.packed or self.lossy:
            return None
        share, blocks = self.share(layout), (layout.block, self.after(layout).block)
        return Held(max(math.prod(share) * self.parts, *map(math.prod, blocks)), divided(share, self.chunks))

    def after(self, layout: Layout) -> Layout:
        return functools.reduce(lambda reached, move: move.after(reached), self.moves, layout)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        parts, many, share = self.parts, count(self.chunks), self.share(layout)
        kinds = STAGES if self.stages else ("all-to-all",)
        sizes = (len(self.stages[0]), len(self.stages)) if self.stages else (parts,)
        padded, each = math.prod(share) * parts * itemsize, divided(share, self.chunks)
        wires = self.wires if self.near else self.wires * len(kinds)
        sent = [many * one.nbytes(each, itemsize) * parts for one in wires]
        passes = TILED_PASSES if chip.planes else PASSES if chip.switched else PACKED_PASSES
        if not self.packed:
            ends = {move.target for move in self.moves}, {move.source for move in self.moves}
            passes = PASSES + STRIDED * sum(layout.ndim - 1 in dims for dims in ends)
        alive = 4 * padded - padded // parts * (self.packed and chip.cached and not self.stages)
        alive += sent[-1] * (self.lossy and chip.switched)
        if chip.cached and self.lossy:
            alive = 3 * padded + min(2 * sent[-1], padded * 5 // 4)  # words both ways share memory with a block
        operations, coded = self.coding((parts, *share), itemsize, 2, chip)
        return Work(
            vector_flops=operations,
            memory_bytes=(passes + STAGE_PASSES * (len(kinds) - 1)) * padded + coded,
            sent_bytes=sum(nbytes * (n - 1) // n for nbytes, n in zip(sent, sizes, strict=True)),
            all_to_alls=many * (parts > 1) * len(kinds),
            moves=tuple(Move(kind, self.axes, nbytes // many, many) for kind, nbytes in zip(kinds, sent, strict=True)),
            peak_bytes=alive,
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        if self.packed:
            apply = self.apply_to_rows if len(self.moves) == 1 else self._apply_at_once
            return apply(block, layout)
        apply = functools.partial(self._apply, layout=layout)
        return in_complex(apply, block) if self.joint(layout) else jax.tree.map(apply, block)

    def apply_to_rows(self, block: Block, layout: Layout, kept: int | None = None) -> Block:
        """The packed exchange of a block, or of some rows of dimension `kept`."""
        ((source, target, _),), after = self.moves, self.after(layout).block
        if target != kept:
            block = resize_each(block, (target,), (after[target] * self.parts,))
        send = functools.partial(self.over_wire(all_to_all.exchange_packed), stages=self.stages, near=self.near)
        block = send(block, self.axes, target, source)
        return block if source == kept else resize_each(block, (source,), (after[source],))

    def _apply_at_once(self, block: Block, layout: Layout) -> Block:
        """The packed exchange of several moves: each adds a leading dimension for its shares."""
        stages, share = list(self._stages(layout)), self.share(layout)
        counts = tuple(move.parts for move in self.moves)

        def opened(block: Array) -> Array:
            for j, (move, _, after) in enumerate(stages):
                block = resize(block, j + move.target, after.block[move.target] * move.parts)
                block = jnp.moveaxis(unfolded(block, j + move.target, move.parts), j + move.target, j)
            return block.reshape(-1, *share)

        def joined(block: Array) -> Array:
            block = block.reshape(*counts, *share)
            for left, (move, _, after) in zip(range(len(stages))[::-1], stages, strict=True):
                block = folded(jnp.moveaxis(block, 0, left + move.source), left + move.source)
                block = resize(block, left + move.source, after.block[move.source])
            return block

        return jax.tree.map(joined, self.over_wire(all_to_all.exchange_shares)(jax.tree.map(opened, block), self.axes))

    def _apply(self, block: Array, layout: Layout) -> Array:
        shares: Chunks = {(): block}
        for move, _, after in self._stages(layout):
            size = after.block[move.target] * move.parts
            padded = {key: resize(share, move.target, size) for key, share in shares.items()}
            opened = {key: split(share, move.target, move.parts) for key, share in padded.items()}
            shares = {(*key, j): part for key, parts in opened.items() for j, part in enumerate(parts)}
        chunks = {key: cut(share, self.chunks) for key, share in shares.items()}
        every = chunks[next(iter(chunks))]
        send = self.over_wire(all_to_all.exchange)
        sent = [send([parts[at] for parts in chunks.values()], self.axes) for at in every]
        came = [dict(zip(chunks[key], parts, strict=True)) for key, *parts in zip(chunks, *sent, strict=True)]
        shares = {key: join(parts, self.chunks) for key, parts in zip(chunks, came, strict=True)}
        for move, _, after in self._stages(layout):
            keys = dict.fromkeys(key[1:] for key in shares)
            lines = {key: [shares[j, *key] for j in range(move.parts)] for key in keys}
            joined = {key: jnp.concatenate(parts, move.source) for key, parts in lines.items()}
            shares = {key: resize(share, move.source, after.block[move.source]) for key, share in joined.items()}
        return shares[()]

    def transpose(self, layout: Layout) -> "Exchange":
        moves = tuple(move.transpose(before) for move, before, _ in self._stages(layout))
        return dataclasses.replace(self, moves=moves[::-1])

    def insert(self, dim: int) -> "Exchange":
        chunks = tuple((shift(d, dim), parts) for d, parts in self.chunks)
        return dataclasses.replace(self, moves=tuple(move.insert(dim) for move in self.moves), chunks=chunks)

    def name(self, layout: Layout) -> str:
        moves = ", ".join(move.name(before) for move, before, _ in self._stages(layout))
        return f"all-to-all {moves}{' (in two stages)' * (len(self.stages) > 0)}"

    def _stages(self, layout: Layout) -> Iterator[tuple[AxisMove, Layout, Layout]]:
        for move in self.moves:
            yield move, layout, (layout := move.after(layout))
