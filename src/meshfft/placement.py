"""Where an array lives: its mesh and spec, read from the array itself wherever JAX shows them.

Outside `jit` every array shows its sharding. Under Explicit mesh axes a traced array's type shows it too. Under Auto
axes XLA chooses shardings after tracing, so inside `jit` only the caller can say.
"""

import jax
from jax import Array
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from .errors import check
from .layout import AnyMesh, Spec, axis_sizes, from_spec


def placement(x: Array, spec: Spec | None) -> tuple[AnyMesh | None, Spec]:
    """The mesh and spec of an array; no mesh means that every device holds, or may hold, all of it.

    Raises:
        ValueError: `spec` contradicts what the array shows, or is missing where JAX hides it.
        NotImplementedError: a sharding that is not over a named mesh.
    """
    mesh = jax.typeof(x).sharding.mesh
    if isinstance(x, jax.core.Tracer):
        return _traced(x, mesh, spec)
    if isinstance(x.sharding, NamedSharding):
        return x.sharding.mesh, _agreed(x.ndim, mesh, x.sharding.spec, spec)
    check(
        x.sharding.is_fully_replicated,
        f"the array has a {type(x.sharding).__name__}: give it a NamedSharding, with jax.device_put",
        NotImplementedError,
    )
    check(
        not _cuts(spec),
        f"spec {spec} cuts an array that lies on one device: use jax.device_put(x, NamedSharding(mesh, spec)) first",
    )
    return None, ()


def _traced(x: Array, mesh: AbstractMesh, spec: Spec | None) -> tuple[AbstractMesh | None, Spec]:
    mesh = jax.sharding.get_abstract_mesh() if mesh.empty else mesh
    kinds = {kind for kind, size in zip(mesh.axis_types, mesh.axis_sizes, strict=True) if size > 1}
    if kinds <= {AxisType.Manual}:
        check(
            not _cuts(spec),
            f"spec {spec} names mesh axes, but no mesh is in sight: trace under `with jax.set_mesh(mesh):`",
        )
        return None, ()
    if kinds == {AxisType.Explicit}:
        return mesh, _agreed(x.ndim, mesh, jax.typeof(x).sharding.spec, spec)
    check(
        spec is not None,
        f"the sharding of a traced array is hidden under Auto mesh axes ({', '.join(mesh.axis_names)}): pass spec=, "
        "or make the mesh with Explicit axes",
    )
    return mesh, spec or ()


def _agreed(ndim: int, mesh: AbstractMesh, found: PartitionSpec, spec: Spec | None) -> Spec:
    """What the array shows, unless the caller says otherwise."""
    if spec is not None:
        shape, sizes = (0,) * ndim, axis_sizes(mesh)
        same = from_spec(shape, sizes, spec).axes == from_spec(shape, sizes, found).axes
        check(
            same, f"spec {spec} is given, but the array is sharded as {found}: drop spec=, or reshard the array first"
        )
    return found


def _cuts(spec: Spec | None) -> bool:
    return any(entry for entry in spec or ())
