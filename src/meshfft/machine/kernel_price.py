"""What the FFT kernels of a TPU's vector unit cost: bundles of their compiled schedules, or memory if that is longer.

    cycles of a pass = max(bundles a point, 16 bytes a point * padding / bytes a cycle) * points

Bundles are VLIW instructions of the final schedule, loops times turns; nothing ran on a TPU. They are in
kernel_cycles.json, which `python -m benchmarks kernels --table` makes and which names the versions it was made by.
Lengths that it does not have take the bundles of the nearest that it has, times the operations a point of their radices
over those of its: an estimate.
"""

import functools
import json
import math
from pathlib import Path
from typing import NamedTuple

from .chip import Chip

POINT_BYTES = 16  # two float32 planes, read and written once
OPERATIONS = {2: 4.2, 3: 10.3, 5: 15.6, 7: 20.1}  # of butterflies and twiddles, a point and factor; a third of radix 8
NEAREST = {"twisted": "first", "second": "first", "lane": "plane"}  # kinds that cost about as much; else sublane

Rows = dict[str, dict[str, dict[tuple[int, ...], float]]]


class Price(NamedTuple):
    """Bundles a point, and whether they are an estimate."""

    bundles: float
    estimated: bool


@functools.lru_cache(maxsize=1024)
def bundles(chip_name: str, kind: str, lengths: tuple[int, ...]) -> Price:
    """Bundles a point of one pass of a kernel."""
    rows = table().get(chip_name, table()["v3"])
    known = rows.get(kind) or rows.get(NEAREST.get(kind, "sublane")) or rows["sublane"]
    near = min(known, key=lambda row: abs(math.log(math.prod(row) / math.prod(lengths))))
    if near == lengths and kind in rows and chip_name in table():
        return Price(known[near], False)
    return Price(known[near] * _operations(lengths) / _operations(near), True)


def cycles(chip: Chip, kind: str, lengths: tuple[int, ...], points: int) -> int:
    """Cycles of one pass of a kernel over so many complex numbers; only for a chip whose clock is known."""
    clock = chip.clock
    assert clock is not None, "kernels are for chips whose clock is known"
    memory = POINT_BYTES * _padding(kind, lengths) * clock.value / chip.memory.value
    return round(max(bundles(chip.name, kind, lengths).bundles, memory) * points)


def _padding(kind: str, lengths: tuple[int, ...]) -> float:
    """What tiles of 8 x 128 add to a last dimension that is no multiple."""
    last = lengths[-1]
    return -(-last // 128) * 128 / last if kind in ("lane", "plane") else 1.0


@functools.lru_cache(maxsize=1)
def table() -> Rows:
    """Bundles a point by chip, kind and lengths."""
    text = Path(__file__).with_name("kernel_cycles.json").read_text()
    return {
        chip: {kind: {tuple(map(int, row.split("x"))): n for row, n in rows.items()} for kind, rows in kinds.items()}
        for chip, kinds in json.loads(text)["bundles"].items()
    }


def _operations(lengths: tuple[int, ...]) -> float:
    """Operations a point along all of these lengths."""
    return sum(map(_operations_of, lengths))


def _operations_of(length: int) -> float:
    total, rest = 0.0, max(length, 2)
    for factor, operations in OPERATIONS.items():
        while rest % factor == 0:
            total, rest = total + operations, rest // factor
    return total + (rest > 1) * rest
