"""What the FFT kernels of a TPU's vector unit cost: bundles of their compiled schedules, or memory if that is longer.

    cycles of a pass = max(bundles a point, 16 bytes a point / bytes a cycle) * points

Bundles are VLIW instructions of the final schedule, loops times turns (libtpu 0.0.52); nothing ran on a TPU. A length
that is not in the table takes those of the nearest one that is, times the logarithms of both: an estimate.
"""

import functools
import math
from typing import NamedTuple

from .chip import Chip

POINT_BYTES = 16  # two float32 planes, read and written once
BUNDLES: dict[str, dict[str, dict[int, float]]] = {  # by chip, kind and length; of a plane that of its longer side
    "v3": {
        "plane": {512: 0.0678},
        "lane": {256: 0.0439, 512: 0.0433, 1024: 0.0444},
        "sublane": {256: 0.0284, 512: 0.0292, 1000: 0.0410, 1024: 0.0319},
    },
    "v4": {"plane": {512: 0.0646}},
    "v5e": {
        "plane": {256: 0.0334, 512: 0.0303, 1024: 0.0314},
        "lane": {256: 0.0229, 512: 0.0212, 1024: 0.0211, 4096: 0.0236, 8192: 0.0249},
        "sublane": {256: 0.0113, 512: 0.0109, 1000: 0.0192, 1024: 0.0130, 4096: 0.0148, 8192: 0.0172},
        "first": {256: 0.0097, 512: 0.0096, 1000: 0.0169, 1024: 0.0124},
    },
    "v5p": {
        "plane": {512: 0.0153},
        "lane": {256: 0.0120, 512: 0.0109, 1024: 0.0106, 4096: 0.0119},
        "sublane": {256: 0.0050, 512: 0.0056, 1000: 0.0100, 1024: 0.0066, 4096: 0.0075},
    },
    "v6e": {"plane": {512: 0.0288}},
    "tpu7x": {"plane": {512: 0.0296}},
}


class Price(NamedTuple):
    """Bundles a point, and whether they are an estimate."""

    bundles: float
    estimated: bool


@functools.lru_cache(maxsize=1024)
def bundles(chip_name: str, kind: str, lengths: tuple[int, ...]) -> Price:
    """Bundles a point of one pass of a kernel."""
    length, rows = max(lengths), BUNDLES.get(chip_name, BUNDLES["v3"])
    known = rows.get(kind) or rows.get("sublane") or rows["plane"]
    near = min(known, key=lambda n: abs(math.log(n / length)))
    exact = near == length and kind in rows and chip_name in BUNDLES
    return Price(known[near] * max(math.log(length), 1.0) / math.log(near), not exact)


def cycles(chip: Chip, kind: str, lengths: tuple[int, ...], points: int) -> int:
    """Cycles of one pass of a kernel over so many complex numbers; only for a chip whose clock is known."""
    clock = chip.clock
    assert clock is not None, "kernels are for chips whose clock is known"
    memory = POINT_BYTES * clock.value / chip.memory.value
    return round(max(bundles(chip.name, kind, lengths).bundles, memory) * points)
