"""Sums, means, largest and smallest elements along dimensions of a padded array.

Every device reduces its block, the padding replaced by what changes nothing: 0, or the least or greatest number of the
type. Partial results are combined over the mesh axes that cut the reduced dimensions, by XLA, or here inside a caller's
shard_map. Invariant: NaN among the elements makes NaN, as in NumPy; padding stays zero.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from .layout import Layout
from .placement import varying, without_padding

Dims = tuple[int, ...]


def reduced(
    stored: Array, layout: Layout, mapped: frozenset[str], how: str, dims: Dims, dtype: DTypeLike | None
) -> Array:
    """A stored array reduced along dimensions, which stay, one element long.

    Args:
        stored: the array, or inside shard_map a block of it.
        layout: the array's.
        mapped: the mesh axes that a caller's shard_map has mapped.
        how: "sum", "mean", "max" or "min".
        dims: the dimensions.
        dtype: of sums, that of the result; None as `jax.numpy` has it.
    """
    over = tuple(sorted(mapped & {axis for dim in dims for axis in layout.axes[dim]}))
    if how in ("sum", "mean"):
        y = _added(without_padding(stored, layout, mapped), layout, how, dims, over, dtype)
    else:
        y = _farthest(without_padding(stored, layout, mapped, _end(stored.dtype, how)), how, dims, over)
    return without_padding(y, emptied(layout, dims), mapped)


def emptied(layout: Layout, dims: Dims) -> Layout:
    """The layout with one element along some dimensions, which nothing cuts."""
    for dim in dims:
        layout = layout.replace(dim, 1, ())
    return layout


def without(y: Array, layout: Layout, dims: Dims) -> tuple[Array, Layout]:
    """A stored array and its layout without dimensions of one element."""
    kept = [d for d in range(layout.ndim) if d not in dims]
    left = Layout(tuple(layout.shape[d] for d in kept), tuple(layout.cuts[d] for d in kept))
    return lax.squeeze(y, dims), left


def _added(x: Array, layout: Layout, how: str, dims: Dims, over: tuple[str, ...], dtype: DTypeLike | None) -> Array:
    if how == "sum":
        return _summed(jnp.sum(x, dims, dtype, keepdims=True), over)
    result = jax.eval_shape(functools.partial(jnp.mean, dtype=dtype), jax.ShapeDtypeStruct((1,), x.dtype)).dtype
    half = jnp.issubdtype(result, jnp.floating) and result.itemsize < 4  # summed in single, as jax.numpy.mean does
    total = _summed(jnp.sum(x, dims, np.float32 if half else result, keepdims=True), over)
    return (total / math.prod(float(layout.shape[dim]) for dim in dims)).astype(result)


def _summed(y: Array, over: tuple[str, ...]) -> Array:
    if not over:
        return y
    total: Array = lax.psum(varying([y.astype(jnp.int32) if y.dtype == bool else y], frozenset(over))[0], over)
    return total.astype(y.dtype)


def _farthest(x: Array, how: str, dims: Dims, over: tuple[str, ...]) -> Array:
    """NaN is looked for by itself: on CPUs the largest of several devices' numbers loses it."""
    most, over_devices = (jnp.max, lax.pmax) if how == "max" else (jnp.min, lax.pmin)
    floats = jnp.issubdtype(x.dtype, jnp.floating)
    lost = jnp.isnan(x) if floats else lax.full_like(x, False, bool)
    y = most(jnp.where(lost, jnp.asarray(_end(x.dtype, how), x.dtype), x), dims, keepdims=True)
    if over:
        y = over_devices(varying([y], frozenset(over))[0], over)
    lost = _summed(jnp.any(lost, dims, keepdims=True), over)
    return jnp.where(lost, jnp.asarray(jnp.nan, y.dtype), y) if floats else y


def _end(dtype: np.dtype, how: str) -> Any:
    """The number that no other is less, or greater, than."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return how == "min"
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).min if how == "max" else jnp.iinfo(dtype).max
    return -jnp.inf if how == "max" else jnp.inf
