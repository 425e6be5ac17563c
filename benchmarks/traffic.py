"""Bytes read and written and the peak of memory of `meshfft transform --memory`, against what its plan says.

    python -m benchmarks out_of_core --table --shape 256,256,256 --budget 30 --devices 1,2,8 --sources .npy,.zarr,.h5

Float32 noise in a file of each kind, there (to .zarr), back (to .npy), and there once more, killed in its second pass
and resumed; each a process of its own that `/proc/PID/io` and `/proc/PID/status` are read of. Bytes are rchar and wchar
from the first pass on: what the process asked for, in the page cache or not. The baseline is what it took at the most
before the first pass, as it says itself; the budget (of 10^6 bytes) is to cover the rest.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HEADS = ("devices", "source", "way", "read / planned MB", "written / planned MB", "baseline MB", "more MB", "budget MB")
CHUNK = (16, 32, 32)  # about as h5py chooses, and nothing to do with any pass


def table(shape: tuple[int, ...], budget: int, devices: tuple[int, ...], sources: tuple[str, ...]) -> Iterator[dict]:
    """A row for each run, printed as it ends."""
    print("|", " | ".join(HEADS), "|\n|" + "---|" * len(HEADS))
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for kind in sources:
            source = Path(folder) / f"x{kind}"
            noise(source, shape)
            for count in devices:
                for row in rows(source, Path(folder), count, budget):
                    print("|", " | ".join(cells(row)), "|", flush=True)
                    yield row


def rows(source: Path, folder: Path, devices: int, budget: int) -> Iterator[dict[str, Any]]:
    there, back, again = folder / "there.zarr", folder / "back.npy", folder / "again.zarr"
    flags = ("--mesh", str(devices), "--memory", f"{budget}MB")
    for way, words in (
        ("forward", (str(source), str(there), *flags)),
        ("inverse", (str(there), str(back), *flags, "--inverse")),
        ("resumed", (str(source), str(again), *flags)),
    ):
        if way == "resumed":
            measured((*words, "--overwrite"), kill=True)
            words = (*words, "--resume")
        about = {"devices": devices, "source": source.suffix if way != "inverse" else ".zarr", "way": way}
        yield {**about, "budget": budget * 10**6, **measured((*words, "--overwrite"))}


def measured(words: tuple[str, ...], *, kill: bool = False) -> dict[str, Any]:
    """What the system counts of a run and what the run says; or a run that is killed in its second pass."""
    command = [sys.executable, "-m", "meshfft.cli.app", "transform", *words, "--json", "--log-json"]
    quiet = {**os.environ, "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet)
    begun: dict[str, tuple[int, ...]] = {}
    reader = threading.Thread(target=follow, args=(process, begun))
    reader.start()
    last: tuple[int, ...] = (0, 0, 0)
    printed = list[str]()
    writer = threading.Thread(target=lambda: printed.append(process.stdout.read()))  # type: ignore[union-attr]
    writer.start()
    while process.poll() is None:
        last = counts(process.pid) or last
        if kill and begun.get("pass 2") and last[1] > begun["pass 2"][1] + 2**23:
            process.kill()
        time.sleep(0.003)
    reader.join()
    writer.join()
    if kill:
        return {}
    told = json.loads(printed[0])
    if "read_bytes" not in told:
        sys.exit("the array fits in the budget, so that there are no passes to count: give a smaller --budget")
    planned = (told["read_bytes"], told["written_bytes"])
    if "left" in told:
        planned = (told["left"]["read_bytes"], told["left"]["written_bytes"])
    read, written = (after - before for after, before in zip(last[:2], begun["pass 1"], strict=False))
    return {
        "planned": planned,
        "moved": (read, written),
        "baseline": told["baseline_resident_bytes"],
        "peak": last[2],
        "passes": len(told["passes"]),
    }


def follow(process: "subprocess.Popen[str]", begun: dict[str, tuple[int, ...]]) -> None:
    """Notes what was counted as each part begins."""
    for line in process.stderr or ():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "begin":
            begun[event["part"]] = counts(process.pid) or (0, 0, 0)


def counts(process: int) -> tuple[int, ...] | None:
    """Bytes read and written so far, and the most that were in memory; None where it has ended."""
    try:
        io = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
        status = Path(f"/proc/{process}/status").read_text().splitlines()
        peak = next(line for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
    return int(io["rchar"]), int(io["wchar"]), int(peak.split()[1]) * 1024


def noise(path: Path, shape: tuple[int, ...]) -> None:
    """Real noise, a slab at a time."""
    from meshfft.io.grid import Grid
    from meshfft.io.writing import create_sink

    rng, chunk = np.random.default_rng(0), tuple(map(min, CHUNK, shape))
    slabs = (
        (slice(i, min(i + chunk[0], shape[0])), *(slice(0, n) for n in shape[1:])) for i in range(0, shape[0], chunk[0])
    )
    if path.suffix == ".h5":
        import h5py

        with h5py.File(path, "w") as file:
            data = file.create_dataset("x", shape, "float32", chunks=chunk)
            for at in slabs:
                data[at] = rng.standard_normal([s.stop - s.start for s in at], np.float32)
        return
    store = create_sink(path, shape, np.float32, Grid(chunk), kind=path.suffix)
    for at in slabs:
        store.write(at, rng.standard_normal([s.stop - s.start for s in at], np.float32))
    store.flush()


def cells(row: dict[str, Any]) -> list[str]:
    read, written = (f"{a / 1e6:.1f} / {b / 1e6:.1f}" for a, b in zip(row["moved"], row["planned"], strict=True))
    memory = (row["baseline"], row["peak"] - row["baseline"], row["budget"])
    way = f"{row['way']}, {row['passes']} passes"
    return [str(row["devices"]), row["source"], way, read, written, *(f"{n / 1e6:.1f}" for n in memory)]


def worst(found: list[dict[str, Any]]) -> str:
    """The largest ratios of all runs."""
    ratios = [a / b for row in found for a, b in zip(row["moved"], row["planned"], strict=True)]
    shares = [(row["peak"] - row["baseline"]) / row["budget"] for row in found]
    apart = max(abs(ratio - 1) for ratio in ratios) if ratios else math.nan
    return f"bytes differ from the plan by {apart:.1%} at most, memory is {max(shares):.0%} of the budget at most"
