"""The section of models: seconds that were modelled against those that were measured or compiled.

walks         the cost model's seconds against the median of calls on this kind of machine
compute       the cost model's against the TPU compiler's cycles over the clock: both are modelled
Table I       the paper's measured seconds against the paper's way and meshfft's, modelled
"""

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from ..paper.paper import TABLES
from ..paper.rows import Row as PaperRow
from ..paper.rows import find
from ..paper.tables import HEADS as TABLE_HEADS
from ..paper.tables import RATIO_HEADS, Entry, entries, ratio_cells, table_cells
from .content import MODELLED, Figure, Section, Table
from .drawing import colour, drawn, named, plain_ticks
from .kinds import Rows, Values
from .palette import INK, LINE, SERIES, SOFT
from .runs import brief, seconds_words, where

MARKS = "osD^vP"
BOTH = "modelled against measured"
INTRO = (
    "What the cost model says, against what happened. On the line both agree; above it, it took longer than modelled. "
    "Where nothing ran, both axes are models, and are called so."
)


def section(rows: Rows) -> Section | None:
    """Model against measurement, against the compiler, and against the paper."""
    figures, tables = [], []
    if rows.choices:
        figures.append(_walks(rows.choices))
        tables.append(_walks_table(rows.choices))
    compiled = [row for row in rows.evaluation if row.compiled]
    if compiled:
        figures.append(_compute(compiled))
        tables.append(
            Table("Compute seconds: model and compiler", RATIO_HEADS, ratio_cells(compiled), MODELLED, folded=True)
        )
    for name in TABLES:
        if lines := table_lines(rows.evaluation, name):
            figures.append(_table_figure(name, lines))
            tables += _tables(rows.evaluation, name)
    return Section("models", "Model against measurement", INTRO, figures, tables) if figures else None


def table_lines(evaluation: Sequence[PaperRow], name: str) -> list[Entry]:
    """The lines of Table I on one machine, KDFT and FFT, that have any seconds."""
    rows = find(evaluation, figure=name)
    found = [one for family in ("KDFT", "FFT") for one in entries(rows, name, family)] if rows else []
    return [one for one in found if one.meshfft is not None]


def _walks(choices: Sequence[Values]) -> Figure:
    title = "Walks on CPU devices: modelled and measured"
    pairs = [(row["modelled"], statistics.median(row["seconds"])) for row in choices]
    within = sum(1 / 2 <= measured / modelled <= 2 for modelled, measured in pairs)
    groups: dict[str, list[tuple[float, float]]] = {}
    for row, pair in zip(choices, pairs, strict=True):
        groups.setdefault(next((m for m in row["methods"] if m != "auto"), "auto"), []).append(pair)
    drawing = drawn(functools.partial(_draw_pairs, groups=groups, words=("modelled", "measured, median")), 4.2, title)
    note = f"Within a factor of 2: {within} of {len(pairs)}. {where(choices[0])}"
    alt = f"{title}, {len(pairs)} walks; {within} lie within a factor of two of each other."
    return Figure(title, alt, drawing, BOTH, note, str(choices[0].get("command", "")))


def _walks_table(choices: Sequence[Values]) -> Table:
    heads = ("case", "walk of", "mesh", "modelled", "measured", "measured / modelled")
    cells = []
    for row in choices:
        seconds = statistics.median(row["seconds"])
        mesh, methods = ",".join(map(str, row["mesh"].values())), ", ".join(row["methods"])
        ratio = seconds / row["modelled"]
        cells.append(
            [row["case"], methods, mesh, seconds_words(row["modelled"]), seconds_words(seconds), f"{ratio:.2f}"]
        )
    return Table("Walks on CPU devices", heads, cells, BOTH, folded=True)


def _compute(rows: Sequence[PaperRow]) -> Figure:
    title = "Compute seconds on TPUs: the model's and the compiler's"
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        groups.setdefault(row.algorithm, []).append((row.compiled["model_compute"], row.parts["compute"]))
    words = ("cost model, modelled", "compiler's cycles, modelled")
    drawing = drawn(functools.partial(_draw_pairs, groups=groups, words=words), 4.4, title)
    apart = [row.compiled["ratio"] for row in rows]
    note = f"Both are modelled, nothing ran. Ratios of the two lie between {min(apart):.2f} and {max(apart):.2f}."
    return Figure(title, f"{title}, {len(rows)} programs. {note}", drawing, MODELLED, note)


def _draw_pairs(figure: Any, groups: dict[str, list[tuple[float, float]]], words: tuple[str, str]) -> None:
    """Points about the diagonal, with lines at half and twice."""
    spot, pairs = figure.subplots(), [pair for part in groups.values() for pair in part]
    low, high = min(map(min, pairs)) / 1.6, max(map(max, pairs)) * 1.6
    for factor, style in ((1, "-"), (2, ":"), (0.5, ":")):
        start, end = max(low, low / factor), min(high, high / factor)
        spot.plot([start, end], [factor * start, factor * end], style, color=colour(SOFT), linewidth=1)
    for place, (name, part) in enumerate(groups.items()):
        ink = colour(SERIES[place % len(SERIES)])
        spot.plot(*zip(*part, strict=True), MARKS[place % 6], markersize=5, color=ink, alpha=0.85, label=name)
    spot.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel=words[0], ylabel=words[1])
    for axis in (spot.xaxis, spot.yaxis):
        plain_ticks(axis, (low, high), seconds_words, most=7)
    spot.set_box_aspect(1)
    spot.grid(True)
    figure.legend(loc="outside lower left", ncols=2, columnspacing=1.2, handletextpad=0.3)


def _table_figure(name: str, lines: Sequence[Entry]) -> Figure:
    title = f"Table I on {TABLES[name]}"
    drawing = drawn(functools.partial(_draw_table, lines=lines), 1.5 + 0.38 * len(lines), title)
    ends = [f"{one.way} {one.n}^3: {seconds_words(one.meshfft or 0.0)}" for one in lines]
    known = "modelled but for the paper's own"
    note = "Only the paper's numbers, the stars, were measured, on its v3 pod; all others are modelled."
    return Figure(title, f"{title}, meshfft modelled: {'; '.join(ends)}.", drawing, known, note)


SIGNS: tuple[tuple[str, Callable[[Entry], float | None], str, str], ...] = (
    ("physical floor, modelled", lambda one: one.floor, "|", SOFT),
    ("paper's way, modelled", lambda one: one.paper, "s", SERIES[1]),
    ("meshfft, modelled", lambda one: one.meshfft, "o", SERIES[0]),
    ("meshfft by compiler's cycles, modelled", lambda one: one.compiled, "x", SERIES[2]),
    ("the paper, measured", lambda one: one.measured, "*", INK),
)


def _draw_table(figure: Any, lines: Sequence[Entry]) -> None:
    """A line for each array and way, from the top, with a sign for each number."""
    spot = figure.subplots()
    values = [value for one in lines for _, of, _, _ in SIGNS if (value := of(one))]
    low, high = min(values) / 1.8, max(values) * 1.8
    for at, one in enumerate(lines):
        spot.plot([low, high], [at, at], color=colour(LINE), linewidth=0.8)
        words = one.way if one.way.startswith(one.family) else f"{one.family}, {one.way}"
        named(spot, low, at - 0.2, f"{brief((one.n,) * 3)}  {words}")
    for label, of, mark, ink in SIGNS:
        points = [(value, at) for at, one in enumerate(lines) if (value := of(one))]
        if points:
            spot.plot(*zip(*points, strict=True), mark, markersize=7, color=colour(ink), label=label, linestyle="none")
    spot.set(xscale="log", xlim=(low, high), ylim=(len(lines) - 0.5, -0.8), yticks=[], xlabel="seconds")
    plain_ticks(spot.xaxis, values, seconds_words, most=5)
    spot.spines["left"].set_visible(False)
    spot.grid(True, axis="x")
    figure.legend(loc="outside lower left", handletextpad=0.3)


def _tables(evaluation: Sequence[PaperRow], name: str) -> list[Table]:
    heads = [head.replace("\n", " ") for head in TABLE_HEADS]
    known = "modelled but for the paper's own"
    return [
        Table(
            f"Table I, {family}, on {TABLES[name]}, seconds",
            heads,
            table_cells(evaluation, name, family),
            known,
            folded=True,
        )
        for family in ("KDFT", "FFT")
        if find(evaluation, figure=name, family=family)
    ]
