"""Binned sums of a sharded array: every device sums its block, and only bins are summed over devices.

    sums[b] = sum of weight * value,   counts[b] = sum of weight    where edges[b] <= coordinate < edges[b+1]

A coordinate is the sum of one number per dimension, a weight the product of one integer per dimension. Blocks are
summed in runs of RUN elements: float32 sums stall at 2^24 terms. Invariant: counts are exact up to 2^32 in a block, and
rounded once.
"""

import functools
import operator

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec

from ..layout.layout import AnyMesh, Layout, mapped_axes
from ..layout.placement import reshard, varying
from ..numerics.split_complex import scaled

RUN = 2**16
LIMB = 16
MOST = 2**31 - 1  # segments that 32 bits can count
PerDim = tuple[Array, ...]


def binned(
    x: Array, coordinates: PerDim, weights: PerDim, edges: Array, layout: Layout, mesh: AnyMesh | None
) -> tuple[Array, Array, Array]:
    """Replicated sums of x and of the root of the coordinate over bins, and the counts; x is stored in `layout`.

    `coordinates`, for some dimensions, and integer `weights`, for all, have the stored size along their dimension (the
    block's inside a shard_map over all axes that cut x), and size 1 along the rest. `edges` are ascending.
    """
    parts = functools.partial(_parts, bins=edges.shape[0] - 1)
    mapped = mapped_axes(mesh) & layout.mesh_axes
    if mesh is not None and not mapped:
        lines = jax.tree.map(lambda line: _spec(line, layout), (coordinates, weights))
        specs, over = (*lines, PartitionSpec()), tuple(axis for axes in layout.axes for axis in axes)
        given = (coordinates, weights, edges)
        coordinates, weights, edges = jax.tree.map(lambda line, spec: reshard(line, mesh, spec), given, specs)
        after = PartitionSpec(over or None)
        parts = jax.shard_map(parts, mesh=mesh, in_specs=(layout.spec, *specs), out_specs=after, check_vma=False)
    else:
        x = reshard(x, jax.typeof(x).sharding.mesh, PartitionSpec())  # a mesh of one device is part of the type too
    totals = [jnp.sum(part, 0) for part in parts(x, coordinates, weights, edges)]
    sums, roots, (high, low) = lax.psum(varying(totals, mapped), tuple(sorted(mapped))) if mapped else totals
    return sums, roots, high.astype(roots.dtype) * 2**LIMB + low.astype(roots.dtype)


def _spec(line: Array, layout: Layout) -> PartitionSpec:
    return PartitionSpec(*(None if n == 1 else part for n, part in zip(line.shape, layout.spec, strict=True)))


def _parts(x: Array, coordinates: PerDim, weights: PerDim, edges: Array, bins: int) -> tuple[Array, Array, Array]:
    """One device's sums (1, bins), counts as two limbs (1, 2, bins)."""
    coordinate = jnp.broadcast_to(functools.reduce(operator.add, coordinates), x.shape).ravel()
    weight = jnp.broadcast_to(functools.reduce(operator.mul, weights), x.shape).ravel()
    index = jnp.searchsorted(edges, coordinate, side="right") - 1
    many = weight.astype(coordinate.dtype)
    values = (scaled(x.ravel(), many), jnp.sqrt(coordinate) * many, weight.astype(jnp.uint32))
    sums, roots, counts = (_summed(value, index, bins) for value in values)
    limbs = jnp.stack([counts >> LIMB, counts & (2**LIMB - 1)])
    return sums[None], roots[None], limbs[None]


def _summed(values: Array, index: Array, bins: int) -> Array:
    many = values.shape[0]
    runs = max(1, min(-(-many // RUN), many // bins, MOST // bins))
    run = lax.broadcasted_iota(jnp.int32, (runs, -(-many // runs)), 0).ravel()[:many]
    segment = jnp.where((index >= 0) & (index < bins), run * bins + index, runs * bins)
    sums = jax.ops.segment_sum(values, segment, runs * bins + 1)[:-1]
    return jnp.sum(sums.reshape(runs, bins), 0, dtype=values.dtype)
