"""Rows: the versions and the commit they were made by, and whether their file can be written."""

import subprocess
from pathlib import Path

from .info import version_of


def made_by(*packages: str) -> dict[str, str]:
    """Versions of meshfft, JAX and further packages, and where this runs from a source tree its commit."""
    found = {name: version_of(name) for name in ("meshfft", "jax", *packages)}
    return {**found, "commit": commit()} if commit() else found


def check_rows(rows: Path) -> None:
    """Refuses a file of rows that could not be written, before any work is done for it.

    Raises:
        OSError: its folder does not exist, or it is a folder itself.
    """
    folder = rows.resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: make it first, or write elsewhere")
    if rows.is_dir():
        raise IsADirectoryError(f"{rows} is a folder: name a file for the rows")


def commit() -> str:
    """The commit of the source tree that this runs from; empty where it runs from none."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
