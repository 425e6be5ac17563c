"""RingDense: the paper's KDFT of one dimension, dense products while the blocks go round the ring."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from ..collectives.ring import ring_fold, ring_scatter
from ..layout.layout import Cuts, Layout
from ..layout.placement import own
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.dtypes import Dot, real_dtype
from ..numerics.phases import MAX_LENGTH
from ..numerics.products import COLUMNS, LONG_TERMS, TERMS, Factors, Maker, planes_of, product, product_in_tiles
from ..numerics.split_complex import Block, Planes, in_complex, in_planes
from ..operators.matrices import Dense, Matrix, Samples
from ..operators.operands import rows_of, table
from .base import Least, Problem, Step, names, padded, ready, shift, turned

PHASE_FLOPS = 40  # one root of unity on the CPU: integer reduction, cos and sin
LONG_PHASE_FLOPS = 400  # elsewhere, where cos and sin are written out
GAUSS_PASSES = 2  # for each shard the sum and the difference of its planes are read and written


@dataclasses.dataclass(frozen=True)
class RingDense(Step):
    """A dense matrix along one dimension, over a ring; for the paper's KDFT it is the Vandermonde matrix of that
    dimension (section III-A, Algorithm 1).

    Straight, blocks travel: a device has the rows of the matrix at the positions it will hold, and meets the columns
    shard by shard. Turned, for the transpose of a matrix whose operand lies with its rows, sums travel. Either way
    blocks of the matrix are made, a run of columns at a time, where they are used.

    Attributes:
        dim: the dimension.
        matrix: the matrix, or where turned the one whose transpose is applied.
        size: positions of the result; beyond the matrix it is zero.
        leaves: the cuts of the result.
        dot: how to multiply.
        slot: which of the walk's operands is the matrix's.
        turned: apply the transpose.
        two_way: blocks travel both ways round at once.
        real: the block is real, and travels as such.
        tiled: blocks are multiplied a tile at a time, as caches like it, and travel as arrays; else as planes.
    """

    dim: int
    matrix: Matrix
    size: int
    leaves: Cuts
    dot: Dot
    slot: int | None = None
    turned: bool = False
    two_way: bool = False
    real: bool = False
    tiled: bool = False

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["RingDense"]:
        """Any dimension, by every way to multiply; both ways round where the links are known."""
        cached, real = problem.machine.chip.cached, problem.real_at(todo)
        for dim, matrix in ready(todo).items():
            slot = None if matrix.row_axis is None else problem.transform.dims.index(dim)
            exact = matrix.denominator < MAX_LENGTH
            cuts, parts = layout.resize(dim, matrix.rows).cuts[dim], layout.parts[dim]
            for dot in problem.dots if exact else ():
                both = cached and parts > 1
                step = cls(dim, matrix, matrix.rows, cuts, dot, slot, two_way=both, real=real, tiled=cached)
                yield step
                if parts > 2 and not cached and problem.machine.network is not None:
                    yield dataclasses.replace(step, two_way=True)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """One product; and over two shards one hop."""
        each = min(dot.flops for dot in problem.dots) // problem.halves**2 * problem.points
        flops, sent = {dim: each * rows for dim, rows in problem.least_rows.items()}, problem.least_bytes
        whole = {d: problem.bound(matrix_flops=n, memory_bytes=problem.pass_bytes) for d, n in flops.items()}
        cut = {d: problem.bound(matrix_flops=n, sent_bytes=sent, hops=1) for d, n in flops.items()}
        return Least(whole=whole, cut=cut)

    @property
    def planar(self) -> bool:
        return not self.tiled

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def becomes(self) -> str | None:
        return self.matrix.becomes

    @property
    def dots(self) -> tuple[Dot, ...]:
        return (self.dot,)

    @property
    def products(self) -> int:
        """Real products that make one of the matrix's entries and an element of the block."""
        planes = self.matrix.planes * (1 if self.real else 2)
        return planes // 2 if self.becomes == "real" else self.dot.multiplications if planes == 4 else planes

    def error(self, itemsize: int) -> float:
        return self.dot.error

    def after(self, layout: Layout) -> Layout:
        return layout.replace(self.dim, self.size, self.leaves)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """p products, each of which makes its block of the matrix; tiles read every block and pass over the result."""
        parts, after, block = layout.parts[self.dim], self.after(layout), math.prod(layout.block)
        rows, columns = after.block[self.dim], layout.block[self.dim]
        others = block // max(columns, 1)
        out, size = others * rows, turned(itemsize, self)
        travels = out * size if self.turned else block * itemsize
        both = self._both(layout)
        reals = self.products  # each reads a plane, and reads and writes a sum
        flops = self.dot.flops if reals == self.dot.multiplications else 2 * reals
        passes = 1 if not self.tiled else parts if self.turned else parts // 2 + (parts != 2)  # over the result
        memory = 2 * ((parts if self.tiled else 1) * block * itemsize + passes * out * size)
        gauss = GAUSS_PASSES * parts * block * itemsize * (reals == 3 and not chip.cached)
        kind, times = ("two-way ring", parts // 2) if both else ("ring", parts - 1)
        return Work(
            matrix_flops=flops * parts * rows * others * padded(columns, chip.side),
            tier=self.dot.tier,
            vector_flops=(PHASE_FLOPS if chip.cached else LONG_PHASE_FLOPS) * parts * rows * columns,
            memory_bytes=memory + gauss,
            fed_bytes=0
            if chip.cached
            else parts * reals * (block + 2 * out) * (itemsize if self.real else itemsize // 2),
            sent_bytes=(parts - 1) * travels,
            hops=parts - 1,
            moves=(Move(kind, layout.axes[self.dim], travels, times),),
            parts=parts,
            peak_bytes=self._peak(block * itemsize, out * size, rows * max(itemsize, size), layout, chip),
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        walk = functools.partial(self._turned if self.turned else self._straight, layout=layout, operand=operand)
        return in_complex(walk, block) if self.tiled else in_planes(walk, block)

    def operand(self, given: Any, layout: Layout, mapped: frozenset[str] = frozenset()) -> Any:
        """Rows where their positions are stored, columns as far as shards reach."""
        home, other = self._home(layout), self.after(layout) if self.turned else layout
        rows, reach = home.positions(self.dim), int(other.positions(self.dim).max(initial=-1)) + 1
        back = self.matrix.row_axis or 0
        leaves = jax.tree.map(lambda leaf: rows_of(leaf, leaf.ndim + back, rows, reach), given)
        return jax.tree.map(lambda leaf: own(leaf, leaf.ndim + back, home.cuts[self.dim], mapped), leaves)

    def operand_spec(self, operand: Any, layout: Layout) -> Any:
        """How the leaves of the operand are sharded: their rows as the dimension they stand for."""
        axes, back = self._home(layout).axes[self.dim] or None, -(self.matrix.row_axis or 0)
        return jax.tree.map(lambda leaf: PartitionSpec(*[None] * (leaf.ndim - back), axes), operand)

    def at_slot(self, slot: int) -> "RingDense":
        return self if self.slot is None else dataclasses.replace(self, slot=slot)

    def tabled(self, sources: tuple[Any, ...], slot: int) -> tuple["RingDense", np.ndarray] | None:
        source = self.matrix if self.slot is None else sources[self.slot]
        found = None if self.turned else table(source, self.matrix, self.dot)
        if found is None:
            return None
        dense = Dense(found.shape[-2], found.shape[-1], planes=self.matrix.planes)
        return dataclasses.replace(self, matrix=dense, slot=slot), found

    @property
    def linear(self) -> bool:
        """Not in samples, where those are floats."""
        return not (isinstance(self.matrix, Samples) and self.matrix.unit is not None)

    def slopes(self, change: Any, layout: Layout, mapped: frozenset[str]) -> tuple[Planes, Planes]:
        """V'[k, n] = slope_k V[k, n] n: one factor along the inputs and one along the samples."""
        assert isinstance(self.matrix, Samples)
        slope, other = self.matrix.slope(change), self.after(layout) if self.turned else layout
        n = jnp.asarray(own(other.positions(self.dim).astype(slope[0].dtype), 0, other.cuts[self.dim], mapped))
        return (slope, (n,)) if self.turned else ((n,), slope)

    def transpose(self, layout: Layout) -> "RingDense":
        real = {"real": True, "complex": False}.get(self.becomes or "", self.real)  # after this step, before that one
        back = dataclasses.replace(self, size=layout.shape[self.dim], leaves=layout.cuts[self.dim], real=real)
        if self.matrix.row_axis is None:
            return dataclasses.replace(back, matrix=self.matrix.transpose())
        return dataclasses.replace(back, turned=not self.turned)

    def conjugate(self) -> "RingDense":
        return dataclasses.replace(self, matrix=self.matrix.conjugate())

    def invert(self, layout: Layout) -> "RingDense":
        back = self.transpose(layout)
        return dataclasses.replace(back, matrix=self.matrix.inverse or back.matrix.conjugate())

    def insert(self, dim: int) -> "RingDense":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"ring {names((self.dim,), layout)} (dense)"

    def _both(self, layout: Layout) -> bool:
        """True where blocks come from both sides at once."""
        return self.two_way and not self.turned and layout.parts[self.dim] > 2

    def _peak(self, block: int, out: int, column: int, layout: Layout, chip: Chip) -> int:
        """The most bytes at a time: blocks, sums, and columns of the matrix, of so many bytes each."""
        parts, columns, both = layout.parts[self.dim], layout.block[self.dim], self._both(layout)
        if self.tiled:
            made = (7 if self.products == 3 else 5) * min(COLUMNS, columns * min(parts, 2))
            return (5 if both else 2) * block + (4 if self.turned else 1) * out + made * column
        made = 3 * min(LONG_TERMS if chip.planes else TERMS, columns)
        return (5 if both else 3) * block + (2 if chip.planes else 4) * out + made * column

    def _home(self, layout: Layout) -> Layout:
        """The layout whose cuts the operand has: that of the matrix's rows."""
        return layout if self.turned else self.after(layout)

    def _straight(self, block: Block, layout: Layout, operand: Any) -> Any:
        """Sum over shards s of M[my rows, columns of s] times the block of s."""
        after, axes, real = self.after(layout), layout.axes[self.dim], _real(block)
        operand = self.matrix.prepare(operand, real)
        rows, kept = _positions(after, self.dim, axes, self.matrix.rows)
        starts = jnp.asarray(layout.starts(self.dim), jnp.int32)

        def matrix(start: Array | int, size: int, shard: Array) -> Planes | Factors:
            columns = starts[shard] + start + jnp.arange(size, dtype=jnp.int32)
            return _masked(self.matrix.block(operand, rows, columns, real), kept)

        def add(total: Any, *held: tuple[Any, Array]) -> Any:
            terms = [(functools.partial(matrix, shard=shard), x) for x, shard in held]
            return self._product(terms, layout, total)

        return self._done(ring_fold(add, self._read(block, layout, self.matrix.columns), axes, two_way=self.two_way))

    def _turned(self, block: Block, layout: Layout, operand: Any) -> Any:
        """What every device receives: sum over devices r of M[rows of r, its columns]^T times the block of r."""
        after, axes, real = self.after(layout), layout.axes[self.dim], _real(block)
        operand = self.matrix.prepare(operand, real)
        rows, _ = _positions(layout, self.dim, axes, self.matrix.rows)
        offsets = jnp.arange(after.block[self.dim], dtype=jnp.int32)
        starts, counts = (jnp.asarray(v, jnp.int32) for v in (after.starts(self.dim), after.counts(self.dim)))
        mine = self._read(block, layout, self.matrix.rows)

        def term(shard: Array) -> Any:
            columns = starts[shard] + offsets
            kept = (offsets < counts[shard]) & (columns < self.matrix.columns)

            def matrix(start: Array | int, size: int) -> Planes | Factors:
                cut = _cutter(start, size, self.matrix.row_axis)
                block = self.matrix.block(jax.tree.map(cut, operand), _cutter(start, size, 0)(rows), columns, real)
                return _masked(jax.tree.map(jnp.transpose, block), kept)

            return self._done(self._product([(matrix, mine)], layout))

        return ring_scatter(term, axes)

    def _product(self, terms: Sequence[tuple[Maker, Any]], layout: Layout, total: Any = None) -> Any:
        tile = functools.partial(product_in_tiles, wide=math.prod(layout.parts) == 1)
        multiply: Callable[..., Any] = tile if self.tiled else product
        return multiply(terms, self.dim, self.dot, total, real=self.becomes == "real")

    def _done(self, sums: Any) -> Any:
        return sums if self.tiled else planes_of(sums)

    def _read(self, block: Block, layout: Layout, limit: int) -> Block:
        """The block with zeros where it is padding, or beyond the matrix."""
        _, read = _positions(layout, self.dim, layout.axes[self.dim], limit)
        shape = [-1 if d == self.dim else 1 for d in range(layout.ndim)]
        whole = layout.even and layout.shape[self.dim] <= limit
        return block if whole else jax.tree.map(lambda part: jnp.where(read.reshape(shape), part, 0), block)


def _real(block: Block) -> np.dtype:
    """The type of the block's planes."""
    return real_dtype(jax.tree.leaves(block)[0].dtype)


def _positions(layout: Layout, dim: int, axes: tuple[str, ...], limit: int) -> tuple[Array, Array]:
    """The positions of this device's block, and which of them are logical and below `limit`."""
    index = lax.axis_index(axes) if axes else 0
    offsets = jnp.arange(layout.block[dim], dtype=jnp.int32)
    positions = jnp.asarray(layout.starts(dim), jnp.int32)[index] + offsets
    return positions, (offsets < jnp.asarray(layout.counts(dim), jnp.int32)[index]) & (positions < limit)


def _masked(block: Planes | Factors, kept: Array) -> Planes | Factors:
    return jax.tree.map(lambda part: jnp.where(kept[:, None], part, jnp.zeros((), part.dtype)), block)


def _cutter(start: Array | int, size: int, axis: int | None) -> Callable[[Array], Array]:
    return lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size, axis or 0)
