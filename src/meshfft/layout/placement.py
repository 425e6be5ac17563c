"""Placement: the mesh and spec of an array, read from JAX, checked, and changed if a walk needs another.

Outside `jit` every array shows its sharding. Inside, cuts by Explicit axes are part of its type, and cuts by Auto axes
are known to the caller only. Manual axes have cut the array in a caller's `shard_map`: layouts describe the logical
array, and one block of it is seen.
"""

import functools
import math
from collections.abc import Sequence, Set
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding
from jax.typing import ArrayLike

from .layout import AnyMesh, Cuts, Layout, Spec, axes_of, axis_sizes, from_spec, line_shape, mapped_axes, spec_of

RUN = 2**26  # bytes that all devices receive per chunk on the way to the host


def placement(x: Array, spec: Spec | None) -> tuple[AnyMesh | None, Spec]:
    """The mesh and spec of an array; without a mesh every device holds, or may hold, all of it."""
    here = jax.sharding.get_abstract_mesh()
    if mapped_axes(here):  # inside shard_map, even an array of constants is one block per device
        return _traced(x, here, spec)
    if isinstance(x, jax.core.Tracer):
        mesh = jax.typeof(x).sharding.mesh
        return _traced(x, here if mesh.empty else mesh, spec)
    return concrete_placement(x.sharding, x.ndim, spec)


def concrete_placement(sharding: Sharding, ndim: int, spec: Spec | None) -> tuple[AnyMesh | None, Spec]:
    """`placement` from the sharding alone, for an array outside of `jit` and shard_map."""
    if isinstance(sharding, NamedSharding):
        return sharding.mesh, _agreed(ndim, sharding.mesh, sharding.spec, spec)
    if not sharding.is_fully_replicated:
        raise NotImplementedError(
            f"the array has a {type(sharding).__name__}: give it a NamedSharding, with jax.device_put"
        )
    if any(spec or ()):
        raise ValueError(
            f"spec {spec} cuts an array that lies on one device: use jax.device_put(x, NamedSharding(mesh, spec)) first"
        )
    return None, ()


def check_context(mesh: AnyMesh | None, whose: str = "the array's") -> None:
    """Raises ValueError if `jax.set_mesh` has set another mesh than that of an array or a plan: JAX takes one."""
    here = jax.sharding.get_abstract_mesh()
    if mesh is None or here.empty or mapped_axes(here):
        return
    ours, theirs = ((axis_sizes(one), one.axis_types) for one in (mesh, here))
    if ours != theirs:
        (sizes, kinds), (others, other_kinds) = ours, theirs
        one, other = (sizes, others) if sizes != others else (f"axes {kinds}", other_kinds)
        raise ValueError(
            f"{whose} mesh has {one}, that of jax.set_mesh {other}: set {whose} own, or bring the array there by "
            "mf.shard(x, mesh, spec)"
        )


def mesh_here(mesh: AnyMesh | None, *layouts: Layout) -> AnyMesh | None:
    """The mesh of a plan, inside a caller's shard_map with its mapped axes; ValueError if that is another mesh."""
    here = jax.sharding.get_abstract_mesh()
    if mesh is None or not (mapped := mapped_axes(here)):
        return mesh
    sizes = axis_sizes(mesh)
    if axis_sizes(here) != sizes:
        raise ValueError(f"the plan's mesh has {sizes}, that of shard_map {axis_sizes(here)}: use one mesh")
    for layout in layouts:
        if _manual_first(layout, mapped) != layout.spec:
            raise ValueError(
                f"the plan has arrays cut as {layout.spec}, with manual axes behind others, but they cut first: "
                "plan with order='natural' and such a spec, or map all axes"
            )
    return here


def explicit_axes(mesh: AnyMesh | None) -> frozenset[str]:
    return axes_of(mesh, AxisType.Explicit)


def only(axes: Set[str], spec: PartitionSpec) -> PartitionSpec:
    entries = (entry if isinstance(entry, tuple) else (entry,) for entry in spec)
    return spec_of(tuple(axis for axis in names if axis in axes) for names in entries)


def reshard(x: Array, mesh: AnyMesh | None, spec: PartitionSpec) -> Array:
    """The array cut by the Explicit axes of a spec; arrays that JAX makes itself have no mesh."""
    explicit = explicit_axes(mesh)
    if mesh is None or not explicit:
        return x
    wanted, shown = only(explicit, spec), jax.typeof(x).sharding
    if not shown.mesh.empty and only(explicit, shown.spec) == wanted:
        return x
    return jax.reshard(x, NamedSharding(mesh, wanted))


def settled(x: Array, mesh: AnyMesh, spec: PartitionSpec) -> Array:
    """A traced array on a plan's mesh; an array without cuts is resharded."""
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


class Anchor(NamedTuple):
    """An array of size zero that shows the devices of a mesh, which a transposed walk may lack."""

    empty: Array


def anchor(values: Sequence[Array]) -> Anchor:
    x = next((x for x in values if not jax.typeof(x).sharding.mesh.empty), values[0])
    return Anchor(lax.slice(x, (0,) * x.ndim, (0,) * x.ndim))


def anchors(values: Sequence[Array], mesh: AnyMesh | None) -> tuple[Anchor, ...]:
    """An anchor for arrays made within `jit`, if nothing else shows the devices of the mesh."""
    hidden = explicit_axes(mesh) and jax.sharding.get_abstract_mesh().empty
    if hidden and isinstance(mesh, Mesh) and any(isinstance(x, jax.core.Tracer) for x in values):
        return (Anchor(jax.device_put(np.zeros(0, np.float32), NamedSharding(mesh, PartitionSpec()))),)
    return ()


def needs_anchor(mesh: AnyMesh | None) -> bool:
    """True for a described mesh without a shard_map around, which would know its devices."""
    return isinstance(mesh, AbstractMesh) and not mapped_axes(mesh)


def local_slice(x: Array | np.ndarray, dim: int, cuts: Cuts, mapped: frozenset[str]) -> Array | np.ndarray:
    """The local part of a replicated array, along a dimension with these cuts."""
    if not any(cut.axis in mapped for cut in cuts):
        return x
    before, after, parts = x.shape[:dim], x.shape[dim + 1 :], [cut.parts for cut in cuts]
    part = jnp.asarray(x).reshape(*before, *parts, x.shape[dim] // math.prod(parts), *after)
    for at, cut in reversed(list(enumerate(cuts, dim))):
        if cut.axis in mapped:
            part = lax.dynamic_index_in_dim(part, lax.axis_index(cut.axis), at, keepdims=False)
    return part.reshape(*before, -1, *after)


def without_padding(stored: Array, layout: Layout, mapped: frozenset[str], fill: float = 0) -> Array:
    """A stored array with `fill` for its padding; some mesh axes may be mapped."""
    for dim, (size, extent) in enumerate(zip(layout.shape, layout.storage, strict=True)):
        if size < extent:
            kept = jnp.asarray(local_slice(layout.logical(dim), 0, layout.cuts[dim], mapped))
            # Newer JAX requires mask and array to be cut alike in a transpose.
            kept = lax.full_like(stored, True, bool) & kept.reshape(line_shape(dim, stored.ndim))
            stored = jnp.where(kept, stored, jnp.asarray(fill, stored.dtype))
    return stored


def devices_along(names: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """Mesh axes in mesh order, as `lax.ppermute` counts devices, and the device at each position along `names`."""
    ordered = tuple(sorted(names, key=jax.sharding.get_abstract_mesh().axis_names.index))
    sizes = [lax.axis_size(name) for name in ordered]
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    return ordered, grid.transpose([ordered.index(name) for name in names]).ravel().tolist()


def varying(values: Sequence[ArrayLike], axes: frozenset[str]) -> list[Array]:
    """The values, marked as varying over these Manual axes and over those of all values."""
    union = axes.union(*map(varies_over, values))
    return [lax.pcast(value, tuple(sorted(union - varies_over(value))), to="varying") for value in values]


def varies_over(value: object) -> frozenset[str]:
    return frozenset(jax.typeof(value).manual_axis_type.varying)


def to_host(y: ArrayLike) -> np.ndarray:
    """A NumPy array; if other processes hold shards, all of them must call this, and get RUN bytes at a time."""
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
    def run(block: Array) -> Array:
        block = lax.dynamic_slice_in_dim(block, start, rows, dim)
        for d, axes in enumerate(layout.axes):
            for axis in reversed(axes):
                block = lax.all_gather(block, axis, axis=d, tiled=True)
        return block

    return jax.shard_map(run, mesh=mesh, in_specs=layout.spec, out_specs=PartitionSpec(), check_vma=False)(y)


def _traced(x: Array, mesh: AbstractMesh, spec: Spec | None) -> tuple[AbstractMesh | None, Spec]:
    kinds = {kind for kind, size in zip(mesh.axis_types, mesh.axis_sizes, strict=True) if size > 1}
    sharding = jax.typeof(x).sharding
    if kinds <= {AxisType.Manual} and not any(spec or ()) and not any(sharding.spec):  # this shows cuts into one part
        return None, ()
    if mesh.empty:
        raise ValueError(
            f"spec {spec} names mesh axes, but no mesh is in sight: trace under `with jax.set_mesh(mesh):`"
        )
    auto = [name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Auto]
    if spec is None and AxisType.Auto in kinds:
        raise ValueError(
            f"the sharding of a traced array is hidden under Auto mesh axes ({', '.join(auto)}): pass spec=, "
            "or make the mesh with Explicit axes"
        )
    shown = sharding.spec if sharding.mesh == mesh else PartitionSpec()
    return mesh, _agreed(x.ndim, mesh, None if auto and spec is not None else shown, spec)


def _agreed(ndim: int, mesh: AnyMesh, shown: PartitionSpec | None, spec: Spec | None) -> Spec:
    """The spec that the array shows, after the Manual axes that the caller names; else the caller's."""
    mapped, sizes = mapped_axes(mesh), axis_sizes(mesh)
    given, known = (from_spec((0,) * ndim, sizes, one) for one in (spec, shown))
    first = _manual_first(given, mapped)
    if first != given.spec:
        raise ValueError(f"spec {given.spec} has manual axes behind others, but they cut first: give {first}")
    inner = tuple(tuple(axis for axis in axes if axis not in mapped) for axes in given.axes)
    if shown is None or (inner == known.axes and spec is not None):
        return given.spec
    if spec is not None and (not mapped or any(inner)):
        raise ValueError(
            f"spec {spec} is given, but the array is sharded as {shown}: drop spec=, or reshard the array first"
        )
    return spec_of(map(tuple.__add__, given.axes, known.axes))


def _manual_first(layout: Layout, mapped: frozenset[str]) -> PartitionSpec:
    """The spec as shard_map can express it: mapped axes cut first."""
    return spec_of(tuple(sorted(axes, key=lambda axis: axis not in mapped)) for axes in layout.axes)
