"""Rows: one record for everything that is measured or modelled here, a JSON object a line.

    row = columns of the benchmark + versions, device, cpu, cores, load_before, date, commit, command

`meshfft profile` writes versions alone, in `made_by`.
"""

import contextlib
import functools
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from meshfft.atomic import replacing
from meshfft.extras import version_of

Values = dict[str, Any]
OWN = ("meshfft", "jax", "jaxlib", "numpy")
CODE = ("src", "benchmarks/*.py", "pyproject.toml")  # pages and results change nothing that rows depend on
WRONG = "give a file that --rows wrote"


def circumstances(*packages: str) -> Values:
    """Origin of rows that are measured now: versions of meshfft's packages and these, machine, load, commit."""
    return {
        "versions": {package: version_of(package) for package in dict.fromkeys([*OWN, *packages])},
        "device": jax.devices()[0].device_kind,
        "cpu": cpu_model(),
        "cores": cores(),
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit() or "unknown",
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
    }


def write(path: Path | None, rows: Iterable[Mapping[str, Any]], *packages: str) -> None:
    """Writes rows in place of older ones, with their circumstances if they lack them."""
    if path is not None:
        with replacing(path, overwrite=True) as temporary:
            append(temporary, rows, *packages)


def append(path: Path | None, rows: Iterable[Mapping[str, Any]], *packages: str) -> None:
    """Appends rows as `write` has them; does nothing without a path."""
    if path is not None:
        made = circumstances(*packages)
        with path.open("a") as file:
            file.writelines(json.dumps({**row, **{k: made[k] for k in made if k not in row}}) + "\n" for row in rows)


def kept(path: Path | None, rows: Iterable[Values], *packages: str) -> Iterator[Values]:
    """Rows as they are made, each appended before the next is begun."""
    for row in rows:
        append(path, [row], *packages)
        yield row


def read(path: Path) -> dict[int, Values]:
    lines = {at: line for at, line in enumerate(path.read_bytes().splitlines(), 1) if line.strip()}
    if not lines:
        raise ValueError(f"{path} holds no row: {WRONG}")
    return {at: _flat(_values(line, f"line {at} of {path}")) for at, line in lines.items()}


def _values(line: bytes, place: str) -> Values:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{place} is no JSON object: {WRONG}, or take the line out")
    return values


def _flat(row: Values) -> Values:
    made = row.pop("made_by", None)
    return row if made is None else {**row, "versions": made, "commit": ""}


def commit() -> str:
    """The last commit that changed the code of rows, with "-dirty" if it has other changes; empty outside a clone."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    git = functools.partial(subprocess.run, cwd=root, capture_output=True, text=True, check=True)
    try:
        last = git(["git", "rev-list", "-1", "HEAD", "--", *CODE]).stdout.strip()
        return last + "-dirty" * bool(git(["git", "status", "--porcelain", "--", *CODE]).stdout)
    except (OSError, subprocess.CalledProcessError):
        return ""


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.processor() or platform.machine()
