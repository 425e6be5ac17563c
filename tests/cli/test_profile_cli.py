"""Presentation of a breakdown: the table, rows, the figure, and the command."""

import json
import os
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import call, refused
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.cli import cluster
from meshfft.cli.measure import _print_breakdown
from meshfft.inspect.hlo import KINDS
from meshfft.inspect.trace import Breakdown, figure_of

pytestmark = pytest.mark.usefixtures("terminal")


def made(steps: int, kinds: tuple[str, ...] = KINDS, devices: int = 4) -> Breakdown:
    """A breakdown with every kind of work in every step, and names of maximal length."""
    names = (
        "start",
        *(f"{j}. fft Y, Z (xla), all-to-all x+y: X -> Y, in {j} chunks of X" for j in range(1, steps + 1)),
    )
    seconds = np.zeros((devices, 1 + steps, len(KINDS)))
    for d, j, place in np.ndindex(devices, steps, len(kinds)):
        seconds[d, 1 + j, KINDS.index(kinds[place])] = 1e-3 * (1 + j + place + d)
    seconds[:, 0, KINDS.index("copies")] = 0.25
    wall = float(seconds[0].sum()) if devices == 1 else float(seconds.mean(0).sum())
    return Breakdown(names, tuple(range(devices)), (wall, wall), seconds, {"permute": 0.5})


def test_the_table_is_exact_and_narrow(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a table wider than 80 columns, a sum of another column, and shares that are not of the run."""
    for found in (made(10), made(2, ("fft", "all-to-all"), 1), made(1, ())):
        _print_breakdown(found, "mean of 2")
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        total = float(next(line for line in lines if line.startswith("run")).split()[-1])
        assert total == pytest.approx(found.wall * 1e3, abs=0.1)
    _print_breakdown(made(2, ("fft", "permute"), 2), "mean of 2")
    words = capsys.readouterr().out.splitlines()
    assert words[0].split() == ["ms", "fft", "permute", "copies", "total"]
    assert words[2].split() == ["start", "-", "-", "250.0", "250.0"]
    rows = [line.split() for line in words if line.startswith(("1.", "share", "least", "most"))]
    assert [row[-4:] for row in rows] == [
        ["1.5", "2.5", "-", "4.0"],
        ["share", "1.5%", "2.3%", "96.2%"],
        ["device", "3.0", "5.0", "250.0"],
        ["device", "5.0", "7.0", "250.0"],
    ]
    assert words[-2:] == [
        "Measured: mean of 2, of 260.0 to 260.0 ms, on 2 devices.",
        "Beside these, 500.0 ms of permute are hidden under other work.",
    ]


def test_the_bars_are_the_breakdown() -> None:
    """Catches bars of another step, kind or unit, and bars that overlap."""
    pytest.importorskip("matplotlib")
    found = made(3)
    (spot,) = figure_of(found, "title").axes
    assert [bars.get_label() for bars in spot.containers] == list(KINDS)
    ends = np.zeros(4)
    for k, bars in enumerate(spot.containers):
        assert [bar.get_x() for bar in bars] == pytest.approx(ends)
        assert [bar.get_width() for bar in bars] == pytest.approx(1e3 * found.seconds.mean(0)[:, k])
        ends = ends + [bar.get_width() for bar in bars]
    assert spot.yaxis.get_inverted() and spot.get_xlabel().endswith("measured")
    assert [text.get_text().replace("\n", " ") for text in spot.get_yticklabels()] == list(found.steps)
    assert spot.texts[0].get_text().startswith("250 ms, ")


def test_the_command() -> None:
    """Catches a flag that does not reach the plan or the run, a trace that is not kept, and files not written."""
    pytest.importorskip("matplotlib")
    printed = call(
        "profile",
        "64,6",
        "--mesh",
        "8",
        "--method",
        "cooley-tukey",
        "--ring",
        "one-way",
        "--runs",
        "2",
        "--trace",
        "kept",
        "--figure",
        "a.png",
    )
    (kept,) = Path("kept").glob("plugins/profile/*")
    assert "perfetto_trace.json.gz" in os.listdir(kept) and "Wrote kept, to open at https://ui.perfetto.dev." in printed
    assert (
        "2. gather, fft, phase" in printed
        and "one-way" in printed
        and "mean of 2 runs" in printed
        and "Wrote a.png.\n" in printed
    )
    assert Path("a.png").read_bytes()[1:4] == b"PNG"
    how = ["--mesh", "4", "--spec", "-,x", "--axes", "0", "--kind", "rfft", "--dtype", "float32"]
    record = json.loads(call("profile", "64,6", *how, "--rows", "r.jsonl", "--runs", "1", "--json"))
    rows = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert record["steps"] == ["real fft X (xla)"], "the dimension that is whole"
    assert record["transform"] == "real transform" and record["mesh"] == {"x": 4} and len(record["runs"]) == 1
    assert [{k: row[k] for k in ("step", "kind", "seconds")} for row in rows] == [
        {k: part[k] for k in ("step", "kind", "seconds")} for part in record["parts"]
    ]
    assert record["made_by"]["jax"] == jax.__version__ and record["device"] == "cpu"
    assert (record["trace"], record["figure"], record["rows"]) == (None, None, "r.jsonl")
    assert all(row["benchmark"] == "profile" and row["shape"] == [64, 6] and row["hidden"] == {} for row in rows)
    assert all(row["made_by"] == record["made_by"] and len(row["by_device"]) == 4 for row in rows)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert sum(part["seconds"] for part in record["parts"]) == pytest.approx(record["wall_seconds"])
    assert sorted(os.listdir()) == ["a.png", "kept", "r.jsonl"]


PAGE = (Path(__file__).parent.parent.parent / "docs/pods.md").read_text()
SHOWN = PAGE.split("<!--=table profile-->")[1].split("<!--/-->")[0]


def test_the_page_has_the_steps_of_the_plan() -> None:
    """Catches a page that shows the steps of an older program."""
    plan = mf.plan((256,) * 3, mesh=jax.make_mesh((8,), ("x",)), spec=P("x"), method="transpose")
    words = " ".join(SHOWN.split())
    for number, (step, layout) in enumerate(plan.walk.pairs, 1):
        first, *_ = step.name(layout).split(", and back")
        assert f"{number}. {first}" in words
    assert f"{len(plan.walk.steps) + 1}. " not in SHOWN


@pytest.mark.slow
def test_the_page_has_the_steps_and_kinds_that_the_command_prints() -> None:
    """Catches a page with other steps, columns or words than the command prints now."""
    printed = call("profile", "256,256,256", "--mesh", "8", "--method", "transpose")
    table = re.sub(r"(?<![\w+])(\d+\.\d+%?|-)(?![\w>])", "", printed[printed.index("\nms ") :])
    words = " ".join(table.split())
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in SHOWN.split("\n") if line]
    assert all(name in words for name, *_ in rows), words
    assert all(head.removeprefix("all-to-") in words for head in heads), words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["8,8", "--mesh", "8", "--runs", "0"], "--runs 0"),
        (["8,8", "--mesh", "8", "--dtype", "float16"], "float16"),
        (["8,8", "--mesh", "8", "--trace", "no/where/at/all"], "is not a folder"),
        (["8,8", "--mesh", "8", "--trace", "file"], "is not a folder"),
        (["8,8", "--mesh", "8", "--rows", "no/rows.jsonl"], "is not a folder"),
        (["8,8", "--mesh", "8", "--figure", "a.gif"], "a.gif"),
        (["8,8", "--mesh", "8", "--figure", "no/a.png"], "is not a folder"),
        (["8,8", "--mesh", "512"], "512"),
        (["8,8", "--mesh", "8", "--method", "fast"], "--method 'fast'"),
    ],
)
def test_refusals_are_one_line_before_any_work(words: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a traceback, work that is done before it is refused, and folders that a refusal leaves behind."""
    Path("file").write_text("here")
    monkeypatch.setattr("meshfft.inspect.trace.compile_plan", None)
    assert says in refused("profile", *words)


def test_what_does_not_fit_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that the machine would kill."""
    monkeypatch.setattr(cluster, "available_bytes", lambda root=None: 1000)
    monkeypatch.setattr("meshfft.inspect.trace.compile_plan", None)
    assert "GB at its peak" in refused("profile", "64,64", "--mesh", "8")
