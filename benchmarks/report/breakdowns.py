"""The section of breakdowns: where the time of each step goes, by kind of work, measured and modelled kept apart.

The rows of one profile are put together as they were taken apart (`profile.rows`); bars are stacked of kinds and add
up to the step.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from meshfft.profile.breakdown import Breakdown
from meshfft.profile.kinds import KINDS
from meshfft.profile.rows import WHOLE, from_rows, title
from meshfft.profile.words import unit_for

from ..paper.figures import PARTS
from ..paper.rows import Row as PaperRow
from ..paper.rows import find
from ..paper.tables import is_compiled
from .content import MODELLED, Figure, Section, Table
from .drawing import colour, drawn, named
from .kinds import Rows, Values
from .palette import LINE, PAPER, SERIES, SOFT

COLOURS = dict(zip(KINDS, (SERIES[0], SERIES[5], SERIES[1], SERIES[4], SERIES[2], SERIES[3], LINE), strict=True))
PART = ("step", "name", "kind", "seconds", "share", "by_device", "cycles")  # fields of a row that are the part's own
PITCH, HEAD = 0.46, 1.0
INTRO = (
    "The time of a run, step by step: every bar is a step, stacked of kinds of work, and all bars together are the "
    "run. Measured under JAX's profiler, or modelled of the program that the TPU compiler makes: each figure tells."
)


def section(rows: Rows) -> Section | None:
    """A figure and a table for each profile, and the paper's FFT as modelled."""
    groups = [(from_rows(part), part[0]) for part in profiles(rows.profiles)]
    groups.sort(key=lambda one: one[0].known == MODELLED)
    figures = [_figure(found, facts) for found, facts in groups]
    paper = paper_rows(rows.evaluation)
    figures += [_paper(paper)] if paper else []
    tables = [_table(found, facts) for found, facts in groups]
    return Section("breakdowns", "Where the time goes", INTRO, figures, tables) if figures else None


def profiles(rows: Sequence[Values]) -> list[list[Values]]:
    """The rows of each profile: those that agree in all that is not a part's own."""
    found: dict[str, list[Values]] = {}
    for row in rows:
        shared = {name: value for name, value in row.items() if name not in PART}
        found.setdefault(json.dumps(shared, sort_keys=True), []).append(row)
    return [part for part in found.values() if all(name in part[0] for name in WHOLE)]


def paper_rows(evaluation: Sequence[PaperRow]) -> list[PaperRow]:
    """The paper's FFT on more and more cores, with its parts."""
    rows = find(evaluation, figure="fft-3d", algorithm="paper's FFT", quantity="total")
    return [row for row in rows if row.parts and row.seconds and not is_compiled(row)]


def _figure(found: Breakdown, facts: Mapping[str, Any]) -> Figure:
    name, size = unit_for(10 * found.wall)
    shares = {kind: sum(found.of_kind(kind)) / len(found.devices) / found.wall for kind in found.kinds}
    alt = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in shares.items())
    height = HEAD + PITCH * len(found.places) + 0.2 * ((len(found.kinds) + 3) // 4)
    drawing = drawn(functools.partial(_draw, found=found), height, json.dumps([*map(str, facts.values())]))
    hidden = ", ".join(f"{seconds / size:.3g} {name} of {kind}" for kind, seconds in found.hidden.items())
    beside = f" Hidden under other work, and in no bar: {hidden}." if hidden else ""
    note = f"{found.known.capitalize()}: {found.how}. A run takes {found.wall / size:.4g} {name}.{beside}"
    return Figure(title(facts), f"{title(facts)}: {alt}.", drawing, found.known, note)


def _draw(figure: Any, found: Breakdown) -> None:
    """A bar for each step under its name, from the top."""
    spot, (unit, size) = figure.subplots(), unit_for(10 * found.wall)
    ends = [0.0] * len(found.places)
    for kind in found.kinds:
        widths = [found.seconds(step, kind) / size for step in found.places]
        _stack(spot, widths, ends, colour(COLOURS[kind]), kind)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for at, (step, end) in enumerate(zip(found.places, ends, strict=True)):
        named(spot, 0, at - 0.24, found.name(step))
        spot.text(end, at, f" {end:.3g} {unit}", va="center", fontsize=9.5)
    spot.set(xlim=(0, 1.2 * max(*ends, 1e-12)), xlabel=f"{unit}, {found.known}")
    _bare(figure, spot, len(ends))


def _paper(rows: Sequence[PaperRow]) -> Figure:
    """The shares of the paper's algorithm, by cores."""
    heading = "3-D FFT, 2048 x 2048 x 2048, the paper's algorithm on TPU v3"
    drawing = drawn(functools.partial(_draw_paper, rows=rows), HEAD + PITCH * len(rows) + 0.2, heading)
    note = "Modelled: the cost model with nothing overlapping. Every bar is the whole of its time."
    words = "; ".join(f"{row.cores} cores: {row.seconds:.3g} s" for row in rows)
    return Figure(heading, f"{heading}: shares of the time by resource. {words}.", drawing, MODELLED, note)


def _draw_paper(figure: Any, rows: Sequence[PaperRow]) -> None:
    spot, ends = figure.subplots(), [0.0] * len(rows)
    inks = (SERIES[0], SERIES[2], SERIES[4], SERIES[1])
    for (label, (parts, _)), ink in zip(PARTS.items(), inks, strict=True):
        sums = [sum(row.parts.values()) or 1.0 for row in rows]
        widths = [
            100 * sum(row.parts.get(part, 0) for part in parts) / whole for row, whole in zip(rows, sums, strict=True)
        ]
        _stack(spot, widths, ends, colour(ink), label)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for at, row in enumerate(rows):
        named(spot, 0, at - 0.24, f"{row.cores} cores: {row.seconds or 0:.3g} s")
    spot.set(xlim=(0, 100), xlabel="share of the time, %, modelled")
    _bare(figure, spot, len(rows))


def _stack(spot: Any, widths: Sequence[float], ends: Sequence[float], ink: str, label: str) -> None:
    spot.barh(
        range(len(widths)), widths, 0.42, left=ends, color=ink, label=label, edgecolor=colour(PAPER), linewidth=0.6
    )


def _bare(figure: Any, spot: Any, many: int) -> None:
    """No axis where names stand, and what colours mean below."""
    spot.set(ylim=(many - 0.5, -0.7), yticks=[])
    spot.spines["left"].set_visible(False)
    spot.xaxis.label.set_color(colour(SOFT))
    figure.legend(loc="outside lower left", ncols=4, handlelength=1.0, columnspacing=1.2, handletextpad=0.5)


def _table(found: Breakdown, facts: Mapping[str, Any]) -> Table:
    """Seconds of every step by kind, their sums, and their shares of the run."""
    unit, size = unit_for(10 * found.wall)
    cells = []
    for step in found.places:
        spent = [found.seconds(step, kind) for kind in found.kinds]
        cells.append([found.name(step), *(_number(seconds / size) for seconds in (*spent, sum(spent)))])
    means = [sum(found.of_kind(kind)) / len(found.devices) for kind in found.kinds]
    cells.append(["run", *(_number(seconds / size) for seconds in (*means, sum(means)))])
    cells.append(["share", *(f"{100 * seconds / found.wall:.1f} %" for seconds in (*means, sum(means)))])
    return Table(f"{title(facts)}, {unit}", ("step", *found.kinds, "total"), cells, found.known, folded=True)


def _number(value: float) -> str:
    return f"{value:.3g}" if value else "-"
