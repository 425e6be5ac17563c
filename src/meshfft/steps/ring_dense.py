"""RingDense: the paper's KDFT of one dimension: dense products while blocks travel round the ring."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec

from ..collectives.ring import ring_fold, ring_scatter, shards_added, shards_held
from ..layout.elements import cleared, positions
from ..layout.layout import Cuts, Layout, line_shape
from ..layout.placement import local_slice
from ..machine.chip import Chip, rounded_up
from ..machine.machine import Move, Work
from ..numerics import tiles
from ..numerics.chunks import CHUNK
from ..numerics.dtypes import SHORT_TERMS, WIDE, Dot, Error, added_error, real_dtype, unit_of
from ..numerics.phases import LOOKED_UP, MAX_LENGTH
from ..numerics.products import LONG_TERMS, TERMS, Factors, Maker, masked, planes_of, product
from ..numerics.slices import HELD, RUN, cost
from ..numerics.split_complex import Block, Planes, in_complex, in_planes
from ..operators.matrices import Dense, Logarithm, Matrix, Samples
from ..operators.operands import rows_of, table
from .base import MatrixStep, Slope, Takes, names
from .problem import Least, Numbers, Problem, ready
from .sends import Wired, hops

PHASE_FLOPS, LONG_PHASE_FLOPS = 130, 400  # per root of unity that CPUs look up; per cos and sin
TILE_FLOPS, TILE_PASSES = 16_000, 1  # to start one tile's product on a CPU; over its result in a cache, fitted
REAL_PASSES = 1.5  # more of real numbers: their products take longer than the operations say, fitted on 8 CPU devices
SLICED_PHASES, SLICED_CYCLES = 5, 50_000  # phases in pairs of float32 cost 5 times; of short instructions
LAID_PASSES = 2  # of padding, to lay lines of slices side by side and back
GAUSS_PASSES = 2  # per shard: sum and difference of its planes are made


@dataclasses.dataclass(frozen=True)
class RingDense(MatrixStep[Matrix], Wired, Takes):
    """A dense matrix along one dimension, over a ring; for the KDFT a Vandermonde matrix (Algorithm 1).

    Blocks travel: a device has the matrix rows of its result and receives the array's shards one by one. If
    `transposed`, sums travel. Blocks of the matrix are made where used, a run of columns at a time.
    """

    cuts: Cuts  # of the result
    dot: Dot
    slot: int | None = None  # of the matrix's operand
    transposed: bool = False  # apply the transpose
    two_way: bool = False  # send both ways round the ring
    real: bool = False  # the block is real, and sent as such
    tiled: bool = False  # multiply in tiles that fit caches; blocks are arrays, else split complex
    keeps: ClassVar[bool] = False  # its operand has the rows of the matrix

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["RingDense"]:
        cached, real = problem.machine.chip.cached, problem.real_at(todo)
        for dim, matrix in ready(todo).items():
            if cls.keeps != (problem.options.precompute and _can_keep(matrix)):
                continue
            slot = problem.transform.dims.index(dim) if cls.keeps or matrix.row_axis is not None else None
            cuts, parts = layout.resize(dim, matrix.rows).cuts[dim], layout.parts[dim]
            for dot in problem.best_dots if matrix.denominator < MAX_LENGTH else ():
                for both in problem.ways(parts, pairs=True):
                    tiled = cached and not dot.slices
                    yield cls((dim,), matrix, (matrix.rows,), cuts, dot, slot, two_way=both, real=real, tiled=tiled)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        each, nbytes = min(dot.flops for dot in problem.dots) // problem.halves**2, problem.least_bytes
        flops = {dim: each * problem.points * rows for dim, rows in problem.least_rows.items()}
        cached = problem.machine.chip.cached  # two dimensions may share one pass
        local, sums = Work(memory_bytes=(2 - cached) * nbytes), 6 if cached and not problem.sliced else 4
        ring = Work(memory_bytes=sums * nbytes, sent_bytes=nbytes, hops=1, parts=2)
        return Least(local=problem.bounds(flops, local), cut=problem.bounds(flops, ring))

    @property
    def numbers(self) -> Numbers:
        return Numbers(self.matrix.becomes, not self.tiled, (self.dot,))

    @property
    def products(self) -> int:
        """Real products per entry of the matrix and element of the block."""
        planes = self.matrix.planes * (1 if self.real else 2)
        return planes // 2 if self.matrix.becomes == "real" else self.dot.multiplications if planes == 4 else planes

    def passages(self, layout: Layout) -> float:
        return hops(layout.parts[self.dim], self.transposed)

    def error(self, layout: Layout, itemsize: int) -> Error:
        """Equal numbers lose the same terms (unmeasured on TPUs). If sums lose nothing, three lose up to a rounding."""
        n, parts, noise = self.matrix.columns, layout.parts[self.dim], self.dot.error_over(self.matrix.columns)
        sums = tiles.equal_error(n, self.dot, itemsize) * (self.tiled or self.dot.run > 0)
        equal = {0: sums, 3: noise if sums else unit_of(8)}.get(self.dot.terms, noise)
        added = added_error(parts, 16 if self.dot.tier in WIDE else 8) * self.transposed
        return Error(noise, equal, self.lost(layout) + added, self.matrix.condition)

    def after(self, layout: Layout) -> Layout:
        return layout.replace(self.dim, self.sizes[0], self.cuts)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """Each of the p products makes its block of the matrix. A GPU writes the product of every pair of terms."""
        parts, after, block = layout.parts[self.dim], self.after(layout), math.prod(layout.block)
        rows, columns, size = after.block[self.dim], layout.block[self.dim], self.numbers.bytes_after(itemsize)
        others = block // max(columns, 1)
        out, codes = others * rows, (parts + 2 if chip.planes else 2 * parts) * (parts > 1)
        travels = self.message_bytes(*((after.block, size) if self.transposed else (layout.block, itemsize)))
        reals = self.products  # each reads a plane, and reads and writes a sum
        flops = self.dot.flops if reals == self.dot.multiplications else 2 * reals
        passes = parts if self.transposed else parts // 2 + (parts != 2)  # over the result, twice as long in two floats
        of_tiles = TILE_PASSES * reals + REAL_PASSES * self.dot.pairs * (reals == 1)
        swept = passes * (1 + self._two(layout)) + of_tiles if self.tiled else 1
        operations, coded = self.coding(layout.block, itemsize, codes, chip)
        moved = (parts if self.tiled else 1) * block * itemsize + swept * out * size
        memory = int((1 if chip.planes and parts == 1 else 2) * moved) + coded  # TPUs fuse a single product
        started = self.tiled * parts * -(-others // tiles.TILE) * reals * self.dot.pairs  # products
        vector = operations + self._phase_flops(chip) * parts * rows * columns + TILE_FLOPS * started
        if self.dot.slices:  # slices of block and matrix, and sums of each run
            runs, numbers = -(-columns // RUN), parts * (block + rows * columns)
            beside = cost(self.dot, numbers, parts * runs * out, reals, chip.fast_bytes)
            padding = int((chip.waste(layout.block) - 1) * LAID_PASSES * (block * itemsize + out * size))
            vector, memory = SLICED_PHASES * vector + beside[0], memory + beside[1] + padding
        fed = parts * reals * self.dot.pairs**chip.switched * (block + 2 * out) * (itemsize // (2 - self.real))
        memory += GAUSS_PASSES * parts * block * itemsize * (reals == 3 and not chip.cached)
        kind, times = ("two-way ring", parts // 2) if self._both(layout) else ("ring", parts - 1)
        return Work(
            matrix_flops=flops * parts * rows * others * rounded_up(columns, chip.side),
            tier=self.dot.tier,
            vector_flops=vector,
            kernel_cycles=SLICED_CYCLES * parts * -(-columns // RUN) * min(reals, 2) * (self.dot.slices > 0),
            memory_bytes=memory,
            fed_bytes=fed * (not chip.cached and not self.dot.slices),
            sent_bytes=(parts - 1) * travels,
            hops=parts - 1,
            moves=(Move(kind, layout.axes[self.dim], travels, times),),
            parts=parts,
            peak_bytes=self._peak(block * itemsize, out * size, rows * max(itemsize, size), layout, chip)
            + HELD * min(max(block, out), CHUNK) * (self.dot.slices > 0)
            + 3 * travels * (self.lossy and (chip.cached or chip.planes)),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        ring = self._sums_travel if self.transposed else self._blocks_travel
        run = functools.partial(ring, layout=layout, operand=operand)
        return in_complex(run, block) if self.tiled else in_planes(run, block)

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """Each device stores the rows of its positions, with columns as far as shards reach."""
        rows, columns = self._ends(layout)
        positions, reach = rows.positions(self.dim), int(columns.positions(self.dim).max(initial=-1)) + 1

        def stored(leaf: Array) -> Array | np.ndarray:
            axis = leaf.ndim + (self.matrix.row_axis or 0)
            return local_slice(rows_of(leaf, axis, positions, reach), axis, rows.cuts[self.dim], mapped)

        return jax.tree.map(stored, given)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        axes, back = self._ends(layout)[0].axes[self.dim] or None, -(self.matrix.row_axis or 0)
        return jax.tree.map(lambda leaf: PartitionSpec(*[None] * (leaf.ndim - back), axes), operand)

    def _ends(self, layout: Layout) -> tuple[Layout, Layout]:
        return (layout, self.after(layout)) if self.transposed else (self.after(layout), layout)

    def tabled(self, sources: tuple[object, ...], slot: int) -> tuple["RingDense", np.ndarray] | None:
        source = self.matrix if self.slot is None else sources[self.slot]
        terms = None if self.transposed or self.keeps else table(source, self.matrix, self.dot)
        if terms is None:
            return None
        dense = Dense(terms.shape[-2], terms.shape[-1], planes=self.matrix.planes)
        return dataclasses.replace(self, matrix=dense, slot=slot), terms

    @property
    def linear(self) -> bool:  # not in float samples
        return not (isinstance(self.matrix, Samples) and self.matrix.unit is not None)

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> list[Slope]:
        """V'[k, n] = slope_k V[k, n] n: one factor along the inputs and one along the samples."""
        assert isinstance(self.matrix, Samples) and isinstance(change, Logarithm)
        (_, columns), shape = self._ends(layout), line_shape(self.dim, layout.ndim)
        slope = tuple(part.reshape(shape) for part in self.matrix.slope(change))
        positions = columns.positions(self.dim).astype(slope[0].dtype)
        n = jnp.asarray(local_slice(positions, 0, columns.cuts[self.dim], mapped)).reshape(shape)
        return [Slope(slope, self, (n,)) if self.transposed else Slope((n,), self, slope)]

    def transpose(self, layout: Layout) -> "RingDense":
        real = self.matrix.becomes == "real" if self.matrix.becomes else self.real  # before the transposed step
        back = dataclasses.replace(self, sizes=(layout.shape[self.dim],), cuts=layout.cuts[self.dim], real=real)
        if self.matrix.row_axis is None:
            return dataclasses.replace(back, matrix=self.matrix.transpose())
        return dataclasses.replace(back, transposed=not self.transposed)

    def name(self, layout: Layout) -> str:
        ways = (", two-way" if self._both(layout) else ", one-way") * (layout.parts[self.dim] > 2)
        return f"ring {names(self.dims, layout)} (dense{ways})"

    def _phase_flops(self, chip: Chip) -> int:
        return PHASE_FLOPS if chip.cached and self.matrix.denominator <= LOOKED_UP else LONG_PHASE_FLOPS

    def _both(self, layout: Layout) -> bool:
        return self.two_way and not self.transposed and layout.parts[self.dim] > 2

    def _peak(self, block: int, out: int, column: int, layout: Layout, chip: Chip) -> int:
        """Peak bytes, from those of a block, the sums and a matrix column. Uneven blocks are copied."""
        columns, both = layout.block[self.dim], self._both(layout)
        if self.tiled:
            return self._peak_in_tiles(block, out, layout)
        made = 3 * min(LONG_TERMS if chip.planes else TERMS, columns)
        held = (4 if self.dot.slices else 5) if both else 3
        if chip.switched:  # bfloat16 terms of both factors at once, and all products of up to 64 MiB
            alone, split = layout.parts[self.dim] == 1, self.dot.terms > 0
            made = (5 if self.real else 4 if split else 3) * min(LONG_TERMS if split else SHORT_TERMS, columns)
            held = held if both else 4 - 2 * alone + 2 * (split and self.real)
            out += out * (self.products * self.dot.pairs * (split and out < 128 * CHUNK) - alone) // 4
        out += out * (self.dot.slices > 0 and columns > RUN)  # sums of one run beside those of the runs before
        return (held + (chip.side == 1 and not layout.even)) * block + (2 if chip.planes else 4) * out + made * column

    def _peak_in_tiles(self, block: int, out: int, layout: Layout) -> int:
        """Peak bytes on CPUs, with input and result."""
        parts, after, columns = layout.parts[self.dim], self.after(layout), layout.block[self.dim]
        rows, lines = after.block[self.dim], math.prod(layout.block) // max(columns, 1)
        element = max(block // max(lines * columns, 1), out // max(lines * rows, 1))
        planes = (self.matrix.planes + (self.products == 3)) * max(self.dot.terms, 1)
        real = element // (1 if self.real and self.matrix.becomes is None else 2)
        terms = (1,) * min(parts, 2) if self.transposed else shards_added(parts, self.two_way)
        wide, products = math.prod(layout.parts) == 1, self.products * self.dot.pairs
        shape = math.prod(layout.block[: self.dim]), rows, columns, math.prod(layout.block[self.dim + 1 :])
        made = tiles.bytes_at_once(shape, terms, planes, products, element, real, wide)
        held = min(parts, 2) if self.transposed else shards_held(parts, self.two_way)
        uneven, two, wide_sums = not (layout.even and after.even), self._two(layout), real < element
        known = lines <= tiles.width_of(wide) or (tiles.in_loop(lines, wide) and (parts < 3 or self.two_way))
        if known and not self.transposed:
            return made + tiles.bytes_beside(shape, block, out, parts, held, uneven, wide_sums, two, wide)
        read = 0 if layout.even and layout.shape[self.dim] <= self.matrix.columns else block * (1 + (parts == 2))
        sums = out * ((5 if self.transposed else 2 + (not after.even) + (columns > tiles.COLUMNS)) + two)
        return read + (held + 1) * block + sums + made

    def _blocks_travel(self, block: Block, layout: Layout, operand: object) -> Any:
        """Sum over shards s of M[my rows, columns of s] times the block of s."""
        after, axes, real = self.after(layout), layout.axes[self.dim], real_dtype(jax.tree.leaves(block)[0].dtype)
        operand = self.matrix.prepare(operand, real)
        rows, logical = positions(after, self.dim, self.matrix.rows)
        starts = jnp.asarray(layout.starts(self.dim), jnp.int32)

        def matrix(start: Array | int, size: int, shard: Array) -> Planes | Factors:
            columns = starts[shard] + start + jnp.arange(size, dtype=jnp.int32)
            return masked(self.matrix.block(operand, rows, columns, real), logical)

        def add(total: Any, *held: tuple[Block, Array]) -> Any:
            terms = [(functools.partial(matrix, shard=shard), x) for x, shard in held]
            return self._product(terms, layout, total)

        mine = self._read(block, layout, self.matrix.columns)
        sums = self.over_wire(ring_fold)(add, mine, axes, two_way=self.two_way)
        return tiles.sum_of(sums, self._two(layout)) if self.tiled else planes_of(sums)

    def _sums_travel(self, block: Block, layout: Layout, operand: object) -> Any:
        """Sum over devices r of M[rows of r, my columns]^T times the block of r."""
        after, axes, real = self.after(layout), layout.axes[self.dim], real_dtype(jax.tree.leaves(block)[0].dtype)
        operand = self.matrix.prepare(operand, real)
        rows, _ = positions(layout, self.dim, self.matrix.rows)
        offsets = jnp.arange(after.block[self.dim], dtype=jnp.int32)
        starts, counts = (jnp.asarray(v, jnp.int32) for v in (after.starts(self.dim), after.counts(self.dim)))
        mine = self._read(block, layout, self.matrix.rows)

        def term(shard: Array) -> Any:
            columns = starts[shard] + offsets
            kept = (offsets < counts[shard]) & (columns < self.matrix.columns)

            def matrix(start: Array | int, size: int) -> Planes | Factors:
                cut = functools.partial(lax.dynamic_slice_in_dim, start_index=start, slice_size=size)
                part = jax.tree.map(functools.partial(cut, axis=self.matrix.row_axis or 0), operand)
                return masked(jax.tree.map(jnp.transpose, self.matrix.block(part, cut(rows), columns, real)), kept)

            sums = self._product([(matrix, mine)], layout)
            return tiles.sum_of(sums, self._two(layout)) if self.tiled else planes_of(sums)

        return self.over_wire(ring_scatter)(term, axes)

    def _two(self, layout: Layout) -> bool:
        return tiles.in_two_floats(layout.block[self.dim], 1 if self.transposed else layout.parts[self.dim])

    def _product(self, terms: Sequence[tuple[Maker, Any]], layout: Layout, total: Any = None) -> Any:
        real, wide = self.matrix.becomes == "real", math.prod(layout.parts) == 1
        if not self.tiled:
            return product(terms, self.dim, self.dot, total, real=real)
        return tiles.product_in_tiles(terms, self.dim, self.dot, total, real=real, wide=wide, two=self._two(layout))

    def _read(self, block: Block, layout: Layout, limit: int) -> Block:
        return block if layout.even and layout.shape[self.dim] <= limit else cleared(block, layout, self.dim, limit)


def _can_keep(matrix: Matrix) -> bool:
    """False for given rows, traced samples, and half spectra, whose inverse has other rows."""
    given = isinstance(matrix, Dense) or (isinstance(matrix, Samples) and matrix.unit is not None)
    return matrix.becomes is None and not given
