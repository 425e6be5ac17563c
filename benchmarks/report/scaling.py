"""The section of scaling: seconds on more and more devices beside the ideal line, and parallel efficiency.

What is ideal, and which mesh counts, is `measure.scaling`'s; of the paper's evaluation the ideal lines are rows. Both
axes are logarithmic, so that the ideal line of strong scaling is straight, and that of weak scaling flat.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..measure.rows import Row
from ..measure.scaling import HEADS, Point, points_of, tables
from ..paper.paper import MEASURED as TABLE_I
from ..paper.paper import SCALINGS, Scaling
from ..paper.rows import Row as PaperRow
from ..paper.rows import find
from ..paper.tables import is_compiled
from .content import MEASURED, MODELLED, Figure, Section, Table
from .drawing import colour, drawn, plain_ticks
from .kinds import Rows
from .palette import INK, SERIES
from .runs import Run, brief, runs_of, seconds_words, where

MARKS, DASHED = "osD^vP", "dashed: ideal"
INTRO = (
    "Seconds against devices, both logarithmic. The dashed line is ideal: as the paper has it, the seconds on the "
    "fewest devices divided by how many times as many there are; for weak scaling, where the array grows with the "
    "devices, it is flat."
)


def section(rows: Rows) -> Section | None:
    """Scaling, measured and modelled; None where no way was tried on several numbers of devices."""
    found = [_measured(run, part) for run in runs_of(rows.cases) for part in curves_of(run)]
    paper = [scaling for scaling in SCALINGS if _totals(rows.evaluation, scaling)]
    figures = [figure for figure, _ in found] + [_modelled(rows.evaluation, scaling) for scaling in paper]
    single = find(rows.evaluation, quantity="single permute")
    figures += [_single(rows.evaluation)] if single else []
    return Section("scaling", "Scaling", INTRO, figures, [table for _, table in found]) if figures else None


def curves_of(run: Run) -> Iterator[list[Row]]:
    """The rows of a run that make curves: of one array, or of blocks of one size."""
    rows = [row for row in run.rows if row.seconds]
    groups: dict[tuple, list[Row]] = {}
    weak = is_weak(rows)
    for row in rows:
        key = row.case.task._replace(shape=() if weak else row.case.shape)
        groups.setdefault(key, []).append(row)
    for group in groups.values():
        counts: dict[str, set[int]] = {}
        for row in group:
            counts.setdefault(row.case.name, set()).add(row.case.devices)
        if kept := [row for row in group if len(counts[row.case.name]) > 1]:
            yield kept


def is_weak(rows: Sequence[Row]) -> bool:
    """True where arrays grow with their devices, and their blocks do not."""
    blocks = {(len(row.case.shape), math.prod(row.case.shape) / max(row.case.devices, 1)) for row in rows}
    return len(blocks) == 1 and len({row.case.shape for row in rows}) > 1


def _measured(run: Run, rows: list[Row]) -> tuple[Figure, Table]:
    """The curves of a run, and its efficiencies."""
    weak, task = is_weak(rows), rows[0].case.task
    array = f"{brief(task.shape)} on the fewest" if weak else brief(task.shape)
    title = f"{'Weak' if weak else 'Strong'} scaling, {task.kind} of {array}"
    lines = points_of(rows, weak)
    drawing = drawn(functools.partial(_draw, lines=lines), 3.0 + 0.2 * len(lines), f"{title}{run.facts}")
    cells = [[name, *cells] for name, part in tables(rows, weak).items() for cells in part]
    note = f"{where(run.facts)} {_sharing(run, rows)}".strip()
    figure = Figure(title, _alt(title, lines), drawing, MEASURED, note, run.command)
    heads = ("way", *(head.replace("\n", ", ") for head in HEADS))
    return figure, Table(f"{title}: efficiency", heads, cells, MEASURED, folded=len(cells) > 8)


def _sharing(run: Run, rows: Sequence[Row]) -> str:
    """A line where virtual devices share cores, and so cannot scale."""
    most, cores = max(row.case.devices for row in rows), run.facts.get("cores")
    if run.facts.get("device") != "cpu" or not isinstance(cores, int) or most <= cores:
        return ""
    return f"{most} CPU devices share {cores} cores: no speed can come of more devices than cores."


def _draw(figure: Any, lines: dict[str, list[Point]]) -> None:
    """A curve for each way, its ideal line in the same colour."""
    spot = figure.subplots()
    for place, (name, points) in enumerate(lines.items()):
        ink, mark = colour(SERIES[place % len(SERIES)]), MARKS[place % len(MARKS)]
        devices = [point.devices for point in points]
        spot.plot(devices, [point.ideal for point in points], "--", color=ink, linewidth=1)
        spot.plot(devices, [point.seconds for point in points], marker=mark, markersize=5, color=ink, label=name)
    seconds = [value for points in lines.values() for point in points for value in (point.seconds, point.ideal)]
    _axes(
        figure,
        spot,
        sorted({point.devices for points in lines.values() for point in points}),
        seconds,
        f"devices; {DASHED}",
    )


def _modelled(evaluation: Sequence[PaperRow], scaling: Scaling) -> Figure:
    """A figure of the paper's evaluation."""
    rows = find(evaluation, figure=scaling.name)
    title = f"{scaling.title}: strong scaling on TPU v3"
    drawing = drawn(functools.partial(_draw_modelled, rows=rows, scaling=scaling), 3.7, title)
    star = scaling.shape[0] in TABLE_I and scaling.cores[-1] == 2048
    note = "Everything is modelled" + (", but for the paper's own number, the star." * star or ".")
    alt = f"{title}. Curves of the paper's algorithm and of meshfft's walk, each beside its ideal line, modelled."
    return Figure(title, alt, drawing, MODELLED, note)


def _draw_modelled(figure: Any, rows: Sequence[PaperRow], scaling: Scaling) -> None:
    """The paper's algorithm and meshfft's walk, by the cost model and by the compiler's cycles, each with its line."""
    spot, drawn_rows = figure.subplots(), [row for row in rows if row.seconds and row.quantity in ("total", "ideal")]
    names = list(dict.fromkeys(row.algorithm for row in drawn_rows if row.known == MODELLED))
    for place, name in enumerate(names):
        mine, ink = find(drawn_rows, algorithm=name), colour(SERIES[(place + 1) % 2])
        whose = name if name.startswith("paper") else f"meshfft's {name}"
        ideal, total = find(mine, quantity="ideal"), find(mine, quantity="total")
        _line(spot, ideal, linestyle="--", color=ink, linewidth=1)
        by_model, by_compiler = ([row for row in total if is_compiled(row) is seen] for seen in (False, True))
        _line(spot, by_model, marker=MARKS[place % 6], markersize=5, color=ink, label=f"{whose}, modelled")
        label = "the same by compiler's cycles, modelled"
        _line(spot, by_compiler, marker="x", markersize=6, linestyle="none", color=ink, label=label)
    seconds = [row.seconds or 0.0 for row in drawn_rows]
    n, cores = scaling.shape[0], sorted({row.cores for row in drawn_rows})
    if len(scaling.shape) == 3 and cores[-1] == 2048 and n in TABLE_I:
        star = TABLE_I[n][scaling.family]
        spot.plot([2048], [star], "*", color=colour(INK), markersize=10, label="the paper, measured (Table I)")
        seconds.append(star)
    _axes(figure, spot, cores, seconds, f"cores; {DASHED}")


def _single(evaluation: Sequence[PaperRow]) -> Figure:
    """One permute and one product of the paper's third dimension."""
    permutes, einsums = (find(evaluation, quantity=f"single {name}") for name in ("permute", "einsum"))
    title = "3-D KDFT, 2048 x 2048 x 2048: one operation"

    def draw(figure: Any) -> None:
        spot = figure.subplots()
        for place, (name, rows) in enumerate((("one einsum", einsums), ("one permute", permutes))):
            _line(spot, rows, marker=MARKS[place], markersize=5, color=colour(SERIES[place]), label=f"{name}, modelled")
        both = [row for row in (*permutes, *einsums) if row.seconds]
        _axes(figure, spot, sorted({row.cores for row in both}), [row.seconds or 0.0 for row in both], "cores")

    note = "Of the third dimension, on shapes (4, 4, n2). Within a chip a permute takes next to no time."
    return Figure(
        title, f"{title}: seconds of a permute and of an einsum against cores.", drawn(draw, 3.3, title), MODELLED, note
    )


def _totals(evaluation: Sequence[PaperRow], scaling: Scaling) -> list[PaperRow]:
    return [row for row in find(evaluation, figure=scaling.name, quantity="total") if row.seconds]


def _line(spot: Any, rows: Sequence[PaperRow], **look: Any) -> None:
    if rows:
        spot.plot([row.cores for row in rows], [row.seconds for row in rows], **look)


def _axes(figure: Any, spot: Any, counts: Sequence[int], seconds: Sequence[float], what: str) -> None:
    """Both axes logarithmic, the names of the curves below them."""
    spot.set(xscale="log", yscale="log", xlabel=what, ylim=(min(seconds) / 1.5, max(seconds) * 1.5))
    plain_ticks(spot.yaxis, seconds, seconds_words)
    plain_ticks(spot.xaxis, counts, str)
    ticks = list(counts)
    while len(ticks) > 8:
        ticks = ticks[::2]
    spot.set_xticks(ticks, [str(tick) for tick in ticks])
    spot.grid(True)
    figure.legend(loc="outside lower left")


def _alt(title: str, lines: dict[str, list[Point]]) -> str:
    """The ends of every curve, in words."""
    ends = [
        f"{name}: {seconds_words(points[0].seconds)} on {points[0].devices}, {seconds_words(points[-1].seconds)} on "
        f"{points[-1].devices} devices, efficiency {points[-1].efficiency:.2f}"
        for name, points in lines.items()
    ]
    return f"{title}. {'; '.join(ends)}."
