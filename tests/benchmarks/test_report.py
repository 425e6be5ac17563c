"""Rows as tables: known kinds, the content of each table, and harmless pages."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_rows import baselines, case, everything, others, paper, profile, scaling, sorted_rows

from benchmarks import report
from benchmarks.report import Rows, html, read, sections

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
HOSTILE = "</title></style>\"'><script>alert(1)</script><img src=x onerror=alert(1)> $x^{$ {{7*7}}"


class Parts(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") for name in dict(attrs))
        self.tags[tag] += 1

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page_of(rows: Rows) -> str:
    return "".join(html(table) for section in sections(rows) for table in section.tables)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_kind_has_its_section(work: Path) -> None:
    """Catches a kind of row that is not known for it, a section that is missing, and an order that changes."""
    rows = sorted_rows(everything(), work)
    assert [len(kind) for kind in rows] == [17, len(paper()), 6, 2, 0]
    names = ["scaling", "baselines", "profiles", "paper", "others"]
    assert [section.name for section in sections(rows)] == names
    assert all(table.cells and table.heads for section in sections(rows) for table in section.tables)
    assert [section.name for section in sections(sorted_rows(others(), work))] == ["others"]
    assert page_of(rows) == page_of(sorted_rows(everything(), work))


def test_texts_of_rows_are_only_texts(work: Path) -> None:
    """Catches markup in rows that is taken for the page's own."""
    rows = [case("meshfft", (1.0,)), case("jnp", (2.0,), (), method=HOSTILE, facts={"command": HOSTILE})]
    rows += [{**row, "kind": HOSTILE, "device": HOSTILE} for row in profile()]
    rows += [{**row, "call": HOSTILE, HOSTILE: 1.0, "command": HOSTILE} for row in others()]
    found = Parts(page_of(sorted_rows(rows, work)))
    assert not found.tags.keys() & {"script", "iframe", "object", "link", "img"}
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
    """Catches a traceback, or half a page, for a file that is cut short or not a file of rows."""
    Path("a.jsonl").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read([Path("a.jsonl")])


def test_rows_of_no_known_kind_are_told(work: Path) -> None:
    """Catches one bad row that spoils good ones, and a bad row that counts as good."""
    bad: list[Any] = [
        {"library": "meshfft"},
        {"seconds": [1.0]},
        {**baselines()[0], "seconds": [float("nan")]},
        {**baselines()[0], "seconds": [-1.0]},
        {**profile()[0], "wall_seconds": 0},
        {**paper()[0], "known": "guessed"},
    ]
    rows = sorted_rows([*baselines(), *bad], work)
    assert len(rows.cases) == 5 and len(rows.unknown) == len(bad) and rows.unknown[0].startswith("line 6 of")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_rows_in_the_repository_are_understood(path: Path) -> None:
    """Catches rows whose form changed without the report, which would leave them out."""
    rows = read([path])
    assert rows.unknown == [] and list(sections(rows))


def test_runs_are_never_mixed(work: Path) -> None:
    """Catches ratios and curves across two commits, two days or two machines."""
    again = [case("jnp", (0.5,), (), facts={"commit": "fedcba"}), case("meshfft", (1.0,), facts={"commit": "fedcba"})]
    first, second = report.runs(sorted_rows([*baselines(), *again], work).cases)
    assert len(first) == 4 and [line[4] for line in report.cells(second)] == ["1.00", "2.00"]


@pytest.mark.parametrize("weak", [False, True])
def test_scaling_has_its_ideal_lines(weak: bool, work: Path) -> None:
    """Catches strong scaling taken for weak, and an ideal line that is not the paper's."""
    (run,) = report.runs(sorted_rows(scaling(weak), work).cases)
    (curves,) = report.curves_of(run)
    assert report.is_weak(curves) is weak
    table = report._scaling(curves)
    seconds = [(line[1], line[4], line[5]) for line in table.cells if line[0].startswith("meshfft")]
    ideal = ["2000", "2000", "2000"] if weak else ["2000", "1000", "500"]
    assert seconds == list(zip("124", ["2000", "3000", "5000"], ideal, strict=True))


def test_two_arrays_are_two_tables(work: Path) -> None:
    """Catches strong scaling of two arrays taken for weak scaling of one, and a curve of a single point."""
    rows = scaling(False) + [{**row, "shape": [16, 8, 8]} for row in scaling(False)]
    (run,) = report.runs(sorted_rows(rows, work).cases)
    found = list(report.curves_of(run))
    assert [{row.case.shape for row in part} for part in found] == [{(8, 8, 8)}, {(16, 8, 8)}]
    assert not any(map(report.is_weak, found))
    (run,) = report.runs(sorted_rows(baselines(), work).cases)
    assert list(report.curves_of(run)) == []


def test_cells_of_a_profile_are_its_steps(work: Path) -> None:
    """Catches profiles that are mixed, seconds of another step, and a modelled one that is called measured."""
    rows = sorted_rows([*profile(), *(dict(row, known="modelled") for row in profile())], work)
    found = report.profiles(rows.profiles)
    assert [len(part) for part in found] == [3, 3]
    table = report._profile(found[0])
    assert table.heads[1:] == ["fft", "idle", "all-to-all"]
    assert [line[1:] for line in table.cells] == [["0.5", "0.125", "0"], ["0", "0", "1.5"]]
    assert [report._profile(part).known for part in found] == ["measured", "modelled"]


def test_what_is_modelled_is_called_so(work: Path) -> None:
    """Catches modelled numbers without their word."""
    for section in sections(sorted_rows(paper(), work)):
        assert section.tables and all("modelled" in table.known for table in section.tables)
