"""Requests: an array as given by a caller, with its placement and machine.

An array is anything NumPy takes, a PaddedArray, or a tuple of two planes (re, im). The rest is a `Setting`, the cache
key of plans.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeGuard, TypeVar, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import get_opaque_trace_state
from jax.sharding import Sharding, SingleDeviceSharding
from jax.typing import ArrayLike

from ..layout.layout import AnyMesh, Layout, Spec, hashed_once
from ..layout.memory import Room, room, room_of
from ..layout.padded_array import AnyArray, AnyStored, OnePlane, PaddedArray, PlanePair, Transformed, stored_of
from ..layout.reading import check_context, is_hashable, is_plain, kept, seen, seen_by_sharding
from ..machine.machine import Machine
from ..machine.topology import machine_of
from ..numerics.dtypes import check_fits, check_numeric, wide_types
from .deferred_primitive import deferred

P = ParamSpec("P")
S = TypeVar("S", covariant=True)
Owner = TypeVar("Owner")
Function = Callable[Concatenate[AnyArray, P], Transformed]
with jax.ensure_compile_time_eval():
    EAGER = get_opaque_trace_state(convention="flax")  # outside of all of JAX's transformations


@hashed_once
@dataclasses.dataclass(frozen=True)
class Setting:
    """An array's placement and machine."""

    start: Layout
    mesh: AnyMesh | None  # None on one device
    machine: Machine
    dtype: np.dtype  # of the array or its planes
    many: int = 1  # arrays: two for planes
    room: Room | None = None  # memory of each device; None if unknown, as while JAX traces
    wide: bool = False  # 64-bit types are on, for integers too

    @property
    def real(self) -> bool:
        return self.many == 1 and self.dtype.kind != "c"


class Request(NamedTuple):
    """An array, or its planes; `planes` if planes are returned."""

    arrays: tuple[AnyStored, ...]
    setting: Setting
    planes: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape; the argument is a block of it inside a caller's shard_map."""
        return self.setting.start.shape


def read(a: AnyArray, spec: Spec | None = None, in_place: bool = False) -> Request:
    """The request of an array. `in_place`: a program of one CPU device, for which the caller waits, may read a NumPy
    array's memory; JAX's copy is a program for each shape.
    """
    if isinstance(a, jax.Array):
        array = _checked(a)
        return Request((array,), _setting(array, spec))
    arrays, planes = received(a, in_place and _is_eager_on_cpu()), is_planes(a)
    setting = _setting(arrays[0], spec)
    if len(arrays) == 1:
        return Request(arrays, setting, planes)
    other = _setting(arrays[1], spec).start
    if other != setting.start:
        raise ValueError(f"the planes are sharded as {setting.start.spec} and {other.spec}: shard them alike")
    return Request(arrays, dataclasses.replace(setting, many=2), planes)


def received(a: AnyArray, in_place: bool = False) -> tuple[AnyStored, ...]:
    """One array or two planes; TypeError if it is no array of numbers."""
    if hasattr(type(a), "turns"):  # Points, or Scattered in nufft/
        raise TypeError(f"the array is {a!r}, which are points: give the array first and the points second")
    return tuple(_array(part, in_place) for part in parts(a))


def parts(a: AnyArray) -> tuple[OnePlane, ...]:
    """A tuple of one array or its matching planes. A list is one array, as in NumPy."""
    if not is_planes(a):
        return (cast(OnePlane, a),)
    re, im = a[0], a[-1]
    if re.shape != im.shape:
        raise ValueError(f"the planes have shapes {re.shape} and {im.shape}: give two of one shape")
    if re.dtype != im.dtype:
        raise TypeError(f"the planes are {re.dtype} and {im.dtype}: give two of one type")
    if re.dtype.kind == "c":
        raise TypeError(f"the planes are {re.dtype}: give real ones, or one complex array")
    return a


def is_planes(a: object) -> TypeGuard[tuple[Array | np.ndarray | PaddedArray, ...]]:
    """True for planes: (re, im), or (re,) of a real array."""
    return isinstance(a, tuple) and len(a) in (1, 2) and all(hasattr(part, "dtype") for part in a)


def formed(arrays: tuple[AnyStored, ...]) -> Transformed:
    return arrays[0] if len(arrays) == 1 else PlanePair(*arrays)


def _checked(a: AnyStored) -> AnyStored:
    check_numeric(a.dtype)
    return kept(a)


def _array(a: ArrayLike | PaddedArray, in_place: bool = False) -> AnyStored:
    if isinstance(a, jax.Array | PaddedArray):
        return _checked(a)
    array = np.asarray(a)
    check_numeric(array.dtype)
    check_fits(array)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not in_place:
        return jnp.asarray(array)
    return cast(Array, array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False))


def on_host(x: object) -> bool:
    return isinstance(x, np.ndarray)


def _is_eager_on_cpu() -> bool:
    if get_opaque_trace_state(convention="flax") != EAGER or not jax.sharding.get_abstract_mesh().empty:
        return False
    (device,) = tuple[jax.Device, ...](_one_device().device_set)
    return device.platform == "cpu"


def _one_device() -> Sharding:
    return _alone(jax.config.jax_default_device)  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=16)
def _alone(default: jax.Device | str | None) -> Sharding:
    return SingleDeviceSharding(default if isinstance(default, jax.Device) else jax.local_devices(backend=default)[0])


def _setting(x: AnyStored, spec: Spec | None) -> Setting:
    here = jax.sharding.get_abstract_mesh()
    if is_plain(x, spec, here):
        setting = _by_sharding(x.shape, x.dtype, x.sharding, spec, wide_types())
        if not here.empty:
            check_context(setting.mesh)
        return setting
    if on_host(x):
        known = _by_sharding if is_hashable(spec) else _by_sharding.__wrapped__
        return known(x.shape, x.dtype, _one_device(), spec, wide_types())
    (start, mesh), stored = seen(x, spec), stored_of(x)
    machine, memory = machine_of(mesh, jax.default_backend()), room_of(stored, mesh)
    return Setting(start, mesh, machine, x.dtype, room=memory, wide=wide_types())


@functools.lru_cache(maxsize=1024)
def _by_sharding(shape: tuple[int, ...], dtype: np.dtype, sharding: Sharding, spec: Spec | None, wide: bool) -> Setting:
    """One record for all similar arrays, which keeps its hash."""
    start, mesh = seen_by_sharding(shape, sharding, spec)
    device: jax.Device = next(iter(sharding.device_set))
    return Setting(start, mesh, machine_of(mesh, device.platform), dtype, room=room(sharding), wide=wide)


class OnArrays(Protocol[P, S]):
    """A function of arrays, with result S for planes, and a jax.Array for one that the mesh divides."""

    @overload
    def __call__(self, a: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> Array: ...
    @overload
    def __call__(self, a: PaddedArray, /, *args: P.args, **kwargs: P.kwargs) -> AnyStored: ...
    @overload
    def __call__(self, a: tuple[OnePlane, ...], /, *args: P.args, **kwargs: P.kwargs) -> S: ...


def on_arrays(function: Function[P]) -> OnArrays[P, PlanePair]:
    """A linear function of an array, which may be deferred."""
    return cast(OnArrays[P, PlanePair], deferred(function))


def on_seen_arrays(function: Function[P]) -> OnArrays[P, PlanePair]:
    """A function that sees its array's cuts, as those of the result follow from them: not deferred."""
    return cast(OnArrays[P, PlanePair], function)


def on_two_arrays(function: Function[P]) -> OnArrays[P, PlanePair]:
    """A function of two arrays of one shape, which may be deferred."""
    return cast(OnArrays[P, PlanePair], deferred(function, arrays=2, linear=False))


def method_on_arrays(method: Callable[Concatenate[Owner, AnyArray, P], Transformed]) -> OnArrays[P, Array | PlanePair]:
    return cast(OnArrays[P, Array | PlanePair], method)
