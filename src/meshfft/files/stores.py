"""Stores: arrays on the disk that blocks are written to, by one process or by several that share the file system.

A .npy or .nii file is written with positional writes, not through a map: processes on a network file system would lose
each other's pages, and pages of a map count as memory of the process. A Zarr array is written complete files at a time,
each with a checksum, in a group that xarray opens as a dataset: the array, its named dimensions and its coordinates.
Invariant: beyond the block it is given a write buffers at most 128 MiB, or one shard.
"""

import dataclasses
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import DTypeLike

from ..atomic import opened, synced
from ..extras import need
from ..formats.grid import BOX_BYTES, Box, Grid, subboxes, within
from ..formats.numpy_nifti import Numbers, nifti_header, npy_header
from ..formats.record import Record
from ..formats.source import Labels
from ..formats.zarr import KEY, opened_zarr, plain_files, shape_of, system_words
from ..layout.layout import dim_name

if TYPE_CHECKING:
    import tensorstore

KINDS = (".npy", ".zarr")
WRITTEN = (*KINDS, ".nii")
NIFTI_DIMENSIONS, NIFTI_SIZE, NO_EXTENSION = 7, 2**15 - 1, bytes(4)
DATA = "data"  # the name of an array of its group that has none
IN_FLIGHT = 2
# A chunk of zeros is written too, so that one that is not there is one that was lost.
SPEC: dict[str, object] = {"driver": "zarr3", "store_data_equal_to_fill_value": True}
BYTES: dict[str, object] = {"name": "bytes", "configuration": {"endian": "little"}}
CRC32C: dict[str, object] = {"name": "crc32c"}


class Store(Protocol):
    """An array on the disk, open for writing."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        """The parts of a box to be written at a time: of complete files, and of at most `most` bytes or one file."""

    def write(self, at: Box, block: np.ndarray) -> None:
        """Writes a block to a box; it may be changed once this returns."""

    def flush(self) -> None:
        """Returns when all that this process wrote would outlast a loss of power."""


@dataclasses.dataclass(frozen=True)
class NpyStore:
    """A .npy or .nii file; its array begins at `offset`, in Fortran order in NIfTI."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int
    fortran: bool = False

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        return subboxes(at, (1,) * len(at), self.dtype.itemsize, most, fortran=self.fortran)

    def write(self, at: Box, block: np.ndarray) -> None:
        order = slice(None, None, -1 if self.fortran else 1)
        with opened(self.path, os.O_WRONLY) as file:
            numbers = Numbers(file, self.offset, self.shape[order], self.dtype)
            for box in self.boxes(at, BOX_BYTES):
                part = block[within(box, [s.start for s in at])]
                numbers.write(box[order], part.T if self.fortran else part)

    def flush(self) -> None:
        synced(self.path)
        synced(self.path.parent)


@dataclasses.dataclass(frozen=True)
class ZarrStore:
    """A Zarr array, opened by tensorstore."""

    path: Path
    handle: "tensorstore.TensorStore"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.handle.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.handle.dtype.numpy_dtype)

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        return subboxes(at, shape_of(self.handle.chunk_layout.write_chunk), self.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        started = list["tensorstore.WriteFutures"]()
        try:
            with system_words():
                for box in self.boxes(at, BOX_BYTES):
                    part = block[within(box, [s.start for s in at])]
                    many = IN_FLIGHT if part.size * self.dtype.itemsize <= BOX_BYTES else 1
                    while len(started) >= many:
                        started.pop(0).result()
                    started.append(self.handle[box].write(part.astype(self.dtype, copy=False)))
                while started:
                    started.pop(0).result()
        finally:
            for write in started:
                write.exception()  # one that is still under way would make the folder again that is now removed

    def flush(self) -> None:
        """Every file is on the disk when its write ends, and all are in one folder: this makes their names last."""
        synced(self.path)
        synced(self.path.parent)


def create_store(
    path: Path,
    shape: Sequence[int],
    dtype: DTypeLike,
    grid: Grid,
    record: Record | None = None,
    *,
    kind: str,
    about: Mapping[str, object] = {},
) -> Store:
    """Makes a .npy or .nii file of its full size, or an empty Zarr array in a group, where nothing is yet.

    Args:
        path: where; its name may have any suffix, as that of a temporary.
        shape, dtype: of the array.
        grid: the chunks and files of a Zarr array.
        record: what a Zarr array keeps under its attribute "meshfft", and its labels: its name, "data" without one, and
            the coordinates in its group. A .npy file has room for neither.
        kind: ".npy", ".nii" or ".zarr".
        about: plain values that a Zarr array keeps as further attributes.

    Raises:
        OSError: it cannot be made there, or the disk is full.
    """
    _check_kind(kind)
    number = np.dtype(dtype).newbyteorder("=")
    if kind != ".zarr":
        return (_create_npy if kind == ".npy" else _create_nifti)(path, tuple(shape), number)
    attributes: dict[str, object] = {**about, KEY: {} if record is None else record.to_dict()}
    dims = tuple(dim_name(dim, len(shape)) for dim in range(len(shape)))
    names = dims if record is None else tuple(dimension.name for dimension in record.dimensions)
    labels = record.labels if record is not None and record.labels is not None else Labels("", names)
    labels = labels._replace(name=labels.name or _free_name(names))
    more = [one.name for one in labels.coordinates if one.dims != (one.name,)]
    beside = {"coordinates": " ".join(more)} if more else {}
    path.mkdir()
    store = _create_zarr(path / labels.name, shape, number, grid, {**labels.attributes, **beside, **attributes}, names)
    _describe(path, labels)
    return store


def _free_name(dims: Sequence[str]) -> str:
    """A name for an array that is not one of its dimensions', which xarray would take for a coordinate."""
    return next(name for n in itertools.count() if (name := DATA + "_" * n) not in dims)


def open_store(path: Path, kind: str) -> Store:
    """The store that another process made, or this one before it was ended, for writing.

    Raises:
        OSError: it is not there, or cannot be written to.
    """
    _check_kind(kind)
    if kind == ".zarr":
        found = json.loads((path / "zarr.json").read_bytes())
        inner = path if found["node_type"] == "array" else path / found["attributes"][KEY]
        return ZarrStore(inner, opened_zarr(inner, SPEC, open=True))
    with open(path, "rb+") as file:
        shape, _, dtype, offset = npy_header(path, file) if kind == ".npy" else nifti_header(path, file)
    check_size(path, offset + math.prod(shape) * dtype.itemsize)
    return NpyStore(path, shape, dtype, offset, kind == ".nii")


def _check_kind(kind: str) -> None:
    if kind not in WRITTEN:
        raise ValueError(f"kind {kind!r} cannot be written: use {' or '.join(WRITTEN)}")


def check_size(path: Path, nbytes: int) -> None:
    """Raises OSError where a file was cut short: what is written behind its end would leave zeros before."""
    have = path.stat().st_size
    if have < nbytes:
        raise OSError(f"{path} was cut short, it has {have} bytes of {nbytes}: make it again")


def _create_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> NpyStore:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with open(path, "xb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        return NpyStore(path, shape, dtype, _with_room(file, shape, dtype))


def _create_nifti(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> NpyStore:
    """Of voxels of size 1 in no unit, the first in the origin."""
    header = need("nibabel", "writing NIfTI").Nifti1Header()
    if len(shape) > NIFTI_DIMENSIONS or max(shape) > NIFTI_SIZE:
        most = f"of at most {NIFTI_DIMENSIONS} dimensions of {NIFTI_SIZE}"
        raise ValueError(f"shape {shape} is more than NIfTI has room for, an array {most}: write .npy or .zarr")
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    header.set_sform(np.eye(4), 1)
    header["vox_offset"] = len(header.binaryblock) + len(NO_EXTENSION)
    with open(path, "xb") as file:
        file.write(header.binaryblock + NO_EXTENSION)
        return NpyStore(path, shape, dtype, _with_room(file, shape, dtype), True)


def _with_room(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Where the numbers begin, behind the header just written, with room for all of them."""
    file.flush()
    offset, size = file.tell(), dtype.itemsize * math.prod(shape)
    file.truncate(offset + size)
    if hasattr(os, "posix_fallocate"):  # the room is taken now, not found missing hours later
        os.posix_fallocate(file.fileno(), 0, offset + size)
    return offset


def _create_zarr(
    path: Path,
    shape: Sequence[int],
    dtype: np.dtype,
    grid: Grid,
    attributes: Mapping[str, object],
    names: Sequence[str],
) -> ZarrStore:
    """An array of format 3, uncompressed: to a compressor a spectrum is noise that takes longer than the transform."""
    codecs: list[dict[str, object]] = [BYTES, CRC32C] if dtype.itemsize > 1 else [{"name": "bytes"}, CRC32C]
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
    return ZarrStore(path, opened_zarr(path, {**SPEC, "metadata": metadata}, create=True))


def _describe(path: Path, labels: Labels) -> None:
    """Writes the coordinates of an array into its group, and the description of all."""
    for one in labels.coordinates:
        if one.folder is not None:
            for file in plain_files(one.folder):
                target = path / one.name / file.relative_to(one.folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                synced(target)
        elif one.values is not None:
            shape = one.values.shape
            store = _create_zarr(path / one.name, shape, one.values.dtype, Grid(shape), one.attributes, one.dims)
            store.write(tuple(slice(0, n) for n in shape), one.values)
            store.flush()
    known = {entry.parent.name: json.loads(entry.read_bytes()) for entry in sorted(path.glob("*/zarr.json"))}
    inline = {"kind": "inline", "must_understand": False, "metadata": known}
    document = {"zarr_format": 3, "node_type": "group", "attributes": {**labels.about, KEY: labels.name}}
    (path / "zarr.json").write_text(json.dumps({**document, "consolidated_metadata": inline}))
    for file in (path / "zarr.json", path, path.parent):
        synced(file)
