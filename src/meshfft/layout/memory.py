"""Memory limits: raises MemoryError for an array that is too large, before any work.

    bytes of a device's block <= bytes of the device's memory, or of its share of the host's

One array is compared with all memory; `Plan.peak_bytes` counts several. While JAX traces, memory is unknown.
"""

import functools
import math
import os
from typing import NamedTuple

import jax
from jax.sharding import AbstractMesh, Mesh, Sharding

from ..numerics.units import quantity
from .layout import AnyMesh, Layout

COUNTED = 2**63 - 1  # bytes of an array over all devices, beyond which XLA ends the process


class Room(NamedTuple):
    """Bytes of a memory, or of a share of it, and its owner."""

    nbytes: float
    owner: str


@functools.lru_cache(maxsize=1)
def host() -> Room:
    """All memory of this host; infinite if unknown."""
    known = hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys()
    return Room(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else float("inf"), "this host")


@functools.lru_cache(maxsize=64)
def room(devices: tuple[jax.Device, ...]) -> Room:
    """The memory of each device; CPU devices share the host's."""
    near = [device for device in devices if device.process_index == jax.process_index()]
    if not near:
        return Room(float("inf"), "another process")
    if near[0].platform == "cpu":
        share = f"each of the {len(near)} CPU devices" if len(near) > 1 else host().owner
        return Room(host().nbytes / len(near), share)
    return Room((near[0].memory_stats() or {}).get("bytes_limit", float("inf")), f"each {near[0].device_kind}")


def check_held(nbytes: int, what: str, remedy: str, where: Room | None = None) -> None:
    where = where or host()
    if nbytes > where.nbytes:
        there = f"{where.owner} has {quantity(where.nbytes, 'B')}"
        raise MemoryError(f"{what} takes {quantity(nbytes, 'B')} and {there}: {remedy}")


def check_blocks(layout: Layout, itemsize: int, where: Room | None, what: str) -> None:
    """Raises MemoryError if an array, or its block on each device, is too large."""
    block, remedy = itemsize * math.prod(layout.block), "make it smaller, or cut it over more devices"
    if (nbytes := block * math.prod(layout.parts)) > COUNTED:
        size = f"{quantity(nbytes, 'B')}, more than XLA can count"
        raise MemoryError(f"{what} of shape {layout.shape} takes {size}: {remedy}")
    if where is not None and block > where.nbytes:
        check_held(block, f"{what} of shape {layout.shape}, on each device,", remedy, where)


def room_of(x: object, mesh: AnyMesh | None) -> Room | None:
    """The memory of each device of an array; None while JAX traces, or for a described mesh."""
    if isinstance(x, jax.core.Tracer) or isinstance(mesh, AbstractMesh):
        return None
    if mesh is None:
        return _room_of(x.sharding) if isinstance(x, jax.Array) else None
    return _room_on(mesh)


@functools.lru_cache(maxsize=64)
def _room_of(sharding: Sharding) -> Room:
    return room(tuple(sharding.device_set))


@functools.lru_cache(maxsize=64)
def _room_on(mesh: Mesh) -> Room:
    return room(tuple(mesh.devices.flat))
