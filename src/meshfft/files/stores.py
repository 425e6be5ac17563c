"""Stores: arrays on the disk that blocks are written to, by one process or by several that share the file system.

A .npy file is written with positional writes, not through a map: processes on a network file system would lose each
other's pages, and pages of a map count as memory of the process. A Zarr array is written whole files at a time, each
with a checksum. Invariant: beyond the block it is given a write buffers at most 128 MiB, or one shard.
"""

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..atomic import opened, synced
from ..errors import check
from ..extras import need
from ..formats.grid import PIECE_BYTES, Box, Grid, pieces, within
from ..formats.labels import Labels
from ..formats.numpy_nifti import Numbers
from ..formats.zarr import check_name, context, system_words
from ..formats.zarr_metadata import KEY
from .dataset import BYTES, array_in, attributes_of, begin_dataset, end_dataset

KINDS = (".npy", ".zarr")
IN_FLIGHT = 2
CRC32C = {"name": "crc32c"}


class Store(Protocol):
    """An array on the disk, open for writing."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        """The parts of a box to be written at a time: of whole files, and of at most so many bytes or one file."""

    def write(self, at: Box, block: np.ndarray) -> None:
        """Puts a block in its place; it may be changed once this returns."""

    def flush(self) -> None:
        """Returns when all that this process wrote would outlast a loss of power."""


def create_store(
    path: Path,
    shape: Sequence[int],
    dtype: Any,
    grid: Grid,
    record: dict[str, Any] | None = None,
    *,
    kind: str,
    labels: Labels | None = None,
) -> Store:
    """Makes a .npy file of its full size, or an empty Zarr array, alone or in a group, where nothing is yet.

    Args:
        path: where; its name may have any suffix, as that of a temporary.
        shape, dtype: of the array.
        grid: the chunks and files of a Zarr array.
        record: what is kept beside a Zarr array, under the attribute "meshfft"; a .npy file has no place for it.
        kind: ".npy" or ".zarr".
        labels: dimension names and attributes of a Zarr array; one with a name is made in a group of its coordinates.

    Raises:
        OSError: it cannot be made there, or the disk is full.
    """
    check(kind in KINDS, f"kind {kind!r} cannot be written: use {' or '.join(KINDS)}")
    size, number = tuple(shape), np.dtype(dtype).newbyteorder("=")
    if kind == ".npy":
        return _create_npy(path, size, number)
    grouped = labels is not None and bool(labels.name)
    inner = begin_dataset(path, labels) if labels is not None and grouped else path
    store = ZarrStore(inner, _zarr(inner, metadata=_metadata(size, number, grid, record, labels), create=True))
    if labels is not None and grouped:
        end_dataset(path, labels)
        synced(path.parent)
    return store


def open_store(path: Path, kind: str) -> Store:
    """The store that another process made, or this one before it was ended, for writing.

    Raises:
        OSError: it is not there, or cannot be written to.
    """
    check(kind in KINDS, f"kind {kind!r} cannot be written: use {' or '.join(KINDS)}")
    if kind == ".zarr":
        inner = array_in(path)
        return ZarrStore(inner, _zarr(inner))
    with open(path, "rb+") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        store = NpyStore(path, shape, dtype, file.tell())
    check_size(path, store.offset + math.prod(shape) * dtype.itemsize)
    return store


def check_size(path: Path, nbytes: int) -> None:
    """Raises OSError where a file was cut short: what is written behind its end would leave zeros before."""
    have = path.stat().st_size
    check(have >= nbytes, f"{path} was cut short, it has {have} bytes of {nbytes}: make it anew", OSError)


@dataclasses.dataclass(frozen=True)
class NpyStore:
    """A .npy file; its array begins at `offset`."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        return pieces(at, (1,) * len(at), self.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        with opened(self.path, os.O_WRONLY) as file:
            numbers = Numbers(file, self.offset, self.shape, self.dtype)
            for piece in self.boxes(at, PIECE_BYTES):
                numbers.write(piece, block[within(piece, [s.start for s in at])])

    def flush(self) -> None:
        synced(self.path)
        synced(self.path.parent)


@dataclasses.dataclass(frozen=True)
class ZarrStore:
    """A Zarr array, opened by tensorstore."""

    path: Path
    handle: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.handle.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.handle.dtype.numpy_dtype)

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        return pieces(at, self._file, self.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        file, size, started = self._file, self.dtype.itemsize, list[Any]()
        many = IN_FLIGHT if size * math.prod(file) <= PIECE_BYTES else 1
        try:
            for piece in pieces(at, file, size, PIECE_BYTES):
                if len(started) == many:
                    _ended(started.pop(0))
                part = block[within(piece, [s.start for s in at])]
                started.append(self.handle[piece].write(part.astype(self.dtype, copy=False)))
            while started:
                _ended(started.pop(0))
        finally:
            for write in started:
                write.exception()  # one that is still under way would make anew the folder that is now removed

    @property
    def _file(self) -> tuple[int, ...]:
        return tuple(self.handle.chunk_layout.write_chunk.shape)

    def flush(self) -> None:
        """Every file is on the disk when its write ends, and all are in one folder: this makes their names last."""
        synced(self.path)
        synced(self.path.parent)


def _ended(write: Any) -> None:
    with system_words():
        write.result()


def _zarr(path: Path, **options: Any) -> Any:
    check_name(path)
    tensorstore = need("tensorstore", "writing Zarr")
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{path.absolute()}/"},
        "store_data_equal_to_fill_value": True,  # so that a chunk that is not there is one that was lost
        "context": context(),
    }
    if "metadata" in options:
        spec["metadata"] = options["metadata"]
    with system_words():
        return tensorstore.open(spec, create=options.get("create", False), open=not options.get("create")).result()


def _metadata(
    shape: tuple[int, ...], dtype: np.dtype[Any], grid: Grid, record: dict[str, Any] | None, labels: Labels | None
) -> dict[str, Any]:
    """A Zarr v3 array."""
    # uncompressed: a spectrum is noise to a compressor, which would take longer than the transform
    codecs: list[dict[str, Any]] = [BYTES, CRC32C] if dtype.itemsize > 1 else [{"name": "bytes"}, CRC32C]
    if grid.shard is not None:
        inner = {"chunk_shape": list(grid.chunk), "codecs": codecs, "index_codecs": [BYTES, CRC32C]}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    names = [str(part["name"]) for part in (record or {}).get("dimensions", [])]
    return {
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},  # all files in one folder
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(grid.file)}},
        "codecs": codecs,
        "attributes": {**(attributes_of(labels) if labels is not None else {}), KEY: record or {}},
        **({"dimension_names": names} if len(names) == len(shape) else {}),
    }


def _create_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NpyStore:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with open(path, "xb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        offset, size = file.tell(), dtype.itemsize * math.prod(shape)
        file.truncate(offset + size)
        if hasattr(os, "posix_fallocate"):  # the room is taken now, not found missing hours later
            os.posix_fallocate(file.fileno(), 0, offset + size)
    return NpyStore(path, shape, dtype, offset)
