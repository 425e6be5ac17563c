"""What a TPU's kernels take that write numbers as words, and read them (tpu/wires.py).

    cycles = max(bundles a real number, bytes a real number / bytes a cycle) * real numbers

Bundles are VLIW instructions of the final schedule, loops times turns; nothing ran on a TPU. They are in
wire_cycles.json by chip, way with bits, and rows of a tile: `python -m benchmarks wire_kernels --table FILE` makes it.
"""

import functools
import json
from pathlib import Path

from ..machine.chip import Chip

REAL_BYTES = 4  # of a number that is written
RUN = 64  # numbers that share an exponent of 16 bits

Rows = dict[str, dict[str, dict[str, float]]]


def cycles(chip: Chip, way: str, bits: int, rows: int, reals: int) -> int:
    """Cycles of "encode" or "decode" for `reals` real numbers; only for a chip whose clock is known."""
    assert chip.clock is not None, "kernels are for chips whose clock is known"
    known = table().get(chip.name, table()["v3"])[f"{way}{bits}"]
    memory = (REAL_BYTES + written(bits)) * chip.clock.value / chip.memory.value
    return round(max(known[str(rows)], memory) * reals)


def written(bits: int) -> float:
    """Bytes of a real number in words, its scale's share among them."""
    return (bits + 16 / RUN) / 8


@functools.lru_cache(maxsize=1)
def table() -> Rows:
    """Bundles a real number by chip, way and rows."""
    rows: Rows = json.loads(Path(__file__).with_name("wire_cycles.json").read_text())["bundles"]
    return rows
