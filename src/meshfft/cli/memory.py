"""How much memory is free, on the machine, within what its containers and jobs may take, or on a device; and how much
this process takes, and how it is kept to what it uses."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

KEPT_BYTES = 2**17
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as glibc's mallopt numbers them


class Files(NamedTuple):
    """Where a control group writes its limit and use, and the line of memory.stat for cached files it can drop."""

    limit: str
    use: str
    cache: str


VERSION_1 = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = Files("memory.max", "memory.current", "inactive_file")


def check_memory(peak_bytes: int, devices: Sequence[Any], processes: int = 1) -> None:
    """Refuses a transform whose peak (bytes on each device) does not fit where it is to run.

    Args:
        peak_bytes: what each device takes.
        devices: the devices of this process.
        processes: how many processes with as many devices share this machine.

    Raises:
        MemoryError: it needs more than is free.
    """
    kind, count = devices[0].platform, len(devices) * processes
    if kind == "cpu":  # all devices share the host's memory
        need, remedy = peak_bytes * count, "--precision float32 or a machine with more memory"
    else:
        need, remedy = peak_bytes, "--precision float32 or a mesh of more devices"
    free = free_bytes(devices)
    shares = f"{peak_bytes / 1e9:.3g} GB on each of {count} {kind} devices"
    text = (
        f"the transform takes {need / 1e9:.3g} GB at its peak ({shares}) and {free / 1e9:.3g} GB are free: use {remedy}"
    )
    if not need <= free:
        raise MemoryError(text)


def free_bytes(devices: Sequence[Any]) -> int:
    """Bytes free for all CPU devices of this machine together, or on one accelerator."""
    return available_bytes() if devices[0].platform == "cpu" else device_bytes(devices[0])


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes this process can still allocate on the host; `root` is where the system's files are."""
    return min([_machine(root), *_groups(root)])


def device_bytes(device: Any) -> int:
    """Bytes free on an accelerator; where it does not tell, the host's, which hold the array once as well."""
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0) if "bytes_limit" in stats else available_bytes()


def _machine(root: Path) -> int:
    """What Linux says can be allocated without swapping; elsewhere, all the memory there is."""
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _groups(root: Path) -> Iterator[int]:
    """What is left in every control group this process is in: its own, and those around it."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers in ("", "memory"):
            top = root / "sys/fs/cgroup" / controllers
            own = top / name.lstrip("/")
            for folder in [own, *own.parents][: len(own.parts) - len(top.parts) + 1]:
                yield from _left(folder, VERSION_1 if controllers else VERSION_2)


def _left(folder: Path, files: Files) -> Iterator[int]:
    limit, use = _text(folder / files.limit).strip(), _text(folder / files.use).strip()
    if limit.isdecimal() and use.isdecimal():  # version 2 writes "max" for no limit, version 1 a number near 2**63
        lines = (line.split() for line in _text(folder / "memory.stat").splitlines())
        cache = next((int(count) for name, count in lines if name == files.cache), 0)
        yield max(0, int(limit) - int(use) + cache)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


class Resident(NamedTuple):
    """Bytes of memory: what the process took at the most before any piece, and in all."""

    baseline: int
    peak: int


class Watch:
    """Passes on which part begins; notes what the process takes when the first pass does.

    By then Python, JAX and the compiled programs are there, and nothing of the array is.
    """

    def __init__(self, begin: Callable[[str], None], tell: Callable[[int], None]) -> None:
        self.pass_on, self.tell, self.baseline = begin, tell, 0

    def begin(self, part: str) -> None:
        if part == "pass 1":
            self.baseline = peak_resident()
            self.tell(self.baseline)
        self.pass_on(part)

    def end(self) -> Resident:
        return Resident(self.baseline, peak_resident())


def peak_resident() -> int:
    """The most bytes that this process has had in memory."""
    with contextlib.suppress(OSError, StopIteration):  # Linux; what getrusage says there, a parent's may be
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def give_back_memory() -> None:
    """Has the C library give memory back as soon as it is freed, where it is glibc.

    It would keep up to 64 MB for later of every buffer's size that it has seen, in each thread: more than a small
    budget in all.
    """
    with contextlib.suppress(OSError, AttributeError):
        library: Any = ctypes.CDLL("libc.so.6")
        library.mallopt(MMAP_THRESHOLD, KEPT_BYTES)
        library.mallopt(TRIM_THRESHOLD, KEPT_BYTES)
