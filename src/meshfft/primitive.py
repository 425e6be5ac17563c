"""A walk as one linear operator of JAX: shape, gradient, batching and lowering of a whole transform.

The gradient is the transposed walk, so it has the same collectives as the transform and needs no annotation; a batch
dimension, sharded or not, is one more dimension that the walk leaves alone.
"""

import functools

import jax
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .layout import AnyMesh, Cuts, Layout, even_cuts, spec_of
from .walk import Walk

walk_p = Primitive("meshfft_walk")


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def run(x: Array, walk: Walk, mesh: AnyMesh | None, dtype: np.dtype) -> Array:
    """The walk on a stored array in its first layout, computed in a complex `dtype`; without a mesh, on one device."""
    return _bind(x.astype(dtype), walk, mesh)


def _bind(x: Array, walk: Walk, mesh: AnyMesh | None) -> Array:
    """The walk as one equation of JAX."""
    return walk_p.bind(x, walk=walk, mesh=mesh)


def _run(x: Array, *, walk: Walk, mesh: AnyMesh | None) -> Array:
    if mesh is None:
        return walk.apply(x)
    inside = jax.shard_map(walk.apply, mesh=mesh, in_specs=walk.start.spec, out_specs=walk.end.spec, check_vma=False)
    return inside(x)


def _abstract(x: jax.core.ShapedArray, *, walk: Walk, mesh: AnyMesh | None) -> jax.core.ShapedArray:
    if mesh is None or x.sharding.mesh.empty:
        return x.update(shape=walk.end.storage)
    explicit = {name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Explicit}
    return x.update(shape=walk.end.storage, sharding=NamedSharding(x.sharding.mesh, _only(explicit, walk.end)))


def _transpose(ct: Array, x: object, *, walk: Walk, mesh: AnyMesh | None) -> list[object]:
    if isinstance(ct, ad.Zero):
        return [ad.Zero(x.aval)]  # type: ignore[attr-defined]
    return [_bind(ct, walk.transpose(), mesh)]


def _batch(axis_data, args, dims, *, walk: Walk, mesh: AnyMesh | None):  # type: ignore[no-untyped-def]
    (x,), (dim,) = args, dims
    if dim is None:
        return _bind(x, walk, mesh), None
    axes = axis_data.explicit_mesh_axis or axis_data.spmd_name or ()
    axes = (axes,) if isinstance(axes, str) else tuple(axes)
    return _bind(x, walk.insert(dim, x.shape[dim], _batch_cuts(x.shape[dim], axes, mesh)), mesh), dim


def _batch_cuts(size: int, axes: tuple[str, ...], mesh: AnyMesh | None) -> Cuts:
    return even_cuts(size, [(axis, mesh.shape[axis]) for axis in axes]) if mesh is not None else ()


def _only(axes: set[str], layout: Layout) -> PartitionSpec:
    """The layout's spec without the mesh axes whose placement XLA decides."""
    return spec_of(tuple(a for a in names if a in axes) for names in layout.axes)


walk_p.def_impl(jax.jit(_run, static_argnames=("walk", "mesh")))
walk_p.def_abstract_eval(_abstract)
ad.deflinear2(walk_p, _transpose)
batching.fancy_primitive_batchers[walk_p] = _batch
mlir.register_lowering(walk_p, mlir.lower_fun(_run, multiple_results=False))
