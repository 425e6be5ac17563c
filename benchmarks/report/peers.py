"""The section of peers: the seconds of every case over those of the fastest peer, one panel an array.

    ratio = median of a case / median of the fastest peer     in one run; the whisker spans the quartiles

A bar that would make all others short is cut and says so with its number.
"""

import functools
from collections.abc import Sequence
from typing import Any

from ..measure.cases import Task
from ..measure.peers import MESHFFT
from ..measure.rows import Row
from ..measure.words import HEADS, cells, fastest_peer, mesh_words
from .content import MEASURED, Figure, Section, Table
from .drawing import colour, drawn, named
from .kinds import Rows
from .palette import INK, LINE, SERIES, SOFT
from .runs import Run, by_task, runs_of, seconds_words, task_words, where

LONGEST, CUT = 6.0, 3.0  # times the middle bar: where one is longer than the first, it is cut at the second
PITCH, HEAD = 0.36, 0.75  # inches a bar, and of the rest
INTRO = (
    "Every case over the fastest peer of the same run: 1 is as fast, less is faster. The calls took turns, in an order "
    "shuffled anew every round; a bar is the median, its whisker the quartiles."
)


def section(rows: Rows) -> Section | None:
    """A panel for every array on which meshfft and a peer were measured in one run."""
    found = [
        (run, task, part)
        for run in runs_of(rows.cases)
        if "scaling" not in run.command.split()[:3]
        for task, part in by_task(run.rows).items()
        if any(row.seconds for row in part)
    ]
    figures = [_figure(run, task, part) for run, task, part in found]
    return Section("peers", "Beside peers", INTRO, figures, [_table(*one) for one in found]) if found else None


def ratios(rows: Sequence[Row]) -> list[tuple[Row, float, float, float]]:
    """Every case that was measured with its quartile, median and quartile over the yardstick, the fastest first."""
    measured = [row for row in rows if row.seconds]
    base = yardstick(measured).median or 1.0
    found = []
    for row in measured:
        low, median, high = row.spread or (0.0, 0.0, 0.0)
        found.append((row, low / base, median / base, high / base))
    return sorted(found, key=lambda one: one[2])


def yardstick(rows: Sequence[Row]) -> Row:
    """The fastest peer, or where there is none the fastest of all."""
    return fastest_peer(rows) or min((row for row in rows if row.seconds), key=lambda row: row.median or 0.0)


def _figure(run: Run, task: Task, rows: Sequence[Row]) -> Figure:
    best, found = yardstick(rows), ratios(rows)
    title = task_words(task)
    salt = f"{title}{run.facts}"
    drawing = drawn(functools.partial(_draw, found=found), HEAD + PITCH * len(found), salt)
    own = [f"{name(row)} {ratio_words(middle)}" for row, _, middle, _ in found if row.case.peer == MESHFFT]
    alt = f"{title}: ratios to {name(best)}. {'; '.join(own)}."
    note = f"1 is {name(best)}, {seconds_words(best.median or 0.0)}. {_absent(rows)}{where(run.facts)}"
    return Figure(title, alt, drawing, MEASURED, note, run.command)


def _table(run: Run, task: Task, rows: Sequence[Row]) -> Table:
    heads = ("case", *(head.replace("\n", ", ") for head in HEADS[1:]))
    return Table(task_words(task), heads, cells(rows), MEASURED, code=run.command, folded=True)


def name(row: Row) -> str:
    """Who, which way and on which mesh."""
    mesh = f" on {mesh_words(row)}" if row.case.mesh else ""
    return f"{row.case.name}{mesh}"


def _absent(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(row.case.peer for row in rows if row.absent and not row.seconds))
    return f"Absent: {', '.join(names)}. " if names else ""


def _draw(figure: Any, found: Sequence[tuple[Row, float, float, float]]) -> None:
    """Bars from the top, each under its name, meshfft's in colour."""
    spot, medians = figure.subplots(), sorted(one[2] for one in found)
    usual, longest = max(medians[len(medians) // 2], 0.4), max(one[3] for one in found)
    limit = longest if longest <= LONGEST * usual else CUT * usual
    for at, (row, low, middle, high) in enumerate(found):
        own = row.case.peer == MESHFFT
        ink, end = colour(SERIES[0] if own else SOFT), min(middle, limit)
        spot.barh(at, end, 0.36, color=ink, alpha=1.0 if own else 0.55, linewidth=0)
        if middle <= limit:
            spot.plot([min(low, limit), min(high, limit)], [at, at], color=colour(INK), linewidth=1.1)
        cut = " (cut)" if middle > limit else ""
        named(spot, 0, at - 0.25, name(row), fontweight="bold" if own else "normal")
        spot.text(1.04 * limit, at, f"{ratio_words(middle)}{cut}", va="center", fontsize=9.5)
    spot.axvline(1, color=colour(INK), linewidth=0.8, linestyle=":")
    spot.set(xlim=(0, 1.25 * limit), ylim=(len(found) - 0.5, -0.75), yticks=[], xlabel="times the fastest peer")
    spot.set_xticks([tick for tick in spot.get_xticks() if 0 <= tick <= limit])
    spot.spines["left"].set_visible(False)
    spot.grid(True, axis="x", color=colour(LINE))


def ratio_words(ratio: float) -> str:
    """A ratio to two digits after the point, or if small to two that count."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"
