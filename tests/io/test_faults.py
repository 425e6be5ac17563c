"""Faults in a run of several processes: all of them end in bounded time, give the reason, and leave nothing
half-written."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from addresses import free_address
from commands import PIPES, fresh
from typer.testing import CliRunner

import meshfft
from meshfft.cli.app import app
from meshfft.cli.flags import Files
from meshfft.cli.request import Flags
from meshfft.io import identity, open_array

SCRIPT = Path(__file__).parent.parent / "faulty.py"
pytestmark = pytest.mark.slow
SECONDS = 100  # far above the thirty that any of this takes, and what nothing may exceed
VALUES = np.random.default_rng(3).normal(size=(12, 10, 9, 2)).view(np.complex128)[..., 0].astype(np.complex64)


class Ended(NamedTuple):
    """End of a process: its exit code and its output."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Output of meshfft itself, without that of libraries."""
        return [line for line in self.err.splitlines() if line.startswith("meshfft: ")]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder, with an input."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", VALUES)
    yield tmp_path


def together(
    count: int, *words: str, fault: str = "none", victim: int = 0, inputs: Sequence[Sequence[str]] = ()
) -> list[Ended]:
    """Runs `transform` in several processes, one with a fault; `inputs` are their first arguments, which differ."""
    address = free_address()
    started = []
    for index in range(count):
        own = (*inputs[index], *words) if inputs else words
        by_hand = ["--coordinator", address, "--processes", str(count), "--process-id", str(index)]
        command = [sys.executable, str(SCRIPT), fault, str(victim), "transform", *own, *by_hand]
        started.append(subprocess.Popen(command, env=fresh(), **PIPES))
    try:
        said = {
            i: one.communicate(timeout=SECONDS) for i, one in enumerate(started) if (fault, i) != ("frozen", victim)
        }
    finally:
        for one in started:
            one.kill()  # which ends the frozen one
    said |= {i: one.communicate() for i, one in enumerate(started) if i not in said}
    return [Ended(one.returncode, *said[i]) for i, one in enumerate(started)]


CASES = [  # fault, the process it hits, the number of processes, exit codes, and the message of the first survivor
    ("killed", 2, (-6, -6, -9), r"tasks are unhealthy.*\n2\n"),
    ("killed compiling", 0, (-9, -6), "leader task was preempted/died"),
    ("killed writing", 1, (-6, -9), r"error: UNKNOWN: Gloo(.|\n)*tasks are unhealthy.*\n1\n"),  # a ValueError of JAX's
    ("frozen", 1, (-6, -9), r"tasks are unhealthy.*\n1\n"),
    ("interrupted", 1, (-6, 130), r"tasks are unhealthy.*\n1\n"),
    ("disk full", 1, (3, 2), "error: process 1 failed: .* No space left on device"),
    ("no memory", 1, (3, 2), "error: process 1 failed: 3 GB"),
]


@pytest.mark.parametrize(("fault", "victim", "codes", "words"), CASES, ids=[f"{c[0]}, process {c[1]}" for c in CASES])
def test_a_run_ends_as_one(work: Path, fault: str, victim: int, codes: tuple[int, ...], words: str) -> None:
    """Catches processes that wait for one that is gone, other exit codes, no reason, and parts of an output."""
    mesh = str(2 * len(codes))
    ended = together(len(codes), "a.npy", "b.zarr", "--mesh", mesh, fault=fault, victim=victim)
    assert tuple(one.code for one in ended) == codes, ended
    for index, one in enumerate(ended):
        assert index == victim or re.search(words, one.err), one
    own = ended[victim].lines
    assert not own if codes[victim] == -9 else len(own) == 1 and own[0].startswith("meshfft: error: "), own
    assert sorted(os.listdir(work)) == ["a.npy"]


def test_what_a_killed_run_leaves_is_named(work: Path) -> None:
    """Catches a part under the output's name, and gigabytes under a hidden name that no message reports."""
    ended = together(2, "a.npy", "b.zarr", "--mesh", "2,2", fault="killed writing")
    assert [one.code for one in ended] == [-9, -6], ended
    (left,) = {*os.listdir(work)} - {"a.npy"}
    assert re.fullmatch(r"\.b\.zarr\.\d+-\w{8}\.partial", left)
    result = CliRunner().invoke(app, ["transform", "a.npy", "b.zarr", "--mesh", "2"])
    assert result.exit_code == 0 and re.search(rf"note: .*{re.escape(left)} is of a run that was killed", result.stderr)
    assert "note:" not in CliRunner().invoke(app, ["transform", "a.npy", "c.zarr", "--mesh", "2"]).stderr


def test_nothing_of_ours_listens() -> None:
    """Catches a port of our own that strangers can reach, besides those of JAX."""
    for path in Path(meshfft.__file__).parent.rglob("*.py"):
        assert not re.search(r"create_server|create_connection|\.listen\(|socketserver", path.read_text()), path


UNLIKE = {  # arguments of the second process in place of: a.npy b.zarr --mesh 2,2
    "a flag": (("a.npy", "b.zarr", "--mesh", "2,2", "--norm", "ortho"), "--norm not given, process 1 has ortho"),
    "a mesh": (("a.npy", "b.zarr", "--mesh", "2,4"), "--mesh 2,2, process 1 has 2,4"),
    "an output": (("a.npy", "c.zarr", "--mesh", "2,2"), "OUT .*b.zarr, process 1 has .*c.zarr"),
    "values": (("other.npy", "b.zarr", "--mesh", "2,2"), "input that begins with the checksum"),
    "a shape": (("less.npy", "b.zarr", "--mesh", "2,2"), r"input of complex64 \(12, 10, 9\), process 1 has .* \(11,"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_processes_must_be_asked_for_the_same(work: Path, case: str) -> None:
    """Catches half a store scaled, parts of two arrays in one, an output that never appears: all with exit code 0."""
    np.save("other.npy", VALUES + 1)
    np.save("less.npy", VALUES[:-1])
    other, line = UNLIKE[case]
    ended = together(2, inputs=[("a.npy", "b.zarr", "--mesh", "2,2"), other])
    assert [one.code for one in ended] == [2, 2], ended
    for one in ended:
        assert len(one.lines) == 1 and re.search(f"error: process 0 has .*{line}.*: give every process", one.lines[0])
    assert sorted(os.listdir(work)) == ["a.npy", "less.npy", "other.npy"]


COMPARED = ("dataset", "overwrite")  # flags that all processes must share; the remaining flags may differ


def test_every_flag_is_compared() -> None:
    """Catches a flag that affects the result but may differ between processes, and one without effect that may not."""
    flags = Flags(Path("a"), Path("b"), Files(), "2", None, False, {"norm": None}, None, None, False)
    other: Any = {"given": {"norm": "ortho"}, "sampling": SimpleNamespace(deciding=lambda: {"points": "other"})}
    for name in set(Flags._fields) - {"files"}:
        changed: dict[str, Any] = {name: other.get(name, Path("other"))}
        free = name == "source"  # compared by content
        assert (flags._replace(**changed).deciding() == flags.deciding()) == free, name
    for name in Files._fields:
        own: dict[str, Any] = {name: "other"}
        same = flags._replace(files=flags.files._replace(**own)).deciding() == flags.deciding()
        assert same == (name not in COMPARED), name


def test_a_copy_of_the_input_is_the_same(work: Path) -> None:
    """Catches a copy with its time kept that is refused, and one of other values or another time that is not."""
    shutil.copy2("a.npy", "copy.npy")
    shutil.copy2("a.npy", "later.npy")
    os.utime("later.npy", (0, 0))
    found = []
    for name in ("a.npy", "copy.npy", "later.npy"):
        with open_array(name) as array:
            found.append(identity(array))
    assert found[0] == found[1] != found[2]


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
    command = [sys.executable, "-m", "meshfft.cli.app", "transform", "a.npy", "c.zarr", "--mesh", "2,2"]
    alone = subprocess.run(command, env=fresh())
    assert alone.returncode == 0
    with open_array("c.zarr") as source:
        np.testing.assert_allclose(values, source[...], rtol=0, atol=4e-5)  # two processes are planned as two hosts


REFUSED = [
    (["--processes", "2"], "--processes needs"),
    (["--coordinator", "a:1", "--processes", "2"], "give all three"),
    (["--coordinator", "a", "--processes", "2", "--process-id", "0"], "no HOST:PORT"),
    (["--coordinator", "a:1", "--processes", "2", "--process-id", "2"], "none of 2 processes"),
    (["--coordinator", "a:1", "--processes", "2", "--process-id", "0", "--distributed"], "leave out"),
    (["--coordinator", "a:1", "--processes", "0", "--process-id", "0"], "give 1 to 1000000"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_flags_of_processes_that_do_not_fit(words: list[str], line: str) -> None:
    """Catches a process that waits for others that were never asked for."""
    result = CliRunner().invoke(app, ["transform", "a.npy", "b.npy", "--mesh", "2,2", *words])
    assert result.exit_code == 2 and line in result.stderr
