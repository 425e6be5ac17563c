"""What NetCDF-4 keeps beside an array, in HDF5's own means: dimension scales, and attributes.

Invariant: an attribute is read only where it is small, and nothing is looked for outside the groups above an array.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .conventions import MOST_ATTRIBUTE, data_among, plain_json, unpacked_values, words
from .labels import ENCODING, MOST_COORDINATE, Coordinate, Labels
from .source import Read

Reader = Callable[[Any], Read]  # of a dataset, what reads boxes of it

MOST_ATTRIBUTES = 200
INTERNAL = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # of HDF5's scales
ONLY_A_DIMENSION = "This is a netCDF dimension but not a netCDF variable"
HIDDEN = "_nc4_non_coord_"  # before the name of an array that is called as a dimension and is none


def labels_of(h5py: Any, array: Any, reader: Reader) -> Labels | None:
    """Dimensions and coordinates of a dataset, None where not every dimension has a scale."""
    dims = dims_of(array)
    if dims is None or array.is_scale:
        return None
    attributes, about = attributes_of(h5py, array), attributes_of(h5py, array.parent)
    scales = [array.dims[place][0] for place in range(array.ndim)]
    named = {name: array.parent.get(name) for name in words(attributes.get("coordinates")) if "/" not in name}
    others = [one for one in named.values() if isinstance(one, h5py.Dataset)]
    found = [_coordinate(h5py, one, dims, reader) for one in [*scales, *others]]
    known = {one.name: one for one in found if one is not None}
    return Labels(_name(array), dims, plain_json(attributes), tuple(known.values()), plain_json(about))


def candidates(h5py: Any, file: Any, names: Sequence[str]) -> list[str]:
    """Of datasets by name those that are no coordinates, or else all."""
    arrays = {name: file[name] for name in names}
    return data_among({name: (dims_of(one), attributes_of(h5py, one)) for name, one in arrays.items()})


def dims_of(array: Any) -> tuple[str, ...] | None:
    """The names of an array's dimensions; one that is a scale lies along itself."""
    if array.ndim == 1 and array.is_scale:
        return (_name(array),)
    if any(len(dim) == 0 for dim in array.dims):
        return None
    names = tuple(_name(dim[0]) for dim in array.dims)
    return names if len(set(names)) == len(names) else None


def attributes_of(h5py: Any, item: Any) -> dict[str, Any]:
    """The attributes of a dataset or group that are text or few numbers, as plain values."""
    found: dict[str, Any] = {}
    for name in itertools.islice(item.attrs, MOST_ATTRIBUTES):
        inner = name in INTERNAL or name.startswith(("_Netcdf4", "_NC", "_nc3"))
        if not inner and h5py.h5a.open(item.id, name.encode()).get_storage_size() <= MOST_ATTRIBUTE:
            found[name] = _plain(item.attrs[name])
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        parts = [_plain(part) for part in value.reshape(-1)]
        return parts[0] if len(parts) == 1 else None if None in parts else parts
    if isinstance(value, np.number):
        return value.item() if value.dtype.kind in "iuf" else None
    return value if isinstance(value, str) else None


def _name(array: Any) -> str:
    return str(array.name).rpartition("/")[2].removeprefix(HIDDEN)


def _coordinate(h5py: Any, one: Any, dims: tuple[str, ...], reader: Reader) -> Coordinate | None:
    """The numbers of a dataset that lies along some of the dimensions, and is stored in this file."""
    own = dims_of(one)
    text = one.attrs.get("NAME", b"") if one.is_scale else b""
    empty = (text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")).startswith(ONLY_A_DIMENSION)
    few = one.dtype.kind in "iuf" and 0 < math.prod(one.shape) * one.dtype.itemsize <= MOST_COORDINATE
    if empty or not few or own is None or not set(own) <= set(dims):
        return None
    values = np.empty(one.shape, one.dtype.newbyteorder("="))
    reader(one)(tuple(slice(0, n) for n in one.shape), values)
    attributes = attributes_of(h5py, one)
    return Coordinate(_name(one), own, plain_json(attributes, ENCODING), unpacked_values(values, attributes))
