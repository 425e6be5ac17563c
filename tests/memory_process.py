"""Copies a file block by block into another, or by way of devices, and prints as JSON by how much its memory grew."""

import json
import resource
import sys
from pathlib import Path

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

import h5py  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import PartitionSpec  # noqa: E402

import meshfft as mf  # noqa: E402
from meshfft.io import open_array, write_array  # noqa: E402
from meshfft.io.grid import grid_of  # noqa: E402
from meshfft.io.source import Sink  # noqa: E402
from meshfft.io.writing import create_sink  # noqa: E402
from meshfft.layout.layout import Layout, even_cuts  # noqa: E402

PLANE = (512, 1024)
ROWS = 2  # planes of a block
Shape = tuple[int, int, int]


def main(way: str, source: Path, target: Path, mib: int) -> None:
    shape, work = (mib * 2**20 // (8 * PLANE[0] * PLANE[1]), *PLANE), {"blocks": blocks, "devices": devices}[way]
    before, after = (path.with_name(f"warm-{path.name}") for path in (source, target))
    made(before, (16, 8, 4))
    work(before, after, (16, 8, 4))  # warms up every library on the smallest file
    made(source, shape)
    begun = peak()
    work(source, target, shape)
    grown = peak() - begun
    with open_array(target) as found:
        right = all((found[row] == plane(row, PLANE)).all() for row in (0, shape[0] // 2, shape[0] - 1))
    print(json.dumps({"grown_mib": grown, "right": right}))


def blocks(source: Path, target: Path, shape: Shape) -> None:
    """From file to file, a few planes at a time."""
    with open_array(source) as array:
        after = store(target, shape)
        for row in range(0, shape[0], ROWS):
            at = (slice(row, row + ROWS), slice(0, shape[1]), slice(0, shape[2]))
            after.write(at, array[at])
        after.flush()


def devices(source: Path, target: Path, shape: Shape) -> None:
    """To devices and from there to the file, the first and the last dimension cut."""
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    with open_array(source) as array:
        write_array(target, mf.shard(array, mesh, PartitionSpec("x", None, "y")))


def made(path: Path, shape: Shape) -> None:
    """A file of planes that all differ."""
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            data = file.create_dataset("only", shape, "complex64", chunks=(1, *shape[1:]))
            for row in range(0, shape[0], ROWS):
                data[row : row + ROWS] = np.stack([plane(row + i, shape[1:]) for i in range(ROWS)])
        return
    one = store(path, shape)
    for row in range(0, shape[0], ROWS):
        at = (slice(row, row + ROWS), slice(0, shape[1]), slice(0, shape[2]))
        one.write(at, np.stack([plane(row + i, shape[1:]) for i in range(ROWS)]))


def store(path: Path, shape: Shape) -> Sink:
    """An empty store for blocks of ROWS planes."""
    layout = Layout(shape, (even_cuts(shape[0], [("x", shape[0] // ROWS)]), (), ()))
    return create_sink(path, shape, "complex64", grid_of(layout, 8))


def plane(row: int, shape: tuple[int, int]) -> np.ndarray:
    """Whole numbers, which float32 has exactly."""
    return (np.arange(shape[0] * shape[1], dtype="float32").reshape(shape) + row).astype("complex64")


def peak() -> int:
    """The most memory this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
