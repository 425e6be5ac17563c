"""Transforms files in passes, forward, back and resumed, and prints planned and counted bytes as JSON.

The counts are rchar and wchar of /proc/self/io: bytes that this process asked to read and write, cached or not. They
start at the first pass, after all programs are loaded.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

import h5py  # noqa: E402
import nibabel  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

import meshfft as mf  # noqa: E402
from meshfft.io import open_array  # noqa: E402
from meshfft.io.grid import ChunkGrid  # noqa: E402
from meshfft.io.writing import create_sink  # noqa: E402
from meshfft.out_of_core import chunk_of, left_of, run_passes  # noqa: E402

SHAPE, BUDGET, CHUNK = (64, 64, 64), 2**22, (16, 16, 16)


class EndedError(Exception):
    """Ends a run on the way."""


def main(folder: Path) -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    np.save(folder / "x.npy", x)
    create_sink(folder / "x.zarr", SHAPE, x.dtype, ChunkGrid(CHUNK)).write(tuple(slice(0, n) for n in SHAPE), x)
    nibabel.save(nibabel.Nifti1Image(x, np.eye(4)), folder / "x.nii")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=CHUNK)
    found = []
    for devices in (1, 2, 8):
        mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
        for suffix, kind in ((".npy", ".zarr"), (".zarr", ".npy"), (".h5", ".zarr"), (".nii", ".npy")):
            about = {"devices": devices, "source": suffix}
            target, back = folder / f"y-{devices}{suffix[1:]}{kind}", folder / f"z-{devices}{suffix[1:]}.npy"
            found.append({**about, "way": "forward", **traffic(folder / f"x{suffix}", target, mesh)})
            found.append({**about, "way": "inverse", **traffic(target, back, mesh, inverse=True)})
            found[-1]["error"] = float(np.linalg.norm(np.load(back) - x) / np.linalg.norm(x))
            if devices == 2:
                found.append(
                    {
                        **about,
                        "way": "resumed",
                        **resumed(folder / f"x{suffix}", folder / f"r-{suffix[1:]}{kind}", mesh),
                    }
                )
    print(json.dumps(found))


def traffic(source: Path, target: Path, mesh: Mesh, **options: Any) -> dict[str, Any]:
    """A whole run, against its plan."""
    with open_array(source) as array:
        made = planned(array, mesh, **options)
        return {"planned": [made.read_bytes, made.written_bytes], **counted(made, array, target)}


def resumed(source: Path, target: Path, mesh: Mesh) -> dict[str, Any]:
    """The rest of a run that ended in its second pass, compared with the bytes left by its journal."""
    reports: list[int] = []

    def report(nbytes: int) -> None:
        reports.append(nbytes)
        if sum(reports) > made.read_bytes:
            raise EndedError

    with open_array(source) as array:
        made = planned(array, mesh)
        try:
            run_passes(made, array, target, report=report, overwrite=True)
        except EndedError:
            left = left_of(made, target)
        return {"planned": [left.read_bytes, left.written_bytes], **counted(made, array, target, resume=True)}


def planned(array: Any, mesh: Mesh, **options: Any) -> Any:
    stored = {"dtype": array.dtype, "chunk": chunk_of(array), "fortran": array.fortran}
    return mf.passes(SHAPE, budget=BUDGET, mesh=mesh, **stored, **options)


def counted(made: Any, array: Any, target: Path, **options: Any) -> dict[str, Any]:
    begun: list[list[int]] = []

    def begin(part: str) -> None:
        if part == "pass 1":
            begun.append(system_counts())

    run_passes(made, array, target, begin=begin, **options)
    moved = [after - before for after, before in zip(system_counts(), begun[0], strict=True)]
    return {"moved": moved, "passes": len(made.steps)}


def system_counts() -> list[int]:
    """Bytes that this process has asked to be read and written."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return [int(lines["rchar"]), int(lines["wchar"])]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
