"""Requests: what a caller gave, looked at once: its arrays, where they lie, and what would compute there.

An array is anything NumPy takes, a PaddedArray, or a tuple of two planes (re, im). What is not numbers is a `Setting`:
hashable host data, by which plans are cached.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Sharding

from ..layout.layout import AnyMesh, Layout, Spec, axis_sizes, from_block, from_spec, hashed_once, mapped_axes
from ..layout.memory import Room, room, room_of
from ..layout.padded_array import PaddedArray
from ..layout.placement import concrete_placement, mesh_here, placement
from ..machine.machine import Machine
from ..machine.topology import machine_of
from ..numerics.dtypes import check_numeric, wide_types


class PlanePair(NamedTuple):
    """The real and imaginary planes of a complex array."""

    re: Array | PaddedArray
    im: Array | PaddedArray


@hashed_once
@dataclasses.dataclass(frozen=True)
class Setting:
    """Where an array lies, and what computes there.

    Attributes:
        start: the layout the array comes in.
        mesh: its mesh; None on one device.
        machine: what prices steps there.
        dtype: the array's type, or that of its planes.
        many: how many arrays it comes as: one, or two planes.
        room: the memory of each device; None where it is not known, as while JAX traces.
        wide: whether 64-bit types are on: integers are then computed in them.
    """

    start: Layout
    mesh: AnyMesh | None
    machine: Machine
    dtype: np.dtype
    many: int = 1
    room: Room | None = None
    wide: bool = False

    @property
    def real(self) -> bool:
        """Whether the array is of real numbers."""
        return self.many == 1 and self.dtype.kind != "c"


class Request(NamedTuple):
    """An array, or its planes, and their setting; `planes` says that planes are returned."""

    arrays: tuple[Any, ...]
    setting: Setting
    planes: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array; inside a caller's shard_map what is given is a block of it."""
        return self.setting.start.shape


def read(a: Any, spec: Spec | None = None) -> Request:
    """The request that an argument makes.

    Raises:
        ValueError, TypeError: it is no array of numbers, its planes differ, or `spec` does not fit.
    """
    arrays, planes = received(a), is_planes(a)
    setting = _setting(arrays[0], spec)
    for plane in arrays[1:]:
        other = _setting(plane, spec).start
        same = other == setting.start
        if not same:
            raise ValueError(f"the planes are sharded as {setting.start.spec} and {other.spec}: shard them alike")
    return Request(arrays, setting if len(arrays) == 1 else dataclasses.replace(setting, many=2), planes)


def received(a: Any) -> tuple[Any, ...]:
    """The argument as one array or two planes, refused by name where it is no array of numbers."""
    return tuple(map(_array, parts(a)))


def parts(a: Any) -> tuple[Any, ...]:
    """The argument as it came, or its planes: a tuple of arrays. A list of arrays is an array, as in NumPy.

    Raises:
        ValueError, TypeError: planes that do not match, or are not real.
    """
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


def is_planes(a: Any) -> bool:
    """True for planes: (re, im), or (re,) of a real array."""
    return isinstance(a, tuple) and len(a) in (1, 2) and all(hasattr(part, "dtype") for part in a)


def formed(arrays: tuple[Array | PaddedArray, ...]) -> Any:
    """What a caller gets: an array, or a pair of planes."""
    return arrays[0] if len(arrays) == 1 else PlanePair(*arrays)


def _array(a: Any) -> Any:
    if isinstance(a, jax.Array | PaddedArray):
        check_numeric(a.dtype)
        return a
    array = np.asarray(a)
    check_numeric(array.dtype)
    return jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _setting(x: Any, spec: Spec | None) -> Setting:
    """That of an array: looked at once for all that are alike, where JAX shows the sharding."""
    if isinstance(x, PaddedArray):
        return _padded(x, spec)
    if isinstance(x, jax.core.Tracer) or mapped_axes(jax.sharding.get_abstract_mesh()) or not is_hashable(spec):
        return _traced(x, spec)
    return _concrete(x.shape, x.dtype, x.sharding, spec, wide_types())


def is_hashable(value: Any) -> bool:
    """Whether a cache can take it."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _concrete(shape: tuple[int, ...], dtype: np.dtype, sharding: Sharding, spec: Spec | None, wide: bool) -> Setting:
    mesh, found = concrete_placement(sharding, len(shape), spec)
    devices = tuple(sharding.device_set) if mesh is None else tuple(mesh.devices.flat)
    machine = machine_of(mesh, devices[0].platform)
    return Setting(_divided(from_block(shape, mesh, found)), mesh, machine, dtype, room=room(devices), wide=wide)


def _traced(x: Any, spec: Spec | None) -> Setting:
    mesh, found = placement(x, spec)
    start, machine = _divided(from_block(x.shape, mesh, found)), machine_of(mesh, jax.default_backend())
    return Setting(start, mesh, machine, x.dtype, wide=wide_types())


def _divided(start: Layout) -> Layout:
    remedy = "use mf.shard(x, mesh, spec), which stores any size, or give a spec whose mesh axes divide it"
    if not start.even:
        raise ValueError(f"shape {start.shape} is not divided by spec {start.spec}: {remedy}")
    return start


def _padded(x: PaddedArray, spec: Spec | None) -> Setting:
    """Where a padded array says that it lies."""
    layout, mesh = x.layout, mesh_here(x.mesh, x.layout)
    seen, stored = layout.within(mapped_axes(mesh)), np.shape(x.stored)
    if seen != stored:
        raise ValueError(
            f"a padded array of shape {layout.shape} is stored as {seen}, this one as {stored}: let vmap take and "
            "leave leading dimensions only, and change stored arrays by y.map(...)"
        )
    same = spec is None or from_spec(layout.shape, axis_sizes(mesh), spec) == layout
    if not same:
        raise ValueError(f"spec {spec} is given, but the array is sharded as {layout.spec}: drop spec=")
    machine, memory = machine_of(mesh, jax.default_backend()), room_of(x.stored, mesh)
    return Setting(layout, mesh, machine, x.dtype, room=memory, wide=wide_types())
