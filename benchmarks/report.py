"""Rows as tables, for the site's pages of rows: recognized by their fields, and never mixed across runs.

cases        `fft`, `scaling`        a case and the seconds of every call, over the fastest baseline of its run
evaluation   `paper`                 one number of the paper's evaluation
profiles     `meshfft profile`       seconds of a step in a kind of work
others       any command             numbers, and the command that made them
"""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from . import rows as files
from .measure.cases import Task
from .measure.measured import Row
from .measure.scaling import HEADS as SCALING_HEADS
from .measure.scaling import tables as scaling_tables
from .measure.words import HEADS, cells, circumstances_words, notes, sharing
from .paper.rows import Row as PaperRow
from .paper.tables import tables as paper_tables
from .timing import spread

Values = dict[str, Any]
Kind = TypeVar("Kind")
RUN = ("command", "commit", "date", "cpu")
ABOUT = ("versions", "device", "cpu", "cores", "load_before", "date", "commit", "command")
OWN = ("step", "kind", "name", "seconds", "share", "by_device", "cycles")  # what rows of one profile do not share
MEASURED, MODELLED, BUT = "measured", "modelled", "modelled but for the paper's own numbers"
BESIDE = "Calls took turns in an order shuffled every round. Ratios are to the fastest baseline of the same run."
SCALING = (
    "Ideal is, as in the paper, the seconds on the fewest devices over how many times as many there are. For weak "
    "scaling, where the array grows with the devices, it is flat."
)
PROFILES = (
    "The time of a run by step and kind of work: measured under JAX's profiler, or modelled for a compiled program."
)
EVALUATION = "The paper's evaluation on machines that are only described. Only the paper's numbers are measured."
OTHERS = "Rows of other commands. Seconds are medians, with their quartiles."


class Rows(NamedTuple):
    """Rows by kind, as above, and where those stand that are of none."""

    cases: list[Row]
    evaluation: list[PaperRow]
    profiles: list[Values]
    others: list[Values]
    unknown: list[str]


class Table(NamedTuple):
    """Cells with column names: the origin of the numbers, a note, and the command behind the rows."""

    title: str
    heads: Sequence[str]
    cells: Sequence[Sequence[str]]
    known: str = MODELLED
    note: str = ""
    command: str = ""


class Section(NamedTuple):
    """A chapter: its name in links, its title, an introduction, and its tables."""

    name: str
    title: str
    intro: str
    tables: list[Table]


def read(paths: Sequence[Path]) -> Rows:
    """The rows of some files by kind; raises ValueError for a line that is no JSON object, and a file without any."""
    found = Rows([], [], [], [], [])
    for path in paths:
        for at, values in files.read(path).items():
            try:
                kind, row = _understood(values)
                getattr(found, kind).append(row)
            except (KeyError, TypeError, ValueError, AttributeError):
                found.unknown.append(f"line {at} of {path}")
    return found


def _understood(values: Values) -> tuple[str, Any]:
    """The kind of a row, and what its section takes; raises for a row of no kind, or without a number."""
    if "absent" in values and "library" in values:
        return "cases", Row.from_dict({**values, "seconds": _positive(values["seconds"])})
    if "quantity" in values:
        _positive([values["seconds"]])
        return "evaluation", PaperRow.from_dict(values)
    if values.get("benchmark") == "profile":
        _positive([values["wall_seconds"], *values["runs"]])
        return "profiles", {**values, "step": str(values["name"]), "kind": str(values["kind"])}
    return "others", {**values, "command": str(values["command"])}


def _positive(numbers: list[float]) -> list[float]:
    if not all(0 < number < math.inf for number in numbers):
        raise ValueError(f"{numbers} are no positive numbers")
    return numbers


def sections(rows: Rows) -> Iterator[Section]:
    groups = runs(rows.cases)
    others = grouped(rows.others, lambda row: tuple(str(row.get(name)) for name in (*RUN, "table")))
    paper = [Table(title, _plain(heads), lines, BUT) for title, heads, lines in paper_tables(rows.evaluation)]
    chapters = (
        Section("scaling", "Scaling", SCALING, [_scaling(curve) for run in groups for curve in curves_of(run)]),
        Section("baselines", "Beside baselines", BESIDE, [_beside(part) for run in groups for part in by_task(run)]),
        Section("profiles", "Where the time goes", PROFILES, list(map(_profile, profiles(rows.profiles)))),
        Section("paper", "The paper's evaluation", EVALUATION, paper),
        Section("others", "Other measurements", OTHERS, list(map(_other, others))),
    )
    yield from (chapter for chapter in chapters if chapter.tables)


def grouped(rows: Iterable[Kind], key: Callable[[Kind], Hashable]) -> list[list[Kind]]:
    """The rows with one key, in the order in which the first of each comes."""
    found: dict[Hashable, list[Kind]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def runs(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows that were measured, by the run they are of: a command, a commit, a day and a processor."""
    return grouped((row for row in rows if row.seconds), lambda row: tuple(str(row.facts.get(name)) for name in RUN))


def by_task(rows: Iterable[Row]) -> list[list[Row]]:
    return grouped(rows, lambda row: row.case.task)


def curves_of(run: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows of a run that make curves: of one array, or of blocks of one size, on several numbers of devices."""
    for rows in [list(run)] if is_weak(run) else by_task(run):
        counts: dict[str, set[int]] = {}
        for row in rows:
            counts.setdefault(row.case.name, set()).add(row.case.devices)
        if kept := [row for row in rows if len(counts[row.case.name]) > 1]:
            yield kept


def is_weak(rows: Sequence[Row]) -> bool:
    blocks = {(len(row.case.shape), math.prod(row.case.shape) / max(row.case.devices, 1)) for row in rows}
    return len(blocks) == 1 and len({row.case.shape for row in rows}) > 1


def profiles(rows: Sequence[Values]) -> list[list[Values]]:
    """The rows of each profile: those that agree in all that is not a row's own."""
    return grouped(rows, lambda row: json.dumps({k: v for k, v in row.items() if k not in OWN}, sort_keys=True))


def _title(task: Task) -> str:
    points = f" at {'x'.join(map(str, task.samples))} points" if task.samples else ""
    return f"{task.kind} of {'x'.join(map(str, task.shape))} {task.dtype}{points}"


def _plain(heads: Iterable[str]) -> list[str]:
    return [head.replace("\n", ", ") for head in heads]


def _command(rows: Sequence[Row]) -> str:
    return str(rows[0].facts.get("command", ""))


def _beside(rows: Sequence[Row]) -> Table:
    heads = ["case", *_plain(HEADS[1:])]
    return Table(_title(rows[0].case.task), heads, cells(rows), MEASURED, notes(rows), _command(rows))


def _scaling(rows: Sequence[Row]) -> Table:
    weak, note = is_weak(rows), f"{circumstances_words(rows[0].facts)} {sharing(rows)}"
    title = f"{'Weak' if weak else 'Strong'} scaling, {_title(rows[0].case.task)}{' on the fewest' * weak}"
    lines = [[way, *line] for way, part in scaling_tables(rows, weak).items() for line in part]
    return Table(title, ["way", *_plain(SCALING_HEADS)], lines, MEASURED, note, _command(rows))


def _profile(rows: Sequence[Values]) -> Table:
    first, (steps, kinds) = rows[0], (list(dict.fromkeys(row[name] for row in rows)) for name in ("step", "kind"))
    spent = {(row["step"], row["kind"]): row["seconds"] for row in rows}
    lines = [[step, *(f"{spent.get((step, kind), 0.0):.3g}" for kind in kinds)] for step in steps]
    hidden = "".join(f" Hidden: {seconds:.3g} s of {kind}." for kind, seconds in first["hidden"].items())
    shape, mesh = ("x".join(map(str, sizes)) for sizes in (first["shape"], first["mesh"].values()))
    what = f"{first['transform']} of {shape} {first['dtype']}, method {first['method']}, mesh {mesh}"
    note = f"{first['how']}; a run takes {first['wall_seconds']:.4g} s.{hidden}"
    return Table(f"{what}, on {first['device']}: seconds", ["step", *kinds], lines, first["known"], note)


def _other(rows: Sequence[Values]) -> Table:
    fields = list(dict.fromkeys(field for row in rows for field in row if field not in ABOUT))
    words = {field: [_cell(row.get(field)) for row in rows] for field in fields}
    same = [field for field in fields if len(rows) > 1 and len(set(words[field])) == 1]
    kept = [field for field in fields if field not in same]
    note = ", ".join(f"{field} {words[field][0]}" for field in same)
    lines = [[words[field][at] for field in kept] for at in range(len(rows))]
    known = "measured, but for what is called modelled" if any("modelled" in one for one in fields) else MEASURED
    command = " ".join((rows[0]["command"], rows[0].get("table", ""))).rstrip()
    return Table(command, kept, lines, known, note)


def _cell(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(one, float) for one in value):
        low, middle, high = spread(value)
        return f"{middle:.3g} ({low:.3g} to {high:.3g})" if len(value) > 1 else f"{middle:.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(one)}" for name, one in value.items())[:60]
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)[:60]


def html(one: Table) -> str:
    """A table as HTML, folded; every text is data and is escaped."""
    heads = "".join(f"<th>{escape(head)}</th>" for head in one.heads)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in one.cells)
    command = f" <code>{escape(one.command)}</code>" if one.command else ""
    about = f"<p><b>{escape(one.known)}</b> {escape(one.note)}{command}</p>"
    return f"<details><summary>{escape(one.title)}</summary>{about}<table><tr>{heads}</tr>{lines}</table></details>"
