"""Measures cases: each is prepared and checked, all are warm, then they take turns.

A baseline that raises is a row that says why, not the end of the run.
"""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .baselines import BASELINES, prepare
from .cases import Case, Task
from .data import Data
from .prepared import Place, Prepared
from .rows import Row
from .timing import interleaved, thinned

Tell = Callable[[str], None]
LONGEST = 160  # letters of a reason


def measured(
    cases: Sequence[Case], rounds: int, place: Place, facts: Mapping[str, Any], told: Tell = lambda part: None
) -> list[Row]:
    """A row for each case.

    Args:
        cases: what to measure, by whom and how.
        rounds: how often; what is slow takes part in fewer.
        place: where to compute.
        facts: versions and circumstances, for every row.
        told: called before every case is prepared, and before every round.
    """
    data = {task: Data(task, place.cores) for task in dict.fromkeys(case.task for case in cases)}
    ready = []
    for case in cases:
        told(f"prepare {case.name}")
        ready.append(_attempt(case, data[case.task], place))
    present = [one for one in ready if isinstance(one, Prepared)]
    timers = [one.timer for one in present]
    every = thinned([timer() for timer in timers])
    seconds = iter(interleaved(timers, rounds, every, told=lambda: told("measure")))
    return [
        Row(case, (), None, one, {**facts})
        if isinstance(one, str)
        else Row(case, tuple(next(seconds)), one.error, "", {**facts, **one.versions})
        for case, one in zip(cases, ready, strict=True)
    ]


def steps(cases: Sequence[Case], rounds: int) -> int:
    """How often `measured` tells."""
    return len(cases) + rounds


def packages(cases: Sequence[Case]) -> list[str]:
    """What versions rows of these cases tell."""
    own = ("meshfft", "jax", "jaxlib", "numpy", "scipy")
    return list(dict.fromkeys([*own, *(package for case in cases for package in BASELINES[case.library].packages)]))


def needed_bytes(cases: Sequence[Case]) -> int:
    """About how many bytes of a host all cases take together, whose devices share its memory.

    A task has its input and truth, and scipy's temporaries; a case its input and a result; and sharded `jnp.fft`
    gathers the whole array on every device.
    """
    sizes = {case.task: _points(case.task) for case in cases}
    items = {case: np.dtype(case.dtype).itemsize * sizes[case.task] for case in cases}
    gathered = [2 * items[case] * (case.devices if case.library == "jnp-sharded" else 1) for case in cases]
    wide = 16 * sum(4 * size for size in sizes.values())
    return wide + 2 * sum(items.values()) + max(gathered, default=0)


def _points(task: Task) -> int:
    """Positions of the larger one of input and result, in between too."""
    return math.prod(max(pair) for pair in zip(task.shape, task.samples or task.shape, strict=True))


def _attempt(case: Case, data: Data, place: Place) -> Prepared | str:
    try:
        return prepare(case, data, place)
    except Exception as reason:  # whatever a baseline raises
        return reason_of(reason)


def reason_of(error: Exception) -> str:
    """An error in one line."""
    said = textwrap.shorten(str(error), LONGEST, placeholder=" ...")
    return said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}"
