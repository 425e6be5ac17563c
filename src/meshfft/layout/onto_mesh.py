"""Values brought onto a mesh: what JAX makes itself, such as a cotangent or a constant, comes without one, or whole.

Under Explicit mesh axes the type of an array says how it is cut, so that it is cut here; under Auto axes XLA does it.
A mesh that is only described says nothing of devices. Where a walk is transposed no array that lies on them need be
left, so an anchor stays: a part without numbers of the array that was transformed.
"""

from collections.abc import Sequence, Set
from typing import NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from .layout import AnyMesh, axis_sizes, mapped_axes, spec_of


class Anchor(NamedTuple):
    """An array of size zero that lies on the devices of a mesh."""

    empty: Array


def anchor(values: Sequence[Array]) -> Anchor:
    """That of the first value which shows a mesh."""
    x = next((x for x in values if not jax.typeof(x).sharding.mesh.empty), values[0])
    return Anchor(lax.slice(x, (0,) * x.ndim, (0,) * x.ndim))


def shown(values: Sequence[Array], mesh: AnyMesh | None) -> tuple[Anchor, ...]:
    """An anchor for arrays that were made within `jit`, where nothing else would show the devices of a mesh."""
    told = not explicit_axes(mesh) or not jax.sharding.get_abstract_mesh().empty
    if told or not isinstance(mesh, Mesh) or not any(isinstance(x, jax.core.Tracer) for x in values):
        return ()
    return (Anchor(jax.device_put(np.zeros(0, np.float32), NamedSharding(mesh, PartitionSpec()))),)


def needs_anchor(mesh: AnyMesh | None) -> bool:
    """True where a mesh is only described, and no shard_map around knows its devices."""
    return isinstance(mesh, AbstractMesh) and not mapped_axes(mesh)


def anchored_mesh(mesh: AnyMesh | None, found: Anchor) -> AnyMesh | None:
    """The mesh with its devices, where the anchor is no tracer and shows them."""
    sharding = found.empty.sharding
    return sharding.mesh if isinstance(sharding, NamedSharding) else mesh


def brought(x: Array, mesh: AnyMesh | None, spec: PartitionSpec) -> Array:
    """The array, cut by the Explicit axes of a mesh as a spec says."""
    explicit = explicit_axes(mesh)
    if mesh is None or not explicit:
        return x
    wanted, found = only(explicit, spec), jax.typeof(x).sharding
    same = not found.mesh.empty and only(explicit, found.spec) == wanted
    return x if same else jax.reshard(x, NamedSharding(mesh, wanted))


def settled(x: Array, mesh: AnyMesh, spec: PartitionSpec) -> Array:
    """A traced array whose type says that it lies so, or does not say, or that it is whole: then it is brought there.

    Raises:
        ValueError: it lies otherwise, or on another mesh.
    """
    found, here = jax.typeof(x).sharding, jax.sharding.get_abstract_mesh()
    for other, whose in ((found.mesh, "the array's"), (here, "that of jax.set_mesh")):
        fits = other.empty or axis_sizes(other) == axis_sizes(mesh)
        if not fits:
            raise ValueError(f"the plan's mesh has {axis_sizes(mesh)}, {whose} {axis_sizes(other)}: plan on one mesh")
    ours, theirs = mesh.axis_types, here.axis_types
    if not here.empty and ours != theirs:
        raise ValueError(f"the plan's mesh has axes {ours}, that of jax.set_mesh {theirs}: use one mesh")
    wanted = only(explicit_axes(found.mesh), spec)
    remedy = f"use jax.reshard(x, NamedSharding(plan.mesh, {spec}))"
    lies = not any(found.spec) or only(explicit_axes(found.mesh), found.spec) == wanted
    if not lies:
        raise ValueError(f"the array is sharded as {found.spec}, the plan takes {spec} on its mesh: {remedy}")
    return brought(x, mesh, spec)


def explicit_axes(mesh: AnyMesh | None) -> set[str]:
    """The mesh axes whose cuts are part of an array's type."""
    kinds = () if mesh is None else zip(mesh.axis_names, mesh.axis_types, strict=True)
    return {name for name, kind in kinds if kind == AxisType.Explicit}


def only(axes: Set[str], spec: PartitionSpec) -> PartitionSpec:
    """The spec without other mesh axes: those whose placement XLA decides, or that are mapped already."""
    entries = (entry if isinstance(entry, tuple) else (entry,) for entry in spec)
    return spec_of(tuple(axis for axis in names if axis in axes) for names in entries)
