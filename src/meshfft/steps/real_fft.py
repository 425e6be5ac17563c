"""RealFFT and PackedFFT: real lines to half spectra and back, of uncut and cut dimensions."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from ..collectives.all_to_all import Came
from ..collectives.ring import permuted
from ..kept import Trial
from ..kernels.base import Lines, RealEngine, fft_error
from ..kernels.engines import offered
from ..kernels.real import XLA_REAL
from ..layout.elements import cleared
from ..layout.layout import Layout, line_shape, nested
from ..machine.chip import Chip
from ..machine.machine import Move, Work
from ..numerics.dtypes import Error
from ..numerics.phases import MAX_LENGTH, roots
from ..numerics.split_complex import Block, in_complex, interleaved, join, resize, resize_each, split
from ..operators.matrices import HalfRoots, Matrix, Roots
from .base import Kernels, MatrixStep, names
from .local_fft import local_roots
from .phase_fft import PhaseFFT, weighted
from .problem import Problem, ready
from .sends import Wired

UNTANGLE_FLOPS = 14  # per output: two sums, a phase, a sum
UNTANGLE_PASSES = 6


@dataclasses.dataclass(frozen=True)
class RealFFT(MatrixStep[HalfRoots], Kernels):
    """The FFT of uncut dimensions between real lines and half spectra; `onto_real`, the real part of the transpose.

        X[.., k] = w_k sum_n x[n] exp(sign 2 pi i k n / N),   k = 0 ... N // 2 along the last of `dims`

    All dimensions have the sign of the last.
    """

    lengths: tuple[int, ...]  # points of each dimension
    engine: RealEngine = XLA_REAL

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["RealFFT"]:
        for dim, matrix in todo.items() if not problem.sliced else ():
            half = matrix.whole
            if isinstance(half, HalfRoots) and layout.parts[dim] == 1:
                lengths = {**{d: m.length for d, m in local_roots(layout, todo).items()}, dim: half.length}
                lines = Lines(layout.block, tuple(lengths), tuple(lengths.values()), half.onto_real)
                for engine, dims in offered(lines, problem.site(layout), of_reals=True):
                    if not half.onto_real or len(todo) == len(dims):
                        points = tuple(lengths[d] for d in dims)
                        yield cls(dims, half, (*points[:-1], matrix.rows), points, engine)

    def error(self, layout: Layout, itemsize: int) -> Error:
        error = Error.of_all(fft_error(length, itemsize) for length in self.lengths)
        return error._replace(condition=self.matrix.condition)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        size = itemsize // 2 if self.matrix.onto_real else itemsize
        return self.engine.work(self._lines(layout), size, chip)

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        block, sign = resize_each(block, self.dims, (*self.lengths[:-1], self.matrix.columns)), self.matrix.sign
        half = layout.replace(self.dim, self.matrix.half, ())
        if self.matrix.onto_real:
            block = weighted(block, self.matrix, half, self.dim)
            done = self.engine.real(block, self.dims, self.matrix.length, sign)
        else:
            done = weighted(self.engine.half(block, self.dims, sign), self.matrix, half, self.dim)
        return resize_each(done, self.dims, self.sizes)

    def trials(self, layout: Layout, came: Came | None) -> tuple[tuple[Trial, ...], Came | None]:
        return self.engine.trials(self._lines(layout)), None

    def _lines(self, layout: Layout) -> Lines:
        onto_real = self.matrix.onto_real
        return Lines((self.after(layout) if onto_real else layout).block, self.dims, self.lengths, onto_real)

    def name(self, layout: Layout) -> str:
        return f"{'real from' if self.matrix.onto_real else 'real'} fft {names(self.dims, layout)} ({self.engine.name})"


@dataclasses.dataclass(frozen=True)
class PackedFFT(MatrixStep[HalfRoots], Wired):
    """The FFT of real lines of N points over p shards, by the paper's FFT of N / 2 complex ones.

        z[l] = x[2 l] + i x[2 l + 1],   Z its transform,   Z'[k] = conj Z[N/2 - k],   k = 0 ... N / 2
        X[k] = (Z[k] + Z'[k]) / 2 + exp(sign 2 pi i k / N) (Z[k] - Z'[k]) / 2i

    The mirrored device sends Z'. A half spectrum has N / 2 + 1 numbers, so each device sends its first few to the
    previous one. The transpose runs backwards. p^2 must divide N / 2.
    """

    products: bool = False  # on a matrix unit

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["PackedFFT"]:
        for dim, matrix in ready(todo).items() if not problem.sliced else ():
            if isinstance(matrix, HalfRoots) and layout.parts[dim] > 1 and matrix.length < MAX_LENGTH:
                lines = layout.resize(dim, matrix.length)
                stored = layout == lines.resize(dim, matrix.columns) and nested(lines.cuts[dim])
                if stored and matrix.length % (2 * layout.parts[dim] ** 2) == 0:
                    yield cls((dim,), matrix, (matrix.rows,), products=problem.machine.chip.side > 1)

    @property
    def packed(self) -> PhaseFFT:
        pairs = self.matrix.length // 2
        roots_of_pairs = Roots(pairs, self.matrix.sign, pairs, pairs)
        return PhaseFFT(self.dims, roots_of_pairs, (pairs,), pairs, wire=self.wire, products=self.products)

    def passages(self, layout: Layout) -> float:
        """1.5 times the packed transform's, since mirrored numbers are added; they are also sent twice more."""
        return 1.5 * self.packed.passages(layout) + 2

    def error(self, layout: Layout, itemsize: int) -> Error:
        noise, equal, *_ = self.packed.error(layout, itemsize)
        return Error(1.5 * noise, 1.5 * equal, self.lost(layout), self.matrix.condition)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        size = itemsize if self.matrix.onto_real else 2 * itemsize
        pairs = layout.resize(self.dim, self.matrix.length // 2)
        packed, block = self.packed.work(pairs, size, chip), math.prod(pairs.block)
        # first row of the mirror image, its rest, the next device's head
        rows = (1, pairs.block[self.dim] - 1, self._head(pairs))
        sent = [self.message_bytes((*pairs.block[: self.dim], n, *pairs.block[self.dim + 1 :]), size) for n in rows]
        moves = tuple(Move("ring", layout.axes[self.dim], nbytes, 1) for nbytes in sent)
        return dataclasses.replace(
            packed,
            vector_flops=packed.vector_flops + UNTANGLE_FLOPS * block,
            memory_bytes=packed.memory_bytes + UNTANGLE_PASSES * block * size,
            sent_bytes=packed.sent_bytes + sum(sent),
            hops=packed.hops + 3,
            moves=packed.moves + moves,
            peak_bytes=max(packed.peak_bytes, 6 * block * size),
        )

    def apply(self, block: Block, layout: Layout, operand: object = None) -> Block:
        half = layout if self.matrix.onto_real else self.after(layout)
        pairs = layout.resize(self.dim, self.matrix.length // 2)
        return in_complex(functools.partial(self._apply, pairs=pairs, half=half), block)

    def _apply(self, block: Array, pairs: Layout, half: Layout) -> Array:
        dim = self.dim
        if self.matrix.onto_real:
            mixed = self._tangled(weighted(block, self.matrix, half, dim), pairs, half)
            z = join(split(self.packed.apply(mixed, pairs)))
            return interleaved(z.real, -z.imag, dim)
        transformed = join(split(self.packed.apply(_paired(block, dim), pairs)))
        return weighted(self._untangled(transformed, pairs, half), self.matrix, half, dim)

    def _untangled(self, z: Array, pairs: Layout, half: Layout) -> Array:
        """The half spectrum, in layout `half`, from that of pairs."""
        dim, parts, head = self.dim, pairs.parts[self.dim], self._head(pairs)
        mirror, index = self._mirrored(z, pairs), lax.axis_index(pairs.axes[dim])
        even, odd = (z + mirror) / 2, (z - mirror) * -0.5j
        spectrum = even + odd * self._phases(pairs, z.real.dtype)
        last = lax.slice_in_dim(even - odd, 0, head, axis=dim)  # its first row is X[N / 2] on the first device
        begin = jnp.where(index == 0, last, lax.slice_in_dim(spectrum, 0, head, axis=dim))
        begin = self.over_wire(permuted)(begin, pairs.axes[dim], [(d + 1) % parts for d in range(parts)])
        rows = jnp.concatenate([spectrum, begin], dim)
        own = lax.dynamic_slice_in_dim(rows, self._offset(pairs, half), half.block[dim], dim)
        return cleared(own, half, dim, half.shape[dim])

    def _tangled(self, x: Array, pairs: Layout, half: Layout) -> Array:
        """The transpose of `_untangled`, its lines in reverse."""
        dim, parts, head, size = self.dim, pairs.parts[self.dim], self._head(pairs), pairs.block[self.dim]
        empty = jnp.zeros((*x.shape[:dim], size + head, *x.shape[dim + 1 :]), x.dtype)
        own = cleared(x, half, dim, half.shape[dim])
        rows = lax.dynamic_update_slice_in_dim(empty, own, self._offset(pairs, half), dim)
        begin = lax.slice_in_dim(rows, size, size + head, axis=dim)
        begin = self.over_wire(permuted)(begin, pairs.axes[dim], [(d - 1) % parts for d in range(parts)])
        first = lax.axis_index(pairs.axes[dim]) == 0
        last = resize(jnp.where(first, begin, 0), dim, size)
        spectrum = lax.slice_in_dim(rows, 0, size, axis=dim) + resize(jnp.where(first, 0, begin), dim, size)
        even, odd = spectrum + last, spectrum * self._phases(pairs, x.real.dtype) - last
        return even / 2 - odd * 0.5j + self._mirrored(even / 2 + odd * 0.5j, pairs)

    def _mirrored(self, z: Array, pairs: Layout) -> Array:
        """conj Z[N/2 - k]: device d receives the first row from -d mod p, the rest, reversed, from p - 1 - d."""
        dim, axes, parts = self.dim, pairs.axes[self.dim], pairs.parts[self.dim]
        first, rest = lax.slice_in_dim(z, 0, 1, axis=dim), lax.slice_in_dim(z, 1, z.shape[dim], axis=dim)
        first = self.over_wire(permuted)(first, axes, [-d % parts for d in range(parts)])
        rest = self.over_wire(permuted)(rest, axes, [parts - 1 - d for d in range(parts)])
        return jnp.conj(jnp.concatenate([first, jnp.flip(rest, dim)], dim))

    def _phases(self, pairs: Layout, real: DTypeLike) -> Array:
        rows = pairs.block[self.dim]
        k = lax.axis_index(pairs.axes[self.dim]) * rows + jnp.arange(rows, dtype=jnp.int32)
        return join(roots(k, self.matrix.length, self.matrix.sign, real)).reshape(line_shape(self.dim, pairs.ndim))

    def _offset(self, pairs: Layout, half: Layout) -> Array:
        offsets = jnp.asarray(half.starts(self.dim) - pairs.starts(self.dim), jnp.int32)
        return offsets[lax.axis_index(pairs.axes[self.dim])]

    def _head(self, pairs: Layout) -> int:
        """Most rows by which a device's half spectrum exceeds its pairs."""
        half = pairs.resize(self.dim, self.matrix.half)
        reach = half.starts(self.dim) - pairs.starts(self.dim) + half.block[self.dim]
        return int(reach.max()) - pairs.block[self.dim]

    def name(self, layout: Layout) -> str:
        return f"{'real from' if self.matrix.onto_real else 'real'} pairs, phase ring {names(self.dims, layout)}"


def _paired(block: Array, dim: int) -> Array:
    """Even positions and odd ones, by strides: a TPU would store 128 numbers for each pair in a dimension of two."""
    return lax.complex(*(lax.slice_in_dim(block, j, None, 2, dim) for j in (0, 1)))
