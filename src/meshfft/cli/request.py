"""Inputs of `transform` and `plan`: points of axes in a NumPy file, and the record of a file.

    axes    the numbers in the names axis0, axis2, ...; for other names, arr_0, arr_1, ... in order, those of --axes
    unit    turns or radians for real numbers, never guessed; complex numbers are on the z-plane

The inverse needs no flags if meshfft wrote the file. No file is read past its end, and no array without a valid header.
"""

import hashlib
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from ..io import Record, Source, inverse_options, open_array
from ..io.flat import npy_header
from ..io.refusals import Refused, readable
from ..layout.memory import check_held
from ..operators.points import Points
from ..operators.transform import dims_of
from ..out_of_core import recorded_devices
from .cluster import MOST_VIRTUAL, deciding
from .flags import (
    Files,
    Keywords,
    PointsFlag,
    PointsUnitFlag,
    check_choice,
    option,
    read_mesh,
    read_sizes,
    read_spec,
    switch,
)

KNOWN = ("kind", "axes", "s", "norm", "order", "precision")  # options that the inverse takes from the file
FREE = ("source", "target", "files", "given", "sampling")  # compared otherwise, or without effect on the result
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
    """Points of a file, of axes if it names them, and whether the array is to be found from samples there."""

    path: Path
    axes: tuple[int, ...] | None
    points: tuple[Points, ...]
    digest: str
    solve: bool
    unknowns: tuple[int, ...] | None
    weights: Keywords

    def deciding(self) -> Keywords:
        """What decides the result, by the names of the flags."""
        return {"points": self.digest, "solve": self.solve, "unknowns": self.unknowns, **self.weights}


class SamplingFlags(NamedTuple):
    points: PointsFlag = None
    points_unit: PointsUnitFlag = None
    solve: Annotated[bool, switch("--solve", "Find the array whose samples are IN.")] = False
    unknowns: Annotated[str | None, option("N,N,...", "Its sizes, if not those of IN.")] = None
    tikhonov: Annotated[float | None, option("X", "Keep it small by this weight: 1e-3.")] = None
    truncation: Annotated[float | None, option("X", "Drop smaller singular values: 1e-3.")] = None


def read_sampling(flags: SamplingFlags) -> Sampling | None:
    """The values of --points and the flags beside it; None without it."""
    path, unit, solve, unknowns, *_ = flags
    weights = {"tikhonov": flags.tikhonov, "truncation": flags.truncation}
    named: Keywords = {"points-unit": unit, "solve": solve or None, "unknowns": unknowns, **weights}
    for name, value in named.items():
        other, there = ("points", path is not None) if name in ("points-unit", "solve") else ("solve", solve)
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
    for name, value in given.items() if sampling else ():
        if value not in (None, False, "fft", "natural") and (name != "order" or (sampling and sampling.solve)):
            with_which = "--solve" if name == "order" else "--points"
            raise ValueError(f"{with_which} and --{name} exclude each other: {EXCLUDED[name]}")


def sampled_options(sampling: Sampling, given: tuple[int, ...], axes: tuple[int, ...] | None) -> Keywords:
    """Shape, axes and points of the plan for an array of a given shape, or for one that is found from such samples."""
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
    """The bytes of the points of one axis; refuses more dimensions, and more than memory holds."""
    if len(shape) != 1:
        raise Refused(f"{what} has shape {shape}: give the points of each axis as an array of one dimension")
    nbytes = math.prod(shape) * dtype.itemsize
    check_held(nbytes, what, "give fewer points")
    return nbytes


class Flags(NamedTuple):
    """The flags of `meshfft transform`, parsed; `given` has those of `meshfft.plan`, None if they were not given."""

    source: Path
    target: Path
    files: Files
    mesh: str | None
    spec: str | None
    inverse: bool
    given: Keywords
    plot: Path | None
    memory: int | None
    resume: bool
    sampling: Sampling | None = None

    def deciding(self) -> dict[str, str]:
        """What decides the result, by name; the input may be a copy in each process, and `identity` compares it."""
        values = {name: value for name, value in self._asdict().items() if name not in FREE} | self.given
        values |= self.sampling.deciding() if self.sampling else {"points": None}
        return deciding(self.target, self.files, values)

    def plan_options(self, array: Source) -> Keywords:
        """The arguments of `meshfft.plan` but for the mesh, from the flags or from the record in the file."""
        record = _record(array) if self.inverse else None
        recorded = {} if record is None or record.inverse else inverse_options(record)
        given = {name: value for name, value in self.given.items() if value is not None}
        other = given.keys() & {"kind", "axes"}  # only the scale of another transform is known
        known = {name: recorded[name] for name in (("norm",) if other else KNOWN) if name in recorded}
        if recorded and not (self.mesh or self.spec):
            spec = recorded["spec"]
        else:
            spec = read_spec(self.spec, self.mesh_sizes(array), array.ndim)
        shape = {"shape": array.shape}
        points = sampled_options(self.sampling, array.shape, self.given["axes"]) if self.sampling else shape
        return {**known, **given, "inverse": self.inverse, "dtype": array.dtype, "spec": spec, **points}

    def mesh_sizes(self, array: Source) -> dict[str, int]:
        if self.mesh is not None:
            return read_mesh(self.mesh)
        record = _record(array)
        if record is None:
            devices = recorded_devices(self.target) if self.resume else None
            had = f"give that of the unfinished run, of {devices} devices a process, as --mesh {devices}"
            raise ValueError(
                f"{self.source} has no record of a mesh: {had if devices else 'give one, as --mesh 2,2,2'}"
            )
        count = math.prod(record.mesh.values())
        if count > MOST_VIRTUAL:
            raise ValueError(f"{self.source} was made on {count} devices: give a mesh of those here, as --mesh 2,2,2")
        return dict(record.mesh)

    def device_count(self) -> int:
        if self.mesh is not None:
            return math.prod(read_mesh(self.mesh).values())
        with open_array(self.source, self.files.dataset) as array:
            return math.prod(self.mesh_sizes(array).values())


def _record(array: Source) -> Record | None:
    return None if array.record is None else Record.from_dict(array.record, str(array.path))
