"""Reading: the layout and mesh of an array as its caller has it, and whether it is as a plan takes it.

Outside `jit` every array shows its sharding. Inside, cuts by Explicit axes are part of its type; only the caller knows
cuts by Auto axes. In a caller's `shard_map`, layouts describe the logical array.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jax.typing import ArrayLike

from ..numerics.dtypes import check_fits
from .layout import AnyMesh, Layout, Spec, axis_sizes, from_block, from_spec, mapped_axes, spec_of
from .padded_array import AnyStored, PaddedArray, S, stored_of
from .placement import explicit_axes, only, reshard
from .storage import stored_on

DESCRIBED = "the plan's mesh is only described: plan with a jax.sharding.Mesh of real devices to run it"
FOR_ONE = "the array is sharded, the plan is for one device: plan with mesh="


class Seen(NamedTuple):
    layout: Layout
    mesh: AnyMesh | None  # None if every device holds, or may hold, all of it


def seen(x: AnyStored, spec: Spec | None) -> Seen:
    """Layout and mesh of an array; ValueError if it contradicts `spec`, or if both are unknown."""
    here = jax.sharding.get_abstract_mesh()
    if isinstance(x, PaddedArray):
        return _padded(x, spec)
    if isinstance(x, jax.core.Tracer) or mapped_axes(here):  # in shard_map even a constant is one block per device
        mesh = jax.typeof(x).sharding.mesh
        found = _traced(x, here if mapped_axes(here) or mesh.empty else mesh, spec)
    else:
        found = seen_by_sharding(x.shape, x.sharding, spec)
    if not here.empty:
        check_context(found.mesh)
    return found


def hidden_by(x: Array) -> AnyMesh | None:
    """The mesh whose Auto axes cut a traced array as only XLA knows, outside any shard_map."""
    shown = jax.typeof(x).sharding.mesh
    mesh = jax.sharding.get_abstract_mesh() if shown.empty else shown
    kinds = {kind for kind, size in zip(mesh.axis_types, mesh.axis_sizes, strict=True) if size > 1}
    return mesh if AxisType.Auto in kinds and AxisType.Manual not in kinds else None


def is_cut(x: object) -> bool:
    """Whether an array is, or may be, in parts on several devices; not a block in a shard_map."""
    if not isinstance(x, jax.Array) or mapped_axes(jax.sharding.get_abstract_mesh()):
        return False
    if isinstance(x, jax.core.Tracer):
        return any(jax.typeof(x).sharding.spec) or hidden_by(x) is not None
    return not x.sharding.is_fully_replicated


def is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def kept(x: S) -> S:
    """The array, moved to its devices' memory from the host's (memory_kind="pinned_host"); ValueError if deleted."""
    stored = stored_of(x)
    if not isinstance(stored, jax.Array):
        return x
    if not isinstance(stored, jax.core.Tracer) and stored.is_deleted():
        why = "a call with donate=True, or a jit that donates it, took its storage. Use the result of that call"
        raise ValueError(f"the array of shape {x.shape} is deleted: {why}, or leave donate out")
    space = jax.memory.Space
    return jax.device_put(x, space.Device) if stored.aval.memory_space == space.Host else x


def check_context(mesh: AnyMesh | None, whose: str = "the array's") -> None:
    """Raises ValueError if `jax.set_mesh` has set another mesh: JAX takes one."""
    here = jax.sharding.get_abstract_mesh()
    if mesh is None or here.empty or mapped_axes(here):
        return
    ours, theirs = ((axis_sizes(one), one.axis_types) for one in (mesh, here))
    if ours != theirs:
        (sizes, kinds), (others, other_kinds) = ours, theirs
        one, other = (sizes, others) if sizes != others else (f"axes {kinds}", other_kinds)
        remedy = f"set {whose} own, or bring the array there by mf.shard(x, mesh, spec)"
        raise ValueError(f"{whose} mesh has {one}, that of jax.set_mesh {other}: {remedy}")


def mesh_here(mesh: AnyMesh | None, *layouts: Layout) -> AnyMesh | None:
    """A plan's mesh, with a shard_map's mapped axes; ValueError for another mesh."""
    here = jax.sharding.get_abstract_mesh()
    if mesh is None or not (mapped := mapped_axes(here)):
        return mesh
    sizes = axis_sizes(mesh)
    if axis_sizes(here) != sizes:
        raise ValueError(f"the plan's mesh has {sizes}, that of shard_map {axis_sizes(here)}: use one mesh")
    for layout in layouts:
        if layout.manual_first(mapped) != layout.spec:
            what = f"the plan has arrays cut as {layout.spec}, with manual axes behind others, but they cut first"
            raise ValueError(f"{what}: plan with order='natural' and such a spec, or map all axes")
    return here


def fitted(x: ArrayLike | PaddedArray, layout: Layout, mesh: AnyMesh | None) -> AnyStored:
    """An array for a plan with this layout; NumPy arrays are put on the mesh."""
    if not isinstance(stored_of(x), jax.core.Tracer):
        check_context(mesh, "the plan's")
    if isinstance(x, jax.Array | PaddedArray):
        x = kept(x)
    if isinstance(x, PaddedArray):
        return _fitted_padded(x, layout, mesh)
    if not isinstance(x, jax.Array):
        _check_shape(np.shape(x), layout.shape)
        array = np.asarray(x)
        if isinstance(mesh, Mesh):
            x = stored_on(array, mesh, layout.spec)
        else:
            check_fits(array)
            x = jnp.asarray(array)
        if isinstance(x, PaddedArray):
            return x
    if not layout.even:
        what = "it cannot be told from data" if x.shape != layout.shape else "its sizes do not divide"
        what = f"the plan takes {layout.shape} padded to {layout.storage}, the array has shape {x.shape} and {what}"
        raise ValueError(f"{what}: use mf.shard(x, plan.mesh, {layout.spec}) of the logical array")
    if mapped := mapped_axes(mesh_here(mesh)):
        _check_shape(x.shape, layout.within(mapped), "inside shard_map ")
        return x
    _check_shape(x.shape, layout.shape)
    if not isinstance(x, jax.core.Tracer):
        _check_sharded(x.sharding, layout, mesh)
        return x
    shown = jax.typeof(x).sharding
    if mesh is None:
        if max(from_spec(x.shape, axis_sizes(shown.mesh), shown.spec).parts, default=1) > 1:
            raise ValueError(FOR_ONE)
        return x
    if shown.mesh.empty and not isinstance(mesh, Mesh):
        raise ValueError(DESCRIBED)
    return _settled(x, mesh, layout.spec)


def is_plain(x: AnyStored, spec: Spec | None, here: AbstractMesh) -> bool:
    """Whether the sharding is known: a jax.Array, not traced, not in a shard_map. `here`: JAX's mesh."""
    if isinstance(x, jax.core.Tracer) or not isinstance(x, jax.Array):
        return False
    return (here.empty or not mapped_axes(here)) and (spec is None or is_hashable(spec))


def seen_by_sharding(shape: tuple[int, ...], sharding: Sharding, spec: Spec | None) -> Seen:
    if isinstance(sharding, NamedSharding):
        return _even(shape, sharding.mesh, _agreed(len(shape), sharding.mesh, sharding.spec, spec))
    if not sharding.is_fully_replicated:
        kind = type(sharding).__name__
        raise NotImplementedError(f"the array has a {kind}: give it a NamedSharding, with jax.device_put")
    if any(spec or ()):
        remedy = "use jax.device_put(x, NamedSharding(mesh, spec)) first"
        raise ValueError(f"spec {spec} cuts an array that lies on one device: {remedy}")
    return _even(shape, None, ())


def _traced(x: Array, mesh: AbstractMesh, spec: Spec | None) -> Seen:
    kinds = {kind for kind, size in zip(mesh.axis_types, mesh.axis_sizes, strict=True) if size > 1}
    sharding = jax.typeof(x).sharding
    if kinds <= {AxisType.Manual} and not any(spec or ()) and not any(sharding.spec):  # this shows cuts into one part
        return _even(x.shape, None, ())
    if mesh.empty:
        remedy = "trace under `with jax.set_mesh(mesh):`"
        raise ValueError(f"spec {spec} names mesh axes, but no mesh is in sight: {remedy}")
    auto = [name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Auto]
    if spec is None and AxisType.Auto in kinds:
        remedy = "pass spec=, or make the mesh with Explicit axes"
        raise ValueError(f"the sharding of a traced array is hidden under Auto mesh axes ({', '.join(auto)}): {remedy}")
    shown = sharding.spec if sharding.mesh == mesh else PartitionSpec()
    return _even(x.shape, mesh, _agreed(x.ndim, mesh, None if auto and spec is not None else shown, spec))


def _even(shape: tuple[int, ...], mesh: AnyMesh | None, spec: Spec) -> Seen:
    layout = from_block(shape, mesh, spec)
    if not layout.even:
        remedy = "use mf.shard(x, mesh, spec), which stores any size, or give a spec whose mesh axes divide it"
        raise ValueError(f"shape {layout.shape} is not divided by spec {layout.spec}: {remedy}")
    return Seen(layout, mesh)


def _padded(x: PaddedArray, spec: Spec | None) -> Seen:
    layout, mesh = x.layout, mesh_here(x.mesh, x.layout)
    check_context(mesh)
    shown, stored = layout.within(mapped_axes(mesh)), np.shape(x.stored)
    if shown != stored:
        found = f"is stored as {shown}, this one as {stored}: give it in_specs={layout.spec}"
        raise ValueError(f"inside shard_map a padded array of shape {layout.shape} {found}")
    if spec is not None and from_spec(layout.shape, axis_sizes(mesh), spec) != layout:
        raise ValueError(f"spec {spec} is given, but the array is sharded as {layout.spec}: drop spec=")
    return Seen(layout, mesh)


def _agreed(ndim: int, mesh: AnyMesh, shown: PartitionSpec | None, spec: Spec | None) -> Spec:
    """The spec that the array shows, after the Manual axes that the caller names; else the caller's."""
    mapped, sizes = mapped_axes(mesh), axis_sizes(mesh)
    given, known = (from_spec((0,) * ndim, sizes, one) for one in (spec, shown))
    first = given.manual_first(mapped)
    if first != given.spec:
        raise ValueError(f"spec {given.spec} has manual axes behind others, but they cut first: give {first}")
    inner = tuple(tuple(axis for axis in axes if axis not in mapped) for axes in given.axes)
    if shown is None or (inner == known.axes and spec is not None):
        return given.spec
    if spec is not None and (not mapped or any(inner)):
        remedy = "drop spec=, or reshard the array first"
        raise ValueError(f"spec {spec} is given, but the array is sharded as {shown}: {remedy}")
    return spec_of(map(tuple.__add__, given.axes, known.axes))


def _settled(x: Array, mesh: AnyMesh, spec: PartitionSpec) -> Array:
    """A traced array on a plan's mesh; one without cuts is resharded."""
    shown, here = jax.typeof(x).sharding, jax.sharding.get_abstract_mesh()
    for other, whose in ((shown.mesh, "the array's"), (here, "that of jax.set_mesh")):
        if not other.empty and axis_sizes(other) != axis_sizes(mesh):
            raise ValueError(f"the plan's mesh has {axis_sizes(mesh)}, {whose} {axis_sizes(other)}: plan on one mesh")
    ours, theirs = mesh.axis_types, here.axis_types
    if not here.empty and ours != theirs:
        raise ValueError(f"the plan's mesh has axes {ours}, that of jax.set_mesh {theirs}: use one mesh")
    explicit = explicit_axes(shown.mesh)
    if any(shown.spec) and only(explicit, shown.spec) != only(explicit, spec):
        remedy = f"use jax.reshard(x, NamedSharding(plan.mesh, {spec}))"
        raise ValueError(f"the array is sharded as {shown.spec}, the plan takes {spec} on its mesh: {remedy}")
    return reshard(x, mesh, spec)


def _check_shape(shape: tuple[int, ...], wanted: tuple[int, ...], where: str = "") -> None:
    if shape != wanted:
        raise ValueError(f"the array has shape {shape}, {where}the plan takes {wanted}")


@functools.lru_cache(maxsize=1024)
def _check_sharded(sharding: Sharding, layout: Layout, mesh: AnyMesh | None) -> None:
    if mesh is None:
        if not isinstance(sharding, SingleDeviceSharding) and sharding.shard_shape(layout.shape) != layout.shape:
            raise ValueError(FOR_ONE)
    elif not isinstance(mesh, Mesh):
        if not isinstance(sharding, NamedSharding):
            raise ValueError(DESCRIBED)
    elif not sharding.is_equivalent_to(NamedSharding(mesh, layout.spec), layout.ndim):
        shown = getattr(sharding, "spec", type(sharding).__name__)
        remedy = f"use mf.shard(x, plan.mesh, {layout.spec})"
        raise ValueError(f"the array is sharded as {shown}, the plan takes {layout.spec} on its mesh: {remedy}")


def _fitted_padded(x: PaddedArray, layout: Layout, mesh: AnyMesh | None) -> PaddedArray:
    shown = layout.within(mapped_axes(mesh_here(mesh)))
    if x.layout != layout or np.shape(x.stored) != shown:
        given, wanted = f"{x.shape} cut as {x.spec}", f"{layout.shape} cut as {layout.spec} and stored as {shown}"
        what = f"the array has shape {given} and stored as {np.shape(x.stored)}, the plan takes {wanted}"
        raise ValueError(f"{what}: give it such a one, by mf.shard or out_spec=")
    if axis_sizes(x.mesh) != axis_sizes(mesh):
        ours, theirs = axis_sizes(x.mesh), axis_sizes(mesh)
        raise ValueError(f"the array lies on mesh {ours}, the plan is for {theirs}: use one mesh")
    return x
