"""A walk as a JAX primitive, linear in the array.

The gradient in the array is the transposed walk; in a matrix it is JAX's for the ring. A batch dimension, sharded or
not, is one more dimension of the walk.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ..layout import placement
from ..layout.in_flight import in_turn
from ..layout.layout import AnyMesh, Layout, axis_sizes, even_cuts, mapped_axes
from ..layout.placement import explicit_axes, needs_anchor, only, reshard, row_major_on_cpus, varies_over, varying
from ..numerics.dtypes import real_dtype, wide_types
from ..numerics.split_complex import Planes, scaled, times
from ..stacks import current_stack, with_stack
from ..steps.base import Takes
from ..walks.walk import Walk

T = TypeVar("T")
Operands = tuple[object, ...]  # data of steps besides the array, by slot: a pytree of arrays, or None
Tangent = Array | ad.Zero
WIDE = [np.dtype(name) for name in ("float64", "complex128", "int64", "uint64")]
walk_p = Primitive("meshfft_walk")
walk_p.multiple_results = True


class Job(NamedTuple):
    """A walk on a mesh, of an array or its planes; `tree` is the operands' structure.

    Values are the blocks inside a caller's shard_map; the walk maps the remaining mesh axes.
    """

    walk: Walk
    mesh: AnyMesh | None
    planes: bool
    tree: jax.tree_util.PyTreeDef

    @property
    def arrays(self) -> int:
        return 2 if self.planes and not self.walk.real else 1

    @property
    def results(self) -> int:
        return 2 if self.planes and not self.walk.reals[-1] else 1

    @property
    def rest(self) -> frozenset[str]:
        return frozenset() if self.mesh is None else frozenset(self.mesh.axis_names) - mapped_axes(self.mesh)

    def operands(self, values: Sequence[object]) -> Operands:
        return jax.tree.unflatten(self.tree, values[self.arrays :])

    @property
    def anchored(self) -> bool:
        operands = jax.tree.unflatten(self.tree, range(self.tree.num_leaves))
        return len(operands) > 0 and isinstance(operands[-1], placement.Anchor)


def bind(
    arrays: Sequence[Array], walk: Walk, mesh: AnyMesh | None, planes: bool = False, operands: Operands = ()
) -> list[Array]:
    """The walk as one equation; operands are stored as their steps take them (see Takes.operand)."""
    if not any(isinstance(operand, placement.Anchor) for operand in operands):
        operands = (*operands, *placement.anchors(arrays, mesh))
    leaves, tree = jax.tree.flatten(operands)
    values = varying([*arrays, *leaves], mapped_axes(mesh) & walk.start.mesh_axes)
    return walk_p.bind(*values, job=Job(walk, mesh, planes, tree))


def _run(*values: Array, job: Job) -> list[Array]:
    values, specs = _placed(values, job)
    return _mapped(functools.partial(_inside, job=job), values, specs, [job.walk.end.spec] * job.results, job)


def _lower(*values: Array, job: Job) -> list[Array]:
    """The walk in the types of its trace: XLA may ask for parts of a program when 64 bits are off again."""
    wide = any(x.dtype in WIDE for x in values[: job.arrays])
    with jax.enable_x64(wide or wide_types()):
        return with_stack(current_stack(), functools.partial(_run, job=job), *values)


def _inside(*values: Array, job: Job) -> list[Array]:
    blocks = _laid(values[: job.arrays], job)
    block = job.walk.apply(blocks if job.planes else blocks[0], *job.operands(values))
    return [*_laid(block if isinstance(block, tuple) else (block,), job)]


def _laid(blocks: tuple[Array, ...], job: Job) -> tuple[Array, ...]:
    """Blocks in the order that XLA's FFT needs; in a caller's shard_map of some axes XLA may choose another."""
    return tuple(map(row_major_on_cpus, blocks)) if job.rest and mapped_axes(job.mesh) else blocks


def _mapped(function: Callable[..., T], values: Sequence[Array], before: object, after: object, job: Job) -> T:
    if not job.rest:
        return function(*values)
    before, after = jax.tree.map(lambda spec: only(job.rest, spec), (before, after))
    account = any(map(varies_over, values))
    over = functools.partial(jax.shard_map, mesh=job.mesh, axis_names=job.rest, check_vma=account)
    return over(function, in_specs=before, out_specs=after)(*values)


def _placed(values: Sequence[Array], job: Job) -> tuple[tuple[Array, ...], tuple[PartitionSpec, ...]]:
    operands = job.operands(values)
    specs = [jax.tree.map(lambda leaf: PartitionSpec(), operand) for operand in operands]
    for slot, step, layout in job.walk.taking:
        specs[slot] = step.operand_spec(operands[slot], layout)
    every = (*[job.walk.start.spec] * job.arrays, *jax.tree.leaves(specs))
    return tuple(reshard(value, job.mesh, spec) for value, spec in zip(values, every, strict=True)), every


def _abstract(x: jax.core.ShapedArray, *_: jax.core.ShapedArray, job: Job) -> list[jax.core.ShapedArray]:
    walk, mesh = job.walk, job.mesh
    if walk.real != walk.reals[-1] and not job.planes:
        x = x.update(dtype=np.result_type(x.dtype, np.complex64) if walk.real else real_dtype(x.dtype))
    shape, shown, explicit = walk.end.within(mapped_axes(mesh)), x.sharding.mesh, explicit_axes(mesh)
    if mesh is None or (shown.empty and not explicit):
        return [x.update(shape=shape)] * job.results
    shown = mesh.abstract_mesh if shown.empty else shown
    return [x.update(shape=shape, sharding=NamedSharding(shown, only(explicit, walk.end.spec)))] * job.results


def _jvp(primals: Sequence[Array], tangents: Sequence[Tangent], *, job: Job) -> tuple[list[Array], list[Tangent]]:
    """The walk is linear in the array and in matrices; `_along_operand` is for samples."""
    out, changes = None, job.operands(tangents)
    arguments, given = primals, job
    if needs_anchor(job.mesh) and not job.anchored:  # only an anchor shows the transposed walk its devices
        leaves, tree = jax.tree.flatten((*job.operands(primals), placement.anchor(primals)))
        primals, job = [*primals[: job.arrays], *leaves], job._replace(tree=tree)
    operands = job.operands(primals)
    along = [_along(primals, tangents, slice(0, job.arrays), job)]
    for slot, step, layout in job.walk.taking:
        if not _moves(change := changes[slot]):
            continue
        if step.linear:
            at = job.arrays + len(jax.tree.leaves(operands[:slot]))
            along.append(_along(primals, tangents, slice(at, at + 1), job))
        else:
            changed, value = _along_operand(primals[: job.arrays], operands, change, step, layout, job)
            along, out = [*along, changed], value or out
    out = out or walk_p.bind(*arguments, job=given)
    return out, [functools.reduce(ad.add_tangents, parts) for parts in zip(*filter(None, along), strict=True)]


def _along(primals: Sequence[Array], tangents: Sequence[Tangent], at: slice, job: Job) -> list[Array]:
    if not _moves(tangents[at]):
        return []
    values = list(primals)
    values[at] = [ad.instantiate_zeros(change) for change in tangents[at]]
    return walk_p.bind(*values, job=job)


def _along_operand(
    arrays: Sequence[Array], operands: Operands, change: object, step: Takes, layout: Layout, job: Job
) -> tuple[list[Array], list[Array]]:
    """The tangent by an operand in which a step is not linear, a sum of walks between two factors (see Takes.slopes);
    and the walk's value if that is one of them.
    """
    assert len(job.walk.steps) == 1, "a walk over traced samples is bound step by step"
    change = jax.tree.map(ad.instantiate_zeros, change, is_leaf=_is_zero)
    changes, out = [], list[Array]()
    for first, slope, last, dim, value in step.slopes(change, layout, mapped_axes(job.mesh)):
        given, start = arrays, job.walk.start
        if dim is not None and first:
            given, start = [jax.numpy.expand_dims(x, dim) for x in arrays], start.insert(dim, first[0].shape[dim], ())
        walk = dataclasses.replace(job.walk, start=start, steps=(slope,))
        found = bind(_scaled(given, first), walk, job.mesh, job.planes, operands)
        if dim is not None and value is not None:
            out = [jax.lax.index_in_dim(y, value, dim, keepdims=False) for y in found]
        results = _scaled(found, last)
        changes.append(results if dim is None or not last else [y.sum(dim) for y in results])
    return [functools.reduce(jax.numpy.add, parts) for parts in zip(*changes, strict=True)], out


def _scaled(arrays: Sequence[Array], factor: Planes) -> list[Array]:
    if not factor:
        return list(arrays)
    parts = tuple(part.astype(real_dtype(arrays[0].dtype)) for part in factor)
    if len(parts) == 1:
        return [scaled(x, *parts) for x in arrays]
    return [times(arrays[0], parts)] if len(arrays) == 1 else list(times(tuple(arrays), parts))


def _moves(changes: object) -> bool:
    return not all(_is_zero(change) for change in jax.tree.leaves(changes, is_leaf=_is_zero))


def _is_zero(change: object) -> bool:
    return isinstance(change, ad.Zero)


def _transpose(cts: Sequence[Tangent], *values: Any, job: Job) -> list[Any]:
    """In the array the transposed walk (for planes, the adjoint); in an operand JAX's transpose of the mapped ring."""
    if all(map(_is_zero, cts)):
        return [ad.Zero(v.aval) if ad.is_undefined_primal(v) else None for v in values]
    dense: list[Array] = [ad.instantiate_zeros(ct) for ct in cts]
    if ad.is_undefined_primal(values[0]):
        back = job.walk.adjoint() if job.planes else job.walk.transpose()
        pulled = bind(dense, back, job.mesh, job.planes, job.operands(values))
        return [*pulled, *[None] * (len(values) - job.arrays)]
    at = next(j for j, v in enumerate(values) if ad.is_undefined_primal(v))
    none = ad.instantiate_zeros(ad.Zero(values[at].aval))
    change = _pulled((*values[:at], none, *values[at + 1 :]), tuple(dense), at, job)
    return [change if j == at else None for j in range(len(values))]


@functools.partial(jax.jit, static_argnums=(2, 3))
def _pulled(values: tuple[Array, ...], cts: tuple[Array, ...], at: int, job: Job) -> Array:
    """An operand's cotangent, summed over devices that share its rows, by exact messages."""
    job = job._replace(walk=job.walk.wired())
    came = jax.typeof(values[at]).sharding.spec
    values, specs = _placed(values, job)
    rows = itertools.chain.from_iterable(axes if isinstance(axes, tuple) else (axes,) for axes in specs[at])
    others = tuple(sorted((job.rest & job.walk.start.mesh_axes).difference(rows)))

    def pull(*blocks: Array) -> Array:
        blocks = tuple(varying(blocks, frozenset()))
        given, cts = blocks[: -job.results], blocks[-job.results :]
        _, back = jax.vjp(lambda leaf: _inside(*given[:at], leaf, *given[at + 1 :], job=job), given[at])
        (pulled,) = back(list(cts))
        return jax.lax.psum(pulled, others) if others else pulled

    before = (*specs, *[job.walk.end.spec] * job.results)
    return reshard(_mapped(pull, (*values, *cts), before, specs[at], job), job.mesh, came)


def _batch(axis_data, values, dims, *, job: Job):  # type: ignore[no-untyped-def]
    many, dims = job.arrays, [*dims[:-1], None] if job.anchored else dims
    if any(dim is not None for dim in dims[many:]):
        return _one_by_one(values, dims, job), [0] * job.results
    if all(dim is None for dim in dims[:many]):
        return walk_p.bind(*values, job=job), [None] * job.results
    at = dims[0] if len(set(dims[:many])) == 1 and _keeps(job.walk, dims[0]) else 0
    size = next(x.shape[d] for x, d in zip(values, dims, strict=True) if d is not None)
    given = zip(values[:many], dims, strict=False)
    arrays = [x if d == at else batching.bdim_at_front(x, d, size) for x, d in given]
    axes = axis_data.explicit_mesh_axis or axis_data.spmd_name or ()
    axes = (axes,) if isinstance(axes, str) else axes
    cuts = even_cuts(size, [(axis, axis_sizes(job.mesh)[axis]) for axis in axes if axis in job.rest])
    wider = job.walk.insert(at, size, cuts)
    return bind(arrays, wider, job.mesh, job.planes, job.operands(values)), [at] * job.results


def _keeps(walk: Walk, dim: int) -> bool:
    """Whether a batch dimension keeps its position; at scattered points it is first on both ends."""
    size = 1 + max(walk.end.shape, default=0)
    return walk.insert(dim, size, ()).end == walk.end.insert(dim, size, ())


def _one_by_one(values: Sequence[Array], dims: Sequence[int | None], job: Job) -> list[Array]:
    first = [jax.numpy.moveaxis(v, d, 0) for v, d in zip(values, dims, strict=True) if d is not None]

    def one(batched: list[Array]) -> list[Array]:
        rest = iter(batched)
        return walk_p.bind(*(v if d is None else next(rest) for v, d in zip(values, dims, strict=True)), job=job)

    return jax.lax.map(one, first)


def _at_once(*values: Array, job: Job) -> list[Array]:
    """Outside of `jit` an anchor shows the devices."""
    if job.anchored and isinstance(sharding := values[-1].sharding, NamedSharding):
        job = job._replace(mesh=sharding.mesh)
    return in_turn(_program, values, job)


_program = jax.jit(lambda values, job: _run(*values, job=job), static_argnums=1)
walk_p.def_impl(_at_once)
walk_p.def_abstract_eval(_abstract)
ad.primitive_jvps[walk_p] = _jvp
ad.primitive_transposes[walk_p] = _transpose
batching.fancy_primitive_batchers[walk_p] = _batch
mlir.register_lowering(walk_p, mlir.lower_fun(_lower, multiple_results=True))
