"""Two processes transform one array there and back 800 times: the same numbers every time, and no growth of memory.

    python -m benchmarks soak [--rounds 800] [--rows FILE]        (a minute on two cores)

Each process holds four of eight CPU devices; they talk over gloo on loopback. Every round transforms the same array
forward and back by a plan for sizes that the mesh does not divide, writes the spectrum to a Zarr store that both share
and reads its own blocks back every tenth time. Of every round each process keeps a checksum (CRC-32) of its blocks of
the spectrum, the largest error of what came back, and its resident memory. A row a process: how many checksums there
were (one, if nothing changed), the largest error, and memory after rounds 20, 40, ... The allocator takes some 500
rounds to fill its arenas (8 MB in all), so growth is told of the last 200.
"""

import argparse
import json
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy", "tensorstore")
SHAPE, MESH, PROCESSES = (97, 80, 74), (4, 2), 2
EVERY, LAST = 20, 200  # rounds between two looks at memory; those in which none is to be taken


def launch(rounds: int, rows: Path | None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        own = [
            sys.executable,
            "-m",
            "benchmarks.soak",
            "--rounds",
            str(rounds),
            "--folder",
            folder,
            "--address",
            address,
        ]
        started = [subprocess.Popen([*own, "--process", str(i)], stdout=subprocess.PIPE) for i in range(PROCESSES)]
        told = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started), "a process failed"
    for text in told:
        found = {
            **json.loads(text.splitlines()[-1]),
            "command": shlex.join(["python", *sys.orig_argv[1:]]),
        }
        print(f"process {found['process']}: {summary(found)}")
        if rows is not None:
            with open(rows, "a") as out:
                out.write(json.dumps(found) + "\n")


def summary(found: dict[str, Any]) -> str:
    resident = found["resident_bytes"]
    known = len(resident) > LAST // EVERY
    grown = (resident[-1] - resident[-1 - LAST // EVERY]) / 1e6 if known else 0
    return (
        f"{found['rounds']} rounds in {found['seconds']:.0f} s, checksums of the spectrum: {found['checksums']}, "
        f"error back {found['error']:.1e}, resident {resident[-1] / 1e6:.0f} MB, "
        + (
            f"grown by {grown:.1f} MB in the last {LAST} rounds"
            if known
            else f"growth is known from {LAST + EVERY} rounds"
        )
    )


def work(process: int, address: str, rounds: int, folder: Path) -> dict[str, Any]:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", MESH[0] * MESH[1] // PROCESSES)
    jax.distributed.initialize(address, PROCESSES, process)
    import numpy as np
    from jax.sharding import PartitionSpec as P

    import meshfft as mf
    from meshfft.io import open_array, write_array

    mesh, spec = jax.make_mesh(MESH, ("x", "y")), P("x", "y")
    random = np.random.default_rng(0)
    values = (random.standard_normal(SHAPE) + 1j * random.standard_normal(SHAPE)).astype(np.complex64)
    plan = mf.plan(SHAPE, mesh=mesh, spec=spec)
    x = mf.shard(values, mesh, spec)
    there, back = jax.jit(plan), jax.jit(plan.inverse)
    checksums, error, resident, begun = set(), 0.0, [], time.perf_counter()
    for turn in range(1, rounds + 1):
        y = there(x)
        if turn % 10 == 0:
            write_array(folder / "spectrum.zarr", y, overwrite=True)
            with open_array(folder / "spectrum.zarr") as source:
                y = mf.shard(source, mesh, plan.out_layout.spec)
        z = back(y)
        checksums.add(checksum(y))
        error = max(error, *(largest(a, b) for a, b in zip(x.addressable_shards, z.addressable_shards, strict=True)))
        if turn % EVERY == 0:
            resident.append(resident_bytes())
    return {
        "process": process,
        "rounds": rounds,
        "seconds": time.perf_counter() - begun,
        "checksums": len(checksums),
        "error": error,
        "resident_bytes": resident,
    }


def checksum(y: Any) -> int:
    import numpy as np

    found = 0
    for shard in y.addressable_shards:
        found = zlib.crc32(np.ascontiguousarray(shard.data).tobytes(), found)
    return found


def largest(a: Any, b: Any) -> float:
    import numpy as np

    return float(np.abs(np.asarray(a.data) - np.asarray(b.data)).max())


def resident_bytes() -> int:
    """Resident memory of this process now, from Linux."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=800)
    parser.add_argument("--rows", type=Path, help="file to which one JSON line a process is appended")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rounds < EVERY:
        parser.error(f"--rounds {given.rounds}: memory is looked at every {EVERY} rounds, so give {EVERY} or more")
    if given.process is None:
        launch(given.rounds, given.rows)
        return
    found = work(given.process, given.address, given.rounds, given.folder)
    from benchmarks.made import circumstances

    print(
        json.dumps({**found, "shape": SHAPE, "mesh": MESH, "processes": PROCESSES, **circumstances(PACKAGES)}),
        flush=True,
    )


if __name__ == "__main__":
    main()
