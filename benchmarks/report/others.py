"""The section of other rows: those of scripts, as tables. Nothing is known of them but their fields.

A table holds the rows of one run. What all of them share is told once, above; seconds of
several calls become a median and its quartiles.
"""

from collections.abc import Sequence
from typing import Any

from ..measure.timing import spread
from .content import MEASURED, MODELLED, Section, Table
from .kinds import REFUSALS, Rows, Values, number
from .runs import seconds_words, where

ABOUT = ("versions", "device", "cpu", "cores", "load_before", "date", "commit", "command")
SECONDS = "seconds"
LETTERS, COLUMNS, ENTRIES = 60, 14, 4
NONE, MIXED = "-", "measured, but for what is called modelled"
INTRO = "Rows of scripts that have no figure here, as they are. Seconds are medians, with their quartiles."


def section(rows: Rows) -> Section | None:
    """A table for each command."""
    groups: dict[tuple, list[Values]] = {}
    for row in rows.others:
        key = row["command"], *(str(row.get(name)) for name in ("date", "commit", "table"))
        groups.setdefault(key, []).append(row)
    tables = [_table(part) for part in groups.values()]
    return Section("others", "Other measurements", INTRO, (), tables) if tables else None


def _table(rows: Sequence[Values]) -> Table:
    """Fields that differ as columns; those that do not, above."""
    fields = list(dict.fromkeys(name for row in rows for name in row if name not in ABOUT))
    words = {name: [cell(row.get(name), name) for row in rows] for name in fields}
    same = [name for name in fields if len(rows) > 1 and len(set(words[name])) == 1 and name != SECONDS]
    kept = [name for name in fields if name not in same][:COLUMNS]
    shared = ", ".join(f"{name} {words[name][0]}" for name in same if words[name][0] != NONE)
    cells = [[words[name][place] for name in kept] for place in range(len(rows))]
    heads = [f"{name}: median (quartiles)" if name == SECONDS and _many(rows) else name for name in kept]
    title = f"{rows[0]['command'].split(' --')[0]}{': ' * bool(shared)}{shared}"
    known = MIXED if any(MODELLED in name for name in fields) else MEASURED
    return Table(title, heads, cells, known, where(rows[0]), rows[0]["command"], folded=True)


def cell(value: Any, name: str = "") -> str:
    """A value in few letters."""
    if name == SECONDS or name.endswith("_seconds"):
        return _seconds(value)
    if isinstance(value, list):
        several = len(value) > ENTRIES
        return f"{len(value)} values, {cell(value[0])} to {cell(value[-1])}" if several else ", ".join(map(cell, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={cell(one)}" for key, one in value.items())[:LETTERS]
    if isinstance(value, float):
        return f"{value:.3g}"
    return NONE if value is None or value == "" else str(value)[:LETTERS]


def _seconds(value: Any) -> str:
    """Seconds of a call, or of several."""
    try:
        if isinstance(value, list):
            low, median, high = spread([number(one) for one in value])
            return f"{seconds_words(median)} ({seconds_words(low)} to {seconds_words(high)})"
        return seconds_words(number(value))
    except REFUSALS:
        return cell(value)


def _many(rows: Sequence[Values]) -> bool:
    return any(isinstance(row.get(SECONDS), list) and len(row[SECONDS]) > 1 for row in rows)
