"""What a row of measurements was measured with: versions, processor, commit."""

import contextlib
import importlib.metadata
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

HERE = Path(__file__).resolve().parent


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.processor() or platform.machine()


def git_commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def circumstances(packages: Sequence[str]) -> dict[str, Any]:
    """What goes into every row; the command is the one being run."""
    return {
        "versions": {package: version(package) for package in packages},
        "device": jax.devices()[0].device_kind,
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
        "commit": git_commit(),
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
    }
