"""Manual mesh axes: those along which a caller's own `shard_map` has cut its arrays before they come here.

Layouts speak of the whole array; what is seen of it is one block of the cuts by mapped axes, with all there is of the
others (`Layout.within`). So every device finds its own part of what it was given whole, and all that goes into a walk
varies over the same axes, as JAX then says of the result.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from .layout import Cuts


def own(x: Any, axis: int, cuts: Cuts, mapped: frozenset[str]) -> Any:
    """What is seen here of an array that is stored whole, along an axis with these cuts."""
    if not any(cut.axis in mapped for cut in cuts):
        return x
    before, after, parts = x.shape[:axis], x.shape[axis + 1 :], [cut.parts for cut in cuts]
    part = jnp.asarray(x).reshape(*before, *parts, x.shape[axis] // math.prod(parts), *after)
    for place, cut in reversed(list(enumerate(cuts, axis))):
        if cut.axis in mapped:
            part = lax.dynamic_index_in_dim(part, lax.axis_index(cut.axis), place, keepdims=False)
    return part.reshape(*before, -1, *after)


def varying(values: Sequence[Any], axes: frozenset[str]) -> list[Array]:
    """The values, said to vary over these manual axes and over all that any of them varies over."""
    union = axes.union(*map(_axes, values))
    return [lax.pcast(value, tuple(sorted(union - _axes(value))), to="varying") for value in values]


def vary(values: Sequence[Any]) -> bool:
    """True where shard_map keeps account of what varies over which axes, and these do."""
    return any(map(_axes, values))


def _axes(value: Any) -> frozenset[str]:
    return frozenset(jax.typeof(value).manual_axis_type.varying)
