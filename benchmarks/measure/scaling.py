"""Scaling: seconds on more and more devices, parallel efficiency, and the line that the paper calls ideal.

    strong   one array             ideal time = T_first / (P / first)        efficiency = ideal time / T_P
    weak     one block a device    ideal time = T_first                      efficiency = T_first / T_P

T_first is the time on the fewest devices. The points of a block are fixed, its flops grow by the logarithm of the
length of the lines: that is in the efficiency.

Source of the ideal line: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", section V: the equations beside
the figures of strong scaling of the 2-D KDFT (T_2), the 3-D KDFT (T_32) and the 3-D FFT (T_16).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from meshfft.layout.layout import AXES, meshes

from ..paper.paper import ideal
from .baselines import MESHFFT
from .cases import Layout, Task, case_of, layout_of
from .data import mesh_of
from .on_devices import plan_of
from .rows import Row
from .words import error_words, mesh_words, ms

HEADS = ("devices", "array", "mesh", "median\nms", "ideal\nms", "efficiency", "error")


class Point(NamedTuple):
    """Seconds on so many devices, beside the ideal ones.

    Attributes:
        devices: how many.
        seconds: the median.
        ideal: those of perfect scaling from the fewest devices.
    """

    devices: int
    seconds: float
    ideal: float

    @property
    def efficiency(self) -> float:
        """Ideal over measured."""
        return self.ideal / self.seconds

    def to_dict(self) -> dict[str, float]:
        """The point as plain values."""
        return {**self._asdict(), "efficiency": self.efficiency}


def points(seconds: dict[int, float], weak: bool) -> list[Point]:
    """Points by number of devices, the fewest first.

    Args:
        seconds: medians by number of devices, at least one.
        weak: every device has a block of one size; else all share one array.
    """
    first = min(seconds)
    lines = {many: seconds[first] if weak else ideal(seconds[first], first, many) for many in seconds}
    return [Point(many, seconds[many], lines[many]) for many in sorted(seconds)]


def grown(shape: Sequence[int], first: int, devices: int) -> tuple[int, ...]:
    """The array with as many points a device: the shortest dimension grows by each prime factor in turn.

    Raises:
        ValueError: the number of devices is no multiple of the first.
    """
    if devices % first != 0:
        raise ValueError(f"--devices {devices} is no multiple of {first}, the fewest: blocks would differ")
    found = list(shape)
    for factor in _primes(devices // first):
        shortest = min(range(len(found)), key=lambda d: (found[d], d))
        found[shortest] *= factor
    return tuple(found)


def best_layout(task: Task, devices: Sequence[Any], **way: str) -> Layout:
    """The mesh of all these devices on which meshfft's walk is modelled to be the fastest.

    Args:
        task: what is computed.
        devices: on which.
        way: method, order and precision.

    Raises:
        ValueError: there is none.
    """
    found: list[tuple[float, Layout]] = []
    refusal = f"{len(devices)} devices cannot be laid over an array of {task.shape}: give fewer --devices"
    for mesh, _ in meshes(task.shape, len(devices), alike=False):
        cut = dict(mesh.shape)
        layout = layout_of([cut.get(name, 1) for name in AXES[: len(task.shape)]], len(task.shape))
        try:
            made = plan_of(case_of(task, MESHFFT, layout, **way), mesh_of(layout, devices))
        except ValueError as error:
            refusal = str(error)
            continue
        found.append((made.seconds_by_resource.total, layout))
    if not found:
        raise ValueError(refusal)
    return min(found, key=lambda one: one[0])[1]


def points_of(rows: Sequence[Row], weak: bool) -> dict[str, list[Point]]:
    """By way that was measured, its points, each on its fastest mesh."""
    found: dict[str, dict[int, float]] = {}
    for row in fastest(rows):
        found.setdefault(row.case.name, {})[row.case.devices] = row.median or 0.0
    return {name: points(seconds, weak) for name, seconds in found.items()}


def tables(rows: Sequence[Row], weak: bool) -> dict[str, list[list[str]]]:
    """By way that was measured, a line for each number of devices, under HEADS."""
    best = {(row.case.name, row.case.devices): row for row in fastest(rows)}
    scaled = points_of(rows, weak)
    return {name: [_line(one, best[name, one.devices]) for one in line] for name, line in scaled.items()}


def sharing(rows: Sequence[Row]) -> str:
    """A line where virtual devices share cores, and so cannot scale."""
    facts, most = rows[0].facts, max(row.case.devices for row in rows)
    if facts.get("device") != "cpu" or most <= facts["cores"]:
        return ""
    return f"{most} CPU devices share {facts['cores']} cores: no speed can come of more devices than cores.\n"


def fastest(rows: Sequence[Row]) -> list[Row]:
    """Of the rows of one way on as many devices the fastest: each is to have its best mesh."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = row.case.name, row.case.devices
        if row.median is not None and (key not in found or row.median < (found[key].median or math.inf)):
            found[key] = row
    return list(found.values())


def _line(one: Point, row: Row) -> list[str]:
    array = "x".join(map(str, row.case.shape))
    numbers = [ms(one.seconds), ms(one.ideal), f"{one.efficiency:.2f}", error_words(row)]
    return [str(one.devices), array, mesh_words(row), *numbers]


def _primes(number: int) -> list[int]:
    """Its prime factors, in falling order."""
    found, factor = [], 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found[::-1]
