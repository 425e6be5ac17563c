"""Wires: what travels instead of floats: integers that share a power of two, or bfloat16.

    x ~ q 2^(e - b),   |q| < 2^b,   2^e above the largest finite number of the run,   b = 15 (int16) or 23 (int24)

A run is at most RUN reals of one line, both planes of a complex one, or where kernels of a TPU write it, of the same
place in tiles of lines (Tiled). Its message is one array of 32-bit words: two integers of 16 bits in one, four of 24 in
three, then the exponents of two runs in one, so that scales travel with the data and both planes in one collective.
Invariant: every word is made of rows that lie side by side along one dimension, so that packing is elementwise, and no
share reads another's scale.

Zeros, padding among them, ask for no room and arrive as zeros (-0 as 0); infinities and NaN arrive as such and leave
the scale of their run alone. What is below 2^-126 (2^-1022 in float64) arrives as zero where the device's arithmetic
takes denormals for zeros, as on CPUs and TPUs, and is rounded to the scale of its run elsewhere. Bfloat16 has no
scale: a number above its largest, 3.39e38, arrives as its largest.

Error bound of one passage, relative in L2: the largest number of a run is at least 2^(e - 1), and every number is off
by at most half a step, 2^(e - b - 1), so that a run of n numbers is off by sqrt(n) 2^-b of its own norm at most.
Numbers that are clamped to the largest integer, by up to two steps, lie so near 2^e that the bound holds for them too.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..numerics.split_complex import Block, Planes, split
from . import words
from .dimensions import folded, unfolded

RUN = 64  # reals that share a scale, at most
SUBLANES, LANES = 8, 128  # of a register
LEAST_ROOM = 10 * 2**20  # bytes of fast memory that kernels take
WIRES = ("exact", "int24", "int16", "bfloat16")
SLACK = 1.05  # a message with runs along an earlier dimension, which cost no shuffles, may be that much longer
TILED_SLACK = 1.125  # and one that kernels write and read, which take a fifth of the time of XLA


class Wire(NamedTuple):
    """How numbers travel: a name of WIRES, and the bytes of a real number where they are computed.

    Where kernels have room, runs lie as they read them: see Tiled.
    """

    name: str = "exact"
    real: int = 4
    room: int = 0  # bytes of fast memory in which kernels write and read words; 0 where there are none

    @property
    def lossy(self) -> bool:
        """Whether anything but the numbers themselves travels."""
        return self.name != "exact"

    @property
    def error(self) -> float:
        """The largest relative L2 error of one passage: see above; of bfloat16 that of its last number, clamped."""
        if self.name == "bfloat16":
            return 2.0**-8
        return math.sqrt(RUN) * 2.0 ** -words.BITS[self.name] if self.lossy else 0.0

    def nbytes(self, share: Sequence[int], itemsize: int) -> int:
        """Bytes of a message of this many numbers along each dimension, of `itemsize` bytes each."""
        if not self.lossy:
            return math.prod(share) * itemsize
        return math.prod(form_of(tuple(share), 2 if itemsize > self.real else 1, self).message) * words.WORD


EXACT = Wire()


def wire_of(name: str, dtype: np.dtype) -> Wire:
    """The wire of a name, for planes of a real type.

    Raises:
        ValueError: no such wire, or bfloat16 for float64, whose range it lacks.
    """
    if name not in WIRES:
        raise ValueError(f"wire {name!r} is unknown: use one of " + ", ".join(map(repr, WIRES)))
    if name == "bfloat16" and dtype.itemsize > words.WORD:
        raise ValueError("wire 'bfloat16' lacks the range of float64: use 'int16' or 'int24', whose scales have it")
    return Wire(name, dtype.itemsize)


@dataclasses.dataclass(frozen=True)
class Form:
    """How a share of some shape is written as words."""

    wire: Wire
    shape: tuple[int, ...]  # of the share
    planes: int
    dim: int  # along which runs lie
    length: int  # positions of a run; the last is filled up with zeros

    @property
    def runs(self) -> int:
        return max(1, -(-self.shape[self.dim] // self.length))

    @property
    def parts(self) -> int:
        """How many numbers are packed together."""
        return 4 if self.wire.name == "int24" else 2

    @property
    def rows(self) -> int:
        """Words of a run, its scale left out."""
        return self.planes * self.length * (3 if self.parts == 4 else 2) // 4

    @property
    def message(self) -> tuple[int, ...]:
        """The shape in words."""
        scales = 0 if self.wire.name == "bfloat16" else -(-self.runs // 2)
        words = self.runs * self.rows + scales
        return (*self.shape[: self.dim], words, *self.shape[self.dim + 1 :])

    def encode(self, block: Block, first: int = 0) -> Array:
        """The words of a block whose shares are its dimensions from `first` on."""
        at, step = first + self.dim, self.parts // self.planes
        each = [unfolded(_padded(plane, at, self.runs * self.length), at, self.runs) for plane in split(block)]
        pieces = [part for plane in each for part in jnp.split(plane, step, at + 1)]
        if self.wire.name == "bfloat16":
            return folded(words.pack(list(map(words.half_bits, pieces)))[0], at)
        largest = functools.reduce(jnp.maximum, map(words.finite, pieces))
        exponent, bits = words.exponent(jnp.max(largest, at + 1, keepdims=True)), words.BITS[self.wire.name]
        scale = words.scale(bits - exponent, pieces[0].dtype)
        packed = words.pack([words.code(piece, scale, bits) for piece in pieces])
        scales = _padded(jnp.squeeze(exponent, at + 1), at, self.runs + self.runs % 2)
        return jnp.concatenate([folded(jnp.concatenate(packed, at + 1), at), *words.pack(jnp.split(scales, 2, at))], at)

    def decode(self, message: Array, dtype: DTypeLike, first: int = 0) -> Planes:
        """The planes, of a real type, that such words stand for."""
        at, many = first + self.dim, self.runs * self.rows
        data, rest = (lax.slice_in_dim(message, a, b, axis=at) for a, b in ((0, many), (many, None)))
        codes = words.unpack(jnp.split(unfolded(data, at, self.runs), self.parts - 1 if self.parts == 4 else 1, at + 1))
        if self.wire.name == "bfloat16":
            pieces = [lax.bitcast_convert_type(code << 16, jnp.float32).astype(dtype) for code in codes]
        else:
            exponent = lax.slice_in_dim(jnp.concatenate(words.unpack([rest]), at), 0, self.runs, axis=at)
            bits = words.BITS[self.wire.name]
            scale = words.scale(jnp.expand_dims(exponent, at + 1) - bits, dtype)
            pieces = [words.value(code, scale, bits) for code in codes]
        step = self.parts // self.planes
        planes = (jnp.concatenate(pieces[j : j + step], at + 1) for j in range(0, self.parts, step))
        return tuple(lax.slice_in_dim(folded(plane, at), 0, self.shape[self.dim], axis=at) for plane in planes)


@dataclasses.dataclass(frozen=True)
class Tiled:
    """How a share is written whose last two dimensions are tiles of a TPU's memory, (rows, 128): runs go from tile to
    tile, so that what shares a word or a scale lies in the same place of several registers.

        (.., rows, 128 T) -> (groups, positions, rows, 128), positions and groups over (.., T) -> words of positions

    A group is a run, or two whose exponents share a word.
    """

    shape: tuple[int, ...]  # of the share
    form: Form  # of (groups, positions, rows, 128)

    @property
    def message(self) -> tuple[int, ...]:
        """The shape in words."""
        return self.form.message

    def encode(self, block: Block, first: int = 0) -> Array:
        """The words of a block whose shares are its dimensions from `first` on."""
        return self.form.encode(tuple(self._opened(plane, first) for plane in split(block)), first)

    def decode(self, message: Array, dtype: DTypeLike, first: int = 0) -> Planes:
        """The planes, of a real type, that such words stand for."""
        return tuple(self._closed(plane, first) for plane in self.form.decode(message, dtype, first))

    def _opened(self, plane: Array, first: int) -> Array:
        lead, (*_, rows, last) = plane.shape[:first], self.shape
        tiles = plane.reshape(*lead, -1, rows, last // LANES, LANES).swapaxes(-3, -2)
        return tiles.reshape(*lead, *self.form.shape)

    def _closed(self, plane: Array, first: int) -> Array:
        lead, (*_, rows, last) = plane.shape[:first], self.shape
        tiles = plane.reshape(*lead, -1, last // LANES, rows, LANES).swapaxes(-3, -2)
        return tiles.reshape(*lead, *self.shape)


@functools.lru_cache(maxsize=4096)
def form_of(share: tuple[int, ...], planes: int, wire: Wire) -> Form | Tiled:
    """The form of a share with the fewest words, or few enough in tiles or along an earlier dimension."""
    share = share or (1,)
    least = {"int24": 4, "int16": 2, "bfloat16": 2}[wire.name] // planes
    lengths = range(least, RUN // planes + 1, least)
    forms = [Form(wire, share, planes, dim, length) for dim in range(len(share)) for length in lengths]
    sizes = [math.prod(form.message) for form in forms]
    if (tiled := _tiled(share, planes, wire, lengths)) and math.prod(tiled.message) <= TILED_SLACK * min(sizes):
        return tiled
    return min(
        (form for form, size in zip(forms, sizes, strict=True) if size <= SLACK * min(sizes)),
        key=lambda form: (form.dim, math.prod(form.message)),
    )


def is_tiled(share: tuple[int, ...], planes: int, wire: Wire) -> bool:
    """True where kernels write and read the words of such a share."""
    return isinstance(form_of(share, planes, wire), Tiled)


def form_like(block: Block, wire: Wire, first: int = 0) -> Form | Tiled:
    """The form of the shares of a block, which are its dimensions from `first` on."""
    planes = split(block)
    return form_of(planes[0].shape[first:], len(planes), wire)


def _tiled(share: tuple[int, ...], planes: int, wire: Wire, lengths: Sequence[int]) -> Tiled | None:
    """The form in tiles with the longest runs, where kernels write and read it."""
    *lead, rows, last = (1, 1, *share)
    whole = last % LANES == 0 and (rows % SUBLANES == 0 or rows in (2, 4))
    if wire.room < LEAST_ROOM or wire.name not in words.BITS or not whole:
        return None
    tiles = last // LANES
    many = math.prod(lead) * tiles
    for length in reversed(lengths):
        group = min(2 * length, many)
        if many and many % group == 0 and group % length == 0 and (tiles % group == 0 or group % tiles == 0):
            return Tiled(share, Form(wire, (many // group, group, rows, LANES), planes, 1, length))
    return None


def _padded(values: Array, dim: int, size: int) -> Array:
    """The values with zeros behind them along a dimension."""
    if values.shape[dim] == size:
        return values
    around = [(0, size - n, 0) if d == dim else (0, 0, 0) for d, n in enumerate(values.shape)]
    return lax.pad(values, jnp.zeros((), values.dtype), around)
