"""Requests: an array as given by a caller, with its placement and machine.

An array is anything NumPy takes, a PaddedArray, or a tuple of two planes (re, im). All but its numbers is a `Setting`:
hashable host data, the cache key of plans.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeGuard, TypeVar, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding
from jax.typing import ArrayLike

from ..layout.layout import AnyMesh, Layout, Spec, axis_sizes, from_block, from_spec, hashed_once, mapped_axes
from ..layout.memory import Room, room, room_of
from ..layout.padded_array import AnyArray, AnyStored, OnePlane, PaddedArray, PlanePair, Transformed, stored_of
from ..layout.placement import check_context, concrete_placement, mesh_here, placement, settled
from ..layout.storage import stored_on, zeros_beside
from ..machine.machine import Machine, machine_of
from ..numerics.dtypes import check_numeric, real_dtype, wide_types

P = ParamSpec("P")
S = TypeVar("S", covariant=True)
Function = Callable[Concatenate[AnyArray, P], Transformed]
DESCRIBED = "the plan's mesh is only described: plan with a jax.sharding.Mesh of real devices to run it"
FOR_ONE = "the array is sharded, the plan is for one device: plan with mesh="


@hashed_once
@dataclasses.dataclass(frozen=True)
class Setting:
    """The placement of an array, and its machine."""

    start: Layout  # layout of the array
    mesh: AnyMesh | None  # None on one device
    machine: Machine  # prices steps
    dtype: np.dtype  # type of the array or its planes
    many: int = 1  # one array, or two planes
    room: Room | None = None  # memory of each device; None if unknown, as while JAX traces
    wide: bool = False  # 64-bit types are on: integers are computed in them

    @property
    def real(self) -> bool:
        return self.many == 1 and self.dtype.kind != "c"


class Request(NamedTuple):
    """An array, or its planes, and their setting; `planes` if planes are returned."""

    arrays: tuple[AnyStored, ...]
    setting: Setting
    planes: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape; inside a caller's shard_map the argument is a block of it."""
        return self.setting.start.shape

    def zeros(self, layout: Layout, dtype: np.dtype) -> Any:
        kinds = [real_dtype(dtype)] * 2 if self.planes else [dtype]
        x, mesh = stored_of(self.arrays[0]), self.setting.mesh
        return formed(tuple(zeros_beside(x, mesh, layout, kind) for kind in kinds))


def read(a: AnyArray, spec: Spec | None = None) -> Request:
    arrays, planes = received(a), is_planes(a)
    setting = _setting(arrays[0], spec)
    if len(arrays) == 1:
        return Request(arrays, setting, planes)
    other = _setting(arrays[1], spec).start
    if other != setting.start:
        raise ValueError(f"the planes are sharded as {setting.start.spec} and {other.spec}: shard them alike")
    return Request(arrays, dataclasses.replace(setting, many=2), planes)


def received(a: AnyArray) -> tuple[AnyStored, ...]:
    """The argument as one array or two planes; raises TypeError if it is no array of numbers."""
    if hasattr(type(a), "turns"):  # Points, or Scattered in nufft/
        raise TypeError(f"the array is {a!r}, which are points: give the array first and the points second")
    return (_array(a),) if isinstance(a, jax.Array) else tuple(map(_array, parts(a)))


def parts(a: AnyArray) -> tuple[Any, ...]:
    """The argument as a tuple of one array or its matching planes. A list of arrays is an array, as in NumPy."""
    if not is_planes(a):
        return (a,)
    re, im = a[0], a[-1]
    if re.shape != im.shape:
        raise ValueError(f"the planes have shapes {re.shape} and {im.shape}: give two of one shape")
    if re.dtype != im.dtype:
        raise TypeError(f"the planes are {re.dtype} and {im.dtype}: give two of one type")
    if re.dtype.kind == "c":
        raise TypeError(f"the planes are {re.dtype}: give real ones, or one complex array")
    return a


def is_planes(a: object) -> TypeGuard[tuple[Any, ...]]:
    """True for planes: (re, im), or (re,) of a real array."""
    return isinstance(a, tuple) and len(a) in (1, 2) and all(hasattr(part, "dtype") for part in a)


def formed(arrays: tuple[AnyStored, ...]) -> Any:
    return arrays[0] if len(arrays) == 1 else PlanePair(*arrays)


def _array(a: ArrayLike | PaddedArray) -> AnyStored:
    if isinstance(a, jax.Array | PaddedArray):
        check_numeric(a.dtype)
        _check_kept(a)
        return a
    array = np.asarray(a)
    check_numeric(array.dtype)
    return jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _check_kept(x: AnyStored) -> None:
    stored = stored_of(x)
    if isinstance(stored, jax.Array) and not isinstance(stored, jax.core.Tracer) and stored.is_deleted():
        raise ValueError(
            f"the array of shape {x.shape} is deleted: a call with donate=True, or a jit that donates it, took its "
            "storage. Use the result of that call, or leave donate out"
        )


def _setting(x: AnyStored, spec: Spec | None) -> Setting:
    """The setting, cached for all similar arrays if JAX shows the sharding."""
    if isinstance(x, PaddedArray):
        return _padded(x, spec)
    inside = jax.sharding.get_abstract_mesh()
    if isinstance(x, jax.core.Tracer) or not (inside.empty or not mapped_axes(inside)) or not is_hashable(spec):
        return _traced(x, spec)
    setting = _concrete(x.shape, x.dtype, x.sharding, spec, wide_types())
    if not inside.empty:
        check_context(setting.mesh)
    return setting


def is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _concrete(shape: tuple[int, ...], dtype: np.dtype, sharding: Sharding, spec: Spec | None, wide: bool) -> Setting:
    mesh, spec = concrete_placement(sharding, len(shape), spec)
    devices = tuple(sharding.device_set) if mesh is None else tuple(mesh.devices.flat)
    machine = machine_of(mesh, devices[0].platform)
    return Setting(_divided(shape, mesh, spec), mesh, machine, dtype, room=room(devices), wide=wide)


def _traced(x: Array, spec: Spec | None) -> Setting:
    mesh, spec = placement(x, spec)
    check_context(mesh)
    machine = machine_of(mesh, jax.default_backend())
    return Setting(_divided(x.shape, mesh, spec), mesh, machine, x.dtype, wide=wide_types())


def _divided(shape: tuple[int, ...], mesh: AnyMesh | None, spec: Spec) -> Layout:
    start = from_block(shape, mesh, spec)
    if not start.even:
        remedy = "use mf.shard(x, mesh, spec), which stores any size, or give a spec whose mesh axes divide it"
        raise ValueError(f"shape {start.shape} is not divided by spec {start.spec}: {remedy}")
    return start


def _padded(x: PaddedArray, spec: Spec | None) -> Setting:
    layout, mesh = x.layout, mesh_here(x.mesh, x.layout)
    check_context(mesh)
    seen, stored = layout.within(mapped_axes(mesh)), np.shape(x.stored)
    if seen != stored:
        raise ValueError(
            f"a padded array of shape {layout.shape} is stored as {seen}, this one as {stored}: let vmap take and "
            "leave leading dimensions only, and change stored arrays by y.map(...)"
        )
    if spec is not None and from_spec(layout.shape, axis_sizes(mesh), spec) != layout:
        raise ValueError(f"spec {spec} is given, but the array is sharded as {layout.spec}: drop spec=")
    machine, memory = machine_of(mesh, jax.default_backend()), room_of(x.stored, mesh)
    return Setting(layout, mesh, machine, x.dtype, room=memory, wide=wide_types())


def fitted(x: ArrayLike | PaddedArray, layout: Layout, mesh: AnyMesh | None) -> AnyStored:
    """An array for a plan with this layout; a NumPy array is put on the mesh first."""
    if not isinstance(stored_of(x), jax.core.Tracer):
        check_context(mesh, "the plan's")
    if isinstance(x, jax.Array | PaddedArray):
        _check_kept(x)
    if isinstance(x, PaddedArray):
        return _fitted_padded(x, layout, mesh)
    if not isinstance(x, jax.Array):
        _check_shape(np.shape(x), layout.shape)
        x = stored_on(np.asarray(x), mesh, layout.spec) if isinstance(mesh, Mesh) else jnp.asarray(x)
        if isinstance(x, PaddedArray):
            return x
    if not layout.even:
        what = "it cannot be told from data" if x.shape != layout.shape else "its sizes do not divide"
        raise ValueError(
            f"the plan takes {layout.shape} padded to {layout.storage}, the array has shape {x.shape} and "
            f"{what}: use mf.shard(x, plan.mesh, {layout.spec}) of the logical array"
        )
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
    return settled(x, mesh, layout.spec)


def _check_shape(shape: tuple[int, ...], wanted: tuple[int, ...], where: str = "") -> None:
    if shape != wanted:
        raise ValueError(f"the array has shape {shape}, {where}the plan takes {wanted}")


@functools.lru_cache(maxsize=1024)
def _check_sharded(sharding: Sharding, layout: Layout, mesh: AnyMesh | None) -> None:
    """Raises ValueError unless an array of this sharding is cut as a plan takes it."""
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
    seen = layout.within(mapped_axes(mesh_here(mesh)))
    if x.layout != layout or np.shape(x.stored) != seen:
        raise ValueError(
            f"the array has shape {x.shape} cut as {x.spec} and stored as {np.shape(x.stored)}, the plan takes "
            f"{layout.shape} cut as {layout.spec} and stored as {seen}: give it such a one, by mf.shard or out_spec="
        )
    if axis_sizes(x.mesh) != axis_sizes(mesh):
        raise ValueError(
            f"the array lies on mesh {axis_sizes(x.mesh)}, the plan is for {axis_sizes(mesh)}: use one mesh"
        )
    return x


class OnArrays(Protocol[P, S]):
    """A function of arrays, with result S for planes; for a jax.Array a jax.Array, if the mesh divides the result."""

    @overload
    def __call__(self, a: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> Array: ...
    @overload
    def __call__(self, a: PaddedArray, /, *args: P.args, **kwargs: P.kwargs) -> AnyStored: ...
    @overload
    def __call__(self, a: tuple[OnePlane, ...], /, *args: P.args, **kwargs: P.kwargs) -> S: ...


def on_arrays(function: Function[P]) -> OnArrays[P, PlanePair]:
    return cast(OnArrays[P, PlanePair], function)


def method_on_arrays(method: Callable[Concatenate[Any, AnyArray, P], Transformed]) -> OnArrays[P, Array | PlanePair]:
    return cast(OnArrays[P, Array | PlanePair], method)
