"""PhaseFFT: the paper's FFT of one dimension that stays cut, for any number of points and shards.

For N points over p shards, p dividing N, with n = p l + b and M = N / p (paper, section III-B):

    X[k] = sum_b exp(sign 2 pi i b k / N) X_b[k mod M],   X_b the transform of x[p l + b] over l

Device b gathers x[p l + b] and transforms it. X_b then travels round a ring, and each device sums it with phases. With
k = m + M u the phase has two exact factors: b m / N, applied before the ring, and b u / p, applied in it. If p does not
divide N, the transform is a convolution with a chirp c (kernels.bluestein),

    X[k] = c[k] sum_n conj(c)[k - n] c[n] x[n],   by two such transforms of p M' >= 2 N - 1 points.

In float64 by slices (`dot`) blocks are planes, the local transform uses products (kernels.sliced), and an M with too
long a prime also takes the chirp. Invariant: values beyond a shard's points are never read.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..collectives.all_to_all import comb, is_comb
from ..collectives.levels import Wires
from ..collectives.ring import one_shuffle
from ..kernels import sliced
from ..kernels.base import Engine, Lines, fft_error
from ..kernels.bluestein import chirp_points, chirp_spectrum, is_awkward, padded_length
from ..kernels.sliced import TWIDDLE_FLOPS, SlicedFFT
from ..kernels.xla import BEHIND_PASSES, Xla
from ..layout.elements import cleared, positions
from ..layout.layout import Layout, line_shape
from ..machine.chip import Chip
from ..machine.machine import Move, Work, total
from ..numerics.chunks import CHUNK
from ..numerics.dtypes import ROUNDING, Dot, Error, added_error, real_dtype, unit_of
from ..numerics.phases import MAX_LENGTH, mulmod, roots
from ..numerics.slices import HELD
from ..numerics.split_complex import B, Block, Planes, in_complex, in_planes, like, scaled, split, times
from ..operators.matrices import HalfRoots, Matrix, Roots
from .base import MatrixStep, names
from .local_fft import LocalFFT
from .problem import Least, Numbers, Problem, ready
from .ring_dense import LONG_PHASE_FLOPS, SLICED_PHASES, RingDense
from .sends import Wired

UNIT_PASSES = 4  # on a matrix unit: gathering, and the first phase
RING_PASSES = 18  # for two shards: ten for exchange, FFT and phases, four per shard summed
CACHED_BEHIND = 6  # more on a CPU if dimensions are behind the line, fitted to its own times
GATHER_PASSES = 10  # more if gathered chunks are padded: the sender rolls, the receiver assembles
CHIRP_PASSES = 6  # the chirp before and after, and its spectrum
TABLE = 2**20  # most points of a chirp's spectrum that the host computes in float64
UNROLLED = 5  # most shards of a ring that XLA unrolls, adding all blocks at the end


@dataclasses.dataclass(frozen=True)
class PhaseFFT(MatrixStep[Roots | HalfRoots], Wired):
    line: int  # points of the cut transforms: N, or the convolution's
    two_way: bool = False  # send both ways round the ring
    dot: Dot | None = None  # products, in float64 by slices
    parts: int = 1  # of the line, which set the error by slices
    products: bool = False  # on a matrix unit

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["PhaseFFT"]:
        kinds, dots = (Roots, problem.dots) if problem.sliced else (Roots | HalfRoots, (None,))
        chip = problem.machine.chip
        for dim, matrix in ready(todo).items():
            parts = layout.parts[dim]
            if isinstance(matrix, kinds) and matrix.has_fft and 1 < parts:
                if (line := line_length(matrix.length, parts, problem.sliced)) < MAX_LENGTH:
                    for dot, both in itertools.product(dots, problem.ways(parts, pairs=False)):
                        yield cls((dim,), matrix, (matrix.rows,), line, both, dot, parts, chip.side > 1)

    @classmethod
    def least(cls, problem: Problem) -> Least:
        """Holds for SixStep and PackedFFT too: a ring of two shards and the cheapest local transform."""
        passes, nbytes = RING_PASSES - 2 if problem.machine.chip.side == 1 else 2 * UNIT_PASSES, problem.least_bytes
        ring = problem.bound(Work(memory_bytes=passes * nbytes, sent_bytes=nbytes // 2 + nbytes, hops=1))
        dense = RingDense.least(problem).local
        return Least(cut={dim: min(dense[dim], local) + ring for dim, local in LocalFFT.least(problem).local.items()})

    @property
    def numbers(self) -> Numbers:
        return Numbers(self.matrix.becomes, self.dot is not None, () if self.dot is None else (self.dot,))

    def passages(self, layout: Layout) -> float:
        """Gathering and the ring; a convolution has both twice, times up to 1.4, its spectrum's peak over the mean."""
        return 2 if self.line == self.matrix.length else 6

    def error(self, layout: Layout, itemsize: int) -> Error:
        """Rounds each partial sum of p terms (p / 2 in mean square) and two phases."""
        times = 1 if self.line == self.matrix.length else 2
        if self.dot is not None:
            rounding = ROUNDING[self.dot.unit] * math.sqrt(2 + self.parts / 2)
            noise, equal = math.hypot(self._engine.error(self.line // self.parts, itemsize).noise, rounding), 0.0
        else:
            (noise, equal, *_), added = fft_error(self.line, itemsize), added_error(self.parts, itemsize)
            equal += math.hypot(added, 2 * unit_of(itemsize)) if added else 0.0  # each phase and frequency rounds
        return Error(times * noise, times * equal, self.lost(layout), self.matrix.condition)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        size = 2 * itemsize if self.matrix.becomes == "complex" else itemsize
        if self.line == self.matrix.length:
            return self._stage(layout, self.after(layout), size, chip)
        line = layout.resize(self.dim, self.line)
        works = [self._stage(layout, line, size, chip), self._stage(line, self.after(layout), size, chip)]
        if self.line > TABLE:
            alone = Layout((self.line,), (line.cuts[self.dim],))
            made = self.wired(Wires())._stage(alone, alone, size, chip)
            if chip.cached:  # XLA makes the chirp's spectrum beside a stage
                lines = math.prod(line.block) * size * (self.parts if self.parts <= UNROLLED else 1)
                made = dataclasses.replace(made, peak_bytes=max(one.peak_bytes for one in works) + lines)
            works.append(made)
        return total([*works, Work(memory_bytes=CHIRP_PASSES * math.prod(line.block) * size)])

    def _stage(self, source: Layout, target: Layout, itemsize: int, chip: Chip) -> Work:
        dim = min(self.dim, source.ndim - 1)
        parts, axes, behind = source.parts[dim], source.axes[dim], source.ndim - 1 - dim
        others, many = math.prod(source.block) // max(source.block[dim], 1), self.line // source.parts[dim]
        rows = -(-source.block[dim] // parts)
        gathered, out = others * rows * parts, others * target.block[dim]
        shapes = ((*source.block[:dim], n, *source.block[dim + 1 :]) for n in (rows, many))
        share, ringed = (self.message_bytes(shape, itemsize) for shape in shapes)
        block, largest = others * many, others * max(many, target.block[dim])
        lines = source.replace(dim, many, ())
        local = self._engine.work(Lines(lines.block, (dim,), (many,)), itemsize, chip)
        padded = 0 if is_comb(source, dim, many) else gathered
        kind, times = ("two-way ring", parts // 2) if self.two_way and parts > 2 else ("ring", parts - 1)
        # live arrays, by memory_analysis for 8 CPU devices and v3:32x32 (8192^3 on (4, 4, 128))
        whole, more = _is_whole(target, dim, many), 0.0
        alive = max((5 if whole else 7) * largest, 3 * padded)
        if chip.side == 1:
            ends, unrolled = math.prod(source.block) + math.prod(target.block), parts <= UNROLLED
            held, more = self._held(source, dim, whole, chip.cached)
            gather = 3 * (padded + largest) + block + padded // parts - ends
            gather = (4 * padded + block // 4 if chip.cached else gather) * (padded > 0)
            awkward = is_awkward(many, chip.cached)
            chirp = chirp_points(many, others, behind > 0, itemsize) + block * (others > 1)
            gather = max(gather, chirp * (awkward and chip.cached))
            alive = ends + max(int(held * largest), gather) + block * (awkward and not chip.cached)
            if whole and self.lossy:  # coded messages, and one block
                coded = -(-ringed * (parts - 1 if unrolled else 2) // itemsize)
                summed = largest + coded + block // 3 + block * (source.ndim == 1)
                alive = ends + max(summed, gather + coded * (padded > 0))
        if chip.side > 1 or self.dot:
            passes = UNIT_PASSES + 3 * parts
            work = dataclasses.replace(local, memory_bytes=local.memory_bytes + passes * largest * itemsize)
        else:
            transposes = CACHED_BEHIND * (behind > 0) if chip.cached else BEHIND_PASSES * behind
            passes = RING_PASSES + transposes + 4 * (parts - 2)
            work = Work(vector_flops=local.vector_flops, memory_bytes=passes * largest * itemsize)
        phases, held = 6 * block + 8 * parts * out + self.coding(lines.block, itemsize, 2 + parts, chip)[0], 0
        if self.dot:  # in pairs of float32; roots are made once for all lines
            made = many + (0 if whole else parts * target.block[dim])
            phases = TWIDDLE_FLOPS * (block + parts * out) + SLICED_PHASES * LONG_PHASE_FLOPS * made
            held = sliced.scratch(lines.block, (dim,))
            held = 0 if max(held, HELD * CHUNK) <= chip.fast_bytes else held + sliced.matrices(many, self.dot)
        return dataclasses.replace(
            work,
            vector_flops=work.vector_flops + phases,
            memory_bytes=work.memory_bytes + GATHER_PASSES * padded * itemsize,
            sent_bytes=(share + ringed) * (parts - 1),
            all_to_alls=1,
            hops=parts - 1,
            moves=(Move("all-to-all", axes, share * parts, 1), Move(kind, axes, ringed, times)),
            peak_bytes=(alive + 2 * block * ((kind != "ring") + (self.lossy and chip.planes))) * itemsize + held,
            sent_on_bytes=int(more * largest) * itemsize,
        )

    def _held(self, source: Layout, dim: int, whole: bool, cached: bool) -> tuple[float, float]:
        """Blocks that the ring holds, and more if an exchange follows; counts of `cached` chips are fitted to CPUs."""
        parts, first = source.parts[dim], math.prod(source.block[:dim]) == 1
        unrolled, short = parts <= UNROLLED, self.line & (self.line - 1) == 0  # indices modulo 2^k are fused
        if whole:
            return max(parts - 1, 1.5 if cached and source.ndim == 1 else 2) if unrolled else 3, 0
        most = 2 * parts + 1 if unrolled else 6.5 if cached else 6
        if not cached and first:
            return (parts if unrolled else 4) + 1 if short else (parts if unrolled else 2) + 4, 0
        if not (cached and (first or dim < source.ndim - 1)):
            return most, 0
        fewer = (parts + 1.25 if unrolled else 4.4) + 2.25 * (self.line // parts % parts > 0) - 0.5 * short
        return fewer, max(most - fewer, 0) if unrolled else 0

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        if self.dot:
            return in_planes(lambda planes: self._line(planes, layout), block)
        return in_complex(lambda array: self._apply(array, layout), block)

    def _apply(self, block: Array, layout: Layout) -> Array:
        matrix, dim = self.matrix, self.dim
        half = matrix if isinstance(matrix, HalfRoots) else None
        block = weighted(block, half, layout, dim) if half and half.onto_real else block
        block = block if jnp.iscomplexobj(block) else lax.complex(block, jnp.zeros_like(block))
        result = self._line(block, layout)
        result = weighted(result, half, self.after(layout), dim) if half and not half.onto_real else result
        return result.real if matrix.becomes == "real" else result

    def _line(self, block: B, layout: Layout) -> B:
        dim, target, real = self.dim, self.after(layout), _real(block)
        length, sign = self.matrix.length, self.matrix.sign
        if self.line == length:
            result = self._transformed(block, dim, layout, target, sign, self.matrix.columns)
        else:
            before, after = (_chirped(_at(one, dim), length, sign, real) for one in (layout, target))
            result = self._convolved(times(block, _along(before, dim, layout.ndim)), layout, target)
            result = times(result, _along(after, dim, layout.ndim))
        return result if target.shape[dim] <= self.matrix.rows else cleared(result, target, dim, self.matrix.rows)

    def _convolved(self, block: B, layout: Layout, target: Layout) -> B:
        """sum_n conj(c)[k - n] x[n] by transforms of a longer line."""
        dim, line = self.dim, layout.resize(self.dim, self.line)
        spectrum = self._transformed(block, dim, layout, line, -1, self.matrix.columns)
        factor = _along(self._factor(line, block), dim, layout.ndim)
        return self._transformed(times(spectrum, factor), dim, line, target, 1, self.line)

    def _factor(self, line: Layout, block: Block) -> Planes:
        """This device's part of conj(c)'s spectrum, over its length; a long one is computed on the mesh."""
        size, length, sign, real = self.line, self.matrix.length, self.matrix.sign, _real(block)
        alone = Layout((size,), (line.cuts[self.dim],))
        n = _at(alone, 0)
        if size <= TABLE:
            spectrum = chirp_spectrum(length, size, sign)
            planes = (jnp.asarray(part, real) for part in (spectrum.real, spectrum.imag))
            return tuple(lax.dynamic_slice_in_dim(plane, n[0], len(n)) for plane in planes)
        distance = jnp.minimum(n, size - n)
        near = _chirped(distance, length, -sign, real)
        chirp = like(block, tuple(jnp.where(distance < length, plane, 0) for plane in near))
        made = self.wired(Wires())._transformed(chirp, 0, alone, alone, -1, size)
        return tuple(plane / size for plane in split(made))

    def _transformed(self, block: B, dim: int, source: Layout, target: Layout, sign: int, limit: int) -> B:
        """Transforms a line, reading only points below `limit`."""
        many, parts, axes = self.line // source.parts[dim], source.parts[dim], source.axes[dim]
        real, index, along = _real(block), lax.axis_index(axes), functools.partial(_along, dim=dim, ndim=source.ndim)
        spectra = self._engine.apply(self.over_wire(comb)(block, dim, source, limit, many), (dim,), sign)
        powers = index * jnp.arange(many, dtype=jnp.int32)
        adjusted = times(spectra, along(roots(powers, self.line, sign, real)))
        k = _at(target, dim)

        def term(held: B, shard: Array) -> B:
            if _is_whole(target, dim, many):
                return times(held, roots(shard * (k[0] // many) % parts, parts, sign, real))
            twice = jax.tree.map(lambda x: jnp.concatenate([x, x], dim), held)
            around = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, k[0] % many, len(k), dim), twice)
            return times(around, along(roots(shard * (k // many) % parts, parts, sign, real)))

        return self.over_wire(one_shuffle)(term, adjusted, axes, two_way=self.two_way)

    @property
    def _engine(self) -> Engine[Any]:
        return SlicedFFT(self.dot) if self.dot else Xla(products=self.products)

    def name(self, layout: Layout) -> str:
        ways = f" ({'two' if self.two_way else 'one'}-way)" * (layout.parts[self.dim] > 2)
        return f"gather, fft, phase ring {names(self.dims, layout)}{ways}"


@functools.lru_cache(maxsize=1024)
def line_length(length: int, parts: int, by_slices: bool = False) -> int:
    """N, or p M' >= 2 N - 1 if p does not divide N or slices cannot take N / p."""
    fits = length % parts == 0 and not (by_slices and sliced.radices(length // parts) is None)
    return length if fits else parts * padded_length(-(-(2 * length - 1) // parts))


def weighted(block: B, matrix: HalfRoots, layout: Layout, dim: int) -> B:
    if not matrix.weighted:
        return block
    weights = matrix.weights(_at(layout, dim)).reshape(line_shape(dim, layout.ndim))
    return jax.tree.map(lambda part: scaled(part, weights.astype(part.real.dtype)), block)


def _is_whole(target: Layout, dim: int, many: int) -> bool:
    """Whether every shard of the result has all positions modulo `many` once, in order."""
    return target.block[dim] == many and not (target.starts(dim) % many).any()


def _at(layout: Layout, dim: int) -> Array:
    return positions(layout, dim, layout.shape[dim])[0]


def _chirped(n: Array, length: int, sign: int, real: DTypeLike) -> Planes:
    """c[n] = exp(sign pi i n^2 / N)."""
    n = n % (2 * length)
    return roots(mulmod(n, n, 2 * length), 2 * length, sign, real)


def _along(line: Planes, dim: int, ndim: int) -> Planes:
    return tuple(plane.reshape(line_shape(dim, ndim)) for plane in line)


def _real(block: Block) -> np.dtype:
    return real_dtype(jax.tree.leaves(block)[0].dtype)
