"""What a sharded store costs: written from eight devices and read back to them, against a plain copy of as many bytes.

    python -m benchmarks store [--mib 512] [--rounds 7] [--rows FILE]

The copy is sequential: read 8 MiB, write 8 MiB, and in the end fsync. Writing ends when the array has its name and is
on the disk, reading when all devices have their blocks; files were just written, so all read from the page cache. Calls
go in an order shuffled anew every round. The table gives medians, and the copy's time over them: above 1 is faster than
the copy. `--rows` appends one JSON line a call.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402
from meshfft.io import open_array, write_array  # noqa: E402

SPECS = {"slab": ((8,), P("x")), "block": ((2, 2, 2), P("x", "y", "z"))}
COPY_BYTES = 8 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="size of the array, a multiple of 32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    if options.mib < 32 or options.mib % 32:
        parser.error(f"--mib {options.mib}: give a multiple of 32, so that each device has as many slices of 4 MiB")
    print("| mesh | call | s | copy / it |\n|---|---|---|---|")
    for name in SPECS:
        with tempfile.TemporaryDirectory() as folder:
            times = measured(calls(name, options.mib, Path(folder)), options.rounds, Path(folder))
        copy = statistics.median(times["copy"])
        for call, seconds in times.items():
            middle = statistics.median(seconds)
            print(f"| {name} | {call} | {middle:.2f} | {copy / middle:.2f} |", flush=True)
            row = {"mesh": name, "call": call, "mib": options.mib, "seconds": seconds}
            append(options.rows, [row], ["tensorstore"])


def calls(name: str, mib: int, folder: Path) -> dict[str, Callable[[], Any]]:
    """The calls on one mesh, and the files that they read."""
    sizes, spec = SPECS[name]
    mesh = jax.make_mesh(sizes, ("x", "y", "z")[: len(sizes)])
    shape = (mib // 4, 1024, 512)  # complex64
    rng = np.random.default_rng()
    x = mf.shard(rng.standard_normal(shape, "float32") * np.complex64(1 + 1j), mesh, spec)
    found: dict[str, Callable[[], Any]] = {"copy": lambda: copy(folder / "in.npy", folder / "out.npy")}
    for kind in (".npy", ".zarr"):
        write_array(folder / f"in{kind}", x)

        def write(kind: str = kind) -> None:
            write_array(folder / f"out{kind}", x)

        def read(kind: str = kind) -> None:
            with open_array(folder / f"in{kind}") as array:
                mf.shard(array, mesh, spec).block_until_ready()

        found |= {f"write {kind}": write, f"read {kind}": read}
    return found


def copy(source: Path, target: Path) -> None:
    with source.open("rb") as before, target.open("wb") as after:
        while part := before.read(COPY_BYTES):
            after.write(part)
        after.flush()
        os.fsync(after.fileno())


def measured(found: dict[str, Callable[[], Any]], rounds: int, folder: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {call: [] for call in found}
    for number in range(rounds + 1):  # the first counts for nothing
        for call in random.sample(list(found), len(found)):
            begun = time.perf_counter()
            found[call]()
            times[call] += [time.perf_counter() - begun] * (number > 0)
            for path in folder.glob("out*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return times


if __name__ == "__main__":
    main()
