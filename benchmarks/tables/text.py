"""Series of numbers by key, and tables as text, which marks of pages name."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..paper.tables import number

error, hundredths = "{:.1e}".format, "{:.2f}".format


class Series(NamedTuple):
    """Numbers by key, and how one is written."""

    numbers: dict[str, float]
    form: Callable[[float], str] = number


Named = Iterator[tuple[str, str | Series]]  # a table's name begins with "table"


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def fenced(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table as a block of text, its heads in as many lines as they have."""
    words = [head.split("\n") for head in heads]
    depth = max(map(len, words))
    above = zip(*([""] * (depth - len(one)) + one for one in words), strict=True)
    grid = [*map(list, above), *lines]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    text = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in grid]
    rule = "-" * (sum(widths) + 2 * len(widths) - 2)
    return "\n\n" + "\n".join(["```", title, "", *text[:depth], rule, *text[depth:], "```"]) + "\n\n"


def extremes(numbers: Iterable[float]) -> dict[str, float]:
    found = sorted(numbers)
    return {"least": found[0], "most": found[-1]}
