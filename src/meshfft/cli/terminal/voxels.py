"""Where the voxels of a reconstructed image are, and how NIfTI has its dimensions.

    position in mm = affine @ (i, j, k, 1)     of the voxel with these indices along X, Y and Z

from the flags, from the NIfTI file of the maps, or of the sizes that a scanner says. NIfTI has the dimensions of the
image first and the coils last, the fourth at least: (x, y, z, coils).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...io import Source, open_array
from ...io.formats.numpy_nifti import checked_affine, nifti_affine
from ...io.formats.source import Box, readable, source_of

Affine = tuple[tuple[float, ...], ...]
NIFTI = (".nii", ".nii.gz")
SPACE = 3  # dimensions of NIfTI's before all others
MOST_TEXT = 4096  # bytes of 4 x 4 numbers

VOXEL = typer.Option(metavar="X,X,...", help="Size of a voxel along each dimension, in mm: 1.5,1.5,3.")
AFFINE = typer.Option(metavar="FILE", help="Where voxels are: a NIfTI file, or 4 x 4 numbers in .npy, .txt.")
Voxel = Annotated[str | None, VOXEL]
AffineFile = Annotated[Path | None, AFFINE]


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(NIFTI)


def read_affine(
    voxel: str | None, file: Path | None, shape: tuple[int, ...], origin: str, target: Path
) -> Affine | None:
    """The affine that is asked for; None where none is."""
    if voxel is None and file is None:
        return None
    flag = "--affine" if voxel is None else "--voxel"
    if voxel is not None and file is not None:
        raise ValueError("--affine has the size of voxels: leave out --voxel")
    if target.suffix == ".npy":
        raise ValueError(f"{target} has no room for {flag}: write .nii, .nii.gz or .zarr, or leave it out")
    if len(shape) > SPACE:
        raise ValueError(f"{flag} is of at most 3 dimensions, and --shape has {len(shape)}: leave it out")
    return _rows(_in_file(file)) if file is not None else affine_of_sizes(_sizes(voxel or "", shape), shape, origin)


def affine_of_maps(path: Path | None) -> Affine | None:
    """The affine of maps in a NIfTI file."""
    return _rows(checked_affine(nifti_affine(path), f"that of {path}")) if path and is_nifti(path) else None


def size_words(affine: Affine, dims: int) -> str:
    """The sizes of voxels along the dimensions of an image."""
    sizes = np.linalg.norm(np.array(affine)[:3, :dims], axis=0)
    return f"Voxels of {' x '.join(f'{size:.4g}' for size in sizes)} mm."


def _rows(affine: np.ndarray) -> Affine:
    return tuple(tuple(map(float, row)) for row in affine)


def affine_of_sizes(sizes: Sequence[float], shape: tuple[int, ...], origin: str) -> Affine:
    """The pixel from which an image counts is in the origin of space, and dimensions run along its axes.

    Args:
        sizes: of a voxel, in mm, along each dimension; of a plane, also its thickness.
        shape, origin: of the image.
    """
    affine = np.diag([*sizes, *(1.0,) * (4 - len(sizes))])
    for dim, n in enumerate(shape if origin == "centre" else ()):
        affine[dim, 3] = -sizes[dim] * (n // 2)
    return _rows(checked_affine(affine, f"a voxel of {' x '.join(map(str, sizes))} mm"))


def _sizes(text: str, shape: tuple[int, ...]) -> list[float]:
    try:
        sizes = [float(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) != len(shape) or not all(0 < size < math.inf for size in sizes):
        example = ",".join(["1.5"] * len(shape))
        raise ValueError(f"--voxel {text!r} is no size of {len(shape)} dimensions: give each in mm, as {example}")
    return sizes


def _in_file(path: Path) -> np.ndarray:
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


def coils_first(array: Source, dims: int) -> Source:
    """Maps in a NIfTI file as (coils, ...); others as they are, and what is no array of maps."""
    ones = array.ndim - dims - 1
    if not is_nifti(array.path) or ones < 0 or any(n != 1 for n in array.shape[dims:-1]):
        return array

    def read_box(box: Box, out: np.ndarray) -> None:
        last = np.moveaxis(out, 0, -1)
        array.read((*box[1:], *[slice(0, 1)] * ones, box[0]), np.expand_dims(last, tuple(range(dims, dims + ones))))

    shape = (array.shape[-1], *array.shape[:dims])
    return source_of(array.path, shape, array.dtype, read_box, array.check)


def voxels(image: jax.Array, dims: int, magnitude: bool) -> jax.Array:
    """An image as NIfTI has it: its magnitude, if so asked, and the coils last."""
    coils, ones = image.ndim > dims, max(0, SPACE - dims)

    def moved(x: jax.Array) -> jax.Array:
        y = jnp.abs(x) if magnitude else x
        return jnp.expand_dims(jnp.moveaxis(y, 0, -1), tuple(range(dims, dims + ones))) if coils else y

    sharding = image.sharding
    if not isinstance(sharding, NamedSharding) or not isinstance(sharding.mesh, Mesh):
        return jax.jit(moved)(image)
    cut = (*sharding.spec, *(None,) * (image.ndim - len(sharding.spec)))
    spec = PartitionSpec(*cut[1:], *(None,) * ones, cut[0]) if coils else sharding.spec
    return jax.jit(moved, out_shardings=NamedSharding(sharding.mesh, spec))(image)
