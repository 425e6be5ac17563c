"""The equation of a deferred call, lowered as a `custom_partitioning`.

XLA propagates shardings through it by a rule per dimension, then asks for the program of a block.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, ShapeDtypeStruct, lax
from jax.core import ShapedArray
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from ..layout.layout import AnyMesh, axis_sizes, from_spec, spec_of
from ..layout.padded_array import is_padded
from ..layout.placement import cut_alike, explicit_axes, only, row_major_on_cpus, with_axes
from ..layout.reading import hidden_by, kept
from ..machine.topology import machine_of
from ..numerics.dtypes import check_fits, wide_types
from ..stacks import empty_stack, with_stack
from .deferred import CALLS, INEXACT, Call, DeferredWork, Fixed, Role, batched, put, tangent, transposed

F = TypeVar("F", bound=Callable[..., Any])
deferred_p = Primitive("meshfft_deferred")
deferred_p.multiple_results = True
whole_p = Primitive("meshfft_deferred_on_one_device")  # what XLA runs on one device
whole_p.multiple_results = True


def deferred(function: F, arrays: int = 1, linear: bool = True) -> F:
    """The function; where JAX hides how an array is cut, its call is one equation.

    The first `arrays` parameters are arrays, the rest only if they are traced. `linear`: it is linear in the first.
    """
    names = tuple(inspect.signature(function).parameters)[:arrays]

    @functools.wraps(function)
    def call(*args: Any, **how: Any) -> Any:
        if how.get("spec") is not None or (mesh := _hidden((*args, *how.values()))) is None:
            return function(*args, **how)
        if missing := [name for name in names[len(args) :] if name not in how]:
            raise TypeError(f"{function.__name__}() got no argument {missing[0]!r}: give it by position or by name")
        args = (*args, *(how.pop(name) for name in names[len(args) :]))
        return _deferred(function, linear, mesh, args[:arrays], args[arrays:], how)

    return cast(F, call)


def _hidden(arguments: Iterable[object]) -> AnyMesh | None:
    for one in arguments:
        if isinstance(one, jax.core.Tracer):
            mesh = hidden_by(one)
        elif isinstance(one, tuple | list):
            mesh = _hidden(one)
        else:
            continue
        if mesh is not None:
            return mesh
    return None


def _deferred(
    function: Callable[..., Any], linear: bool, mesh: AnyMesh, arrays: Any, rest: Any, how: dict[str, Any]
) -> Any:
    if machine_of(mesh).chip.platform == "tpu":
        what = "on TPUs XLA does not show how they cut it"
        raise NotImplementedError(f"{function.__name__}() of an array that Auto mesh axes may cut: {what}: pass spec=")
    leaves, tree = jax.tree.flatten(((*arrays, *rest), how), is_leaf=_is_leaf)
    first, many = len(jax.tree.leaves(arrays[0])), len(jax.tree.leaves(arrays, is_leaf=_is_leaf))
    moves = [j < many or isinstance(x, jax.core.Tracer) for j, x in enumerate(leaves)]
    if any(map(is_padded, leaves)) or not all(hasattr(x, "dtype") for x in leaves[:many]):
        return function(*arrays, *rest, **how)
    for x in leaves:
        if isinstance(x, np.ndarray):
            check_fits(x)
    values = [kept(jnp.asarray(x)) for x, moving in zip(leaves, moves, strict=True) if moving]
    shape = values[0].shape
    cut = tuple(
        tuple(range(len(shape))) if j < first else cut_alike(x.shape, shape) if j < many else ()
        for j, x in enumerate(values)
    )
    fixed = tuple(None if moving else Fixed(x) for x, moving in zip(leaves, moves, strict=True))
    shapes = tuple(ShapeDtypeStruct(x.shape, x.dtype) for x in values)
    out = how.get("out_spec")
    out = None if out is None else from_spec((0,) * len(out), axis_sizes(mesh), out).axes
    call = Call(function, tree, fixed, cut, shapes, out, wide_types(), mesh)
    work, made = _work(call, first if linear else 0)
    return jax.tree.unflatten(made, deferred_p.bind(*values, work=work, devices=_needs_devices()))


@functools.lru_cache(maxsize=CALLS)
def _work(call: Call, linear: int) -> tuple[DeferredWork, jax.tree_util.PyTreeDef]:
    out, ndim, mesh = call.out, len(call.shapes[0].shape), call.mesh
    everything = [tuple(mesh.axis_names), *[()] * (ndim - 1)][:ndim]
    place, results, made = call.placed(with_axes(mesh, AxisType.Manual), call.spec([()] * ndim if out else everything))
    ins, outs = tuple(map(Role, range(len(call.shapes)))), tuple(Role(j, True) for j in range(len(results)))
    auto = with_axes(mesh, AxisType.Auto)  # as XLA sees them
    told = tuple(
        NamedSharding(auto, at.spec) if at.even and at.mesh_axes and (out or at.ndim != ndim) else None
        for at in place.results
    )
    return DeferredWork(call, ins, outs, results, frozenset(range(linear)), call.run, told), made


def _is_leaf(x: object) -> bool:
    return isinstance(x, PartitionSpec) or is_padded(x)


def _partition(work: DeferredWork, mesh: Mesh, given: Sequence[Any], wanted: Sequence[Any]) -> tuple[Any, ...]:
    """A block's program, and shardings of results and values. GSPMD, not Shardy, asks for them before it wants any."""
    mesh = _mesh_of((*given, *wanted), work) if mesh.empty else mesh
    parts = zip((*work.ins, *work.outs), (*given, *wanted), strict=bool(wanted))
    specs = ((role, x.shape, _spec_of(x.sharding, mesh, len(x.shape))) for role, x in parts)
    place = work.placed(mesh, list(specs))

    def run(*blocks: Array) -> list[Array]:
        with work.call.within(place.mesh):
            results = work.run(place, [*map(row_major_on_cpus, blocks)])
            return [*map(row_major_on_cpus, results)]

    def program(*blocks: Array) -> list[Array]:
        return with_stack(empty_stack(), run, *blocks)

    before, after = ([NamedSharding(mesh, place.spec(role)) for role in roles] for roles in (work.ins, work.outs))
    return mesh, program, after, tuple(before)


def _mesh_of(values: Sequence[Any], work: DeferredWork) -> Mesh:
    """The call's mesh, of devices that XLA has: JAX gives none if no argument of a program is on a mesh."""
    mesh, known = work.call.mesh, next(x for x in values if x.sharding is not None)
    devices = [*known.sharding.devices_indices_map((mesh.size,) * len(known.shape))]
    return Mesh(np.reshape(devices, mesh.axis_sizes), mesh.axis_names)


def _spec_of(sharding: Sharding | None, mesh: Mesh, ndim: int) -> PartitionSpec:
    """A sharding's spec on its mesh. One without names shows by the starts of its blocks which axes cut a dimension."""
    if sharding is None or isinstance(sharding, NamedSharding):
        return PartitionSpec() if sharding is None else sharding.spec
    blocks = sharding.devices_indices_map((mesh.size,) * ndim).values()
    starts = np.array([[one.start or 0 for one in block] for block in blocks]).reshape(*mesh.devices.shape, ndim)
    first = np.eye(mesh.devices.ndim, dtype=int)
    steps = {axis: starts[tuple(at)] for (axis, n), at in zip(mesh.shape.items(), first, strict=True) if n > 1}
    return spec_of(tuple(sorted((a for a in steps if steps[a][d]), key=lambda a: -steps[a][d])) for d in range(ndim))


def _lower(*values: Array, work: DeferredWork, devices: ClosedJaxpr) -> list[Array]:
    @custom_partitioning
    def call(*values: Array) -> list[Array]:
        return list(whole_p.bind(*values, work=work))

    call.def_partition(
        functools.partial(_partition, work),
        lambda mesh, given, wanted: _partition(work, mesh, given, [])[2],
        **_rule(work, [*(x.shape for x in values), *(x.shape for x in work.results)]),
    )
    # JAX's compilation cache may distinguish calls of these shapes only by this.
    with set_xla_metadata(meshfft=work.name(tuple(ShapeDtypeStruct(x.shape, x.dtype) for x in values))):
        results = cast(list[Array], call(*values))
    told = work.told or (None,) * len(results)
    return [y if at is None else lax.with_sharding_constraint(y, at) for y, at in zip(results, told, strict=True)]


def _rule(work: DeferredWork, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
    """The dimensions that XLA is to cut alike."""
    ndim, sizes, sides = len(work.call.shapes[0].shape), dict[str, set[int]](), list[str]()
    for role, shape in zip((*work.ins, *work.outs), shapes, strict=True):
        inner, own = len(shape) - len(role.batches), f"{'result' if role.result else 'operand'}{role.number}x"
        cut = (range(inner) if inner == ndim else ()) if role.result else work.call.cut[role.number]
        as_first = [own + str(dim) if d is None else f"array{d}" for dim, d in enumerate(cut or [None] * inner)]
        names = [*(f"batch{batch}" for batch in role.batches), *as_first]
        sides.append(" ".join(names))
        for name, n in zip(names, shape, strict=True):
            sizes.setdefault(name, set()).add(n)
    many = len(work.ins)
    return {
        "sharding_rule": ", ".join(sides[:many]) + " -> " + ", ".join(sides[many:]),
        "need_replication_factors": tuple(name for name in sizes if name.startswith(("result", "operand"))),
        "permutation_factors": tuple(name for name, some in sizes.items() if len(some) > 1),
    }


def _abstract(*values: ShapedArray, work: DeferredWork, devices: ClosedJaxpr) -> list[ShapedArray]:
    mesh = next((x.sharding.mesh for x in values if not x.sharding.mesh.empty), None)
    if mesh is None:
        return [ShapedArray(x.shape, x.dtype) for x in work.results]
    explicit, specs = explicit_axes(mesh), [PartitionSpec(*[None] * len(x.shape)) for x in work.results]
    if explicit:
        place = work.placed(mesh, [(role, x.shape, x.sharding.spec) for role, x in zip(work.ins, values, strict=True)])
        pairs = zip(work.outs, work.results, strict=True)
        specs = [x.sharding.spec if x.sharding else _divided(x, mesh, place.spec(role)) for role, x in pairs]
    made = zip(work.results, specs, strict=True)
    return [ShapedArray(x.shape, x.dtype, sharding=NamedSharding(mesh, only(explicit, spec))) for x, spec in made]


def _divided(x: ShapeDtypeStruct, mesh: AnyMesh, spec: PartitionSpec) -> PartitionSpec:
    cut = only(explicit_axes(mesh), spec)
    if not from_spec(x.shape, axis_sizes(mesh), cut).even:
        raise ValueError(f"Explicit mesh axes cut the result as {cut}, which do not divide {x.shape}: give out_spec=")
    return cut


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, work: DeferredWork, devices: ClosedJaxpr) -> Any:
    results = deferred_p.bind(*primals, work=work, devices=devices)
    moving = tuple(j for j, change in enumerate(tangents) if not isinstance(change, ad.Zero))
    if not moving:
        return results, [ad.Zero(jax.typeof(y).to_tangent_aval()) for y in results]
    if work.linear.issuperset(moving):
        along = [ad.instantiate_zeros(tangents[j]) if j in work.linear else x for j, x in enumerate(primals)]
        return results, deferred_p.bind(*along, work=work, devices=devices)
    changes = (tangents[j] for j in moving)
    found = iter(deferred_p.bind(*primals, *changes, work=tangent(work, moving), devices=devices))
    return results, [
        next(found) if y.dtype.kind in INEXACT else ad.Zero(jax.typeof(y).to_tangent_aval()) for y in results
    ]


def _transpose(cts: Sequence[Any], *values: Any, work: DeferredWork, devices: ClosedJaxpr) -> list[Any]:
    of = tuple(j for j, x in enumerate(values) if ad.is_undefined_primal(x))
    if all(isinstance(ct, ad.Zero) for ct in cts):
        return [ad.Zero(x.aval) if j in of else None for j, x in enumerate(values)]
    shapes = tuple(_described(values[j].aval) for j in of)
    given = [x for j, x in enumerate(values) if j not in of]
    dense = map(ad.instantiate_zeros, cts)
    pulled = deferred_p.bind(*given, *dense, work=transposed(work, of, shapes), devices=devices)
    return put([None] * len(values), of, pulled)


def _described(x: ShapedArray) -> ShapeDtypeStruct:
    """A shape with the sharding of Explicit axes, which cotangents have too."""
    return ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding if explicit_axes(x.sharding.mesh) else None)


def _batch(axis: Any, values: Sequence[Any], dims: Sequence[Any], *, work: DeferredWork, devices: ClosedJaxpr) -> Any:
    if all(dim is None for dim in dims):  # as in `jacfwd`
        return deferred_p.bind(*values, work=work, devices=devices), [None] * len(work.outs)
    first = [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(values, dims, strict=True)]
    which = tuple(None if dim is None else 0 for dim in dims)
    results = deferred_p.bind(*first, work=batched(work, which, axis.size), devices=devices)
    return results, [0] * len(results)


@functools.lru_cache(maxsize=1)
def _needs_devices() -> ClosedJaxpr:
    """A program that JAX compiles only for known devices, like equations with it as a parameter."""
    call = custom_partitioning(lambda x: x)
    call.def_partition(lambda *_: None, lambda *_: None, sharding_rule="d -> d")
    return jax.make_jaxpr(call)(ShapeDtypeStruct((1,), np.float32))


whole_p.def_abstract_eval(lambda *values, work: [ShapedArray(x.shape, x.dtype) for x in work.results])
mlir.register_lowering(
    whole_p, mlir.lower_fun(lambda *values, work: work.on_one_device(*values), multiple_results=True)
)
_alone = jax.jit(lambda values, work: deferred_p.bind(*values, work=work, devices=_needs_devices()), static_argnums=1)
deferred_p.def_impl(lambda *values, work, devices: _alone(values, work))
deferred_p.def_abstract_eval(_abstract)
ad.primitive_jvps[deferred_p] = _jvp
ad.primitive_transposes[deferred_p] = _transpose
batching.fancy_primitive_batchers[deferred_p] = _batch
mlir.register_lowering(deferred_p, mlir.lower_fun(_lower, multiple_results=True))
