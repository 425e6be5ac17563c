"""NumPy, NIfTI and HDF5 files, each opened as a `Source`.

No file is mapped: a map of one that is cut short meanwhile ends the process. Nothing in a file makes another one be
read, and nothing in it is run: pickles, external links and storage, and virtual datasets are refused.
"""

import contextlib
import gzip
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
from .source import Refused, Source, assigning, check_numbers, choose, source_of
from .steady import Steady

COPY_BYTES = 2**20


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
    with tempfile.NamedTemporaryFile(suffix=".nii") as plain:
        with gzip.open(path) as packed:
            shutil.copyfileobj(packed, plain, COPY_BYTES)
        plain.flush()
        yield Path(plain.name)


@contextlib.contextmanager
def open_hdf5(path: Path, dataset: str | None) -> Iterator[Source]:
    h5py, steady = need("h5py", "reading HDF5"), Steady(path)
    with h5py.File(path, "r") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        links: list[str] = []
        file.visititems_links(lambda name, link: links.append(name) if isinstance(link, h5py.ExternalLink) else None)
        away = f"{path} has links to other files ({', '.join(links[:20])}), which are not followed"
        asked = links if dataset is None and not names else [at for at in links if _leads(at, dataset)]
        check(not asked, f"{away}: give that file", Refused)
        array = file[choose(path, names, dataset)]
        _check_own(path, array)
        yield source_of(path, array.shape, array.dtype, steady.reading(assigning(array)), chunk=array.chunks)


def _leads(link: str, dataset: str | None) -> bool:
    """Whether a dataset would be reached through the link."""
    return f"{(dataset or '').strip('/')}/".startswith(f"{link}/")


def _check_own(path: Path, array: Any) -> None:
    """Raises Refused where the numbers lie in other files: a file could so name any that its reader may read."""
    check(not array.external, f"{path} keeps {array.name} in other files, which are not read: copy it", Refused)
    virtual = f"{path} puts {array.name} together from other datasets: give the files these are in, or copy it"
    check(not array.is_virtual, virtual, Refused)
