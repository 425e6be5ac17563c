"""Rows: one number of the evaluation each, with how it is known and what it was made of; kept as JSON lines."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..jsonl import write

KNOWN = ("published", "modelled")  # nothing here was measured by meshfft


@dataclasses.dataclass(frozen=True)
class Row:
    """One number.

    Attributes:
        figure: the figure or table it belongs to.
        family: "KDFT" or "FFT".
        shape: of the array.
        cores: devices.
        topology: the machine.
        algorithm: whose walk it is.
        quantity: "total", "ideal", "floor", "single permute" or "single einsum".
        seconds: the number; None where the compiler made no program.
        known: how: one of KNOWN.
        how: in words.
        mesh: mesh sizes by axis.
        parts: seconds by resource, before anything overlaps.
        binds: the resource that takes longest.
        steps: the walk in words.
        bytes_per_core: the peak, modelled; of a compiled program, the compiler's.
        fits: whether that is within a core's memory.
        options: what the plan was asked for.
        compiled: of a compiled program: compute by unit and step, the model's compute, and their ratio.
        note: what else to know.
        made_by: versions.
    """

    figure: str
    family: str
    shape: tuple[int, ...]
    cores: int
    topology: str
    algorithm: str
    quantity: str
    seconds: float | None
    known: str
    how: str
    mesh: dict[str, int] = dataclasses.field(default_factory=dict)
    parts: dict[str, float] = dataclasses.field(default_factory=dict)
    binds: str = ""
    steps: str = ""
    bytes_per_core: int | None = None
    fits: bool | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    compiled: dict[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""
    made_by: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.known not in KNOWN:
            raise ValueError(f"a row is known as {self.known!r}: mark it as one of {', '.join(KNOWN)}")

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values, without what it does not have."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in ({}, "", None)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Row":
        """The row of plain values."""
        return cls(**{"seconds": None, **values, "shape": tuple(values["shape"])})


def find(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows with these attributes."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes rows in place of what was there."""
    write(path, (row.to_dict() for row in rows))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that `write_rows` made."""
    return [Row.from_dict(json.loads(line)) for line in path.read_text().splitlines()]
