"""Inputs of `transform` and `plan`: the points in a file, the plane they sample, and a file's record."""

import hashlib
import math
from pathlib import Path
from typing import Annotated, NamedTuple

from ..io import Record, Source, inverse_options, open_array
from ..operators.points import Points
from ..operators.transform import dims_of
from ..out_of_core import recorded_devices
from . import flags as read
from .cluster import MOST_VIRTUAL, deciding
from .points import UNITS, Cloud, cloud_of, order_of, points_of, read_arrays

KNOWN = ("kind", "axes", "s", "norm", "order", "precision")  # options that the inverse takes from the file
FREE = ("source", "target", "files", "given", "sampling")  # compared otherwise, or without effect

EXCLUDED = {
    "inverse": "leave it out: what samples are of is found by meshfft transform --solve",
    "order": "leave it out: the result is laid out as the samples are",
    "kind": "leave it out: points are those of complex transforms",
    "plot": "leave it out: it draws uniform frequencies",
    "memory": "leave it out: passes over the disk have uniform samples",
    "resume": "leave it out: passes over the disk have uniform samples",
}
OF_ONE = "These figures are of one transform, not of the solution, which may take many."
UNKNOWN = dict.fromkeys(("seconds", "seconds_by_resource", "error_expected"))  # of a solution


class Sampling(NamedTuple):
    """Points of a file, along axes or scattered; `solve`: find the array from samples there."""

    path: Path
    axes: tuple[int, ...] | None
    points: tuple[Points, ...] | Cloud
    digest: str
    solve: bool
    unknowns: tuple[int, ...] | None
    weights: read.Keywords

    def deciding(self) -> read.Keywords:
        return {"points": self.digest, "solve": self.solve, "unknowns": self.unknowns, **self.weights}


class SamplingFlags(NamedTuple):
    points: read.PointsFlag = None
    points_unit: read.PointsUnitFlag = None
    solve: Annotated[bool, read.switch("--solve", "Find the array whose samples are IN.")] = False
    unknowns: Annotated[str | None, read.option("N,N,...", "Its sizes, if not those of IN: 64,64.")] = None
    tikhonov: Annotated[float | None, read.option("X", "Keep it small by this weight: 1e-3.")] = None
    truncation: Annotated[float | None, read.option("X", "Drop smaller singular values: 1e-3.")] = None


def read_sampling(flags: SamplingFlags) -> Sampling | None:
    path, unit, solve, unknowns, *_ = flags
    weights = {"tikhonov": flags.tikhonov, "truncation": flags.truncation}
    named: read.Keywords = {"points-unit": unit, "solve": solve or None, "unknowns": unknowns, **weights}
    for name, value in named.items():
        other, there = ("points", path is not None) if name in ("points-unit", "solve") else ("solve", solve)
        if value is not None and not there:
            raise ValueError(f"--{name} goes with --{other}: give that too, or leave out --{name}")
    if path is None:
        return None
    read.check_choice(unit, UNITS, "--points-unit")
    arrays = read_arrays(path)
    points: tuple[Points, ...] | Cloud
    if "radius" in arrays or any(array.ndim != 1 for array in arrays.values()):
        axes, names, points = None, sorted(arrays), cloud_of(path, unit, arrays)
    else:
        axes, names = order_of(arrays, path)
        points = tuple(points_of(arrays[name], unit, f"{path}, {name}" if name else str(path)) for name in names)
    kinds = [f"{name} {arrays[name].shape} {arrays[name].dtype} {unit} ".encode() for name in names]
    numbers = b"".join(kind + arrays[name].tobytes() for kind, name in zip(kinds, names, strict=True))
    sizes = None if unknowns is None else read.read_sizes(unknowns, "--unknowns", "64,64")
    return Sampling(path, axes, points, hashlib.sha256(numbers).hexdigest()[:16], solve, sizes, weights)


def check_alone(sampling: Sampling | None, **given: object) -> None:
    for name, value in given.items() if sampling else ():
        if value not in (None, False, "fft", "natural") and (name != "order" or (sampling and sampling.solve)):
            with_which = "--solve" if name == "order" else "--points"
            raise ValueError(f"{with_which} and --{name} exclude each other: {EXCLUDED[name]}")


def sampled_options(sampling: Sampling, given: tuple[int, ...], axes: tuple[int, ...] | None) -> read.Keywords:
    """Shape, axes and points of the plan for an array of a given shape, or for one found from such samples."""
    path, points, ndim = sampling.path, sampling.points, len(given)
    if isinstance(points, Cloud):
        return _scattered_options(sampling, points, given, axes)
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


def _scattered_options(
    sampling: Sampling, cloud: Cloud, given: tuple[int, ...], axes: tuple[int, ...] | None
) -> read.Keywords:
    """The same at scattered points, whose coordinates are those of the axes, by default the last."""
    many, rest = cloud.dims, len(given) - len(cloud.shape)
    if sampling.solve:
        _check_scattered_samples(sampling, cloud, given, rest)
    ndim = rest + many if sampling.solve else len(given)
    if ndim < many:
        has = f"{cloud.path} has points of {many} coordinates, and the array has {ndim} dimensions"
        raise ValueError(f"{has}: give points (..., d) of at most as many")
    dims = dims_of(ndim, range(ndim - many, ndim) if axes is None else axes)
    if len(dims) != many or len(set(dims)) < many:
        has = f"{cloud.path} has points of {many} coordinates"
        raise ValueError(f"{has}: leave out --axes, or name {many} different dimensions, one for each")
    shape = given
    if sampling.solve:
        batch, found = iter(given[:rest]), dict(zip(dims, sampling.unknowns or (), strict=True))
        shape = tuple(found[dim] if dim in found else next(batch) for dim in range(ndim))
    return {"shape": shape, "axes": dims, "points": cloud.at([shape[dim] for dim in dims])}


def _check_scattered_samples(sampling: Sampling, cloud: Cloud, given: tuple[int, ...], rest: int) -> None:
    if rest < 0 or given[rest:] != cloud.shape:
        both = f"the array has shape {given}, the points of {cloud.path} {cloud.shape}"
        raise ValueError(f"{both}: give one sample for each point, with batch dimensions before them")
    if sampling.unknowns is None or len(sampling.unknowns) != cloud.dims:
        example = ",".join(["64"] * cloud.dims)
        raise ValueError(f"scattered points do not tell the sizes of the array: give --unknowns, as {example}")
    if sampling.weights["truncation"] is not None:
        raise ValueError("--truncation is for points of axes, and these are scattered: leave it out for --tikhonov")


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


class Flags(NamedTuple):
    """Parsed flags of `meshfft transform`; `given` has those of `meshfft.plan`, None if not given."""

    source: Path
    target: Path
    files: read.Files
    mesh: str | None
    spec: str | None
    inverse: bool
    given: read.Keywords
    plot: Path | None
    memory: int | None
    resume: bool
    sampling: Sampling | None = None

    def deciding(self) -> dict[str, str]:
        """What decides the result, by name; `identity` compares the input."""
        values = {name: value for name, value in self._asdict().items() if name not in FREE} | self.given
        values |= self.sampling.deciding() if self.sampling else {"points": None}
        return deciding(self.target, self.files, values)

    def plan_options(self, array: Source) -> read.Keywords:
        """Arguments of `meshfft.plan` but the mesh, from flags or record."""
        record = _record(array) if self.inverse else None
        recorded = {} if record is None or record.inverse else inverse_options(record)
        given = {name: value for name, value in self.given.items() if value is not None}
        other = given.keys() & {"kind", "axes"}  # only the scale of another transform is known
        known = {name: recorded[name] for name in (("norm",) if other else KNOWN) if name in recorded}
        where: read.Keywords = {"shape": array.shape}
        if self.sampling:
            where = sampled_options(self.sampling, array.shape, self.given["axes"])
        if recorded and not (self.mesh or self.spec):
            spec = recorded["spec"]
        else:
            spec = read.read_spec(self.spec, self.mesh_sizes(array), len(where["shape"]))
        return {**known, **given, "inverse": self.inverse, "dtype": array.dtype, "spec": spec, **where}

    def mesh_sizes(self, array: Source) -> dict[str, int]:
        if self.mesh is not None:
            return read.read_mesh(self.mesh)
        record = _record(array)
        if record is None:
            devices = recorded_devices(self.target) if self.resume else None
            had = f"give that of the unfinished run, of {devices} devices a process, as --mesh {devices}"
            remedy = had if devices else "give one, as --mesh 2,2,2"
            raise ValueError(f"{self.source} has no record of a mesh: {remedy}")
        count = math.prod(record.mesh.values())
        if count > MOST_VIRTUAL:
            raise ValueError(f"{self.source} was made on {count} devices: give a mesh of those here, as --mesh 2,2,2")
        return dict(record.mesh)

    def device_count(self) -> int:
        if self.mesh is not None:
            return math.prod(read.read_mesh(self.mesh).values())
        with open_array(self.source, self.files.dataset) as array:
            return math.prod(self.mesh_sizes(array).values())


def _record(array: Source) -> Record | None:
    return None if array.record is None else Record.from_dict(array.record, str(array.path))
