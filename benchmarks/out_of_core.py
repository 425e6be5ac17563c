"""Out of core: an array larger than the memory that a process may take, there and back in passes over the store.

    python -m benchmarks out_of_core [--shape 512,1024,1024] [--budget 1024] [--devices 1] [--store .zarr] [--rows FILE]

Makes complex64 noise plane by plane, transforms it forward and back in a budget of so many MiB, each way in a process
of its own whose peak resident memory the system tells (all of it: Python, JAX, buffers), and compares plane by plane.
In the same run: a plain copy of the file, read, written and put on the disk; and the round trip of a smaller array, in
core and out of core. Files lie in the current folder meanwhile. `--rows` appends one JSON line a step.

    python -m benchmarks out_of_core --table [--shape 256,256,256] [--budget 30] [--devices 1,2,8] [--sources .npy,.h5]

makes another table instead: bytes and memory of the command line, by the system's counts (see traffic.py).
"""

import argparse
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SMALL = (128, 256, 256)  # what is also transformed in core
COPY_BYTES = 2**24
Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=numbers, default=(512, 1024, 1024))
    parser.add_argument("--budget", type=int, default=1024, help="MiB that a process may hold; MB with --table")
    parser.add_argument("--devices", type=numbers, default=(1,))
    parser.add_argument("--table", action="store_true", help="bytes and memory against the plan")
    parser.add_argument("--sources", default=".npy,.zarr,.h5")
    parser.add_argument("--store", default=".zarr", choices=(".zarr", ".npy"))
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    if options.table:
        from benchmarks.traffic import table, worst

        found = list(table(options.shape, options.budget, options.devices, tuple(options.sources.split(","))))
        print(f"\n{worst(found)}")
        for row in found if options.rows is not None else ():
            append(options.rows, {"shape": options.shape, **row})
        return
    (devices,) = options.devices
    share = options.budget * 2**20 / (8 * math.prod(options.shape))
    small = tuple(map(min, SMALL, options.shape))
    cases = [(options.shape, share), (small, share), (small, math.inf)]  # the last in one piece: in core
    print("| array | step | s | MB/s | peak resident MiB | error |\n|---|---|---|---|---|---|")
    for shape, part in cases:
        budget = 2**40 if math.isinf(part) else int(part * 8 * math.prod(shape))
        for step, found in round_trip(shape, budget, devices, options.store):
            row = {"step": step, "shape": shape, "budget": budget, "store": options.store, **found}
            show(row)
            if options.rows is not None:
                append(options.rows, {**row, "devices": devices})


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers between commas."""
    return tuple(map(int, text.split(",")))


def round_trip(shape: tuple[int, ...], budget: int, devices: int, store: str) -> Any:
    """Each step with what was measured: the file made, there, back, a copy, and what is left of the noise."""
    how = {"budget": budget, "devices": devices}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        there, spectrum, back, copy = (Path(folder) / f"{name}{store}" for name in ("x", "spectrum", "back", "copy"))
        yield "make", alone(made, there, shape)
        yield "forward", alone(transformed, there, spectrum, inverse=False, **how)
        yield "back", alone(transformed, spectrum, back, inverse=True, **how)
        yield "copy", alone(copied, back, copy)
        yield "compare", alone(compared, there, back)


def alone(work: Callable[..., Result], *values: Any, **options: Any) -> Result:
    """What a step says, run in a new process: its seconds and its peak resident memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (work, values, options))


def measured(work: Callable[..., Result], values: tuple[Any, ...], options: dict[str, Any]) -> Result:
    begun = time.perf_counter()
    found = work(*values, **options)
    seconds = time.perf_counter() - begun
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"seconds": seconds, "peak_resident_bytes": int(peak.split()[1]) * 1024, **found}


def made(path: Path, shape: tuple[int, ...]) -> Result:
    """Noise, a plane at a time."""
    from meshfft.io.grid import grid_of
    from meshfft.io.writing import create_sink
    from meshfft.layout.layout import Cut, Layout

    rng, planes = np.random.default_rng(), Layout(shape, ((Cut("p", shape[0], 1),), (), ()))
    store = create_sink(path, shape, np.complex64, grid_of(planes, 8), kind=path.suffix)
    for at in range(shape[0]):
        plane = rng.standard_normal((1, *shape[1:], 2), np.float32).view(np.complex64)[..., 0]
        store.write((slice(at, at + 1), *map(slice, [0] * 2, shape[1:])), plane)
    store.flush()
    return {"bytes": 8 * math.prod(shape)}


def transformed(source: Path, target: Path, *, inverse: bool, budget: int, devices: int) -> Result:
    """The transform in passes, planned, compiled and run; bytes are those read and written."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    import meshfft as mf
    from meshfft.io import open_array
    from meshfft.out_of_core import run_passes

    with open_array(source) as array:
        mesh, begun = jax.make_mesh((devices,), ("x",)), time.perf_counter()
        plan = mf.passes(array.shape, budget=budget, mesh=mesh, dtype=array.dtype, inverse=inverse)
        run_passes(plan, array, target)
    seconds, pieces = time.perf_counter() - begun, [len(step.tiles) for step in plan.steps]
    moved = plan.read_bytes + plan.written_bytes
    return {"seconds": seconds, "bytes": moved, "pieces": pieces, "modelled_bytes": plan.peak_bytes}


def copied(source: Path, target: Path) -> Result:
    """All bytes of a file or folder, one after the other, put on the disk in the end."""
    files = [path for path in [source, *source.rglob("*")] if path.is_file()]
    with open(target, "wb") as out:
        for path in files:
            with open(path, "rb") as file:
                while part := file.read(COPY_BYTES):
                    out.write(part)
        out.flush()
        os.fsync(out.fileno())
    return {"bytes": 2 * target.stat().st_size}


def compared(there: Path, back: Path) -> Result:
    """Relative L2 error of the round trip, a few planes at a time."""
    from meshfft.io import open_array

    apart = whole = 0.0
    with open_array(there) as first, open_array(back) as second:
        for at in range(0, first.shape[0], 8):
            x, y = (array[at : at + 8].astype(np.complex128) for array in (first, second))
            apart, whole = apart + np.linalg.norm(y - x) ** 2, whole + np.linalg.norm(x) ** 2
    return {"error": float(math.sqrt(apart / whole))}


def show(row: Result) -> None:
    array = " x ".join(map(str, row["shape"])) + (" in core" if row["budget"] == 2**40 else "")
    rate = f"{row['bytes'] / row['seconds'] / 1e6:.0f}" if "bytes" in row else ""
    error = f"{row['error']:.2g}" if "error" in row else ""
    peak = row["peak_resident_bytes"] / 2**20
    print(f"| {array} | {row['step']} | {row['seconds']:.1f} | {rate} | {peak:.0f} | {error} |", flush=True)


def append(path: Path, row: Result) -> None:
    """One JSON line, with what it was measured with."""
    from benchmarks.made import circumstances

    with path.open("a") as file:
        about = circumstances(("meshfft", "jax", "jaxlib", "numpy", "tensorstore"))
        file.write(json.dumps({**row, **about}) + "\n")


if __name__ == "__main__":
    main()
