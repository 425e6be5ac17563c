"""Whether meshfft became slower: its ratios to baselines now, against those in a file of rows; never seconds.

ratio  = seconds of a case of meshfft / geometric mean of the seconds of the baselines that are present in both
change = ratio now / ratio before
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .baselines import BASELINES, MESHFFT
from .cases import Case, Task
from .measured import Row
from .words import mesh_words, shape_words

HEADS = ("", "array", "mesh", "before", "now", "change", "")
MEASURE = "measure some, with baselines, by python -m benchmarks fft --rows"


class Change(NamedTuple):
    """A case of meshfft: its ratio in the file, its ratio now or None, and why it is absent."""

    case: Case
    before: float
    now: float | None
    reason: str = ""

    @property
    def change(self) -> float:
        """How many times the ratio became; infinite where there is none any more."""
        return math.inf if self.now is None else self.now / self.before

    def to_dict(self) -> dict[str, Any]:
        change = None if self.now is None else self.change
        found = {"before": self.before, "now": self.now, "change": change, "reason": self.reason}
        return {**self.case.to_dict(), **found}


def to_measure(before: Sequence[Row]) -> list[Case]:
    """The cases of a file to measure again: what was measured, by meshfft and by baselines that are here."""
    kept = [row.case for row in before if row.seconds and row.case.library in BASELINES]
    kept = [case for case in dict.fromkeys(kept) if BASELINES[case.library].missing(case.task.what) is None]
    own = {case.task for case in kept if case.library == MESHFFT}
    if not own:
        raise ValueError(f"the rows have no seconds of meshfft: {MEASURE}")
    there = sorted({row.case.library for row in before if row.seconds} - {MESHFFT})
    remedy = f"install one of {', '.join(there)}" if there else MEASURE
    if own - {case.task for case in kept if case.library != MESHFFT}:
        raise ValueError(f"no baseline of these rows is here, and only ratios to baselines are compared: {remedy}")
    return [case for case in kept if case.task in own]


def changes(before: Sequence[Row], now: Sequence[Row]) -> list[Change]:
    """Ratios then and now, of every case of meshfft that was measured then."""
    old, new = ({row.case: row.median for row in rows if row.median is not None} for rows in (before, now))
    absent = {row.case: row.absent for row in now}
    found = []
    for case in old:
        if case.library == MESHFFT and case in absent:
            then, there = _yardsticks(case.task, old, new)
            ratio = new[case] / there if case in new else None
            found.append(Change(case, old[case] / then, ratio, absent[case]))
    return found


def cells(found: Sequence[Change], factor: float) -> list[list[str]]:
    lines = []
    for one in found:
        numbers = ["absent", "-"] if one.now is None else [f"{one.now:.2f}", f"{one.change:.2f}"]
        verdict = "worse" if one.change > factor else ""
        mesh = mesh_words(one.case)
        lines.append([one.case.name, shape_words(one.case), mesh, f"{one.before:.2f}", *numbers, verdict])
    return lines


def unlike(before: Sequence[Row], now: Sequence[Row]) -> str:
    """A line where the machines differ, and with them what ratios mean."""
    then, there = (_machine(rows[0].facts) for rows in (before, now))
    return "" if then == there else f"measured before on {then}, now on {there}: ratios differ between machines."


def _yardsticks(task: Task, old: Mapping[Case, float], new: Mapping[Case, float]) -> tuple[float, float]:
    both = [case for case in old if case in new and case.task == task and case.library != MESHFFT]
    if not both:
        raise ValueError(f"no baseline was measured both times for {task.kind} of {task.shape}: see why in the rows")
    then, there = (statistics.geometric_mean([times[case] for case in both]) for times in (old, new))
    return then, there


def _machine(facts: Mapping[str, Any]) -> str:
    device, cpu, cores = (facts.get(name, "unknown") for name in ("device", "cpu", "cores"))
    return f"{device} devices, {cores} cores of {cpu}"
