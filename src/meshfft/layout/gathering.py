"""Whole: an array of which several processes hold parts, as NumPy's in each of them.

Every device receives the same rows of all blocks, RUN bytes at a time, and its process copies them to their places: the
devices need room for a run, and a host for the array. Invariant: the values are those of the shards, bit for bit.
"""

import functools

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from .layout import AnyMesh, Layout, axis_sizes, from_spec

RUN = 2**26


def whole(y: Array) -> np.ndarray:
    """All of an array. Where other processes hold parts of it, every process of its mesh must call this.

    Raises:
        ValueError: this process holds no part of it.
        NotImplementedError: a sharding that is not over a named mesh.
    """
    near = not isinstance(y, jax.Array) or isinstance(y, jax.core.Tracer) or y.is_fully_addressable
    if near:
        return np.asarray(y)
    here = "gather it where jax.process_index() is that of one of y.sharding.device_set"
    if len(y.addressable_shards) <= 0:
        raise ValueError(f"process {jax.process_index()} has none of the array's devices: {here}")
    if y.is_fully_replicated:
        return np.asarray(y)
    sharding = y.sharding
    remedy = f"the array has a {type(sharding).__name__}: give it a NamedSharding, with jax.device_put"
    if not isinstance(sharding, NamedSharding):
        raise NotImplementedError(remedy)
    assert isinstance(sharding, NamedSharding)
    return _collected(y, from_spec(y.shape, axis_sizes(sharding.mesh), sharding.spec), sharding.mesh)


def _collected(y: Array, layout: Layout, mesh: AnyMesh) -> np.ndarray:
    found = np.empty(y.shape, y.dtype)
    dim = max(range(y.ndim), key=layout.block.__getitem__)
    parts, block = layout.parts[dim], layout.block[dim]
    places = found.reshape(*y.shape[:dim], parts, block, *y.shape[dim + 1 :])
    rows = min(block, max(1, RUN * block // max(found.nbytes, 1)))
    for first in range(0, block if y.size else 0, rows):
        start = min(first, block - rows)
        run = np.asarray(_rows(y, start, dim, rows, layout, mesh))
        at = (*[slice(None)] * (dim + 1), slice(start, start + rows))
        places[at] = run.reshape(places[at].shape)
    return found


@functools.partial(jax.jit, static_argnames=("dim", "rows", "layout", "mesh"))
def _rows(y: Array, start: Array, dim: int, rows: int, layout: Layout, mesh: AnyMesh) -> Array:
    """So many rows of every block, from a row of it on, whole on every device."""

    def run(block: Array) -> Array:
        found = lax.dynamic_slice_in_dim(block, start, rows, dim)
        for d, axes in enumerate(layout.axes):
            for axis in reversed(axes):
                found = lax.all_gather(found, axis, axis=d, tiled=True)
        return found

    return jax.shard_map(run, mesh=mesh, in_specs=layout.spec, out_specs=PartitionSpec(), check_vma=False)(y)
