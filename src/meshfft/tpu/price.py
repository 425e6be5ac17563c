"""The cost of a TPU's kernels: bundles of their compiled schedules, or memory traffic if that takes longer.

    cycles = max(bundles a number, bytes a number / bytes a cycle) * numbers

Bundles are VLIW instructions of the compiled schedule, with loops multiplied out; nothing ran on a TPU. FFTs are in
kernel_cycles.json (`python -m benchmarks kernels --table FILE`), wires in wire_cycles.json (`python -m benchmarks
wire_kernels --table FILE`). A number is complex, but real in kernels of wires and real lines; the last dimension is
padded to 128.

For a length that a table lacks: bundles of the nearest length, times the ratio of operations of their radices.
"""

import functools
import json
import math
from pathlib import Path
from typing import Any

from ..collectives.wires import RUN
from ..machine.chip import Chip, rounded_up
from .lines.radices import LANES

REAL_BYTES = 4  # of a float32
OPERATIONS = {2: 4.2, 3: 10.3, 5: 15.6, 7: 20.1}  # per point and factor, twiddles included; 2: a third of radix 8
NEAREST = {  # kinds of similar cost; else sublane
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


@functools.lru_cache(maxsize=1024)
def bundles(chip_name: str, kind: str, lengths: tuple[int, ...]) -> float:
    rows = table().get(chip_name, table()["v3"])
    known = rows.get(kind) or rows.get(NEAREST.get(kind, "sublane")) or rows["sublane"]
    near = min(known, key=lambda row: abs(math.log(math.prod(row) / math.prod(lengths))))
    return known[near] * (sum(map(operations, lengths)) / sum(map(operations, near)))


def cycles(chip: Chip, kind: str, lengths: tuple[int, ...], points: int) -> int:
    last = lengths[-1]
    nbytes = 4.0 * REAL_BYTES
    if is_real(kind):
        nbytes = REAL_BYTES * (rounded_up(last, LANES) + 2 * rounded_up(last // 2 + 1, LANES)) / last
    elif kind in ("lane", "plane"):
        nbytes *= rounded_up(last, LANES) / last
    return _cycles(chip, bundles(chip.name, kind, lengths), nbytes, points)


def is_real(kind: str) -> bool:
    return kind.startswith(("half", "real"))


def written(kind: str, lengths: tuple[int, ...]) -> float:
    last = lengths[-1]
    if kind.startswith("half"):
        return 2 * REAL_BYTES * (last // 2 + 1) / last
    return REAL_BYTES * (1 if is_real(kind) else 2)


def wire_cycles(chip: Chip, way: str, bits: int, rows: int, reals: int) -> int:
    """Cycles to "encode" or "decode" real numbers, in tiles of some rows."""
    known = wire_table().get(chip.name, wire_table()["v3"])[f"{way}{bits}"]
    return _cycles(chip, known[str(rows)], REAL_BYTES + word_bytes(bits), reals)


def word_bytes(bits: int) -> float:
    return (bits + 16 / RUN) / 8


def _cycles(chip: Chip, bundles: float, nbytes: float, numbers: int) -> int:
    assert chip.clock is not None, "kernels are for chips whose clock is known"
    return round(max(bundles, nbytes * chip.clock.value / chip.memory.value) * numbers)


@functools.lru_cache(maxsize=1)
def table() -> dict[str, dict[str, dict[tuple[int, ...], float]]]:
    return {
        chip: {kind: {tuple(map(int, row.split("x"))): n for row, n in rows.items()} for kind, rows in kinds.items()}
        for chip, kinds in _read("kernel_cycles.json").items()
    }


@functools.lru_cache(maxsize=1)
def wire_table() -> dict[str, dict[str, dict[str, float]]]:
    return _read("wire_cycles.json")


def _read(name: str) -> dict[str, Any]:
    return json.loads(Path(__file__).with_name(name).read_text())["bundles"]


def operations(length: int) -> float:
    total, rest = 0.0, max(length, 2)
    for factor, operations in OPERATIONS.items():
        while rest % factor == 0:
            total, rest = total + operations, rest // factor
    return total + (rest > 1) * rest
