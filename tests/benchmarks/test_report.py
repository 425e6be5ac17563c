"""The report: which rows it understands, what its figures are drawn of, and that the page is whole and harmless."""

import copy
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_rows import case, choices, everything, lines, others, paper, peers, profile, scaling, tiers
from typer.testing import CliRunner

import meshfft as mf
from benchmarks.__main__ import app
from benchmarks.report import breakdowns
from benchmarks.report import peers as peers_section
from benchmarks.report import scaling as scaling_section
from benchmarks.report.accuracy import promised
from benchmarks.report.drawing import nice, spaced
from benchmarks.report.kinds import sort
from benchmarks.report.page import page, sections
from benchmarks.report.palette import DEVICES, device_colours, ink_on
from benchmarks.report.reading import read
from benchmarks.report.replanned import described, plan_of_rows
from benchmarks.report.runs import Run, runs_of

Figure = pytest.importorskip("matplotlib.figure").Figure
pytest.importorskip("jinja2")

NAMES = ["walk", "scaling", "peers", "breakdowns", "accuracy", "models", "others"]
RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
HOSTILE = (
    "</title></style></svg>\"'><script>alert(1)</script><img src=x onerror=alert(1)> $x^{$ \\ {{7*7}} \u4e2d\U0001f600 "
)


class Parts(HTMLParser):
    """What a page is made of: its tags, their attributes, its texts, and how many marks each drawing has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.figures: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag == "figure":
            self.figures.append(0)
        if tag in ("path", "polygon", "rect", "line") and self.figures:
            self.figures[-1] += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def whole() -> str:
    """The page of rows of every kind."""
    return page(lines(everything()), None, "1.2.3")


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own, and JAX's precision put back afterwards."""
    monkeypatch.chdir(tmp_path)
    before = jax.config.read("jax_enable_x64")
    yield tmp_path
    jax.config.update("jax_enable_x64", before)


def test_every_kind_has_its_section(whole: str) -> None:
    """Catches rows of a kind that are not known for it, and a section or a drawing that is missing or empty."""
    rows = sort(lines(everything()))
    many = {name: len(found) for name, found in rows._asdict().items()}
    counts = {
        "cases": 17,
        "profiles": 6,
        "evaluation": len(paper()),
        "tiers": 2,
        "choices": 2,
        "others": 2,
        "unknown": 0,
    }
    assert many == counts
    found = Parts(whole)
    assert [value for name, value in found.attributes if name == "id" and value in NAMES] == NAMES
    assert len(found.figures) > 15 and min(found.figures) > 2
    assert found.tags["figure"] == found.tags["figcaption"] == whole.count('aria-label="') - found.tags["table"] - 1
    for kind, name in ((peers(), "peers"), (scaling(True), "scaling"), (profile(), "breakdowns"), (others(), "others")):
        assert name in [section.name for section in sections(sort(lines(kind)), None)]
    assert [section.name for section in sections(sort(lines(others())), None)] == ["others"]


def test_the_page_needs_nothing_else(whole: str) -> None:
    """Catches a script, a font, a picture or an address that is not in the page, and one that is."""
    for word in ("http", "src=", "@import", "url(", "<script", "<link", "<iframe", "javascript:"):
        assert word not in whole, word
    links = [value or "" for name, value in Parts(whole).attributes if name.endswith("href")]
    assert links and all(link.startswith("#") for link in links)
    assert "viewport" in whole and "prefers-color-scheme: dark" in whole


def test_the_same_rows_give_the_same_page(whole: str) -> None:
    """Catches dates, random names and orders that change from run to run."""
    assert page(lines(everything()), None, "1.2.3") == whole


def _poisoned(value: Any) -> Any:
    """The rows with hostile words in every text that is not one of a few names."""
    known = {"meshfft", "measured", "modelled", "published", "profile", "tiers", "table-v3", "fft-3d", "kdft-3d", "FFT"}
    if isinstance(value, str):
        return value if value in known or value in SAFE or value.startswith("single") else HOSTILE + value
    if isinstance(value, list):
        return [_poisoned(one) for one in value]
    return {name: _poisoned(one) for name, one in value.items()} if isinstance(value, dict) else value


SAFE = {
    "total",
    "ideal",
    "KDFT",
    "fft",
    "idle",
    "all-to-all",
    "float32",
    "bf16",
    "v3:2x4",
    "paper",
    "x",
    "y",
    "complex64",
    "",
}


def test_texts_of_rows_are_only_texts(tmp_path: Path) -> None:
    """Catches markup, mathematics and templates in rows that are taken for the page's own."""
    Path("bad.jsonl").write_text("".join(json.dumps(_poisoned(row)) + "\n" for row in everything()))
    rows = read([Path("bad.jsonl")])
    assert sort(rows).unknown == []
    text = page(rows, None, HOSTILE)
    found = Parts(text)
    assert not found.tags.keys() & {"script", "img", "iframe", "object", "link"}
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "src"]
    assert "<script>alert(1)</script>" in "".join(found.texts) and "{{7*7}}" in "".join(found.texts)
    assert found.tags["title"] >= 1 and found.tags["style"] == 1


def test_what_no_page_can_hold_is_taken_out() -> None:
    """Catches control characters and halves of surrogate pairs that end in a page nobody can write or read."""
    rows = [{**row, "call": "a\x00\x1b\ud800b"} for row in others()]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [line.values["call"] for line in read([Path("a.jsonl")])] == ["ab", "ab"]
    page(read([Path("a.jsonl")]), None, "").encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.jsonl holds no row: give a file that --rows wrote"),
        ("\n \n", "a.jsonl holds no row"),
        ('{"a": 1}\n{"a": \n', "line 2 of a.jsonl is no JSON: give a file that --rows wrote, or take the line out"),
        ("[1]\n", "line 1 of a.jsonl is no JSON object"),
        ("\n" + "[" * 100_000, "line 2 of a.jsonl is no JSON"),
        ('{"a": 1' + "0" * 5000 + "}", "line 1 of a.jsonl is no JSON"),
        ('{"a": "\udc80"}', "line 1 of a.jsonl is no JSON"),
    ],
)
def test_broken_files_are_told_by_line(text: str, message: str) -> None:
    """Catches a traceback, or a page of half a file, where a file was cut short or is none."""
    Path("a.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=re.escape(message)):
        read([Path("a.jsonl")])


def test_rows_that_are_not_understood_are_told() -> None:
    """Catches rows left out in silence, and one bad row that takes the others with it."""
    bad: list[Any] = [
        {"peer": "meshfft"},
        {},
        {"seconds": [1.0]},
        {**peers()[0], "seconds": [float("nan")]},
        {**peers()[0], "seconds": [-1.0]},
        {**peers()[0], "shape": [8, 0, 8]},
        {**peers()[0], "spec": 3},
        {**profile()[0], "kind": "naps"},
        {**profile()[0], "by_device": [1.0]},
        {**paper()[0], "known": "guessed"},
        {**tiers()[0], "precision": "float3"},
        {**choices()[0], "modelled": 0},
    ]
    rows = sort(lines([*everything(), *bad]))
    assert [line.number for line in rows.unknown] == [len(everything()) + at for at in range(1, len(bad) + 1)]
    text = page(lines([*peers(), *bad]), None, "")
    assert "12 rows were not understood and left out: line 6 of rows.jsonl, line 7 of rows.jsonl" in text


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([10**30, -0.0, 1e-300, 1e300, float("inf"), float("nan"), "", "meshfft", "fft", "modelled"]),
    st.lists(st.one_of(st.integers(-1, 4), st.text(max_size=2), st.none()), max_size=3),
    st.dictionaries(
        st.sampled_from(["x", "compute", "command"]), st.one_of(st.integers(-1, 9), st.text(max_size=2)), max_size=2
    ),
)


@given(st.data())
@settings(max_examples=25)
def test_no_row_breaks_the_page(data: st.DataObject) -> None:
    """Catches a field that a section trusts and the kinds do not check."""
    kinds = [peers(), scaling(True), profile(), paper(), tiers(), choices(), others()]
    rows = copy.deepcopy(data.draw(st.sampled_from(kinds)))
    for _ in range(data.draw(st.integers(1, 2))):
        row = data.draw(st.sampled_from(rows))
        name = data.draw(st.sampled_from(sorted(row)))
        row[name] = data.draw(VALUES)
    assert page(lines(rows), None, "").endswith("</html>")


def test_ratios_are_to_the_fastest_peer() -> None:
    """Catches ratios to another row, quartiles of another, and bars in another order or of another length."""
    (run,) = runs_of(sort(lines(peers())).cases)
    found = peers_section.ratios(run.rows)
    assert [(row.case.peer, low, middle, high) for row, low, middle, high in found] == [
        ("meshfft", 0.625, 0.75, 0.875), ("jnp", 1, 1, 1), ("meshfft", 1.25, 1.5, 1.75), ("scipy", 20, 20, 20)
    ]  # fmt: skip
    canvas = Figure()
    peers_section._draw(canvas, found)
    (spot,) = canvas.axes
    assert [bar.get_width() for bars in spot.containers for bar in bars] == [0.75, 1, 1.5, 3 * 1.5]
    assert [text.get_text() for text in spot.texts][1::2] == ["0.75", "1.00", "1.50", "20.00 (cut)"]


def test_runs_are_never_mixed() -> None:
    """Catches ratios and curves across two commits, two days or two machines."""
    again = [case("jnp", (0.5,), (), facts={"commit": "fedcba"}), case("meshfft", (1.0,), facts={"commit": "fedcba"})]
    (section,) = [one for one in sections(sort(lines([*peers(), *again])), None) if one.name == "peers"]
    assert len(section.figures) == 2
    assert "meshfft auto natural on 8 2.00" in section.figures[1].alt


@pytest.mark.parametrize("weak", [False, True])
def test_scaling_has_its_ideal_lines(weak: bool) -> None:
    """Catches strong scaling taken for weak, and an ideal line that is not the paper's."""
    (run,) = runs_of(sort(lines(scaling(weak))).cases)
    (curves,) = scaling_section.curves_of(run)
    assert scaling_section.is_weak(curves) is weak
    canvas = Figure()
    scaling_section._draw(canvas, scaling_section.points_of(curves, weak))
    dashed, solid, *_ = canvas.axes[0].lines
    assert list(solid.get_ydata()) == [2.0, 3.0, 5.0] and list(solid.get_xdata()) == [1, 2, 4]
    assert list(dashed.get_ydata()) == ([2.0, 2.0, 2.0] if weak else [2.0, 1.0, 0.5])


def test_two_arrays_are_two_figures() -> None:
    """Catches strong scaling of a small and a large array taken for weak scaling of one, or drawn as one."""
    rows = scaling(False) + [{**row, "shape": [16, 8, 8]} for row in scaling(False)]
    (run,) = runs_of(sort(lines(rows)).cases)
    found = list(scaling_section.curves_of(run))
    assert [{row.case.shape for row in part} for part in found] == [{(8, 8, 8)}, {(16, 8, 8)}]
    assert not any(map(scaling_section.is_weak, found))


def test_one_number_of_devices_is_no_curve() -> None:
    """Catches a curve of a single point."""
    assert list(scaling_section.curves_of(Run({}, sort(lines(peers())).cases))) == []


def test_bars_of_a_breakdown_are_its_steps() -> None:
    """Catches profiles that are mixed, bars that do not add up, and a modelled one that is called measured."""
    rows = sort(lines(everything())).profiles
    both = breakdowns.profiles(rows)
    assert [len(part) for part in both] == [3, 3]
    alike = [{**row, "known": "modelled"} for row in profile()]
    assert len(breakdowns.profiles([*profile(), *alike])) == 2
    section = breakdowns.section(sort(lines(everything())))
    assert section is not None
    assert [figure.known for figure in section.figures] == ["measured", "modelled", "modelled"]
    canvas = Figure()
    breakdowns._draw(canvas, breakdowns.from_rows(both[0]))
    bars = {bars.get_label(): [round(1.0 * bar.get_width(), 6) for bar in bars] for bars in canvas.axes[0].containers}
    assert bars == {"fft": [0.5, 0], "all-to-all": [0, 1.5], "idle": [0.125, 0]}
    assert canvas.axes[0].get_xlabel() == "s, measured"


def test_what_is_modelled_is_called_so(whole: str) -> None:
    """Catches modelled numbers without their word."""
    for section in sections(sort(lines([*paper(), *choices()])), None):
        assert all(
            "modelled" in known
            for known in [one.known for one in section.figures] + [one.known for one in section.tables]
        )
    assert whole.count('class="known is-modelled"') > 8


def test_errors_are_beside_what_plans_promise() -> None:
    """Catches the error of another case, and a promise that the plan does not make."""
    rows = [case("meshfft", (1.0,), precision=name, method="kdft") for name in ("bf16x3", "default")]
    rows.append({**case("meshfft", (1.0,), (2, 4), spec=("x", "y", None), method="kdft"), "error": 3e-7})
    first, second = promised(sort(lines(rows)).cases)
    assert (first.precision, first.measured, second.measured) == ("bf16x3", 1e-7, 3e-7)
    assert first.promised is not None and second.promised is not None
    assert 1e-6 < first.promised < 2e-5 and 1e-7 < second.promised < 1e-6
    huge = {**rows[0], "shape": [2**45, 1, 1]}
    assert promised(sort(lines([huge])).cases)[0].promised is None


def test_the_walk_is_the_rows() -> None:
    """Catches a picture of another walk than the one that rows tell, and none where they tell one."""
    found = plan_of_rows(sort(lines(peers())))
    assert found is not None and found.shape == (8, 8, 8) and found.machine.chip.name == "cpu"
    assert plan_of_rows(sort(lines(profile()))) is None, "its steps are those of no plan"
    made = mf.plan((256, 256, 256), mesh=described({"x": 8}, "cpu"), method="transpose")
    steps = [re.sub("\\(.*\\)", "(otherwise)", step.name(layout)) for step, layout in made.walk.pairs]
    rows = [{**row, "steps": steps, "shape": [256, 256, 256]} for row in profile()]
    found = plan_of_rows(sort(lines(rows)))
    assert found is not None and found.name == made.name
    assert plan_of_rows(sort(lines([{**row, "steps": steps[1:]} for row in rows]))) is None


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_rows_in_the_repository_are_understood(path: Path) -> None:
    """Catches rows whose form changed without the report, which would leave them out."""
    assert sort(read([path])).unknown == []


@given(st.floats(1e-12, 1e9), st.floats(1, 1e12), st.integers(3, 9))
def test_ticks_are_few_and_within_reach(low: float, factor: float, most: int) -> None:
    """Catches axes without ticks, with more than there is room for, and ticks beyond them."""
    ticks = nice(low, low * factor, most)
    assert 1 <= len(ticks) <= most and ticks == sorted(ticks)
    assert all(low / 1.6 <= tick <= low * factor * 1.6 for tick in ticks)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=5))
def test_names_are_moved_apart(places: list[float]) -> None:
    """Catches names on top of each other, and names that change places."""
    found = spaced(places, 0.5)
    order = sorted(range(len(places)), key=lambda at: places[at])
    assert all(found[b] - found[a] > 0.45 for a, b in itertools.pairwise(order))


@pytest.mark.parametrize("count", [1, 8, 9, 300])
def test_colours_differ_and_carry_words(count: int) -> None:
    """Catches two devices of one colour where there are few, and numbers that cannot be read on theirs."""
    found = device_colours(count)
    assert len(found) == count and found[0] == DEVICES[0]
    assert len(set(found)) == count if count < 100 else len(set(found)) > 100
    assert ink_on("#F0E442") == "#000000" and ink_on("#0072B2") == "#ffffff"


def call(*words: str) -> str:
    """Runs the command, which has to succeed; returns what it printed."""
    result = CliRunner().invoke(app, ["report", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command() -> None:
    """Catches a page that is not written or not replaced, flags that do not reach the plan, and counts left untold."""
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*peers(), {"odd": 1}]))
    printed = call("rows.jsonl")
    assert "5 measured cases" in printed and "1 row was not understood" in printed and "Wrote report.html" in printed
    first = Path("report.html").read_text()
    printed = call("--plan", "8,6", "--mesh", "2,2", "--method", "kdft", "--order", "any", "--output", "report.html")
    second = Path("report.html").read_text()
    assert "method kdft, any order" in second and second != first and "ring X (dense)" in second
    assert sorted(os.listdir()) == ["report.html", "rows.jsonl"]
    call("--plan", "64,64,64", "--topology", "v3:2x2", "--kind", "rfft", "--output", "b.html")
    assert "real transform of 64" in Path("b.html").read_text()


def test_a_page_is_whole_or_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches half a page, or none, where the disk is full."""

    def full(path: Path) -> None:
        raise OSError("No space left on device")

    Path("report.html").write_text("old")
    monkeypatch.setattr("meshfft.atomic._sync", full)
    result = CliRunner().invoke(app, ["report", "--plan", "8,8", "--mesh", "2"])
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert os.listdir() == ["report.html"] and Path("report.html").read_text() == "old"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "neither ROWS nor --plan is given"),
        (["rows.jsonl", "--output", "rows.jsonl"], "end it in .html or .htm"),
        (["rows.jsonl", "--output", "no/a.html"], "make it first"),
        (["absent.jsonl"], "absent.jsonl: No such file"),
        (["."], "Is a directory"),
        (["rows.jsonl", "--mesh", "2,2"], "add --plan 256,256,256"),
        (["rows.jsonl", "--order", "any"], "add --plan 256,256,256"),
        (["--plan", "8,8"], "add --mesh 2,2,2"),
        (["--plan", "8,x", "--mesh", "2"], "--plan '8,x' is not a list of sizes"),
        (["--plan", "8,8", "--mesh", "2", "--method", "magic"], "--method 'magic' is not known"),
        (["--plan", "8192,8192", "--mesh", "4096"], "4096 devices are more than a picture shows"),
        (["cut.jsonl"], "line 1 of cut.jsonl is no JSON"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(words: list[str], message: str) -> None:
    """Catches a traceback, an exit code of 0, and a page or rows that are lost with what cannot be written."""
    Path("rows.jsonl").write_text(json.dumps(peers()[0]) + "\n")
    Path("cut.jsonl").write_text('{"a": ')
    Path("report.html").write_text("old")
    result = CliRunner().invoke(app, ["report", *words])
    assert result.exit_code == 2 and message in result.stderr, result.output
    assert result.stderr.startswith("meshfft: error: ") and result.stderr.count("\n") == 1
    assert Path("report.html").read_text() == "old"
    assert sorted(os.listdir()) == ["cut.jsonl", "report.html", "rows.jsonl"]
