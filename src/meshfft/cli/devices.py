"""The devices that a mesh asks for, and their free memory.

The machine's accelerators if there are enough, else CPU devices that share its cores. The host's memory is what its
containers and jobs may use.
"""

import contextlib
import ctypes
import math
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from ..io.processes import exchange, together

MOST_VIRTUAL = 256  # CPU devices that share the cores of one process: with many more, a collective takes minutes
CGROUPS = {  # by their names in /proc/self/cgroup, version 2 and 1: limit, use, and cached files that can be dropped
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
KEPT_BYTES = 2**17
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the numbers of glibc's mallopt


def start_mesh(sizes: dict[str, int]) -> Mesh:
    """A mesh of running devices, as many of each process; call it before any other use of JAX."""
    count = math.prod(sizes.values())
    devices, processes = running_devices(count, "--mesh"), jax.process_count()
    there = f"there are {len(devices)} {devices[0].platform} devices" + f" of {processes} processes" * (processes > 1)
    if len(devices) < count:
        raise ValueError(f"the mesh has {count} devices and {there}: give a smaller --mesh")
    if count % processes != 0:
        raise ValueError(f"the mesh has {count} devices and {there}: give a multiple of {processes}")
    share = count // processes
    if processes > 1:
        devices = [device for process in range(processes) for device in jax.local_devices(process)[:share]]
        if len(devices) < count:
            raise ValueError(f"the mesh has {share} devices a process and some have fewer: make it smaller")
    return _mesh(sizes, devices)


def _mesh(sizes: dict[str, int], devices: Sequence[jax.Device]) -> Mesh:
    axes = (AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axes, devices=devices[: math.prod(sizes.values())])


def running_devices(count: int, flag: str) -> list[jax.Device]:
    """The machine's devices, or its CPU devices if those are too few: `count` of them if JAX starts with this."""
    try:
        jax.config.update("jax_num_cpu_devices", min(count, MOST_VIRTUAL))
    except RuntimeError:  # JAX has started: take the devices it has
        pass
    else:
        check_virtual(count, flag)
    devices = jax.devices()
    return devices if len(devices) >= count or jax.process_count() > 1 else jax.devices("cpu")


def describe_mesh(sizes: dict[str, int]) -> AbstractMesh:
    return AbstractMesh(tuple(sizes.values()), tuple(sizes))


def mesh_here(sizes: dict[str, int]) -> Mesh | AbstractMesh:
    """The mesh that would run here, for planning; of CPU devices that are not started if there are too few devices."""
    if math.prod(sizes.values()) <= len(jax.devices()):
        return _mesh(sizes, jax.devices())
    kind = jax.make_mesh((1,), ("x",), devices=jax.devices("cpu")[:1]).abstract_mesh.abstract_device
    described: AbstractMesh = describe_mesh(sizes).update(abstract_device=kind)
    return described


def check_virtual(count: int, flag: str) -> None:
    if count > MOST_VIRTUAL:
        text = f"{flag} asks for {count} devices of one process, which can have {MOST_VIRTUAL} virtual ones at most"
        raise ValueError(f"{text}: give fewer, or plan for a described machine with meshfft plan")


def check_run(peak_bytes: int, devices: Sequence[jax.Device]) -> None:
    """Refuses in all processes what does not fit in the memory of one: bytes of each of its devices."""
    hosts = exchange(socket.gethostname())
    together(lambda: check_memory(peak_bytes, devices, hosts.count(socket.gethostname())))


def check_memory(peak_bytes: int, devices: Sequence[jax.Device], processes: int = 1) -> None:
    """Refuses what does not fit: bytes of each device, in each of the processes that share this machine."""
    kind, count = devices[0].platform, len(devices) * processes
    if kind == "cpu":  # all devices share the host's memory
        need, free, remedy = peak_bytes * count, available_bytes(), "a machine with more memory"
    else:
        need, free, remedy = peak_bytes, device_bytes(devices[0]), "a mesh of more devices"
    if need > free:
        shares = f"{peak_bytes / 1e9:.3g} GB on each of {count} {kind} devices"
        sizes = f"{need / 1e9:.3g} GB at its peak ({shares}) and {free / 1e9:.3g} GB are free"
        raise MemoryError(f"the transform takes {sizes}: use --precision float32 or {remedy}")


def device_bytes(device: jax.Device) -> int:
    """Bytes free on an accelerator; without statistics, on the host, which also holds the array once."""
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else available_bytes()


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes this process can still allocate on the host, in all its control groups; `root` has the system's files."""
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
    import resource  # Windows does not have it, and on Linux it may report a parent's

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def give_back_memory() -> None:
    """Makes glibc return freed memory to the system; it would keep up to 64 MB of each size a thread."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(MMAP_THRESHOLD, KEPT_BYTES)
        library.mallopt(TRIM_THRESHOLD, KEPT_BYTES)
