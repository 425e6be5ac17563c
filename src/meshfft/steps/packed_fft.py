"""PackedFFT: the FFT of real lines that are cut, as one of half as many complex numbers."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..collectives.ring import permuted
from ..kernels.local import resize
from ..layout.layout import Layout, nested
from ..machine.chip import Chip
from ..machine.work import Move, Work
from ..numerics.phases import MAX_LENGTH, roots
from ..numerics.split_complex import Block, in_complex, join, scaled, split
from ..operators.matrices import HalfRoots, Matrix
from .base import Problem, Step, names, ready, shift
from .phase_fft import PhaseFFT

UNTANGLE_FLOPS = 14  # of one output: two sums, a phase, a sum
UNTANGLE_PASSES = 6


@dataclasses.dataclass(frozen=True)
class PackedFFT(Step):
    """The FFT of real lines of N points cut into p shards, through the paper's FFT of N / 2 complex ones.

        z[l] = x[2 l] + i x[2 l + 1],   Z its transform,   Z'[k] = conj Z[N/2 - k],   k = 0 ... N / 2
        X[k] = (Z[k] + Z'[k]) / 2 + exp(sign 2 pi i k / N) (Z[k] - Z'[k]) / 2i

    Z' comes from the mirrored device, and as the half spectrum has one number more than there were pairs, each device
    hands its first few on to the one before it. The transpose is the same steps backwards.

    Needs p^2 to divide N / 2. Sends half of what the paper's FFT of the complex line does, and one block of reals.
    """

    dim: int
    matrix: HalfRoots

    @classmethod
    def offers(cls, problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator["PackedFFT"]:
        for dim, matrix in ready(todo).items():
            if isinstance(matrix, HalfRoots) and layout.parts[dim] > 1 and matrix.length < MAX_LENGTH:
                lines, half = layout.resize(dim, matrix.length), layout.resize(dim, matrix.half)
                stored = layout == lines.resize(dim, matrix.columns) and nested(lines.cuts[dim])
                if stored and matrix.length % (2 * layout.parts[dim] ** 2) == 0 and half.parts == lines.parts:
                    yield cls(dim, matrix)

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def becomes(self) -> str:
        return self.matrix.becomes

    @property
    def packed(self) -> PhaseFFT:
        """The complex transform of pairs."""
        return PhaseFFT(self.dim, self.matrix.sign, self.matrix.length // 2)

    def error(self, itemsize: int) -> float:
        return self.packed.error(itemsize) * 1.5  # the sum and the difference of mirrored numbers round again

    def after(self, layout: Layout) -> Layout:
        return layout.resize(self.dim, self.matrix.rows)

    def work(self, layout: Layout, itemsize: int, chip: Chip) -> Work:
        """That of the transform of pairs, and the mirror image."""
        size = itemsize if self.matrix.onto_real else 2 * itemsize
        pairs = layout.resize(self.dim, self.matrix.length // 2)
        whole, block = self.packed.work(pairs, size, chip), int(np.prod(pairs.block, dtype=np.int64))
        axes, rows = layout.axes[self.dim], pairs.block[self.dim]
        small = block // rows * (1 + self._head(pairs)) * size
        moves = tuple(Move("ring", axes, nbytes, 1) for nbytes in (block * size, small))
        return dataclasses.replace(
            whole,
            vector_flops=whole.vector_flops + UNTANGLE_FLOPS * block,
            memory_bytes=whole.memory_bytes + UNTANGLE_PASSES * block * size,
            sent_bytes=whole.sent_bytes + block * size + small,
            hops=whole.hops + 3,
            moves=whole.moves + moves,
            peak_bytes=max(whole.peak_bytes, 6 * block * size),
        )

    def apply(self, block: Block, layout: Layout, operand: Any = None) -> Block:
        half = layout if self.matrix.onto_real else self.after(layout)
        pairs = layout.resize(self.dim, self.matrix.length // 2)
        return in_complex(lambda block: self._apply(block, pairs, half), block)

    def _apply(self, block: Array, pairs: Layout, half: Layout) -> Array:
        dim = self.dim
        if self.matrix.onto_real:
            mixed = self._tangled(self._weighted(block, half), pairs, half)
            return _unpaired(join(split(self.packed.apply(mixed, pairs))), dim)
        transformed = join(split(self.packed.apply(_paired(block, dim), pairs)))
        return self._weighted(self._untangled(transformed, pairs, half), half)

    def _untangled(self, z: Array, pairs: Layout, half: Layout) -> Array:
        """The half spectrum, in its own layout, of the spectrum of pairs."""
        dim, parts, head = self.dim, pairs.parts[self.dim], self._head(pairs)
        mirror, index = self._mirrored(z, pairs), lax.axis_index(pairs.axes[dim])
        even, odd = (z + mirror) / 2, (z - mirror) * -0.5j
        spectrum = even + odd * self._turns(pairs, z.real.dtype)
        last = lax.slice_in_dim(even - odd, 0, head, axis=dim)  # its first row is X[N / 2] on the first device
        begin = jnp.where(index == 0, last, lax.slice_in_dim(spectrum, 0, head, axis=dim))
        begin = permuted(begin, pairs.axes[dim], [(d + 1) % parts for d in range(parts)])
        rows = jnp.concatenate([spectrum, begin], dim)
        return self._kept(lax.dynamic_slice_in_dim(rows, self._offset(pairs, half), half.block[dim], dim), half)

    def _tangled(self, x: Array, pairs: Layout, half: Layout) -> Array:
        """The transpose of `_untangled`, line by line from its last to its first."""
        dim, parts, head, size = self.dim, pairs.parts[self.dim], self._head(pairs), pairs.block[self.dim]
        empty = jnp.zeros((*x.shape[:dim], size + head, *x.shape[dim + 1 :]), x.dtype)
        rows = lax.dynamic_update_slice_in_dim(empty, self._kept(x, half), self._offset(pairs, half), dim)
        begin = lax.slice_in_dim(rows, size, size + head, axis=dim)
        begin = permuted(begin, pairs.axes[dim], [(d - 1) % parts for d in range(parts)])
        first = lax.axis_index(pairs.axes[dim]) == 0
        last = resize(jnp.where(first, begin, 0), dim, size)
        spectrum = lax.slice_in_dim(rows, 0, size, axis=dim) + resize(jnp.where(first, 0, begin), dim, size)
        even, odd = spectrum + last, spectrum * self._turns(pairs, x.real.dtype) - last
        return even / 2 - odd * 0.5j + self._mirrored(even / 2 + odd * 0.5j, pairs)

    def _mirrored(self, z: Array, pairs: Layout) -> Array:
        """conj Z[N/2 - k]: of each block the first row from one device, the others backwards from the one before it."""
        dim, axes, parts = self.dim, pairs.axes[self.dim], pairs.parts[self.dim]
        first, rest = lax.slice_in_dim(z, 0, 1, axis=dim), lax.slice_in_dim(z, 1, z.shape[dim], axis=dim)
        first = permuted(first, axes, [-d % parts for d in range(parts)])
        rest = permuted(rest, axes, [parts - 1 - d for d in range(parts)])
        return jnp.conj(jnp.concatenate([first, jnp.flip(rest, dim)], dim))

    def _turns(self, pairs: Layout, real: Any) -> Array:
        """exp(sign 2 pi i k / N) for the k of this device's pairs."""
        rows = pairs.block[self.dim]
        k = lax.axis_index(pairs.axes[self.dim]) * rows + jnp.arange(rows, dtype=jnp.int32)
        return _along(join(roots(k, self.matrix.length, self.matrix.sign, real)), self.dim, pairs)

    def _offset(self, pairs: Layout, half: Layout) -> Array:
        """How many rows after this device's first pair its half spectrum begins."""
        offsets = jnp.asarray(half.starts(self.dim) - pairs.starts(self.dim), jnp.int32)
        return offsets[lax.axis_index(pairs.axes[self.dim])]

    def _kept(self, block: Array, half: Layout) -> Array:
        """Zeros beyond the half spectrum."""
        count = jnp.asarray(half.counts(self.dim))[lax.axis_index(half.axes[self.dim])]
        return jnp.where(_along(jnp.arange(half.block[self.dim]) < count, self.dim, half), block, 0)

    def _head(self, pairs: Layout) -> int:
        """Rows that the half spectrum of a device reaches beyond its pairs, at most."""
        half = pairs.resize(self.dim, self.matrix.half)
        reach = half.starts(self.dim) - pairs.starts(self.dim) + half.block[self.dim]
        return int(reach.max()) - pairs.block[self.dim]

    def _weighted(self, block: Array, half: Layout) -> Array:
        if not self.matrix.weighted:
            return block
        start = jnp.asarray(half.starts(self.dim), jnp.int32)[lax.axis_index(half.axes[self.dim])]
        k = start + jnp.arange(half.block[self.dim], dtype=jnp.int32)
        return scaled(block, _along(self.matrix.weights(k).astype(block.real.dtype), self.dim, half))

    def transpose(self, layout: Layout) -> "PackedFFT":
        return dataclasses.replace(self, matrix=self.matrix.transpose())

    def conjugate(self) -> "PackedFFT":
        return dataclasses.replace(self, matrix=self.matrix.conjugate())

    def invert(self, layout: Layout) -> "PackedFFT":
        return dataclasses.replace(self, matrix=self.matrix.inverse)

    def insert(self, dim: int) -> "PackedFFT":
        return dataclasses.replace(self, dim=shift(self.dim, dim))

    def name(self, layout: Layout) -> str:
        return f"{'real from' if self.matrix.onto_real else 'real'} pairs, phase ring {names((self.dim,), layout)}"


def _paired(block: Array, dim: int) -> Array:
    """Every two numbers of a dimension as one complex one."""
    shape = (*block.shape[:dim], block.shape[dim] // 2, 2, *block.shape[dim + 1 :])
    pairs = block.reshape(shape)
    return lax.complex(*(lax.index_in_dim(pairs, j, dim + 1, keepdims=False) for j in (0, 1)))


def _unpaired(pairs: Array, dim: int) -> Array:
    """The transpose of that: two real numbers of each complex one."""
    apart = jnp.stack([pairs.real, -pairs.imag], dim + 1)
    return apart.reshape(*pairs.shape[:dim], -1, *pairs.shape[dim + 1 :])


def _along(row: Array, dim: int, layout: Layout) -> Array:
    """Numbers along a dimension, to be broadcast over the others."""
    return row.reshape([-1 if d == dim else 1 for d in range(layout.ndim)])
