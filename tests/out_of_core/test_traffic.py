"""Out of core, as the system counts it: bytes read and written are those of the plan, memory is within the budget."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import PIPES, fresh, python

HERE = Path(__file__).parent.parent
COUNTED = pytest.mark.skipif(not Path("/proc/self/io").is_file(), reason="the system does not count bytes")
pytestmark = [pytest.mark.slow, COUNTED]


def test_each_chunk_is_read_and_written_once(tmp_path: Path) -> None:
    """Catches chunks that every device reads or writes again, chunks that do not fit the tiles of the inverse, and
    plans with other numbers: .npy, Zarr, HDF5 and NIfTI on 1, 2 and 8 devices, forward, inverse and resumed, within 5
    %."""
    ran = python(str(HERE / "traffic_process.py"), str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert len(found) == 28
    for run in found:
        assert run["moved"] == pytest.approx(run["planned"], rel=0.05), run
        assert run.get("error", 0) < 1e-6, run


def test_memory_covers_all_that_grows(tmp_path: Path) -> None:
    """Catches buffers of tensorstore and copies of blocks that no plan counts, memory that the C library keeps, and a
    wrong baseline: the peak is the system's count, less the memory before the first tile."""
    shape, budget = (96, 256, 256), 16 * 10**6
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal(shape, np.float32))
    words = ("transform", str(tmp_path / "x.npy"), str(tmp_path / "y.zarr"), "--mesh", "2", "--memory", "16MB")
    process = subprocess.Popen([sys.executable, "-m", "meshfft.cli.app", *words, "--json"], env=fresh(), **PIPES)
    peak = 0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.01)
    printed, errors = process.communicate()
    assert process.returncode == 0, errors
    row = json.loads(printed)
    assert row["read_bytes"] + row["written_bytes"] > 10 * budget
    assert row["baseline_resident_bytes"] + budget / 20 < peak <= row["baseline_resident_bytes"] + budget
    assert row["peak_resident_bytes"] == pytest.approx(peak, rel=0.01)


def resident(process: int) -> int:
    """The most bytes that a process has had in memory; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return max((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), default=0)
