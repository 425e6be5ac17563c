"""The section of accuracy: measured errors by precision tier and length, beside the errors that plans print.

Errors are relative in the L2 norm, against a direct sum or a transform in double precision.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..measure.peers import MESHFFT
from ..measure.rows import Row
from .content import MEASURED, Figure, Section, Table
from .drawing import colour, drawn, named, plain_ticks, spaced
from .kinds import Rows, Values
from .palette import INK, LINE, SERIES
from .replanned import plan_of_case
from .runs import brief

MARKS = "osD^v"
INTRO = (
    "Relative error in the L2 norm, by how dense products are made: in float32 or float64, or in 1, 3 or 6 passes of "
    "bfloat16. What was measured stands beside what a plan promises before it runs."
)
HEADS = ("transform", "method", "precision", "measured", "promised")


class Found(NamedTuple):
    """The largest error measured of cases that are alike, and the one that their plan prints, if it can be made."""

    what: str
    method: str
    precision: str
    measured: float
    promised: float | None


def section(rows: Rows) -> Section | None:
    """Errors by tier, and of every transform that was measured."""
    figures, tables = [], []
    if rows.tiers:
        figures.append(_by_length(rows.tiers))
        tables.append(_tier_table(rows.tiers))
    if found := promised(rows.cases):
        figures.append(_by_case(found))
        tables.append(_case_table(found))
    return Section("accuracy", "Error against tier", INTRO, figures, tables) if figures else None


def promised(rows: Sequence[Row]) -> list[Found]:
    """The errors of meshfft's cases, the largest of each kind, dtype, array, method and precision."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.case.peer == MESHFFT and row.error:
            points = " at points" if row.case.samples else ""
            what = f"{row.case.kind} of {brief(row.case.shape)} {row.case.dtype}{points}"
            groups.setdefault((what, row.case.method, row.case.precision or "default"), []).append(row)
    found = []
    for key, part in groups.items():
        worst = max(part, key=lambda row: row.error or 0.0)
        made = plan_of_case(worst)
        found.append(Found(*key, worst.error or 0.0, None if made is None else made.error))
    return found


def _by_length(tiers: Sequence[Values]) -> Figure:
    title = "One dense dimension: error against its length"
    drawing = drawn(functools.partial(_draw_lengths, tiers=tiers), 3.7, title)
    ends = [f"{_tier(row)} {max(row['errors'].values()):.1e} of {row['stated']:.1e} stated" for row in tiers]
    note = "Filled: four real products for a complex one. Hollow: three. Dotted, to the right: what the tier promises."
    command = str(tiers[0].get("command", ""))
    return Figure(title, f"{title}. Largest: {'; '.join(ends)}.", drawing, MEASURED, note, command)


def _draw_lengths(figure: Any, tiers: Sequence[Values]) -> None:
    """A curve for each tier, named at its end, and a mark for what it promises."""
    spot = figure.subplots()
    lengths = sorted({n for row in tiers for n in row["errors"]})
    names = list(dict.fromkeys(row["precision"] for row in tiers))
    for row in tiers:
        place, hollow = names.index(row["precision"]), row["multiplications"] == 3
        ink, (x, y) = colour(SERIES[place % len(SERIES)]), zip(*row["errors"].items(), strict=True)
        face = "none" if hollow else ink
        spot.plot(x, y, marker=MARKS[place % 5], markersize=5, color=ink, markerfacecolor=face, linewidth=1.2)
        spot.plot([lengths[-1], lengths[-1] * 2.2], [row["stated"]] * 2, ":", color=ink, linewidth=1.6)
    _name_ends(spot, tiers, names, lengths[-1] * 2.5)
    errors = [value for row in tiers for value in (*row["errors"].values(), row["stated"]) if value]
    spot.set(xscale="log", yscale="log", xlim=(lengths[0] / 1.3, lengths[-1] * 12), xlabel="length N")
    spot.set_ylim(min(errors) / 2, max(errors) * 2)
    plain_ticks(spot.yaxis, errors, error_words, most=8)
    spot.set_xticks(lengths[:: max(1, len(lengths) // 4)], [str(n) for n in lengths[:: max(1, len(lengths) // 4)]])
    spot.minorticks_off()
    spot.grid(True)


def _name_ends(spot: Any, tiers: Sequence[Values], names: Sequence[str], x: float) -> None:
    """The tiers' names right of what they promise, apart from each other."""
    levels = {name: [row["stated"] for row in tiers if row["precision"] == name] for name in names}
    heights = [sum(map(math.log10, values)) / len(values) for values in levels.values()]
    for place, (name, height) in enumerate(zip(names, spaced(heights, 0.75), strict=True)):
        spot.text(x, 10**height, name, color=colour(SERIES[place % len(SERIES)]), va="center", fontsize=9.5)


def _by_case(found: Sequence[Found]) -> Figure:
    title = "Transforms that were measured: error beside what the plan prints"
    ordered = sorted(found, key=lambda one: one.measured)
    drawing = drawn(functools.partial(_draw_cases, found=ordered), 0.8 + 0.34 * len(ordered), title)
    words = [f"{one.what}, {one.precision}: {one.measured:.1e}" for one in ordered]
    note = "The dot is the largest error that was measured, the bar what the plan prints."
    return Figure(title, f"{title}. {'; '.join(words)}.", drawing, MEASURED, note)


def _draw_cases(figure: Any, found: Sequence[Found]) -> None:
    spot = figure.subplots()
    values = [value for one in found for value in (one.measured, one.promised) if value]
    low, high = min(values) / 2, max(values) * 2
    for at, one in enumerate(found):
        words = f"{one.precision}, {one.method}: {one.what}"
        named(spot, low, at - 0.22, words)
        spot.plot([low, high], [at, at], color=colour(LINE), linewidth=0.8)
        if one.promised:
            spot.plot([one.promised] * 2, [at - 0.2, at + 0.2], color=colour(INK), linewidth=2)
        spot.plot([one.measured], [at], "o", color=colour(SERIES[0]), markersize=6)
    spot.set(xscale="log", xlim=(low, high), ylim=(len(found) - 0.5, -0.8), yticks=[], xlabel="relative L2 error")
    plain_ticks(spot.xaxis, values, error_words)
    spot.spines["left"].set_visible(False)
    spot.grid(True, axis="x")


def error_words(error: float) -> str:
    """An error at a tick."""
    mantissa, _, exponent = f"{error:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _tier_table(tiers: Sequence[Values]) -> Table:
    lengths = sorted({n for row in tiers for n in row["errors"]})
    cells = [[_tier(row), *(_number(row["errors"].get(n)) for n in lengths), f"{row['stated']:.1e}"] for row in tiers]
    heads = ("tier", *(f"N = {n}" for n in lengths), "stated")
    return Table("One dense dimension", heads, cells, MEASURED, folded=True)


def _case_table(found: Sequence[Found]) -> Table:
    cells = [[one.what, one.method, one.precision, f"{one.measured:.1e}", _number(one.promised)] for one in found]
    return Table("Transforms that were measured", HEADS, cells, MEASURED, folded=True)


def _tier(row: Mapping[str, Any]) -> str:
    return f"{row['precision']}, {row['multiplications']} products"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"
