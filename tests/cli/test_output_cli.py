"""Output of the command line: tables, bars, help, names with escape sequences; closed streams, signals."""

import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import call, fresh, python, refused, values
from reference import error
from rich.console import Console

from meshfft.cli import output
from meshfft.cli.app import app, main

pytestmark = pytest.mark.usefixtures("terminal")


def test_times_of_every_step_and_their_sum(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches compiling counted as running, a wrong total, and names in brackets eaten as markup."""
    monkeypatch.setenv("COLUMNS", "80")
    output.print_timings([output.PartTime("read", None, 0.5), output.PartTime("fft [red]X[/red]", 2, 0.25)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["read", "0.500"] in lines
    assert ["fft", "[red]X[/red]", "2.000", "0.250"] in lines
    assert lines[-1] == ["total", "2.000", "0.750"]


def test_one_bar_of_bytes_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a bar that counts parts, does not show its time, is too wide, or is drawn by every process."""
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, width=80)
    monkeypatch.setattr(output, "Console", lambda **_: terminal)
    with output.bar(4_000_000, in_bytes=True, shown=False) as report:
        report.begin("hidden")
    assert "hidden" not in drawn.getvalue()
    with output.bar(4_000_000, in_bytes=True) as report:
        for done, part in enumerate(("read", "fft [X]", "write"), 1):
            report.begin(part)
            report.advance(1_000_000)
            deadline = time.monotonic() + 30
            while f"{done}.0/4.0" not in drawn.getvalue() and time.monotonic() < deadline:
                time.sleep(0.02)  # it is drawn some ten times a second
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.getvalue()))
    assert any("fft [X]" in line and "2.0/4.0 MB" in line and line.rstrip().endswith("left") for line in lines), lines
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_what_takes_its_time(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches half a minute of silence while meshes of a pod are tried, a bar that stands still, and one in a log."""
    screen = io.StringIO()
    monkeypatch.setattr(output, "Console", lambda stderr: Console(file=screen, force_terminal=terminal))
    with output.waiting("finding the cheapest plan"):
        pass
    with output.waiting("measuring") as tell:
        tell("memory", 0.5)
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert ("finding the cheapest plan" in drawn) == terminal
    half = any("━╺━" in line and "measuring: memory" in line for line in re.split(r"[\r\n]+", drawn))
    assert half == terminal


def test_help_is_not_broken_twice() -> None:
    """Catches paragraphs whose own line breaks are kept when a terminal of 80 columns wraps them: ragged lines."""
    for command in app.registered_commands:
        for paragraph in inspect.cleandoc(command.callback.__doc__ or "").split("\n\n")[1:]:
            lines = paragraph.splitlines()
            assert len(lines) == 1 or max(map(len, lines)) <= 78, lines


@pytest.mark.parametrize("words", [["--help"], ["transform", "--help"], ["plan", "--help"], ["info", "--help"]])
def test_help_fits_the_terminal(words: list[str]) -> None:
    """Catches help that is cut off or wrapped by the terminal."""
    assert "Usage" in call(*words)


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a version that is not the installed package's."""
    monkeypatch.setattr("meshfft.extras.metadata.version", lambda name: {"meshfft": "1.2.3"}[name])
    assert call("--version") == "meshfft 1.2.3\n"


HIDDEN = "\x1b[31m\x9b\u202e"


SHOWN = r"\x1b[31m\x9b\u202e"


def test_names_reach_the_terminal_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches the name of a file or dataset that colours, moves or reverses text in a terminal."""
    h5py = pytest.importorskip("h5py")
    np.save(f"a{HIDDEN}.npy", values())
    assert f"Wrote b{SHOWN}.npy" in call("transform", f"a{HIDDEN}.npy", f"b{HIDDEN}.npy", "--mesh", "2")
    with h5py.File("a.h5", "w") as file:
        for name in ("one", f"two{HIDDEN}"):
            file[f"group{HIDDEN}/{name}"] = values(np.float32)
    assert f"group{SHOWN}/two{SHOWN}" in refused("transform", "a.h5", "c.npy", "--mesh", "2")
    assert f"no{SHOWN}" in refused("transform", f"no{HIDDEN}\n.npy", "c.npy", "--mesh", "2")
    output.say(HIDDEN)
    output.print_columns([HIDDEN], [[HIDDEN]])
    output.print_timings([output.PartTime(HIDDEN, None, 0.5)])
    output.print_json({"name": HIDDEN + "\x7f"})
    printed = capsys.readouterr().out
    assert not set(printed) & set(HIDDEN + "\x7f") - set("[31m") and printed.count(SHOWN) == 4, printed


def test_a_command_line_that_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches names of files, as `*` gives them, that reach the terminal through an error message."""
    for words in (["transform", "a", "b", f"c{HIDDEN}"], ["info", f"--{HIDDEN}"], [HIDDEN], ["plan"]):
        monkeypatch.setattr(sys, "argv", ["meshfft", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        line = capsys.readouterr().err
        assert ended.value.code == 2 and line.startswith("meshfft: error: ") and line.count("\n") == 1, line
        assert line.endswith(" --help.\n") and not set(line) & set("\x1b\x9b\u202e"), line


def test_one_place_prints() -> None:
    """Catches a command that prints past the one place where names are made harmless."""
    folder = Path(output.__file__).parent
    for path in folder.glob("*.py"):
        text = path.read_text()
        assert path.name == "output.py" or not re.search(
            r"typer\.echo\(|(?<!\w)print\(|Console\(|sys\.stdout\.write", text
        ), path


def test_a_fresh_process_starts_its_own_devices() -> None:
    """Catches devices that exist only because the tests made them, or that an import or a refusal starts, so that no
    mesh can be set up; a command that hangs as it starts a million; and progress mixed into the output."""
    np.save("a.npy", values(np.float64))
    code = """
import sys
from meshfft.cli.app import main
for sizes in ("1000000", "3,2"):
    sys.argv[1:] = ["transform", "a.npy", "b.npy", "--mesh", sizes, "--json"]
    try:
        main()
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
"""
    run = python("-c", code)
    refusal, *codes = run.stderr.splitlines()
    assert "one process, which can have 256 virtual ones at most" in refusal and codes == ["2", "0"], run
    assert json.loads(run.stdout)["mesh"] == {"x": 3, "y": 2}
    assert error(np.load("b.npy"), np.fft.fftn(values(np.float64))) < 2e-15


def test_a_terminated_run_leaves_nothing() -> None:
    """Catches a part of an output left behind when a scheduler ends the run while it writes."""
    np.save("a.npy", values())
    code = (
        "import os, signal, sys, meshfft.atomic as atomic; from meshfft.cli.app import main;"
        "atomic._sync = lambda _: os.kill(os.getpid(), signal.SIGTERM);"
        "sys.argv[1:] = ['transform', 'a.npy', 'b.npy', '--mesh', '2']; main()"
    )
    assert python("-c", code).returncode == 128 + 15
    assert os.listdir() == ["a.npy"]


@pytest.mark.more
def test_interrupted_twice_it_ends_without_a_trace() -> None:
    """Catches a traceback of JAX's own end where the user interrupts once more while Python ends."""
    again = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
    found = python(
        "-c", f"{again}; import sys; sys.argv = ['meshfft', '--version']; import meshfft.cli.app as a; a.main()"
    )
    assert found.returncode == -signal.SIGINT and found.stderr == "", found.stderr


@pytest.mark.slow
def test_a_closed_output_never_means_success() -> None:
    """Catches work that is skipped because nobody reads about it, exit code 0 for it, and words written into OUT.

    A program that reads no more (`| true`), a stream closed from the start (`>&-`), a full disk behind it.
    """
    np.save("a.npy", values())
    program = f"{sys.executable} -m meshfft.cli.app"
    ends = ["| true", ">&-", ">/dev/full"]
    lines = [f"({program} transform a.npy {i}.npy --mesh 2; echo $? >&2) {end}" for i, end in enumerate(ends)]
    lines += [f"({program} {words}; echo $? >&2) >&-" for words in ("plan 8,8 --mesh 2 --json", "--help")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(["bash", "-c", line], env=fresh(), **pipes) for line in lines]
    said = [process.communicate(timeout=100)[1].splitlines() for process in started]
    assert [lines[-1] for lines in said] == ["1"] * 5, said
    assert all("error: standard output was closed" in lines[-2] for lines in said), said
    for i in range(len(ends)):
        assert error(np.load(f"{i}.npy"), np.fft.fftn(values().astype(complex))) < 4e-7
