"""Rows as text: a table with medians, quartiles, ratios to the fastest baseline and errors, in at most 80 columns."""

import textwrap
from collections.abc import Sequence

from meshfft.plans.table import WIDTH

from ..rows import Values, grouped
from ..timing import spread
from .baselines import MESHFFT
from .measured import median_of, name_of

HEADS = ("", "mesh", "median\nms", "quartiles\nms", "ratio", "error")
NONE = "-"
TRANSPOSED = ("jaxdecomp", "mpi4py-fft")


def fastest_baseline(rows: Sequence[Values]) -> Values | None:
    others = [row for row in rows if row["seconds"] and row["library"] != MESHFFT]
    return min(others, key=median_of, default=None)


def cells(rows: Sequence[Values]) -> list[list[str]]:
    best, lines = fastest_baseline(rows), list[list[str]]()
    for row in (row for row in rows if row["seconds"]):
        low, median, high = spread(row["seconds"])
        ratio = NONE if best is None else f"{median / median_of(best):.2f}"
        words = [ms(median), f"{ms(low)}-{ms(high)}", ratio, error_words(row)]
        lines.append([name_of(row), mesh_words(row), *words])
    return lines


def notes(rows: Sequence[Values]) -> str:
    """The denominator of ratios, absent baselines with their reasons, and the circumstances."""
    best = fastest_baseline(rows)
    lines = [] if best is None else [f"ratio: to the fastest baseline, {_full_name(best)}."]
    if any(row["seconds"] and row["library"] in TRANSPOSED for row in rows):
        lines.append(f"{' and '.join(TRANSPOSED)} leave results transposed: hold order any against them.")
    for same in grouped((row for row in rows if row["absent"]), lambda row: row["absent"]):
        lines.append(f"absent: {'; '.join(dict.fromkeys(map(_full_name, same)))}: {same[0]['absent']}")
    lines.append(circumstances_words(rows[0]))
    return "\n".join(folded(line) for line in lines if line)


def folded(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  ")


def circumstances_words(facts: Values) -> str:
    if "load_before" not in facts:
        return ""
    load = f"load {facts['load_before']:.1f} before: other work on these cores is in the times"
    return f"measured on {facts['device']} devices, {facts['cores']} cores of {facts['cpu']}, {load}."


def shape_words(row: Values) -> str:
    return "x".join(map(str, row["shape"]))


def mesh_words(row: Values) -> str:
    return ",".join(map(str, row["mesh"])) or NONE


def ms(seconds: float) -> str:
    """Milliseconds, to about three digits."""
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def error_words(row: Values) -> str:
    return NONE if row["error"] is None else f"{row['error']:.1e}"


def _full_name(row: Values) -> str:
    return f"{name_of(row)} {','.join(map(str, row['mesh']))}".strip()
