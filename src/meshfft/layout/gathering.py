"""Gathering: an array of which several processes hold shards, as a NumPy array in each of them.

Every device receives the same rows of all blocks, RUN bytes at a time, and its process copies them out: the devices
need room for a run, and a host for the array. Invariant: the values are those of the shards, bit for bit.
"""

import functools

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from .layout import AnyMesh, Layout, axis_sizes, from_spec

RUN = 2**26


def to_host(y: ArrayLike) -> np.ndarray:
    """An array in NumPy's form. Where other processes hold shards of it, every process of its mesh must call this."""
    if not isinstance(y, jax.Array) or isinstance(y, jax.core.Tracer) or y.is_fully_addressable:
        return np.asarray(y)
    if not y.addressable_shards:
        here = "gather it where jax.process_index() is that of one of y.sharding.device_set"
        raise ValueError(f"process {jax.process_index()} has none of the array's devices: {here}")
    if y.is_fully_replicated:
        return np.asarray(y)
    if not isinstance(y.sharding, NamedSharding):
        kind = type(y.sharding).__name__
        raise NotImplementedError(f"the array has a {kind}: give it a NamedSharding, with jax.device_put")
    mesh, collected = y.sharding.mesh, np.empty(y.shape, y.dtype)
    layout = from_spec(y.shape, axis_sizes(mesh), y.sharding.spec)
    dim = max(range(y.ndim), key=layout.block.__getitem__)
    parts, block = layout.parts[dim], layout.block[dim]
    blocks = collected.reshape(*y.shape[:dim], parts, block, *y.shape[dim + 1 :])
    rows = min(block, max(1, RUN * block // max(collected.nbytes, 1)))
    for first in range(0, block if y.size else 0, rows):
        start = min(first, block - rows)
        run = np.asarray(_rows(y, start, dim, rows, layout, mesh))
        at = (*[slice(None)] * (dim + 1), slice(start, start + rows))
        blocks[at] = run.reshape(blocks[at].shape)
    return collected


@functools.partial(jax.jit, static_argnames=("dim", "rows", "layout", "mesh"))
def _rows(y: Array, start: Array, dim: int, rows: int, layout: Layout, mesh: AnyMesh) -> Array:
    """Some rows of every block, replicated on every device."""

    def run(block: Array) -> Array:
        block = lax.dynamic_slice_in_dim(block, start, rows, dim)
        for d, axes in enumerate(layout.axes):
            for axis in reversed(axes):
                block = lax.all_gather(block, axis, axis=d, tiled=True)
        return block

    return jax.shard_map(run, mesh=mesh, in_specs=layout.spec, out_specs=PartitionSpec(), check_vma=False)(y)
