"""Stores: arrays on the disk that blocks are written to, by one process or by several that share the file system.

A .npy file is written with positional writes, not through a map: processes on a network file system would lose each
other's pages, and pages of a map count as memory of the process. A Zarr array is written whole files at a time, each
with a checksum; where it has coordinates, it is made in a group with them, that xarray opens as a dataset. Invariant:
beyond the block it is given a write buffers at most 128 MiB, or one shard.
"""

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..atomic import opened, synced
from ..extras import need
from ..formats.grid import PIECE_BYTES, Box, Grid, pieces, within
from ..formats.numpy_nifti import Numbers
from ..formats.record import Record
from ..formats.source import Coordinate, Labels
from ..formats.zarr import KEY, check_name, context, plain_files, system_words

KINDS = (".npy", ".zarr")
IN_FLIGHT = 2
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CRC32C = {"name": "crc32c"}


class Store(Protocol):
    """An array on the disk, open for writing."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        """The parts of a box to be written at a time: of whole files, and of at most `most` bytes or one file."""

    def write(self, at: Box, block: np.ndarray) -> None:
        """Puts a block in its place; it may be changed once this returns."""

    def flush(self) -> None:
        """Returns when all that this process wrote would outlast a loss of power."""


def create_store(
    path: Path,
    shape: Sequence[int],
    dtype: Any,
    grid: Grid,
    record: Record | None = None,
    *,
    kind: str,
) -> Store:
    """Makes a .npy file of its full size, or an empty Zarr array, alone or in a group, where nothing is yet.

    Args:
        path: where; its name may have any suffix, as that of a temporary.
        shape, dtype: of the array.
        grid: the chunks and files of a Zarr array.
        record: what is kept beside a Zarr array, under the attribute "meshfft", and its labels: one with a name is made
            in a group of its coordinates. A .npy file has no place for either.
        kind: ".npy" or ".zarr".

    Raises:
        OSError: it cannot be made there, or the disk is full.
    """
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} cannot be written: use {' or '.join(KINDS)}")
    size, number = tuple(shape), np.dtype(dtype).newbyteorder("=")
    if kind == ".npy":
        return _create_npy(path, size, number)
    attributes: dict[str, Any] = {KEY: {} if record is None else record.to_dict()}
    names = () if record is None else tuple(dimension.name for dimension in record.dimensions)
    labels: Labels | None = None if record is None else record.labels
    if labels is None:
        return _create_zarr(path, size, number, grid, attributes, names)
    attributes = {**_attributes_of(labels), **attributes}
    if not labels.name:
        return _create_zarr(path, size, number, grid, attributes, names)
    path.mkdir()
    store = _create_zarr(path / labels.name, size, number, grid, attributes, names)
    _describe(path, labels)
    return store


def open_store(path: Path, kind: str) -> Store:
    """The store that another process made, or this one before it was ended, for writing.

    Raises:
        OSError: it is not there, or cannot be written to.
    """
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} cannot be written: use {' or '.join(KINDS)}")
    if kind == ".zarr":
        found = json.loads((path / "zarr.json").read_bytes())
        inner = path if found["node_type"] == "array" else path / found["attributes"][KEY]
        return ZarrStore(inner, _opened(inner, open=True))
    with open(path, "rb+") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        store = NpyStore(path, shape, dtype, file.tell())
    check_size(path, store.offset + math.prod(shape) * dtype.itemsize)
    return store


def check_size(path: Path, nbytes: int) -> None:
    """Raises OSError where a file was cut short: what is written behind its end would leave zeros before."""
    have = path.stat().st_size
    if not have >= nbytes:
        raise OSError(f"{path} was cut short, it has {have} bytes of {nbytes}: make it again")


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
                write.exception()  # one that is still under way would make the folder again that is now removed

    @property
    def _file(self) -> tuple[int, ...]:
        return tuple(self.handle.chunk_layout.write_chunk.shape or ())  # None for a single value

    def flush(self) -> None:
        """Every file is on the disk when its write ends, and all are in one folder: this makes their names last."""
        synced(self.path)
        synced(self.path.parent)


def _ended(write: Any) -> None:
    with system_words():
        write.result()


def _opened(path: Path, metadata: dict[str, Any] | None = None, **how: bool) -> Any:
    check_name(path)
    tensorstore = need("tensorstore", "writing Zarr")
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{path.absolute()}/"},
        "store_data_equal_to_fill_value": True,  # so that a chunk that is not there is one that was lost
        "context": context(),
    }
    with system_words():
        return tensorstore.open({**spec, **({"metadata": metadata} if metadata else {})}, **how).result()


def _create_zarr(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    grid: Grid,
    attributes: dict[str, Any],
    names: Sequence[str],
) -> ZarrStore:
    """An array of format 3, uncompressed: to a compressor a spectrum is noise that takes longer than the transform."""
    codecs: list[dict[str, Any]] = [BYTES, CRC32C] if dtype.itemsize > 1 else [{"name": "bytes"}, CRC32C]
    if grid.shard is not None:
        inner = {"chunk_shape": list(grid.chunk), "codecs": codecs, "index_codecs": [BYTES, CRC32C]}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    metadata = {
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},  # all files in one folder
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(grid.file)}},
        "codecs": codecs,
        "attributes": attributes,
        **({"dimension_names": list(names)} if len(names) == len(shape) else {}),
    }
    return ZarrStore(path, _opened(path, metadata, create=True))


def _describe(path: Path, labels: Labels) -> None:
    """Writes the coordinates of an array into its group, and the description of the whole."""
    for one in labels.coordinates:
        if one.folder is not None:
            _copy(one.folder, path / one.name)
        elif one.values is not None:
            _write(path / one.name, one, one.values)
    known = {entry.parent.name: json.loads(entry.read_bytes()) for entry in sorted(path.glob("*/zarr.json"))}
    inline = {"kind": "inline", "must_understand": False, "metadata": known}
    document = {"zarr_format": 3, "node_type": "group", "attributes": {**labels.about, KEY: labels.name}}
    (path / "zarr.json").write_text(json.dumps({**document, "consolidated_metadata": inline}))
    for file in (path / "zarr.json", path, path.parent):
        synced(file)


def _attributes_of(labels: Labels) -> dict[str, Any]:
    """The attributes of the array: its own, and the names of coordinates that are none of its dimensions."""
    more = [one.name for one in labels.coordinates if one.dims != (one.name,)]
    return {**labels.attributes, **({"coordinates": " ".join(more)} if more else {})}


def _write(path: Path, one: Coordinate, values: np.ndarray) -> None:
    """Writes a coordinate as an array of one file."""
    store = _create_zarr(
        path, values.shape, values.dtype.newbyteorder("="), Grid(values.shape), dict(one.attributes), one.dims
    )
    store.write(tuple(slice(0, n) for n in values.shape), values)
    store.flush()


def _copy(source: Path, path: Path) -> None:
    """Copies an array file by file, whatever it holds."""
    for file in plain_files(source):
        target = path / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        synced(target)


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
