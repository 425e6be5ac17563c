"""What goes into every row: versions, commit, machine, how busy it is, date and command."""

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

import jax

from meshfft.extras import version_of


def circumstances(packages: Sequence[str]) -> dict[str, Any]:
    """The circumstances of a measurement that begins now, and the versions of these packages."""
    return {
        "versions": {package: version_of(package) for package in packages},
        "device": jax.devices()[0].device_kind,
        "cpu": cpu_model(),
        "cores": cores(),
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit() or "unknown",
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
    }


def made_by(*packages: str) -> dict[str, str]:
    """Versions of meshfft, JAX and further packages, and where this runs from a source tree its commit, for rows."""
    versions, tree = {name: version_of(name) for name in ("meshfft", "jax", *packages)}, commit()
    return {**versions, "commit": tree} if tree else versions


def commit() -> str:
    """The commit of the repository that this runs from; empty where it runs from none."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """What the machine's processor is called."""
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.processor() or platform.machine()
