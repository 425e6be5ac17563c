"""Rows: one record for everything that is measured or modelled here, a JSON object a line.

    row = columns of the benchmark + versions, device, cpu, cores, load_before, date, commit, command

`meshfft profile` writes the device, and versions in `made_by`.
"""

import ast
import contextlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax

from meshfft.atomic import replacing
from meshfft.extras import version_of

Values = dict[str, Any]
Kind = TypeVar("Kind")
OWN = ("meshfft", "jax", "jaxlib", "numpy")
ROOT = Path(__file__).resolve().parents[1]
CODE = ("src", "benchmarks/*.py", "pyproject.toml")  # pages, results, docstrings and comments change no row


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


def write(path: Path | None, rows: Iterable[Values], *packages: str) -> None:
    if path is not None:
        with replacing(path, overwrite=True) as temporary:
            list(kept(temporary, rows, *packages))


def kept(path: Path | None, rows: Iterable[Values], *packages: str) -> Iterator[Values]:
    """Rows as they are made, each appended before the next is begun, with the circumstances that it lacks."""
    made: Values = {}
    for row in rows:
        if path is not None:
            made = made or circumstances(*packages)
            with path.open("a") as file:
                file.write(json.dumps({**row, **{k: made[k] for k in made if k not in row}}) + "\n")
        yield row


def read(path: Path) -> list[Values]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def find(rows: Iterable[Values], **wanted: Any) -> list[Values]:
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def grouped(rows: Iterable[Kind], key: Callable[[Kind], Hashable]) -> list[list[Kind]]:
    found: dict[Hashable, list[Kind]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def commit() -> str:
    """The last commit that changed the code of rows, with "-dirty" if it has other changes; empty outside a clone."""
    if not (ROOT / ".git").exists():
        return ""
    try:
        last = next(filter(_changed_code, _git("rev-list", "HEAD", "--", *CODE).split()), "")
        return last + "-dirty" * bool(_git("status", "--porcelain", "--", *CODE))
    except (OSError, subprocess.CalledProcessError):
        return ""


def _changed_code(one: str) -> bool:
    """Whether a commit changed more than docstrings and comments. A merge did."""
    if len(parents := _git("rev-list", "--parents", "-1", one).split()[1:]) != 1:
        return True
    changes = _git("diff", "--name-status", "--no-renames", *parents, one, "--", *CODE).splitlines()
    return any(kind != "M" or _code(one, name) != _code(parents[0], name) for kind, name in map(str.split, changes))


def _code(one: str, name: str) -> str:
    """A file of a commit; Python without docstrings and comments."""
    text = _git("show", f"{one}:{name}")
    if not name.endswith(".py"):
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.dump(tree)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()):
            return found[1]
    return platform.processor() or platform.machine()
