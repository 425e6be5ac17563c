"""Rows as text: a table with medians, quartiles, ratios to the fastest baseline and errors, in at most 80 columns."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from meshfft.plans.table import WIDTH

from .baselines import MESHFFT
from .cases import Case
from .measured import Row

HEADS = ("", "mesh", "median\nms", "quartiles\nms", "ratio", "error")
NONE = "-"
TRANSPOSED = ("jaxdecomp", "mpi4py-fft")


def fastest_baseline(rows: Sequence[Row]) -> Row | None:
    others = [row for row in rows if row.seconds and row.case.library != MESHFFT]
    return min(others, key=lambda row: row.median or 0.0, default=None)


def cells(rows: Sequence[Row]) -> list[list[str]]:
    best = fastest_baseline(rows)
    base = math.nan if best is None or best.median is None else best.median
    lines = []
    for row in rows:
        if row.spread is not None:
            low, median, high = row.spread
            ratio = NONE if math.isnan(base) else f"{median / base:.2f}"
            quartiles = f"{ms(low)}-{ms(high)}"
            lines.append([row.case.name, mesh_words(row.case), ms(median), quartiles, ratio, error_words(row)])
    return lines


def notes(rows: Sequence[Row], ratio: bool = True) -> str:
    """The denominator of ratios, absent baselines with their reasons, and the circumstances."""
    best = fastest_baseline(rows) if ratio else None
    lines = [] if best is None else [f"ratio: to the fastest baseline, {_full_name(best)}."]
    if any(row.seconds and row.case.library in TRANSPOSED for row in rows):
        lines.append(f"{' and '.join(TRANSPOSED)} leave results transposed: hold order any against them.")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.absent:
            reasons.setdefault(row.absent, []).append(_full_name(row))
    lines += [f"absent: {'; '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    lines.append(circumstances_words(rows[0].facts))
    return "\n".join(folded(line) for line in lines if line)


def folded(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ")


def circumstances_words(facts: Mapping[str, Any]) -> str:
    if "load_before" not in facts:
        return ""
    load = f"load {facts['load_before']:.1f} before: other work on these cores is in the times"
    return f"measured on {facts['device']} devices, {facts['cores']} cores of {facts['cpu']}, {load}."


def sharing(rows: Sequence[Row]) -> str:
    """A line where virtual devices share cores, and so cannot scale."""
    facts, most = rows[0].facts, max(row.case.devices for row in rows)
    if facts.get("device") != "cpu" or most <= facts["cores"]:
        return ""
    return f"{most} CPU devices share {facts['cores']} cores: no speed can come of more devices than cores.\n"


def shape_words(case: Case) -> str:
    return "x".join(map(str, case.shape))


def mesh_words(case: Case) -> str:
    return ",".join(map(str, case.mesh)) or NONE


def ms(seconds: float) -> str:
    """Milliseconds, to about three digits."""
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def error_words(row: Row) -> str:
    return NONE if row.error is None else f"{row.error:.1e}"


def _full_name(row: Row) -> str:
    return f"{row.case.name} {','.join(map(str, row.case.mesh))}".strip()
