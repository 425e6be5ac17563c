"""What an array's dimensions mean, as xarray keeps it: names, coordinates and attributes, before and after a transform.

    positions   x0 + n dx       become       frequencies   k / (L dx),   in the order of the transform
    m           seconds since 2000-01-01     1/m           1/seconds

What does not lie along a transformed dimension stays as it is. Stored numbers are read by CF's conventions:

    value = stored * scale_factor + add_offset,   missing where stored = _FillValue

Invariant: a coordinate of positions is never left on a dimension of frequencies; where the spacing is not regular there
is none. Nothing that attributes say makes numbers up; where values are missing there is no transform.
"""

import base64
import contextlib
import dataclasses
import json
import math
import struct
from collections.abc import Iterable, Mapping

import numpy as np

from .grid import Box
from .record import LONGEST, SHORTEST, Dimension, Record, is_text
from .source import Coordinate, Labels, Refused, Source

BEFORE = "meshfft_before"  # the attribute of a coordinate of frequencies that has what is needed to go back
MOST_COORDINATE = 2**26  # bytes of a coordinate that is held in memory
MOST_ATTRIBUTE = 2**16
NEAR = 1e-3  # of a spacing: how far positions may lie from where they should
# The first frequency of a trigonometric transform, in units of their spacing; and which kind undoes which.
FIRST = {"dct-1": 0, "dct-2": 0, "dct-3": 0.5, "dct-4": 0.5, "dst-1": 1, "dst-2": 1, "dst-3": 0.5, "dst-4": 0.5}
UNDONE_BY = {"dct-2": "dct-3", "dct-3": "dct-2", "dst-2": "dst-3", "dst-3": "dst-2"}
NAMING = ("coordinates", "grid_mapping", "bounds", "ancillary_variables")  # attributes that name other arrays
PACKED = ("scale_factor", "add_offset")
MISSING = ("_FillValue", "missing_value")
UNSIGNED = "_Unsigned"
ENCODING = (  # says how numbers were stored, or what range they had
    *(*MISSING, *PACKED, UNSIGNED, *NAMING[:3], "dtype", "_ARRAY_DIMENSIONS"),
    *("valid_range", "valid_min", "valid_max", "actual_range", "cell_methods"),
)


def with_labels(source: Source, labels: Labels | None, stored: Mapping[str, object]) -> Source:
    """A source with its labels, the units and spacing that they give, and what its stored numbers stand for."""
    if labels is None or len(labels.dims) != source.ndim:
        return source
    own = {one.name: one for one in labels.coordinates if one.dims == (one.name,)}
    steps = [step_of(own[dim]) if dim in own else None for dim in labels.dims]
    units = tuple(_unit(own[dim]) if step else "" for dim, step in zip(labels.dims, steps, strict=True))
    spacing = tuple(abs(step) if step else 1.0 for step in steps)
    return _decoded(dataclasses.replace(source, labels=labels, units=units, spacing=spacing), stored)


def step_of(one: Coordinate) -> float | None:
    """The distance of successive values where they are regular, or in the order of frequencies; negative if falling."""
    if one.values is None or one.values.ndim != 1 or one.values.size < 2 or one.values.dtype.kind not in "iuf":
        return None
    plain = one.values.astype(float)
    if not np.isfinite(plain).all():
        return None
    for values in (plain, np.fft.fftshift(plain)):
        step = float((values[-1] - values[0]) / (len(values) - 1))
        off = np.abs(values - values[0] - step * np.arange(len(values)))
        if SHORTEST <= abs(step) <= LONGEST and off.max() <= NEAR * abs(step):
            return step
    return None


def labelled(record: Record, labels: Labels | None) -> Record:
    """The record of the transform of an array, with the labels that the result has."""
    if labels is None:
        return record
    pairs = zip(labels.dims, record.dimensions, strict=True)
    dimensions = tuple(Dimension(name, one.unit, one.spacing) for name, one in pairs)
    axes = {labels.dims[axis]: axis for axis in record.axes}
    kept = [one for one in labels.coordinates if not axes.keys() & {*one.dims, one.name}]
    own = [one for one in labels.coordinates if one.dims == (one.name,) and one.name in axes]
    transformed = [_transformed(one, record, axes[one.name]) for one in own]
    known = tuple(one for one in [*transformed, *kept] if one is not None)
    result = labels._replace(attributes=_without(labels.attributes, ENCODING), coordinates=known)
    return dataclasses.replace(record, dimensions=dimensions, labels=result)


def _transformed(one: Coordinate, record: Record, axis: int) -> Coordinate | None:
    """Frequencies for positions, or positions for frequencies."""
    n, (_, unit, spacing), before = record.out_shape[axis], record.dimensions[axis], _before(one)
    trig = record.kind in FIRST
    if before is not None and (record.inverse or trig):
        first, sign, positions = before
        return Coordinate(one.name, one.dims, positions, first + math.copysign(spacing, sign) * np.arange(n))
    step = step_of(one)
    if step is None or one.values is None:
        return None
    attributes: dict[str, object] = {"units": unit} if unit else {}
    if record.inverse and not trig:
        return Coordinate(one.name, one.dims, attributes, spacing * np.arange(n))
    positions = _without(one.attributes, (*ENCODING, BEFORE))
    then = {"first": float(one.values[0]), "spacing": step, "attributes": positions}
    attributes |= {"long_name": f"frequency along {one.name}", BEFORE: then}
    return Coordinate(one.name, one.dims, attributes, math.copysign(spacing, step) * _indices(record, axis, n))


def _indices(record: Record, axis: int, n: int) -> np.ndarray:
    """The frequencies in units of their spacing, in the order in which they are stored."""
    if record.kind in FIRST:
        kind = UNDONE_BY.get(record.kind, record.kind) if record.inverse else record.kind
        return FIRST[kind] + np.arange(n)
    half = (record.kind, record.inverse) in (("rfft", False), ("hfft", True)) and axis == record.axes[-1]
    return np.arange(n) if half else np.fft.fftfreq(n, 1 / n)


def _before(one: Coordinate) -> tuple[float, float, dict[str, object]] | None:
    """First position, spacing and attributes of the positions that these frequencies come from."""
    found = one.attributes.get(BEFORE)
    if isinstance(found, str):  # as HDF5 keeps it
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(found)
    match found:
        case {"first": int() | float() as first, "spacing": int() | float() as step, "attributes": dict(attributes)}:
            fits = abs(first) <= LONGEST and SHORTEST <= abs(step) <= LONGEST
            return (first, step, attributes) if fits else None
    return None


def _without(attributes: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    return {name: value for name, value in attributes.items() if name not in names}


def _unit(one: Coordinate) -> str:
    """Of times that are counted from some day, the unit of counting."""
    unit = str(one.attributes.get("units", "")).split(" since ")[0]
    return unit if is_text(unit) else ""


def words(value: object) -> list[str]:
    """The names in an attribute that lists some."""
    return value.split() if isinstance(value, str) and len(value) <= MOST_ATTRIBUTE else []


def data_among(arrays: Mapping[str, tuple[tuple[str, ...] | None, Mapping[str, object]]]) -> list[str]:
    """The names of those that are no coordinates of others, of names with their dimensions and attributes."""
    named = {word for _, attributes in arrays.values() for name in NAMING for word in words(attributes.get(name))}
    last = {name: name.rpartition("/")[2] for name in arrays}
    data = [name for name, (dims, _) in arrays.items() if dims not in ((last[name],), ()) and last[name] not in named]
    return sorted(data or arrays)


def plain_json(attributes: Mapping[str, object], without: Iterable[str] = ()) -> dict[str, object]:
    """Attributes that any reader of JSON takes, and no large ones."""
    return {name: value for name, value in attributes.items() if name not in without and _is_plain(value)}


def _is_plain(value: object) -> bool:
    try:
        return len(json.dumps(value, allow_nan=False)) <= MOST_ATTRIBUTE
    except (TypeError, ValueError, RecursionError):
        return False


def coordinate_of(name: str, dims: tuple[str, ...], attributes: Mapping[str, object], stored: np.ndarray) -> Coordinate:
    """A coordinate of what stored numbers stand for, not a number where they are missing."""
    (scale, offset), values = _packing(attributes), stored.view(_signed_as_marked(stored.dtype, attributes))
    missing = np.isin(values, _fills(attributes))
    values = values if (scale, offset) == (1, 0) else values * scale + offset
    values = np.where(missing, np.nan, values) if missing.any() else values
    return Coordinate(name, dims, plain_json(attributes, ENCODING), values)


def _decoded(source: Source, attributes: Mapping[str, object]) -> Source:
    """The array of what the stored numbers of a source stand for; xarray gives them the same dtype."""
    (scale, offset), fills, stored = _packing(attributes), _fills(attributes), source.dtype
    packed, actual = (scale, offset) != (1, 0), _signed_as_marked(stored, attributes)
    if not packed and not fills and actual == stored:
        return source
    short = stored.kind == "f" or (stored.kind in "iu" and stored.itemsize <= 2 and offset == 0)
    real = np.dtype("f4" if short and stored.itemsize <= 4 else "f8")
    dtype = actual if not packed or stored.kind == "c" else real

    def read(box: Box, out: np.ndarray) -> None:
        raw = np.empty(out.shape, stored)
        source.read(box, raw)
        values = raw.view(actual)
        if any(((raw == fill) | (values == fill)).any() for fill in fills):
            marks = ", ".join(map(str, fills))
            raise Refused(
                f"{source.path} has missing values ({marks}), of which there is no transform: fill them first"
            )
        out[...] = values.astype(dtype) * dtype.type(scale) + dtype.type(offset) if packed else values

    return dataclasses.replace(source, dtype=dtype, read=read)


def _packing(attributes: Mapping[str, object]) -> tuple[float, float]:
    """Scale and offset; one that is no number must not be passed over."""
    found = []
    for name, default in zip(PACKED, (1.0, 0.0), strict=True):
        given = attributes.get(name)
        value = default if given is None else given
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        number = _number(value)
        if number is None:
            raise ValueError(f"its {name} is {str(value)[:40]}, which is no number")
        found.append(number)
    return found[0], found[1]


def _signed_as_marked(stored: np.dtype, attributes: Mapping[str, object]) -> np.dtype:
    """The type of integers that are stored as others of their size, as formats do that have one of both only."""
    kind = {"true": "u", "false": "i"}.get(str(attributes.get(UNSIGNED)).lower(), stored.kind)
    return np.dtype(f"{kind}{stored.itemsize}") if stored.kind in "iu" else stored


def _fills(attributes: Mapping[str, object]) -> list[float]:
    """The numbers that mark missing values: an array may have several."""
    given = [attributes.get(name) for name in MISSING]
    found = [_number(one) for value in given for one in (value if isinstance(value, list) else [value])]
    return [fill for fill in dict.fromkeys(found) if fill is not None]


def _number(value: object) -> float | None:
    """A finite number; in Zarr of format 3 xarray keeps some as the bytes of one, in base64."""
    if isinstance(value, str):
        try:
            value = struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        except (ValueError, struct.error):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None
