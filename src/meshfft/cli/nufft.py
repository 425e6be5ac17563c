"""`meshfft nufft`: an image at scattered points or the adjoint. `meshfft reconstruct`: the image that coils sampled."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from jax.sharding import Mesh

import meshfft

from ..functions.reconstruct import check_maps, coil_images
from ..io import Source, open_array, write_array
from ..io.writing import KINDS, OUTPUTS
from ..nufft.plan import ScatteredPlan
from ..nufft.points import Scattered
from . import flags as read
from . import mri
from .cluster import everywhere
from .output import guarded
from .scattered import (
    KEY,
    SEVERAL,
    Asked,
    AtPoints,
    Command,
    Opened,
    Origin,
    Tol,
    asked_for,
    dataset_in,
    finish,
    read_points,
    record,
    run_command,
    words,
)

DENSITIES = ("pipe", "none")
ROUNDS = 12


@guarded
@read.with_flags
def nufft(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".npy, .nii, .nii.gz, .h5, .hdf5, .nc or .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".zarr, .h5, .hdf5, .nc or .npy.")],
    *,
    at: AtPoints,
    adjoint: Annotated[bool, read.switch("--adjoint", "Type 1: IN holds values, OUT an image.")] = False,
    tol: Tol = 1e-6,
    origin: Origin = "corner",
    norm: read.Norm = None,
    files: read.Files,
) -> None:
    """Sample the spectrum of an image at scattered points, or add such samples up.

    Type 2: c_j = sum_n x_n exp(-2 pi i k_j.n), over the last dimensions of IN,
    one for each coordinate of the points; others are a batch. With --adjoint
    type 1: x_n = sum_j c_j exp(2 pi i k_j.n), of values (..., points) to images
    of --shape: no inverse, for which see meshfft reconstruct.
    """

    def asked() -> Asked:
        found = asked_for(source, target, files, at, tol=tol, origin=origin, norm=norm, adjoint=adjoint)
        if adjoint != (at.shape is not None):
            remedy = "give --shape N,N,..., the pixels of OUT" if adjoint else "leave it out, or add --adjoint"
            raise ValueError(f"--shape goes with --adjoint: {remedy}")
        return found

    run_command(files, asked, Command("nufft", KINDS, False, _opened, _images, _transform))


@contextlib.contextmanager
def _opened(asked: Asked) -> Iterator[Opened]:
    with open_array(asked.source, asked.files.dataset) as array:
        yield asked, array, everywhere(lambda: read_points(asked, None if asked.more["adjoint"] else array.shape))


def _images(asked: Asked, array: Source, points: Scattered) -> tuple[int, ...]:
    """Shape of the images to sample or to compute; dimensions before the points are a batch."""
    if not asked.more["adjoint"]:
        return array.shape
    rest = array.ndim - len(points.shape)
    if rest < 0 or array.shape[rest:] != points.shape:
        both = f"{asked.source} has shape {array.shape} and the points {points.shape}"
        raise ValueError(f"{both}: give one value for each point, with batch dimensions before them")
    return (*array.shape[:rest], *(asked.shape or ()))


def _transform(asked: Asked, array: Source, plan: ScatteredPlan, mesh: Mesh) -> None:
    adjoint, layouts, dtype = asked.more["adjoint"], (plan.in_layout, plan.out_layout), plan.dtype
    made = record(asked, plan, "nufft_adjoint" if adjoint else "nufft")
    blocks = sum(math.prod(layout.block) for layout in layouts) * dtype.itemsize * len(mesh.local_devices)
    with asked.files.reporter.progress(blocks) as progress:
        progress.begin("read")
        values = dataclasses.replace(progress.counting(array), dtype=dtype)
        x = jax.block_until_ready(meshfft.shard(values, mesh, layouts[adjoint].spec))
        progress.begin("transform")
        y = jax.block_until_ready(plan.adjoint(x) if adjoint else plan(x))
        progress.begin("write")
        write_array(asked.target, y, overwrite=asked.files.overwrite, report=progress.advance, about={KEY: made})
    finish(asked, {**plan.to_dict(), **made}, progress.timings, words(y))


@guarded
@read.with_flags
def reconstruct(
    source: Annotated[Path, typer.Argument(metavar="KSPACE", help="ISMRMRD; or (coils, points...): .npy, .h5, .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".zarr, .h5, .nc, .npy; .nii, .nii.gz: magnitude.")],
    *,
    at: AtPoints,
    select: mri.Select = "",
    maps: Annotated[
        Path | None, read.option("FILE", "Of coils, (coils, N, N, ...), NIfTI (N, N, N, coils); else in KSPACE.")
    ] = None,
    iterations: Annotated[int, read.option("N", "Steps of conjugate gradients; with --tv in rounds of 5.")] = 20,
    density: Annotated[str, read.option("NAME", "Start from Pipe's weights: pipe, or none.")] = "pipe",
    l2: Annotated[float, read.option("X", "Weight of |x|^2: 1e-3.")] = 0.0,
    tv: Annotated[float, read.option("X", "Weight of total variation: 1e-4.")] = 0.0,
    tol: Tol = 1e-4,
    origin: Origin = "centre",
    voxel: mri.Voxel = None,
    affine: mri.AffineFile = None,
    as_complex: Annotated[bool, read.switch("--complex", "Complex numbers in NIfTI too.")] = False,
    files: read.Files,
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
        how: read.Keywords = {"tol": tol, "origin": origin, "scan": mri.is_scan(source, files.dataset)}
        more: read.Keywords = {"select": select, "maps": maps, "iterations": iterations, "density": density}
        found = asked_for(source, target, files, at, **how, **more, l2=l2, tv=tv, complex=as_complex)
        shape = found.shape or mri.sizes_in(source, files.dataset)
        if shape is None:
            raise ValueError("the size of the image is not given: give --shape N,N,..., as 128,128")
        _check(found.more)
        found.more["affine"] = mri.read_affine(voxel, affine, shape, origin, target)
        return found._replace(shape=shape)

    run_command(files, asked, Command("reconstruct", OUTPUTS, True, mri.measured, _coil_images, _reconstruct))


def _check(more: read.Keywords) -> None:
    read.check_choice(more["density"], DENSITIES, "--density")
    if more["iterations"]:
        read.check_count(more["iterations"], "--iterations", "steps")
    for name in ("l2", "tv"):
        if not (math.isfinite(more[name]) and more[name] >= 0):
            raise ValueError(f"--{name} {more[name]} is no weight: give 0 or more, as 1e-4")
    if more["tv"] and more["density"] == "none":
        raise ValueError("--tv is relative to the start, and --density none starts from zero: leave one out")


def _coil_images(asked: Asked, array: Source, points: Scattered) -> tuple[int, ...]:
    """The shape of the images of all coils; refuses data and maps of other shapes."""
    try:
        images = coil_images(array.shape, points.shape, asked.shape or ())
    except ValueError as error:
        raise ValueError(f"{asked.source}: {error}") from None
    with _maps(asked, points.dims) as maps:
        try:
            check_maps(None if maps is None else maps.shape, images, points.dims)
        except ValueError as error:
            assert maps is not None
            last = ", in NIfTI with the coils last" * mri.is_nifti(maps.path)
            raise ValueError(f"{maps.path}: {error}{last}") from None
    return images


@contextlib.contextmanager
def _maps(asked: Asked, dims: int) -> Iterator[Source | None]:
    if (found := _maps_in(asked)) is None:
        yield None
        return
    with open_array(*found) as array:
        yield mri.coils_first(array, dims)


def _maps_in(asked: Asked) -> tuple[Path, str | None] | None:
    path, dataset = asked.more["maps"], None
    if path is None or path.suffix in SEVERAL:
        dataset = dataset_in(path or asked.source, None, "maps")
        if path is None and dataset is None:
            return None
    return path or asked.source, dataset


def _reconstruct(asked: Asked, array: Source, plan: ScatteredPlan, mesh: Mesh) -> None:
    dtype, more, say = plan.dtype, asked.more, asked.files.reporter.say
    found = _maps_in(asked)
    made = {**record(asked, plan, "reconstruct"), **more, "maps": str(found[0]) if found else None}
    with asked.files.reporter.progress(more["iterations"], in_bytes=False) as progress:
        progress.begin("read")
        values = meshfft.shard(array.astype(dtype), mesh, plan.out_layout.spec)
        with _maps(asked, plan.points.dims) as source:
            maps = None if source is None else meshfft.shard(source.astype(dtype), mesh, plan.in_layout.spec)

        def report(part: str, done: int, residual: float) -> None:
            if part != progress.part:
                progress.begin(part)
            progress.note = f", residual {residual:.2e}" if math.isfinite(residual) else ""
            progress.advance(done - progress.done)

        weights: read.Keywords = {name: more[name] for name in ("iterations", "l2", "tv")}
        rounds = ROUNDS if more["density"] == "pipe" else 0
        image, residuals = meshfft.reconstruct(values, plan, maps=maps, density=rounds, report=report, **weights)
        progress.begin("write")
        nifti, affine = mri.is_nifti(asked.target), more["affine"]
        magnitude = nifti and not more["complex"]
        y = mri.voxels(image, plan.points.dims, magnitude) if nifti else image
        how: read.Keywords = {"about": {KEY: made}, "affine": affine and np.array(affine)}
        write_array(asked.target, y, overwrite=asked.files.overwrite, **how)
    start, end = residuals[0], residuals[-1]
    say(f"Residual |b - N x| / |b|: {start:.3g} at the start, {end:.3g} after {more['iterations']} steps.")
    if affine:
        say(mri.size_words(affine, plan.points.dims))
    facts = {**plan.to_dict(), **made, "residuals": list(residuals)}
    finish(asked, facts, progress.timings, f"{'magnitude, ' * magnitude}{words(y)}")
