"""Memory: how much there is, and how much is free; raises MemoryError for an array that is too large, before any work.

    bytes of a device's block <= bytes of the device's memory, or of its share of the host's

One array is compared with all memory; `Plan.peak_bytes` counts several.
"""

import contextlib
import ctypes
import functools
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
from jax.sharding import AbstractMesh, Mesh, Sharding

from ..numerics.units import quantity
from .layout import AnyMesh, Layout

COUNTED = 2**63 - 1  # bytes over all devices, beyond which XLA ends the process
CGROUPS = {  # names in /proc/self/cgroup, version 2 and 1: limit, use, droppable cached files
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
KEPT_BYTES = 2**17
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


class Room(NamedTuple):
    """A memory, or a share of it."""

    nbytes: float
    owner: str


@functools.lru_cache(maxsize=1)
def host() -> Room:
    known = hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys()
    return Room(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else float("inf"), "this host")


def allocated(devices: Sequence[jax.Device]) -> int | None:
    """Most bytes that one of the devices has held; None if they do not count them."""
    stats = [device.memory_stats() or {} for device in devices]
    return max((one["peak_bytes_in_use"] for one in stats if "peak_bytes_in_use" in one), default=None)


@functools.lru_cache(maxsize=128)
def room(where: Mesh | Sharding) -> Room:
    """The memory of each of these devices in this process."""
    devices = where.devices.flat if isinstance(where, Mesh) else where.device_set
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
    block, remedy = itemsize * math.prod(layout.block), "make it smaller, or cut it over more devices"
    if (nbytes := block * math.prod(layout.parts)) > COUNTED:
        size = f"{quantity(nbytes, 'B')}, more than XLA can count"
        raise MemoryError(f"{what} of shape {layout.shape} takes {size}: {remedy}")
    if where is not None and block > where.nbytes:
        check_held(block, f"{what} of shape {layout.shape}, on each device,", remedy, where)


def room_of(x: object, mesh: AnyMesh | None) -> Room | None:
    """Memory of each device of an array."""
    if isinstance(x, jax.core.Tracer) or isinstance(mesh, AbstractMesh):
        return None
    if mesh is not None:
        return room(mesh)
    return room(x.sharding) if isinstance(x, jax.Array) else None


def device_bytes(device: jax.Device) -> int:
    """Bytes free on an accelerator; without statistics, on the host."""
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else available_bytes()


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes this process can still allocate on the host, in all its control groups."""
    line = re.search(r"MemAvailable: +(\d+) kB", _text(root / "proc/meminfo"))
    machine = int(line[1]) * 1024 if line else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_left_in_cgroups(root)])


def _left_in_cgroups(root: Path) -> Iterator[int]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controller, name = line.split(":", 2)
        if controller not in CGROUPS:
            continue
        limit_file, use_file, cache_name = CGROUPS[controller]
        top = root / "sys/fs/cgroup" / controller
        own = top / name.lstrip("/")
        for folder in [own, *own.parents][: len(own.parts) - len(top.parts) + 1]:
            limit, use = _text(folder / limit_file).strip(), _text(folder / use_file).strip()
            if limit.isdecimal() and use.isdecimal():  # version 2 writes "max" for no limit, 1 a number near 2**63
                cache = re.search(rf"^{cache_name} (\d+)", _text(folder / "memory.stat"), re.MULTILINE)
                yield max(0, int(limit) - int(use) + (int(cache[1]) if cache else 0))


def peak_resident() -> int:
    if line := re.search(r"VmHWM:\s+(\d+) kB", _text(Path("/proc/self/status"))):
        return int(line[1]) * 1024
    import resource  # Windows lacks it; on Linux it may report a parent's

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def give_back_memory() -> None:
    """Makes glibc return freed memory; it would keep 64 MB of each size a thread."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(MMAP_THRESHOLD, KEPT_BYTES)
        library.mallopt(TRIM_THRESHOLD, KEPT_BYTES)
