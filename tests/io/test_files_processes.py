"""One file that several processes write: each its own blocks, and all of it or nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from addresses import free_address
from array_files import h5py, nibabel, zarr
from commands import PIPES, fresh

from meshfft.io import Record, open_array

SCRIPT = Path(__file__).parent.parent / "write_process.py"
pytestmark = pytest.mark.slow
SHAPE, KINDS = (15, 12, 7), (".npy", ".zarr", ".h5", ".nii.gz")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder that two processes wrote to, and the output of each."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "elsewhere").mkdir()
    address = free_address()
    commands = [[sys.executable, str(SCRIPT), address, str(index), "2", str(folder)] for index in range(2)]
    started = [subprocess.Popen(command, env=fresh(), **PIPES) for command in commands]
    ended = [process.communicate(timeout=120) for process in started]
    assert not any(process.returncode for process in started), [error[-3000:] for _, error in ended]
    return folder, [json.loads(next(line for line in out.splitlines() if line.startswith("{"))) for out, _ in ended]


def test_each_process_writes_its_blocks(ran: Any) -> None:
    """Catches blocks that no process wrote or two did, and a file that one of them does not see."""
    folder, found = ran
    values = np.random.default_rng(0).standard_normal(SHAPE, dtype="float32")
    spectrum = np.fft.rfftn(values)
    np.testing.assert_array_equal(np.load(folder / "x.npy"), values)
    np.testing.assert_array_equal(zarr.open_array(folder / "x.zarr" / "data", mode="r")[...], values)
    np.testing.assert_allclose(np.load(folder / "y.npy"), spectrum, atol=1e-4)
    np.testing.assert_allclose(zarr.open_array(folder / "y.zarr" / "data", mode="r")[...], spectrum, atol=1e-4)
    with h5py.File(folder / "x.h5") as file:
        np.testing.assert_array_equal(file["data"], values)
    with h5py.File(folder / "y.h5") as file:
        np.testing.assert_allclose(file["data"], spectrum, atol=1e-4)
    for name, truth in (("x", values), ("y", spectrum)):
        np.testing.assert_allclose(nibabel.load(folder / f"{name}.nii.gz").dataobj, truth, atol=1e-4)
    assert all(one[suffix] is None and one[f"any{suffix}"] is None for one in found for suffix in KINDS)
    assert all(one["read"] for one in found)
    assert sum(one["wrote"] for one in found) == 4 * (values.size + spectrum.size)
    assert all(one["wrote"] > values.size // 2 for one in found)
    with open_array(folder / "y.zarr") as source:
        assert Record.from_dict(source.record, "y").kind == "rfft"


def test_processes_refuse_alike(ran: Any) -> None:
    """Catches a refusal in one process that leaves other processes waiting, and one without a remedy."""
    _, found = ran
    for one in found:
        assert "exists: overwrite it" in one["exists"]
        assert "give order 'natural'" in one["tiny"]


def test_a_process_that_fails_fails_all(ran: Any) -> None:
    """Catches a file that gets its name though a process has not written its part, and leftovers."""
    folder, found = ran
    assert found[0]["failed"] == "PeerError: process 1 failed: [Errno 28] No space left on device"
    assert found[1]["failed"].startswith("OSError")
    assert sorted(os.listdir(folder)) == sorted(
        ["alone.npy", "elsewhere", *(f"{name}{kind}" for name in "xy" for kind in KINDS)]
    )


def test_processes_that_see_other_folders(ran: Any) -> None:
    """Catches parts of one array on the disks of several machines."""
    folder, found = ran
    assert "process 1 does not find" in found[1]["unseen"] and "all processes share" in found[1]["unseen"]
    assert "process 1 failed: process 1 does not find" in found[0]["unseen"]
    assert os.listdir(folder / "elsewhere") == []


def test_an_array_of_one_process_is_its_own_business(ran: Any) -> None:
    """Catches processes that wait for one that has nothing to write, and a file that these make."""
    folder, found = ran
    assert [one["alone"] for one in found] == [None, None]
    np.testing.assert_array_equal(np.load(folder / "alone.npy"), np.arange(8))
