"""What ends a run of several processes: all of them end, in bounded time, say why, and leave nothing half-written."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from addresses import free_address
from typer.testing import CliRunner

import meshfft
from meshfft.cli.app import app
from meshfft.files import open_array

SCRIPT = Path(__file__).parent / "faulty.py"
SECONDS = 100  # far above the ten that any of this takes, and what nothing may exceed
VALUES = np.random.default_rng(3).normal(size=(12, 10, 9, 2)).view(np.complex128)[..., 0].astype(np.complex64)


class Ended(NamedTuple):
    """How a process ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The last line of stderr: libraries may have had their say before."""
        return self.err.splitlines()[-1] if self.err else ""


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own, with an input."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", VALUES)
    yield tmp_path


def together(
    count: int, *words: str, fault: str = "none", victim: int = 0, inputs: tuple[str, ...] = ()
) -> list[Ended]:
    """Runs `transform` in so many processes, one of which has a fault; `inputs` are their first words, if not alike."""
    address = free_address()
    started = []
    for index in range(count):
        own = (inputs[index], *words) if inputs else words
        by_hand = ["--coordinator", address, "--processes", str(count), "--process-id", str(index)]
        command = [sys.executable, str(SCRIPT), fault, str(victim), "transform", *own, *by_hand]
        started.append(_start(command))
    ended = [process.communicate(timeout=SECONDS) for process in started]
    return [Ended(process.returncode, *said) for process, said in zip(started, ended, strict=True)]


def _start(command: list[str]) -> "subprocess.Popen[str]":
    path = os.pathsep.join([str(Path(meshfft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


CASES = [  # fault, in which of two processes, their exit codes, and what each says in its last line
    ("killed", 1, (3, 3), "process 1 on .* was killed by signal 9"),
    ("killed", 0, (3, 3), "process 0 on .* was killed by signal 9"),
    ("crashed", 1, (3, 3), "process 1 on .* was killed by signal 6"),
    ("lost while writing", 0, (-9, 3), "process 0 on .* was lost"),
    ("disk full", 1, (3, 2), "No space left on device"),
    ("interrupted", 1, (3, 130), "interrupted by the user"),
    ("no memory", 1, (3, 2), "out of memory"),
]


@pytest.mark.parametrize(("fault", "victim", "codes", "words"), CASES, ids=[f"{c[0]}, process {c[1]}" for c in CASES])
def test_a_run_ends_as_one(work: Path, fault: str, victim: int, codes: tuple[int, int], words: str) -> None:
    """Catches processes that wait for one that is gone, other exit codes, no reason, and parts of an output."""
    ended = together(2, "a.npy", "b.zarr", "--mesh", "2,2", fault=fault, victim=victim)
    assert tuple(one.code for one in ended) == codes, ended
    for one in ended:
        assert one.code == -9 or (one.line.startswith("meshfft: error: ") and re.search(words, one.line)), one
    assert sorted(os.listdir(work)) == ["a.npy"]


def test_all_of_four_stop_when_one_is_killed(work: Path) -> None:
    """Catches processes that hear of it only from their own neighbour in a ring."""
    ended = together(4, "a.npy", "b.npy", "--mesh", "2,2", fault="killed", victim=2)
    assert [one.code for one in ended] == [3] * 4
    assert all("process 2 on" in one.line and "signal 9" in one.line for one in ended), ended
    assert sorted(os.listdir(work)) == ["a.npy"]


def test_processes_must_see_the_same_array(work: Path) -> None:
    """Catches a transform of parts of different arrays: different shapes and flags are refused by every process."""
    np.save("other.npy", VALUES[:-1])
    ended = together(2, "b.zarr", "--mesh", "2,2", inputs=("a.npy", "other.npy"))
    assert [one.code for one in ended] == [2, 2]
    assert all("input of complex64 (12, 10, 9), process 1 has complex64 (11, 10, 9)" in one.line for one in ended), (
        ended
    )
    assert sorted(os.listdir(work)) == ["a.npy", "other.npy"]


def test_processes_write_what_one_does(work: Path) -> None:
    """Catches blocks written to the wrong place, words on stdout of all processes, and logs that no machine reads."""
    first, second = together(2, "a.npy", "b.zarr", "--mesh", "2,2", "--json", "--log-json")
    assert (first.code, second.code, second.out) == (0, 0, ""), (first, second)
    steps = json.loads(first.out)["measured"]
    assert [steps[0]["step"], steps[-1]["step"]] == ["read", "write"]
    with open_array("b.zarr") as source:
        values = source[...]
    np.testing.assert_allclose(values, np.fft.fftn(VALUES.astype(complex)), rtol=0, atol=4e-5)
    for index, one in enumerate((first, second)):
        events = [json.loads(line) for line in one.err.splitlines() if line.startswith("{")]
        assert {event["process"] for event in events} == {index}
        assert [event["part"] for event in events if event["event"] == "end"][-1] == "write"
        assert events[-1]["done_bytes"] > 0.8 * events[-1]["total_bytes"] > 0
    alone = subprocess.run([sys.executable, "-m", "meshfft.cli.app", "transform", "a.npy", "c.zarr", "--mesh", "2,2"])
    assert alone.returncode == 0
    with open_array("c.zarr") as source:
        np.testing.assert_array_equal(values, source[...])  # bit for bit


REFUSED = [
    (["--processes", "2"], "--processes needs"),
    (["--coordinator", "a:1", "--processes", "2"], "give all three"),
    (["--coordinator", "a", "--processes", "2", "--process-id", "0"], "no HOST:PORT"),
    (["--coordinator", "a:1", "--processes", "2", "--process-id", "2"], "none of 2 processes"),
    (["--coordinator", "a:1", "--processes", "2", "--process-id", "0", "--distributed"], "leave out"),
    (["--coordinator", "a:1", "--processes", "0", "--process-id", "0"], "at least 1"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_flags_of_processes_that_do_not_fit(words: list[str], line: str) -> None:
    """Catches a process that waits for others that were never asked for."""
    result = CliRunner().invoke(app, ["transform", "a.npy", "b.npy", "--mesh", "2,2", *words])
    assert result.exit_code == 2 and line in result.stderr
