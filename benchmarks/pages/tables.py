"""Tables that pages have: those of the paper's evaluation as blocks of text, others in Markdown."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..measure.measured import Row as Measured
from ..measure.words import mesh_words, ms, shape_words
from ..paper.rows import Row
from ..paper.tables import number, tables
from .series import THEIRS, program

HERE = ("array", "mesh", "the authors' program", *("cooley-tukey", "ratio", "auto", "ratio"), "errors: theirs, ours")
WIRES = ("order", "wire", "sent by a device", "plan", "cycles", "links", "played")
CONVOLUTIONS = ("length", "by", "devices", "seconds", "compile", "received by a device", "temporaries", "errors")
PROGRAMS = ("program", "mesh", "plan", "played", "compute by the plan", "by the compiler", "ratio")
Titled = Iterator[tuple[str, str]]
Values = Mapping[str, Any]


def of_paper(rows: Sequence[Row]) -> Titled:
    for title, heads, lines in tables(rows):
        yield title, _fenced(title, heads, lines)


def of_programs(rows: Sequence[Values]) -> Titled:
    wires = [row for row in rows if (row["shape"][0], row["mesh"], row["engine"]) == (8192, [2048], "auto")]
    wires.sort(key=lambda row: (row["order"] != "natural", -row["sent_bytes"]))
    yield "wires", _markdown(WIRES, map(_wire, wires))
    ours = [row for row in rows if row["by"] != THEIRS and row["wire"] == "exact"]
    yield "programs", _markdown(PROGRAMS, map(_against, sorted(ours, key=_ratio)))


def _wire(row: Values) -> list[str]:
    sent = f"{row['sent_bytes'] / 1e9:.2f} GB"
    return [row["order"], row["wire"], sent, *_modelled(row, "plan", "compute", "links", "played")]


def _against(row: Values) -> list[str]:
    seconds = _modelled(row, "plan", "played", "plan_compute", "compute")
    return [program(row), ", ".join(map(str, row["mesh"])), *seconds, f"{_ratio(row):.2f}"]


def _ratio(row: Values) -> float:
    return float(row["modelled_plan_compute"] / row["modelled_compute"])


def _modelled(row: Values, *fields: str) -> list[str]:
    return [number(row[f"modelled_{field}"]) for field in fields]


def of_convolutions(rows: Sequence[Values]) -> Titled:
    yield "long convolutions", _markdown(CONVOLUTIONS, map(_convolved, rows))


def _convolved(row: Values) -> list[str]:
    sizes = (f"{row[name] / 1e6:.1f} MB" for name in ("received_bytes", "temporary_bytes"))
    errors = ", ".join(f"{row[name]:.1e}" for name in ("error", "gradient_error"))
    seconds = (statistics.median(row["seconds"]), row["compile_seconds"])
    return [str(row["length"]), row["by"], str(row["devices"]), *(f"{one:.2f} s" for one in seconds), *sizes, errors]


def of_authors(rows: Sequence[Measured]) -> Titled:
    """The authors' program and ours: medians of the runs' medians, and ratios within a run."""
    cases = dict.fromkeys((row.case.task, row.case.mesh) for row in rows)
    alike = ([row for row in rows if (row.case.task, row.case.mesh) == case] for case in cases)
    yield "here", _markdown(HERE, map(_here, alike))


def _here(rows: Sequence[Measured]) -> list[str]:
    theirs, *ours = (
        [row.median or math.nan for row in rows if way in row.case.name.split()] for way in (THEIRS, *HERE[3:7:2])
    )
    line = [shape_words(rows[0].case), mesh_words(rows[0].case), ms(statistics.median(theirs))]
    for one in ours:
        ratios = [a / b for a, b in zip(theirs, one, strict=True)]
        line += [ms(statistics.median(one)), f"{min(ratios):.3g} to {max(ratios):.3g}"]
    errors = (max(row.error or 0.0 for row in rows if (row.case.library == THEIRS) == its) for its in (True, False))
    return [*line, ", ".join(f"{error:.1e}" for error in errors)]


def _fenced(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table as a block of text, its heads in as many lines as they have."""
    words = [head.split("\n") for head in heads]
    depth = max(map(len, words))
    above = zip(*([""] * (depth - len(one)) + one for one in words), strict=True)
    grid = [*map(list, above), *lines]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    text = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in grid]
    rule = "-" * (sum(widths) + 2 * len(widths) - 2)
    return "\n\n" + "\n".join(["```", title, "", *text[:depth], rule, *text[depth:], "```"]) + "\n\n"


def _markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n\n"
