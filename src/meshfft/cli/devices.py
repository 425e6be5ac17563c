"""The devices a mesh asks for: the machine's own where there are enough, else CPU devices that share its cores."""

import contextlib
import math
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from ..errors import check


def start_mesh(sizes: dict[str, int]) -> Mesh:
    """A mesh of running devices. It has to come before any other use of JAX in the process.

    Raises:
        ValueError: JAX runs already, or is bound to one kind of device, and there are too few.
    """
    devices = _devices(math.prod(sizes.values()))
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), _auto(sizes), devices=devices)


def describe_mesh(sizes: dict[str, int]) -> AbstractMesh:
    """A mesh without devices, for planning."""
    return AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=_auto(sizes))


def use_float64() -> None:
    """Lets JAX compute in double precision."""
    jax.config.update("jax_enable_x64", True)


def _devices(count: int) -> list[Any]:
    with contextlib.suppress(RuntimeError):  # JAX runs already: take the devices it has
        jax.config.update("jax_num_cpu_devices", count)
    devices = jax.devices()
    if len(devices) < count:
        devices = jax.devices("cpu")
    found = f"there are {len(devices)} {devices[0].platform} devices"
    check(len(devices) >= count, f"the mesh has {count} devices and {found}: give a smaller --mesh")
    return devices[:count]


def _auto(sizes: dict[str, int]) -> tuple[AxisType, ...]:
    return (AxisType.Auto,) * len(sizes)
