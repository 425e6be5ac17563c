"""Padding: which places of a stored array hold data, and the layout of what arrays with padding make together."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from .layout import Layout
from .manual_axes import own


def logical(layout: Layout, dim: int) -> np.ndarray:
    """Which places of a stored dimension hold data; the rest is padding."""
    return (np.arange(layout.block[dim]) < layout.counts(dim)[:, None]).ravel()


def without_padding(stored: Array, layout: Layout, seen: frozenset[str]) -> Array:
    """A stored array with zeros for its padding; `seen` are the mesh axes that a caller's shard_map has mapped."""
    for dim, (size, extent) in enumerate(zip(layout.shape, layout.storage, strict=True)):
        if size < extent:
            kept = own(logical(layout, dim), 0, layout.cuts[dim], seen)
            kept = jnp.asarray(kept).reshape([-1 if d == dim else 1 for d in range(stored.ndim)])
            stored = jnp.where(kept, stored, jnp.zeros((), stored.dtype))
    return stored


def joined(lead: Layout, layout: Layout) -> Layout:
    """The layout with leading dimensions before it."""
    return Layout(lead.shape + layout.shape, lead.cuts + layout.cuts)


def broadcast(a: Layout, b: Layout) -> Layout:
    """The layout of what two make together: in each dimension they agree, or one has a single position."""
    many = max(a.ndim, b.ndim)
    a, b = (Layout((1,) * (many - x.ndim) + x.shape, ((),) * (many - x.ndim) + x.cuts) for x in (a, b))
    pairs = list(zip(zip(a.shape, a.cuts, strict=True), zip(b.shape, b.cuts, strict=True), strict=True))
    fits = all(one == other or 1 in (one[0], other[0]) for one, other in pairs)
    if not fits:
        raise ValueError(
            f"padded arrays of shape {a.shape} cut as {a.spec} and {b.shape} as {b.spec} meet: shard them alike"
        )
    chosen = [other if one[0] == 1 else one for one, other in pairs]
    return Layout(tuple(size for size, _ in chosen), tuple(cuts for _, cuts in chosen))
