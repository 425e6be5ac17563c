"""HDF5 files in the form of NetCDF-4, complete but for the numbers, which are written by position.

    /data                 the array, contiguous, allocated at once; its attribute "meshfft" is the record, as JSON
    /X, /Y, ...           a dimension scale for each dimension: its coordinate, or its name alone
    attribute "meshfft"   of the file: the name of the array

NetCDF's libraries and xarray read it, and several processes can write the numbers. Complex numbers are h5py's compound
type {r, i}.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .flat import FlatSink, checked_sink, reserve
from .hdf5 import HIDDEN, INTERNAL, NETCDF, ONLY_A_DIMENSION, open_hdf5
from .record import KEY
from .refusals import system_errors
from .source import FORMATS, Coordinate, Format, Header

if TYPE_CHECKING:
    import h5py

COMPLEX = {"F": "_PFNC_FLOAT_COMPLEX_TYPE", "D": "_PFNC_DOUBLE_COMPLEX_TYPE"}  # as in nc-complex and netCDF4
WIDER = {"?": "i1", "e": "f4"}
MOST_NUMBERS = 4096  # of an attribute: HDF5 limits it to 64 KiB
LOST = re.compile("[\0\ud800-\udfff]")  # not storable as HDF5 text: zeros and surrogates


def create_hdf5(path: Path, header: Header) -> FlatSink:
    import h5py

    labels = header.labels
    dims, name = labels.dims, _stored_name(labels.name, labels.dims)
    own = {one.name: one for one in labels.coordinates if one.dims == (one.name,)}
    with system_errors(), h5py.File(path, "x", track_order=True) as file:
        _annotate(file, {**labels.about, KEY: name})
        for index, (dim, size) in enumerate(zip(dims, header.shape, strict=True)):
            _make_scale(file, index, dim, size, own.get(dim))
        for one in (one for one in labels.coordinates if one.name not in own):
            _attach(_coordinate(file, _stored_name(one.name, dims), one), one.dims)
        array = _contiguous(file, name, header.shape, header.dtype)
        _attach(array, dims)
        _annotate(array, header.attributes)
    return reopen_hdf5(path)


def reopen_hdf5(path: Path) -> FlatSink:
    import h5py

    with h5py.File(path, "r") as file:
        array = file[file.attrs[KEY]]
        sink = checked_sink(path, array.shape, False, array.dtype, array.id.get_offset() or 0)
    with open(path, "rb+") as plain:
        reserve(plain)
    return sink


def _stored_name(name: str, dims: Sequence[str]) -> str:
    return HIDDEN + name if name in dims else name


def _make_scale(file: "h5py.File", index: int, dim: str, size: int, own: Coordinate | None) -> None:
    if own is None:
        scale = file.create_dataset(dim, (size,), ">f4")
        scale.make_scale(f"{ONLY_A_DIMENSION.decode()}.{size:10d}")
    else:
        scale = _coordinate(file, dim, own)
        scale.make_scale(dim)
    scale.attrs["_Netcdf4Dimid"] = np.int32(index)


def _coordinate(file: "h5py.File", name: str, one: Coordinate) -> "h5py.Dataset":
    values = np.asarray(one.values)
    values = values.astype(WIDER.get(values.dtype.char, values.dtype))
    found = file.create_dataset(name, values.shape, _type(file, values.dtype), data=values)
    _annotate(found, one.attributes)
    return found


def _attach(array: "h5py.Dataset", dims: Sequence[str]) -> None:
    for index, dim in enumerate(dims):
        array.dims[index].attach_scale(array.file[dim])


def _contiguous(file: "h5py.File", name: str, shape: Sequence[int], dtype: np.dtype) -> "h5py.Dataset":
    import h5py

    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_layout(h5py.h5d.CONTIGUOUS)
    made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return file.create_dataset(name, shape, _type(file, dtype), dcpl=made)


def _type(file: "h5py.File", dtype: np.dtype) -> "np.dtype | h5py.Datatype":
    """NetCDF opens a compound type only by its name in the file."""
    if dtype.char not in COMPLEX:
        return dtype
    if COMPLEX[dtype.char] not in file:
        file[COMPLEX[dtype.char]] = dtype
    return file[COMPLEX[dtype.char]]


def _annotate(item: "h5py.Dataset | h5py.File", attributes: Mapping[str, object]) -> None:
    for name, value in attributes.items():
        if name and name.isprintable() and name not in INTERNAL and not name.startswith(NETCDF):
            item.attrs[name] = _attribute(value)


def _attribute(value: object) -> object:
    parts = value if isinstance(value, list) and 0 < len(value) <= MOST_NUMBERS else [value]
    if all(isinstance(part, str) and not LOST.search(part) for part in parts):
        return value
    numbers = all(type(part) in (int, float) for part in parts) and np.asarray(parts).dtype.kind in "iuf"
    return np.asarray(value) if numbers else json.dumps(value)


def _check(path: Path, header: Header) -> None:
    labels = header.labels
    for name in (labels.name, *labels.dims, *(one.name for one in labels.coordinates)):
        if "/" in name or name in (".", ".."):
            raise ValueError(f"{path} cannot have the name {name!r}, which is a path in HDF5: write .zarr")


HDF5 = Format("HDF5", open_hdf5, create_hdf5, reopen_hdf5, "h5py", check=_check)
FORMATS |= {".h5": HDF5, ".hdf5": HDF5, ".nc": HDF5._replace(title="NetCDF", lacks="?e")}
