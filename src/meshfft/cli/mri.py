"""Content of MRI files for `meshfft reconstruct`: the readouts of a scan, its sizes, and its affine.

    position in mm = affine @ (i, j, k, 1)     of the voxel with these indices along X, Y and Z

The affine is that of the flags, or of the NIfTI file of the maps, or follows from the sizes of an ISMRMRD file. NIfTI
has the dimensions of the image first and the coils last, the fourth at least: (x, y, z, coils).
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..io import Source, open_array
from ..io.grid import Box
from ..io.ismrmrd import Scan, encodings_of, read_scan
from ..io.ismrmrd import is_scan as is_scan
from ..io.nifti import checked_affine, nifti_affine
from ..io.refusals import readable
from ..io.source import source_of
from .cluster import everywhere
from .flags import option
from .scattered import Asked, Opened, check_unit_name, dataset_in, points_at, read_points

MOST_TEXT = 4096  # bytes of a text file with 4 x 4 numbers
NIFTI = (".nii", ".nii.gz")
SPACE = 3  # dimensions of space, the first of NIfTI

Affine = tuple[tuple[float, ...], ...]
Select = Annotated[str, option("NAME=I,...", "Readouts of ISMRMRD: slice=2,repetition=0, or phase=all.")]
Voxel = Annotated[str | None, option("X,X,...", "Size of a voxel along each dimension, in mm: 1.5,1.5,3.")]
AffineFile = Annotated[Path | None, option("FILE", "Where voxels are: a NIfTI file, or 4 x 4 numbers in .npy, .txt.")]


@contextlib.contextmanager
def measured(asked: Asked) -> Iterator[Opened]:
    """The data of the coils, their points, and the flags with the unit of computed points and an affine."""
    more = {**asked.more, "affine": everywhere(lambda: _affine(asked))}
    asked, source, dataset = asked._replace(more=more), asked.source, asked.files.dataset
    if not is_scan(source, dataset):
        if more["select"]:
            raise ValueError(f"{source} is no ISMRMRD file, of which --select takes readouts: leave it out")
        with open_array(source, dataset_in(source, dataset, "kspace")) as array:
            yield asked, array, everywhere(lambda: read_points(asked, None))
        return
    inside = asked.points is None
    scan = everywhere(lambda: read_scan(source, dataset, more["select"], trajectory=inside))
    asked.files.reporter.say(f"{source}: {scan.words}.")
    asked = _with_unit(asked, scan) if inside else asked
    read = partial(points_at, asked, scan.points, source) if inside else partial(read_points, asked, None)
    yield asked, scan.values, everywhere(read)


def _with_unit(asked: Asked, scan: Scan) -> Asked:
    """The flags with the unit of a scan's points; refuses another."""
    sizes, unit = scan.encoding.sizes, asked.points_unit
    if scan.cartesian and unit not in (None, "turns"):
        turns = f"{asked.source} is Cartesian and its points are computed, in turns"
        raise ValueError(f"{turns}: leave out --points-unit {unit}")
    if not scan.cartesian:
        check_unit_name(unit)
    if unit == "field-of-view" and asked.shape != sizes:
        both = f"{asked.source} encodes a field of view of {sizes} pixels, --shape has {asked.shape}"
        raise ValueError(f"{both}: leave out --shape, or give the points in turns")
    return asked._replace(points_unit=unit or "turns")


def sizes_in(source: Path, dataset: str | None) -> tuple[int, ...] | None:
    if not is_scan(source, dataset):
        return None
    found = {one.sizes for one in encodings_of(source, dataset)}
    if len(found) != 1:
        raise ValueError(f"{source} has encoded matrices {sorted(found)}: give --shape N,N,...")
    return found.pop()


def _affine(asked: Asked) -> Affine | None:
    """The affine of the flags, else of the maps, else of the scan, if the output can store one."""
    given: Affine | None = asked.more["affine"]
    maps: Path | None = asked.more["maps"]
    if given is not None or asked.target.suffix == ".npy":
        return given
    if maps and is_nifti(maps):
        return _rows(nifti_affine(maps), f"that of {maps}")
    sizes = _voxel_in(asked)
    return None if sizes is None else affine_of_sizes(sizes, asked.shape or (), asked.origin)


def _voxel_in(asked: Asked) -> tuple[float, ...] | None:
    """Sizes in mm of a pixel, and the thickness of a plane; None unless the header has them for these points."""
    found = (
        set(encodings_of(asked.source, asked.files.dataset)) if is_scan(asked.source, asked.files.dataset) else set()
    )
    if asked.points is not None or len(found) != 1:
        return None
    (one,) = found
    if len(asked.shape or ()) != len(one.sizes) or min(one.field_of_view) <= 0:
        return None
    return tuple(size / n for size, n in zip(one.field_of_view, one.matrix, strict=True))


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(NIFTI)


def read_affine(
    voxel: str | None, file: Path | None, shape: tuple[int, ...], origin: str, target: Path
) -> Affine | None:
    if voxel is None and file is None:
        return None
    flag = "--affine" if voxel is None else "--voxel"
    if voxel is not None and file is not None:
        raise ValueError("--affine has the size of voxels: leave out --voxel")
    if target.suffix == ".npy":
        raise ValueError(f"{target} has no room for {flag}: write .nii, .nii.gz or .zarr, or leave it out")
    if len(shape) > SPACE:
        raise ValueError(f"{flag} is of at most 3 dimensions, and --shape has {len(shape)}: leave it out")
    return _affine_in(file) if file is not None else affine_of_sizes(_voxel_sizes(voxel or "", shape), shape, origin)


def affine_of_sizes(sizes: Sequence[float], shape: tuple[int, ...], origin: str) -> Affine:
    """The affine of axes along X, Y and Z; a plane's sizes may include its thickness."""
    affine = np.diag([*sizes, *(1.0,) * (4 - len(sizes))])
    for dim, n in enumerate(shape if origin == "centre" else ()):
        affine[dim, 3] = -sizes[dim] * (n // 2)
    return _rows(affine, f"a voxel of {' x '.join(map(str, sizes))} mm")


def _voxel_sizes(text: str, shape: tuple[int, ...]) -> list[float]:
    try:
        sizes = [float(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) != len(shape) or not all(0 < size < math.inf for size in sizes):
        example = ",".join(["1.5"] * len(shape))
        raise ValueError(f"--voxel {text!r} is no size of {len(shape)} dimensions: give each in mm, as {example}")
    return sizes


def _affine_in(path: Path) -> Affine:
    if not path.is_file():
        raise FileNotFoundError(f"--affine {path} is no file: give a NIfTI file, or 4 x 4 numbers in .npy or .txt")
    if is_nifti(path):
        return _rows(nifti_affine(path), f"--affine {path}")
    with readable(path):
        if path.suffix == ".npy":
            with open_array(path) as source:
                found = source[...] if source.shape == (4, 4) else np.empty(0)
        else:
            with open(path, encoding="utf-8") as file:
                found = np.array([line.split() for line in file.read(MOST_TEXT).splitlines() if line.strip()], float)
    return _rows(found, f"--affine {path}")


def _rows(affine: np.ndarray, what: str) -> Affine:
    return tuple(tuple(map(float, row)) for row in checked_affine(affine, what))


def size_words(affine: Affine, dims: int) -> str:
    sizes = np.linalg.norm(np.array(affine)[:3, :dims], axis=0)
    return f"Voxels of {' x '.join(f'{size:.4g}' for size in sizes)} mm."


def coils_first(array: Source, dims: int) -> Source:
    """Maps of a NIfTI file as (coils, ...); any other array as it is."""
    ones = array.ndim - dims - 1
    if not is_nifti(array.path) or ones < 0 or any(n != 1 for n in array.shape[dims:-1]):
        return array

    def read_box(box: Box, out: np.ndarray) -> None:
        last = np.moveaxis(out, 0, -1)
        array.read((*box[1:], *[slice(0, 1)] * ones, box[0]), np.expand_dims(last, tuple(range(dims, dims + ones))))

    shape = (array.shape[-1], *array.shape[:dims])
    return source_of(array.path, shape, array.dtype, read_box, array.check)


def voxels(image: jax.Array, dims: int, magnitude: bool) -> jax.Array:
    """An image in the order of NIfTI, the coils last; or its magnitude."""
    coils, ones = image.ndim > dims, max(0, SPACE - dims)

    def moved(x: jax.Array) -> jax.Array:
        y = jnp.abs(x) if magnitude else x
        return jnp.expand_dims(jnp.moveaxis(y, 0, -1), tuple(range(dims, dims + ones))) if coils else y

    sharding, out = image.sharding, None
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        cut = (*sharding.spec, *(None,) * (image.ndim - len(sharding.spec)))
        spec = PartitionSpec(*cut[1:], *(None,) * ones, cut[0]) if coils else sharding.spec
        out = NamedSharding(sharding.mesh, spec)
    made: jax.Array = jax.jit(moved, out_shardings=out)(image)
    return made
