"""Rows: one case that was measured, or why it could not be; one JSON object a line.

Every row has all its seconds and all circumstances, so that rows of many files can be mixed and taken apart again.
"""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..jsonl import write
from .cases import Case
from .timing import Spread, spread


@dataclasses.dataclass(frozen=True)
class Row:
    """A case and what was found.

    Attributes:
        case: what was done, by whom and how.
        seconds: of every call; none where it is absent.
        error: relative L2 error of the first result.
        absent: why it is absent; empty where it is not.
        facts: versions and circumstances.
    """

    case: Case
    seconds: tuple[float, ...] = ()
    error: float | None = None
    absent: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def spread(self) -> Spread | None:
        """The median and the quartiles about it."""
        return spread(self.seconds) if self.seconds else None

    @property
    def median(self) -> float | None:
        """The median of the seconds."""
        return None if self.spread is None else self.spread.median

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values; median and quartiles are there for readers."""
        low, median, high = self.spread or (None,) * 3
        found = {"seconds": list(self.seconds), "median": median, "quartiles": [low, high]}
        return {**self.case.to_dict(), **found, "error": self.error, "absent": self.absent, "facts": self.facts}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Row":
        """The row of plain values."""
        seconds, facts = tuple(map(float, values["seconds"])), dict(values["facts"])
        return cls(Case.from_dict(values), seconds, values["error"], values["absent"], facts)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes rows in place of what was there."""
    write(path, (row.to_dict() for row in rows))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that `write_rows` made.

    Raises:
        ValueError: a line is no such row, or there is none.
    """
    found = [_read(path, number, line) for number, line in enumerate(path.read_text().splitlines(), 1)]
    if not found:
        raise ValueError(f"{path} holds no row: give a file that --rows wrote")
    return found


def _read(path: Path, number: int, line: str) -> Row:
    try:
        return Row.from_dict(json.loads(line))
    except (KeyError, TypeError, ValueError) as error:
        text = f"line {number} of {path} is no row of a measurement: give a file that --rows wrote"
        raise ValueError(text) from error
