"""Names, coordinates and attributes of an array's dimensions, as in xarray, before and after a transform.

    positions  x0 + n dx,  n = 0 ... L - 1       become   frequencies  k / (L dx),  in the order of the transform
    units      m, seconds since 2000-01-01       become   1/m, 1/seconds

Stored numbers follow CF's conventions:  value = stored * scale_factor + add_offset,  missing if stored = _FillValue.
Invariant: a dimension of frequencies never has a coordinate of positions, and missing values are refused.
"""

import base64
import contextlib
import dataclasses
import difflib
import json
import math
import shlex
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .grid import Box
from .record import KEY, LONGEST, SHORTEST, Dimension, Record, conformed, is_text, recorded
from .refusals import Refused
from .source import Coordinate, Labels, Source

BEFORE = "meshfft_before"  # attribute of a coordinate of frequencies: data for the inverse
MOST_COORDINATE = 2**26  # bytes held in memory
MOST_ATTRIBUTE = 2**16
NEAR = 1e-3  # deviation of positions, relative to the spacing
ROUNDED = 1e-9  # of a spacing that went through its frequencies
# First frequency of a trigonometric transform, in units of the spacing, and its inverse kind.
FIRST = {"dct-1": 0, "dct-2": 0, "dct-3": 0.5, "dct-4": 0.5, "dst-1": 1, "dst-2": 1, "dst-3": 0.5, "dst-4": 0.5}
UNDONE_BY = {"dct-2": "dct-3", "dct-3": "dct-2", "dst-2": "dst-3", "dst-3": "dst-2"}
NAMING = ("coordinates", "grid_mapping", "bounds", "ancillary_variables")  # attributes that name other arrays
PACKED = ("scale_factor", "add_offset")
MISSING = ("_FillValue", "missing_value")
UNSIGNED = "_Unsigned"
Described = tuple[tuple[str, ...] | None, Mapping[str, object]]  # names of dimensions, attributes
ENCODING = (  # attributes of the storage or the range of numbers
    *(*MISSING, *PACKED, UNSIGNED, *NAMING[:3], "dtype", "_ARRAY_DIMENSIONS"),
    *("valid_range", "valid_min", "valid_max", "actual_range", "cell_methods"),
)


def described(source: Source, labels: Labels | None, attributes: Mapping[str, object]) -> Source:
    """A source with its labels, and the record in its attributes; without one, decoded by CF's conventions."""
    found = recorded(source, attributes.get(KEY))
    if labels is None or len(labels.dims) != source.ndim:
        return found
    if found.record is not None:
        return dataclasses.replace(found, labels=labels)
    own = {one.name: one for one in labels.coordinates if one.dims == (one.name,)}
    steps = [step_of(own[dim]) if dim in own else None for dim in labels.dims]
    units = tuple(_unit(own[dim]) if step else "" for dim, step in zip(labels.dims, steps, strict=True))
    spacing = tuple(abs(step) if step else 1.0 for step in steps)
    return _decoded(dataclasses.replace(source, labels=labels, units=units, spacing=spacing), attributes)


def step_of(one: Coordinate) -> float | None:
    """Spacing of regular values, also in FFT order; negative if falling, None if irregular."""
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


def left_out(labels: Labels | None, record: Record | None) -> list[str]:
    """The coordinates of positions that a result has lost."""
    if labels is None or record is None or record.labels is None:
        return []
    kept = {one.name for one in record.labels.coordinates}
    return [one.name for one in labels.coordinates if one.name not in kept]


def _transformed(one: Coordinate, record: Record, axis: int) -> Coordinate | None:
    n, (_, unit, spacing), before = record.out_shape[axis], record.dimensions[axis], _before(one)
    trig = record.kind in FIRST
    if before is not None and (record.inverse or trig):
        first, then, positions = before
        same = math.isclose(abs(then), spacing, rel_tol=ROUNDED)
        rising = (then if same else math.copysign(spacing, then)) * np.arange(n)
        return Coordinate(one.name, one.dims, positions, first + rising)
    step = step_of(one)
    if step is None or one.values is None:
        return None
    attributes: dict[str, object] = {"units": unit} if unit else {}
    if record.inverse and not trig:
        return Coordinate(one.name, one.dims, attributes, spacing * np.arange(n))
    positions = _without(one.attributes, (*ENCODING, BEFORE))
    kept = {"first": float(one.values[0]), "spacing": _exact(one.values, step), "attributes": positions}
    attributes |= {"long_name": f"frequency along {one.name}", BEFORE: kept}
    return Coordinate(one.name, one.dims, attributes, math.copysign(spacing, step) * _indices(record, axis, n))


def _exact(values: np.ndarray, step: float) -> float:
    """The spacing that makes all positions to the last bit, if one does: xarray joins arrays by equal positions."""
    near = (step, float(values[1] - values[0]), float(f"{step:.12g}"))
    return next((one for one in near if (values[0] + one * np.arange(len(values)) == values).all()), step)


def _indices(record: Record, axis: int, n: int) -> np.ndarray:
    if record.kind in FIRST:
        kind = UNDONE_BY.get(record.kind, record.kind) if record.inverse else record.kind
        return FIRST[kind] + np.arange(n)
    half = (record.kind, record.inverse) in (("rfft", False), ("hfft", True)) and axis == record.axes[-1]
    return np.arange(n) if half else np.fft.fftfreq(n, 1 / n)


def _before(one: Coordinate) -> tuple[float, float, dict[str, object]] | None:
    found = one.attributes.get(BEFORE)
    if isinstance(found, str):  # as stored by HDF5
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
    unit = str(one.attributes.get("units", "")).split(" since ")[0]
    return unit if is_text(unit) else ""


def words(value: object) -> list[str]:
    return value.split() if isinstance(value, str) and len(value) <= MOST_ATTRIBUTE else []


def dims_of(names: object) -> tuple[str, ...] | None:
    """Names of dimensions; None unless all are given and different."""
    try:
        found: tuple[str, ...] = conformed(tuple[str, ...], names)
    except ValueError:
        return None
    return found if all(found) and len(set(found)) == len(found) else None


def choose(path: Path, arrays: Mapping[str, Described], dataset: str | None) -> str:
    """The named array, or the only one that is no coordinate of another."""
    if not arrays:
        raise Refused(f"{path} has no dataset of its own: give a file that has one")
    names, wanted = _data_among(arrays), (dataset or "").strip("/")
    if dataset is not None and wanted in arrays:
        return wanted
    if dataset is None and len(names) == 1:
        return names[0]
    listed = ", ".join(map(_short, names[:20])) + ", ..." * (len(names) > 20)
    near = difflib.get_close_matches(wanted, names[:1000], 1) or names
    one = f"name one of them, as dataset={shlex.quote(_short(near[0]))}"
    if dataset is None:
        raise Refused(f"{path} has {len(names)} datasets ({listed}): {one}")
    raise Refused(f"{path} has no dataset {_short(dataset)!r}, it has {listed}: {one}")


def _data_among(arrays: Mapping[str, Described]) -> list[str]:
    named = {word for _, attributes in arrays.values() for name in NAMING for word in words(attributes.get(name))}
    last = {name: name.rpartition("/")[2] for name in arrays}
    data = [name for name, (dims, _) in arrays.items() if dims not in ((last[name],), ()) and last[name] not in named]
    return sorted(data or arrays)


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:28]}...{name[-28:]}"


def plain_json(attributes: Mapping[str, object], without: Iterable[str] = (KEY,)) -> dict[str, object]:
    return {name: value for name, value in attributes.items() if name not in without and _is_plain(value)}


def _is_plain(value: object) -> bool:
    try:
        return len(json.dumps(value, allow_nan=False)) <= MOST_ATTRIBUTE
    except (TypeError, ValueError, RecursionError):
        return False


class _Packing(NamedTuple):
    """xarray decodes the same way, but needs pandas."""

    meant: np.dtype
    scale: float
    offset: float
    marks: tuple[float, ...]

    @property
    def scaled(self) -> bool:
        return (self.scale, self.offset) != (1, 0)

    def missing(self, stored: np.ndarray) -> np.ndarray:
        found = np.zeros(stored.shape, bool)
        for mark in self.marks:
            found |= np.isnan(stored) if math.isnan(mark) else (stored == mark) | (stored.view(self.meant) == mark)
        return found

    def unpacked(self, stored: np.ndarray, dtype: np.dtype) -> np.ndarray:
        values = stored.view(self.meant)
        return values.astype(dtype) * dtype.type(self.scale) + dtype.type(self.offset) if self.scaled else values


def coordinate_of(name: str, dims: tuple[str, ...], attributes: Mapping[str, object], stored: np.ndarray) -> Coordinate:
    packing = _packing(stored.dtype, attributes)
    wide = stored.dtype if stored.dtype.kind == "c" else np.dtype("f8")
    missing, values = packing.missing(stored), packing.unpacked(stored, wide)
    values = np.where(missing, np.nan, values) if missing.any() else values
    return Coordinate(name, dims, plain_json(attributes, ENCODING), values)


def _decoded(source: Source, attributes: Mapping[str, object]) -> Source:
    stored, packing = source.dtype, _packing(source.dtype, attributes)
    short = stored.kind == "f" or (stored.kind in "iu" and stored.itemsize <= 2 and packing.offset == 0)
    real = np.dtype("f4" if short and stored.itemsize <= 4 else "f8")
    dtype = real if packing.scaled and stored.kind != "c" else packing.meant
    if not packing.scaled and not packing.marks and dtype == stored:
        return source

    def read(box: Box, out: np.ndarray) -> None:
        raw = np.empty(out.shape, stored)
        source.read(box, raw)
        if packing.missing(raw).any():
            has = f"{source.path} has missing values ({', '.join(map(str, packing.marks))})"
            raise Refused(f"{has}, of which there is no transform: fill them first")
        out[...] = packing.unpacked(raw, dtype)

    return dataclasses.replace(source, dtype=dtype, read=read)


def _packing(stored: np.dtype, attributes: Mapping[str, object]) -> _Packing:
    sign = {"true": "u", "false": "i"}.get(str(attributes.get(UNSIGNED)).lower(), stored.kind)
    meant = np.dtype(f"{sign}{stored.itemsize}") if stored.kind in "iu" else stored
    scale, offset = (_factor(attributes, name, default) for name, default in zip(PACKED, (1.0, 0.0), strict=True))
    given = [attributes.get(name) for name in MISSING]
    marks = [_number(one) for value in given for one in (value if isinstance(value, list) else [value])]
    known = (mark for mark in dict.fromkeys(marks) if mark is not None)
    return _Packing(meant, scale, offset, tuple(mark for mark in known if not math.isnan(mark) or stored.kind in "fc"))


def _factor(attributes: Mapping[str, object], name: str, default: float) -> float:
    given = attributes.get(name)
    value = default if given is None else given
    number = _number(value[0] if isinstance(value, list) and len(value) == 1 else value)
    if number is None or math.isnan(number):
        raise ValueError(f"its {name} is {str(value)[:40]}, which is no number")
    return number


def _number(value: object) -> float | None:
    """A finite number or NaN, else None. Zarr format 2 has the word "NaN"; in format 3 xarray stores some as base64."""
    if value == "NaN":
        return math.nan
    if isinstance(value, str):
        try:
            value = struct.unpack("<d", base64.b64decode(value, validate=True))[0]
        except (ValueError, struct.error):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if math.isinf(value) else value
