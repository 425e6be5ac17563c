"""The report: which rows it understands, what its figures are drawn of, and that the page is whole and harmless."""

import base64
import json
import os
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.sharding import AxisType
from report_rows import baselines, case, everything, others, paper, profile, scaling, sorted_rows
from typer.testing import CliRunner

import meshfft as mf
from benchmarks.__main__ import app
from benchmarks.report import measured, modelled
from benchmarks.report.command import page_of
from benchmarks.report.reading import read

Figure = pytest.importorskip("matplotlib.figure").Figure

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
HOSTILE = "</title></style>\"'><script>alert(1)</script><img src=x onerror=alert(1)> $x^{$ {{7*7}}"


class Parts(HTMLParser):
    """What a page is made of: its tags, its anchors, its images, its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.names: list[str] = []
        self.images: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert not any(name.startswith("on") for name in found)
        self.tags[tag] += 1
        self.names += [found["id"] or ""] if "id" in found else []
        self.images += [found["src"] or ""] if "src" in found else []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_kind_has_its_section(work: Path) -> None:
    """Catches a kind of row that is not known for it, a section that is missing, and an image that is no drawing."""
    rows = sorted_rows(everything(), work)
    counts = {"cases": 17, "evaluation": len(paper()), "profiles": 6, "others": 2}
    assert rows.counts == counts
    found = Parts(page_of(rows))
    assert found.names == ["scaling", "baselines", "profiles", "paper", "models", "others"]
    assert len(found.images) == found.tags["figure"] > 10
    for image in found.images:
        kind, _, data = image.partition(",")
        assert kind == "data:image/svg+xml;base64" and b"<path" in base64.b64decode(data)
    assert Parts(page_of(sorted_rows(others(), work))).names == ["others"]


def test_the_same_rows_give_the_same_page(work: Path) -> None:
    """Catches dates, random names and orders that change from run to run, and what is loaded from elsewhere."""
    first, second = (page_of(sorted_rows(everything(), work)) for _ in range(2))
    assert first == second
    assert not re.search(r"<script|<link|@import|https?:", first)


def test_texts_of_rows_are_only_texts(work: Path) -> None:
    """Catches markup and mathematics in rows that are taken for the page's own."""
    rows = [case("meshfft", (1.0,)), case("jnp", (2.0,), (), method=HOSTILE, facts={"command": HOSTILE})]
    rows += [{**row, "kind": HOSTILE, "device": HOSTILE} for row in profile()]
    rows += [{**row, "call": HOSTILE, HOSTILE: 1.0, "command": HOSTILE} for row in others()]
    found = Parts(page_of(sorted_rows(rows, work)))
    assert not found.tags.keys() & {"script", "iframe", "object", "link"}
    assert all(image.startswith("data:") for image in found.images) and found.tags["title"] == found.tags["style"] == 1
    assert "<script>alert(1)</script>" in "".join(found.texts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.jsonl holds no row: give a file that --rows wrote"),
        ('{"a": 1}\n{"a": \n', "line 2 of a.jsonl is no JSON object: give a file that --rows wrote"),
        ("[1]\n", "line 1 of a.jsonl is no JSON object"),
        ("\n" + "[" * 100_000, "line 2 of a.jsonl is no JSON object"),
    ],
)
def test_broken_files_are_told_by_line(text: str, message: str) -> None:
    """Catches a traceback, or a page of half a file, where a file was cut short or is none."""
    Path("a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read([Path("a.jsonl")])


def test_rows_of_no_known_kind_are_told(work: Path) -> None:
    """Catches rows left out in silence, and one bad row that takes the others with it."""
    bad: list[Any] = [
        {"library": "meshfft"},
        {"seconds": [1.0]},
        {**baselines()[0], "seconds": [float("nan")]},
        {**baselines()[0], "seconds": [-1.0]},
        {**profile()[0], "wall_seconds": 0},
        {**paper()[0], "known": "guessed"},
    ]
    rows = sorted_rows([*baselines(), *bad], work)
    assert rows.counts["cases"] == 5 and len(rows.unknown) == len(bad)
    assert "6 rows of no known kind are left out: line 6 of" in page_of(rows)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_rows_in_the_repository_are_understood(path: Path) -> None:
    """Catches rows whose form changed without the report, which would leave them out."""
    assert read([path]).unknown == []


def test_ratios_are_to_the_fastest_baseline(work: Path) -> None:
    """Catches ratios to another row, quartiles of another, and dots in another order or at another place."""
    (run,) = measured.runs(sorted_rows(baselines(), work).cases)
    found = measured.ratios(run)
    assert [(row.case.library, low, middle, high) for row, low, middle, high in found] == [
        ("meshfft", 0.625, 0.75, 0.875), ("jnp", 1, 1, 1), ("meshfft", 1.25, 1.5, 1.75), ("scipy", 20, 20, 20)
    ]  # fmt: skip
    canvas = Figure()
    measured._draw_ratios(canvas, found)
    dots = [line.get_xdata()[0] for line in canvas.axes[0].lines if line.get_marker() == "o"]
    assert dots == [0.75, 1, 1.5, 20]


def test_runs_are_never_mixed(work: Path) -> None:
    """Catches ratios and curves across two commits, two days or two machines."""
    again = [case("jnp", (0.5,), (), facts={"commit": "fedcba"}), case("meshfft", (1.0,), facts={"commit": "fedcba"})]
    first, second = measured.runs(sorted_rows([*baselines(), *again], work).cases)
    assert len(first) == 4 and [middle for _, _, middle, _ in measured.ratios(second)] == [1.0, 2.0]


@pytest.mark.parametrize("weak", [False, True])
def test_scaling_has_its_ideal_lines(weak: bool, work: Path) -> None:
    """Catches strong scaling taken for weak, and an ideal line that is not the paper's."""
    (run,) = measured.runs(sorted_rows(scaling(weak), work).cases)
    (curves,) = measured.curves_of(run)
    assert measured.is_weak(curves) is weak
    canvas = Figure()
    measured._draw_scaling(canvas, measured.points_of(curves, weak))
    dashed, solid, *_ = canvas.axes[0].lines
    assert list(solid.get_ydata()) == [2.0, 3.0, 5.0] and list(solid.get_xdata()) == [1, 2, 4]
    assert list(dashed.get_ydata()) == ([2.0, 2.0, 2.0] if weak else [2.0, 1.0, 0.5])


def test_two_arrays_are_two_figures(work: Path) -> None:
    """Catches strong scaling of two arrays taken for weak scaling of one, and a curve of a single point."""
    rows = scaling(False) + [{**row, "shape": [16, 8, 8]} for row in scaling(False)]
    (run,) = measured.runs(sorted_rows(rows, work).cases)
    found = list(measured.curves_of(run))
    assert [{row.case.shape for row in part} for part in found] == [{(8, 8, 8)}, {(16, 8, 8)}]
    assert not any(map(measured.is_weak, found))
    (run,) = measured.runs(sorted_rows(baselines(), work).cases)
    assert list(measured.curves_of(run)) == []


def test_bars_of_a_profile_are_its_steps(work: Path) -> None:
    """Catches profiles that are mixed, bars that do not add up, and a modelled one that is called measured."""
    found = modelled.profiles(sorted_rows([*profile(), *(dict(row, known="modelled") for row in profile())], work))
    assert [len(part) for part in found] == [3, 3]
    steps, kinds = modelled.by_step(found[0])
    assert len(steps) == 2 and kinds == {"fft": [0.5, 0], "idle": [0.125, 0], "all-to-all": [0, 1.5]}
    assert [next(modelled._profile(part)).known for part in found] == ["measured", "modelled"]


def test_what_is_modelled_is_called_so(work: Path) -> None:
    """Catches modelled numbers without their word."""
    for section in modelled.sections(sorted_rows(paper(), work)):
        assert section.parts and all("modelled" in part.known for part in section.parts)


def test_the_walk_is_the_plan_s() -> None:
    """Catches a picture without its plan."""
    made = mf.plan((8, 6), mesh=jax.make_mesh((2, 2), ("x", "y"), (AxisType.Auto,) * 2), method="transpose")
    section = modelled.walk(made)
    assert section.text == str(made) and section.parts[0].title == made.name


def test_the_command() -> None:
    """Catches a page that is not written or not replaced, flags that do not reach the plan, and counts left untold."""
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*baselines(), {"odd": 1}]))
    result = CliRunner().invoke(app, ["report", "rows.jsonl"])
    assert (
        "5 cases" in result.stdout
        and "1 rows of no known kind" in result.stdout
        and "Wrote report.html" in result.stdout
    )
    first = Path("report.html").read_text()
    flags = ("--plan", "8,6", "--mesh", "2,2", "--method", "kdft", "--order", "any")
    assert CliRunner().invoke(app, ["report", *flags]).exit_code == 0
    second = Path("report.html").read_text()
    assert "method kdft, any order" in second and second != first
    assert sorted(os.listdir()) == ["report.html", "rows.jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "neither ROWS nor --plan is given"),
        (["rows.jsonl", "--output", "rows.jsonl"], "end it in .html or .htm"),
        (["rows.jsonl", "--output", "no/a.html"], "make it first"),
        (["absent.jsonl"], "absent.jsonl: No such file"),
        (["--plan", "8,8"], "add --mesh 2,2,2"),
        (["--plan", "8,x", "--mesh", "2"], "--plan '8,x' is not a list of sizes"),
        (["--plan", "8,8", "--mesh", "2", "--method", "magic"], "--method 'magic' is not known"),
        (["--plan", "8192,8192", "--mesh", "4096"], "4096 devices are more than a picture shows"),
        (["cut.jsonl"], "line 1 of cut.jsonl is no JSON"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(words: list[str], message: str) -> None:
    """Catches a traceback, an exit code of 0, and a page or rows that are lost with what cannot be written."""
    Path("rows.jsonl").write_text(json.dumps(baselines()[0]) + "\n")
    Path("cut.jsonl").write_text('{"a": ')
    Path("report.html").write_text("old")
    result = CliRunner().invoke(app, ["report", *words])
    assert result.exit_code == 2 and message in result.stderr, result.output
    assert result.stderr.count("\n") == 1 and Path("report.html").read_text() == "old"
