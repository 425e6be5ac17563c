"""How much memory this process takes, and how it is kept to what it uses."""

import contextlib
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

KEPT_BYTES = 2**17
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as glibc's mallopt numbers them


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
