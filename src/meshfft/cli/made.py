"""Rows: what they were made by, under which circumstances, and whether their file can be written."""

import contextlib
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import check
from .info import version_of


def made_by(*packages: str) -> dict[str, str]:
    """Versions of meshfft, JAX and further packages, and where this runs from a source tree its commit."""
    return {**{name: version_of(name) for name in ("meshfft", "jax", *packages)}, **_commit()}


def circumstances(packages: Sequence[str]) -> dict[str, Any]:
    """What goes into every row that was measured: versions, commit, machine, how busy it is, date, and the command."""
    import jax

    return {
        "versions": {package: version_of(package) for package in packages},
        "device": jax.devices()[0].device_kind,
        "cpu": cpu_model(),
        "cores": cores(),
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit().get("commit", "unknown"),
        "command": command(),
    }


def command() -> str:
    """What is being run, as one would type it in a clone."""
    script = Path(sys.argv[0]).resolve()
    program = ["python", f"benchmarks/{script.name}"] if script.parent.name == "benchmarks" else ["meshfft"]
    return shlex.join([*program, *sys.argv[1:]])


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """What the machine's processor is called."""
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.processor() or platform.machine()


def check_rows(rows: Path) -> None:
    """Refuses a file of rows that could not be written, before any work is done for it.

    Raises:
        OSError: its folder does not exist, or it is a folder itself.
    """
    folder = rows.resolve().parent
    check(folder.is_dir(), f"{folder} is not a folder: make it first, or write elsewhere", FileNotFoundError)
    check(not rows.is_dir(), f"{rows} is a folder: name a file for the rows", IsADirectoryError)


def _commit() -> dict[str, str]:
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return {}
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return {"commit": subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}
