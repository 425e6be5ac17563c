"""Both of the paper's algorithms, measured on the devices that are here, with the breakdown of its trace viewer.

    strong   one array on more and more devices     efficiency = ideal time / time
    weak     larger and larger arrays on all        growth = time / time of the array before

The paper says "for the weak scaling analysis, the number of TPU cores remains the same as the problem size increases".
Elsewhere weak scaling means as many points a device on more and more devices: `python -m benchmarks scaling --weak`.

Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section V.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from meshfft.inspect.hlo import KINDS
from meshfft.inspect.trace import profiled

from ..jsonl import write
from ..measure.baselines import MESHFFT
from ..measure.cases import Case, Task, balanced, case_of, layout_of
from ..measure.data import mesh_of
from ..measure.on_devices import plan_of
from ..measure.rows import Row
from ..measure.scaling import HEADS, tables
from ..measure.words import error_words, mesh_words, ms
from .tables import Table

WAYS = ({"method": "kdft", "ring": "one-way"}, {"method": "cooley-tukey", "ring": "one-way"})  # the paper's two
NAMES = {"kdft": "KDFT", "cooley-tukey": "FFT"}
RUNS = 3
COLUMNS = {  # of the breakdown, by kinds of work
    "einsum": ("products",),
    "fft": ("fft",),
    "permute": ("permute",),
    "all-to-\nall": ("all-to-all",),
    "rest": ("copies", "other"),
    "idle": ("idle",),
}
WEAK_HEADS = ("array", "devices", "mesh", "median\nms", "growth", "error")
PART_HEADS = ("array", "devices", *COLUMNS, "run")


class Measured(NamedTuple):
    """A row, and of a run under the profiler its seconds by kind of work, in the mean over devices and runs."""

    row: Row
    parts: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values, with the breakdown."""
        how = f"mean of {RUNS} runs under jax.profiler and of all devices"
        return {**self.row.to_dict(), "breakdown": {"how": how, "seconds": self.parts}}


def measured_cases(counts: Sequence[int], sizes: Sequence[int]) -> list[Case]:
    """The largest array on each number of devices, and every array on the most; a computation shape as even as may be.

    Args:
        counts: numbers of devices, rising.
        sizes: points along each of three dimensions, rising.
    """
    pairs = dict.fromkeys([*((sizes[-1], count) for count in counts), *((n, counts[-1]) for n in sizes)])
    task = {n: Task((n,) * 3) for n in sizes}
    laid = {count: layout_of(balanced(count, 3), 3) for count in counts}
    ways = [{"order": "natural", "precision": "default", **way} for way in WAYS]
    return [case_of(task[n], MESHFFT, laid[count], **way) for n, count in pairs for way in ways]


def with_breakdowns(rows: Sequence[Row], devices: Sequence[Any], told: Callable[[str], None]) -> list[Measured]:
    """Runs each case again under the profiler."""
    found = []
    for row in rows:
        told(f"profile {row.case.name}")
        found.append(Measured(row, breakdown(row.case, devices) if row.seconds else {}))
    return found


def breakdown(case: Case, devices: Sequence[Any]) -> dict[str, float]:
    """Seconds of a run by kind of work, one of KINDS, in the mean over devices."""
    mesh = mesh_of(case.layout, devices)
    with tempfile.TemporaryDirectory() as folder:
        found = profiled(plan_of(case, mesh), mesh, RUNS, Path(folder), lambda: None)
    return dict(zip(KINDS, found.seconds.mean(0).sum(0).tolist(), strict=True))


def write_measured(path: Path, found: Sequence[Measured]) -> None:
    """Writes the rows in place of what was there; `read_rows` reads them."""
    write(path, (one.to_dict() for one in found))


def measured_tables(found: Sequence[Measured]) -> list[Table]:
    """Strong scaling, the paper's weak scaling, and the breakdown, of each algorithm."""
    return [table for method in NAMES for table in _tables([one for one in found if one.row.case.method == method])]


def _tables(found: Sequence[Measured]) -> list[Table]:
    rows, name = [one.row for one in found], NAMES[found[0].row.case.method]
    largest, most = max(row.case.shape for row in rows), max(row.case.devices for row in rows)
    (strong,) = tables([row for row in rows if row.case.shape == largest], weak=False).values()
    weak = sorted((row for row in rows if row.case.devices == most), key=lambda row: row.case.shape)
    return [
        Table(f"The paper's {name}: strong scaling, measured", HEADS, strong),
        Table(f"The paper's {name}: weak scaling in the paper's sense, measured", WEAK_HEADS, _weak(weak)),
        Table(f"The paper's {name}: ms by operation, under the profiler", PART_HEADS, [_parts(one) for one in found]),
    ]


def _weak(rows: Sequence[Row]) -> list[list[str]]:
    lines, before = [], None
    for row in rows:
        growth = f"{row.median / before:.1f}" if row.median and before else "-"
        lines.append([_array(row), str(row.case.devices), mesh_words(row), ms(row.median or 0.0), growth])
        lines[-1].append(error_words(row))
        before = row.median
    return lines


def _parts(one: Measured) -> list[str]:
    sums = [sum(one.parts.get(kind, 0.0) for kind in kinds) for kinds in COLUMNS.values()]
    return [_array(one.row), str(one.row.case.devices), *map(ms, [*sums, sum(one.parts.values())])]


def _array(row: Row) -> str:
    return f"{row.case.shape[0]}^{len(row.case.shape)}"
