"""What people see of a breakdown: the table, rows, the figure, the trace for Perfetto, and the command."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh
from typer.testing import CliRunner

import meshfft as mf
from meshfft.cli import memory
from meshfft.cli.app import app
from meshfft.profile import figure, perfetto
from meshfft.profile.breakdown import Breakdown, Part
from meshfft.profile.kinds import KINDS
from meshfft.profile.rows import about, from_rows, to_rows, write
from meshfft.profile.slices import Slice
from meshfft.profile.trace import Track
from meshfft.profile.words import notes, table


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own, a terminal of 80 columns, and JAX's precision put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    before = jax.config.read("jax_enable_x64")
    yield tmp_path
    jax.config.update("jax_enable_x64", before)


def made(steps: int, kinds: tuple[str, ...] = KINDS, devices: int = 4) -> Breakdown:
    """A breakdown with every kind of work in every step, and names as long as they get."""
    names = tuple(f"fft Y, Z (xla), swap x+y: X -> Y, in {j} chunks of X" for j in range(steps))
    parts = [
        Part(step, kind, tuple(1e-3 * (1 + step + place + d) for d in range(devices)))
        for step in range(steps)
        for place, kind in enumerate(kinds)
    ]
    parts.insert(0, Part(None, "copies", (0.25,) * devices, 240_000_000))
    wall = sum(part.seconds for part in parts)
    return Breakdown(
        names, tuple(parts), tuple(range(devices)), (wall, wall), {"permute": 0.5}, "measured", "mean of 2"
    )


def test_the_table_is_exact_and_narrow() -> None:
    """Catches a table wider than 80 columns, a sum of another column, and shares that are not of the run."""
    for found in (made(10), made(2, ("fft", "all-to-all"), 1), made(1, ())):
        lines = table(found).splitlines()
        assert max(map(len, lines + notes(found).splitlines())) <= 80
        total = float(next(line for line in lines if line.startswith("run")).split()[-1])
        assert total == pytest.approx(found.wall * 1e3, abs=0.1)
    assert table(made(10)).splitlines()[0].split() == ["all-to-"], "what is left for names is wider so"
    words, heads = table(made(2, ("fft", "permute"), 2)).splitlines(), ["step", "fft", "permute", "copies", "total"]
    assert words[0].split() == ["ms", *heads[1:]]
    assert words[2].split() == ["start", "-", "-", "250.0", "250.0"]
    rows = [line.split() for line in words if line.startswith(("1.", "share", "least", "most"))]
    assert [row[-4:] for row in rows] == [
        ["1.5", "2.5", "-", "4.0"],
        ["share", "1.5%", "2.3%", "96.2%"],
        ["device", "3.0", "5.0", "250.0"],
        ["device", "5.0", "7.0", "250.0"],
    ]
    assert "500.0 ms of permute are hidden" in notes(made(1))


def test_rows_go_there_and_back(tmp_path: Path) -> None:
    """Catches a part or a device lost in the file, and rows that do not say what they were made of."""
    plan = mf.plan((16, 16), mesh=AbstractMesh((8,), ("x",)))
    facts = about(plan, "cpu", {"jax": jax.__version__})
    for found in (made(3), made(2, ("fft",), 1)):
        write(tmp_path / "rows.jsonl", to_rows(found, {**facts, "steps": list(found.steps)}))
        rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
        assert from_rows(rows) == found and len(rows) == len(found.parts)
        assert all(row["benchmark"] == "profile" and row["shape"] == [16, 16] for row in rows)
        assert all(row["made_by"]["jax"] == jax.__version__ and row["known"] == "measured" for row in rows)
        assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_the_bars_are_the_breakdown() -> None:
    """Catches bars of another step, kind or unit, bars that overlap, and a picture that is none."""
    pytest.importorskip("matplotlib")
    found = made(3)
    for name, magic in (("a.png", b"PNG"), ("a.svg", b"xml"), ("a.pdf", b"PDF")):
        figure.save_breakdown(Path(name), found, "title")
        assert magic in Path(name).read_bytes()[:8]
    spot = drawn(found)
    bars = {(round(bar.get_y(), 3), bars.get_label()): bar for bars in spot.containers for bar in bars}
    rows = sorted({y for y, _ in bars})
    assert len(rows) == len(found.places) == 4 and [bars.get_label() for bars in spot.containers] == list(KINDS)
    for y, step in zip(rows, found.places, strict=True):
        end = 0.0
        for kind in KINDS:
            assert bars[y, kind].get_x() == pytest.approx(end)
            assert bars[y, kind].get_width() == pytest.approx(1e3 * found.seconds(step, kind))
            end += bars[y, kind].get_width()
    assert spot.yaxis.get_inverted() and spot.get_xlabel().endswith("measured")
    assert [text.get_text().replace("\n", " ") for text in spot.get_yticklabels()] == [*map(found.name, found.places)]


def drawn(found: Breakdown) -> Any:
    """The axes of a figure."""
    from matplotlib.figure import Figure

    canvas = Figure()
    figure._draw(canvas, found, "title")
    return canvas.axes[0]


def test_the_trace_of_steps(tmp_path: Path) -> None:
    """Catches a slice of another device or unit, one outside its step's, and a step that is left out."""
    slices = (
        Slice(0, 3_000_000, None, "copies"),
        Slice(3_000_000, 5_000_000, 0, "fft"),
        Slice(5_000_000, 9_000_000, 0, "idle"),
    )
    path = perfetto.save(tmp_path, [Track(1, 4, slices, {})], ["fft X"])
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"] == [
        ("start", 0, 3), ("copies", 0, 3), ("1. fft X", 3, 6), ("fft", 3, 2), ("idle", 5, 4)
    ]  # fmt: skip
    assert {e["pid"] for e in events} == {4} and events[0]["args"] == {"name": "device 4"}


def call(*words: str) -> str:
    """Runs the command, which has to succeed; returns what it printed."""
    result = CliRunner().invoke(app, ["profile", *words])
    assert result.exit_code == 0, result.output
    assert "--json" in words or all(len(line) <= 80 for line in result.stdout.splitlines()), result.stdout
    return result.stdout


def test_the_command() -> None:
    """Catches a flag that does not reach the plan or the run, a trace that is not kept, and files not written."""
    pytest.importorskip("matplotlib")
    printed = call(
        "64,6", "--mesh", "8", "--method", "cooley-tukey", "--runs", "2", "--trace", "kept", "--figure", "a.png"
    )
    (kept,) = Path("kept").glob("plugins/profile/*")
    assert {perfetto.NAME, "perfetto_trace.json.gz"} <= set(os.listdir(kept)) and str(kept / perfetto.NAME) in printed
    assert "2. gather, fft, phase" in printed and "mean of 2 runs" in printed and "ui.perfetto.dev" in printed
    assert Path("a.png").read_bytes()[1:4] == b"PNG"
    record = json.loads(
        call("64,6", "--mesh", "4", "--spec", "-,x", "--axes", "0", "--kind", "rfft", "--dtype", "float32", "--rows",
             "r.jsonl", "--runs", "1", "--json")
    )  # fmt: skip
    rows = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert record["steps"] == ["real fft X (xla)"], "the dimension that is whole"
    assert record["transform"] == "real transform" and record["mesh"] == {"x": 4} and len(record["runs"]) == 1
    assert [{k: row[k] for k in ("step", "kind", "seconds")} for row in rows] == [
        {k: part[k] for k in ("step", "kind", "seconds")} for part in record["parts"]
    ]
    assert record["made_by"]["jax"] == jax.__version__ and record["device"] == "cpu" and record["trace"] == []
    assert sum(part["seconds"] for part in record["parts"]) == pytest.approx(record["wall_seconds"])
    assert sorted(os.listdir()) == ["a.png", "kept", "r.jsonl"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["8,8"], "neither --mesh nor --topology"),
        (["8,8", "--mesh", "8", "--runs", "0"], "--runs 0"),
        (["8,8", "--mesh", "8", "--dtype", "float16"], "float16"),
        (["8,8", "--mesh", "8", "--trace", "no/where/at/all"], "is not a folder"),
        (["8,8", "--mesh", "8", "--trace", "file"], "is not a folder"),
        (["8,8", "--mesh", "8", "--rows", "no/rows.jsonl"], "is not a folder"),
        (["8,8", "--mesh", "8", "--figure", "a.gif"], "a.gif"),
        (["8,8", "--mesh", "8", "--figure", "no/a.png"], "is not a folder"),
        (["8,8", "--mesh", "512"], "512"),
        (["8,8", "--mesh", "8", "--method", "fast"], "--method 'fast'"),
        (["8,8", "--topology", "h100:8"], "is no TPU"),
        (["8,8", "--topology", "v3:2x2", "--spec", "x"], "give --mesh too"),
        (["8,8", "--topology", "v3:2x2", "--trace", "kept"], "nothing runs"),
    ],
)
def test_refusals_are_one_line_before_any_work(words: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a traceback, work that is done before it is refused, and folders that a refusal leaves behind."""
    Path("file").write_text("here")
    monkeypatch.setattr("meshfft.inspect.aot.compile_plan", None)
    monkeypatch.setattr("meshfft.profile.running.compile_plan", None)
    result = CliRunner().invoke(app, ["profile", *words])
    assert result.exit_code == 2 and says in result.stderr, result.output
    assert result.stderr.startswith("meshfft: error: ") and result.stderr.count("\n") == 1, result.stderr
    assert os.listdir() == ["file"]


def test_what_does_not_fit_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that the machine would kill."""
    monkeypatch.setattr(memory, "available_bytes", lambda root=None: 1000)
    monkeypatch.setattr("meshfft.profile.running.compile_plan", None)
    result = CliRunner().invoke(app, ["profile", "64,64", "--mesh", "8"])
    assert result.exit_code == 2 and "GB at its peak" in result.stderr
