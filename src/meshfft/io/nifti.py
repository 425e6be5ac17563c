"""NIfTI files: nibabel reads the header and the voxels, after checks of sizes and offsets.

The image's dimensions are first and the coils last, the fourth at least: (x, y, z, coils). Invariant: a .nii.gz file is
unpacked to no more than its header needs.
"""

import contextlib
import gzip
import io
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..extras import need
from .flat import FlatSink, checked_sink, sink_behind
from .grid import Box
from .refusals import Refused, check_numbers, readable, unchanged
from .source import FORMATS, Format, Header, Source, assigning, source_of

if TYPE_CHECKING:
    import nibabel

SUFFIXES = (".nii", ".nii.gz")
HEAD_BYTES = 540  # of the longer header
MOST_OFFSET = 2**26  # bytes between header and voxels
TRAILING = 2**20  # bytes allowed behind the voxels
COPY_BYTES = 2**20
MOST_DIMENSIONS, MOST_SIZE, NO_EXTENSION = 7, 2**15 - 1, bytes(4)  # of NIfTI-1
SPACE = 3  # dimensions of space
SCANNER = 1  # code of scanner coordinates


def checked_affine(affine: np.ndarray, what: str) -> list[list[float]]:
    with np.errstate(over="ignore"):
        stored = np.asarray(affine, np.float32).astype(float)  # NIfTI's precision
    if stored.shape != (4, 4) or not np.isfinite(stored).all() or (stored[3] != (0, 0, 0, 1)).any():
        raise ValueError(f"{what} is no affine: give 4 x 4 numbers, the last row 0 0 0 1")
    if np.linalg.matrix_rank(stored[:3, :3]) < 3:
        raise ValueError(f"{what} puts all voxels into a plane: give an affine that has an inverse")
    return np.asarray(affine, float).tolist()


def nifti_affine(path: Path) -> np.ndarray:
    """Affine from voxel indices to mm, as nibabel chooses it. Raises ValueError for other files."""
    need("nibabel", "reading NIfTI")
    packed = path.name.lower().endswith(".gz")
    with readable(path), gzip.open(path) if packed else open(path, "rb") as file:
        return np.asarray(_header(file.read(HEAD_BYTES)).get_best_affine(), float)


def is_nifti(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def coils_first(array: Source, dims: int) -> Source:
    """Maps of a NIfTI file as (coils, ...); any other array unchanged."""
    ones = array.ndim - dims - 1
    if not is_nifti(array.path) or ones < 0 or any(n != 1 for n in array.shape[dims:-1]):
        return array

    def read_box(box: Box, out: np.ndarray) -> None:
        last = np.moveaxis(out, 0, -1)
        array.read((*box[1:], *[slice(0, 1)] * ones, box[0]), np.expand_dims(last, tuple(range(dims, dims + ones))))

    shape = (array.shape[-1], *array.shape[:dims])
    return source_of(array.path, shape, array.dtype, read_box, array.check)


def voxels(image: jax.Array, dims: int, magnitude: bool) -> jax.Array:
    """An image in NIfTI's order, the coils last; or its magnitude."""
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


@contextlib.contextmanager
def _open(path: Path, _: str | None) -> Iterator[Source]:
    import nibabel

    check = unchanged(path)
    with _unpacked(path) as plain:
        check()
        image: Any = nibabel.load(plain, mmap=False)
        proxy = image.dataobj
        needed = proxy.offset + math.prod(proxy.shape) * proxy.dtype.itemsize
        if os.path.getsize(plain) < needed:
            raise ValueError(f"{os.path.getsize(plain)} bytes, its header needs {needed}")
        dtype = proxy[tuple(slice(0, 1) for _ in proxy.shape)].dtype  # the proxy's own is that before scaling
        units, spacing = _scales(image.header, len(proxy.shape))
        still = check if plain == path else lambda: None
        yield source_of(path, proxy.shape, dtype, assigning(proxy), still, fortran=True, units=units, spacing=spacing)


def _scales(header: "nibabel.Nifti1Header", ndim: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
    units = ("unknown",) * ndim
    with contextlib.suppress(KeyError):
        space, time = header.get_xyzt_units()
        units = (*(space,) * 3, time, *units)[:ndim]
    known = [math.isfinite(size) and size > 0 for size in header.get_zooms()]
    sizes = [float(size) if ok else 1.0 for size, ok in zip(header.get_zooms(), known, strict=True)]
    named = [unit if ok and unit != "unknown" else "" for unit, ok in zip(units, known, strict=True)]
    return tuple(named), tuple(sizes)


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The file without gzip, which slices would unpack each time, unverified."""
    if path.suffix.lower() != ".gz":
        yield path
        return
    needed, folder = _needed(path), tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < needed:
        room = f"{path} is unpacked to {needed / 1e9:.3g} GB in {folder}, which has {free / 1e9:.3g} GB free"
        raise Refused(f"{room}: free some, or unpack it elsewhere")
    with tempfile.NamedTemporaryFile(suffix=".nii") as plain:
        with gzip.open(path) as packed:
            _copy(packed, plain, needed + TRAILING)
        plain.flush()
        yield Path(plain.name)


def _needed(path: Path) -> int:
    with gzip.open(path) as packed:
        header = _header(packed.read(HEAD_BYTES))
    shape, dtype, offset = header.get_data_shape(), header.get_data_dtype(), int(header.get_data_offset())
    check_numbers(path, shape, dtype)
    if not 0 <= offset <= MOST_OFFSET:
        raise ValueError(f"its voxels begin after {offset} bytes")
    return int(offset + math.prod(shape) * dtype.itemsize)


def _header(head: bytes) -> "nibabel.Nifti1Header":
    import nibabel

    kinds = [kind for kind in (nibabel.Nifti1Header, nibabel.Nifti2Header) if kind.may_contain_header(head)]
    if len(kinds) != 1:
        raise ValueError("no header of NIfTI")
    return kinds[0].from_fileobj(io.BytesIO(head), check=False)


def _copy(packed: gzip.GzipFile, plain: IO[bytes], most: int) -> None:
    while block := packed.read(COPY_BYTES):
        most -= len(block)
        if most < 0:
            raise ValueError("it unpacks to more than its header needs")
        plain.write(block)


def _create(path: Path, header: Header) -> FlatSink:
    import nibabel

    made = nibabel.Nifti1Header()
    made.set_data_dtype(header.dtype)
    made.set_data_shape(header.shape)
    if header.affine is not None:
        made.set_xyzt_units("mm")
        made.set_qform(header.affine, 0)  # sizes of voxels; approximate if the affine shears
    made.set_sform(np.eye(4) if header.affine is None else header.affine, SCANNER)
    made["vox_offset"] = len(made.binaryblock) + len(NO_EXTENSION)
    with open(path, "xb") as file:
        file.write(made.binaryblock + NO_EXTENSION)
        return sink_behind(path, file, header.shape, header.dtype, fortran=True)


def _reopen(path: Path) -> FlatSink:
    import nibabel

    with open(path, "rb+") as file:
        made = nibabel.Nifti1Header.from_fileobj(file)
    return checked_sink(path, made.get_data_shape(), True, made.get_data_dtype(), int(made.get_data_offset()))


def _check(_: Path, header: Header) -> None:
    shape, affine = header.shape, header.affine
    if len(shape) > MOST_DIMENSIONS or max(shape, default=1) > MOST_SIZE:
        most = f"of at most {MOST_DIMENSIONS} dimensions of {MOST_SIZE}"
        raise ValueError(f"shape {shape} is more than NIfTI has room for, an array {most}: write .npy or .zarr")
    if affine is not None:
        checked_affine(affine, "the affine given")


NIFTI = Format("NIfTI", _open, _create, _reopen, "nibabel", named=False, image=True, lacks="?e", check=_check)
FORMATS |= dict.fromkeys(SUFFIXES, NIFTI)
