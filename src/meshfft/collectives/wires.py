"""Wires, a class for each encoding of messages: integers that share a power of two, or bfloat16.

    x ~ q 2^(e - b),   |q| < 2^b,   2^e above the largest finite number of the run,   b = 15 (int16) or 23 (int24)

A run is at most RUN reals of one line, both planes of a complex one; on TPUs also of a column of the numbers in order
(Flat), or of one place in several tiles (Tiled). A message is one array of 32-bit words: two 16-bit integers in one
word or four 24-bit ones in three, then exponents, two in a word. Invariant: a word is made of neighbouring rows of one
dimension, so packing is elementwise, and no share reads another's scale.

Zeros arrive as zeros (-0 as 0), infinities and NaN as such; none affects the scale. Denormal numbers arrive as zero if
the device flushes them, as CPUs and TPUs do. Bfloat16 has no scale: numbers above its largest, 3.39e38, are clamped.

Relative L2 error of one passage: a run's largest number is at least 2^(e - 1), each error at most half a step,
2^(e-b-1), so a run of n numbers is off by at most sqrt(n) 2^-b of its norm. Clamped numbers are off by up to two steps,
but are near 2^e.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..machine.chip import LANES as LANES
from ..machine.chip import SUBLANES as SUBLANES
from ..numerics.split_complex import B, Block, Planes, folded, like, resize, split, unfolded
from . import words

RUN = 64  # most reals that share a scale
LEAST_ROOM = 10 * 2**20  # bytes of fast memory that kernels need
# A message may be this much longer without shuffles, or for kernels, which take a fifth of XLA's time.
SLACK, TILED_SLACK = 1.05, 1.125
# (encoder, decoder) of a Tiled form by platform; folders for devices add them.
KERNELS: dict[str, tuple[Callable[..., Array], Callable[..., Planes]]] = {}


@dataclasses.dataclass(frozen=True)
class Wire:
    """Sends numbers unchanged."""

    name: ClassVar[str] = "exact"
    lossy: ClassVar[bool] = False
    error: ClassVar[float] = 0.0  # bound on the relative L2 error of one passage
    remedy: ClassVar[str] = ""  # for a smaller one
    wide: ClassVar[bool] = True  # has the range of float64
    operations: ClassVar[int] = 0  # to encode or decode a number, by XLA on TPUs
    real: int = 4  # bytes of a real number in the block
    room: int = 0  # bytes of fast memory for kernels (Tiled); 0 without
    flat: bool = False  # numbers of short lines fill a TPU's tiles (Flat)

    def nbytes(self, share: Sequence[int], itemsize: int) -> int:
        """Bytes of a message of this shape."""
        return math.prod(share) * itemsize

    def flattens(self, share: Sequence[int]) -> bool:
        return self.flat and (len(share) == 1 or share[-1] < LANES)

    def least(self, nbytes: int) -> int:
        """Least bytes of a message of so many bytes of numbers."""
        return nbytes


class Coded(Wire):
    """Sends 32-bit words: every `group` numbers in `group_words`."""

    lossy, remedy = True, ", or wire='exact'"
    bits: ClassVar[int] = 15  # of a number, without its sign
    group: ClassVar[int] = 2  # numbers in `group_words` words
    group_words: ClassVar[int] = 1
    pack = staticmethod(words.pack16)
    unpack = staticmethod(words.unpack16)
    tiled: ClassVar[bool] = False  # TPUs have kernels for it
    operations = 200  # 200 in all-to-alls on v3, 110 to 200 on v5e, 160 to 330 in rings there

    def nbytes(self, share: Sequence[int], itemsize: int) -> int:
        return math.prod(form_of(tuple(share), 2 if itemsize > self.real else 1, self).message) * words.WORD

    def least(self, nbytes: int) -> int:
        return nbytes * words.WORD * self.group_words // (self.group * self.real)

    @abc.abstractmethod
    def scales(self, runs: int) -> int:
        """Words for the scales of some runs."""

    @abc.abstractmethod
    def encode(self, pieces: Sequence[Array], at: int) -> Array:
        """Words of `group` pieces; dimensions `at` and `at + 1` are runs and positions in a run."""

    @abc.abstractmethod
    def decode(self, codes: Sequence[Array], scales: Array, at: int, dtype: DTypeLike) -> list[Array]:
        """The pieces, from their integers and the words of scales."""


class Integers(Coded):
    def scales(self, runs: int) -> int:
        return -(-runs // 2)

    def encode(self, pieces: Sequence[Array], at: int) -> Array:
        largest = functools.reduce(jnp.maximum, map(words.finite, pieces))
        exponent = words.exponent(jnp.max(largest, at + 1, keepdims=True))
        scale, runs = words.scale(self.bits - exponent, pieces[0].dtype), exponent.shape[at]
        packed = self.pack([words.code(piece, scale, self.bits) for piece in pieces])
        scales = words.pack16(jnp.split(resize(jnp.squeeze(exponent, at + 1), at, runs + runs % 2), 2, at))
        return jnp.concatenate([folded(jnp.concatenate(packed, at + 1), at), *scales], at)

    def decode(self, codes: Sequence[Array], scales: Array, at: int, dtype: DTypeLike) -> list[Array]:
        runs = codes[0].shape[at]
        exponent = lax.slice_in_dim(jnp.concatenate(words.unpack16([scales]), at), 0, runs, axis=at)
        scale = words.scale(jnp.expand_dims(exponent, at + 1) - self.bits, dtype)
        return [words.value(code, scale, self.bits) for code in codes]


class Int16(Integers):
    name, bits, error, tiled = "int16", 15, math.sqrt(RUN) * 2.0**-15, True


class Int24(Integers):
    name, bits, error, tiled = "int24", 23, math.sqrt(RUN) * 2.0**-23, True
    group, group_words = 4, 3
    pack, unpack = staticmethod(words.pack24), staticmethod(words.unpack24)


class Bfloat16(Coded):
    """The upper halves of float32; the error is that of the largest number, which is clamped."""

    name, error, wide = "bfloat16", 2.0**-8, False
    operations = 30

    def scales(self, runs: int) -> int:
        return 0

    def encode(self, pieces: Sequence[Array], at: int) -> Array:
        return folded(self.pack(list(map(words.half_bits, pieces)))[0], at)

    def decode(self, codes: Sequence[Array], scales: Array, at: int, dtype: DTypeLike) -> list[Array]:
        return [lax.bitcast_convert_type(code << 16, jnp.float32).astype(dtype) for code in codes]


EXACT = Wire()
WIRES: dict[str, type[Wire]] = {kind.name: kind for kind in (Wire, Int24, Int16, Bfloat16)}


def wire_of(name: str, dtype: np.dtype, flat: bool = False) -> Wire:
    """The wire of this name for planes of a real type. Raises ValueError if unknown or without float64's range."""
    if name not in WIRES:
        raise ValueError(f"wire {name!r} is unknown: use one of " + ", ".join(map(repr, WIRES)))
    if not WIRES[name].wide and dtype.itemsize > words.WORD:
        raise ValueError(f"wire {name!r} lacks the range of float64: use 'int16' or 'int24', whose scales have it")
    return WIRES[name](dtype.itemsize, flat=flat and WIRES[name].lossy)


@dataclasses.dataclass(frozen=True)
class WireForm:
    wire: Coded
    shape: tuple[int, ...]  # of the share
    planes: int
    dim: int  # of the runs
    length: int  # positions of a run; the last is zero-padded

    @property
    def runs(self) -> int:
        return max(1, -(-self.shape[self.dim] // self.length))

    @property
    def rows(self) -> int:
        return self.planes * self.length * self.wire.group_words // self.wire.group

    @property
    def message(self) -> tuple[int, ...]:
        words = self.runs * self.rows + self.wire.scales(self.runs)
        return (*self.shape[: self.dim], words, *self.shape[self.dim + 1 :])

    def encode(self, block: Block, first: int = 0) -> Array:
        at, step = first + self.dim, self.wire.group // self.planes
        each = [unfolded(resize(plane, at, self.runs * self.length), at, self.runs) for plane in split(block)]
        return self.wire.encode([part for plane in each for part in jnp.split(plane, step, at + 1)], at)

    def decode(self, message: Array, dtype: DTypeLike, first: int = 0) -> Planes:
        at, many, group = first + self.dim, self.runs * self.rows, self.wire.group
        data, scales = (lax.slice_in_dim(message, a, b, axis=at) for a, b in ((0, many), (many, None)))
        codes = self.wire.unpack(jnp.split(unfolded(data, at, self.runs), self.wire.group_words, at + 1))
        pieces, step = self.wire.decode(codes, scales, at, dtype), group // self.planes
        planes = (jnp.concatenate(pieces[j : j + step], at + 1) for j in range(0, group, step))
        return tuple(lax.slice_in_dim(folded(plane, at), 0, self.shape[self.dim], axis=at) for plane in planes)


@dataclasses.dataclass(frozen=True)
class Flat:
    """The encoding of a share of short lines, or of one line. Its numbers, in order, fill columns of two runs, whose
    exponents share a word.
    """

    shape: tuple[int, ...]  # of the share
    form: WireForm

    @property
    def message(self) -> tuple[int, ...]:
        return self.form.message

    def encode(self, block: Block, first: int = 0) -> Array:
        lead, shape, size = split(block)[0].shape[:first], self.form.shape, math.prod(self.shape)
        lines = (resize(plane.reshape(*lead, size), first, math.prod(shape)) for plane in split(block))
        return self.form.encode(tuple(plane.reshape(*lead, *shape) for plane in lines), first)

    def decode(self, message: Array, dtype: DTypeLike, first: int = 0) -> Planes:
        lead, size = message.shape[:first], math.prod(self.shape)
        planes = (plane.reshape(*lead, math.prod(self.form.shape)) for plane in self.form.decode(message, dtype, first))
        return tuple(resize(plane, first, size).reshape(*lead, *self.shape) for plane in planes)


@dataclasses.dataclass(frozen=True)
class Tiled(Flat):
    """The encoding of a share whose last two dimensions are TPU tiles (rows, 128). Numbers of a word or scale have the
    same place in several registers.

        (.., rows, 128 T) -> (groups, positions, rows, 128), positions and groups over (.., T) -> words of positions

    `form` encodes the array in groups. A group is a run, or two whose exponents share a word.
    """

    @property
    def coded(self) -> Coded:
        return self.form.wire

    def encode(self, block: Block, first: int = 0) -> Array:
        *_, rows, last = self.shape
        opened = (_transposed(plane, first, (rows, last // LANES), self.form.shape) for plane in split(block))
        return self.form.encode(tuple(opened), first)

    def decode(self, message: Array, dtype: DTypeLike, first: int = 0) -> Planes:
        *_, rows, last = self.shape
        planes = self.form.decode(message, dtype, first)
        return tuple(_transposed(plane, first, (last // LANES, rows), self.shape) for plane in planes)


def _transposed(plane: Array, first: int, sides: tuple[int, int], shape: tuple[int, ...]) -> Array:
    lead = plane.shape[:first]
    return plane.reshape(*lead, -1, *sides, LANES).swapaxes(-3, -2).reshape(*lead, *shape)


@functools.lru_cache(maxsize=4096)
def form_of(share: tuple[int, ...], planes: int, wire: Coded) -> WireForm | Flat:
    """The form with the fewest words, or not many more in tiles, flat or along an earlier dimension."""
    share, least, most = share or (1,), wire.group // planes, RUN // planes
    lengths = range(least, most + 1, least)
    forms = [WireForm(wire, share, planes, dim, length) for dim in range(len(share)) for length in lengths]
    sizes = [math.prod(form.message) for form in forms]
    if (tiled := _tiled(share, planes, wire, lengths)) and math.prod(tiled.message) <= TILED_SLACK * min(sizes):
        return tiled
    flat = WireForm(wire, (2 * most, -(-math.prod(share) // (2 * most))), planes, 0, most)
    if wire.flattens(share) and math.prod(flat.message) <= SLACK * min(sizes):
        return Flat(share, flat)
    return min(
        (form for form, size in zip(forms, sizes, strict=True) if size <= SLACK * min(sizes)),
        key=lambda form: (form.dim, math.prod(form.message)),
    )


def _tiled(share: tuple[int, ...], planes: int, wire: Coded, lengths: Sequence[int]) -> Tiled | None:
    *lead, rows, last = (1, 1, *share)
    whole = last % LANES == 0 and (rows % SUBLANES == 0 or rows in (2, 4))
    if wire.room < LEAST_ROOM or not wire.tiled or not whole:
        return None
    tiles = last // LANES
    many = math.prod(lead) * tiles
    for length in reversed(lengths):
        group = min(2 * length, many)
        if many and many % group == 0 and group % length == 0 and (tiles % group == 0 or group % tiles == 0):
            return Tiled(share, WireForm(wire, (many // group, group, rows, LANES), planes, 1, length))
    return None


def carried(send: Callable[[Array], Array], block: B, wire: Wire, first: int = 0) -> B:
    """The received block, in its form. `send` gets arrays with the block's `first` leading dimensions.

    TPU kernels encode and decode if they have enough memory. Invariant: words have the same bits on all devices.
    """
    if not isinstance(wire, Coded):
        return jax.tree.map(send, block)
    planes = split(block)
    form = form_of(planes[0].shape[first:], len(planes), wire)

    def by_platform(which: int, by_xla: Callable[..., Any], *arrays: Array) -> Any:
        if not isinstance(form, Tiled):
            return by_xla(*arrays)
        kernels = {where: functools.partial(pair[which], form, first) for where, pair in KERNELS.items()}
        return lax.platform_dependent(*arrays, **kernels, default=by_xla)

    message = by_platform(0, lambda *planes: form.encode(planes, first), *planes)
    decode = functools.partial(form.decode, dtype=planes[0].dtype, first=first)
    return cast(B, like(block, tuple(by_platform(1, decode, send(message)))))
