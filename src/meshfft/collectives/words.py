"""Words: numbers as integers that share a power of two, packed into 32 bits; all elementwise.

    q = round(x 2^(b - e)),   x ~ q 2^(e - b),   |q| < 2^b

Invariant: XLA (wires.py) and TPU kernels (tpu/wires.py) run the same functions, so their words have the same bits.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

WORD = 4  # bytes
LOW, TOP = 0xFFFFFF, -(2**24)  # the lower 24 bits of a word, and the upper 8
Scale = tuple[Array, Array]  # a power of two in two factors, each within the type's range


def finite(values: Array) -> Array:
    magnitude = _magnitude(values)
    return jnp.where(magnitude < _layout(values.dtype)[0], lax.bitcast_convert_type(magnitude, values.dtype), 0)


def exponent(most: Array) -> Array:
    """The exponent e of a run, from its largest finite magnitude."""
    _, digits, bias = _layout(most.dtype)
    return (_magnitude(most) >> digits).astype(jnp.int32) - (bias - 1)


def scale(by: Array, dtype: DTypeLike) -> Scale:
    half = by >> 1
    return _power(half, dtype), _power(by - half, dtype)


def code(values: Array, scale: Scale, bits: int) -> Array:
    """Nearest integers, halves to even; the two largest encode infinity, the least NaN."""
    (infinite, digits, _), magnitude = _layout(values.dtype), _magnitude(values)
    scaled = values * scale[0] * scale[1]
    limit = jnp.where(magnitude == infinite, 2.0**bits - 1, 2.0**bits - 2).astype(values.dtype)
    if bits + 2 > digits:  # both signs do not fit
        sizes = _nearest(jnp.minimum(jnp.abs(scaled), limit), 2.0**digits)
        code = jnp.where(values < 0, -sizes, sizes)
    else:
        code = _nearest(jnp.clip(scaled, -limit, limit), 1.5 * 2.0**digits)
    return jnp.where(magnitude > infinite, -(2**bits), code)


def value(code: Array, scale: Scale, bits: int) -> Array:
    number = code.astype(scale[0].dtype)
    value = jnp.where(jnp.abs(number) == 2.0**bits - 1, number * np.inf, number * scale[0] * scale[1])
    return jnp.where(number == -(2.0**bits), np.nan, value).astype(scale[0].dtype)


def half_bits(values: Array) -> Array:
    """Bits of bfloat16 numbers; finite ones do not become infinite."""
    top = float(jnp.finfo(jnp.bfloat16).max)
    kept = jnp.where(jnp.isinf(values), values, jnp.clip(values, -top, top))
    return lax.bitcast_convert_type(kept.astype(jnp.bfloat16), jnp.uint16).astype(jnp.int32)


def pack16(parts: Sequence[Array]) -> list[Array]:
    low, high = parts
    return [lax.bitcast_convert_type((low & 0xFFFF) | (high << 16), jnp.uint32)]


def unpack16(words: Sequence[Array]) -> list[Array]:
    word = lax.bitcast_convert_type(words[0], jnp.int32)
    return [(word << 16) >> 16, word >> 16]


def pack24(parts: Sequence[Array]) -> list[Array]:
    """Four integers in three words, the last in the upper bytes."""
    *kept, last = parts
    words = [(part & LOW) | ((last << (24 - 8 * j)) & TOP) for j, part in enumerate(kept)]
    return [lax.bitcast_convert_type(word, jnp.uint32) for word in words]


def unpack24(words: Sequence[Array]) -> list[Array]:
    first, second, third = given = [lax.bitcast_convert_type(word, jnp.int32) for word in words]
    last = ((first >> 24) & 0xFF) | ((second >> 16) & 0xFF00) | ((third >> 8) & ~0xFFFF)
    return [*((word << 8) >> 8 for word in given), last]


def _nearest(values: Array, large: float) -> Array:
    """Rounds by adding a large number; jnp.round takes a TPU three times as long."""
    added = np.asarray(large, values.dtype)
    return (_bits(values + added) - int(added.view(f"i{added.itemsize}"))).astype(jnp.int32)


def _power(exponent: Array, dtype: DTypeLike) -> Array:
    _, digits, bias = _layout(dtype)
    integer = jnp.int32 if digits < 32 else jnp.int64
    return lax.bitcast_convert_type((exponent.astype(integer) + bias) << digits, dtype)


def _magnitude(values: Array) -> Array:
    """Bits without the sign, ordered as magnitudes, NaN above infinity."""
    bits = _bits(values)
    return bits & np.iinfo(bits.dtype).max


def _bits(values: Array) -> Array:
    return lax.bitcast_convert_type(values, jnp.int32 if values.dtype.itemsize == WORD else jnp.int64)


def _layout(dtype: DTypeLike) -> tuple[int, int, int]:
    """Bits of infinity, digits of the fraction, and bias."""
    digits, bias = (23, 127) if np.dtype(dtype).itemsize == WORD else (52, 1023)
    return (2 * bias + 1) << digits, digits, bias
