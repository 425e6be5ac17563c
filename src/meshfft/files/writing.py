"""Sharded arrays, written shard by shard: one .npy file, or one Zarr array whose chunks follow the shards.

Each device's block is brought to the host alone, cropped to its logical positions and put in its place; the file
gets its name only when it is complete and on the disk.
"""

import math
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..atomic import refuse_existing, replacing
from ..errors import check
from ..extras import need
from ..layout import Layout, from_spec
from .reading import is_zarr

CHUNK_BYTES = 64 * 2**20  # a slice read back decodes whole chunks, and Zarr reads some ten at a time


def write_array(path: str | Path, array: jax.Array, shape: Sequence[int] | Layout, *, overwrite: bool = False) -> None:
    """Writes a sharded array to a .npy file or a .zarr store, without its padding.

    Holds one device's block in host memory at a time. Whatever goes wrong, what stood under `path` before stands there
    after.

    Args:
        path: the file to write; its suffix chooses the format.
        array: the array, padded at the tail as `shard` and transforms of natural order leave it.
        shape: its logical shape; or its layout (`plan.out_layout`), which may have padding anywhere.
        overwrite: whether a file already there may be replaced.

    Raises:
        ValueError: the suffix is unknown, or `array` is not one that stores this shape.
        OSError: `path` exists and `overwrite` is false, it cannot be written, or the disk is full.
        NotImplementedError: some shards belong to other processes.

    Example:
        >>> write_array("spectrum.npy", plan(x), plan.out_layout)  # doctest: +SKIP
    """
    path = Path(path)
    layout = shape if isinstance(shape, Layout) else _layout(array, tuple(shape))
    fits = (
        f"shape {layout.shape} is stored as {layout.storage}, the array has shape {array.shape}: give its logical shape"
    )
    check(layout.storage == array.shape, fits)
    far = "some shards are on devices of other processes: write from a program of a single process"
    check(array.is_fully_addressable, far, NotImplementedError)
    check_output(path, overwrite, math.prod(layout.shape) * array.dtype.itemsize)
    with replacing(path, overwrite) as temporary:
        WRITERS[path.suffix](temporary, array, layout)


def check_output(path: str | Path, overwrite: bool, nbytes: int) -> None:
    """Refuses an output that could not be written, before any work is done for it.

    Args:
        path: the file to be written.
        overwrite: whether a file already there may be replaced.
        nbytes: its size; while it is written, what it replaces still takes its place on the disk.

    Raises:
        ValueError: the suffix is unknown, or what would be replaced is of another kind.
        OSError: it exists, its folder does not or is not writable, or the disk has not enough room.
    """
    path = Path(path)
    check(path.suffix in WRITERS, f"{path} is of no kind that can be written: end it in {' or '.join(WRITERS)}")
    if path.suffix == ".zarr":
        need("zarr", "writing Zarr")
    refuse_existing(path, overwrite)
    same = is_zarr(path) if path.suffix == ".zarr" else path.is_file()
    check(same or not path.exists(), f"{path} exists and is no {path.suffix} output: name another")
    check_room(path, nbytes)


def check_room(path: Path, nbytes: int) -> None:
    """Raises OSError unless the folder of `path` exists, can be written to and has room for `nbytes`."""
    folder = path.resolve().parent
    check(folder.is_dir(), f"{folder} is not a folder: make it first, or write elsewhere", FileNotFoundError)
    check(os.access(folder, os.W_OK | os.X_OK), f"{folder} is not writable: write elsewhere", PermissionError)
    free = shutil.disk_usage(folder).free
    what = f"{path} takes {nbytes / 1e9:.3g} GB and {folder} has {free / 1e9:.3g} GB free"
    check(free >= nbytes, f"{what}: free some, or write elsewhere", OSError)


def _layout(array: jax.Array, shape: tuple[int, ...]) -> Layout:
    """The layout of an array padded at the tail."""
    if isinstance(array.sharding, jax.sharding.NamedSharding):
        return from_spec(shape, array.sharding.mesh.shape, array.sharding.spec)
    return from_spec(shape, {}, None)


def _write_npy(path: Path, array: jax.Array, layout: Layout) -> None:
    file: Any = np.lib.format.open_memmap(path, mode="w+", dtype=array.dtype, shape=layout.shape)
    if hasattr(os, "posix_fallocate"):  # else a disk that fills up under a mapped file kills the process
        with open(path, "rb+") as handle:
            os.posix_fallocate(handle.fileno(), 0, os.fstat(handle.fileno()).st_size)
    _fill(file, array, layout)
    file.flush()


def _write_zarr(path: Path, array: jax.Array, layout: Layout) -> None:
    chunks = _chunks(layout.block, array.dtype.itemsize)
    zarr = need("zarr", "writing Zarr")
    # uncompressed: a spectrum is noise to a compressor, which would take longer than the transform
    file = zarr.create_array(path, shape=layout.shape, dtype=array.dtype, chunks=chunks, compressors=None)
    _fill(file, array, layout)


def _fill(file: Any, array: jax.Array, layout: Layout) -> None:
    """Copies the logical part of every shard to its place, once where several devices hold the same."""
    starts = [layout.starts(dim) for dim in range(layout.ndim)]
    counts = [layout.counts(dim) for dim in range(layout.ndim)]
    for shard in array.addressable_shards:
        at = [(part.start or 0) // size for part, size in zip(shard.index, layout.block, strict=True)]
        first = [int(start[i]) for start, i in zip(starts, at, strict=True)]
        count = [int(size[i]) for size, i in zip(counts, at, strict=True)]
        if shard.replica_id == 0:
            place = tuple(slice(a, a + n) for a, n in zip(first, count, strict=True))
            file[place] = np.asarray(shard.data)[tuple(slice(n) for n in count)]


def _chunks(block: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The block, or an even part of it: the outer dimensions are divided until a chunk is small enough."""
    chunks = list(block)
    for dim, size in enumerate(block):
        most = max(1, CHUNK_BYTES // (itemsize * math.prod(chunks[dim + 1 :])))
        chunks[dim] = max(d for d in range(1, size + 1) if size % d == 0 and d <= most)
    return tuple(chunks)


WRITERS: dict[str, Callable[[Path, jax.Array, Layout], None]] = {".npy": _write_npy, ".zarr": _write_zarr}
