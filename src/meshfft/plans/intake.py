"""What a plan takes: an array of the shape and sharding that it was made for, refused by name where it has others."""

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding

from ..layout.layout import AnyMesh, Layout, axis_sizes, mapped_axes
from ..layout.padded_array import PaddedArray
from ..layout.placement import mesh_here, settled
from ..layout.storage import stored_on

DESCRIBED = "the plan's mesh is only described: plan with a jax.sharding.Mesh of real devices to run it"
FOR_ONE = "the array is sharded, the plan is for one device: plan with mesh="


def taken(x: Any, layout: Layout, mesh: AnyMesh | None) -> Any:
    """The array in a layout, a NumPy one put on the mesh first, or an error that says how to shard it so.

    Raises:
        ValueError: another shape or sharding, or a mesh that is only described.
    """
    if isinstance(x, PaddedArray):
        return _taken_padded(x, layout, mesh)
    if not isinstance(x, jax.Array):
        if np.shape(x) != layout.shape:
            raise ValueError(f"the array has shape {np.shape(x)}, the plan takes {layout.shape}")
        x = stored_on(np.asarray(x), mesh, layout.spec) if isinstance(mesh, Mesh) else jax.numpy.asarray(x)
        if isinstance(x, PaddedArray):
            return x
    if not layout.even:
        what = "it cannot be told from data" if x.shape != layout.shape else "its sizes do not divide"
        raise ValueError(
            f"the plan takes {layout.shape} padded to {layout.storage}, the array has shape {x.shape} and "
            f"{what}: use mf.shard(x, plan.mesh, {layout.spec}) of the logical array, or a padded one's y.like(x)"
        )
    if mapped := mapped_axes(mesh_here(mesh)):
        block = layout.within(mapped)
        if np.shape(x) != block:
            raise ValueError(f"the array has shape {np.shape(x)}, inside shard_map the plan takes {block}")
        return x
    if not isinstance(x, jax.core.Tracer):
        _check_sharded(x.shape, x.sharding, layout, mesh)
        return x
    if x.shape != layout.shape:
        raise ValueError(f"the array has shape {x.shape}, the plan takes {layout.shape}")
    shown = jax.typeof(x).sharding
    described = mesh is not None and not isinstance(mesh, Mesh) and shown.mesh.empty
    if described:
        raise ValueError(DESCRIBED)
    if mesh is None and shown.shard_shape(x.shape) != x.shape:
        raise ValueError(FOR_ONE)
    return x if mesh is None else settled(x, mesh, layout.spec)


@functools.lru_cache(maxsize=1024)
def _check_sharded(shape: tuple[int, ...], sharding: Sharding, layout: Layout, mesh: AnyMesh | None) -> None:
    """Raises ValueError unless an array that is there lies as a plan takes it."""
    if shape != layout.shape:
        raise ValueError(f"the array has shape {shape}, the plan takes {layout.shape}")
    whole = isinstance(sharding, SingleDeviceSharding) or sharding.shard_shape(shape) == shape
    if mesh is None and not whole:
        raise ValueError(FOR_ONE)
    if isinstance(mesh, Mesh):
        found, remedy = getattr(sharding, "spec", type(sharding).__name__), f"mf.shard(x, plan.mesh, {layout.spec})"
        same = sharding.is_equivalent_to(NamedSharding(mesh, layout.spec), len(shape))
        if not same:
            raise ValueError(f"the array is sharded as {found}, the plan takes {layout.spec} on its mesh: use {remedy}")
    elif mesh is not None:
        if not isinstance(sharding, NamedSharding):
            raise ValueError(DESCRIBED)


def _taken_padded(x: PaddedArray, layout: Layout, mesh: AnyMesh | None) -> PaddedArray:
    seen = layout.within(mapped_axes(mesh_here(mesh)))
    same = x.layout == layout and np.shape(x.stored) == seen
    if not same:
        raise ValueError(
            f"the array has shape {x.shape} cut as {x.spec} and stored as {np.shape(x.stored)}, the plan takes "
            f"{layout.shape} cut as {layout.spec} and stored as {seen}: give it such a one, by mf.shard or out_spec="
        )
    if axis_sizes(x.mesh) != axis_sizes(mesh):
        raise ValueError(
            f"the array lies on mesh {axis_sizes(x.mesh)}, the plan is for {axis_sizes(mesh)}: use one mesh"
        )
    return x
