"""Stores: arrays on the disk that blocks are written to, by one process or by several that share the file system.

A .npy, .nii or HDF5 file is written with positional writes, not through a map: processes on a network file system
would lose each other's pages, and pages of a map count as memory of the process. A Zarr array is written complete files
at a time, each with a checksum, in a group that xarray opens as a dataset: the array, its named dimensions and its
coordinates.
Invariant: beyond the block it is given a write buffers at most 128 MiB, or one shard.
"""

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import DTypeLike

from ..atomic import opened, synced
from ..layout.layout import dim_name
from .formats.grid import BOX_BYTES, Box, Grid, subboxes, within
from .formats.hdf5_writer import SUFFIXES, create_hdf5, hdf5_header
from .formats.numpy_nifti import Numbers, nifti_bytes, nifti_header, npy_header
from .formats.record import KEY, Record
from .formats.source import Labels
from .formats.zarr import opened_zarr, shape_of, system_words
from .formats.zarr_writer import SPEC, create_array, describe

if TYPE_CHECKING:
    import tensorstore

KINDS = (".npy", ".zarr", *SUFFIXES)
WRITTEN = (*KINDS, ".nii")
DATA = "data"  # the name of an array of its group that has none
IN_FLIGHT = 2


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
    """A .npy, .nii or HDF5 file; its array begins at `offset`, in Fortran order in NIfTI."""

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
    affine: np.ndarray | None = None,
) -> Store:
    """Makes a plain file of its full size, or an empty Zarr array in a group, where nothing is yet.

    Args:
        path: where; its name may have any suffix, as that of a temporary.
        shape, dtype: of the array.
        grid: the chunks and files of a Zarr array.
        record: what a Zarr array or HDF5 file keeps under the attribute "meshfft", and its labels: its name, "data"
            without one, and the coordinates beside it. A .npy file has room for neither.
        kind: one of `WRITTEN`.
        about: plain values that a Zarr array or HDF5 file keeps as further attributes.
        affine: where the voxels of a .nii file are, as `nifti_bytes` takes it.

    Raises:
        OSError: it cannot be made there, or the disk is full.
    """
    _check_kind(kind)
    number = np.dtype(dtype).newbyteorder("=")
    if kind == ".npy":
        return _create_npy(path, tuple(shape), number)
    if kind == ".nii":
        return _create_nifti(path, tuple(shape), number, affine)
    names, labels = _labelled(record, len(shape), kind)
    more = [one.name for one in labels.coordinates if one.dims != (one.name,)]
    beside = {"coordinates": " ".join(more)} if more else {}
    attributes = {**labels.attributes, **beside, **about, KEY: {} if record is None else record.to_dict()}
    if kind != ".zarr":
        create_hdf5(path, shape, number, names, labels, attributes)
        return _opened_hdf5(path)
    path.mkdir()
    handle = create_array(path / labels.name, shape, number, grid, attributes, names)
    describe(path, labels)
    return ZarrStore(path / labels.name, handle)


def _labelled(record: Record | None, ndim: int, kind: str) -> tuple[tuple[str, ...], Labels]:
    """The names of an array's dimensions, and its labels, with a name; of coordinates those that the kind has."""
    if record is None:
        names = tuple(dim_name(dim, ndim) for dim in range(ndim))
    else:
        names = tuple(dimension.name for dimension in record.dimensions)
    labels = record.labels if record is not None and record.labels is not None else Labels("", names)
    coordinates = tuple(one for one in labels.coordinates if kind == ".zarr" or one.values is not None)
    return names, labels._replace(name=labels.name or _free_name(names), coordinates=coordinates)


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
    if kind in SUFFIXES:
        return _opened_hdf5(path)
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


def _opened_hdf5(path: Path) -> NpyStore:
    """A file as it was made, with room for all of it."""
    shape, dtype, offset = hdf5_header(path)
    check_size(path, offset + math.prod(shape) * dtype.itemsize)
    with open(path, "rb+") as file:
        _take_room(file, path.stat().st_size)
    return NpyStore(path, shape, dtype, offset)


def _create_npy(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> NpyStore:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with open(path, "xb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        return NpyStore(path, shape, dtype, _with_room(file, shape, dtype))


def _create_nifti(path: Path, shape: tuple[int, ...], dtype: np.dtype, affine: np.ndarray | None) -> NpyStore:
    head = nifti_bytes(shape, dtype, affine)
    with open(path, "xb") as file:
        file.write(head)
        return NpyStore(path, shape, dtype, _with_room(file, shape, dtype), True)


def _with_room(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Where the numbers begin, behind the header just written, with room for all of them."""
    file.flush()
    offset, size = file.tell(), dtype.itemsize * math.prod(shape)
    file.truncate(offset + size)
    _take_room(file, offset + size)
    return offset


def _take_room(file: IO[bytes], nbytes: int) -> None:
    """Takes the room on the disk now, so that it is not found missing hours later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, nbytes)
