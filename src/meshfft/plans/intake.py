"""What a plan takes: an array of the shape and sharding that it was made for, refused by name where it has others."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from ..errors import check
from ..layout.layout import AnyMesh, Layout, axis_sizes, mapped_axes
from ..layout.onto_mesh import settled
from ..layout.padded_array import PaddedArray
from ..layout.placement import standing
from ..layout.storage import stored_on


def taken(x: Any, layout: Layout, mesh: AnyMesh | None) -> Any:
    """The array in a layout, a NumPy one put on the mesh first, or an error that says how to shard it so.

    Raises:
        ValueError: another shape or sharding, or a mesh that is only described.
    """
    if isinstance(x, PaddedArray):
        return _taken_padded(x, layout, mesh)
    remedy = f"mf.shard(x, plan.mesh, {layout.spec})"
    if not isinstance(x, jax.Array):
        check(np.shape(x) == layout.shape, f"the array has shape {np.shape(x)}, the plan takes {layout.shape}")
        x = stored_on(np.asarray(x), mesh, layout.spec) if isinstance(mesh, Mesh) else jax.numpy.asarray(x)
        if isinstance(x, PaddedArray):
            return x
    if not layout.even:
        what = "it cannot be told from data" if x.shape != layout.shape else "its sizes do not divide"
        raise ValueError(
            f"the plan takes {layout.shape} padded to {layout.storage}, the array has shape {x.shape} and "
            f"{what}: use {remedy} of the logical array, or a padded one's y.like(x)"
        )
    if mapped := mapped_axes(standing(mesh)):
        block = layout.within(mapped)
        check(np.shape(x) == block, f"the array has shape {np.shape(x)}, inside shard_map the plan takes {block}")
        return x
    check(x.shape == layout.shape, f"the array has shape {x.shape}, the plan takes {layout.shape}")
    described = mesh is not None and not isinstance(mesh, Mesh) and jax.typeof(x).sharding.mesh.empty
    check(not described, "the plan's mesh is only described: plan with a jax.sharding.Mesh of real devices to run it")
    shown = jax.typeof(x).sharding if isinstance(x, jax.core.Tracer) else x.sharding
    cut = not isinstance(shown, SingleDeviceSharding) and shown.shard_shape(x.shape) != x.shape
    check(mesh is not None or not cut, "the array is sharded, the plan is for one device: plan with mesh=")
    if isinstance(mesh, Mesh) and not isinstance(x, jax.core.Tracer):
        same = x.sharding.is_equivalent_to(NamedSharding(mesh, layout.spec), x.ndim)
        found = getattr(x.sharding, "spec", type(x.sharding).__name__)
        check(same, f"the array is sharded as {found}, the plan takes {layout.spec} on its mesh: use {remedy}")
    return settled(x, mesh, layout.spec) if mesh is not None and isinstance(x, jax.core.Tracer) else x


def _taken_padded(x: PaddedArray, layout: Layout, mesh: AnyMesh | None) -> PaddedArray:
    seen = layout.within(mapped_axes(standing(mesh)))
    same = x.layout == layout and np.shape(x.stored) == seen
    check(
        same,
        f"the array has shape {x.shape} cut as {x.spec} and stored as {np.shape(x.stored)}, the plan takes "
        f"{layout.shape} cut as {layout.spec} and stored as {seen}: give it such a one, by mf.shard or out_spec=",
    )
    check(
        axis_sizes(x.mesh) == axis_sizes(mesh),
        f"the array lies on mesh {axis_sizes(x.mesh)}, the plan is for {axis_sizes(mesh)}: use one mesh",
    )
    return x
