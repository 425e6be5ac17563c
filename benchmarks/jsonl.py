"""Rows as files: one JSON object a line."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from meshfft.atomic import replacing

from .made import circumstances


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows in place of what was there."""
    with replacing(path, overwrite=True) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))


def append(path: Path | None, rows: Iterable[Mapping[str, Any]], packages: Iterable[str] = ()) -> None:
    """Appends rows, each with the circumstances and the versions of meshfft, JAX, NumPy and these packages.

    Does nothing without a path.
    """
    if path is not None:
        facts = circumstances(("meshfft", "jax", "jaxlib", "numpy", *packages))
        with path.open("a") as file:
            file.writelines(json.dumps({**row, **facts}) + "\n" for row in rows)
