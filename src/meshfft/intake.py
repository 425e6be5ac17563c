"""What a plan takes: an array of the shape and sharding that it was made for, refused by name where it has others."""

from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

from .bring import settled
from .errors import check
from .layout import AnyMesh, Layout, mapped_axes
from .placement import standing
from .storage import shard


def taken(x: Any, layout: Layout, mesh: AnyMesh | None) -> Array:
    """The array stored in a layout, a NumPy one put on the mesh first, or an error that says how to store it so.

    Raises:
        ValueError: another shape or sharding, or a mesh that is only described.
    """
    remedy = f"mf.shard(x, plan.mesh, {layout.spec})"
    if mapped := mapped_axes(standing(mesh)):
        block = layout.within(mapped)
        check(np.shape(x) == block, f"the array has shape {np.shape(x)}, inside shard_map the plan takes {block}")
        return jax.numpy.asarray(x)
    if not isinstance(x, jax.Array):
        check(np.shape(x) == layout.shape, f"the array has shape {np.shape(x)}, the plan takes {layout.shape}")
        x = shard(np.asarray(x), mesh, layout.spec) if isinstance(mesh, Mesh) else jax.numpy.asarray(x)
    if x.shape == layout.shape != layout.storage:
        raise ValueError(
            f"the array has its logical shape {x.shape}, the plan takes it stored as {layout.storage}: use {remedy}"
        )
    check(x.shape == layout.storage, f"the array has shape {x.shape}, the plan takes {layout.storage}")
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
