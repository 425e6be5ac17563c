"""What the kernels that write and read words (meshfft/tpu/wires.py) cost by compiled schedules, in cycles a number.

Nothing runs. The larger of `bundles` and `memory` is the cost. `--table` writes what meshfft/tpu/price.py reads.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from meshfft.collectives.wires import LEAST_ROOM, Int16, Int24, Tiled, form_of
from meshfft.tpu import wires as wire_kernels

from ..common import table as print_table
from ..rows import Values
from .kernels import TOPOLOGIES, chip_of, write_table
from .scheduled import schedules

KINDS = {"int16": Int16, "int24": Int24}
# By rows of a tile: the first two are those of 4096^3 and of 8192^3 on 2048 devices.
SHARES = {2: (2, 1, 2, 4096), 4: (2, 1, 4, 8192), 8: (2, 4, 8, 1024)}
MANY = 256  # of them


def main(topology: str = TOPOLOGIES, table: Path | None = None) -> None:
    bundles: dict[str, dict[str, dict[str, float]]] = {}
    for one in topology.split(","):
        print_table((one, "bundles", "memory"), _lines(one, bundles.setdefault(chip_of(one).name, {})))
    if table:
        write_table(table, bundles, "wire_kernels")


def program(way: str, wire: str, rows: int) -> tuple[Callable[..., Any], list[Sequence[int]]]:
    form = form_of(SHARES[rows], 1, KINDS[wire](room=LEAST_ROOM))
    assert isinstance(form, Tiled)
    if way == "encode":
        return lambda block: wire_kernels.encode(form, 1, block), [(MANY, *form.shape)]

    def decode(message: jax.Array) -> jax.Array:
        (plane,) = wire_kernels.decode(form, 1, jax.lax.bitcast_convert_type(message, jnp.uint32))
        return plane

    return decode, [(MANY, *form.message)]


def _lines(topology: str, found: dict[str, dict[str, float]]) -> Iterator[list[str]]:
    """A line for each kernel; fills in bundles a real number by way and rows."""
    ways = itertools.product(("encode", "decode"), KINDS, SHARES)
    jobs: list[Values] = [{"way": way, "wire": wire, "rows": rows} for way, wire, rows in ways]
    chip = chip_of(topology)
    assert chip.clock is not None
    for job, row in zip(jobs, schedules("benchmarks.tpu.wire_kernels:program", jobs, topology), strict=True):
        (one,), reals = row["passes"], MANY * math.prod(SHARES[job["rows"]])
        assert not one["unknown"], "turns of a loop are not known"
        name, each = f"{job['way']}{KINDS[job['wire']].bits + 1}", one["bundles"] / reals
        memory = one["bytes"] * chip.clock.value / chip.memory.value / reals
        found.setdefault(name, {})[str(job["rows"])] = round(each, 5)
        yield [f"{name}, tiles of {job['rows']} rows", f"{each:.4f}", f"{memory:.4f}"]
