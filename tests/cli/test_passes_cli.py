"""`meshfft transform --memory`: passes over the disk, tiles that are kept, and refused memory limits."""

import errno
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray
from commands import call, forbid, refused, values
from reference import error
from typer.testing import CliRunner

from meshfft.cli import cluster
from meshfft.cli.app import app
from meshfft.io import open_array, writing, zarr
from meshfft.out_of_core import journal

pytestmark = pytest.mark.usefixtures("terminal")


def test_arrays_larger_than_memory_go_in_passes() -> None:
    """Catches --memory without effect or heed, a plan that is not shown first, and an output that differs."""
    np.save("a.npy", values())
    printed = call("transform", "a.npy", "b.zarr", "--mesh", "2", "--memory", "9kB")
    assert "passes over the disk" in printed and "pass 1" in printed and "can be resumed" in printed
    assert "Python, JAX and the compiled programs take" in printed
    steps = printed[printed.index("step ") :].splitlines()
    assert steps[0].split() == ["step", "s"] and steps[2].startswith("compile"), "no column of zeros for passes"
    assert float(steps[2].split()[1]) > 0
    record = json.loads(call("transform", "b.zarr", "c.npy", "--inverse", "--memory", "9kB", "--json"))
    assert record["peak_bytes"] <= 9000 and len(record["passes"]) == 2
    assert error(np.load("c.npy"), values()) < 6e-7
    whole = json.loads(call("transform", "a.npy", "d.npy", "--mesh", "2", "--memory", "1MB", "--json"))
    assert "passes" not in whole  # all of it fits
    words = ["transform", "a.npy", "e.npy", "--mesh", "2"]
    assert "560 bytes with its copies, --memory is 100: give at least 895" in refused(*words, "--memory", "0.1kB")
    assert "'6 apples' is no size" in refused(*words, "--memory", "6 apples")
    np.save("w.npy", values().astype("c16"))
    wide = refused("transform", "w.npy", "e.npy", "--mesh", "2", "--memory", "0.1kB")
    assert re.search(r"give at least \d+, or --precision float32$", wide), "flags, not arguments of Python"
    assert "no run to e.npy is unfinished" in refused(*words, "--resume")


def test_passes_are_planned_without_a_file() -> None:
    """Catches a plan of passes that is not the one that runs, and flags that it would ignore."""
    np.save("a.npy", values(np.float32))
    how = ["--mesh", "2,2", "--memory", "9KB", "--json"]
    ran = json.loads(call("transform", "a.npy", "b.zarr", *how))
    planned = json.loads(call("plan", "7,6,5", "--dtype", "float32", *how))
    assert len(planned["passes"]) == 2 and {name: ran[name] for name in planned} == planned
    assert "2 passes over the disk" in call("plan", "7,6,5", "--dtype", "float32", *how[:-1])
    assert "--wire says nothing of passes" in refused("plan", "7,6,5", *how, "--wire", "int16")
    assert "--topology says nothing of passes" in refused("plan", "7,6,5", *how, "--topology", "v3:2x2")


def test_an_interrupt_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches Ctrl-C without a message or without the way to resume; and --resume with another budget, or on another
    mesh with other tiles, refused as a damaged journal."""
    np.save("a.npy", values())
    words, done = ["transform", "a.npy", "b.zarr", "--mesh", "2", "--memory", "9kB"], list[int]()

    def interrupted(*_: Any) -> None:
        done.append(1)
        if len(done) == 3:
            raise KeyboardInterrupt
        add(*_)

    add = journal.Journal.add
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "add", interrupted)
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 130
    said = [line for line in result.stderr.splitlines() if line]
    assert len(said) == 1 and re.search(r"interrupted: 2 of \d+ tiles kept beside b\.zarr", said[0])
    assert "the same command with --resume continues" in said[0]
    assert "has --memory 9000, this one has 10000: leave out --memory" in refused(*words[:-1], "10kB", "--resume")
    assert "mesh {'x': 2}, this one has {'x': 1}: give the same" in refused(*words[:4], "1", *words[5:], "--resume")
    assert "that of the unfinished run, of 2 devices a process, as --mesh 2" in refused(*words[:3], "--resume")
    assert re.search(r"2 of \d+ tiles are done; [\d.]+ kB to read", call(*words, "--resume"))


def test_a_full_disk_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an error in the middle without the way to continue, and that advice before anything was done."""
    np.save("a.npy", values())
    words, done = ["transform", "a.npy", "b.zarr", "--mesh", "2", "--memory", "9kB"], list[int]()

    def full(*_: Any) -> None:
        done.append(1)
        if len(done) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(*_)

    add = journal.Journal.add
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "add", full)
        result = CliRunner().invoke(app, words)
    said = [line for line in result.stderr.splitlines() if line]
    assert result.exit_code == 2 and said[-1].endswith("b.zarr: No space left on device") and len(said) == 2
    assert re.search(r"stopped: 2 of \d+ tiles kept beside b\.zarr: the same command with --resume continues", said[0])
    assert "stopped" not in refused(*words), "an unfinished run is refused before it begins"
    assert "2 of" in call(*words, "--resume")


def test_missing_values_leave_nothing_behind() -> None:
    """Catches finished tiles of a source that has to be changed, after which no run can take them up."""
    holes = values(np.float32)
    holes[-1, -1, -1] = np.nan
    xarray.Dataset({"t": (("z", "y", "x"), holes)}).to_netcdf("a.nc")
    assert "has missing values (nan)" in refused("transform", "a.nc", "b.zarr", "--mesh", "2", "--memory", "9kB")
    assert os.listdir() == ["a.nc"]


def test_passes_go_on_where_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches --resume that starts again, and an unfinished run that is forgotten without it."""
    np.save("a.npy", values())
    words = ["transform", "a.npy", "b.zarr", "--mesh", "2", "--memory", "6kB"]
    flush, done = zarr.ZarrSink.flush, list[int]()

    def full(store: Any) -> None:
        done.append(1)
        if len(done) >= 3:
            raise OSError("No space left on device")
        flush(store)

    with monkeypatch.context() as patch:
        patch.setattr(zarr.ZarrSink, "flush", full)
        assert CliRunner().invoke(app, words).exit_code == 2
    assert sorted(os.listdir()) == [".b.zarr.passes", "a.npy"]
    assert "--resume continues it, --overwrite starts again" in refused(*words)
    call(*words[:-2], "--resume")
    with open_array("b.zarr") as source:
        assert error(source[...], np.fft.fftn(values().astype(complex))) < 4e-7
    assert sorted(os.listdir()) == ["a.npy", "b.zarr"]


def test_too_little_memory_is_refused_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an array read for hours until the system kills the process; the plan is shown all the same."""
    np.save("a.npy", values())
    forbid(monkeypatch)
    monkeypatch.setattr(cluster, "available_bytes", lambda: 1000)
    line = refused("transform", "a.npy", "b.npy", "--mesh", "2")
    assert "1e-06 GB are free" in line and "--precision float32" in line
    assert "per device at the peak" in CliRunner().invoke(app, ["transform", "a.npy", "b.npy", "--mesh", "2"]).stdout


def test_too_little_disk_is_refused_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a result computed for which there is no room, or room counted at half its complex size."""
    np.save("a.npy", values())
    forbid(monkeypatch)
    nbytes = values().nbytes
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: SimpleNamespace(free=nbytes - 1))
    assert "free some" in refused("transform", "a.npy", "b.npy", "--mesh", "2")


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_memory_is_the_hosts_or_a_devices(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    """Catches CPU devices that each count on the whole host, and accelerators measured by it."""
    monkeypatch.setattr(cluster, "available_bytes", lambda: 100)
    stats = {"bytes_limit": 60, "bytes_in_use": 10}
    four: Any = [SimpleNamespace(platform=platform, memory_stats=lambda: stats)] * 4
    cluster.check_memory({"cpu": 25, "gpu": 50}[platform], four)
    with pytest.raises(MemoryError, match=f"4 {platform} devices"):
        cluster.check_memory({"cpu": 26, "gpu": 51}[platform], four)


GROUPS = {
    "no group": ({}, 1000 * 1024),
    "version 2": (
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/memory.max": "5000",
            "sys/fs/cgroup/a/memory.current": "4000",
            "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 300\n",
            "sys/fs/cgroup/a/b/memory.max": "max",
            "sys/fs/cgroup/a/b/memory.current": "4000",
        },
        1300,
    ),
    "version 2, from inside": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "5000", "sys/fs/cgroup/memory.current": "4500"},
        500,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "8:cpu:/a\n4:memory:/not/mounted",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 200\n",
        },
        1200,
    ),
    "no limit": (
        {
            "proc/self/cgroup": "4:memory:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000",
        },
        1000 * 1024,
    ),
}


@pytest.mark.parametrize(("files", "expected"), GROUPS.values(), ids=GROUPS)
def test_memory_within_containers(terminal: Path, files: dict[str, str], expected: int) -> None:
    """Catches the memory of the whole machine taken for that of a container or job that may use less."""
    for name, text in {"proc/meminfo": "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n", **files}.items():
        (terminal / name).parent.mkdir(parents=True, exist_ok=True)
        (terminal / name).write_text(text)
    assert cluster.available_bytes(terminal) == expected


def test_memory_without_linux(terminal: Path) -> None:
    """Catches a failure where the system has no such files."""
    assert cluster.available_bytes(terminal) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
