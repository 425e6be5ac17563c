"""Contiguous arrays in files, such as .npy, read and written by position.

No memory maps: truncation would kill the process, network file systems lose pages, and pages count as memory.
Invariant: only bytes of the file become numbers.
"""

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..atomic import opened, synced
from .grid import BOX_BYTES, Box, subboxes, within
from .refusals import check_numbers, unchanged
from .source import FORMATS, Format, Header, Source, source_of

READ_BYTES = 4096  # a page: the least that a disk reads
REST = (...,)
NumbersHeader = tuple[tuple[int, ...], bool, np.dtype, int]  # shape, whether in Fortran order, dtype, offset


class FileNumbers(NamedTuple):
    """An array in C order in an open file, starting at `offset`.

    For each position of the dimensions before `dim`, one read covers the box from its first number to its last. `dim`
    minimises  bytes of all reads + READ_BYTES a read.
    """

    file: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, box: Box, out: np.ndarray) -> None:
        """Reads a box into `out`, converted to its dtype; raises ValueError if the file is too short."""
        sides, size = [s.stop - s.start for s in box], self.dtype.itemsize
        if 0 in sides:
            return
        dim, span = _cheapest(sides, self._strides, size)
        buffer = np.empty(span, self.dtype)
        part = np.lib.stride_tricks.as_strided(buffer, sides[dim:], [size * stride for stride in self._strides[dim:]])
        plain = span == part.size and out.dtype == self.dtype
        for index, at in self._runs(box, dim):
            run = out[index + REST]
            direct = plain and run.flags.c_contiguous
            self._fill(run if direct else buffer, at)
            if not direct:
                run[...] = part

    def write(self, box: Box, values: np.ndarray) -> None:
        sides = [s.stop - s.start for s in box]
        cut = [dim for dim, (side, n) in enumerate(zip(sides, self.shape, strict=True)) if side != n]
        dim = max(cut, default=0)
        runs = np.ascontiguousarray(values, self.dtype).reshape(math.prod(sides[:dim]), -1)
        for run, (_, at) in zip(runs, self._runs(box, dim), strict=True):
            rest = run.data.cast("B")
            while rest:
                written = os.pwrite(self.file, rest, at)
                rest, at = rest[written:], at + written

    @property
    def _strides(self) -> list[int]:
        return [math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape))]

    def _runs(self, box: Box, dim: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Each position of the dimensions before `dim` in a box, and its offset in the file."""
        strides, size = self._strides, self.dtype.itemsize
        begin = self.offset + size * sum(s.start * stride for s, stride in zip(box, strides, strict=True))
        for index in itertools.product(*(range(s.stop - s.start) for s in box[:dim])):
            yield index, begin + size * sum(i * stride for i, stride in zip(index, strides, strict=False))

    def _fill(self, buffer: np.ndarray, at: int) -> None:
        rest = buffer.reshape(-1).view(np.uint8).data
        while rest:
            got = os.preadv(self.file, [rest], at)
            if got <= 0:
                raise ValueError(f"it ends after {at} bytes")
            rest, at = rest[got:], at + got


def _cheapest(sides: Sequence[int], strides: Sequence[int], size: int) -> tuple[int, int]:
    """The first dimension that a read covers, and the size of that read."""
    dims = range(len(sides) + 1)
    spans = [sum((n - 1) * stride for n, stride in zip(sides[d:], strides[d:], strict=True)) + 1 for d in dims]
    costs = [math.prod(sides[:d]) * (spans[d] * size + READ_BYTES) for d in dims]
    fits = [d for d in dims if spans[d] * size <= BOX_BYTES] or [len(sides)]
    dim = min(fits, key=costs.__getitem__)
    return dim, spans[dim]


@dataclasses.dataclass(frozen=True)
class FlatSink:
    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int
    fortran: bool = False

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        return subboxes(at, (1,) * len(at), self.dtype.itemsize, most, fortran=self.fortran)

    def write(self, at: Box, block: np.ndarray) -> None:
        order = slice(None, None, -1 if self.fortran else 1)
        with opened(self.path, os.O_WRONLY) as file:
            numbers = FileNumbers(file, self.offset, self.shape[order], self.dtype)
            for box in self.boxes(at, BOX_BYTES):
                part = block[within(box, at)]
                numbers.write(box[order], part.T if self.fortran else part)

    def flush(self) -> None:
        synced(self.path)
        synced(self.path.parent)

    def missing(self) -> str:
        return ""  # it has full size from the start


def checked_sink(path: Path, shape: tuple[int, ...], fortran: bool, dtype: np.dtype, offset: int) -> FlatSink:
    """Reopens a file; raises OSError if it is truncated: writing past its end would leave zeros."""
    have, nbytes = path.stat().st_size, offset + math.prod(shape) * dtype.itemsize
    if have < nbytes:
        raise OSError(f"{path} was cut short, it has {have} bytes of {nbytes}: make it again")
    return FlatSink(path, shape, dtype, offset, fortran)


def sink_behind(
    path: Path, file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype, fortran: bool = False
) -> FlatSink:
    """A file with a complete header, extended to full size."""
    file.flush()
    offset = file.tell()
    file.truncate(offset + dtype.itemsize * math.prod(shape))
    reserve(file)
    return FlatSink(path, shape, dtype, offset, fortran)


def reserve(file: IO[bytes]) -> None:
    """Allocates a file's disk space now, not hours later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def npy_header(path: Path, file: IO[bytes], single: bool = False) -> NumbersHeader:
    """Raises ValueError if the file has no array; `single` allows a number."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"format {version}")
    first, later = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    shape, fortran, dtype = (first if version == (1, 0) else later)(file)
    check_numbers(path, shape or (1,) * single, dtype)
    return shape, fortran, dtype, file.tell()


@contextlib.contextmanager
def _open_npy(path: Path, _: str | None) -> Iterator[Source]:
    check = unchanged(path)
    with open(path, "rb") as file:
        shape, fortran, dtype, offset = npy_header(path, file)
        have = os.fstat(file.fileno()).st_size - offset
        if have < math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{have} bytes of numbers for shape {shape}")
        order = slice(None, None, -1 if fortran else 1)  # Fortran order is reversed on the disk
        stored = shape[order]
        numbers = FileNumbers(file.fileno(), offset, stored, dtype)

        def read(box: Box, out: np.ndarray) -> None:
            numbers.read(box[order], out.T if fortran else out)

        fits = [math.prod(stored[dim:]) * dtype.itemsize <= BOX_BYTES for dim in range(len(stored))]
        chunk = tuple(n if fit else 1 for n, fit in zip(stored, fits, strict=True))[order]
        yield source_of(path, shape, dtype, read, check, chunk=chunk, fortran=fortran)


def _create_npy(path: Path, header: Header) -> FlatSink:
    descr = np.lib.format.dtype_to_descr(header.dtype)
    fields = {"descr": descr, "fortran_order": False, "shape": header.shape}
    with open(path, "xb") as file:
        np.lib.format.write_array_header_1_0(file, fields)
        return sink_behind(path, file, header.shape, header.dtype)


def _reopen_npy(path: Path) -> FlatSink:
    with open(path, "rb+") as file:
        return checked_sink(path, *npy_header(path, file))


FORMATS[".npy"] = Format("NumPy", _open_npy, _create_npy, _reopen_npy, named=False)
