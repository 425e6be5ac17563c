"""Array files, read by slices: NumPy, NIfTI, HDF5 and Zarr behind one small record.

A `Source` has the shape and the native-order dtype of the array in the file, and `source[slices]` reads those positions
and no others; so `shard` fetches every device's block by itself and the whole array is never in memory.
"""

import contextlib
import dataclasses
import gzip
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import check
from ..extras import need

COPY_BYTES = 2**20
DTYPES = tuple(np.dtype(code) for code in "?bBhHiIlLqQefdFD")
DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zlib.error)  # what readers raise on it


@dataclasses.dataclass(frozen=True)
class Source:
    """An array in a file: its path, shape and dtype, and a function reading slices of it."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[Any], Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Reads the positions at `index` (slices or integers) as a NumPy array of this source's dtype."""
        with _readable(self.path):
            return np.asarray(self.read(index)).astype(self.dtype, copy=False)

    def astype(self, dtype: Any) -> "Source":
        """The same array, every slice converted to `dtype` as it is read."""
        return dataclasses.replace(self, dtype=np.dtype(dtype))


@contextlib.contextmanager
def open_array(path: str | Path, dataset: str | None = None) -> Iterator[Source]:
    """Opens the array in a .npy, .nii, .nii.gz, .h5, .hdf5 or .zarr file for reading by slices.

    NIfTI voxels come scaled by the header's slope and intercept, as nibabel gives them. A .nii.gz file is first
    unpacked to the folder for temporary files.

    Args:
        path: the file, or the folder of a Zarr store.
        dataset: the array's name inside an HDF5 file or a Zarr group; may be left out where there is only one.

    Yields:
        A `Source`, valid inside the `with` block.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the suffix is unknown, the file is damaged, the dataset is not there, or it does not hold numbers.
        ImportError: the package that reads this kind of file is missing.

    Example:
        >>> with open_array("brain.nii.gz") as voxels:  # doctest: +SKIP
        ...     x = mf.shard(voxels, mesh, P("x", "y"))
    """
    path = Path(path)
    suffix = _suffix(path, dataset)
    with contextlib.ExitStack() as stack:
        with _readable(path):
            source = stack.enter_context(OPENERS[suffix](path, dataset))
        yield source


class _Refused(ValueError):
    """A line that is clear already: `_readable` adds nothing to it."""


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns whatever a reader raises on a damaged file into one ValueError that names the file."""
    try:
        yield
    except _Refused:
        raise
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno:  # the system's own word: no permission, no room, a failing disk
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{path} cannot be read, it is damaged or cut short ({reason}): make or copy it anew"
        ) from error


def _suffix(path: Path, dataset: str | None) -> str:
    suffix = next((s for s in OPENERS if path.name.lower().endswith(s)), "")
    check(path.exists(), f"{path} does not exist: give the path of an array file", FileNotFoundError)
    check(suffix != "", f"{path} is of no known kind: give a file that ends in {', '.join(OPENERS)}")
    check(path.is_file() or suffix == ".zarr", f"{path} is a folder: give a file, or the folder of a Zarr store")
    named = suffix in (".h5", ".hdf5", ".zarr")
    check(named or dataset is None, f"{path} holds one array without a name: leave out the dataset name {dataset!r}")
    return suffix


def _source(path: Path, array: Any, dtype: np.dtype[Any]) -> Source:
    _check_numbers(path, array.shape, dtype)
    return Source(path, tuple(array.shape), dtype.newbyteorder("="), lambda index: array[index])


def _check_numbers(path: Path, shape: tuple[int, ...] | None, dtype: np.dtype[Any]) -> None:
    wanted = "give an array of integers, or of real or complex numbers of at most 64 bits a part"
    check(not dtype.hasobject, f"{path} holds Python objects or strings, which are not loaded: {wanted}", _Refused)
    check(dtype.newbyteorder("=") in DTYPES, f"{path} holds values of dtype {dtype}: {wanted}", _Refused)
    check(bool(shape), f"{path} holds no array but a single value: give an array of at least one dimension", _Refused)
    check(0 not in (shape or ()), f"{path} holds an empty array of shape {shape}: give one that has values", _Refused)


@contextlib.contextmanager
def _open_npy(path: Path, _: str | None) -> Iterator[Source]:
    with open(path, "rb") as file:
        first = np.lib.format.read_magic(file) == (1, 0)
        header = np.lib.format.read_array_header_1_0(file) if first else np.lib.format.read_array_header_2_0(file)
    _check_numbers(path, header[0], header[2])  # objects and empty arrays cannot be mapped, and say so unclearly
    array = np.lib.format.open_memmap(path, mode="r")
    yield _source(path, array, array.dtype)


@contextlib.contextmanager
def _open_nifti(path: Path, _: str | None) -> Iterator[Source]:
    nibabel = need("nibabel", "reading NIfTI")
    with _unpacked(path) as plain:
        try:
            proxy: Any = nibabel.load(plain).dataobj
        except nibabel.filebasedimages.ImageFileError as error:
            raise ValueError(str(error)) from error
        corner = proxy[tuple(slice(0, 1) for _ in proxy.shape)]  # the proxy's own dtype is that before scaling
        yield _source(path, proxy, corner.dtype)


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
def _open_hdf5(path: Path, dataset: str | None) -> Iterator[Source]:
    h5py = need("h5py", "reading HDF5")
    with h5py.File(path, "r") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        array = file[_choose(path, names, dataset)]
        yield _source(path, array, array.dtype)


@contextlib.contextmanager
def _open_zarr(path: Path, dataset: str | None) -> Iterator[Source]:
    zarr = need("zarr", "reading Zarr")
    check(is_zarr(path), f"{path} is not a Zarr store, it has no zarr.json, .zarray or .zgroup: give one", _Refused)
    root = zarr.open(path, mode="r")
    whole = isinstance(root, zarr.Array)
    check(not whole or dataset is None, f"{path} is one array without datasets: leave out {dataset!r}", _Refused)
    array = root if whole else root[_choose(path, _zarr_names(root), dataset)]
    yield _source(path, array, array.dtype)


def is_zarr(path: Path) -> bool:
    """True for the folder of a Zarr array or group, of format 2 or 3."""
    return path.is_dir() and any((path / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup"))


def _zarr_names(group: Any) -> list[str]:
    return sorted(name for name, member in group.members(max_depth=None) if hasattr(member, "dtype"))


def _choose(path: Path, names: Sequence[str], dataset: str | None) -> str:
    """The name asked for, or the only one there is."""
    check(len(names) > 0, f"{path} has no dataset: give a file that has one", _Refused)
    listed = ", ".join(names)
    if dataset is None:
        check(len(names) == 1, f"{path} has {len(names)} datasets ({listed}): name one of them", _Refused)
        return names[0]
    check(
        dataset.strip("/") in names, f"{path} has no dataset {dataset!r}, it has {listed}: name one of those", _Refused
    )
    return dataset


OPENERS: dict[str, Callable[[Path, str | None], contextlib.AbstractContextManager[Source]]] = {
    ".npy": _open_npy,
    ".nii": _open_nifti,
    ".nii.gz": _open_nifti,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
    ".zarr": _open_zarr,
}
