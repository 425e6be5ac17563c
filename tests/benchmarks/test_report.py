"""Rows as tables: each run has its own, modelled rows are called so, and pages are harmless."""

from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest

from benchmarks.report import MEASURED, MODELLED, RUN, html, sections, tables
from benchmarks.rows import read
from benchmarks.tables.parts import RESULTS

HOSTILE = "</title></style>\"'><script>alert(1)</script><img src=x onerror=alert(1)> $x^{$ {{7*7}}"
FACTS: dict[str, Any] = {
    "versions": {"meshfft": "0.1.0", "jax": "0.10.2"},
    "device": "cpu",
    "cpu": "a processor",
    "cores": 2,
    "load_before": 0.5,
    "date": "2026-01-02",
    "commit": "0123456789abcdef",
    "command": "python -m benchmarks a --rounds 2",
}


def rows(**changes: Any) -> list[dict[str, Any]]:
    """Two rows of a command."""
    return [{"call": name, "bytes": 1000, "seconds": [0.5, 0.25], **FACTS, **changes} for name in "ab"]


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


def test_a_table_has_what_its_rows_have() -> None:
    """Catches a field that is left out, a median or quartiles of other seconds, and a run without its circumstances."""
    (table,) = tables(rows(), MEASURED)
    assert (table.heads, table.cells) == (["call"], [["a"], ["b"]])
    assert table.title == "python -m benchmarks a --rounds 2"
    assert "bytes 1000, seconds 0.375 (0.312 to 0.438)" in table.note and "load 0.5 before" in table.note
    first, second = rows()
    (table,) = tables([first, {**second, "bytes": None}], MEASURED)
    assert table.cells == [["a", "1000"], ["b", "-"]]


def test_texts_of_rows_are_only_texts() -> None:
    """Catches markup in rows that is taken for the page's own."""
    hostile = {"device": HOSTILE, HOSTILE: 1.0, "command": HOSTILE, "known": HOSTILE, "same": HOSTILE}
    (table,) = tables([{**row, "call": row["call"] + HOSTILE} for row in rows(**hostile)], MEASURED)
    found = Parts(html(table))
    assert not found.tags.keys() & {"script", "iframe", "object", "link", "img"}
    assert "<script>alert(1)</script>" in "".join(found.texts)


def test_all_rows_of_the_repository_are_in_tables() -> None:
    """Catches a part that is left out, a run without a table, and modelled rows among the measured ones."""
    found = dict(sections())
    assert list(found) == [MEASURED, MODELLED] and all(table.heads for part in found.values() for table in part)
    assert sum(len(table.cells) for part in found.values() for table in part) == sum(
        len(read(path)) for path in RESULTS.glob("*.jsonl")
    )
    assert all("modelled" in table.known for table in found[MODELLED])
    assert not any(table.known == MODELLED for table in found[MEASURED])


@pytest.mark.parametrize("field", RUN)
def test_runs_are_never_mixed(field: str) -> None:
    """Catches a table across two commands, commits, days, machines or tables of one command."""
    first, second = tables([*rows(), *rows(**{field: "another"})], MEASURED)
    assert len(first.cells) == len(second.cells) == 2


def test_what_is_modelled_is_called_so() -> None:
    """Catches modelled numbers without their word."""
    assert [table.known for table in tables(rows(), MODELLED)] == ["modelled"]
    assert [table.known for table in tables(rows(modelled_seconds=1.0), MEASURED)] == [
        "measured, but for what is called modelled"
    ]
    mixed = [*rows(known="published"), *rows(known="modelled")]
    assert [table.known for table in tables(mixed, MODELLED)] == ["published and modelled"]
