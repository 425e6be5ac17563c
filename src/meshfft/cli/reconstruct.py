"""`meshfft reconstruct`: the image that coils sampled, from the readouts of a scan or from arrays in files.

    position in mm = affine @ (i, j, k, 1)     of the voxel with these indices along X, Y and Z

The affine is that of the flags, or of the NIfTI file of the maps, or follows from the sizes of an ISMRMRD file.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from jax.sharding import Mesh

import meshfft

from ..functions.reconstruct import check_maps, coil_images
from ..io import Source, open_array, write_array
from ..io.ismrmrd import Encoding, Scan, encodings_of, is_scan, read_scan
from ..io.nifti import SPACE, checked_affine, coils_first, is_nifti, nifti_affine, voxels
from ..io.refusals import readable
from ..io.source import FORMATS, is_bare
from ..nufft.penalties import PENALTIES
from ..nufft.plan import ScatteredPlan
from ..nufft.points import Scattered
from . import flags as read
from . import scattered
from .cluster import everywhere
from .output import guarded
from .points import dataset_in
from .scattered import Asked, AtPoints, Command, OpenedData

MOST_TEXT = 4096  # bytes of a text file with 4 x 4 numbers
DENSITIES = ("pipe", "none")

Affine = list[list[float]]


@guarded
@read.with_flags
def reconstruct(
    source: Annotated[Path, typer.Argument(metavar="KSPACE", help="ISMRMRD; or (coils, points...): .npy, .h5, .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=f"{', '.join(FORMATS)}; of NIfTI: magnitude.")],
    *,
    at: AtPoints,
    select: Annotated[str, read.option("NAME=I,...", "Readouts of ISMRMRD: slice=2,repetition=0, or phase=all.")] = "",
    maps: Annotated[
        Path | None, read.option("FILE", "(coils, N, N, ...), NIfTI (N, N, N, coils); or in KSPACE.")
    ] = None,
    iterations: Annotated[int, read.option("N", "Steps of conjugate gradients; of ADMM in rounds of 5.")] = 20,
    density: Annotated[str, read.option("NAME", "Start from Pipe's weights: pipe, or none.")] = "pipe",
    l2: Annotated[float, read.option("X", "Weight of |x|^2: 1e-3.")] = 0.0,
    regularise: Annotated[str | None, read.option("NAME", "By ADMM, for few samples: tv or wavelet.")] = None,
    weight: Annotated[float | None, read.option("X", "Weight of that; by default 1e-4.")] = None,
    tol: scattered.TolFlag = 1e-4,
    origin: scattered.OriginFlag = "centre",
    voxel: Annotated[str | None, read.option("X,X,...", "Size of a voxel along each dimension, in mm: 1.5,3.")] = None,
    affine: Annotated[Path | None, read.option("FILE", "Of voxels: NIfTI, or 4 x 4 numbers in .npy or .txt.")] = None,
    as_complex: Annotated[bool, read.switch("--complex", "Complex numbers in NIfTI too.")] = False,
    files: read.Files,
    joining: read.Joining,
) -> None:
    """Find the image that coils have sampled along a trajectory: CG-SENSE.

    min |A S x - d|^2 by conjugate gradients on the Toeplitz normal equations
    N x = b, N = S* A* A S and b = S* A* d. The start is the density-compensated
    adjoint. A is the transform at the points, d the samples, S the coil maps,
    without which every coil has an image. --regularise adds weight f(x) to half
    of that, by ADMM: f sums |grad x| (tv), or the details of Haar wavelets.
    Weights are relative: --l2 to the largest eigenvalue of N, --weight also to
    the brightest pixel of the start.

    An ISMRMRD file (.h5, .mrd) is read as it is: the readouts of one image,
    which --select chooses from several, without noise and navigators. It gives
    the size of the image, but no unit of a trajectory. Any other .h5, or .zarr,
    has datasets kspace, of complex numbers, traj, and optionally maps;
    --points and --maps name other files. Coordinate j of a point is of dimension
    j of the image. Pixels count from the centre, N // 2, as in MRI, sigpy and
    BART; --origin corner counts them from 0, as the other commands do.

    NIfTI has the image first and coils last. Its voxels are placed by --affine,
    or by maps in NIfTI. Otherwise they have the size in --voxel or the ISMRMRD
    file, with the pixel that counts as 0 at the origin, or size 1, no unit.
    """

    def asked() -> Asked:
        how: read.Keywords = {"tol": tol, "origin": origin}
        more: read.Keywords = {"select": select, "maps": maps, "iterations": iterations, "density": density}
        more |= {"regularise": regularise, "weight": 1e-4 if regularise and weight is None else weight}
        found = scattered.asked_for(source, target, files, at, **how, **more, l2=l2, complex=as_complex)
        encoded = {one.sizes for one in encodings_of(source, files.dataset)} if found.shape is None else set()
        if len(encoded) > 1:
            raise ValueError(f"{source} has encoded matrices {sorted(encoded)}: give --shape N,N,...")
        shape = found.shape or next(iter(encoded), None)
        if shape is None:
            raise ValueError("the size of the image is not given: give --shape N,N,..., as 128,128")
        _check(found.more)
        found.more["affine"] = read_affine(voxel, affine, shape, origin, target)
        return found._replace(shape=shape)

    command = Command("reconstruct", tuple(FORMATS), True, _measured, _coil_images, _reconstruct)
    scattered.run_command(joining, asked, command)


def _check(more: read.Keywords) -> None:
    read.check_choice(more["density"], DENSITIES, "--density")
    if more["iterations"]:
        read.check_count(more["iterations"], "--iterations", "steps")
    for name in ("l2", "weight"):
        if more[name] and not 0 <= more[name] < math.inf:
            raise ValueError(f"--{name} {more[name]} is no weight: give 0 or more, as 1e-4")
    if more["regularise"]:
        read.check_choice(more["regularise"], tuple(PENALTIES), "--regularise")
        if more["density"] == "none":
            raise ValueError("--weight is relative to the start, and --density none starts from zero: leave one out")
    elif more["weight"] is not None:
        raise ValueError(f"--weight {more['weight']} is that of --regularise: add {' or '.join(PENALTIES)}")


@contextlib.contextmanager
def _measured(asked: Asked) -> Iterator[OpenedData]:
    more = {**asked.more, "affine": everywhere(lambda: _affine(asked))}
    asked, source, dataset = asked._replace(more=more), asked.source, asked.files.dataset
    if not is_scan(source, dataset):
        if more["select"]:
            raise ValueError(f"{source} is no ISMRMRD file, of which --select takes readouts: leave it out")
        with open_array(source, dataset_in(source, dataset, "kspace")) as array:
            yield asked, array, everywhere(lambda: scattered.read_points(asked, None))
        return
    inside = asked.at.points is None
    scan = everywhere(lambda: read_scan(source, dataset, more["select"], trajectory=inside))
    asked.files.say(f"{source}: {scan.words}.")
    points = partial(scattered.read_points, asked, None)
    if inside:
        asked = _with_unit(asked, scan)
        points = partial(scattered.points_at, asked, {"": scan.points}, source)
    yield asked, scan.values, everywhere(points)


def _with_unit(asked: Asked, scan: Scan) -> Asked:
    sizes, unit = scan.encoding.sizes, asked.at.points_unit
    if scan.cartesian and unit not in (None, "turns"):
        turns = f"{asked.source} is Cartesian and its points are computed, in turns"
        raise ValueError(f"{turns}: leave out --points-unit {unit}")
    if unit == "field-of-view" and asked.shape != sizes:
        both = f"{asked.source} encodes a field of view of {sizes} pixels, --shape has {asked.shape}"
        raise ValueError(f"{both}: leave out --shape, or give the points in turns")
    return asked._replace(at=asked.at._replace(points_unit="turns" if scan.cartesian else unit))


def _affine(asked: Asked) -> Affine | None:
    """The affine of flags, maps or scan, in this order, if the output can store one."""
    given: Affine | None = asked.more["affine"]
    maps: Path | None = asked.more["maps"]
    if given is not None or is_bare(asked.target):
        return given
    if maps and is_nifti(maps):
        return checked_affine(nifti_affine(maps), f"that of {maps}")
    encodings = {*encodings_of(asked.source, asked.files.dataset)} if asked.at.points is None else set[Encoding]()
    one = encodings.pop() if len(encodings) == 1 else None
    if one is None or len(asked.shape or ()) != len(one.sizes) or min(one.field_of_view) <= 0:
        return None
    sizes = [size / n for size, n in zip(one.field_of_view, one.matrix, strict=True)]  # with the thickness of a plane
    return _of_sizes(sizes, asked.shape or (), asked.origin)


def read_affine(
    voxel: str | None, file: Path | None, shape: tuple[int, ...], origin: str, target: Path
) -> Affine | None:
    if voxel is None and file is None:
        return None
    flag = "--affine" if voxel is None else "--voxel"
    if voxel is not None and file is not None:
        raise ValueError("--affine has the size of voxels: leave out --voxel")
    if is_bare(target):
        raise ValueError(f"{target} has no room for {flag}: write .nii, .nii.gz or .zarr, or leave it out")
    if len(shape) > SPACE:
        raise ValueError(f"{flag} is of at most 3 dimensions, and --shape has {len(shape)}: leave it out")
    if file is not None:
        return _affine_in(file)
    try:
        sizes = [float(word) for word in (voxel or "").split(",")]
    except ValueError:
        sizes = []
    if len(sizes) != len(shape) or not all(0 < size < math.inf for size in sizes):
        example = ",".join(["1.5"] * len(shape))
        raise ValueError(f"--voxel {voxel!r} is no size of {len(shape)} dimensions: give each in mm, as {example}")
    return _of_sizes(sizes, shape, origin)


def _of_sizes(sizes: Sequence[float], shape: tuple[int, ...], origin: str) -> Affine:
    affine = np.diag([*sizes, *(1.0,) * (4 - len(sizes))])
    for dim, n in enumerate(shape if origin == "centre" else ()):
        affine[dim, 3] = -sizes[dim] * (n // 2)
    return checked_affine(affine, f"a voxel of {' x '.join(map(str, sizes))} mm")


def _affine_in(path: Path) -> Affine:
    if not path.is_file():
        raise FileNotFoundError(f"--affine {path} is no file: give a NIfTI file, or 4 x 4 numbers in .npy or .txt")
    if is_nifti(path):
        return checked_affine(nifti_affine(path), f"--affine {path}")
    with readable(path):
        if path.suffix == ".npy":
            with open_array(path) as source:
                found = source[...] if source.shape == (4, 4) else np.empty(0)
        else:
            with open(path, encoding="utf-8") as file:
                found = np.array([line.split() for line in file.read(MOST_TEXT).splitlines() if line.strip()], float)
    return checked_affine(found, f"--affine {path}")


def _coil_images(asked: Asked, array: Source, points: Scattered) -> tuple[int, ...]:
    try:
        images = coil_images(array.shape, points.shape, asked.shape or ())
    except ValueError as error:
        raise ValueError(f"{asked.source}: {error}") from None
    with _maps(asked, points.dims) as maps:
        try:
            check_maps(None if maps is None else maps.shape, images, points.dims)
        except ValueError as error:
            assert maps is not None
            last = ", in NIfTI with the coils last" * is_nifti(maps.path)
            raise ValueError(f"{maps.path}: {error}{last}") from None
    return images


@contextlib.contextmanager
def _maps(asked: Asked, dims: int) -> Iterator[Source | None]:
    if (found := _maps_in(asked)) is None:
        yield None
        return
    with open_array(*found) as array:
        yield coils_first(array, dims)


def _maps_in(asked: Asked) -> tuple[Path, str | None] | None:
    path: Path = asked.more["maps"] or asked.source
    dataset = dataset_in(path, None, "maps")
    return None if asked.more["maps"] is None and dataset is None else (path, dataset)


def _reconstruct(asked: Asked, array: Source, plan: ScatteredPlan, mesh: Mesh) -> None:
    dtype, more, say = plan.dtype, asked.more, asked.files.say
    found = _maps_in(asked)
    made = {**scattered.record(asked, plan, "reconstruct"), **more, "maps": str(found[0]) if found else None}
    with asked.files.progress(more["iterations"], in_bytes=False) as progress:
        progress.begin("read")
        values = meshfft.shard(array.astype(dtype), mesh, plan.out_layout.spec)
        with _maps(asked, plan.points.dims) as source:
            maps = None if source is None else meshfft.shard(source.astype(dtype), mesh, plan.in_layout.spec)

        def report(part: str, done: int, residual: float) -> None:
            if part != progress.part:
                progress.begin(part)
            progress.note = f", residual {residual:.2e}" if math.isfinite(residual) else ""
            progress.advance(done - progress.done)

        how: read.Keywords = {"iterations": more["iterations"], "l2": more["l2"], "maps": maps, "report": report}
        how |= {more["regularise"]: more["weight"]} if more["regularise"] else {}
        image, residuals = meshfft.reconstruct(values, plan, density=12 * (more["density"] == "pipe"), **how)
        progress.begin("write")
        nifti, affine = is_nifti(asked.target), more["affine"]
        magnitude = nifti and not more["complex"]
        y = voxels(image, plan.points.dims, magnitude) if nifti else image
        how = {"about": {scattered.KEY: made}, "affine": affine and np.array(affine)}
        write_array(asked.target, y, overwrite=asked.files.overwrite, **how)
    start, end = residuals[0], residuals[-1]
    say(f"Residual |b - N x| / |b|: {start:.3g} at the start, {end:.3g} after {more['iterations']} steps.")
    if affine:
        sizes = np.linalg.norm(np.array(affine)[:3, : plan.points.dims], axis=0)
        say(f"Voxels of {' x '.join(f'{size:.4g}' for size in sizes)} mm.")
    facts = {**plan.to_dict(), **made, "residuals": list(residuals)}
    scattered.finish(asked, facts, progress.timings, f"{'magnitude, ' * magnitude}{scattered.words(y)}")
