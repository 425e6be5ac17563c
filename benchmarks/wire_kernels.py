"""What the kernels that write and read words cost by their compiled schedules (tpu/wires.py).

    python -m benchmarks wire_kernels [--topology v3:2x2,v5e:2x2] [--table src/meshfft/tpu/wire_cycles.json]

Nothing runs: the TPU compiler makes each kernel for one device of a described pod, and bundles are counted in the
schedule that it dumps (measure/bundles.py). Cycles a real number: `bundles` are VLIW instructions, loops times turns,
`memory` is what is read and written over the rate of memory; the larger is the cost. `--table` writes what
tpu/wire_price.py reads. It needs the extra `tpu`; all chips take a minute.
"""

import argparse
import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.kernels import TOPOLOGIES, chip_of
from benchmarks.made import made_by
from benchmarks.measure.scheduled import schedules
from meshfft.atomic import replacing
from meshfft.collectives.wire import LEAST_ROOM, Tiled, Wire, form_of
from meshfft.collectives.words import BITS
from meshfft.tpu import wires as wire_kernels

# By rows of a tile: the first two are those of 4096^3 and of 8192^3 on 2048 devices.
SHARES = {2: (2, 1, 2, 4096), 4: (2, 1, 4, 8192), 8: (2, 4, 8, 1024)}
MANY = 256  # of them


def program(way: str, wire: str, rows: int) -> tuple[Callable[..., Any], list[Sequence[int]]]:
    """A kernel, and the shapes of what it takes."""
    form = form_of(SHARES[rows], 1, Wire(wire, room=LEAST_ROOM))
    assert isinstance(form, Tiled)
    if way == "encode":
        return lambda block: wire_kernels.encode(form, 1, block), [(MANY, *form.shape)]

    def decode(message: jax.Array) -> jax.Array:
        (plane,) = wire_kernels.decode(form, 1, jax.lax.bitcast_convert_type(message, jnp.uint32))
        return plane

    return decode, [(MANY, *form.message)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", type=lambda text: text.split(","), default=TOPOLOGIES)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    bundles = {chip_of(topology).name: _measured(topology) for topology in given.topology}
    if given.table:
        made = {"made_by": "python -m benchmarks wire_kernels --table FILE", "versions": made_by("jaxlib", "libtpu")}
        text = json.dumps({**made, "bundles": bundles}, indent=1)
        with replacing(given.table, overwrite=True) as temporary:
            temporary.write_text(re.sub(r"\{[^{}]*\}", lambda found: " ".join(found[0].split()), text) + "\n")


def _measured(topology: str) -> dict[str, dict[str, float]]:
    """Bundles a real number by way and rows; prints a line for each, memory beside them."""
    ways = itertools.product(("encode", "decode"), BITS, SHARES)
    jobs = [{"way": way, "wire": wire, "rows": rows} for way, wire, rows in ways]
    chip, found = chip_of(topology), dict[str, dict[str, float]]()
    assert chip.clock is not None
    print(f"| {topology} | bundles | memory |\n|---|---|---|")
    for job, row in zip(jobs, schedules("benchmarks.wire_kernels:program", jobs, topology), strict=True):
        (one,), reals = row["passes"], MANY * math.prod(SHARES[job["rows"]])
        assert not one["unknown"], "turns of a loop are not known"
        name, each = f"{job['way']}{BITS[job['wire']] + 1}", one["bundles"] / reals
        memory = one["bytes"] * chip.clock.value / chip.memory.value / reals
        found.setdefault(name, {})[str(job["rows"])] = round(each, 5)
        print(f"| {name}, tiles of {job['rows']} rows | {each:.4f} | {memory:.4f} |", flush=True)
    return found


if __name__ == "__main__":
    main()
