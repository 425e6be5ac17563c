"""Array files, read by slices: NumPy, NIfTI, HDF5 and Zarr behind one small record.

A `Source` has the shape and the native-order dtype of the array in the file, and `source[slices]` reads those positions
and no others; so `shard` fetches every device's block by itself and the full array is never in memory.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from .formats.hdf5 import open_hdf5
from .formats.numpy_nifti import open_nifti, open_npy
from .formats.source import Source, readable
from .formats.zarr import open_zarr

OPENERS: dict[str, Callable[[Path, str | None], contextlib.AbstractContextManager[Source]]] = {
    ".npy": open_npy,
    ".nii": open_nifti,
    ".nii.gz": open_nifti,
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
    ".nc": open_hdf5,
    ".zarr": open_zarr,
}


@contextlib.contextmanager
def open_array(path: str | Path, dataset: str | None = None) -> Iterator[Source]:
    """Opens the array in a .npy, .nii, .nii.gz, .h5, .hdf5, .nc or .zarr file for reading by slices.

    NIfTI voxels come scaled by the header's slope and intercept, as nibabel gives them. A .nii.gz file is first
    unpacked to the folder for temporary files. A missing chunk of a Zarr store means zeros, as Zarr has it, but in a
    store written here, which is complete. Names, coordinates and attributes of dimensions, as xarray and NetCDF-4 keep
    them, come as `labels`; what is packed by their `scale_factor` and `add_offset` comes unpacked. No other file than
    this is read, whatever it names.

    Args:
        path: the file, or the folder of a Zarr store.
        dataset: the array's name inside an HDF5 file or a Zarr group; may be left out where there is only one that is
            no coordinate of another.

    Yields:
        A `Source`, valid inside the `with` block.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the suffix is unknown, the file is damaged, the dataset is not there, it does not hold numbers, it
            points to other files, or its chunks are larger than 1 GiB.
        ImportError: the package that reads this kind of file is missing.

    >>> with open_array("brain.nii.gz") as voxels:  # doctest: +SKIP
    ...     x = mf.shard(voxels, mesh, P("x", "y"))
    """
    path = Path(path)
    suffix = _suffix(path, dataset)
    with contextlib.ExitStack() as stack:
        with readable(path):
            source = stack.enter_context(OPENERS[suffix](path, dataset))
        yield source


def _suffix(path: Path, dataset: str | None) -> str:
    suffix = next((s for s in OPENERS if path.name.lower().endswith(s)), "")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the path of an array file")
    if not suffix:
        raise ValueError(f"{path} is of no known kind: give a file that ends in {', '.join(OPENERS)}")
    if not path.is_file() and suffix != ".zarr":
        raise ValueError(f"{path} is a folder or a device: give a file, or the folder of a Zarr store")
    if OPENERS[suffix] in (open_npy, open_nifti) and dataset is not None:
        raise ValueError(f"{path} holds one array without a name: leave out the dataset name {dataset!r}")
    return suffix
