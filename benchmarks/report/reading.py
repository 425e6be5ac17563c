"""Reading: files of rows, told apart by their own fields.

    cases       python -m benchmarks fft, dense, scaling    a case and the seconds of every call
    evaluation  python -m benchmarks paper                  one number of the paper's evaluation
    profiles    meshfft profile                             seconds of a step in a kind of work
    tiers       python -m benchmarks dense_tables           errors of a precision tier by length
    choices     python -m benchmarks choice                 a walk's seconds, modelled and measured
    others      any script                                  numbers, and the command that made them

A row that is none of these is counted and named, and is in no figure. Numbers that are drawn are finite and positive.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..measure.rows import Row
from ..paper.rows import Row as PaperRow

Values = dict[str, Any]
REFUSALS = (KeyError, TypeError, ValueError, AttributeError)
MOST_NAMED = 5


class Rows(NamedTuple):
    """Rows by kind, as above; where those stand that are of none; and how many rows each run made."""

    cases: list[Row]
    evaluation: list[PaperRow]
    profiles: list[Values]
    tiers: list[Values]
    choices: list[Values]
    others: list[Values]
    unknown: list[str]
    origins: Counter[tuple[str, ...]]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows of each kind there are."""
        return {name: len(found) for name, found in self._asdict().items() if name != "origins" and found}

    @property
    def left_out(self) -> str:
        """Which rows are in no figure; empty where all are."""
        places = ", ".join(self.unknown[:MOST_NAMED]) + " ..." * (len(self.unknown) > MOST_NAMED)
        return f"{len(self.unknown)} rows of no known kind are left out: {places}." if self.unknown else ""


def read(paths: Sequence[Path]) -> Rows:
    """The rows of some files.

    Raises:
        ValueError: a line is no JSON object, or a file has none.
        OSError: a file cannot be read.
    """
    found = Rows([], [], [], [], [], [], [], Counter())
    for path in paths:
        lines = [(at, line) for at, line in enumerate(path.read_bytes().splitlines(), 1) if line.strip()]
        if not lines:
            raise ValueError(f"{path} holds no row: give a file that --rows wrote")
        for at, line in lines:
            _sort(found, _values(line, f"line {at} of {path}"), f"line {at} of {path}")
    return found


def _values(line: bytes, place: str) -> Values:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{place} is no JSON object: give a file that --rows wrote, or take the line out")
    return dict(values)


def _sort(found: Rows, values: Values, place: str) -> None:
    try:
        kind, row = _understood(values)
    except REFUSALS:
        found.unknown.append(place)
        return
    getattr(found, kind).append(row)
    found.origins[_origin(values)] += 1


def _understood(values: Values) -> tuple[str, Any]:
    """The kind of a row, and what its section takes; raises one of REFUSALS for a row of no kind."""
    if "facts" in values:
        _positive(values["seconds"])
        return "cases", Row.from_dict(values)
    if "quantity" in values:
        _positive([values.get("seconds") or 1.0, *values.get("parts", {}).values()], least=0.0)
        return "evaluation", PaperRow.from_dict(values)
    if values.get("benchmark") == "profile":
        _positive([values["wall_seconds"], *values["runs"]])
        _positive([values["seconds"]], least=0.0)
        return "profiles", {**values, "title": _title(values), "step": str(values["name"]), "kind": str(values["kind"])}
    if values.get("table") == "tiers":
        errors = {int(name[4:]): float(error) for name, error in values.items() if name.startswith("N = ")}
        _positive([values["stated"], *errors.values()])
        return "tiers", {
            **values,
            "name": f"{values['precision']}, {values['multiplications']} products",
            "errors": errors,
        }
    if "modelled" in values and "methods" in values:
        _positive([values["modelled"], *values["seconds"]])
        return "choices", {**values, "methods": list(map(str, values["methods"])), "case": str(values["case"])}
    return "others", {**values, "command": str(values["command"])}


def _positive(numbers: Sequence[float], least: float = 1e-30) -> None:
    """Raises ValueError for what no axis could hold."""
    if not all(math.isfinite(number) and least <= number < 1e30 for number in numbers):
        raise ValueError(f"{numbers} are no positive numbers")


def _title(values: Mapping[str, Any]) -> str:
    shape, mesh = ("x".join(map(str, sizes)) for sizes in (values["shape"], values["mesh"].values()))
    what = f"{values['transform']} of {shape} {values['dtype']}"
    return f"{what}, method {values['method']}, mesh {mesh}, on {values['device']}"


def _origin(values: Values) -> tuple[str, ...]:
    """Command, machine, date, commit and versions of a row, as far as it has them."""
    facts = {**values, **values.get("made_by", {}), **values.get("facts", {})}
    versions = {**facts, **facts.get("versions", {})}
    command = "meshfft profile" if "benchmark" in facts else "python -m benchmarks paper" if "figure" in facts else ""
    return (
        str(facts.get("command", command)),
        str(facts.get("cpu") or facts.get("topology") or facts.get("device", "")),
        str(facts.get("date", "")),
        str(facts.get("commit", ""))[:12],
        ", ".join(f"{name} {versions[name]}" for name in ("meshfft", "jax", "libtpu") if name in versions),
    )
