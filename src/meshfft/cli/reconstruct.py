"""`meshfft reconstruct`: the image that coils have sampled along a trajectory, file to file."""

import contextlib
import math
import socket
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jax.sharding import Mesh

import meshfft

from ..functions.reconstruct import check_maps, coil_images
from ..io import Source, identity, open_array, write_array
from ..io.processes import exchange, together
from ..io.writing import OUTPUTS
from ..nufft.plan import ScatteredPlan
from . import scan as scans
from . import scattered as points_of
from .request import agree, everywhere
from .scattered import Asked, announce, asked_for, check_files, dataset_in, finish, progress_of, record
from .terminal import flags as read
from .terminal import voxels as voxels_of
from .terminal.cluster import cluster_of, run_in
from .terminal.devices import check_memory, start_mesh
from .terminal.output import guarded, waiting

DENSITIES = ("pipe", "none")
ITERATIONS = typer.Option(metavar="N", help="Steps of conjugate gradients; with --tv in rounds of 5.")
MAPS = typer.Option(metavar="FILE", help="Of coils, (coils, N, N, ...), NIfTI (N, N, N, coils); else in KSPACE.")
COMPLEX = typer.Option("--complex", help="Complex numbers in NIfTI too.")


@guarded
def reconstruct(
    source: Annotated[Path, typer.Argument(metavar="KSPACE", help="ISMRMRD; or (coils, points...): .npy, .h5, .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".zarr, .h5, .nc, .npy; .nii, .nii.gz: magnitude.")],
    points: points_of.Points = None,
    points_unit: points_of.Unit = None,
    shape: points_of.Shape = None,
    select: scans.Select = "",
    maps: Annotated[Path | None, MAPS] = None,
    iterations: Annotated[int, ITERATIONS] = 20,
    density: Annotated[str, typer.Option(metavar="NAME", help="Start from Pipe's weights: pipe, or none.")] = "pipe",
    l2: Annotated[float, typer.Option("--l2", metavar="X", help="Weight of |x|^2: 1e-3.")] = 0.0,
    tv: Annotated[float, typer.Option("--tv", metavar="X", help="Weight of total variation: 1e-4.")] = 0.0,
    mesh: points_of.Mesh_ = None,
    spec: points_of.ImageSpec = None,
    tol: points_of.Tol = 1e-4,
    sigma: points_of.Sigma = None,
    origin: points_of.Origin = "centre",
    voxel: voxels_of.Voxel = None,
    affine: voxels_of.AffineFile = None,
    as_complex: Annotated[bool, COMPLEX] = False,
    precision: points_of.Precision = None,
    dataset: read.Dataset = None,
    overwrite: read.Overwrite = False,
    distributed: read.Distributed = False,
    coordinator: read.Coordinator = None,
    processes: read.Processes = None,
    process_id: read.ProcessId = None,
    as_json: read.Json = False,
    log_json: read.LogJson = False,
    quiet: read.Quiet = False,
) -> None:
    """Find the image whose samples along a trajectory coils have taken: CG-SENSE.

    min |A S x - d|^2 by conjugate gradients on the Toeplitz normal equations
    N x = b, N = S* A* A S and b = S* A* d, from the density-compensated adjoint
    on. A is the transform at the points, d the samples, S the maps of the coils,
    without which every coil has an image. Weights are relative: --l2 to the
    largest eigenvalue of N, --tv also to the brightest pixel of the start.

    An ISMRMRD file (.h5, .mrd) is read as it is: the readouts of one image, of
    several images those of --select, without noise and navigators. It gives the
    size of the image, but no unit of a trajectory. Any other .h5, or .zarr, has
    datasets kspace, of complex numbers, traj, and maps where there is one;
    --points and --maps name other files. Coordinate j of a point is of dimension
    j of the image. Pixels count from the centre, N // 2, as in MRI, sigpy and
    BART; --origin corner counts them from 0, as the other commands do.

    NIfTI has the image first and coils last. Its voxels are where --affine says,
    or maps in NIfTI do; or of the size of --voxel, or of an ISMRMRD file's, with
    the pixel that counts as 0 in the origin; else of size 1, without a unit.
    """

    def asked() -> Asked:
        known = asked_for(mesh, shape, points_unit, origin, None, precision, scans.is_scan(source, dataset))
        known["shape"] = known["shape"] or scans.sizes_in(source, dataset)
        if known["shape"] is None:
            raise ValueError("the size of the image is not given: give --shape N,N,..., as 128,128")
        more: read.Keywords = {"select": select, "maps": maps, "iterations": iterations, "density": density}
        more |= {"l2": l2, "tv": tv, "complex": as_complex}
        _check(more)
        more["affine"] = voxels_of.read_affine(voxel, affine, known["shape"], origin, target)
        how: read.Keywords = {"tol": tol, "sigma": sigma, "origin": origin, "norm": None, "precision": precision}
        files: read.Keywords = {"source": source, "target": target, "dataset": dataset, "points": points}
        rest: read.Keywords = {"spec": spec, "overwrite": overwrite, "as_json": as_json, "log_json": log_json}
        return Asked(**known, **how, **files, **rest, quiet=quiet, more=more)

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
    everywhere(lambda: check_files(asked, OUTPUTS, *others))
    asked = everywhere(lambda: _placed(asked))
    with scans.measured(asked) as (asked, array, points):
        agree({**asked.deciding(points, "reconstruct"), **identity(array)})
        shape = _coil_images(asked, array, points.shape)
        everywhere(lambda: _check_maps(asked, shape, points.dims))
        mesh, dtype = start_mesh(asked.mesh), points_of.computed(asked, array.dtype)
        with contextlib.nullcontext() if asked.quiet else waiting("planning"):
            plan = points_of.planned(asked, shape, points, mesh, dtype)
        if not plan.in_layout.even:
            raise ValueError(f"--mesh does not cut images {shape} evenly: give one that divides them, or --spec")
        agree({"this plan": str(plan)})
        announce(asked, f"{plan}\n")
        hosts = exchange(socket.gethostname())
        together(lambda: check_memory(plan.peak_bytes, mesh.local_devices, hosts.count(socket.gethostname())))
        _reconstruct(asked, array, plan, mesh)


def _placed(asked: Asked) -> Asked:
    """With the affine of maps or the sizes of a scan, where no other is asked for and the output has room for it."""
    affine = asked.more["affine"]
    if affine is None and asked.target.suffix != ".npy":
        affine, voxel = voxels_of.affine_of_maps(asked.more["maps"]), scans.voxel_in(asked)
        if affine is None and voxel:
            affine = voxels_of.affine_of_sizes(voxel, asked.shape or (), asked.origin)
    return asked._replace(more={**asked.more, "affine": affine})


def _coil_images(asked: Asked, array: Source, points: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the images of all coils."""
    try:
        return coil_images(array.shape, points, asked.shape or ())
    except ValueError as error:
        raise ValueError(f"{asked.source}: {error}") from None


def _reconstruct(asked: Asked, array: Source, plan: ScatteredPlan, mesh: Mesh) -> None:
    dtype, made = plan.caller.dtype, record(asked, plan, "reconstruct")
    with progress_of(asked, asked.more["iterations"], in_bytes=False) as progress:
        progress.begin("read")
        values = meshfft.shard(array.astype(dtype), mesh, plan.out_layout.spec)
        maps = _maps(asked, plan, mesh, dtype)

        def report(part: str, done: int, residual: float) -> None:
            if part != progress.part:
                progress.begin(part)
            progress.note = f", residual {residual:.2e}" if math.isfinite(residual) else ""
            progress.advance(done - progress.done)

        weights: read.Keywords = {name: asked.more[name] for name in ("iterations", "l2", "tv")}
        rounds = 12 if asked.more["density"] == "pipe" else 0
        image, residuals = meshfft.reconstruct(values, plan, maps=maps, density=rounds, report=report, **weights)
        progress.begin("write")
        nifti, affine = voxels_of.is_nifti(asked.target), asked.more["affine"]
        magnitude = nifti and not asked.more["complex"]
        y = voxels_of.voxels(image, plan.points.dims, magnitude) if nifti else image
        about = {points_of.KEY: {**made, **_settings(asked)}}
        write_array(asked.target, y, overwrite=asked.overwrite, about=about, affine=affine and np.array(affine))
    steps = asked.more["iterations"]
    announce(
        asked, f"Residual |b - N x| / |b|: {residuals[0]:.3g} at the start, {residuals[-1]:.3g} after {steps} steps."
    )
    facts = {**plan.caller.to_dict(), **made, **_settings(asked), "residuals": list(residuals)}
    if affine:
        announce(asked, voxels_of.size_words(affine, plan.points.dims))
    finish(asked, facts, progress.timings, f"{'magnitude, ' * magnitude}{points_of.shape_words(y)}")


def _settings(asked: Asked) -> dict[str, object]:
    found = _maps_in(asked)
    return {**asked.more, "maps": str(found[0]) if found else None}


def _maps_in(asked: Asked) -> tuple[Path, str | None] | None:
    """The file of the maps and their dataset; None where there are none."""
    path, dataset = asked.more["maps"], None
    if path is None or path.suffix in points_of.SEVERAL:
        dataset = dataset_in(path or asked.source, None, "maps")
        if path is None and dataset is None:
            return None
    return path or asked.source, dataset


def _check_maps(asked: Asked, images: tuple[int, ...], dims: int) -> None:
    """Refuses maps that do not match the data, before there is a plan."""
    if (found := _maps_in(asked)) is None:
        return
    with open_array(*found) as array:
        try:
            check_maps(voxels_of.coils_first(array, dims).shape, images, dims)
        except ValueError as error:
            last = ", in NIfTI with the coils last" * voxels_of.is_nifti(array.path)
            raise ValueError(f"{array.path}: {error}{last}") from None


def _maps(asked: Asked, plan: ScatteredPlan, mesh: Mesh, dtype: np.dtype) -> Any:
    """The maps of the coils, cut as their images; None where there are none."""
    if (found := _maps_in(asked)) is None:
        return None
    with open_array(*found) as array:
        maps = voxels_of.coils_first(array, plan.points.dims)
        return meshfft.shard(maps.astype(dtype), mesh, plan.in_layout.spec)
