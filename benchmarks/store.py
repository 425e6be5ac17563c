"""A sharded store, written from eight devices and read back to them, against a plain copy of as many bytes.

The copy is sequential, with fsync in the end. Files were just written, so all read from the page cache. Above 1 is
faster than the copy.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import meshfft as mf
from meshfft.io import open_array, write_array

from .common import MESHES, cpu_devices, mesh_of, noise, spec_of, table
from .rows import append
from .timing import Call, Seconds, timed

COPY_BYTES = 8 * 2**20


def main(mib: int = 512, rounds: int = 7, rows: Path | None = None) -> None:
    """`mib` is the size of the array, a multiple of 32."""
    if mib < 32 or mib % 32:
        raise SystemExit(f"--mib {mib}: give a multiple of 32, so that each device has as many slices of 4 MiB")
    cpu_devices()
    found, lines = [], []
    for name in ("slab", "block"):
        with tempfile.TemporaryDirectory() as folder:
            times = timed(calls(name, mib, Path(folder)), rounds)
        for call, one in times.items():
            lines.append((name, call, f"{one.median:.2f}", f"{times['copy'].median / one.median:.2f}"))
            found.append({"mesh": name, "call": call, "mib": mib, "seconds": one.seconds})
    table(("mesh", "call", "s", "copy / it"), lines)
    append(rows, found, "tensorstore")


def calls(name: str, mib: int, folder: Path) -> dict[str, Call]:
    mesh, spec = mesh_of(MESHES[name]), spec_of(MESHES[name])
    x = mf.shard(noise((mib // 4, 1024, 512)), mesh, spec)
    found = {"copy": _tidied(lambda: copy(folder / "in.npy", folder / "out.npy"), folder)}
    for kind in (".npy", ".zarr"):
        write_array(folder / f"in{kind}", x)

        def write(kind: str = kind) -> None:
            write_array(folder / f"out{kind}", x)

        def read(kind: str = kind) -> jax.Array:
            with open_array(folder / f"in{kind}") as array:
                return mf.shard(array, mesh, spec).block_until_ready()

        found |= {f"write {kind}": _tidied(write, folder), f"read {kind}": _tidied(read, folder)}
    return found


def _tidied(call: Callable[[], Any], folder: Path) -> Call:
    """A call that times itself, and removes what it wrote after that."""

    def run() -> Seconds:
        begun = time.perf_counter()
        call()
        seconds = Seconds(time.perf_counter() - begun)
        for path in folder.glob("out*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return seconds

    return run


def copy(source: Path, target: Path) -> None:
    with source.open("rb") as before, target.open("wb") as after:
        shutil.copyfileobj(before, after, COPY_BYTES)
        after.flush()
        os.fsync(after.fileno())
