"""Rows: one number of the evaluation each, with its origin and its inputs."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .. import rows as files

KNOWN = ("published", "modelled")  # nothing here was measured by meshfft


@dataclasses.dataclass(frozen=True)
class Row:
    """One number of a figure or table."""

    figure: str
    family: str  # "KDFT" or "FFT"
    shape: tuple[int, ...]
    cores: int
    topology: str
    algorithm: str  # whose walk it is
    quantity: str  # "total", "floor", "single permute" or "single einsum"
    seconds: float
    known: str  # how: one of KNOWN
    how: str  # in words
    mesh: dict[str, int] = dataclasses.field(default_factory=dict)
    parts: dict[str, float] = dataclasses.field(default_factory=dict)  # seconds by resource, before anything overlaps
    binds: str = ""  # the resource that takes longest
    steps: str = ""  # the walk in words
    bytes_per_core: int | None = None  # the peak, modelled
    fits: bool | None = None  # within a core's memory
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the plan
    note: str = ""

    def __post_init__(self) -> None:
        if self.known not in KNOWN:
            raise ValueError(f"a row is known as {self.known!r}: mark it as one of {', '.join(KNOWN)}")

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in dataclasses.asdict(self).items() if value not in ({}, "", None)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Row":
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{k: values[k] for k in names if k in values} | {"shape": tuple(values["shape"])})


def find(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def read_rows(path: Path) -> list[Row]:
    return [Row.from_dict(values) for values in files.read(path).values()]
