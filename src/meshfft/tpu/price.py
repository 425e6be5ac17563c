"""What the FFT kernels of a TPU's vector unit cost: bundles of their compiled schedules, or memory if that is longer.

    cycles of a pass = max(bundles a point, bytes a point / bytes a cycle) * points

Points of kernels between real lines and half spectra are real numbers, of others complex ones; a last dimension is
stored padded to 128.

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

from ..machine.chip import Chip

PLANE_BYTES = 4  # of a number in a plane of float32
OPERATIONS = {2: 4.2, 3: 10.3, 5: 15.6, 7: 20.1}  # of butterflies and twiddles, a point and factor; a third of radix 8
NEAREST = {  # kinds that cost about as much; else sublane
    "twisted": "first",
    "second": "first",
    "subtwisted": "twisted",
    "subsecond": "second",
    "lane": "plane",
    "halflane": "lane",
    "reallane": "lane",
    "halfplane": "plane",
    "realplane": "plane",
}

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
    return Price(known[near] * _operations(kind, lengths) / _operations(kind, near), True)


def cycles(chip: Chip, kind: str, lengths: tuple[int, ...], points: int) -> int:
    """Cycles of one pass of a kernel over `points` points; only for a chip whose clock is known."""
    clock = chip.clock
    assert clock is not None, "kernels are for chips whose clock is known"
    memory = _bytes(kind, lengths) * clock.value / chip.memory.value
    return round(max(bundles(chip.name, kind, lengths).bundles, memory) * points)


def is_real(kind: str) -> bool:
    """True of a kernel between real lines and half spectra."""
    return kind.startswith(("half", "real"))


def written(kind: str, lengths: tuple[int, ...]) -> float:
    """Bytes of a point that a kernel writes, not padded."""
    last = lengths[-1]
    if kind.startswith("half"):
        return 2 * PLANE_BYTES * (last // 2 + 1) / last
    return PLANE_BYTES * (1 if is_real(kind) else 2)


def _bytes(kind: str, lengths: tuple[int, ...]) -> float:
    """Of a point, read and written once, in planes whose last dimension is padded."""
    last = lengths[-1]
    if is_real(kind):
        return PLANE_BYTES * (_padded(last) + 2 * _padded(last // 2 + 1)) / last
    return 2 * 2 * PLANE_BYTES * (_padded(last) / last if kind in ("lane", "plane") else 1.0)


def _padded(last: int) -> int:
    return -(-last // 128) * 128


@functools.lru_cache(maxsize=1)
def table() -> Rows:
    """Bundles a point by chip, kind and lengths."""
    text = Path(__file__).with_name("kernel_cycles.json").read_text()
    return {
        chip: {kind: {tuple(map(int, row.split("x"))): n for row, n in rows.items()} for kind, rows in kinds.items()}
        for chip, kinds in json.loads(text)["bundles"].items()
    }


def _operations(kind: str, lengths: tuple[int, ...]) -> float:
    """Operations a point along all of these lengths."""
    return sum(map(operations, lengths))


def operations(length: int) -> float:
    """Operations a point of a length."""
    total, rest = 0.0, max(length, 2)
    for factor, operations in OPERATIONS.items():
        while rest % factor == 0:
            total, rest = total + operations, rest // factor
    return total + (rest > 1) * rest
