"""`meshfft reconstruct`: the image that coils have sampled along a trajectory, file to file."""

import itertools
import math
import socket
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jax.sharding import Mesh

import meshfft

from ..files import Source, identity, open_array, write_array
from ..files.processes import exchange, together
from ..files.stores import WRITTEN
from ..nonuniform.plan import ScatteredPlan
from ..nonuniform.reconstruct import sense
from ..nonuniform.solvers import INNER, Problem, descent, relative, variation
from . import scattered as points_of
from .request import agree, everywhere
from .scattered import Asked, announce, asked_for, check_files, dataset_in, finish, progress_of, read_points, record
from .terminal import flags as read
from .terminal.cluster import cluster_of, run_in
from .terminal.devices import check_memory, start_mesh
from .terminal.output import Progress, guarded

DENSITIES = ("pipe", "none")
ITERATIONS = typer.Option(metavar="N", help="Steps of conjugate gradients; with --tv in rounds of 5.")
MAPS = typer.Option(metavar="FILE", help="What each coil sees, (coils, N, N, ...); else dataset maps of KSPACE.")


@guarded
def reconstruct(
    source: Annotated[Path, typer.Argument(metavar="KSPACE", help="(coils, points...): .npy, .h5, .hdf5 or .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".npy or .zarr, complex; .nii, its magnitude.")],
    points: points_of.Points = None,
    points_unit: points_of.Unit = None,
    shape: points_of.Shape = None,
    maps: Annotated[Path | None, MAPS] = None,
    iterations: Annotated[int, ITERATIONS] = 20,
    density: Annotated[str, typer.Option(metavar="NAME", help="Start from Pipe's weights: pipe, or none.")] = "pipe",
    l2: Annotated[float, typer.Option("--l2", metavar="X", help="Weight of |x|^2: 1e-3.")] = 0.0,
    tv: Annotated[float, typer.Option("--tv", metavar="X", help="Weight of total variation: 1e-4.")] = 0.0,
    mesh: points_of.Mesh_ = None,
    spec: points_of.ImageSpec = None,
    tol: points_of.Tol = 1e-4,
    sigma: points_of.Sigma = None,
    origin: points_of.Origin = "corner",
    precision: points_of.Precision = None,
    dataset: read.Dataset = None,
    overwrite: read.Overwrite = False,
    distributed: read.Distributed = False,
    coordinator: read.Coordinator = None,
    processes: read.Processes = None,
    process_id: read.ProcessId = None,
    as_json: read.Json = False,
    log_json: read.LogJson = False,
) -> None:
    """Find the image whose samples along a trajectory coils have taken: CG-SENSE.

    min |A S x - d|^2 by conjugate gradients on the Toeplitz normal equations,
    from the density-compensated adjoint on; S are the maps of the coils, without
    which every coil has an image. Weights are relative: --l2 to the largest
    eigenvalue, --tv also to the brightest pixel of the start.

    An .h5 or .zarr file is read as ISMRMRD-like arrays: datasets kspace, of
    complex numbers, traj, and maps where there is one; --points and --maps name
    other files. Coordinate j of a point is of dimension j of the image. Data of
    sigpy and BART count pixels from the centre: give --origin centre.
    """

    def asked() -> Asked:
        known = asked_for(mesh, shape, points_unit, origin, None, precision)
        if shape is None:
            raise ValueError("the size of the image is not given: give --shape N,N,..., as 128,128")
        more = {"maps": maps, "iterations": iterations, "density": density, "l2": l2, "tv": tv}
        _check(more)
        how: read.Keywords = {"tol": tol, "sigma": sigma, "origin": origin, "norm": None, "precision": precision}
        files: read.Keywords = {"source": source, "target": target, "dataset": dataset, "points": points}
        rest: read.Keywords = {"spec": spec, "overwrite": overwrite, "as_json": as_json, "log_json": log_json}
        return Asked(**known, **how, **files, **rest, more=more)

    run_in(cluster_of(distributed, coordinator, processes, process_id), asked, lambda asked: asked.devices, _run)


def _check(more: read.Keywords) -> None:
    read.check_choice(more["density"], DENSITIES, "--density")
    if more["iterations"]:
        read.check_count(more["iterations"], "--iterations", "steps")
    for name in ("l2", "tv"):
        if not (math.isfinite(more[name]) and more[name] >= 0):
            raise ValueError(f"--{name} {more[name]} is no weight: give 0 or more, as 1e-4")
    if more["tv"] and more["density"] == "none":
        raise ValueError("--tv is relative to the start, and --density none starts from zero: leave one out")


def _run(asked: Asked) -> None:
    others = [path for path in (asked.points, asked.more["maps"]) if path]
    everywhere(lambda: check_files(asked, WRITTEN, *others))
    with open_array(asked.source, dataset_in(asked.source, asked.dataset, "kspace")) as array:
        points = everywhere(lambda: read_points(asked, None))
        agree({**asked.deciding(points, "reconstruct"), **identity(array)})
        shape = _coil_images(asked, array, points.shape)
        mesh, dtype = start_mesh(asked.mesh), points_of.computed(asked, array.dtype)
        plan = points_of.planned(asked, shape, points, mesh, dtype)
        if not plan.in_layout.even:
            raise ValueError(f"--mesh does not cut images {shape} evenly: give one that divides them, or --spec")
        agree({"this plan": str(plan)})
        announce(asked, f"{plan}\n")
        hosts = exchange(socket.gethostname())
        together(lambda: check_memory(plan.peak_bytes, mesh.local_devices, hosts.count(socket.gethostname())))
        _reconstruct(asked, array, plan, mesh)


def _coil_images(asked: Asked, array: Source, points: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the images of all coils."""
    rest = array.ndim - len(points)
    if rest not in (0, 1) or array.shape[rest:] != points:
        both = f"{asked.source} has shape {array.shape} and the points {points}"
        raise ValueError(f"{both}: give one value for each point, with the coils before them")
    return (*array.shape[:rest], *(asked.shape or ()))


def _reconstruct(asked: Asked, array: Source, plan: ScatteredPlan, mesh: Mesh) -> None:
    dtype, made = plan.caller.dtype, record(asked, plan, "reconstruct")
    with progress_of(asked, asked.more["iterations"], in_bytes=False) as progress:
        progress.begin("read")
        values = meshfft.shard(array.astype(dtype), mesh, plan.out_layout.spec)
        maps = _maps(asked, plan, mesh, dtype)
        progress.begin("prepare")
        unit, rounds = bool(asked.more["l2"] or asked.more["tv"]), 12 if asked.more["density"] == "pipe" else 0
        problem = sense(plan, values, maps, density=rounds, unit=unit)
        image, residuals = _solved(asked, problem, progress)
        progress.begin("write")
        magnitude = asked.target.suffix == ".nii"
        y = jnp.abs(image) if magnitude else image
        about = {points_of.KEY: {**made, **_settings(asked)}}
        write_array(asked.target, y, overwrite=asked.overwrite, about=about)
    steps = asked.more["iterations"]
    announce(
        asked, f"Residual |b - N x| / |b|: {residuals[0]:.3g} at the start, {residuals[-1]:.3g} after {steps} steps."
    )
    facts = {**plan.caller.to_dict(), **made, **_settings(asked), "residuals": residuals}
    finish(asked, facts, progress.timings, f"{'magnitude, ' * magnitude}{points_of.shape_words(y)}")


def _settings(asked: Asked) -> dict[str, object]:
    return {**asked.more, "maps": asked.more["maps"] and str(asked.more["maps"])}


def _maps(asked: Asked, plan: ScatteredPlan, mesh: Mesh, dtype: np.dtype) -> Any:
    """The maps of the coils, cut as their images; None where there are none."""
    path, dataset = asked.more["maps"], None
    if path is None or path.suffix in points_of.SEVERAL:
        dataset = dataset_in(path or asked.source, None, "maps")
        if path is None and dataset is None:
            return None
    shape = plan.in_layout.shape
    with open_array(path or asked.source, dataset) as array:
        if array.shape != shape or len(shape) != len(plan.dims) + 1:
            wanted = "(coils, ...) as the images" if len(shape) > len(plan.dims) else "none of data without coils"
            both = f"the maps of {array.path} have shape {array.shape} and the coils' images {shape}"
            raise ValueError(f"{both}: give {wanted}")
        return meshfft.shard(array.astype(dtype), mesh, plan.in_layout.spec)


def _solved(asked: Asked, problem: Problem, progress: Progress) -> tuple[jax.Array, list[float]]:
    """The image after all steps, and the residual of every one, at the start first."""
    iterations, l2, tv = (asked.more[name] for name in ("iterations", "l2", "tv"))
    size = INNER if tv else 1
    found, residuals = variation(problem, tv, l2) if tv else descent(problem, l2), list[float]()
    progress.begin("solve")
    for count, now in enumerate(itertools.islice(found, -(-iterations // size) + 1)):
        residuals.append(relative(problem, now))
        if not math.isfinite(residuals[-1]):
            raise ValueError(f"{asked.source}, or the maps, hold a NaN or an infinity: put 0 in its place")
        progress.note = f", residual {residuals[-1]:.2e}"
        progress.advance(min(size, iterations - progress.done) if count else 0)
    return now.image, residuals
