"""RingPoints: the dense sum at scattered points, with the image circulating on one ring.

    c_j = sum_n x[n] V_1[j, n_1] V_2[j, n_2] ...     V_m[j, n] = r_jm^-n exp(sign 2 pi i k_jm n), n = 0 ... N_m - 1

Points stay on their devices, and blocks of the image are sent around one ring of all mesh axes that cut it. A device
takes its points in chunks: V_1 times a block is a matrix product, and V_2, V_3, ... are applied row by row, so that
V_1 x V_2 x ... is never stored. In the transpose values stay, and sums of blocks of the image are sent.

A phase n k is reduced modulo a turn in fixed point.
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
from ...layout.placement import local_slice
from ...machine.chip import Chip, rounded_up
from ...machine.machine import Move, Work
from ...numerics.chunks import RUNS, in_runs
from ...numerics.dtypes import Dot, Error, added_error, real_dtype
from ...numerics.products import TERMS, Sums, planes_of, product
from ...numerics.split_complex import Block, Planes, like, split
from ...numerics.tiles import equal_error
from ...operators.matrices import Logarithm, Samples
from ...steps.base import Slope, names
from ...steps.problem import Numbers
from ...steps.sends import Wired, hops
from .point_step import Coordinates, CoordinateStep, clear, fixed

NUMBERS = 2**18  # most complex numbers for a chunk of points
CHUNK = 512  # most points in a chunk
LEAST = 32  # fewest points in a chunk, as each reads the block
TOGETHER = RUNS * CHUNK // TERMS  # runs of terms that one float accumulates
PHASE_FLOPS = 60  # per root of unity: two products of limbs, cos and sin


@dataclasses.dataclass(frozen=True)
class RingPoints(CoordinateStep, Wired):
    dot: Dot
    two_way: bool = False

    @property
    def numbers(self) -> Numbers:
        return Numbers(dots=(self.dot,))

    def passages(self, layout: Layout) -> float:
        return hops(math.prod(self.grid.parts), self.transposed)

    def error(self, layout: Layout, itemsize: int) -> Error:
        """Errors within products, over their runs, along each other dimension, and over p devices."""
        first, *others = (self.grid.block[j] for j in self._order)
        terms, others = (math.prod(self.points.block), []) if self.transposed else (first, others)
        runs = -(-terms // TERMS)
        added = (min(runs, TOGETHER), -(-runs // TOGETHER), *others, math.prod(self.grid.parts))
        equal = equal_error(terms, self.dot, itemsize)
        return Error(self.dot.error, equal + sum(added_error(many, itemsize) for many in added), self.lost(layout))

    @property
    def _order(self) -> list[int]:
        return sorted(range(self.grid.ndim), key=lambda j: -self.grid.block[j])

    def _chunk(self, batch: int) -> int:
        beside = math.prod(self.grid.block) // max(*self.grid.block, 1) * batch
        return min(max(NUMBERS // max(beside, 1), LEAST), CHUNK, max(math.prod(self.points.block), 1))

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        parts, count, batch = math.prod(self.grid.parts), math.prod(self.points.block), self.batch(layout)
        image, values = (math.prod(one.block) for one in self.ends(layout))
        sides = [self.grid.block[j] for j in self._order]
        beside, chunk = image // max(sides[0], 1), self._chunk(batch)
        rows = sum(math.prod(sides[1:j]) * batch for j in range(2, len(sides) + 1))
        sent = self.message_bytes((sides[0], beside), itemsize)
        kind, rounds = ("two-way ring", parts // 2) if self._both(parts) else ("ring", parts - 1)
        return Work(
            matrix_flops=self.dot.flops * parts * count * beside * rounded_up(sides[0], chip.side),
            tier=self.dot.tier,
            vector_flops=parts * count * (PHASE_FLOPS * sum(sides) + 8 * rows),
            memory_bytes=2 * itemsize * (values + image + parts * count * beside),
            sent_bytes=(parts - 1) * sent,
            hops=parts - 1,
            moves=(Move(kind, self.axes, sent, rounds),),
            parts=parts,
            peak_bytes=itemsize * (4 * image + 3 * values + 3 * chunk * (beside + min(sides[0], TERMS))),
        )

    def _both(self, parts: int) -> bool:
        return self.two_way and not self.transposed and parts > 2

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        image, values = self.ends(layout)
        points = fixed(operand, self.unit, len(self.along), real_dtype(jax.tree.leaves(block)[0].dtype))
        if not points.size or not math.prod(image.block):  # no sums, or sums of nothing, which are 0
            return jax.tree.map(lambda x: jnp.full(self.after(layout).block, jnp.sum(x)), block)
        if self.transposed:
            flat = jax.tree.map(lambda x: x.reshape(-1, points.size).T, self.clear_points(block, values))
            sums = self.over_wire(ring_scatter)(functools.partial(self._sums, flat, points), self.axes)
            return clear(jax.tree.map(functools.partial(self._folded, image=image), sums), image, self.along)
        flat = jax.tree.map(functools.partial(self._flat, image=image), clear(block, image, self.along))
        values_of = functools.partial(self._values, points=points)
        y = self.over_wire(one_shuffle)(values_of, flat, self.axes, two_way=self.two_way)
        return self.clear_points(jax.tree.map(lambda x: x.T.reshape(values.block), y), values)

    def _turned(self, ndim: int) -> list[int]:
        return [*(self.along[j] for j in self._order), *(d for d in range(ndim) if d not in self.along)]

    def _flat(self, block: Array, image: Layout) -> Array:
        """(first side, other sides and batch) of a block of the image."""
        return block.transpose(self._turned(image.ndim)).reshape(self.grid.block[self._order[0]], -1)

    def _folded(self, flat: Array, image: Layout) -> Array:
        order = self._turned(image.ndim)
        return flat.reshape([image.block[d] for d in order]).transpose(np.argsort(order))

    def _values(self, shard: Block, position: Array, points: Coordinates) -> Block:
        """Sums (points, batch) over the block at a ring position."""
        planes, starts = split(shard), self._starts(position)
        chunk = self._chunk(planes[0].size // max(math.prod(self.grid.block), 1))

        def one(points: Coordinates) -> Planes:
            first, *others = self._order

            def columns(start: Array | int, size: int) -> Planes:
                return points.phases(self.sign, first, starts[first] + start, size)

            y = planes_of(product([(columns, planes)], 0, self.dot))
            for j in others:
                y = _row_sums(points.phases(self.sign, j, starts[j], self.grid.block[j]), y)
            return y

        if chunk == points.size:
            return like(shard, one(points))
        chunks = lax.map(one, points.in_chunks(chunk))
        return like(shard, tuple(y.reshape(-1, y.shape[-1])[: points.size] for y in chunks))

    def _sums(self, values: Block, points: Coordinates, position: Array) -> Block:
        planes, starts = split(values), self._starts(position)
        first, *others = self._order

        def run(start: Array | int, size: int, total: Sums | None) -> Sums:
            mine = points.part(start, size)
            y = tuple(lax.dynamic_slice_in_dim(x, start, size) for x in planes)
            for j in reversed(others):
                y = _outer(mine.phases(self.sign, j, starts[j], self.grid.block[j]), y)

            def rows(start: Array | int, size: int) -> Planes:
                whole = mine.part(start, size).phases(self.sign, first, starts[first], self.grid.block[first])
                return tuple(part.T for part in whole)

            return product([(rows, y)], 0, self.dot, total)

        return like(values, planes_of(in_runs(points.size, self._chunk(planes[0].shape[-1]), run, None)))

    def _starts(self, position: Array) -> list[Array]:
        starts, parts = [], self.grid.parts
        for j, many in enumerate(parts):
            index = position // math.prod(parts[j + 1 :]) % many
            starts.append(jnp.asarray(self.grid.starts(j), jnp.int32)[index])
        return starts

    def slopes(self, change: object, layout: Layout, mapped: frozenset[str]) -> list[Slope]:
        """d c_j = sum over dimensions m of (sign 2 pi i d k_jm - d log r_jm) times the values of n_m x[n]."""
        assert isinstance(change, Logarithm)
        image, values = self.ends(layout)
        batch, pairs = tuple(range(values.ndim - self.points.ndim)), list[Slope]()
        every = Samples(0, 0, self.unit, conjugated=self.sign > 0).slope(change)  # of any size
        for j, dim in enumerate(self.along):
            n = local_slice(image.positions(dim).astype(change.angle.dtype), 0, image.cuts[dim], mapped)
            along: Planes = (jnp.asarray(n).reshape(line_shape(dim, image.ndim)),)
            slope = tuple(jnp.expand_dims(part[j], batch) for part in every)
            pairs.append(Slope(slope, self, along) if self.transposed else Slope(along, self, slope))
        return pairs

    def name(self, layout: Layout) -> str:
        parts, dims = math.prod(self.grid.parts), names(self.along, self.ends(layout)[0])
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
    """matrix[j, n] y[j, ...], row by row: the transpose of `_row_sums`."""
    a, b = (part.reshape(*part.shape, *[1] * (y[0].ndim - 1)) for part in matrix)
    re, im = (part[:, None] for part in y)
    return a * re - b * im, a * im + b * re
