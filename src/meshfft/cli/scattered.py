"""`meshfft nufft`: an image at scattered points, or the adjoint; and what `meshfft reconstruct` shares with it.

    turns          cycles per pixel            radians   per pixel
    field-of-view  cycles per field of view, from -N/2 to N/2 along a dimension of N pixels
    z              complex numbers on the z-plane

Points have the shape (..., d), coordinate j for dimension j of the image.
"""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

import meshfft

from ..extras import all_versions
from ..io import Source, identity, open_array, write_array
from ..io.source import results
from ..nufft.plan import ScatteredPlan
from ..nufft.points import Scattered
from ..nufft.problem import ORIGINS
from ..operators.transform import NORMS
from ..plans.plan import Plan
from . import flags as read
from .cluster import agree, check_files, check_run, deciding, everywhere, run_in, start_mesh
from .output import PartTime, guarded, waiting
from .points import UNITS, cloud_of, dataset_in, read_arrays

PRECISIONS = ("float32", "float64")
FREE = ("source", "target", "at", "files")  # without effect, or compared otherwise
KEY = "meshfft_scattered"

METHOD = "kdft: the sum itself; auto, transpose or cooley-tukey: of the fine grid."
TolFlag = Annotated[float, read.option("X", "Relative error: 1e-2 to 1e-6, of doubles to 1e-12.")]
OriginFlag = Annotated[str, read.option("NAME", "Pixels count from the corner or the centre (N // 2).")]


class AtPoints(NamedTuple):
    points: Annotated[Path | None, read.option("FILE", "Coordinates (..., d): .npy, .npz, .h5 (traj), .zarr.")] = None
    points_unit: Annotated[str | None, read.option("NAME", "turns (per pixel), radians, field-of-view, or z.")] = None
    shape: Annotated[str | None, read.option("N,N,...", "Pixels along each dimension: 128,128.")] = None
    mesh: Annotated[str | None, read.option("P,P,...", "Devices along mesh axes x, y, z, w; else one.")] = None
    spec: Annotated[str | None, read.option("A,A,...", "Mesh axes that cut each dimension of the image: -,x,y.")] = None
    sigma: Annotated[float | None, read.option("X", "Cells of the fine grid for a pixel: 2 or less.")] = None
    precision: Annotated[str | None, read.option("NAME", "float32 or float64; by default that of IN.")] = None


class Asked(NamedTuple):
    source: Path
    target: Path
    files: read.Files
    at: AtPoints
    shape: tuple[int, ...] | None
    mesh: dict[str, int]
    tol: float
    origin: str
    norm: str | None
    more: read.Keywords

    def deciding(self, points: Scattered, kind: str) -> dict[str, str]:
        values = self.at._asdict() | {name: value for name, value in self._asdict().items() if name not in FREE}
        numbers = (points.in_turns, *(() if points.log_radius is None else (np.asarray(points.log_radius),)))
        values["points"] = hashlib.sha256(b"".join(one.tobytes() for one in numbers)).hexdigest()[:16]
        return {"the command": kind, **deciding(self.target, self.files, values)}


OpenedData = tuple[Asked, Source, Scattered]  # completed flags, data, points


class Command(NamedTuple):
    kind: str
    outputs: Sequence[str]  # suffixes that OUT may have
    even: bool  # whether the mesh has to divide the images
    opened: Callable[[Asked], contextlib.AbstractContextManager[OpenedData]]
    images: Callable[[Asked, Source, Scattered], tuple[int, ...]]  # shape of the plan's images
    work: Callable[[Asked, Source, Any, Mesh], None]  # reads the data, runs the plan, writes and reports


def run_command(joining: read.Joining, ask: Callable[[], Asked], command: Command) -> None:
    run_in(joining, ask, lambda asked: math.prod(asked.mesh.values()), lambda asked: _run(asked, command))


def _run(asked: Asked, command: Command) -> None:
    inputs = [path for path in (asked.source, asked.at.points, asked.more.get("maps")) if path]
    everywhere(lambda: check_files(asked.target, asked.files.overwrite, inputs, command.outputs))
    with command.opened(asked) as (asked, array, points):
        agree({**asked.deciding(points, command.kind), **identity(array)})
        shape = everywhere(lambda: command.images(asked, array, points))
        mesh = start_mesh(asked.mesh)
        with contextlib.nullcontext() if asked.files.quiet else waiting("planning"):
            plan = _planned(asked, shape, points, mesh, array.dtype)
        if command.even and not plan.in_layout.even:
            raise ValueError(f"--mesh does not cut images {shape} evenly: give one that divides them, or --spec")
        agree({"this plan": str(plan)})
        asked.files.say(f"{'Adjoint of the ' * asked.more.get('adjoint', False)}{plan}\n")
        check_run(plan.peak_bytes, mesh.local_devices)
        command.work(asked, array, plan, mesh)


def _planned(asked: Asked, shape: tuple[int, ...], points: Scattered, mesh: Mesh, dtype: np.dtype) -> Plan:
    """By default mesh axes cut the last dimensions, in order."""
    precision, cuts = asked.at.precision, asked.at.spec
    double = precision == "float64" or (precision is None and dtype in (np.float64, np.complex128))
    if double:
        jax.config.update("jax_enable_x64", True)
    spec = read.read_spec(cuts, asked.mesh, len(shape) if cuts else points.dims)
    if not cuts:
        spec = (*(None,) * (len(shape) - points.dims), *spec)
    kind, method = np.dtype(np.complex128 if double else np.complex64), asked.more.get("method", "auto")
    where: read.Keywords = {"mesh": mesh, "spec": spec, "dtype": kind, "norm": asked.norm, "method": method}
    if method == "kdft":
        return meshfft.plan(shape, points=points, **where)
    how: read.Keywords = {"tol": asked.tol, "sigma": asked.at.sigma, "origin": asked.origin}
    return meshfft.scattered_plan(shape, points, **where, **how)


def asked_for(
    source: Path,
    target: Path,
    files: read.Files,
    at: AtPoints,
    *,
    tol: float,
    origin: str,
    norm: str | None = None,
    **more: object,
) -> Asked:
    read.check_choice(norm, NORMS, "--norm")
    read.check_choice(at.precision, PRECISIONS, "--precision")
    read.check_choice(origin, ORIGINS, "--origin")
    read.check_choice(at.points_unit, UNITS, "--points-unit")
    sizes = None if at.shape is None else read.read_sizes(at.shape, "--shape", "128,128")
    return Asked(source, target, files, at, sizes, read.read_mesh(at.mesh or "1"), tol, origin, norm, more)


def read_points(asked: Asked, image: tuple[int, ...] | None) -> Scattered:
    path = asked.at.points or asked.source
    if asked.at.points is None and dataset_in(path, None, "traj") is None:
        raise ValueError(f"{path} has no dataset traj: give the points with --points FILE")
    return points_at(asked, read_arrays(path), path, image)


def points_at(
    asked: Asked, arrays: Mapping[str, np.ndarray], path: Path, image: tuple[int, ...] | None = None
) -> Scattered:
    cloud = cloud_of(path, asked.at.points_unit, arrays)
    sizes = asked.shape if image is None else image[-cloud.dims :]
    if sizes is None or len(sizes) != cloud.dims:
        given = f"the image {len(sizes or ())} dimensions" if image else f"--shape {len(sizes or ())} sizes"
        has = f"{path} has shape {cloud.coords.shape}"
        raise ValueError(f"{has} and {given}: give points (..., d) of as many coordinates")
    points = cloud.at(sizes)
    if points.log_radius is not None and asked.more.get("method") != "kdft":
        remedy = "give points on it" + " or --method kdft" * ("method" in asked.more)
        raise ValueError(f"{path} has points off the unit circle, where there is no fine grid: {remedy}")
    return points


def record(asked: Asked, plan: Plan, kind: str) -> dict[str, object]:
    grid: dict[str, object] = {}
    (points, *_) = plan.sources
    if isinstance(plan, ScatteredPlan):
        points, window = plan.points, plan.window
        grid = {"tol": plan.tol, "sigma": window.sigma, "width": window.width, "fine_grid": list(plan.grid)}
    assert isinstance(points, Scattered)
    return {
        "transform": kind,
        "method": plan.options.method,
        "points": list(points.shape),
        "unit": asked.at.points_unit or "z",
        "origin": asked.origin,
        "norm": asked.norm or "backward",
        **grid,
        "image": list(plan.in_layout.shape),
        "versions": all_versions(),
    }


def finish(asked: Asked, facts: read.Keywords, timings: Sequence[PartTime], wrote: str) -> None:
    points = asked.at.points or asked.source
    files = {"input": str(asked.source), "output": str(asked.target), "points_file": str(points)}
    asked.files.finish({**facts, **files}, timings, f"Wrote {asked.target}: {wrote}.")


def words(array: jax.Array | meshfft.PaddedArray) -> str:
    return f"{array.dtype} {' x '.join(map(str, array.shape))}"


@guarded
@read.with_flags
def nufft(
    source: read.Input,
    target: read.Output,
    *,
    at: AtPoints,
    adjoint: Annotated[bool, read.switch("--adjoint", "Type 1: IN holds values, OUT an image.")] = False,
    method: Annotated[str, read.option("NAME", METHOD)] = "auto",
    tol: TolFlag = 1e-6,
    origin: OriginFlag = "corner",
    norm: read.NormFlag = None,
    files: read.Files,
    joining: read.Joining,
) -> None:
    """Sample the spectrum of an image at scattered points, or add such samples up.

    Type 2: c_j = sum_n x_n exp(-2 pi i k_j.n), over the last dimensions of IN,
    one for each coordinate of the points; others are a batch. With --adjoint
    type 1: x_n = sum_j c_j exp(2 pi i k_j.n), of values (..., points) to images
    of --shape. That is not the inverse: see meshfft reconstruct.
    """

    def asked() -> Asked:
        read.check_choice(method, read.CHOICES["method"], "--method")
        if method == "kdft" and (at.sigma is not None or origin != "corner"):
            other = "--origin centre" if at.sigma is None else "--sigma"
            raise ValueError(f"--method kdft is the sum from the corner, without a fine grid: leave out {other}")
        more: read.Keywords = {"adjoint": adjoint, "method": method}
        found = asked_for(source, target, files, at, tol=tol, origin=origin, norm=norm, **more)
        if adjoint != (at.shape is not None):
            remedy = "give --shape N,N,..., the pixels of OUT" if adjoint else "leave it out, or add --adjoint"
            raise ValueError(f"--shape goes with --adjoint: {remedy}")
        return found

    run_command(joining, asked, Command("nufft", results(), False, _opened, _images, _transform))


@contextlib.contextmanager
def _opened(asked: Asked) -> Iterator[OpenedData]:
    with open_array(asked.source, asked.files.dataset) as array:
        yield asked, array, everywhere(lambda: read_points(asked, None if asked.more["adjoint"] else array.shape))


def _images(asked: Asked, array: Source, points: Scattered) -> tuple[int, ...]:
    """Dimensions before the points are a batch."""
    if not asked.more["adjoint"]:
        return array.shape
    rest = array.ndim - len(points.shape)
    if rest < 0 or array.shape[rest:] != points.shape:
        both = f"{asked.source} has shape {array.shape} and the points {points.shape}"
        raise ValueError(f"{both}: give one value for each point, with batch dimensions before them")
    return (*array.shape[:rest], *(asked.shape or ()))


def _transform(asked: Asked, array: Source, plan: Plan, mesh: Mesh) -> None:
    adjoint, layouts, dtype = asked.more["adjoint"], (plan.in_layout, plan.out_layout), plan.dtype
    made = record(asked, plan, "nufft_adjoint" if adjoint else "nufft")
    blocks = sum(math.prod(layout.block) for layout in layouts) * dtype.itemsize * len(mesh.local_devices)
    with asked.files.progress(blocks) as progress:
        progress.begin("read")
        values = progress.counting(array).astype(dtype)
        x = jax.block_until_ready(meshfft.shard(values, mesh, layouts[adjoint].spec))
        progress.begin("transform")
        y = jax.block_until_ready(plan.adjoint(x) if adjoint else plan(x))
        progress.begin("write")
        write_array(asked.target, y, overwrite=asked.files.overwrite, report=progress.advance, about={KEY: made})
    finish(asked, {**plan.to_dict(), **made}, progress.timings, words(y))
