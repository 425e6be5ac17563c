"""What the commands print: tables on stdout, or one JSON object."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from .say import draw, put, shown

RULED = box.Box("\n".join(["    ", "    ", " -- ", "    ", " -- ", " -- ", "    ", "    "]), ascii=True)


class Timing(NamedTuple):
    """A step of a command, and the seconds it took to compile, where it is compiled, and to run."""

    step: str
    compile_seconds: float | None
    run_seconds: float


def print_json(record: dict[str, Any]) -> None:
    """Prints one object, and nothing else, on stdout."""
    put(json.dumps(record, indent=2).replace("\x7f", "\\u007f") + "\n")


def print_timings(timings: Sequence[Timing]) -> None:
    """Prints a row for each step and their sum."""
    table = _table(show_footer=True)
    table.add_column("step", "total")
    compiled = sum(timing.compile_seconds or 0 for timing in timings)
    run = sum(timing.run_seconds for timing in timings)
    apart = any(timing.compile_seconds is not None for timing in timings)  # else a row tells of it, or nothing does
    if apart:
        table.add_column("compile s", f"{compiled:.3f}", justify="right")
    table.add_column("run s" if apart else "s", f"{run:.3f}", justify="right")
    for timing in timings:
        seconds = timing.compile_seconds
        cells = ["" if seconds is None else f"{seconds:.3f}"] if apart else []
        table.add_row(Text(shown(timing.step)), *cells, f"{timing.run_seconds:.3f}")
    draw(table)


def print_facts(facts: dict[str, str]) -> None:
    """Prints a table of names and values."""
    table = _table(show_header=False)
    for name, value in facts.items():
        table.add_row(Text(shown(name)), Text(shown(value)))
    draw(table)


def print_columns(heads: Sequence[str], rows: Sequence[Sequence[str]], sums: Sequence[Sequence[str]] = ()) -> None:
    """Prints rows of words and numbers, the first column to the left, and under a rule their sums."""
    table = _table(padding=(0, 0, 0, 1) if sums else (0, 1))
    for place, head in enumerate(heads):
        side: Any = "left" if place == 0 else "right"
        table.add_column(Text(shown(head)), justify=side, no_wrap=place > 0)
    for number, row in enumerate([*rows, *sums], 1):
        table.add_row(*(Text(shown(cell)) for cell in row), end_section=bool(sums) and number == len(rows))
    draw(table)


def _table(**options: Any) -> Table:
    """A table in the manner of a printed plan."""
    return Table(box=RULED, show_edge=False, pad_edge=False, **options)
