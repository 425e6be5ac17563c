"""CF's conventions, as xarray reads them: which arrays of a file are coordinates, and what stored numbers stand for.

    value = stored * scale_factor + add_offset,   missing where stored = _FillValue

Invariant: nothing that attributes say makes numbers up; where values are missing there is no transform.
"""

import base64
import dataclasses
import json
import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .grid import Box
from .source import Refused, Source

NAMING = ("coordinates", "grid_mapping", "bounds", "ancillary_variables")  # attributes that name other arrays
MOST_ATTRIBUTE = 2**16
PACKED = ("scale_factor", "add_offset")
UNSIGNED = "_Unsigned"
MISSING = ("_FillValue", "missing_value")


def named_in(attributes: Mapping[str, Any]) -> set[str]:
    """The arrays that an array names as its coordinates, or otherwise as no data of their own."""
    return {word for name in NAMING for word in words(attributes.get(name))}


def words(value: Any) -> list[str]:
    """The names in an attribute that lists some."""
    return value.split() if isinstance(value, str) and len(value) <= MOST_ATTRIBUTE else []


def data_among(arrays: Mapping[str, tuple[tuple[str, ...] | None, Mapping[str, Any]]]) -> list[str]:
    """The names of those that are no coordinates of others, of names with their dimensions and attributes."""
    others = {word for _, attributes in arrays.values() for word in named_in(attributes)}
    last = {name: name.rpartition("/")[2] for name in arrays}
    data = [name for name, (dims, _) in arrays.items() if dims not in ((last[name],), ()) and last[name] not in others]
    return sorted(data or arrays)


def plain_json(attributes: Mapping[str, Any], without: Iterable[str] = ()) -> dict[str, Any]:
    """Attributes that any reader of JSON takes, and no large ones."""
    return {name: value for name, value in attributes.items() if name not in without and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    try:
        return len(json.dumps(value, allow_nan=False)) <= MOST_ATTRIBUTE
    except (TypeError, ValueError, RecursionError):
        return False


def unpacked_values(values: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """What stored numbers stand for."""
    scale, offset = _packing(attributes)
    values = values.view(_meant(values.dtype, attributes))
    return values if (scale, offset) == (1, 0) else values * scale + offset


def decoded(source: Source, attributes: Mapping[str, Any]) -> Source:
    """The array of what the stored numbers of a source stand for; xarray gives them the same dtype."""
    (scale, offset), fills = _packing(attributes), _fills(attributes)
    packed, stored = (scale, offset) != (1, 0), source.dtype
    meant = _meant(stored, attributes)
    if not packed and not fills and meant == stored:
        return source
    short = stored.kind == "f" or (stored.kind in "iu" and stored.itemsize <= 2 and offset == 0)
    real = np.dtype("f4" if short and stored.itemsize <= 4 else "f8")
    dtype = meant if not packed or stored.kind == "c" else real
    marks = ", ".join(map(str, fills))
    missing = f"{source.path} has missing values ({marks}), of which there is no transform: fill them first"

    def read(box: Box, out: np.ndarray) -> None:
        found = np.empty(out.shape, stored)
        source.read(box, found)
        again = found.view(meant)
        if any(bool(((found == fill) | (again == fill)).any()) for fill in fills):
            raise Refused(missing)
        out[...] = again.astype(dtype) * dtype.type(scale) + dtype.type(offset) if packed else again

    return dataclasses.replace(source, dtype=dtype, read=read)


def _packing(attributes: Mapping[str, Any]) -> tuple[float, float]:
    """Scale and offset."""
    scale, offset = (_single(name, attributes.get(name)) for name in PACKED)
    return 1 if scale is None else scale, 0 if offset is None else offset


def _single(name: str, value: Any) -> float | None:
    """The number of an attribute, None where there is none; what is no number must not be passed over."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    number = _number(value)
    if value is not None and number is None:
        raise ValueError(f"its {name} is {str(value)[:40]}, which is no number")
    return number


def _meant(stored: np.dtype[Any], attributes: Mapping[str, Any]) -> np.dtype[Any]:
    """The type of integers that are stored as others of their size, as formats do that have one of both only."""
    kind = {"true": "u", "false": "i"}.get(str(attributes.get(UNSIGNED)).lower(), stored.kind)
    return np.dtype(f"{kind}{stored.itemsize}") if stored.kind in "iu" else stored


def _fills(attributes: Mapping[str, Any]) -> list[float]:
    """The numbers that mark missing values: an array may have several."""
    given = [attributes.get(name) for name in MISSING]
    found = [_number(one) for value in given for one in (value if isinstance(value, list) else [value])]
    return [fill for fill in dict.fromkeys(found) if fill is not None]


def _number(value: Any) -> float | None:
    """A finite number; in Zarr of format 3 xarray keeps some as the bytes of one, in base64."""
    if isinstance(value, str):
        try:
            value = struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        except (ValueError, struct.error):
            return None
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return value if real and math.isfinite(value) else None
