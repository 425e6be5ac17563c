"""A walk as one operator of JAX, linear in the array: shape, gradient, batching and lowering of a whole transform.

The gradient in the array is the transposed walk, so it has the same collectives as the transform and needs no
annotation; a batch dimension, sharded or not, is one more dimension that the walk leaves alone. An array is one complex
or real array, or two planes. The gradient in a matrix is JAX's own of the ring that multiplies by it.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .dtypes import real_dtype
from .layout import AnyMesh, Cuts, Layout, even_cuts, spec_of
from .matrices import Samples
from .steps import RingDense
from .walk import Walk

walk_p = Primitive("meshfft_walk")
walk_p.multiple_results = True


class Job(NamedTuple):
    """What an equation does: a walk, on a mesh, of an array or its planes; `tree` is that of the walk's operands."""

    walk: Walk
    mesh: AnyMesh | None
    planes: bool
    tree: Any

    @property
    def arrays(self) -> int:
        """How many arrays go in: a complex one may be two planes."""
        return 2 if self.planes and not self.walk.real else 1

    @property
    def results(self) -> int:
        """How many come out."""
        return 2 if self.planes and not self.walk.reals[-1] else 1


def bind(
    arrays: Sequence[Array],
    walk: Walk,
    mesh: AnyMesh | None,
    planes: bool = False,
    operands: tuple[Any, ...] = (),
) -> list[Array]:
    """The walk as one equation of JAX; operands are stored as their steps take them (see RingDense.store)."""
    leaves, tree = jax.tree.flatten(operands)
    return walk_p.bind(*arrays, *leaves, job=Job(walk, mesh, planes, tree))


def _run(*values: Any, job: Job) -> list[Array]:
    walk, mesh, planes, tree = job
    arrays, operands = values[: job.arrays], jax.tree.unflatten(tree, values[job.arrays :])

    def inside(arrays: tuple[Array, ...], operands: tuple[Any, ...]) -> list[Any]:
        done = walk.apply(arrays if planes else arrays[0], *operands)
        return list(done) if planes else [done]

    if mesh is None:
        return inside(arrays, operands)
    operand_specs = _operand_specs(walk, operands)
    operands = jax.tree.map(lambda leaf, spec: _resharded(leaf, mesh, spec), operands, operand_specs)
    specs, out = ((walk.start.spec,) * job.arrays, operand_specs), [walk.end.spec] * job.results
    mapped = jax.shard_map(inside, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    return mapped(arrays, operands)


def _resharded(leaf: Array, mesh: AnyMesh, spec: PartitionSpec) -> Array:
    """An operand sharded as its step takes it, where the type of an array says how it is sharded."""
    return jax.reshard(leaf, NamedSharding(mesh, spec)) if AxisType.Explicit in mesh.axis_types else leaf


def _operand_specs(walk: Walk, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """How the leaves of each operand are sharded: as the dimension of its step."""
    specs = [jax.tree.map(lambda leaf: PartitionSpec(), operand) for operand in operands]
    for step, layout in walk.pairs:
        if isinstance(step, RingDense) and step.slot is not None:
            specs[step.slot] = step.operand_spec(operands[step.slot], layout)
    return tuple(specs)


def _abstract(*values: jax.core.ShapedArray, job: Job) -> list[jax.core.ShapedArray]:
    return [_after(values[0], job)] * job.results


def _after(x: jax.core.ShapedArray, job: Job) -> jax.core.ShapedArray:
    walk, mesh = job.walk, job.mesh
    if walk.real != walk.reals[-1] and not job.planes:
        x = x.update(dtype=np.result_type(x.dtype, np.complex64) if walk.real else real_dtype(x.dtype))
    if mesh is None or x.sharding.mesh.empty:
        return x.update(shape=walk.end.storage)
    explicit = {name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Explicit}
    return x.update(shape=walk.end.storage, sharding=NamedSharding(x.sharding.mesh, _only(explicit, walk.end)))


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, job: Job) -> tuple[list[Array], list[Any]]:
    """The walk is linear in the array and in matrices; in samples see `_along_samples`."""
    many, out = job.arrays, walk_p.bind(*primals, job=job)
    operands, changes = (jax.tree.unflatten(job.tree, values[many:]) for values in (primals, tangents))
    found = [_along(primals, tangents, slice(0, many), job)]
    for step, layout in job.walk.pairs:
        if isinstance(step, RingDense) and step.slot is not None and _moves(change := changes[step.slot]):
            if isinstance(step.matrix, Samples):
                found.append(_along_samples(primals[:many], operands, change, step, layout, job))
            else:
                at = many + len(jax.tree.leaves(operands[: step.slot]))
                found.append(_along(primals, tangents, slice(at, at + 1), job))
    moved = [part for part in found if part]
    return out, [functools.reduce(ad.add_tangents, parts) for parts in zip(*moved, strict=True)]


def _along(primals: Sequence[Array], tangents: Sequence[Any], place: slice, job: Job) -> list[Array]:
    """The walk with the change of what it is linear in, in the place of that."""
    if not _moves(tangents[place]):
        return []
    values = list(primals)
    values[place] = [ad.instantiate_zeros(change) for change in tangents[place]]
    return walk_p.bind(*values, job=job)


def _along_samples(
    arrays: Sequence[Array], operands: tuple[Any, ...], change: Any, step: RingDense, layout: Layout, job: Job
) -> list[Array]:
    """V'[k, n] = slope_k V[k, n] n: the walk between two factors, one along the inputs and one along the samples."""
    assert len(job.walk.steps) == 1, "a walk over traced samples is bound step by step"
    assert isinstance(step.matrix, Samples)
    slope = step.matrix.slope(jax.tree.map(ad.instantiate_zeros, change, is_leaf=_is_zero))
    other = step.after(layout) if step.turned else layout
    n = other.positions(step.dim).astype(slope[0].dtype)
    first, last = (slope, (n,)) if step.turned else ((n,), slope)
    changed = bind(_scaled(arrays, first, step.dim), job.walk, job.mesh, job.planes, operands)
    return _scaled(changed, last, step.dim)


def _scaled(arrays: Sequence[Array], factor: tuple[Any, ...], dim: int) -> list[Array]:
    """An array or planes times the planes of a factor along one dimension."""
    shape = [-1 if d == dim else 1 for d in range(arrays[0].ndim)]
    re, *rest = (part.reshape(shape) for part in factor)
    if not rest:
        return [x * re for x in arrays]
    (im,) = rest
    if len(arrays) == 1:
        return [arrays[0] * jax.lax.complex(re, im)]
    return [arrays[0] * re - arrays[1] * im, arrays[0] * im + arrays[1] * re]


def _moves(changes: Any) -> bool:
    return not all(_is_zero(change) for change in jax.tree.leaves(changes, is_leaf=_is_zero))


def _is_zero(change: Any) -> bool:
    return isinstance(change, ad.Zero)


def _transpose(cts: Sequence[Any], *values: Any, job: Job) -> list[Any]:
    """In the array the walk back; of planes, the adjoint. In an operand, JAX's transpose of the mapped ring."""
    walk, mesh, planes, tree = job
    many = job.arrays
    if all(isinstance(ct, ad.Zero) for ct in cts):
        return [ad.Zero(v.aval) if ad.is_undefined_primal(v) else None for v in values]
    cts = [ad.instantiate_zeros(ct) for ct in cts]
    if ad.is_undefined_primal(values[0]):
        back, operands = walk.adjoint() if planes else walk.transpose(), jax.tree.unflatten(tree, values[many:])
        return [*bind(cts, back, mesh, planes, operands), *(None for _ in values[many:])]
    place = next(j for j, v in enumerate(values) if ad.is_undefined_primal(v))
    aval = values[place].aval

    def of_operand(leaf: Array) -> list[Array]:
        return _run(*values[:place], leaf, *values[place + 1 :], job=job)

    @jax.jit
    def pulled(cts: Sequence[Array]) -> Array:
        return jax.vjp(of_operand, jax.numpy.zeros_like(aval))[1](list(cts))[0]

    found = pulled(cts)
    return [found if j == place else None for j in range(len(values))]


def _batch(axis_data, values, dims, *, job: Job):  # type: ignore[no-untyped-def]
    walk, mesh, planes, tree = job
    many = job.arrays
    if any(dim is not None for dim in dims[many:]):
        return _one_by_one(values, dims, job), [0] * job.results
    if all(dim is None for dim in dims[:many]):
        return walk_p.bind(*values, job=job), [None] * job.results
    place = dims[0] if len(set(dims[:many])) == 1 else 0
    size = next(x.shape[d] for x, d in zip(values, dims, strict=True) if d is not None)
    arrays = [
        x if d == place else batching.bdim_at_front(x, d, size) for x, d in zip(values[:many], dims, strict=False)
    ]
    axes = axis_data.explicit_mesh_axis or axis_data.spmd_name or ()
    axes = (axes,) if isinstance(axes, str) else tuple(axes)
    wider = walk.insert(place, size, _batch_cuts(size, axes, mesh))
    operands = jax.tree.unflatten(tree, values[many:])
    return bind(arrays, wider, mesh, planes, operands), [place] * job.results


def _one_by_one(values: Sequence[Array], dims: Sequence[int | None], job: Job) -> list[Array]:
    """A batch of operands: one walk after the other."""
    moved = [jax.numpy.moveaxis(v, d, 0) if d is not None else v for v, d in zip(values, dims, strict=True)]
    batched = [v for v, d in zip(moved, dims, strict=True) if d is not None]

    def one(parts: list[Array]) -> list[Array]:
        rest = iter(parts)
        return walk_p.bind(*(v if d is None else next(rest) for v, d in zip(moved, dims, strict=True)), job=job)

    return jax.lax.map(one, batched)


def _batch_cuts(size: int, axes: tuple[str, ...], mesh: AnyMesh | None) -> Cuts:
    return even_cuts(size, [(axis, mesh.shape[axis]) for axis in axes]) if mesh is not None else ()


def _only(axes: set[str], layout: Layout) -> PartitionSpec:
    """The layout's spec without the mesh axes whose placement XLA decides."""
    return spec_of(tuple(a for a in names if a in axes) for names in layout.axes)


walk_p.def_impl(jax.jit(_run, static_argnames=("job",)))
walk_p.def_abstract_eval(_abstract)
ad.primitive_jvps[walk_p] = _jvp
ad.primitive_transposes[walk_p] = _transpose
batching.fancy_primitive_batchers[walk_p] = _batch
mlir.register_lowering(walk_p, mlir.lower_fun(_run, multiple_results=True))
