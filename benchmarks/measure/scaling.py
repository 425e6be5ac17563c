"""Scaling: seconds on more and more devices, parallel efficiency, and the line that the paper calls ideal (section V).

strong   one array             ideal time = T_first / (P / first)        efficiency = ideal time / T_P
weak     one block a device    ideal time = T_first                      efficiency = T_first / T_P
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax

from meshfft.layout.layout import AXES, meshes

from ..common import mesh_of
from .baselines import MESHFFT
from .cases import Task, case_of
from .measured import Row
from .on_devices import plan_of
from .words import error_words, mesh_words, ms, shape_words

HEADS = ("devices", "array", "mesh", "median\nms", "ideal\nms", "efficiency", "error")


class Point(NamedTuple):
    """The median on so many devices, beside the seconds of perfect scaling from the fewest."""

    devices: int
    seconds: float
    ideal: float

    @property
    def efficiency(self) -> float:
        return self.ideal / self.seconds


def ideal(first_seconds: float, first: int, devices: int) -> float:
    return first_seconds / (devices / first)


def points(seconds: dict[int, float], weak: bool) -> list[Point]:
    """Points by number of devices, the fewest first; `weak` if every device has a block of one size."""
    first = min(seconds)
    lines = {many: seconds[first] if weak else ideal(seconds[first], first, many) for many in seconds}
    return [Point(many, seconds[many], lines[many]) for many in sorted(seconds)]


def grown(shape: Sequence[int], first: int, devices: int) -> tuple[int, ...]:
    """The array with equally many points per device: the shortest dimension grows by each prime factor."""
    if devices % first != 0:
        raise ValueError(f"--devices {devices} is no multiple of {first}, the fewest: blocks would differ")
    found, left = list(shape), devices // first
    while left > 1:
        factor = next(f for f in range(2, left + 1) if left % f == 0)
        shortest = min(range(len(found)), key=lambda d: (found[d], d))
        found[shortest], left = found[shortest] * factor, left // factor
    return tuple(found)


def best_mesh(task: Task, devices: Sequence[jax.Device], **way: str) -> tuple[int, ...]:
    """The mesh of all these devices on which meshfft's walk is modelled to be the fastest."""
    found: list[tuple[float, tuple[int, ...]]] = []
    refusal = f"{len(devices)} devices cannot be laid over an array of {task.shape}: give fewer --devices"
    for mesh, _ in meshes(task.shape, len(devices), alike=False):
        sizes = tuple(mesh.shape.get(name, 1) for name in AXES[: len(task.shape)])
        try:
            made = plan_of(case_of(task, MESHFFT, sizes, **way), mesh_of(sizes, devices))
        except ValueError as error:
            refusal = str(error)
        else:
            found.append((made.seconds_by_resource.total, sizes))
    if not found:
        raise ValueError(refusal)
    return min(found, key=lambda one: one[0])[1]


def points_of(rows: Sequence[Row], weak: bool) -> dict[str, list[Point]]:
    found: dict[str, dict[int, float]] = {}
    for row in fastest(rows):
        found.setdefault(row.case.name, {})[row.case.devices] = row.median or 0.0
    return {name: points(seconds, weak) for name, seconds in found.items()}


def tables(rows: Sequence[Row], weak: bool) -> dict[str, list[list[str]]]:
    best = {(row.case.name, row.case.devices): row for row in fastest(rows)}
    scaled = points_of(rows, weak)
    return {name: [_line(one, best[name, one.devices]) for one in line] for name, line in scaled.items()}


def fastest(rows: Sequence[Row]) -> list[Row]:
    """The fastest row of each variant on equally many devices, so that each has its best mesh."""
    found: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = row.case.name, row.case.devices
        if row.median is not None and (key not in found or row.median < (found[key].median or math.inf)):
            found[key] = row
    return list(found.values())


def _line(one: Point, row: Row) -> list[str]:
    numbers = [ms(one.seconds), ms(one.ideal), f"{one.efficiency:.2f}", error_words(row)]
    return [str(one.devices), shape_words(row.case), mesh_words(row.case), *numbers]
