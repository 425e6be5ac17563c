"""Where an array lives: its mesh and spec, read from the array itself wherever JAX shows them.

Outside `jit` every array shows its sharding. Under Explicit mesh axes a traced array's type shows it too. Under Auto
axes XLA chooses shardings after tracing, so inside `jit` only the caller can say. Inside a caller's own `shard_map`
axes are Manual: what is seen is one block of the cuts by those that the caller names, and all there is in the others.
"""

import jax
from jax import Array
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, Sharding

from .layout import AnyMesh, Layout, Spec, axis_sizes, from_spec, mapped_axes, spec_of


def placement(x: Array, spec: Spec | None) -> tuple[AnyMesh | None, Spec]:
    """The mesh and spec of an array; no mesh means that every device holds, or may hold, all of it.

    Raises:
        ValueError: `spec` contradicts what the array shows, or is missing where JAX hides it.
        NotImplementedError: a sharding that is not over a named mesh.
    """
    here = jax.sharding.get_abstract_mesh()
    if mapped_axes(here):  # there even an array of numbers is one block on every device
        return _traced(x, here, spec)
    if isinstance(x, jax.core.Tracer):
        mesh = jax.typeof(x).sharding.mesh
        return _traced(x, here if mesh.empty else mesh, spec)
    return lying(x.sharding, x.ndim, spec)


def lying(sharding: Sharding, ndim: int, spec: Spec | None) -> tuple[AnyMesh | None, Spec]:
    """`placement` of an array that is there, outside of every `jit` and shard_map: all that matters is its sharding."""
    if isinstance(sharding, NamedSharding):
        return sharding.mesh, _agreed(ndim, sharding.mesh, sharding.spec, spec)
    if not sharding.is_fully_replicated:
        raise NotImplementedError(
            f"the array has a {type(sharding).__name__}: give it a NamedSharding, with jax.device_put"
        )
    if _cuts(spec):
        raise ValueError(
            f"spec {spec} cuts an array that lies on one device: use jax.device_put(x, NamedSharding(mesh, spec)) first"
        )
    return None, ()


def standing(mesh: AnyMesh | None, *layouts: Layout) -> AnyMesh | None:
    """The mesh of a plan with these layouts, as it stands here: where a caller's shard_map has mapped axes, with those.

    Raises:
        ValueError: shard_map runs on another mesh, or could not say that an array is cut so.
    """
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


def _traced(x: Array, mesh: AbstractMesh, spec: Spec | None) -> tuple[AbstractMesh | None, Spec]:
    kinds = {kind for kind, size in zip(mesh.axis_types, mesh.axis_sizes, strict=True) if size > 1}
    if kinds <= {AxisType.Manual} and not _cuts(spec):
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
    shown = jax.typeof(x).sharding
    found = shown.spec if shown.mesh == mesh else PartitionSpec()
    return mesh, _agreed(x.ndim, mesh, None if auto and spec is not None else found, spec)


def _agreed(ndim: int, mesh: AnyMesh, found: PartitionSpec | None, spec: Spec | None) -> Spec:
    """What the array shows, behind the manual axes that the caller names; the caller's where it shows nothing."""
    mapped, shape, sizes = mapped_axes(mesh), (0,) * ndim, axis_sizes(mesh)
    shown, given = (from_spec(shape, sizes, one) for one in (found, spec))
    wanted = _manual_first(given, mapped)
    if wanted != given.spec:
        raise ValueError(f"spec {given.spec} has manual axes behind others, but they cut first: give {wanted}")
    inner = tuple(tuple(axis for axis in axes if axis not in mapped) for axes in given.axes)
    if found is None or (inner == shown.axes and spec is not None):
        return given.spec
    if spec is not None and (len(mapped) <= 0 or any(inner)):
        raise ValueError(
            f"spec {spec} is given, but the array is sharded as {found}: drop spec=, or reshard the array first"
        )
    return spec_of(map(tuple.__add__, given.axes, shown.axes))


def _manual_first(layout: Layout, mapped: frozenset[str]) -> PartitionSpec:
    """The spec as shard_map can say it: the axes that it maps cut before others."""
    return spec_of(tuple(sorted(axes, key=lambda axis: axis not in mapped)) for axes in layout.axes)


def _cuts(spec: Spec | None) -> bool:
    return any(entry for entry in spec or ())
