"""Runs: rows that were measured together, and may be compared; and what all rows were made by.

A run is known by its command, commit, date and processor: ratios and curves never mix two of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from meshfft.profile.words import unit_for

from ..measure.cases import Task
from ..measure.rows import Row
from .content import Table
from .reading import Line

RUN = ("command", "commit", "date", "cpu")
HEADS = ("rows", "command", "on", "date", "commit", "versions")
TIMES = "\u00d7"
POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
COMMIT = 12  # digits of a commit that are shown


class Run(NamedTuple):
    """Rows of one run, of which some may be of other tasks."""

    facts: Mapping[str, Any]
    rows: list[Row]

    @property
    def command(self) -> str:
        """What was run."""
        return str(self.facts.get("command", ""))


def runs_of(rows: Iterable[Row]) -> list[Run]:
    """The rows by the run they are of."""
    found: dict[tuple[str, ...], Run] = {}
    for row in rows:
        key = tuple(str(row.facts.get(name)) for name in RUN)
        found.setdefault(key, Run(row.facts, [])).rows.append(row)
    return list(found.values())


def by_task(rows: Iterable[Row]) -> dict[Task, list[Row]]:
    """The rows of a run by what they compute."""
    found: dict[Task, list[Row]] = {}
    for row in rows:
        found.setdefault(row.case.task, []).append(row)
    return found


def task_words(task: Task) -> str:
    """A task in a few words."""
    points = f" at {times(task.samples)} points" if task.samples else ""
    return f"{task.kind} of {times(task.shape)} {task.dtype}{points}"


def times(shape: Iterable[int]) -> str:
    """A shape in words."""
    return f"\u00a0{TIMES}\u00a0".join(map(str, shape))


def brief(shape: Sequence[int]) -> str:
    """A shape in as few letters as it takes."""
    if len(set(shape)) == 1 and 1 < len(shape) < len(POWERS):
        return f"{shape[0]}{POWERS[len(shape)]}"
    return TIMES.join(map(str, shape))


def seconds_words(seconds: float) -> str:
    """Seconds in the unit that fits them."""
    name, size = unit_for(10 * seconds)
    return f"{seconds / size:.3g} {name}"


def where(facts: Mapping[str, Any]) -> str:
    """Where and when it was measured, and how busy that was."""
    device, cores, cpu, load = (facts.get(name) for name in ("device", "cores", "cpu", "load_before"))
    parts = [f"{device} devices" if device else "", f"{cores} cores of {cpu}" if cores and cpu else ""]
    found = ", ".join(str(part) for part in (*parts, facts.get("date")) if part)
    busy = f"; load {load:.1f} before" if isinstance(load, int | float) else ""
    return f"Measured on {found or 'an unknown machine'}{busy}."


def origins(lines: Sequence[Line]) -> Table:
    """Who made the rows: a line for each command, commit and machine."""
    found: dict[tuple[str, ...], int] = {}
    for line in lines:
        key = _origin(line.values)
        found[key] = found.get(key, 0) + 1
    rows = [[str(count), *key] for key, count in found.items()]
    return Table("Where the rows come from", HEADS, rows, folded=len(rows) > 4)


def _origin(values: Mapping[str, Any]) -> tuple[str, ...]:
    parts = [part for part in (values.get("facts"), values.get("made_by"), values) if isinstance(part, dict)]
    facts = {name: value for part in reversed(parts) for name, value in part.items()}
    versions = facts["versions"] if isinstance(facts.get("versions"), dict) else facts
    packages = [f"{name} {versions[name]}" for name in ("meshfft", "jax", "libtpu") if name in versions]
    machine = facts.get("cpu") or facts.get("topology") or facts.get("device", "")
    return (
        _command(facts),
        str(machine),
        str(facts.get("date", "")),
        _commit(str(facts.get("commit", ""))),
        ", ".join(packages),
    )


def _command(facts: Mapping[str, Any]) -> str:
    """The command, or where rows do not tell it the one that makes such rows."""
    if "command" in facts:
        return str(facts["command"])
    return "meshfft profile" if facts.get("benchmark") else "python -m benchmarks paper" if "figure" in facts else ""


def _commit(commit: str) -> str:
    digits, _, dirty = commit.partition("-")
    return f"{digits[:COMMIT]}{'-' * bool(dirty)}{dirty[:COMMIT]}"
