"""What an array's dimensions mean, as xarray keeps it: names, coordinates and attributes, before and after a transform.

    positions   x0 + n dx       become       frequencies   k / (L dx),   in the order of the transform
    m           seconds since 2000-01-01     1/m           1/seconds

What does not lie along a transformed dimension stays as it is. Invariant: a coordinate of positions is never left on a
dimension of frequencies; where the spacing is not regular there is none.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .record import LONGEST, SHORTEST, Dimension, Record, is_text

BEFORE = "meshfft_before"  # the attribute of a coordinate of frequencies that has what is needed to go back
MOST_COORDINATE = 2**26  # bytes of a coordinate that is held in memory
NEAR = 1e-3  # of a spacing: how far positions may lie from where they should
HALF = {("rfft", False), ("hfft", True)}  # of which the last axis has the first half of the spectrum
# The first frequency of a trigonometric transform, in units of their spacing; and which kind undoes which.
FIRST = {"dct-1": 0, "dct-2": 0, "dct-3": 0.5, "dct-4": 0.5, "dst-1": 1, "dst-2": 1, "dst-3": 0.5, "dst-4": 0.5}
TURNED = {"dct-2": "dct-3", "dct-3": "dct-2", "dst-2": "dst-3", "dst-3": "dst-2"}
ENCODING = (  # says how numbers were stored, or what range they had
    *("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "dtype", "_ARRAY_DIMENSIONS"),
    *("valid_range", "valid_min", "valid_max", "actual_range", "coordinates", "grid_mapping", "bounds", "cell_methods"),
)


class Coordinate(NamedTuple):
    """Values along some dimensions; or, unread, the folder of a Zarr array of format 3 that has them."""

    name: str
    dims: tuple[str, ...]
    attributes: Mapping[str, Any]
    values: np.ndarray | None = None
    folder: Path | None = None


class Labels(NamedTuple):
    """Of an array: its name, empty for one without; its dimensions and attributes; those of the dataset it is in."""

    name: str
    dims: tuple[str, ...]
    attributes: Mapping[str, Any] = {}
    coordinates: tuple[Coordinate, ...] = ()
    about: Mapping[str, Any] = {}


def scales_of(labels: Labels) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Unit of each dimension, empty where none is known, and the spacing of positions along it, 1.0 where it is not."""
    own = {one.name: one for one in labels.coordinates if one.dims == (one.name,)}
    steps = [step_of(own[dim]) if dim in own else None for dim in labels.dims]
    units = [_unit(own[dim]) if dim in own and step else "" for dim, step in zip(labels.dims, steps, strict=True)]
    return tuple(units), tuple(abs(step) if step else 1.0 for step in steps)


def step_of(one: Coordinate) -> float | None:
    """The distance of successive values where they are regular, or in the order of frequencies; negative if falling."""
    if one.values is None or one.values.ndim != 1 or one.values.size < 2 or one.values.dtype.kind not in "iuf":
        return None
    plain = one.values.astype(float)
    if not np.isfinite(plain).all():
        return None
    for values in (plain, np.fft.fftshift(plain)):
        step = float((values[-1] - values[0]) / (len(values) - 1))
        near = np.abs(values - values[0] - step * np.arange(len(values))) <= NEAR * abs(step)
        if SHORTEST <= abs(step) <= LONGEST and bool(near.all()):
            return step
    return None


def labelled(record: Record, labels: Labels | None) -> Record:
    """The record of the transform of an array, with the labels that the result has."""
    if labels is None:
        return record
    pairs = zip(labels.dims, record.dimensions, strict=True)
    dimensions = tuple(Dimension(name, one.unit, one.spacing) for name, one in pairs)
    return dataclasses.replace(record, dimensions=dimensions, labels=_transformed(labels, record))


def _transformed(labels: Labels, record: Record) -> Labels:
    axes = {labels.dims[axis]: axis for axis in record.axes}
    kept = [one for one in labels.coordinates if not axes.keys() & {*one.dims, one.name}]
    own = [one for one in labels.coordinates if one.dims == (one.name,) and one.name in axes]
    turned = [_turned(one, record, axes[one.name]) for one in own]
    attributes = {name: value for name, value in labels.attributes.items() if name not in ENCODING}
    known = tuple(one for one in [*turned, *kept] if one is not None)
    return labels._replace(attributes=attributes, coordinates=known)


def _turned(one: Coordinate, record: Record, axis: int) -> Coordinate | None:
    """Frequencies for positions, or positions for frequencies."""
    many, (_, unit, spacing), before = record.out_shape[axis], record.dimensions[axis], _before(one)
    trig = record.kind in FIRST
    if before is not None and (record.inverse or trig):
        first, sign, positions = before
        return Coordinate(one.name, one.dims, positions, first + math.copysign(spacing, sign) * np.arange(many))
    step = step_of(one)
    if step is None:
        return None
    attributes: dict[str, Any] = {"units": unit} if unit else {}
    if record.inverse and not trig:
        return Coordinate(one.name, one.dims, attributes, spacing * np.arange(many))
    first = float(one.values[0]) if one.values is not None else 0.0
    then = {"first": first, "spacing": step, "attributes": _plain(one)}
    attributes |= {"long_name": f"frequency along {one.name}", BEFORE: then}
    values = math.copysign(spacing, step) * _indices(record, axis, many)
    return Coordinate(one.name, one.dims, attributes, values)


def _indices(record: Record, axis: int, many: int) -> np.ndarray:
    """The frequencies in units of their spacing, in the order in which they are stored."""
    if record.kind in FIRST:
        kind = TURNED.get(record.kind, record.kind) if record.inverse else record.kind
        return FIRST[kind] + np.arange(many)
    if (record.kind, record.inverse) in HALF and axis == record.axes[-1]:
        return np.arange(many)
    return np.fft.fftfreq(many, 1 / many)


def _before(one: Coordinate) -> tuple[float, float, dict[str, Any]] | None:
    """First position, spacing and attributes of the positions that these frequencies come from."""
    saved = one.attributes.get(BEFORE)
    if not isinstance(saved, dict):
        return None
    first, step, attributes = saved.get("first"), saved.get("spacing"), saved.get("attributes")
    numbers = all(isinstance(n, int | float) and math.isfinite(n) for n in (first, step))
    right = numbers and bool(step) and isinstance(attributes, dict)
    return (float(first or 0), float(step or 1), dict(attributes or {})) if right else None


def _plain(one: Coordinate) -> dict[str, Any]:
    return {name: value for name, value in one.attributes.items() if name not in ENCODING and name != BEFORE}


def _unit(one: Coordinate) -> str:
    """Of times that are counted from some day, the unit of counting."""
    unit = str(one.attributes.get("units", "")).split(" since ")[0]
    return unit if is_text(unit) else ""
