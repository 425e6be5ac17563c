"""`python -m benchmarks tables`: its parts, and the tables and numbers of the pages."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rows as files
from benchmarks.programs import KEEP
from benchmarks.rows import read
from benchmarks.tables import marks, parts
from benchmarks.tables.figures import FIGURES, draw
from benchmarks.tables.marks import MARK, Quotes, marked_pages, quotes, remade
from benchmarks.tables.parts import PARTS, Part
from benchmarks.tables.text import Series

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HISTORY = (  # a file, its text, and whether its commit changes code
    ("src/a.py", 'def f():\n    """Old."""\n    return 1\n', True),
    ("src/a.py", '# Why.\ndef f():\n    """New words."""\n    return 1\n', False),
    ("src/a.py", 'def f():\n    """New words."""\n    return "1"\n', True),
    ("src/b.py", '"""Words alone."""\n', True),
    ("pyproject.toml", "# A pin.\n", True),
)
WHO = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
NUMBER = r"\**[<>~]?[\d.,]+(e[-+]?\d+)?( ?(us|ms|s|min|[kMGT]B|%|x))?\**"
CONSTANTS = {("accuracy.md", "largest loss per passage")}  # columns of numbers that follow from definitions


@pytest.fixture(scope="module")
def found() -> Quotes:
    return quotes()


@pytest.mark.parametrize("path", marked_pages(), ids=lambda path: path.name)
def test_pages_have_the_numbers_of_the_rows(path: Path, found: Quotes) -> None:
    """Catches a number without rows, or unlike its row: `python -m benchmarks tables --pages` mends it."""
    unknown = list[str]()
    assert remade(path.read_text(), found, unknown.append) == path.read_text()
    assert not unknown


@pytest.mark.parametrize("path", marked_pages(), ids=lambda path: path.name)
def test_marks_begin_no_line_of_a_paragraph(path: Path) -> None:
    """Catches a mark that ends its paragraph or list: Markdown reads a line that begins with a comment as HTML."""
    assert re.search(r"\S\n *<!--=.*", path.read_text()) is None


def test_pages_have_rows_of_one_commit(found: Quotes) -> None:
    """Catches a page that mixes commits, and rows of a commit that is not known."""
    mixed = [path.name for path in marked_pages() if not one_commit(commits(path.read_text(), found))]
    assert mixed == []


def commits(text: str, found: Quotes) -> set[str]:
    """Commits of all rows that a page quotes, but for a GPU's, which was lent once: its page has their commit."""
    heads = {head for mark in MARK.findall(text) if "gpu" not in (head := found.split(mark[1])[0]).split()}
    return set().union(*(found.commits[head] for head in heads & found.commits.keys()))


def one_commit(commits: set[str]) -> bool:
    return len(commits) == 1 and all(re.fullmatch("[0-9a-f]{40}", one) for one in commits)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tables_of_numbers_are_made(path: Path) -> None:
    """Catches a table whose numbers are typed: no row corrects them."""
    typed = {head for head, cells in columns(MARK.sub("", path.read_text())) if is_numbers(cells)}
    assert {(path.name, head) for head in typed} <= CONSTANTS


def columns(text: str) -> Iterator[tuple[str, list[str]]]:
    """Head and cells of every column of every Markdown table."""
    for table in re.findall(r"(?:^\|.*\|$\n?)+", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        yield from ((head, [*cells]) for head, _, *cells in zip(*rows, strict=False))


def is_numbers(cells: list[str]) -> bool:
    """Most cells are numbers, or lists of them, with units."""
    filled = [cell for cell in cells if cell]
    return 2 * sum(bool(re.fullmatch(rf"{NUMBER}([,;] {NUMBER})*", cell)) for cell in filled) > len(filled)


def test_typed_numbers_are_found() -> None:
    """Catches a rule that finds no table, or calls a table of words one of numbers."""
    table = "| a | ms | by |\n|---|---|---|\n| x | 12.5 | 3 devices |\n| y | **0.1**, 2e-07 | |\n| z | - | jax |\n"
    assert [is_numbers(cells) for _, cells in columns(f"text\n\n{table}\ntext")] == [False, True, False]


def test_one_quantity_has_one_number(found: Quotes) -> None:
    """Catches rows of the model and of compiled programs that are of commits with different plans."""
    planned, compiled = found.values["FFT meshfft"], found.values["pod plan"]
    assert isinstance(planned, Series) and isinstance(compiled, Series)
    assert compiled.numbers["8192@2048-natural"] == pytest.approx(planned.numbers["8192"], rel=1e-6)


def test_the_page_names_the_setting_that_was_timed() -> None:
    """Catches a setting of glibc on the page that is not the one behind "memory kept"."""
    assert f"`GLIBC_TUNABLES={KEEP}`" in (ROOT / "docs/speed.md").read_text()


def test_marks_name_rows(found: Quotes) -> None:
    """Catches a mark of no row that keeps an old number, and a quotient the wrong way round."""
    assert float(found.text("kdft-2d its products 2/128")) == pytest.approx(64, rel=0.01)
    for name in ("FFT own 100", "FFT natural own", "table of nothing"):
        with pytest.raises(ValueError, match="the rows have no"):
            found.text(name)


def test_the_measured_parts_take_three_hours() -> None:
    """Catches a part that is added without its time, or makes the run longer than was promised."""
    assert sum(part.minutes for part in PARTS) <= 180
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_rows_belong_to_parts() -> None:
    """Catches rows that no table needs."""
    assert {path.stem for path in parts.RESULTS.glob("*.jsonl")} <= {part.name for part in PARTS}


def test_a_part_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a command that runs twice at one commit, rows of two commits in a file, and rows lost by a failure."""
    ran = list[str]()

    def process(words: list[str], **_: Any) -> None:
        ran.append(words[2])
        if len(ran) == 2:
            raise subprocess.CalledProcessError(1, words)
        Path(words[-1]).write_text(json.dumps({"seconds": len(ran), "commit": "x"}) + "\n")

    monkeypatch.setattr(parts, "RESULTS", tmp_path)
    monkeypatch.setattr(subprocess, "run", process)
    part = Part("two", lambda rows: iter(()), ["first", "second"])
    part.path.write_text('{"commit": "old", "command": "python -m first"}\n')
    with pytest.raises(subprocess.CalledProcessError):
        parts.run(part, "new")
    assert [row["commit"] for row in read(part.path)] == ["old"]
    parts.run(part, "new")
    parts.run(part, "new")
    assert ran == ["first", "second", "second"]
    assert [(row["commit"], row["command"]) for row in read(part.path)] == [
        ("new", "python -m first"),
        ("new", "python -m second"),
    ]


def test_words_leave_rows_their_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a docstring that asks for three hours of new rows, and a change of code that does not."""
    monkeypatch.setattr(files, "ROOT", tmp_path)
    (tmp_path / "src").mkdir()
    last = ""
    for name, text, code in HISTORY:
        (tmp_path / name).write_text(text)
        assert files.commit() == (f"{last}-dirty" if last else "")
        for words in (["init", "-q"], ["add", "."], [*WHO, "commit", "-q", "--no-verify", "-m", name]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        last = files._git("rev-parse", "HEAD").strip() if code else last
        assert files.commit() == last


def test_changes_that_are_not_committed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches rows made by uncommitted code."""
    monkeypatch.setattr(marks.files, "commit", lambda: "0123-dirty")
    with pytest.raises(SystemExit, match="commit them first"):
        marks.main(only=["clusters"])
    with pytest.raises(SystemExit, match="no part is called cluster: there are programs"):
        marks.main(only=["cluster"])


@pytest.mark.more
def test_figures_are_drawn_from_rows(tmp_path: Path) -> None:
    """Catches a figure of a page that no rows draw, rows whose columns it lacks, and one without its part's rows."""
    rows = {part.name: read(part.path) for part in PARTS if part.path.exists()}
    names = {path.name for path in draw(rows, tmp_path)}
    assert names == {f"{name}.png" for name in FIGURES}
    assert all((ROOT / "docs" / "figures" / name).exists() for name in names)
    assert names - {path.name for path in draw({**rows, "wires": []}, tmp_path)} == {"accuracy.png"}
