"""Arrays in files: a `Source` reads boxes, a `Sink` writes them, and each format registers how it makes both.

`source[slices]` reads only these positions, at most 32 MiB or one chunk at a time. Invariant: only the requested values
are in memory at full size.
"""

import contextlib
import dataclasses
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from ..extras import need
from ..layout.storage import Sliceable, aligned
from .grid import BOX_BYTES, Box, ChunkGrid, shape_of, subboxes, within
from .refusals import check_numbers, readable

HEAD_BYTES = 2**16
METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs")

Read = Callable[[Box, np.ndarray], None]


class Coordinate(NamedTuple):
    """Values along some dimensions, or the folder of an unread Zarr array of format 3."""

    name: str
    dims: tuple[str, ...]
    attributes: Mapping[str, object]
    values: np.ndarray | None = None
    folder: Path | None = None


class Labels(NamedTuple):
    """`name` may be empty; `about` has the attributes of the group or file around the array."""

    name: str
    dims: tuple[str, ...]
    attributes: Mapping[str, object] = {}
    coordinates: tuple[Coordinate, ...] = ()
    about: Mapping[str, object] = {}


@dataclasses.dataclass(frozen=True, repr=False)
class Source:
    """An array in a file.

    Attributes:
        path: the file, or the folder of a Zarr store.
        dtype: of slices, in native byte order.
        read: reads a box into an array of the same shape.
        check: raises if the file was written to since it was opened.
        chunk: unit of reading; boxes have complete chunks if they can.
        fortran: whether the first dimension is contiguous.
        units: of each dimension, empty if unknown.
        spacing: of positions along each dimension, in these units; 1.0 if unknown.
        record: of an array by meshfft, as `Record.to_dict` makes it.
        labels: names, coordinates and attributes; None if dimensions have no names.
        name: of the array in its file; empty if such files have one array only.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Read
    check: Callable[[], None]
    chunk: tuple[int, ...]
    fortran: bool
    units: tuple[str, ...]
    spacing: tuple[float, ...]
    record: dict[str, object] | None = None
    labels: Labels | None = None
    name: str = ""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        where = f"{self.path}{f', {self.name}' if self.name else ''}"
        return f"<Source: {self.dtype} {' x '.join(map(str, self.shape))} in {where}>"

    def __getitem__(self, index: object) -> np.ndarray:
        """Reads the positions at `index` (slices without steps, or integers)."""
        box, single = _box(index, self.shape)
        out = aligned(shape_of(box), self.dtype)
        self.into(out, box)
        return out[tuple(0 if one else slice(None) for one in single)]

    def into(self, out: np.ndarray, box: Box) -> None:
        with readable(self.path):
            try:
                for part in subboxes(box, self.chunk, self.dtype.itemsize, BOX_BYTES, fortran=self.fortran):
                    self.read(part, out[within(part, box)])
            finally:
                self.check()

    def astype(self, dtype: DTypeLike) -> "Source":
        return dataclasses.replace(self, dtype=np.dtype(dtype))


class Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype
    grid: ChunkGrid  # of a Zarr store
    labels: Labels
    attributes: Mapping[str, object]
    affine: np.ndarray | None = None  # from indices to mm


class Sink(Protocol):
    @property
    def path(self) -> Path: ...

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        """Parts of a box that fill whole files: one file, or several within `most` bytes."""

    def write(self, at: Box, block: np.ndarray) -> None:
        """Writes a block to a box; the block may be changed afterwards."""

    def flush(self) -> None:
        """Returns when this process's data would survive a loss of power."""

    def missing(self) -> str:
        """How many of the array's files exist; empty if all do."""


class Format(NamedTuple):
    """How a kind of file is read and written.

    Attributes:
        title: its name in messages.
        open: opens the array, or the one of this name.
        create: makes a file of full size, or a store without chunks.
        reopen: opens that in other processes.
        package: of the extra "files"; empty for NumPy.
        named: several named arrays in a file, perhaps in chunks.
        image: only images of space, no transforms.
        folder: a folder of files.
        lacks: codes of types that it cannot store.
        is_one: whether a path is such a file.
        check: raises ValueError for a header that it cannot store for another reason.
    """

    title: str
    open: Callable[[Path, str | None], contextlib.AbstractContextManager[Source]]
    create: Callable[[Path, Header], Sink]
    reopen: Callable[[Path], Sink]
    package: str = ""
    named: bool = True
    image: bool = False
    folder: bool = False
    lacks: str = ""
    is_one: Callable[[Path], bool] = Path.is_file
    check: Callable[[Path, Header], None] = lambda path, header: None


FORMATS: dict[str, Format] = {}  # by suffix; each format's module adds it


def results() -> tuple[str, ...]:
    """Suffixes of formats for any transform."""
    return tuple(suffix for suffix, one in FORMATS.items() if not one.image)


def format_in(path: Path) -> Format | None:
    """The format of a file to read; suffixes in either case."""
    return next((one for suffix, one in FORMATS.items() if path.name.lower().endswith(suffix)), None)


def has_names(path: Path) -> bool:
    format = format_in(path)
    return format is not None and format.named


def is_bare(path: Path) -> bool:
    """Whether its format has room for one array, and for nothing about it."""
    format = format_in(path)
    return format is not None and not (format.named or format.image)


@contextlib.contextmanager
def open_array(path: str | Path, dataset: str | None = None) -> Iterator[Source]:
    """Opens the array in a .npy, .nii, .nii.gz, .h5, .hdf5, .nc or .zarr file for reading by slices.

    NIfTI voxels are scaled by the header's slope and intercept. A .nii.gz file is first unpacked to the folder for
    temporary files. A missing chunk of a Zarr store has its fill value; in meshfft's stores it is refused. Numbers
    packed by `scale_factor` and `add_offset` are unpacked. Links to other files are not followed.

    Args:
        path: the file, or the folder of a Zarr store.
        dataset: the array's name in an HDF5 file or a Zarr group; optional if all arrays but one are coordinates.

    Yields:
        A `Source`, valid inside the `with` block.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the suffix is unknown, the file is damaged, the dataset is missing, has no numbers or refers to
            other files, or its chunks are larger than 1 GiB.
        ImportError: the package that reads such files is missing.

    >>> with open_array("brain.nii.gz") as voxels:  # doctest: +SKIP
    ...     x = mf.shard(voxels, mesh, P("x", "y"))
    """
    path = Path(path)
    format = format_in(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the path of an array file")
    if format is None:
        raise ValueError(f"{path} is of no known kind: give a file that ends in {', '.join(FORMATS)}")
    if not path.is_file() and not format.folder:
        raise ValueError(f"{path} is a folder or a device: give a file, or the folder of a Zarr store")
    if not format.named and dataset is not None:
        raise ValueError(f"{path} holds one array without a name: leave out the dataset name {dataset!r}")
    if format.package:
        need(format.package, f"reading {format.title}")
    with contextlib.ExitStack() as stack:
        with readable(path):
            source = stack.enter_context(format.open(path, dataset))
        yield source


def source_of(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype,
    read: Read,
    check: Callable[[], None] = lambda: None,
    *,
    chunk: tuple[int, ...] | None = None,
    fortran: bool = False,
    units: tuple[str, ...] | None = None,
    spacing: tuple[float, ...] | None = None,
    name: str = "",
) -> Source:
    check_numbers(path, shape, dtype)
    ndim, plain = len(shape), dtype.newbyteorder("=")
    units, spacing = units or ("",) * ndim, spacing or (1.0,) * ndim
    return Source(path, tuple(shape), plain, read, check, chunk or (1,) * ndim, fortran, units, spacing, name=name)


def identity(source: Source) -> dict[str, object]:
    """Size, time of change and first bytes of a file, to compare between processes, as plain values.

    Reads only the metadata of a Zarr store.
    """
    folders = dict.fromkeys([source.path, source.path / source.name])
    metadata = [folder / name for folder in folders for name in METADATA if (folder / name).is_file()]
    files = [source.path] if source.path.is_file() else metadata
    checksum = 0
    for file in files:
        with open(file, "rb") as opened:
            checksum = zlib.crc32(opened.read(HEAD_BYTES), checksum)
    changed = max((int(file.stat().st_mtime) for file in files), default=0)
    return {
        "an input of": f"{source.dtype} {source.shape}",
        "an input of bytes": sum(file.stat().st_size for file in files),
        "an input that begins with the checksum": f"{checksum:08x}",
        "an input that changed at": datetime.fromtimestamp(changed, UTC).isoformat(),
    }


def assigning(array: Sliceable) -> Read:
    def read(box: Box, out: np.ndarray) -> None:
        out[...] = array[box]

    return read


def _box(index: object, shape: tuple[int, ...]) -> tuple[Box, list[bool]]:
    entries: list[Any] = list(index) if isinstance(index, tuple) else [index]
    at = entries.index(Ellipsis) if Ellipsis in entries else len(entries)
    rest = len(shape) - len(entries[:at]) - len(entries[at + 1 :])
    if rest < 0:
        raise IndexError(f"index {index} has more entries than {shape} has dimensions: leave some out")
    entries[at : at + 1] = [slice(None)] * rest
    return tuple(map(_slice, entries, shape)), [not isinstance(entry, slice) for entry in entries]


def _slice(entry: slice | SupportsIndex, size: int) -> slice:
    if isinstance(entry, slice):
        start, stop, step = entry.indices(size)
        if step != 1:
            raise IndexError(f"slice {entry} has a step: read without one")
        return slice(start, max(start, stop))
    index = operator.index(entry)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range: the dimension has {size} positions")
    return slice(index % size, index % size + 1)
