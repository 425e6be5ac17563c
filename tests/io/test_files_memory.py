"""Memory: a process holds its blocks and a bounded buffer, however large the file (peaks measured by the system)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import python

SCRIPT = Path(__file__).parent.parent / "memory_process.py"
pytestmark = pytest.mark.slow
MIB = 256


def ran(folder: Path, way: str, source: str, target: str) -> dict[str, Any]:
    """Output of the process; its files are removed."""
    try:
        run = python(str(SCRIPT), way, str(folder / f"in{source}"), str(folder / f"out{target}"), str(MIB))
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(("source", "target"), [(".npy", ".zarr"), (".zarr", ".npy"), (".h5", ".npy")])
def test_a_file_larger_than_its_bound(tmp_path: Path, source: str, target: str) -> None:
    """Catches a map that stays, chunks that are kept, and pieces without end: a quarter of the file is the bound."""
    found = ran(tmp_path, "blocks", source, target)
    assert found["right"] and found["grown_mib"] <= MIB // 4


@pytest.mark.parametrize("kind", [".npy", ".zarr"])
def test_blocks_go_to_devices_one_by_one(tmp_path: Path, kind: str) -> None:
    """Catches blocks kept on the host beside those of the devices: the array is held once, and a part of it besides."""
    found = ran(tmp_path, "devices", kind, kind)
    assert found["right"] and found["grown_mib"] <= 1.5 * MIB
