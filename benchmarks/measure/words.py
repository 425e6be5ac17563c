"""Rows as text: a table with medians, quartiles, ratios to the fastest baseline and errors, in at most 80 columns."""

import textwrap
from collections.abc import Sequence

from meshfft.plans.table import WIDTH

from .baselines import MESHFFT
from .rows import Row

HEADS = ("", "mesh", "median\nms", "quartiles\nms", "ratio", "error")
NONE = "-"
TRANSPOSED = ("jaxdecomp", "mpi4py-fft")


def fastest_baseline(rows: Sequence[Row]) -> Row | None:
    """The baseline with the least median, of those beside meshfft."""
    return min((row for row in rows if row.seconds and row.case.library != MESHFFT), key=_median, default=None)


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each case that was measured, under HEADS."""
    best = fastest_baseline(rows)
    base = None if best is None else best.median
    return [_line(row, base) for row in rows if row.seconds]


def notes(rows: Sequence[Row], ratio: bool = True) -> str:
    """What ratios are to, who is absent and why, and the circumstances."""
    best, facts = fastest_baseline(rows) if ratio else None, rows[0].facts
    lines = [] if best is None else [f"ratio: to the fastest baseline, {_full_name(best)}."]
    if any(row.seconds and row.case.library in TRANSPOSED for row in rows):
        lines.append(f"{' and '.join(TRANSPOSED)} leave results transposed: hold order any against them.")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.absent:
            reasons.setdefault(row.absent, []).append(_full_name(row))
    lines += [f"absent: {'; '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()]
    lines.append(circumstances_words(facts))
    return "\n".join(folded(line) for line in lines if line)


def folded(line: str) -> str:
    """A line in as many as it takes."""
    return textwrap.fill(line, WIDTH, subsequent_indent="  ")


def circumstances_words(facts: dict) -> str:
    """Where it was measured, and how busy that was."""
    if not facts:
        return ""
    load = f"load {facts['load_before']:.1f} before: other work on these cores is in the times"
    return f"measured on {facts['device']} devices, {facts['cores']} cores of {facts['cpu']}, {load}."


def mesh_words(row: Row) -> str:
    """Devices along mesh axes."""
    return ",".join(map(str, row.case.mesh)) or NONE


def ms(seconds: float) -> str:
    """Milliseconds, to about three digits."""
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def error_words(row: Row) -> str:
    """The error, to two digits."""
    return NONE if row.error is None else f"{row.error:.1e}"


def _line(row: Row, base: float | None) -> list[str]:
    found = row.spread
    assert found is not None
    ratio = NONE if base is None else f"{found.median / base:.2f}"
    quartiles = f"{ms(found.low)}-{ms(found.high)}"
    return [row.case.name, mesh_words(row), ms(found.median), quartiles, ratio, error_words(row)]


def _full_name(row: Row) -> str:
    return f"{row.case.name} {','.join(map(str, row.case.mesh))}".strip()


def _median(row: Row) -> float:
    return row.median or 0.0
