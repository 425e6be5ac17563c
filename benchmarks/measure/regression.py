"""Whether meshfft became slower: its ratios to baselines now, against those in a file of rows.

    ratio  = seconds of a case of meshfft / geometric mean of the seconds of the baselines that are present in both
    change = ratio now / ratio before

Seconds alone are never compared: a busy or a slower machine slows the baselines, too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .baselines import BASELINES, MESHFFT
from .cases import Case, Task
from .rows import Row

HEADS = ("", "array", "mesh", "before", "now", "change", "")
MACHINE = ("device", "cpu", "cores")
MEASURE = "measure some, with baselines, by python -m benchmarks fft --rows"


class Change(NamedTuple):
    """A case of meshfft, then and now.

    Attributes:
        case: which.
        before: its ratio in the file.
        now: its ratio; None where it is absent now.
        reason: why it is absent.
    """

    case: Case
    before: float
    now: float | None
    reason: str = ""

    @property
    def change(self) -> float:
        """How many times the ratio became; infinite where there is none any more."""
        return math.inf if self.now is None else self.now / self.before

    def to_dict(self) -> dict[str, Any]:
        """The change as plain values."""
        change = None if self.now is None else self.change
        found = {"before": self.before, "now": self.now, "change": change, "reason": self.reason}
        return {**self.case.to_dict(), **found}


def to_measure(before: Sequence[Row]) -> list[Case]:
    """The cases of a file to measure again: what was measured, by meshfft and by baselines that are here.

    Raises:
        ValueError: there is none of meshfft, or one of its tasks has no baseline that is here: there would be no ratio.
    """
    kept = [row.case for row in before if row.seconds and row.case.library in BASELINES]
    kept = [case for case in dict.fromkeys(kept) if BASELINES[case.library].missing(case.task.what) is None]
    own = {case.task for case in kept if case.library == MESHFFT}
    if not own:
        raise ValueError(f"the rows have no seconds of meshfft: {MEASURE}")
    lonely = own - {case.task for case in kept if case.library != MESHFFT}
    there = sorted({row.case.library for row in before if row.seconds} - {MESHFFT})
    remedy = f"install one of {', '.join(there)}" if there else MEASURE
    if lonely:
        raise ValueError(f"no baseline of these rows is here, and only ratios to baselines are compared: {remedy}")
    return [case for case in kept if case.task in own]


def changes(before: Sequence[Row], now: Sequence[Row]) -> list[Change]:
    """Ratios then and now, of every case of meshfft that was measured then.

    Raises:
        ValueError: a task has no baseline that was measured both times.
    """
    old, new = _medians(before), _medians(now)
    absent = {row.case: row.absent for row in now}
    found = []
    for case in old:
        if case.library == MESHFFT and case in absent:
            then, there = _yardstick(case.task, old, new)
            ratio = new[case] / there if case in new else None
            found.append(Change(case, old[case] / then, ratio, absent[case]))
    return found


def worse(found: Sequence[Change], factor: float) -> list[Change]:
    """Those whose ratio became more than so many times what it was, or that are absent now."""
    return [one for one in found if one.change > factor]


def cells(found: Sequence[Change], factor: float) -> list[list[str]]:
    """A line for each case, under HEADS."""
    slower = worse(found, factor)
    return [_line(one, "worse" if one in slower else "") for one in found]


def unlike(before: Sequence[Row], now: Sequence[Row]) -> str:
    """A line where the machines differ, and with them what ratios mean."""
    then, there = (_machine(rows[0].facts) for rows in (before, now))
    return "" if then == there else f"measured before on {then}, now on {there}: ratios differ between machines."


def _line(one: Change, verdict: str) -> list[str]:
    array, mesh = "x".join(map(str, one.case.shape)), ",".join(map(str, one.case.mesh))
    numbers = ["absent", "-"] if one.now is None else [f"{one.now:.2f}", f"{one.change:.2f}"]
    return [one.case.name, array, mesh, f"{one.before:.2f}", *numbers, verdict]


def _medians(rows: Sequence[Row]) -> dict[Case, float]:
    """Of cases that are there several times the last."""
    return {row.case: row.median for row in rows if row.median is not None}


def _yardstick(task: Task, old: Mapping[Case, float], new: Mapping[Case, float]) -> tuple[float, float]:
    """The geometric means of the baselines' seconds, then and now."""
    both = [case for case in old if case in new and case.task == task and case.library != MESHFFT]
    if not both:
        raise ValueError(f"no baseline was measured both times for {task.kind} of {task.shape}: see why in the rows")
    then, there = (math.exp(sum(math.log(times[case]) for case in both) / len(both)) for times in (old, new))
    return then, there


def _machine(facts: Mapping[str, Any]) -> str:
    device, cpu, cores = (facts.get(name, "unknown") for name in MACHINE)
    return f"{device} devices, {cores} cores of {cpu}"
