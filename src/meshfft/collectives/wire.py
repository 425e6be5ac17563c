"""Wires: what travels instead of floats: integers that share a power of two, or bfloat16.

    x ~ q 2^(e - b),   |q| < 2^b,   2^e above the largest finite number of the run,   b = 15 (int16) or 23 (int24)

A run is at most RUN reals of one line, both planes of a complex one. Its message is one array of 32-bit words: two
integers of 16 bits in one, four of 24 in three, then the exponents of two runs in one, so that scales travel with the
data and both planes in one collective. Invariant: every word is made of rows that lie side by side along one dimension,
so that packing is elementwise, and no share reads another's scale.

Zeros, padding among them, ask for no room and arrive as zeros (-0 as 0); infinities and NaN arrive as such and leave
the scale of their run alone. What is below 2^-126 (2^-1022 in float64) arrives as zero where the device's arithmetic
takes denormals for zeros, as on CPUs and TPUs, and is rounded to the scale of its run elsewhere. Bfloat16 has no
scale: what is above its largest number, 3.39e38, arrives as that.

Error bound of one passage, relative in L2: the largest number of a run is at least 2^(e - 1), and every number is off
by at most half a step, 2^(e - b - 1), so that a run of n numbers is off by sqrt(n) 2^-b of its own norm at most. Those
that are clamped to the largest integer, by two steps, lie so near 2^e that the bound holds for them too.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..numerics.split_complex import Block, Planes, like, split
from .dimensions import folded, unfolded

B = TypeVar("B", bound=Block)

RUN = 64  # reals that share a scale, at most
WORD = 4  # bytes of a word
BITS = {"int16": 15, "int24": 23}  # of an integer, without its sign
WIRES = ("exact", "int24", "int16", "bfloat16")
SLACK = 1.05  # a run along an earlier dimension, which costs no shuffles, may be that much longer


class Wire(NamedTuple):
    """How numbers travel: a name of WIRES, and the bytes of a real number where they are computed."""

    name: str = "exact"
    real: int = 4

    @property
    def lossy(self) -> bool:
        """Whether anything but the numbers themselves travels."""
        return self.name != "exact"

    @property
    def error(self) -> float:
        """The largest relative L2 error of one passage: see above; of bfloat16 that of its last number, clamped."""
        if self.name == "bfloat16":
            return 2.0**-8
        return math.sqrt(RUN) * 2.0 ** -BITS[self.name] if self.lossy else 0.0

    def nbytes(self, share: Sequence[int], itemsize: int) -> int:
        """Bytes of a message of this many numbers along each dimension, of `itemsize` bytes each."""
        if not self.lossy:
            return math.prod(share) * itemsize
        return math.prod(form_of(tuple(share), 2 if itemsize > self.real else 1, self).message) * WORD


EXACT = Wire()


def wire_of(name: str, dtype: np.dtype) -> Wire:
    """The wire of a name, for planes of a real type.

    Raises:
        ValueError: no such wire, or bfloat16 for float64, whose range it lacks.
    """
    if name not in WIRES:
        raise ValueError(f"wire {name!r} is unknown: use one of " + ", ".join(map(repr, WIRES)))
    if name == "bfloat16" and dtype.itemsize > WORD:
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
            return folded(_pack(list(map(_half_bits, pieces)), at), at)
        exponent = _exponent(pieces, at + 1)
        words = folded(_pack([_code(piece, exponent, self.wire) for piece in pieces], at), at)
        scales = _padded(jnp.squeeze(exponent, at + 1), at, self.runs + self.runs % 2)
        return jnp.concatenate([words, _pack(jnp.split(scales, 2, at), at)], at)

    def decode(self, words: Array, dtype: DTypeLike, first: int = 0) -> Planes:
        """The planes, of a real type, that such words stand for."""
        at, many = first + self.dim, self.runs * self.rows
        data, rest = (lax.slice_in_dim(words, a, b, axis=at) for a, b in ((0, many), (many, None)))
        codes = _unpack(unfolded(data, at, self.runs), self.parts, at + 1)
        if self.wire.name == "bfloat16":
            pieces = [lax.bitcast_convert_type(code << 16, jnp.float32).astype(dtype) for code in codes]
        else:
            exponent = lax.slice_in_dim(jnp.concatenate(_unpack(rest, 2, at), at), 0, self.runs, axis=at)
            pieces = [_value(code, jnp.expand_dims(exponent, at + 1), self.wire, dtype) for code in codes]
        step = self.parts // self.planes
        planes = (jnp.concatenate(pieces[j : j + step], at + 1) for j in range(0, self.parts, step))
        return tuple(lax.slice_in_dim(folded(plane, at), 0, self.shape[self.dim], axis=at) for plane in planes)


@functools.lru_cache(maxsize=4096)
def form_of(share: tuple[int, ...], planes: int, wire: Wire) -> Form:
    """The form of a share with the fewest words, or few enough along an earlier dimension."""
    share = share or (1,)
    least = {"int24": 4, "int16": 2, "bfloat16": 2}[wire.name] // planes
    lengths = range(least, RUN // planes + 1, least)
    forms = [Form(wire, share, planes, dim, length) for dim in range(len(share)) for length in lengths]
    sizes = [math.prod(form.message) for form in forms]
    return min(
        (form for form, size in zip(forms, sizes, strict=True) if size <= SLACK * min(sizes)),
        key=lambda form: (form.dim, math.prod(form.message)),
    )


def form_like(block: Block, wire: Wire, first: int = 0) -> Form:
    """The form of the shares of a block, which are its dimensions from `first` on."""
    planes = split(block)
    return form_of(planes[0].shape[first:], len(planes), wire)


def carried(send: Callable[[Array], Array], block: B, wire: Wire, first: int = 0) -> B:
    """What arrives of a block, in its form, where `send` takes a message to another device.

    Args:
        send: of an array with the same first dimensions, which are all that it looks at.
        first: how many dimensions come before those of a share.
    """
    if not wire.lossy:
        return jax.tree.map(send, block)
    form, dtype = form_like(block, wire, first), split(block)[0].dtype
    arrived: Any = like(block, form.decode(send(form.encode(block, first)), dtype, first))
    return arrived


def _exponent(pieces: Sequence[Array], axis: int) -> Array:
    """The exponents e of runs: all finite numbers are below 2^e."""
    magnitudes = (_magnitude(piece) for piece in pieces)
    infinite, digits, bias = _layout(pieces[0].dtype)
    finite = (jnp.where(bits >= infinite, 0, bits) for bits in magnitudes)
    most = jnp.max(functools.reduce(jnp.maximum, finite), axis, keepdims=True)
    return (most >> digits).astype(jnp.int32) - (bias - 1)


def _code(values: Array, exponent: Array, wire: Wire) -> Array:
    """The integers of numbers: the largest two stand for infinity, the least for NaN."""
    bits, (infinite, _, _), magnitude = BITS[wire.name], _layout(values.dtype), _magnitude(values)
    scaled = jnp.round(_shifted(values, bits - exponent))
    limit = jnp.where(magnitude == infinite, 2.0**bits - 1, 2.0**bits - 2).astype(values.dtype)
    code = jnp.clip(scaled, -limit, limit)
    return jnp.where(magnitude > infinite, -(2.0**bits), code).astype(jnp.int32)


def _value(code: Array, exponent: Array, wire: Wire, dtype: DTypeLike) -> Array:
    """The numbers that integers of a run stand for."""
    bits = BITS[wire.name]
    code = (code << (31 - bits)) >> (31 - bits)  # its sign
    value = _shifted(code.astype(dtype), exponent - bits)
    infinite = jnp.where(code > 0, jnp.inf, -jnp.inf).astype(dtype)
    value = jnp.where(jnp.abs(code) == 2**bits - 1, infinite, value)
    return jnp.where(code == -(2**bits), jnp.nan, value).astype(dtype)


def _shifted(values: Array, by: Array) -> Array:
    """Numbers times 2^by, in two factors, as one may leave the type."""
    half = by >> 1
    return values * _power(half, values.dtype) * _power(by - half, values.dtype)


def _power(exponent: Array, dtype: DTypeLike) -> Array:
    """2^exponent, exactly."""
    _, digits, bias = _layout(dtype)
    integer = jnp.int32 if digits < 32 else jnp.int64
    return lax.bitcast_convert_type((exponent.astype(integer) + bias) << digits, dtype)


def _magnitude(values: Array) -> Array:
    """The bits of numbers without their signs: as integers they are in the numbers' order, NaN above infinity."""
    integer = jnp.int32 if values.dtype.itemsize == WORD else jnp.int64
    bits = lax.bitcast_convert_type(values, integer)
    return bits & np.iinfo(integer).max


def _layout(dtype: DTypeLike) -> tuple[int, int, int]:
    """The bits of infinity, digits of a fraction and bias of a type."""
    digits, bias = (23, 127) if np.dtype(dtype).itemsize == WORD else (52, 1023)
    return (2 * bias + 1) << digits, digits, bias


def _half_bits(values: Array) -> Array:
    """The bits of bfloat16 numbers, of which none becomes infinite."""
    top = float(jnp.finfo(jnp.bfloat16).max)
    kept = jnp.where(jnp.isinf(values), values, jnp.clip(values, -top, top))
    return lax.bitcast_convert_type(kept.astype(jnp.bfloat16), jnp.uint16).astype(jnp.int32)


def _pack(parts: Sequence[Array], axis: int) -> Array:
    """Words of integers: two of 16 bits in one; four of 24 bits in three, one after another along the next axis."""
    if len(parts) == 2:
        low, high = parts
        return lax.bitcast_convert_type((low & 0xFFFF) | (high << 16), jnp.uint32)
    *kept, last = (part & 0xFFFFFF for part in parts)
    words = [part | (((last >> (8 * j)) & 0xFF) << 24) for j, part in enumerate(kept)]
    return lax.bitcast_convert_type(jnp.concatenate(words, axis + 1), jnp.uint32)


def _unpack(words: Array, parts: int, axis: int) -> list[Array]:
    """The integers in words, along an axis; bits above theirs are left as they are, but for the upper of two."""
    words = lax.bitcast_convert_type(words, jnp.int32)
    if parts == 2:
        return [(words << 16) >> 16, words >> 16]
    kept = jnp.split(words, 3, axis)
    last = functools.reduce(jnp.bitwise_or, (((part >> 24) & 0xFF) << (8 * j) for j, part in enumerate(kept)))
    return [*kept, last]


def _padded(values: Array, dim: int, size: int) -> Array:
    """The values with zeros behind them along a dimension."""
    if values.shape[dim] == size:
        return values
    around = [(0, size - n, 0) if d == dim else (0, 0, 0) for d, n in enumerate(values.shape)]
    return lax.pad(values, jnp.zeros((), values.dtype), around)
