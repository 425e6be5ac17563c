"""`--points`: where axes are sampled, an array of points an axis in a file of NumPy's, read before any work.

    axes    of arrays axis0, axis2, ... those of their names; of others, arr_0, arr_1, ... by number, the ones of --axes
    unit    turns or radians of real numbers, z of the z-plane; of real numbers never guessed

Invariant: no more is read than the file has, and no array whose header does not say what it is.
"""

import hashlib
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..io.formats.numpy_nifti import npy_header
from ..io.formats.source import Refused, readable
from ..io.reading import open_array
from ..layout.memory import check_held
from ..operators.points import Points
from ..operators.transform import dims_of
from ..plans.inverse_solve import Solution
from .terminal.flags import Keywords, check_choice, read_sizes

UNITS = ("turns", "radians", "z")
EXCLUDED = {
    "inverse": "leave it out: what samples are of is found by meshfft transform --solve",
    "order": "leave it out: the result is laid out as the samples are",
    "kind": "leave it out: points are those of complex transforms",
    "plot": "leave it out: it draws uniform frequencies",
    "memory": "leave it out: passes over the disk have uniform samples",
    "resume": "leave it out: passes over the disk have uniform samples",
}


class Sampling(NamedTuple):
    """Points that were read, and whether the array is sampled at them or was; `axes` where the file names them."""

    path: Path
    axes: tuple[int, ...] | None
    points: tuple[Points, ...]
    digest: str
    solve: bool
    unknowns: tuple[int, ...] | None
    weights: Mapping[str, Any]

    def deciding(self) -> Keywords:
        """What decides the result, by the names of the flags."""
        return {"points": self.digest, "solve": self.solve, "unknowns": self.unknowns, **self.weights}


def read_sampling(
    path: Path | None,
    unit: str | None,
    solve: bool = False,
    unknowns: str | None = None,
    weights: Mapping[str, Any] = MappingProxyType({}),
) -> Sampling | None:
    """What --points and the flags beside it say; None where it is not given."""
    needs: list[tuple[str, object, str, bool]] = [("points-unit", unit, "points", path is not None)]
    needs += [("solve", solve or None, "points", path is not None)]
    needs += [(name, value, "solve", solve) for name, value in {"unknowns": unknowns, **weights}.items()]
    for name, value, other, there in needs:
        if value is not None and not there:
            raise ValueError(f"--{name} goes with --{other}: give that too, or leave out --{name}")
    if path is None:
        return None
    if unit is not None:
        check_choice(unit, UNITS, "--points-unit")
    arrays = _arrays(path)
    axes, names = _order(arrays, path)
    points = tuple(_points(arrays[name], unit, f"{path}, {name}" if name else str(path)) for name in names)
    numbers = b"".join(f"{name} {arrays[name].dtype} {unit} ".encode() + arrays[name].tobytes() for name in names)
    sizes = None if unknowns is None else read_sizes(unknowns, "--unknowns", "64,64")
    return Sampling(path, axes, points, hashlib.sha256(numbers).hexdigest()[:16], solve, sizes, weights)


def check_alone(sampling: Sampling | None, **given: object) -> None:
    """Refuses other flags that points exclude, by name and value."""
    for name, value in given.items() if sampling else ():
        if value not in (None, False, "fft", "natural") and (name != "order" or (sampling and sampling.solve)):
            with_which = "--solve" if name == "order" else "--points"
            raise ValueError(f"{with_which} and --{name} exclude each other: {EXCLUDED[name]}")


def sampled_options(sampling: Sampling, given: tuple[int, ...], axes: tuple[int, ...] | None) -> Keywords:
    """Shape, axes and points of the plan of an array, or where what is given has its samples, of what is solved for."""
    path, points, ndim = sampling.path, sampling.points, len(given)
    named = sampling.axes if axes is None else axes
    dims = dims_of(ndim, range(ndim) if named is None else named)
    if sampling.axes is not None:
        own = dict(zip(dims_of(ndim, sampling.axes), points, strict=True))
        if set(own) != set(dims):
            has = ",".join(map(str, sorted(own)))
            raise ValueError(f"{path} has points of axes {has}: leave out --axes, or give the same, as --axes {has}")
        points = tuple(own[dim] for dim in dims)
    if len(points) != len(dims):
        remedy = "name the axes with --axes, or the arrays axis0, axis1, ..."
        raise ValueError(f"{path} has points for {len(points)} axes, but {len(dims)} would be transformed: {remedy}")
    shape = list(given)
    if sampling.solve:
        _check_samples(sampling, given, dims, points)
        for dim, size in zip(dims, sampling.unknowns or (), strict=False):
            shape[dim] = size
    return {"shape": tuple(shape), "axes": dims, "points": points}


def solution_words(found: Solution) -> str:
    """One line on a solution."""
    return (
        f"Solved by {', '.join(found.methods)}: condition {found.condition:.3g}, residual {float(found.residual):.2g}."
    )


def solution_facts(found: Solution) -> Keywords:
    """The same as plain values, for JSON, with the condition of every axis."""
    residual, each = (
        _finite(float(found.residual)),
        {"conditions": list(found.conditions), "methods": list(found.methods)},
    )
    return {"solution": {"residual": residual, "condition": found.condition, **each}}


def _finite(value: float) -> float | None:
    """JSON has no other numbers."""
    return value if math.isfinite(value) else None


def _check_samples(
    sampling: Sampling, given: tuple[int, ...], dims: tuple[int, ...], points: tuple[Points, ...]
) -> None:
    for dim, one in zip(dims, points, strict=True):
        if given[dim] != one.size:
            has = f"the array has {given[dim]} samples along axis {dim}, {sampling.path} {one.size} points"
            raise ValueError(f"{has}: give one point for each sample")
    if sampling.unknowns is not None and len(sampling.unknowns) != len(dims):
        many = f"--unknowns has {len(sampling.unknowns)} sizes for {len(dims)} axes"
        raise ValueError(f"{many}: give one for each, as {','.join(str(given[dim]) for dim in dims)}")


def _order(arrays: Mapping[str, np.ndarray], path: Path) -> tuple[tuple[int, ...] | None, list[str]]:
    """The axes that the names tell, and the names in order."""
    numbered = {name: re.fullmatch(r"(axis|arr_)(0|[1-9][0-9]{0,3})", name) for name in arrays}
    kinds = {match[1] if match else "" for match in numbered.values()}
    if "axis" in kinds and len(kinds) > 1:
        raise ValueError(f"{path} has arrays {', '.join(arrays)}: name all of them axis0, axis1, ..., or none")
    if kinds not in ({"axis"}, {"arr_"}):
        return None, list(arrays)
    numbers = {name: int(match[2]) for name, match in numbered.items() if match}
    names = sorted(numbers, key=numbers.__getitem__)
    return (tuple(numbers[name] for name in names) if kinds == {"axis"} else None), names


def _points(values: np.ndarray, unit: str | None, what: str) -> Points:
    if values.dtype.kind == "c" and unit not in (None, "z"):
        raise ValueError(f"{what} is complex, --points-unit {unit} is for real numbers: leave it out for z")
    if values.dtype.kind != "c" and unit is None:
        choices = "turns (cycles per sample), radians (per sample) or z (of the z-plane)"
        raise ValueError(f"{what} is real and no unit is given: give --points-unit {choices}")
    try:
        if unit in ("turns", "radians"):
            return Points.turns(values) if unit == "turns" else Points.radians(values)
        return Points.z(values)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz by name, or the one of a .npy."""
    if path.suffix == ".npy":
        with open_array(path) as source:
            _check_line(str(path), source.shape, source.dtype)
            return {"": source[:]}
    if path.suffix != ".npz":
        raise ValueError(f"--points {path} is of no known kind: give a .npz with an array an axis, or a .npy for one")
    with readable(path), zipfile.ZipFile(path) as archive:
        found = {one.filename.removesuffix(".npy"): _member(path, archive, one) for one in archive.infolist()}
        if len(found) < len(archive.infolist()):
            raise Refused(f"{path} holds several arrays of one name: name them axis0, axis1, ...")
        if not found:
            raise Refused(f"{path} holds no array: give one for each axis, as numpy.savez writes them")
        return found


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        shape, _, dtype, _ = npy_header(path, file)
        nbytes = _check_line(f"{path}, {info.filename.removesuffix('.npy')}", shape, dtype)
        raw = file.read(nbytes)
    if len(raw) < nbytes:
        raise ValueError(f"{len(raw)} bytes of numbers for shape {shape}")
    return np.frombuffer(raw, dtype)


def _check_line(what: str, shape: tuple[int, ...], dtype: np.dtype) -> int:
    """The bytes of the points of one axis, refused where they are no line of numbers, or more than memory holds."""
    if len(shape) != 1:
        raise Refused(f"{what} has shape {shape}: give the points of each axis as an array of one dimension")
    nbytes = math.prod(shape) * dtype.itemsize
    check_held(nbytes, what, "give fewer points")
    return nbytes
