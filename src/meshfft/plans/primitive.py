"""A walk as one operator of JAX, linear in the array: shape, gradient, batching and lowering of a whole transform.

The gradient in the array is the transposed walk, so it has the same collectives as the transform and needs no
annotation; a batch dimension, sharded or not, is one more dimension that the walk leaves alone. An array is one complex
or real array, or two planes. The gradient in a matrix is JAX's own of the ring that multiplies by it.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ..layout.layout import AnyMesh, Cuts, Layout, even_cuts, mapped_axes
from ..layout.placement import Anchor, anchor, anchors, brought, explicit_axes, needs_anchor, only, varies_over, varying
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import scaled
from ..steps import Step
from ..walks.walk import Walk

walk_p = Primitive("meshfft_walk")
walk_p.multiple_results = True


class Job(NamedTuple):
    """What an equation does: a walk, on a mesh, of an array or its planes; `tree` is that of the walk's operands.

    The mesh says which of its axes are mapped where the equation stands: none, or some or all of them, the manual ones
    of a caller's shard_map. Values are what is seen there (see layout.placement), and the walk maps the rest.
    """

    walk: Walk
    mesh: AnyMesh | None
    planes: bool
    tree: Any

    @property
    def arrays(self) -> int:
        """How many arrays go in: a complex one may be two planes."""
        return 2 if self.planes and not self.walk.real else 1

    @property
    def anchored(self) -> bool:
        """Whether the last value is an anchor (see layout.placement)."""
        operands = jax.tree.unflatten(self.tree, range(self.tree.num_leaves))
        return len(operands) > 0 and isinstance(operands[-1], Anchor)

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
    """The walk as one equation of JAX; operands are stored as their steps take them (see Step.operand)."""
    if not any(isinstance(operand, Anchor) for operand in operands):
        operands = (*operands, *anchors(arrays, mesh))
    leaves, tree = jax.tree.flatten(operands)
    values = varying([*arrays, *leaves], mapped_axes(mesh) & walk.start.mesh_axes)
    return walk_p.bind(*values, job=Job(walk, mesh, planes, tree))


def _run(*values: Any, job: Job) -> list[Array]:
    values, specs = _placed(values, job)
    return _mapped(functools.partial(_inside, job=job), values, specs, [job.walk.end.spec] * job.results, job.mesh)


def _inside(*values: Any, job: Job) -> list[Any]:
    """One device's blocks, from the first layout to the last."""
    arrays, operands = values[: job.arrays], jax.tree.unflatten(job.tree, values[job.arrays :])
    done = job.walk.apply(arrays if job.planes else arrays[0], *operands)
    return list(done) if job.planes else [done]


def _mapped(function: Any, values: Sequence[Any], before: Sequence[Any], after: Any, mesh: AnyMesh | None) -> Any:
    """A function of blocks, mapped over the mesh axes that are not mapped already."""
    rest = _rest(mesh)
    if mesh is None or not rest:
        return function(*values)
    first, last = jax.tree.map(lambda spec: only(rest, spec), (tuple(before), after))
    account = any(map(varies_over, values))
    return jax.shard_map(function, mesh=mesh, axis_names=rest, in_specs=first, out_specs=last, check_vma=account)(
        *values
    )


def _rest(mesh: AnyMesh | None) -> frozenset[str]:
    """The mesh axes that are not mapped yet."""
    return frozenset() if mesh is None else frozenset(mesh.axis_names) - mapped_axes(mesh)


def _placed(values: Sequence[Any], job: Job) -> tuple[tuple[Any, ...], tuple[PartitionSpec, ...]]:
    """The values and their specs, sharded as the walk and its steps take them where the type of an array says how."""
    walk, mesh, _, tree = job
    operands = jax.tree.leaves(_operand_specs(walk, jax.tree.unflatten(tree, values[job.arrays :])))
    specs = (*[walk.start.spec] * job.arrays, *operands)
    return tuple(brought(value, mesh, spec) for value, spec in zip(values, specs, strict=True)), specs


def _operand_specs(walk: Walk, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """How the leaves of each operand are sharded: as the dimension of its step."""
    specs = [jax.tree.map(lambda leaf: PartitionSpec(), operand) for operand in operands]
    for step, layout in walk.pairs:
        if step.slot is not None:
            specs[step.slot] = step.operand_spec(operands[step.slot], layout)
    return tuple(specs)


def _abstract(*values: jax.core.ShapedArray, job: Job) -> list[jax.core.ShapedArray]:
    return [_after(values[0], job)] * job.results


def _after(x: jax.core.ShapedArray, job: Job) -> jax.core.ShapedArray:
    walk, mesh = job.walk, job.mesh
    if walk.real != walk.reals[-1] and not job.planes:
        x = x.update(dtype=np.result_type(x.dtype, np.complex64) if walk.real else real_dtype(x.dtype))
    shape = walk.end.within(mapped_axes(mesh))
    found, explicit = x.sharding.mesh, explicit_axes(mesh)
    if mesh is None or (found.empty and not explicit):
        return x.update(shape=shape)
    found = mesh.abstract_mesh if found.empty else found
    return x.update(shape=shape, sharding=NamedSharding(found, only(explicit, walk.end.spec)))


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, job: Job) -> tuple[list[Array], list[Any]]:
    """The walk is linear in the array and in matrices; in samples see `_along_operand`."""
    many, out = job.arrays, walk_p.bind(*primals, job=job)
    changes = jax.tree.unflatten(job.tree, tangents[many:])
    primals, job = _anchored(primals, job)
    operands = jax.tree.unflatten(job.tree, primals[many:])
    found = [_along(primals, tangents, slice(0, many), job)]
    for step, layout in job.walk.pairs:
        if step.slot is not None and _moves(change := changes[step.slot]):
            if step.linear:
                at = many + len(jax.tree.leaves(operands[: step.slot]))
                found.append(_along(primals, tangents, slice(at, at + 1), job))
            else:
                found.append(_along_operand(primals[:many], operands, change, step, layout, job))
    moved = [part for part in found if part]
    return out, [functools.reduce(ad.add_tangents, parts) for parts in zip(*moved, strict=True)]


def _anchored(values: Sequence[Array], job: Job) -> tuple[Sequence[Array], Job]:
    """The values with an anchor among the operands, for the walk back where only those know the devices."""
    if job.anchored or not needs_anchor(job.mesh):
        return values, job
    operands = jax.tree.unflatten(job.tree, values[job.arrays :])
    leaves, tree = jax.tree.flatten((*operands, anchor(values)))
    return [*values[: job.arrays], *leaves], job._replace(tree=tree)


def _along(primals: Sequence[Array], tangents: Sequence[Any], place: slice, job: Job) -> list[Array]:
    """The walk with the change of what it is linear in, in the place of that."""
    if not _moves(tangents[place]):
        return []
    values = list(primals)
    values[place] = [ad.instantiate_zeros(change) for change in tangents[place]]
    return walk_p.bind(*values, job=job)


def _along_operand(
    arrays: Sequence[Array], operands: tuple[Any, ...], change: Any, step: Step, layout: Layout, job: Job
) -> list[Array]:
    """The change with an operand that a step is not linear in: the walk between two factors (see Step.slopes)."""
    assert len(job.walk.steps) == 1, "a walk over traced samples is bound step by step"
    (dim,) = step.dims
    change = jax.tree.map(ad.instantiate_zeros, change, is_leaf=_is_zero)
    first, last = step.slopes(change, layout, mapped_axes(job.mesh))
    changed = bind(_scaled(arrays, first, dim), job.walk, job.mesh, job.planes, operands)
    return _scaled(changed, last, dim)


def _scaled(arrays: Sequence[Array], factor: tuple[Any, ...], dim: int) -> list[Array]:
    """An array or planes times the planes of a factor along one dimension."""
    shape = [-1 if d == dim else 1 for d in range(arrays[0].ndim)]
    re, *rest = (part.reshape(shape) for part in factor)
    if not rest:
        return [scaled(x, re) for x in arrays]
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
    none = ad.instantiate_zeros(ad.Zero(values[place].aval))
    found = _pulled((*values[:place], none, *values[place + 1 :]), tuple(cts), place, job)
    return [found if j == place else None for j in range(len(values))]


@functools.partial(jax.jit, static_argnums=(2, 3))
def _pulled(values: tuple[Array, ...], cts: tuple[Array, ...], place: int, job: Job) -> Array:
    """What the change of a result makes of an operand: on every device of its rows, summed where others have them."""
    came = jax.typeof(values[place]).sharding.spec
    values, specs = _placed(values, job)
    rows = itertools.chain.from_iterable(axes if isinstance(axes, tuple) else (axes,) for axes in specs[place])
    others = tuple(sorted((_rest(job.mesh) & job.walk.start.mesh_axes).difference(rows)))
    pull = functools.partial(_pull, place=place, others=others, job=job)
    before = (*specs, *[job.walk.end.spec] * job.results)
    return brought(_mapped(pull, (*values, *cts), before, specs[place], job.mesh), job.mesh, came)


def _pull(*blocks: Any, place: int, others: tuple[str, ...], job: Job) -> Array:
    """One device's rows of it."""
    blocks = tuple(varying(blocks, frozenset()))
    given, cts = blocks[: -job.results], blocks[-job.results :]

    def of_operand(leaf: Array) -> list[Array]:
        return _inside(*given[:place], leaf, *given[place + 1 :], job=job)

    (found,) = jax.vjp(of_operand, given[place])[1](list(cts))
    return jax.lax.psum(found, others) if others else found


def _batch(axis_data, values, dims, *, job: Job):  # type: ignore[no-untyped-def]
    walk, mesh, planes, tree = job
    many, dims = job.arrays, [*dims[:-1], None] if job.anchored else dims
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
    return (
        even_cuts(size, [(axis, mesh.shape[axis]) for axis in axes if axis in _rest(mesh)]) if mesh is not None else ()
    )


def _at_once(*values: Any, job: Job) -> list[Array]:
    """Outside of `jit` an anchor shows the devices."""
    if job.anchored and isinstance(sharding := values[-1].sharding, NamedSharding):
        job = job._replace(mesh=sharding.mesh)
    return _program(*values, job=job)


_program = jax.jit(_run, static_argnames=("job",))
walk_p.def_impl(_at_once)
walk_p.def_abstract_eval(_abstract)
ad.primitive_jvps[walk_p] = _jvp
ad.primitive_transposes[walk_p] = _transpose
batching.fancy_primitive_batchers[walk_p] = _batch
mlir.register_lowering(walk_p, mlir.lower_fun(_run, multiple_results=True))
