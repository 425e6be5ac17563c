"""Measures cases: prepares and checks each, then interleaves their calls; a row for each, or the reason of its failure.

A baseline that raises becomes a row with the reason, and the run continues.
"""

import dataclasses
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import rows as files
from ..timing import Spread, spread, timed
from .baselines import BASELINES, prepare
from .cases import Case
from .data import Data, Place, Prepared

LONGEST = 160  # letters of a reason
FOUND = ("seconds", "median", "quartiles", "error", "absent")


@dataclasses.dataclass(frozen=True)
class Row:
    """A case, the seconds of every call, the error of the first result, or why it is absent; and the circumstances."""

    case: Case
    seconds: tuple[float, ...] = ()
    error: float | None = None
    absent: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def spread(self) -> Spread | None:
        return spread(self.seconds) if self.seconds else None

    @property
    def median(self) -> float | None:
        return None if self.spread is None else self.spread.median

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values; median and quartiles are there for readers."""
        low, median, high = self.spread or (None,) * 3
        found = (list(self.seconds), median, [low, high], self.error, self.absent)
        return {**self.case.to_dict(), **dict(zip(FOUND, found, strict=True)), **self.facts}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Row":
        case, seconds = Case.from_dict(dict(values)), tuple(map(float, values["seconds"]))
        facts = {k: v for k, v in values.items() if k not in (*case.to_dict(), *FOUND)}
        return cls(case, seconds, values["error"], values["absent"], facts)


def read_rows(path: Path) -> list[Row]:
    return [_read(f"line {at} of {path}", values) for at, values in files.read(path).items()]


def _read(place: str, values: dict[str, Any]) -> Row:
    try:
        return Row.from_dict(values)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{place} is no row of a measurement: {files.WRONG}") from error


def measured(
    cases: Sequence[Case],
    rounds: int,
    place: Place,
    facts: Mapping[str, Any],
    told: Callable[[str], None] = lambda part: None,
) -> list[Row]:
    """A row for each case."""
    data = {task: Data(task, place.cores) for task in dict.fromkeys(case.task for case in cases)}
    ready = []
    for case in cases:
        told(f"prepare {case.name}")
        ready.append(attempt(partial(prepare, case, data[case.task], place)))
    calls = {at: one.call for at, one in enumerate(ready) if isinstance(one, Prepared)}
    times = timed(calls, rounds, thin=True, told=lambda: told("measure"))
    return [
        Row(case, (), None, one, {**facts})
        if isinstance(one, str)
        else Row(case, tuple(times[at].seconds), one.error, "", {**facts, **one.facts})
        for at, (case, one) in enumerate(zip(cases, ready, strict=True))
    ]


def attempt(make: Callable[[], Prepared]) -> Prepared | str:
    """Prepared calls, or the reason for their absence."""
    try:
        return make()
    except Exception as error:  # whatever a baseline raises
        said = textwrap.shorten(str(error), LONGEST, placeholder=" ...")
        return said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}"


def packages(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(["scipy", *(package for case in cases for package in BASELINES[case.library].packages)]))


def needed_bytes(cases: Sequence[Case]) -> int:
    """About how many bytes of a host all cases take together, whose devices share its memory.

    A task has its input and truth, and scipy's temporaries; a case its input and a result; and sharded `jnp.fft`
    gathers the whole array on every device.
    """
    sizes = {
        case.task: math.prod(max(pair) for pair in zip(case.shape, case.samples or case.shape, strict=True))
        for case in cases
    }
    items = {case: np.dtype(case.dtype).itemsize * sizes[case.task] for case in cases}
    gathered = [2 * items[case] * (case.devices if case.library == "jnp-sharded" else 1) for case in cases]
    return 64 * sum(sizes.values()) + 2 * sum(items.values()) + max(gathered, default=0)
