"""Plans as text: one row a step, in at most 80 columns."""

from collections.abc import Sequence

from .walk import Walk
from .work import Work

WIDTH = 80
HEADS = ("step", "layout after", "sent", "hops", "flops", "peak")


def walk_table(walk: Walk, itemsize: int) -> str:
    """The steps of a walk with the layout each leaves, and per device: bytes sent, hops, flops, peak memory."""
    done: frozenset[int] = frozenset()
    rows: list[tuple[str, ...]] = [HEADS, ("start", walk.start.label(), "", "", "", "")]
    for step, before, after, work in zip(
        walk.steps, walk.layouts, walk.layouts[1:], walk.works(itemsize), strict=False
    ):
        done = done.union(step.dims)
        rows.append((step.name(before), after.label(done), *_counts(work)))
    rows.append(("per device", "", *_counts(walk.work(itemsize))))
    widths = [max(len(row[j]) for row in rows) for j in range(len(HEADS))]
    rule = "-" * min(WIDTH, sum(widths) + 2 * (len(HEADS) - 1))
    lines = [_line(row, widths) for row in rows]
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])


def quantity(value: float, unit: str = "") -> str:
    """Three digits and a decimal prefix: 16.8 M, 1.05 G."""
    prefixes = ["", "k", "M", "G", "T", "P", "E"]
    while abs(value) >= 999.5 and len(prefixes) > 1:
        value, prefixes = value / 1000, prefixes[1:]
    digits = max(0, 3 - len(str(int(abs(value))))) if prefixes[0] else 0
    return f"{value:.{digits}f} {prefixes[0]}{unit}".rstrip()


def _counts(work: Work) -> tuple[str, ...]:
    return (
        quantity(work.sent_bytes, "B") if work.sent_bytes else "-",
        str(work.hops) if work.hops else "-",
        quantity(work.flops) if work.flops else "-",
        quantity(work.peak_bytes, "B"),
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Words to the left, numbers to the right; what is too wide for the screen goes on a line of its own."""
    cells = [cell.ljust(w) if j < 2 else cell.rjust(w) for j, (cell, w) in enumerate(zip(row, widths, strict=True))]
    line = "  ".join(cells).rstrip()
    if len(line) <= WIDTH:
        return line
    words, numbers = "  ".join(row[:2]), "  ".join(cells[2:])
    return words + "\n" + numbers.rjust(WIDTH)
