"""Every public function on several real processes with several devices each, held against one process to rounding."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from addresses import free_address

SCRIPT = Path(__file__).parent.parent / "process.py"
pytestmark = pytest.mark.slow
COUNTS = (1, 2, 4)
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"  # compiles in half the time


SOLVED = ("residual", "slope of points", "reconstruct")  # rounding grows


class Run(NamedTuple):
    """Saved results of the processes of one program: blocks by row, leaf and place, and the messages of each."""

    blocks: list[dict[str, np.ndarray]]
    said: list[dict[str, Any]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """The same program on each number of processes, all at once."""
    folders = {count: tmp_path_factory.mktemp(f"of{count}") for count in COUNTS}
    started = [process for count, folder in folders.items() for process in _start(count, folder)]
    ended = _wait(started)
    errors = [error.read_text()[-2000:] for folder in folders.values() for error in folder.glob("*.txt")]
    assert not any(ended), errors
    return {count: _read(count, folder) for count, folder in folders.items()}


def _wait(started: list["subprocess.Popen[bytes]"]) -> list[int]:
    """Exit codes: all processes succeed, or all end as soon as one fails, because the rest would wait for it."""
    deadline, ended = time.monotonic() + 900, [process.poll() for process in started]
    while None in ended and not any(ended) and time.monotonic() < deadline:
        time.sleep(0.1)
        ended = [process.poll() for process in started]
    for process in started:
        process.kill()
    return [process.wait() for process in started]


def _start(count: int, folder: Path) -> list["subprocess.Popen[bytes]"]:
    address = free_address()
    started = []
    for index in range(count):
        # Other hashes in every process: a walk or a program that depends on the order of a set would differ.
        flags = {
            "JAX_PLATFORMS": "cpu",
            "PYTHONHASHSEED": str(index),
            "XLA_FLAGS": QUICK,
        }
        command = [sys.executable, str(SCRIPT), address, str(index), str(count), str(folder)]
        with (folder / f"{index}.txt").open("wb") as said:
            started.append(subprocess.Popen(command, env={**os.environ, **flags}, stdout=said, stderr=said))
    return started


def _read(count: int, folder: Path) -> Run:
    blocks = [dict(np.load(folder / f"{index}.npz")) for index in range(count)]
    return Run(blocks, [json.loads((folder / f"{index}.json").read_text()) for index in range(count)])


def test_no_public_name_is_forgotten(runs: dict[int, Run]) -> None:
    """Catches a function that is made public and never called on several processes."""
    for count in COUNTS[:-1]:  # of four processes some are spared
        for said in runs[count].said:
            assert set(said["public"]) == set(said["asked"])


def test_one_process_computes_what_numpy_does(runs: dict[int, Run]) -> None:
    """Catches rows that are equal everywhere and wrong everywhere."""
    for name, leaves in runs[1].said[0]["errors"].items():
        for dtype, error in leaves:
            assert error <= (2e-14 if dtype in ("float64", "complex128") else 4e-6), name


@pytest.mark.parametrize("count", COUNTS[1:])
def test_several_processes_hold_what_one_does(runs: dict[int, Run], count: int) -> None:
    """Catches values of other shards, programs that differ between processes, host code that needs whole arrays."""
    (one,), several = runs[1].blocks, runs[count].blocks
    told = {name for process in several for name in process}
    assert told == one.keys() if count < 4 else len(one) / 3 < len(told) and told < one.keys()
    for name, block in ((name, one[name]) for name in sorted(told)):
        row, _, place = name.split("|")
        holders = [process for process in several if name in process]
        assert len(holders) == (count if place == "here" else 1), name
        for process in holders:
            found = process[name]
            assert found.dtype == block.dtype and found.shape == block.shape, name
            if found.dtype.kind not in "fc":
                assert found.tobytes() == block.tobytes(), name
                continue
            near = 1e-5 if row in SOLVED else 5 * np.finfo(found.dtype).eps  # another walk rounds otherwise
            np.testing.assert_allclose(found, block, rtol=0, atol=near * np.abs(block).max(initial=0), err_msg=name)


@pytest.mark.parametrize("count", COUNTS[1:])
def test_every_process_holds_its_own_part(runs: dict[int, Run], count: int) -> None:
    """Catches a program that runs whole in every process, and so repeats one trivially."""
    for process in runs[count].blocks:
        assert sum(name.startswith("kdftn|0|") for name in process) == 8 // count


def test_all_processes_compile_one_program(runs: dict[int, Run]) -> None:
    """Catches programs that hang on the order of a set of names, which every process hashes in its own way."""
    assert len({tuple(said["texts"]) for run in runs.values() for said in run.said}) == 1


@pytest.mark.parametrize("count", COUNTS[1:])
def test_processes_by_themselves(runs: dict[int, Run], count: int) -> None:
    """Catches calls that only work if all processes take part: each transforms alone, any number of times."""
    for index, said in enumerate(runs[count].said):
        assert len(said["alone"]) == 1 + index
        assert max(said["alone"]) <= 1e-6


@pytest.mark.parametrize("count", COUNTS[1:])
def test_a_process_gives_its_own_blocks(runs: dict[int, Run], count: int) -> None:
    """Catches arrays that are sent to all processes only to be cut, which JAX's device_put does to compare them."""
    assert {said["own"] for said in runs[count].said} == {0.0}


@pytest.mark.parametrize("count", COUNTS[1:])
def test_meshes_that_leave_processes_out(runs: dict[int, Run], count: int) -> None:
    """Catches a block requested from a process that has none, and an answer where only a refusal is right."""
    for index, said in enumerate(runs[count].said):
        for name, found in said["some"].items():
            if index < count // 2:
                assert found <= 1e-6, name
            else:
                assert found.startswith(f"ValueError: process {index} has none of the array's devices"), name


@pytest.mark.parametrize("count", COUNTS[1:])
def test_processes_hear_one_another(runs: dict[int, Run], count: int) -> None:
    """Catches a failure that not all processes hear of, a text that only one finds too long, and undetected
    differences."""
    told, last = "é" * 1000, count - 1
    for index, said in enumerate(runs[count].said):
        peers = said["peers"]
        assert peers["exchange"] is True and peers["all well"] == "done" and peers["alike"] is None
        assert peers["last fails"] == (
            "ValueError: no such\nfile" if index == last else f"PeerError: process {last} failed: no such file"
        )
        two = "ValueError: " + "é" * 3000 if index < 2 else f"PeerError: process 0 failed: {told}"
        assert peers["two fail"] == two
        assert peers["nameless"] == ("ValueError: " if index == 0 else "PeerError: process 0 failed: ValueError")
        values = "process 0 has mesh [2, 0], process 1 has [2, 1]"
        different = f"ValueError: {values}: give every process the same files and arguments"
        assert peers["different"] == different
        assert peers["other names"].startswith("ValueError: process 0 has at 1 None, process 1 has 3")
        apart = f"RuntimeError: processes {[*range(1, count)]} take other steps than process 0"
        assert peers["same steps"] is None and peers["other steps"].startswith(apart)
        assert peers["after"] == list(range(count)), "a failure left processes out of step"
