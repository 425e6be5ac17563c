"""RingPoints: the paper's equation itself at scattered points, by dense products while the image goes round one ring.

    c_j = sum_n x[n] V_1[j, n_1] V_2[j, n_2] ...     V_m[j, n] = exp(sign 2 pi i k_jm n), n = 0 ... N_m - 1

Points stay on their devices and blocks of the image travel, over all mesh axes that cut it as one ring. A device takes
its points a chunk at a time: V_1 times a block is a product of matrices, and what is left of it meets V_2, V_3, ... row
by row. So V_1 x V_2 x ... is never stored. Of the transpose values stay, and sums of blocks of the image travel.

Invariant: a phase n k is reduced to a fraction of a turn as a fixed-point number. A point with a coordinate that is not
finite has the value NaN.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...collectives.ring import one_shuffle, ring_scatter
from ...layout.layout import Layout, line_shape
from ...layout.placement import own
from ...machine.chip import Chip, padded
from ...machine.work import Move, Work
from ...numerics.chunks import RUNS, in_runs
from ...numerics.dtypes import Dot, Error, added_error, real_dtype
from ...numerics.products import TERMS, Sums, planes_of, product
from ...numerics.split_complex import Block, Planes, like, split
from ...numerics.tiles import equal_error
from ...steps.base import Slope, Step, names, shift
from .sides import after_points, before_points, clear, clear_points, operand_at, spec_at
from .turns import Turns, prepared

NUMBERS = 2**18  # complex numbers that a chunk of points works on, at most
CHUNK = 512  # points of a chunk, at most
LEAST = 32  # and at least: each reads the block
TOGETHER = RUNS * CHUNK // TERMS  # runs of terms that one float adds up
PHASE_FLOPS = 60  # one root of unity: two products of limbs, cos and sin


@dataclasses.dataclass(frozen=True)
class RingPoints(Step):
    """An image to its transform at scattered points, or with `transposed` the transpose of that.

    Batch dimensions come first in the layout of the values, in their order, then the dimensions of `points`.
    """

    dims: tuple[int, ...]  # of the image, in the order of the coordinates
    image: Layout  # of these dimensions
    points: Layout  # of the values, without batch dimensions: cut by the mesh axes that cut the image
    dot: Dot  # how to multiply
    slot: int | None = 0  # which of the walk's operands the coordinates are
    unit: str | None = None  # of coordinates that are floats, "turns" or "radians"; None of fixed-point turns
    sign: int = -1
    transposed: bool = False
    two_way: bool = False  # blocks travel both ways round at once

    @property
    def dots(self) -> tuple[Dot, ...]:
        return (self.dot,)

    def error(self, itemsize: int) -> Error:
        """Equal numbers are added up in products, whose runs are added up, then along each other side, then p sums."""
        first, *others = (self.image.block[j] for j in self._order)
        terms, others = (math.prod(self.points.block), []) if self.transposed else (first, others)
        runs = -(-terms // TERMS)
        added = (min(runs, TOGETHER), -(-runs // TOGETHER), *others, math.prod(self.image.parts))
        equal = equal_error(terms, self.dot, itemsize)
        return Error(self.dot.error, equal + sum(added_error(many, itemsize) for many in added))

    def after(self, layout: Layout) -> Layout:
        return self._ends(layout)[0 if self.transposed else 1]

    def _ends(self, layout: Layout) -> tuple[Layout, Layout]:
        """The layouts of the image and of the values, the one of which is given."""
        if not self.transposed:
            return layout, after_points(layout, self.dims, self.points)
        sides = zip(self.image.shape, self.image.cuts, strict=True)
        return before_points(layout, self.dims, sides, self.points), layout

    @property
    def _axes(self) -> tuple[str, ...]:
        """The mesh axes of the ring."""
        return tuple(axis for axes in self.image.axes for axis in axes)

    @property
    def _order(self) -> list[int]:
        """The dimensions of the image, the one first that is contracted in products of matrices: the longest."""
        return sorted(range(self.image.ndim), key=lambda j: -self.image.block[j])

    def _chunk(self, batch: int) -> int:
        """Points that are taken at a time."""
        beside = math.prod(self.image.block) // max(*self.image.block, 1) * batch
        return min(max(NUMBERS // max(beside, 1), LEAST), CHUNK, max(math.prod(self.points.block), 1))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """p products of the chunks' first factors with a block, and what the other factors do row by row."""
        parts, count = math.prod(self.image.parts), math.prod(self.points.block)
        image, values = (math.prod(one.block) for one in self._ends(layout))
        batch, sides = image // max(math.prod(self.image.block), 1), [self.image.block[j] for j in self._order]
        beside, chunk = image // max(sides[0], 1), self._chunk(batch)
        rows = sum(math.prod(sides[1:j]) * batch for j in range(2, len(sides) + 1))
        return Work(
            matrix_flops=self.dot.flops * parts * count * beside * padded(sides[0], chip.side),
            tier=self.dot.tier,
            vector_flops=parts * count * (PHASE_FLOPS * sum(sides) + 8 * rows),
            memory_bytes=2 * itemsize * (values + image + parts * count * beside),
            sent_bytes=(parts - 1) * image * itemsize,
            hops=parts - 1,
            moves=(Move(*self._rounds(parts)[:1], self._axes, image * itemsize, self._rounds(parts)[1]),),
            parts=parts,
            peak_bytes=itemsize * (4 * image + 3 * values + 3 * chunk * (beside + min(sides[0], TERMS))),
        )

    def _rounds(self, parts: int) -> tuple[str, int]:
        """How blocks go round, and in how many steps."""
        return ("two-way ring", parts // 2) if self._both(parts) else ("ring", parts - 1)

    def _both(self, parts: int) -> bool:
        return self.two_way and not self.transposed and parts > 2

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        image, values = self._ends(layout)
        limbs = prepared(operand, self.unit, len(self.dims), real_dtype(jax.tree.leaves(block)[0].dtype))
        if self.transposed:
            mine = clear_points(block, values, self.points)
            flat = jax.tree.map(lambda x: x.reshape(-1, limbs.size).T, mine)
            sums = ring_scatter(functools.partial(self._sums, flat, limbs), self._axes)
            return clear(jax.tree.map(functools.partial(self._folded, image=image), sums), image, self.dims)
        flat = jax.tree.map(functools.partial(self._flat, image=image), clear(block, image, self.dims))
        y = one_shuffle(functools.partial(self._values, limbs=limbs), flat, self._axes, two_way=self.two_way)
        return clear_points(jax.tree.map(lambda x: x.T.reshape(values.block), y), values, self.points)

    def _turned(self, ndim: int) -> list[int]:
        """All dimensions of the image as products take them: batch dimensions last."""
        return [*(self.dims[j] for j in self._order), *(d for d in range(ndim) if d not in self.dims)]

    def _flat(self, block: Array, image: Layout) -> Array:
        """(first side, other sides and batch) of a block of the image."""
        return block.transpose(self._turned(image.ndim)).reshape(self.image.block[self._order[0]], -1)

    def _folded(self, flat: Array, image: Layout) -> Array:
        """The block of the image again."""
        order = self._turned(image.ndim)
        return flat.reshape([image.block[d] for d in order]).transpose(np.argsort(order))

    def _values(self, shard: Block, position: Array, limbs: Turns) -> Block:
        """What the points have of the block at a position of the ring: (points, batch)."""
        planes, starts = split(shard), self._starts(position)
        chunk = self._chunk(planes[0].size // max(math.prod(self.image.block), 1))

        def one(limbs: Turns) -> Planes:
            first, *others = self._order

            def columns(start: Array | int, size: int) -> Planes:
                return limbs.phases(self.sign, first, starts[first] + start, size)

            y = planes_of(product([(columns, planes)], 0, self.dot))
            for j in others:
                y = _row_sums(limbs.phases(self.sign, j, starts[j], self.image.block[j]), y)
            return y

        if chunk == limbs.size:
            return like(shard, one(limbs))
        chunks = lax.map(one, limbs.in_chunks(chunk))
        return like(shard, tuple(y.reshape(-1, y.shape[-1])[: limbs.size] for y in chunks))

    def _sums(self, values: Block, limbs: Turns, position: Array) -> Block:
        """What the values here add to the block at a position of the ring: (first side, other sides and batch)."""
        planes, starts = split(values), self._starts(position)
        first, *others = self._order

        def run(start: Array | int, size: int, total: Sums | None) -> Sums:
            mine = limbs.part(start, size)
            y = tuple(lax.dynamic_slice_in_dim(x, start, size) for x in planes)
            for j in reversed(others):
                y = _outer(mine.phases(self.sign, j, starts[j], self.image.block[j]), y)

            def rows(start: Array | int, size: int) -> Planes:
                whole = mine.part(start, size).phases(self.sign, first, starts[first], self.image.block[first])
                return tuple(part.T for part in whole)

            return product([(rows, y)], 0, self.dot, total)

        return like(values, planes_of(in_runs(limbs.size, self._chunk(planes[0].shape[-1]), run, None)))

    def _starts(self, position: Array) -> list[Array]:
        """The first position along each dimension of the block that lies at some position of the ring."""
        starts, parts = [], self.image.parts
        for j, many in enumerate(parts):
            index = position // math.prod(parts[j + 1 :]) % many
            starts.append(jnp.asarray(self.image.starts(j), jnp.int32)[index])
        return starts

    def operand(self, given: object, layout: Layout, mapped: frozenset[str] = frozenset()) -> object:
        """The coordinates where their values are stored."""
        return operand_at(given, self.points, mapped)

    def operand_spec(self, operand: object, layout: Layout) -> object:
        return spec_at(operand, self.points)

    @property
    def linear(self) -> bool:
        """Not in coordinates that are floats."""
        return self.unit is None

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> list[Slope]:
        """d c_j = sum over dimensions m of (sign 2 pi i d k_jm) times the values of n_m x[n]."""
        assert isinstance(change, Array)
        image, values = self._ends(layout)
        turn, pairs = self.sign * (2 * np.pi if self.unit == "turns" else 1.0), list[Slope]()
        for j, dim in enumerate(self.dims):
            n = own(image.positions(dim).astype(change.dtype), 0, image.cuts[dim], mapped)
            along: Planes = (jnp.asarray(n).reshape(line_shape(dim, image.ndim)),)
            angle = jnp.expand_dims(change[j] * turn, tuple(range(values.ndim - self.points.ndim)))
            slope = (jnp.zeros_like(angle), angle)
            pairs.append((slope, self, along) if self.transposed else (along, self, slope))
        return pairs

    def at_slot(self, slot: int) -> "RingPoints":
        return dataclasses.replace(self, slot=slot)

    def transpose(self, layout: Layout) -> "RingPoints":
        return dataclasses.replace(self, transposed=not self.transposed)

    def conjugate(self) -> "RingPoints":
        return dataclasses.replace(self, sign=-self.sign)

    def insert(self, dim: int) -> "RingPoints":
        """Of a batch dimension, which comes first on both ends."""
        assert dim == 0, "the dimensions of the image and of the points are not the same"
        return dataclasses.replace(self, dims=tuple(shift(d, dim) for d in self.dims))

    def name(self, layout: Layout) -> str:
        parts, dims = math.prod(self.image.parts), names(self.dims, self._ends(layout)[0])
        way = (", two-way" if self._both(parts) else ", one-way") * (parts > 2)
        return f"{'points to ' * self.transposed}{dims}{' at points' * (not self.transposed)} (dense ring{way})"


def _row_sums(matrix: Planes, y: Planes) -> Planes:
    """sum_n matrix[j, n] y[j, (n, ...)], row by row."""
    sides = (*matrix[0].shape, -1)

    def times(a: Array, b: Array) -> Array:
        return jnp.einsum("jn,jnr->jr", a, b.reshape(sides), precision=lax.Precision.HIGHEST)

    (a, b), (re, im) = matrix, y
    return times(a, re) - times(b, im), times(a, im) + times(b, re)


def _outer(matrix: Planes, y: Planes) -> Planes:
    """matrix[j, n] y[j, ...], row by row: the transpose of `_row_sums`, without joining dimensions."""
    (a, b), (re, im) = (
        tuple(part.reshape(*part.shape, *[1] * (y[0].ndim - 1)) for part in matrix),
        (part[:, None] for part in y),
    )
    return a * re - b * im, a * im + b * re
