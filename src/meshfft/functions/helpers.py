"""numpy.fft's helpers on a mesh: frequencies, shifts, and lengths of fast transforms.

Frequencies are computed in float64 by NumPy's arithmetic and rounded once, by each device only for its shard. A shift
is a walk of rolls: values are unchanged, bit for bit.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding
from jax.typing import ArrayLike, DTypeLike

from ..layout.layout import Layout, Spec, axis_sizes, from_spec
from ..layout.memory import check_held, room
from ..layout.padded_array import AnyArray, Transformed
from ..operators.transform import dims_of, fast_length, integer
from ..plans.execute import in_own_type, moved
from ..plans.request import formed, on_arrays, read
from ..steps import Roll
from ..walks.walk import Walk
from .calls import Ints

DeviceLike: TypeAlias = jax.Device | Sharding | None


def fftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
    """The frequency of each output of a transform of n samples, as
    numpy.fft.fftfreq.

        f = [0, 1, ..., (n-1) // 2, -(n // 2), ..., -1] / (n d)

    Args:
        n: samples.
        d: their spacing.
        dtype: a real floating type; by default JAX's.
        device: a device, or a one-dimensional NamedSharding, whose devices make
            one shard each.

    Returns:
        The n frequencies, in cycles per unit of d.

    Raises:
        ValueError: n is less than 1, d is zero or not finite, n or d is not a
            single number, the mesh axes do not divide n, or the type is float64
            while 64-bit types are off.
        TypeError: an argument of another type.

    >>> mf.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    size, step = _step(n, d)
    return _made(size, lambda k: (k - size * (k > (size - 1) // 2)) * step, dtype, device, f"fftfreq({size}, d)")


def rfftfreq(n: int, d: float = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
    """The frequency of each of the n // 2 + 1 outputs of a transform of n real
    samples, as numpy.fft.rfftfreq.

        f = [0, 1, ..., n // 2] / (n d)

    Arguments and errors as `fftfreq`; shards must divide n // 2 + 1.

    >>> mf.rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    size, step = _step(n, d)
    return _made(size // 2 + 1, lambda k: k * step, dtype, device, f"rfftfreq({size}, d)")


def next_fast_len(target: int, real: bool = False, *, parts: int = 1) -> int:
    """The smallest length, at least `target`, that the shards divide and whose
    transform is fast.

        n = parts m,   m the smallest fast length >= target / parts,
                       scipy.fft.next_fast_len(ceil(target / parts))

    Args:
        target: smallest acceptable length.
        real: whether samples are real: m has no prime factor above 5, else none
            above 11.
        parts: number of shards p of the dimension; give p^2 for method
            "cooley-tukey".

    Raises:
        ValueError: target or parts is less than 1, or the length is too large.
        TypeError: target or parts is not an integer.

    >>> mf.next_fast_len(97), mf.next_fast_len(97, parts=8)
    (98, 112)
    """
    target, parts = integer(target, "target"), integer(parts, "parts")
    if target < 1:
        raise ValueError(f"target is {target}: a transform needs at least one point")
    if parts < 1:
        raise ValueError(f"parts is {parts}: give the number of shards, 1 where the dimension is not cut")
    try:
        length = fast_length(target, parts, bool(real))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"target {target} is too large for a transform: give a length below 2^60") from error
    if length >= 2**60:
        raise ValueError(f"target {target} for {parts} parts is too large for a transform: give less than 2^60 in all")
    return length


def _step(n: int, d: ArrayLike) -> tuple[int, float]:
    size = integer(n, "n")
    if size < 1:
        raise ValueError(f"n is {size}: a transform needs at least one point")
    if not hasattr(d, "__float__") or np.iscomplexobj(d) or isinstance(d, jax.core.Tracer) or np.ndim(d):
        error = ValueError if np.ndim(d) else TypeError  # as in JAX
        raise error(f"d is {d!r}: give the spacing of samples as one real number, known before tracing")
    d = float(d)
    if not math.isfinite(d) or d == 0 or math.isinf(1.0 / (size * d)):
        raise ValueError(
            f"d is {d}: give the spacing of samples, finite and neither zero nor so small that 1 / d overflows"
        )
    return size, 1.0 / (size * d)


def _made(
    count: int, values: Callable[[np.ndarray], np.ndarray], dtype: DTypeLike | None, device: DeviceLike, name: str
) -> Array:
    kind, remedy = _floating(dtype), "give a smaller n, or a NamedSharding as device="
    if device is None or isinstance(device, jax.Device | SingleDeviceSharding):
        check_held(3 * 8 * count, f"np.fft.{name}, with what it is made from,", remedy)
        made = _rounded(values(np.arange(count)), kind)
        return jnp.asarray(made) if device is None else jax.device_put(made, device)
    shards = _shards(count, device, name)
    check_held(kind.itemsize * (count // shards), f"a shard of np.fft.{name}", remedy, room(device))

    def block(index: tuple[slice, ...] | None) -> np.ndarray:
        start, stop, _ = (index or (slice(None),))[0].indices(count)
        return _rounded(values(np.arange(start, stop)), kind)

    return jax.make_array_from_callback((count,), device, block, dtype=kind)


def _shards(count: int, sharding: Sharding, name: str) -> int:
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        wanted = "a device or a jax.sharding.NamedSharding over a mesh of devices, such as NamedSharding(mesh, P('x'))"
        raise TypeError(f"device is {sharding!r}: give {wanted}")
    (shards,) = from_spec((count,), axis_sizes(sharding.mesh), sharding.spec).parts
    if count % shards:
        raise ValueError(
            f"the {shards} shards of {sharding.spec} do not divide {count} frequencies: keep padded storage, with "
            f"mf.shard(np.fft.{name}, mesh, spec), or leave device= out"
        )
    return shards


def _rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Converts float64 to another type with one rounding.

    Narrow types are converted from float32, rounded to odd if inexact, so that ties round correctly.
    """
    if dtype.itemsize >= 4:
        return values.astype(dtype)
    near = values.astype(np.float32)
    bits = near.view(np.uint32) - (abs(near) > abs(values))
    return np.where(near == values, near, (bits | 1).view(np.float32)).astype(dtype)


def _floating(dtype: DTypeLike | None) -> np.dtype:
    kind = np.dtype(jnp.result_type(float) if dtype is None else dtype)
    if not jnp.issubdtype(kind, jnp.floating) or kind.itemsize > 8:
        raise TypeError(f"dtype is {kind}: frequencies are real, give float32 or another floating type")
    if jax.dtypes.canonicalize_dtype(kind) != kind:
        raise ValueError(f"{kind} needs 64-bit types, which are off: call jax.config.update('jax_enable_x64', True)")
    return kind


@on_arrays
def fftshift(
    x: AnyArray, axes: int | Ints = None, *, spec: Spec | None = None, out_spec: Spec | None = None
) -> Transformed:
    """Moves zero frequency to the middle of a sharded spectrum, as
    numpy.fft.fftshift.

        y[i] = x[(i - n // 2) mod n]   along every dimension in `axes`

    Args:
        x: as `a` of `fftn`, of any type.
        axes: a dimension or several, None for all; one given twice is shifted
            twice.
        spec, out_spec: as `fftn`.

    Returns:
        The shifted array, of the same type; as (re, im) if `x` is.

    Raises:
        ValueError: an axis out of range; a spec that does not fit or divide.
        TypeError: the array is not numeric, or axes are not integers.

    Sends at most one block per device for each cut dimension, in at most two
    permutes; twice that if sizes do not divide. No gather.

    >>> mf.fftshift(jnp.arange(5)).tolist()
    [3, 4, 0, 1, 2]
    """
    return _shifted(x, axes, spec, out_spec, 1)


@on_arrays
def ifftshift(
    x: AnyArray, axes: int | Ints = None, *, spec: Spec | None = None, out_spec: Spec | None = None
) -> Transformed:
    """The inverse of `fftshift`, with its arguments and cost, as
    numpy.fft.ifftshift.

        y[i] = x[(i + n // 2) mod n]   along every dimension in `axes`

    >>> mf.ifftshift(mf.fftshift(jnp.arange(5))).tolist()
    [0, 1, 2, 3, 4]
    """
    return _shifted(x, axes, spec, out_spec, -1)


def shift_walk(start: Layout, dims: tuple[int, ...], sign: int) -> Walk:
    """Rolls by n // 2, or back, for each occurrence of a dimension."""
    named = sorted({*dims}) if 0 not in start.shape else []
    rolls = (Roll(d, sign * dims.count(d) * (start.shape[d] // 2) % start.shape[d]) for d in named)
    return Walk(start, tuple(roll for roll in rolls if roll.by))


def _shifted(x: AnyArray, axes: int | Ints, spec: Spec | None, out_spec: Spec | None, sign: int) -> Transformed:
    arrays, setting, _ = read(x, spec)
    start = setting.start
    dims = dims_of(start.ndim, range(start.ndim) if axes is None else axes)
    if not start.tail:
        raise ValueError(f"the array has padding within {start.label()}: shift it in natural order")
    walk = shift_walk(start, dims, sign)
    rolled = in_own_type(arrays, walk, setting.mesh) if walk.steps else formed(arrays)
    return moved(rolled, out_spec, spec)
