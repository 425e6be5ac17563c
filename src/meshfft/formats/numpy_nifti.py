"""NumPy and NIfTI files, each opened as a `Source`.

No file is mapped: a map of one that is cut short meanwhile ends the process. Nothing in a
file is run: pickles are refused.
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
from typing import IO, Any

import numpy as np

from ..errors import check
from ..extras import need
from .grid import PIECE_BYTES, Box
from .positions import Numbers
from .source import Refused, Source, assigning, check_numbers, source_of
from .steady import Steady

COPY_BYTES = 2**20
HEAD_BYTES = 540  # of the longer of the two headers
MOST_OFFSET = 2**26  # of extensions between header and voxels
TRAILING = 2**20  # what may follow the voxels
GZIP_RATIO = 1032  # of deflate, at most


@contextlib.contextmanager
def open_npy(path: Path, _: str | None) -> Iterator[Source]:
    steady = Steady(path)
    with open(path, "rb") as file:
        shape, fortran, dtype, offset = npy_header(path, file)
        have = os.fstat(file.fileno()).st_size - offset
        check(have >= math.prod(shape) * dtype.itemsize, f"{have} bytes of numbers for shape {shape}")
        turn = slice(None, None, -1 if fortran else 1)  # the first dimension is then the last on the disk
        numbers = Numbers(file.fileno(), offset, shape[turn], dtype)

        def read(box: Box, out: np.ndarray) -> None:
            numbers.read(box[turn], out.T if fortran else out)

        chunk = _run(shape[turn], dtype.itemsize)[turn]
        yield source_of(path, shape, dtype, steady.reading(read), chunk=chunk, fortran=fortran)


def _run(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Whole inner dimensions, as many as one piece may have."""
    whole = [math.prod(shape[dim:]) * itemsize <= PIECE_BYTES for dim in range(len(shape))]
    return tuple(n if fits else 1 for n, fits in zip(shape, whole, strict=True))


def npy_header(path: Path, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether in Fortran order, dtype, and where the numbers begin.

    Raises:
        ValueError: it is no .npy file, or one of objects.
    """
    version = np.lib.format.read_magic(file)
    check(version in ((1, 0), (2, 0), (3, 0)), f"format {version}")
    wide = version != (1, 0)
    shape, fortran, dtype = (
        np.lib.format.read_array_header_2_0(file) if wide else np.lib.format.read_array_header_1_0(file)
    )
    check_numbers(path, shape, dtype)
    return shape, fortran, dtype, file.tell()


@contextlib.contextmanager
def open_nifti(path: Path, _: str | None) -> Iterator[Source]:
    nibabel, steady = need("nibabel", "reading NIfTI"), Steady(path)
    with _unpacked(path) as plain:
        steady.check()
        image = nibabel.load(plain, mmap=False)
        proxy: Any = image.dataobj
        end = proxy.offset + math.prod(proxy.shape) * proxy.dtype.itemsize
        check(os.path.getsize(plain) >= end, f"{os.path.getsize(plain)} bytes, its header tells of {end}")
        corner = proxy[tuple(slice(0, 1) for _ in proxy.shape)]  # the proxy's own dtype is that before scaling
        units, spacing = _scales(image.header, len(proxy.shape))
        read = assigning(proxy) if plain != path else steady.reading(assigning(proxy))
        yield source_of(path, proxy.shape, corner.dtype, read, fortran=True, units=units, spacing=spacing)


def _scales(header: Any, ndim: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Units and sizes of voxels; a size that is none counts as 1 without a unit."""
    units = ("unknown",) * ndim
    with contextlib.suppress(KeyError):  # a code of no unit
        space, time = header.get_xyzt_units()
        units = (*(space,) * 3, time, *("unknown",) * ndim)[:ndim]
    known = [math.isfinite(size) and size > 0 for size in header.get_zooms()]
    sizes = [float(size) if ok else 1.0 for size, ok in zip(header.get_zooms(), known, strict=True)]
    named = [unit if ok and unit != "unknown" else "" for unit, ok in zip(units, known, strict=True)]
    return tuple(named), tuple(sizes)


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The file without gzip; slices of that would each be decompressed anew, and none would see its checksum."""
    if path.suffix.lower() != ".gz":
        yield path
        return
    needed = _needed(path)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    what = f"{path} is unpacked to {needed / 1e9:.3g} GB in {tempfile.gettempdir()}, which has {free / 1e9:.3g} GB free"
    check(needed <= free, f"{what}: free some, or unpack it elsewhere", Refused)
    with tempfile.NamedTemporaryFile(suffix=".nii") as plain:
        with gzip.open(path) as packed:
            _copy(packed, plain, needed + TRAILING)
        plain.flush()
        yield Path(plain.name)


def _needed(path: Path) -> int:
    """Bytes of a packed file that its header tells of, once they are seen to be such as it can have."""
    nibabel = need("nibabel", "reading NIfTI")
    with gzip.open(path) as packed:
        head = packed.read(HEAD_BYTES)
    kinds = [kind for kind in (nibabel.Nifti1Header, nibabel.Nifti2Header) if kind.may_contain_header(head)]
    check(len(kinds) == 1, "no header of NIfTI")
    header = kinds[0].from_fileobj(io.BytesIO(head), check=False)
    shape, dtype, offset = header.get_data_shape(), header.get_data_dtype(), int(header.get_data_offset())
    check_numbers(path, shape, dtype)
    needed, most = offset + math.prod(shape) * dtype.itemsize, GZIP_RATIO * path.stat().st_size
    check(0 <= offset <= MOST_OFFSET, f"its voxels begin after {offset} bytes")
    check(needed <= most, f"its header tells of {needed} bytes, gzip keeps no more than {most} in so few")
    return needed


def _copy(packed: gzip.GzipFile, plain: IO[bytes], most: int) -> None:
    while block := packed.read(COPY_BYTES):
        most -= len(block)
        check(most >= 0, "it unpacks to more than its header tells of")
        plain.write(block)
