"""An array in a file as all kinds of files show it: its shape, its dtype, and slices of it.

`source[slices]` reads those positions and no others, at most 32 MiB at a time, or one chunk where a file has larger
ones: what is read is the only thing of its own size in memory. Invariant: whatever a reader raises on a damaged file
becomes one ValueError that names the file.
"""

import contextlib
import dataclasses
import math
import operator
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from .grid import BOX_BYTES, Box, subboxes, within

DTYPES = tuple(np.dtype(code) for code in "?bBhHiIlLqQefdFD")
ALIGNMENT = 64
MOST_BYTES = 2**60  # no file system holds an array that is larger
CHUNK_LIMIT = 2**30  # a chunk is decoded as one
CHUNK_BEYOND = 2**26  # up to here it may have any size, whatever its array has
CHUNK_LEAST, MANY_CHUNKS = 2**12, 2**17  # of smaller chunks, more than that take seconds, however little they hold

Read = Callable[[Box, np.ndarray], None]


class Refused(ValueError):
    """A line that is clear already: `readable` adds nothing to it."""


class Unnamed(Refused):
    """One of several datasets has to be named; a command line puts its own word for `argument`."""

    argument = "dataset="


class Coordinate(NamedTuple):
    """Values along some dimensions; or, unread, the folder of a Zarr array of format 3 that has them."""

    name: str
    dims: tuple[str, ...]
    attributes: Mapping[str, object]
    values: np.ndarray | None = None
    folder: Path | None = None


class Labels(NamedTuple):
    """Of an array: its name, empty for one without; its dimensions and attributes; those of the dataset it is in."""

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
        shape: of the array.
        dtype: of what slices give, in native byte order.
        read: reads a box of it into an array of the same shape.
        check: refuses the file where it was written to since it was opened; called after every read.
        chunk: what the file can give at once; boxes are made of complete ones where they can.
        fortran: whether the first dimension is the one that lies in one run.
        units: of each dimension, empty where the file does not give one.
        spacing: of the positions along each dimension, in these units; 1.0 where the file does not give one.
        record: that of a store written here, as `Record.to_dict` makes it; else None.
        labels: names, coordinates and attributes; None where its dimensions have no names.
        name: of the array within its file, empty where files of its kind have one only.
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
        """Reads the positions at `index` (slices without steps, or integers) as an array of this source's dtype."""
        box, single = _box(index, self.shape)
        out = aligned([s.stop - s.start for s in box], self.dtype)
        self.into(out, box)
        return out[tuple(0 if one else slice(None) for one in single)]

    def into(self, out: np.ndarray, box: Box) -> None:
        """Reads a box into an array of its shape, which may be a part of a larger one."""
        with readable(self.path):
            try:
                for part in subboxes(box, self.chunk, self.dtype.itemsize, BOX_BYTES, fortran=self.fortran):
                    self.read(part, out[within(part, [s.start for s in box])])
            finally:
                self.check()

    def astype(self, dtype: DTypeLike) -> "Source":
        """The same array, every slice converted to `dtype` as it is read."""
        return dataclasses.replace(self, dtype=np.dtype(dtype))


def unchanged(path: Path, file: Path | None = None) -> Callable[[], None]:
    """A check that a file is what it was, by device, inode, size and time of the last change.

    To be made before the file is opened, and called after every read: what was replaced, rewritten or cut meanwhile is
    refused, never handed on. `file` is looked at where it is another than the user named: the metadata of a store.
    """

    def identity() -> tuple[int, ...] | None:
        try:
            found = os.stat(file or path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    before = identity()

    def check() -> None:
        if identity() != before:
            changed = f"{path} was replaced or written to while it was read"
            raise Refused(f"{changed}: begin again when nothing writes to it")

    return check


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
    """A Source of these, once shape and dtype are seen to be right; without chunks any part can be read by itself."""
    check_numbers(path, shape, dtype)
    ndim, plain = len(shape), dtype.newbyteorder("=")
    units, spacing = units or ("",) * ndim, spacing or (1.0,) * ndim
    return Source(path, tuple(shape), plain, read, check, chunk or (1,) * ndim, fortran, units, spacing, name=name)


def check_numbers(path: Path, shape: tuple[int, ...] | None, dtype: np.dtype) -> None:
    """Raises Refused unless it is an array of numbers that can be."""
    wanted = "give an array of integers, or of real or complex numbers of at most 64 bits a part"
    if dtype.hasobject:
        raise Refused(f"{path} holds Python objects or strings, which are not loaded: {wanted}")
    if dtype.newbyteorder("=") not in DTYPES:
        raise Refused(f"{path} holds values of dtype {dtype}: {wanted}")
    if not shape:
        raise Refused(f"{path} holds no array but a single value: give an array of at least one dimension")
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize > MOST_BYTES:
        raise Refused(f"{path} says that its shape is {shape}, which no array has: it is damaged, make it again")
    if 0 in shape:
        raise Refused(f"{path} holds an empty array of shape {shape}: give one that has values")


def check_chunk(path: Path, chunk: tuple[int, ...], itemsize: int, shape: tuple[int, ...]) -> None:
    """Raises Refused where a chunk is too large to be in memory, as it must be to be read, or there are too many.

    A chunk may be larger than its array, but not by as much as it likes: all of it is unpacked for the little it holds.
    """
    nbytes, rewrite = itemsize * math.prod(chunk), "rewrite it with chunks of"
    has = f"{path} has chunks of shape {chunk}, {nbytes / 1e9:.3g} GB"
    if min(chunk) <= 0 or nbytes > CHUNK_LIMIT:
        raise Refused(f"{has}: {rewrite} at most {CHUNK_LIMIT / 1e9:.2g} GB")
    if nbytes > max(CHUNK_BEYOND, 8 * itemsize * math.prod(shape)):
        raise Refused(f"{has}, for an array of shape {shape}: {rewrite} at most its shape")
    many = math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=False))
    if nbytes < CHUNK_LEAST and many > MANY_CHUNKS:
        raise Refused(f"{path} has {many} chunks of shape {chunk}, {nbytes} bytes: {rewrite} some 100 kB or more")


def aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An empty array that begins where JAX's arrays on CPUs do: it becomes one of them without being copied."""
    nbytes = math.prod(shape) * dtype.itemsize
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    return room[first : first + nbytes].view(dtype).reshape(shape)


def assigning(array: Any) -> Read:
    """Reads by slices of something that gives arrays for them."""

    def read(box: Box, out: np.ndarray) -> None:
        out[...] = array[box]

    return read


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Makes whatever a reader raises on a damaged file one ValueError that names the file."""
    try:
        yield
    except (Refused, ImportError):
        raise
    except Exception as error:  # readers of other packages, given bytes that anyone may have made
        if isinstance(error, OSError) and error.errno:  # the system's own word: no permission, no room, a failing disk
            raise
        reason = " ".join(str(error).split(" [")[0].split())[:300] or type(error).__name__
        raise ValueError(
            f"{path} cannot be read, it is damaged or cut short ({reason}): make or copy it again"
        ) from error


def choose(path: Path, names: list[str], dataset: str | None) -> str:
    """The dataset asked for, or the only one there is."""
    if not names:
        raise Refused(f"{path} has no dataset of its own: give a file that has one")
    listed = ", ".join(map(_short, names[:20])) + ", ..." * (len(names) > 20)
    one = f"name one of them, as {Unnamed.argument}{shlex.quote(_short(names[0]))}"
    if dataset is not None and dataset.strip("/") not in names:
        raise Unnamed(f"{path} has no dataset {_short(dataset)!r}, it has {listed}: {one}")
    if dataset is None and len(names) != 1:
        raise Unnamed(f"{path} has {len(names)} datasets ({listed}): {one}")
    return names[0] if dataset is None else dataset.strip("/")


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:28]}...{name[-28:]}"


def _box(index: object, shape: tuple[int, ...]) -> tuple[Box, list[bool]]:
    """The positions that an index stands for, and which dimensions it takes a single one of."""
    entries = list(index) if isinstance(index, tuple) else [index]
    at = entries.index(Ellipsis) if Ellipsis in entries else len(entries)
    rest = len(shape) - len(entries[:at]) - len(entries[at + 1 :])
    if rest < 0:
        raise IndexError(f"index {index} has more entries than {shape} has dimensions: leave some out")
    entries[at : at + 1] = [slice(None)] * rest
    return tuple(map(_slice, entries, shape)), [not isinstance(entry, slice) for entry in entries]


def _slice(entry: Any, size: int) -> slice:
    if isinstance(entry, slice):
        start, stop, step = entry.indices(size)
        if step != 1:
            raise IndexError(f"slice {entry} has a step: read without one")
        return slice(start, max(start, stop))
    index = operator.index(entry)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range: the dimension has {size} positions")
    return slice(index % size, index % size + 1)
