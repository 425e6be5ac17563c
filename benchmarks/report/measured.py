"""The sections of what was measured: cases beside baselines, scaling, and tables of other commands.

ratio = median of a case / median of the fastest baseline of its run (a command, a commit, a day and a processor)
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from meshfft.plans.picture import COLOURS

from ..measure.baselines import MESHFFT
from ..measure.cases import Task
from ..measure.measured import Row
from ..measure.scaling import HEADS as SCALING_HEADS
from ..measure.scaling import Point, points_of, tables
from ..measure.words import HEADS, cells, circumstances_words, fastest_baseline, mesh_words, ms, sharing
from ..timing import spread
from .page import MARKS, MEASURED, Figure, Section, Table, drawn, logarithmic
from .reading import Rows, Values

RUN = ("command", "commit", "date", "cpu")
ABOUT = ("versions", "device", "cpu", "cores", "load_before", "date", "commit", "command")
BESIDE = (
    "Every case over the fastest baseline of the same run: 1 is as fast, less is faster. Calls took turns in an order "
    "shuffled every round; a dot is the median, its whisker the quartiles."
)
SCALING = (
    "Seconds against devices. Ideal is, as in the paper, the seconds on the fewest devices divided by how many times "
    "as many there are. For weak scaling, where the array grows with the devices, it is flat."
)
OTHERS = "Rows of commands that have no figure here. Seconds are medians, with their quartiles."


def sections(rows: Rows) -> Iterator[Section]:
    groups = list(runs(rows.cases))
    if curves := [curve for run in groups for curve in curves_of(run)]:
        yield Section("scaling", "Scaling", SCALING, [part for curve in curves for part in _scaling(curve)])
    beside = [part for run in groups if "scaling" not in str(run[0].facts.get("command")) for part in by_task(run)]
    if beside:
        yield Section("baselines", "Beside baselines", BESIDE, [part for task in beside for part in _ratios(task)])


def others(rows: Rows) -> Iterator[Section]:
    """Rows of other commands as tables, one for each run."""
    groups: dict[tuple[str, ...], list[Values]] = {}
    for row in rows.others:
        groups.setdefault(tuple(str(row.get(name)) for name in (*RUN, "table")), []).append(row)
    if groups:
        yield Section("others", "Other measurements", OTHERS, [_other(group) for group in groups.values()])


def runs(rows: Iterable[Row]) -> Iterator[list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.seconds:
            found.setdefault(tuple(str(row.facts.get(name)) for name in RUN), []).append(row)
    yield from found.values()


def by_task(rows: Iterable[Row]) -> list[list[Row]]:
    found: dict[Task, list[Row]] = {}
    for row in rows:
        found.setdefault(row.case.task, []).append(row)
    return list(found.values())


def curves_of(run: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows of a run that make curves: of one array, or of blocks of one size, on several numbers of devices."""
    for rows in [list(run)] if is_weak(run) else by_task(run):
        counts: dict[str, set[int]] = {}
        for row in rows:
            counts.setdefault(row.case.name, set()).add(row.case.devices)
        if kept := [row for row in rows if len(counts[row.case.name]) > 1]:
            yield kept


def is_weak(rows: Sequence[Row]) -> bool:
    """True where arrays grow with their devices, and their blocks do not."""
    blocks = {(len(row.case.shape), math.prod(row.case.shape) / max(row.case.devices, 1)) for row in rows}
    return len(blocks) == 1 and len({row.case.shape for row in rows}) > 1


def ratios(rows: Sequence[Row]) -> list[tuple[Row, float, float, float]]:
    """Every case with its quartile, median and quartile over the fastest baseline (or case), the fastest first."""
    base = _yardstick(rows).median or 1.0
    spreads = sorted(((row, spread(row.seconds)) for row in rows), key=lambda pair: pair[1].median)
    return [(row, one.low / base, one.median / base, one.high / base) for row, one in spreads]


def _yardstick(rows: Sequence[Row]) -> Row:
    return fastest_baseline(rows) or min(rows, key=lambda row: row.median or 0.0)


def _name(row: Row) -> str:
    return f"{row.case.name} on {mesh_words(row.case)}" if row.case.mesh else row.case.name


def _task_words(task: Task) -> str:
    points = f" at {'x'.join(map(str, task.samples))} points" if task.samples else ""
    return f"{task.kind} of {'x'.join(map(str, task.shape))} {task.dtype}{points}"


def _plain(heads: Sequence[str]) -> list[str]:
    return [head.replace("\n", ", ") for head in heads]


def _ratios(rows: Sequence[Row]) -> Iterator[Figure | Table]:
    best, title, facts = _yardstick(rows), _task_words(rows[0].case.task), rows[0].facts
    image = drawn(partial(_draw_ratios, found=ratios(rows)), 1.2 + 0.24 * len(rows))
    note = f"1 is {_name(best)}, {ms(best.median or 0.0)} ms; {circumstances_words(facts)}"
    yield Figure(title, image, MEASURED, note, str(facts.get("command", "")))
    yield Table(f"{title}: medians", ["case", *_plain(HEADS[1:])], cells(rows), MEASURED)


def _draw_ratios(figure: Any, found: Sequence[tuple[Row, float, float, float]]) -> None:
    spot = figure.subplots()
    for at, (row, low, middle, high) in enumerate(found):
        colour, reach = COLOURS[0 if row.case.library == MESHFFT else 6], [[middle - low], [high - middle]]
        spot.errorbar(middle, at, xerr=reach, fmt="o", color=colour, capsize=2)
        spot.text(1.01, at, f"{middle:.2f}", transform=spot.get_yaxis_transform(), va="center", fontsize="small")
    spot.axvline(1, color="black", linewidth=0.8, linestyle=":")
    spot.set_yticks(range(len(found)), [_name(row) for row, *_ in found], fontsize="small")
    logarithmic(spot, "x")
    spot.set(xlabel="times the fastest baseline", ylim=(len(found) - 0.5, -0.5))


def _scaling(rows: Sequence[Row]) -> Iterator[Figure | Table]:
    weak, facts = is_weak(rows), rows[0].facts
    task = f"{_task_words(rows[0].case.task)}{' on the fewest' if weak else ''}"
    title, note = f"{'Weak' if weak else 'Strong'} scaling, {task}", f"{circumstances_words(facts)} {sharing(rows)}"
    image = drawn(partial(_draw_scaling, lines=points_of(rows, weak)), 4.5)
    yield Figure(title, image, MEASURED, note, str(facts.get("command", "")))
    lines = [[way, *line] for way, part in tables(rows, weak).items() for line in part]
    yield Table(f"{title}: efficiency", ["way", *_plain(SCALING_HEADS)], lines, MEASURED)


def _draw_scaling(figure: Any, lines: dict[str, list[Point]]) -> None:
    """A curve for each way, its ideal line in the same colour."""
    spot = figure.subplots()
    for place, (way, points) in enumerate(lines.items()):
        colour, devices = COLOURS[place % len(COLOURS)], [point.devices for point in points]
        spot.plot(devices, [point.ideal for point in points], "--", color=colour, linewidth=1)
        spot.plot(devices, [point.seconds for point in points], MARKS[place % 8] + "-", color=colour, label=way)
    counts = sorted({point.devices for points in lines.values() for point in points})
    logarithmic(spot, "xy")
    spot.set(xlabel="devices (dashed: ideal)", ylabel="seconds")
    spot.set_xticks(counts, list(map(str, counts)))
    spot.legend(frameon=False, fontsize="small")


def _other(rows: Sequence[Values]) -> Table:
    """Fields that differ as columns; those that all rows share, in the note."""
    fields = list(dict.fromkeys(field for row in rows for field in row if field not in ABOUT))
    words = {field: [_cell(row.get(field)) for row in rows] for field in fields}
    same = [field for field in fields if len(rows) > 1 and len(set(words[field])) == 1]
    kept = [field for field in fields if field not in same]
    note = ", ".join(f"{field} {words[field][0]}" for field in same)
    lines = [[words[field][at] for field in kept] for at in range(len(rows))]
    known = "measured, but for what is called modelled" if any("modelled" in one for one in fields) else MEASURED
    return Table(rows[0]["command"].split(" --")[0], kept, lines, known, note, rows[0]["command"])


def _cell(value: Any) -> str:
    """A value in few letters; of several numbers the median and the quartiles."""
    if isinstance(value, list) and value and all(isinstance(one, float) for one in value):
        low, middle, high = spread(value)
        return f"{middle:.3g} ({low:.3g} to {high:.3g})" if len(value) > 1 else f"{middle:.3g}"
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)[:60]
