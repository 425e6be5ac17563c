"""Reading: files of rows, told apart by their own fields.

    cases       python -m benchmarks fft, scaling      a case and the seconds of every call
    evaluation  python -m benchmarks paper             one number of the paper's evaluation
    profiles    meshfft profile                        seconds of a step in a kind of work
    others      any command                            numbers, and the command that made them

A row that is none of these is counted and named, and is in no figure. Numbers that are drawn are finite and positive.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import rows as files
from ..measure.measured import Row
from ..paper.rows import Row as PaperRow

Values = dict[str, Any]
REFUSALS = (KeyError, TypeError, ValueError, AttributeError)
MOST_NAMED = 5


class Rows(NamedTuple):
    """Rows by kind, as above; where those stand that are of none; and how many rows each run made."""

    cases: list[Row]
    evaluation: list[PaperRow]
    profiles: list[Values]
    others: list[Values]
    unknown: list[str]
    origins: Counter[tuple[str, ...]]

    @property
    def counts(self) -> dict[str, int]:
        return {name: len(found) for name, found in self._asdict().items() if name != "origins" and found}

    @property
    def left_out(self) -> str:
        places = ", ".join(self.unknown[:MOST_NAMED]) + " ..." * (len(self.unknown) > MOST_NAMED)
        return f"{len(self.unknown)} rows of no known kind are left out: {places}." if self.unknown else ""


def read(paths: Sequence[Path]) -> Rows:
    found = Rows([], [], [], [], [], Counter())
    for path in paths:
        for at, values in files.read(path).items():
            try:
                kind, row = _understood(values)
            except REFUSALS:
                found.unknown.append(f"line {at} of {path}")
                continue
            getattr(found, kind).append(row)
            found.origins[_origin(values)] += 1
    return found


def _understood(values: Values) -> tuple[str, Any]:
    """The kind of a row, and what its section takes; raises one of REFUSALS for a row of no kind."""
    if "absent" in values and values.keys() & {"library", "peer"}:
        _positive(values["seconds"])
        return "cases", Row.from_dict(values)
    if "quantity" in values:
        _positive([values.get("seconds") or 1.0, *values.get("parts", {}).values()], least=0.0)
        return "evaluation", PaperRow.from_dict(values)
    if values.get("benchmark") == "profile":
        _positive([values["wall_seconds"], *values["runs"]])
        _positive([values["seconds"]], least=0.0)
        return "profiles", {**values, "title": _title(values), "step": str(values["name"]), "kind": str(values["kind"])}
    return "others", {**values, "command": str(values["command"])}


def _positive(numbers: Sequence[float], least: float = 1e-30) -> None:
    """Raises ValueError for what no axis could hold."""
    if not all(math.isfinite(number) and least <= number < 1e30 for number in numbers):
        raise ValueError(f"{numbers} are no positive numbers")


def _title(values: Values) -> str:
    shape, mesh = ("x".join(map(str, sizes)) for sizes in (values["shape"], values["mesh"].values()))
    what = f"{values['transform']} of {shape} {values['dtype']}"
    return f"{what}, method {values['method']}, mesh {mesh}, on {values['device']}"


def _origin(values: Values) -> tuple[str, ...]:
    """Command, machine, date, commit and versions of a row, as far as it has them."""
    made = "meshfft profile" if "benchmark" in values else "python -m benchmarks paper" if "figure" in values else ""
    machine = values.get("topology") or values.get("cpu") or values.get("device", "")
    versions = values.get("versions", {})
    names = ", ".join(f"{name} {versions[name]}" for name in ("meshfft", "jax", "libtpu") if name in versions)
    about = (values.get("command", made), machine, values.get("date", ""), str(values.get("commit", ""))[:12], names)
    return tuple(map(str, about))
