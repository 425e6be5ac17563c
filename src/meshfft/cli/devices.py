"""The devices a mesh asks for: the machine's own where there are enough, else CPU devices that share its cores."""

import itertools
import math
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

VIRTUAL = 8  # CPU devices, where nobody says how many
MOST_VIRTUAL = 256  # that share the cores of one process: with many more, a collective takes minutes


def start_mesh(sizes: dict[str, int]) -> Mesh:
    """A mesh of running devices, as many of each process. It has to come before any other use of JAX in the process.

    Raises:
        ValueError: JAX runs already, or is bound to one kind of device, and there are too few.
    """
    devices = _devices(math.prod(sizes.values()))
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), _auto(sizes), devices=devices)


def start_devices(count: int | None, flag: str = "--mesh") -> list[Any]:
    """So many running devices: the machine's where there are enough, else CPU devices that share its cores.

    Without a number, all accelerators of the machine, or VIRTUAL CPU devices. It has to come before any other use of
    JAX in the process.

    Raises:
        ValueError: JAX runs already, or is bound to one kind of device, and there are fewer than the flag asks for.
    """
    if count is None:
        _make_virtual(VIRTUAL)
        return list(jax.devices())
    found = _running(count, flag)
    many = f"{len(found)} {found[0].platform} devices"
    if len(found) < count:
        raise ValueError(f"{flag} asks for {count} devices and there are {many}: give fewer")
    return found[:count]


def describe_mesh(sizes: dict[str, int]) -> AbstractMesh:
    """A mesh without devices, for planning."""
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=_auto(sizes))


def mesh_here(sizes: dict[str, int]) -> Mesh | AbstractMesh:
    """The mesh that would run here, for planning: the machine's devices, or where they are fewer as many CPU devices,
    which are not started."""
    count, devices = math.prod(sizes.values()), jax.devices()
    if count <= len(devices):
        return jax.make_mesh(tuple(sizes.values()), tuple(sizes), _auto(sizes), devices=devices[:count])
    kind = jax.make_mesh((1,), ("x",), devices=jax.devices("cpu")[:1]).abstract_mesh.abstract_device
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=_auto(sizes), abstract_device=kind)


def use_float64() -> None:
    """Lets JAX compute in double precision."""
    jax.config.update("jax_enable_x64", True)


def local_devices(mesh: Mesh) -> list[Any]:
    """The devices of a mesh that this process holds."""
    return [device for device in mesh.devices.flat if device.process_index == jax.process_index()]


def check_virtual(count: int, flag: str) -> None:
    """Refuses more virtual CPU devices than one process can have."""
    text = f"{flag} asks for {count} devices of one process, which can have {MOST_VIRTUAL} virtual ones at most"
    if not count <= MOST_VIRTUAL:
        raise ValueError(f"{text}: give fewer, or plan for a described machine with meshfft plan")


def _devices(count: int) -> list[Any]:
    return _shared_out(_running(count), count, jax.process_count())


def _running(count: int, flag: str = "--mesh") -> list[Any]:
    """The machine's devices, or where they are fewer its CPU devices, which are so many if JAX starts with this."""
    _make_virtual(count, flag)
    devices = jax.devices()
    if len(devices) < count and jax.process_count() == 1:
        devices = jax.devices("cpu")
    return list(devices)


def _make_virtual(count: int, flag: str = "--mesh") -> None:
    try:
        jax.config.update("jax_num_cpu_devices", min(count, MOST_VIRTUAL))
    except RuntimeError:  # JAX runs already: take the devices it has
        return
    check_virtual(count, flag)


def _shared_out(devices: list[Any], count: int, processes: int) -> list[Any]:
    """So many devices, an equal share of each process."""
    found = f"there are {len(devices)} {devices[0].platform} devices" + f" of {processes} processes" * (processes > 1)
    if len(devices) < count:
        raise ValueError(f"the mesh has {count} devices and {found}: give a smaller --mesh")
    if count % processes != 0:
        raise ValueError(f"the mesh has {count} devices and {found}: give a multiple of {processes}")
    own = sorted(devices, key=lambda device: (device.process_index, device.id))
    groups = [list(group) for _, group in itertools.groupby(own, lambda device: device.process_index)]
    share = count // processes
    if not min(map(len, groups)) >= share:
        raise ValueError(f"the mesh has {share} devices a process and some have fewer: make it smaller")
    return devices[:count] if processes == 1 else [device for group in groups for device in group[:share]]


def _auto(sizes: dict[str, int]) -> tuple[AxisType, ...]:
    return (AxisType.Auto,) * len(sizes)
