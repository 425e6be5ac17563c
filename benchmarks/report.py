"""Rows as tables, for the site: a table for each command of a run; two runs are never mixed."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from .common import cell
from .measure.words import circumstances_words
from .rows import Values, grouped, read
from .tables.parts import PARTS

RUN = ("command", "commit", "date", "cpu", "table")
ABOUT = ("versions", "made_by", "device", "cpu", "cores", "load_before", "date", "commit", "command")
MEASURED, MODELLED = "measured", "modelled"


class Table(NamedTuple):
    """Cells with column names: the command behind the rows, the origin of the numbers, and a note."""

    title: str
    heads: Sequence[str]
    cells: Sequence[Sequence[str]]
    known: str
    note: str


def sections() -> Iterator[tuple[str, list[Table]]]:
    for known in (MEASURED, MODELLED):
        parts = [part for part in PARTS if part.path.exists() and part.modelled == (known == MODELLED)]
        yield known, [table for part in parts for table in tables(read(part.path), known)]


def tables(rows: Sequence[Values], known: str) -> list[Table]:
    return [_table(run, known) for run in grouped(rows, lambda row: tuple(str(row.get(name)) for name in RUN))]


def _table(rows: Sequence[Values], known: str) -> Table:
    """A column for each field of the rows; one whose values are all the same is in the note."""
    fields = list(dict.fromkeys(field for row in rows for field in row if field not in ABOUT))
    words = {field: [cell(row.get(field)) for row in rows] for field in fields}
    same = [field for field in fields if len(rows) > 1 and len(set(words[field])) == 1]
    kept = [field for field in fields if field not in same]
    note = ", ".join(f"{field} {words[field][0]}" for field in same)
    if known == MEASURED:
        note = f"{note} {circumstances_words(rows[0])}"
    lines = [[words[field][at] for field in kept] for at in range(len(rows))]
    if "known" in fields:
        known = " and ".join(dict.fromkeys(words["known"]))
    elif known == MEASURED and any("modelled" in field for field in fields):
        known = "measured, but for what is called modelled"
    command = str(rows[0].get("command", "meshfft profile"))  # whose rows lack one
    return Table(" ".join((command, rows[0].get("table", ""))).rstrip(), kept, lines, known, note)


def html(one: Table) -> str:
    """A table as HTML, folded; every text is data and is escaped."""
    heads = "".join(f"<th>{escape(head)}</th>" for head in one.heads)
    lines = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in one.cells)
    about = f"<p><b>{escape(one.known)}</b> {escape(one.note)}</p>"
    return f"<details><summary>{escape(one.title)}</summary>{about}<table><tr>{heads}</tr>{lines}</table></details>"
