"""A breakdown as text: a row for each step, a column for each kind of work, in at most 80 columns."""

import textwrap
from collections.abc import Iterable, Sequence

from ..plans.table import WIDTH
from .breakdown import Breakdown

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
GAP = "  "
NOTABLE = 0.01  # of a run: less that is hidden is not worth a line
HEADS = {"all-to-all": ("all-to-", "all")}


def unit_for(seconds: float) -> tuple[str, float]:
    """The largest unit in which so many seconds are ten at least, and its seconds."""
    return next(((name, size) for name, size in UNITS.items() if seconds >= 10 * size), ("us", 1e-6))


def table(breakdown: Breakdown) -> str:
    """Seconds of each step by kind of work, their sums and shares, and of several devices the least and the most."""
    kinds, (unit, size) = breakdown.kinds, unit_for(breakdown.wall)
    heads = [("", unit), *(HEADS.get(kind, ("", kind)) for kind in kinds), ("", "total")]
    steps = [_row(breakdown.name(at), [breakdown.seconds(at, kind) for kind in kinds], size) for at in breakdown.places]
    spent = [breakdown.of_kind(kind) for kind in kinds]
    means = [sum(many) / len(many) for many in spent]
    shares = ["share", *(f"{100 * mean / breakdown.wall:.1f}%" for mean in means), ""]
    sums = [_row("run", means, size), shares]
    if len(breakdown.devices) > 1:
        sums += [
            [*_row(f"{name} of a device", map(pick, spent), size)[:-1], ""]
            for name, pick in (("least", min), ("most", max))
        ]
    return _lines(heads, steps, sums)


def notes(breakdown: Breakdown) -> str:
    """How the numbers are known, and what is hidden, in sentences."""
    unit, size = unit_for(breakdown.wall)
    many = f", on {len(breakdown.devices)} devices" if len(breakdown.devices) > 1 else ""
    span = ""
    if len(breakdown.walls) > 1:
        span = f", of {min(breakdown.walls) / size:.1f} to {max(breakdown.walls) / size:.1f} {unit}"
    lines = [f"{breakdown.known.capitalize()}: {breakdown.how}{span}{many}."]
    for kind, seconds in breakdown.hidden.items():
        if seconds > NOTABLE * breakdown.wall:
            lines.append(f"Beside these, {seconds / size:.1f} {unit} of {kind} are hidden under other work.")
    return "\n".join(textwrap.fill(line, WIDTH) for line in lines)


def _row(name: str, seconds: Iterable[float], size: float) -> list[str]:
    values = list(seconds)
    return [name, *(f"{value / size:.1f}" if value else "-" for value in [*values, sum(values)])]


def _lines(heads: Sequence[tuple[str, str]], steps: list[list[str]], sums: list[list[str]]) -> str:
    """Rows under two lines of heads, names folded into what the numbers leave."""
    columns = range(1, len(heads))
    widths = [max(map(len, [*heads[j], *(row[j] for row in steps + sums)])) for j in columns]
    left = min(WIDTH - sum(len(GAP) + width for width in widths), max(len(row[0]) for row in steps + sums))
    rule = "-" * (left + sum(len(GAP) + width for width in widths))
    top = [_line([head[j] for head in heads], left, widths) for j in (0, 1) if any(head[j] for head in heads)]
    body, foot = ([_line(row, left, widths) for row in rows] for rows in (steps, sums))
    return "\n".join([*top, rule, *body, rule, *foot])


def _line(row: Sequence[str], left: int, widths: Sequence[int]) -> str:
    first, *more = textwrap.wrap(row[0], left, subsequent_indent=GAP) or [""]
    numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True))
    return "\n".join([GAP.join([first.ljust(left), *numbers]).rstrip(), *more])
