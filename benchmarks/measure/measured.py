"""Measures cases: prepares and checks each, then interleaves their calls; a row for each, or the reason of its failure.

A baseline that raises becomes a row with the reason, and the run continues.
"""

import math
import statistics
import textwrap
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ..rows import Values
from ..timing import timed
from .baselines import BASELINES, prepare
from .cases import Case
from .data import Data, Place, Prepared


def measured(cases: Sequence[Case], rounds: int, place: Place, facts: Values) -> list[Values]:
    data = {task: Data(task, place.cores) for task in dict.fromkeys(case.task for case in cases)}
    ready = [attempt(partial(prepare, case, data[case.task], place)) for case in cases]
    times = timed({at: one.call for at, one in enumerate(ready) if isinstance(one, Prepared)}, rounds)
    rows = []
    for at, (case, one) in enumerate(zip(cases, ready, strict=True)):
        found: Values = {"seconds": [], "error": None, "absent": one}
        if isinstance(one, Prepared):
            found = {"seconds": times[at].seconds, "error": one.error, "absent": "", **one.facts}
        rows.append({**case.to_dict(), **found, **facts})
    return rows


def name_of(row: Values) -> str:
    """The library of a row, and what distinguishes its case within the library."""
    return " ".join(filter(None, (row["library"], row["method"], row["ring"], row["order"])))


def median_of(row: Values) -> float:
    return statistics.median(row["seconds"]) if row["seconds"] else math.nan


def attempt(make: Callable[[], Prepared]) -> Prepared | str:
    try:
        return make()
    except Exception as error:  # whatever a baseline raises
        said = textwrap.shorten(str(error), 160, placeholder=" ...")
        return said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}"


def packages(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(["scipy", *(package for case in cases for package in BASELINES[case.library].packages)]))


def needed_bytes(cases: Sequence[Case]) -> int:
    """About how many bytes all cases take together on a host whose devices share its memory.

    A task has its input and truth, and scipy's temporaries; a case its input and a result; and sharded `jnp.fft`
    gathers the whole array on every device.
    """
    sizes = {case.task: math.prod(case.task.shape) for case in cases}
    items = {case: np.dtype(case.task.dtype).itemsize * sizes[case.task] for case in cases}
    gathered = [2 * items[case] * (case.devices if case.library == "jnp-sharded" else 1) for case in cases]
    return 64 * sum(sizes.values()) + 2 * sum(items.values()) + max(gathered, default=0)
