"""Points in files: those of each axis, or scattered ones.

    axes         arrays of one dimension: axis0, axis2, ... for these axes; other names, in order, for those of --axes
    scattered    one array (..., d), and `radius` beside it if the points are off the unit circle
    unit         turns, radians or field-of-view for real numbers, never guessed; complex numbers are on the z-plane

No file is read past its end, and no array without a valid header.
"""

import contextlib
import math
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from ..io import open_array
from ..io.flat import npy_header
from ..io.refusals import Refused, readable
from ..io.source import has_names
from ..layout.memory import check_held
from ..nufft.points import Scattered
from ..operators.points import Points
from .output import warn

UNITS = ("turns", "radians", "field-of-view", "z")
TURN, HALF = 1 + 1e-6, 0.5 + 1e-6


class Cloud(NamedTuple):
    """Scattered points as a file has them; `radius` broadcasts to the coordinates."""

    path: Path
    unit: str | None
    coords: np.ndarray
    radius: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.coords.shape[:-1]

    @property
    def dims(self) -> int:
        return int(self.coords.shape[-1])

    def at(self, sizes: Sequence[int]) -> Scattered:
        """The points of a spectrum of these sizes; refuses any that exceed one cycle."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its warning about turns is an error below
                if self.unit in (None, "z"):
                    return Scattered.z(self.coords)
                if self.unit == "radians":
                    points = Scattered.radians(self.coords, self.radius)
                else:
                    coords = self.coords if self.unit == "turns" else self.coords / np.array(sizes)
                    points = Scattered.turns(coords, self.radius)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path}: {error}") from None
        self._check_reach(points)
        return points

    def _check_reach(self, points: Scattered) -> None:
        """Refuses points beyond one turn; notes points in another unit within half a turn."""
        most, turns = float(np.abs(self.coords).max()), float(np.abs(points.in_turns).max())
        reach = f"{turns:.4g} turns" if self.unit == "turns" else f"{most:.4g} {self.unit}, {turns:.4g} turns"
        if turns > TURN:
            far = f"{self.path} reaches {reach}, and a spectrum repeats with every turn"
            raise ValueError(f"{far}: give another --points-unit, or points within one turn")
        later = jax.distributed.is_initialized() and jax.process_index() > 0  # in this order no device starts
        if self.unit != "turns" and most <= HALF and not later:
            warn(f"meshfft: note: {self.path} reaches only {reach}: are these turns?")


def order_of(arrays: Mapping[str, np.ndarray], path: Path) -> tuple[tuple[int, ...] | None, list[str]]:
    """Axes in the names, if they have any, and the names in order."""
    numbered = {name: re.fullmatch(r"(axis|arr_)(0|[1-9][0-9]{0,3})", name) for name in arrays}
    kinds = {match[1] if match else "" for match in numbered.values()}
    if "axis" in kinds and len(kinds) > 1:
        raise ValueError(f"{path} has arrays {', '.join(arrays)}: name all of them axis0, axis1, ..., or none")
    if kinds not in ({"axis"}, {"arr_"}):
        return None, list(arrays)
    numbers = {name: int(match[2]) for name, match in numbered.items() if match}
    names = sorted(numbers, key=numbers.__getitem__)
    return (tuple(numbers[name] for name in names) if kinds == {"axis"} else None), names


def points_of(values: np.ndarray, unit: str | None, what: str) -> Points:
    if unit == "field-of-view":
        raise ValueError(f"{what} has points of one axis: give them in turns or radians, not --points-unit {unit}")
    _check_unit(values, unit, what, " or z (of the z-plane)")
    try:
        if unit in ("turns", "radians"):
            return Points.turns(values) if unit == "turns" else Points.radians(values)
        return Points.z(values)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _check_unit(values: np.ndarray, unit: str | None, what: str, others: str) -> None:
    if values.dtype.kind == "c" and unit not in (None, "z"):
        raise ValueError(f"{what} is complex, --points-unit {unit} is for real numbers: leave it out for z")
    if values.dtype.kind != "c" and unit is None:
        choices = f"turns (cycles per sample), radians (per sample){others}"
        raise ValueError(f"{what} is real and no unit is given: give --points-unit {choices}")


def cloud_of(path: Path, unit: str | None, arrays: Mapping[str, np.ndarray]) -> Cloud:
    names = [name for name in arrays if name != "radius"]
    if len(names) != 1:
        has = f"{path} has arrays {', '.join(sorted(arrays))}"
        raise ValueError(f"{has}: give one array (..., d) of scattered points, and radius, or one (n,) for each axis")
    coords, radius = arrays[names[0]], arrays.get("radius")
    if coords.ndim < 2 or 0 in coords.shape:
        has = f"{path} has shape {coords.shape}"
        raise ValueError(f"{has}: give points (..., d), at least one, with a coordinate for each dimension")
    _check_unit(coords, unit, str(path), ", field-of-view (cycles per field of view) or z")
    if radius is not None and unit in (None, "z"):
        own = f"{path} has points of the z-plane, which have their radii"
        raise ValueError(f"{own}: leave out the array radius")
    return Cloud(path, unit, coords, radius)


def dataset_in(path: Path, given: str | None, usual: str) -> str | None:
    """The array to read: the given one, else one of the usual name, else the only one."""
    if given is None and has_names(path):
        with contextlib.suppress(ValueError), open_array(path, usual):
            return usual
    return given


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a .npz file by name; of other files the only one, or `traj`."""
    if path.suffix != ".npz":
        with open_array(path, dataset_in(path, None, "traj")) as source:
            check_held(math.prod(source.shape) * source.dtype.itemsize, str(path), "give fewer points")
            return {"": source[...]}
    with readable(path), zipfile.ZipFile(path) as archive:
        found = {one.filename.removesuffix(".npy"): _member(path, archive, one) for one in archive.infolist()}
        if len(found) < len(archive.infolist()):
            raise Refused(f"{path} holds several arrays of one name: name them axis0, axis1, ...")
        if not found:
            raise Refused(f"{path} holds no array: give one for each axis, as numpy.savez writes them")
        return found


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as file:
        shape, _, dtype, _ = npy_header(path, file, single=name == "radius")
        check_held(math.prod(shape) * dtype.itemsize, f"{path}, {name}", "give fewer points")
        file.seek(0)
        found: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        return found
