"""NumPy and NIfTI files, each opened as a `Source`: their numbers lie one behind the other, and are read by position.

No file is mapped: a map of one that is cut short meanwhile ends the process. Nothing in a file is run: pickles are
refused. Invariant: nothing is taken for numbers that the file does not have.
"""

import contextlib
import gzip
import io
import itertools
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...extras import need
from .grid import BOX_BYTES, Box
from .source import Refused, Source, assigning, check_numbers, readable, source_of, unchanged

if TYPE_CHECKING:
    import nibabel

READ_BYTES = 4096  # a page: what a disk reads at least, and little beside what it costs to ask for a run
COPY_BYTES = 2**20
REST: Any = (...,)  # of an index
HEAD_BYTES = 540  # of the longer of the two headers
MOST_OFFSET = 2**26  # of extensions between header and voxels
TRAILING = 2**20  # what may follow the voxels
MOST_DIMENSIONS, MOST_SIZE, NO_EXTENSION = 7, 2**15 - 1, bytes(4)  # of a file of NIfTI-1
SCANNER = 1  # the code of positions in the scanner


class Numbers(NamedTuple):
    """An array in C order in an open file, from `offset` on.

    A read spans, for one position of the dimensions before `dim`, the box from its first number to its last, with the
    gaps between; of all `dim` the cheapest is taken, by  bytes of all reads + READ_BYTES a read.  So a box of long runs
    is read without its gaps, and one of single numbers not number by number.
    """

    file: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, box: Box, out: np.ndarray) -> None:
        """Reads the positions of a box into an array of its shape, converted to its dtype.

        Raises:
            ValueError: the file ends before.
        """
        sides, size = [s.stop - s.start for s in box], self.dtype.itemsize
        if 0 in sides:
            return
        dim, span = _cheapest(sides, self._strides, size)
        room = np.empty(span, self.dtype)
        part = np.lib.stride_tricks.as_strided(room, sides[dim:], [size * stride for stride in self._strides[dim:]])
        plain = span == part.size and out.dtype == self.dtype
        for index, at in self._runs(box, dim):
            run = out[index + REST]
            direct = plain and run.flags.c_contiguous
            self._fill(run if direct else room, at)
            if not direct:
                run[...] = part

    def write(self, box: Box, values: np.ndarray) -> None:
        """Writes the runs of a box, each as long as it lies in the file without a gap."""
        sides = [s.stop - s.start for s in box]
        cut = [dim for dim, (side, n) in enumerate(zip(sides, self.shape, strict=True)) if side != n]
        dim = max(cut, default=0)  # within it, and behind, no gaps
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
        """The indices in a box of each position of the dimensions before `dim`, and where in the file it begins."""
        strides, size = self._strides, self.dtype.itemsize
        begin = self.offset + size * sum(s.start * stride for s, stride in zip(box, strides, strict=True))
        for index in itertools.product(*(range(s.stop - s.start) for s in box[:dim])):
            yield index, begin + size * sum(i * stride for i, stride in zip(index, strides, strict=False))

    def _fill(self, room: np.ndarray, at: int) -> None:
        """Reads as many bytes as an array takes."""
        rest = room.reshape(-1).view(np.uint8).data
        while rest:
            got = os.preadv(self.file, [rest], at)
            if got <= 0:
                raise ValueError(f"it ends after {at} bytes")
            rest, at = rest[got:], at + got


def _cheapest(sides: Sequence[int], strides: Sequence[int], size: int) -> tuple[int, int]:
    """The dimension from which on a read spans the box, and how many numbers it then reads."""
    dims = range(len(sides) + 1)
    spans = [sum((n - 1) * stride for n, stride in zip(sides[d:], strides[d:], strict=True)) + 1 for d in dims]
    costs = [math.prod(sides[:d]) * (spans[d] * size + READ_BYTES) for d in dims]
    fits = [d for d in dims if spans[d] * size <= BOX_BYTES] or [len(sides)]
    dim = min(fits, key=costs.__getitem__)
    return dim, spans[dim]


@contextlib.contextmanager
def open_npy(path: Path, _: str | None) -> Iterator[Source]:
    check = unchanged(path)
    with open(path, "rb") as file:
        shape, fortran, dtype, offset = npy_header(path, file)
        have = os.fstat(file.fileno()).st_size - offset
        if have < math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{have} bytes of numbers for shape {shape}")
        order = slice(None, None, -1 if fortran else 1)  # the first dimension is then the last on the disk
        stored = shape[order]
        numbers = Numbers(file.fileno(), offset, stored, dtype)

        def read(box: Box, out: np.ndarray) -> None:
            numbers.read(box[order], out.T if fortran else out)

        fits = [math.prod(stored[dim:]) * dtype.itemsize <= BOX_BYTES for dim in range(len(stored))]
        chunk = tuple(n if fit else 1 for n, fit in zip(stored, fits, strict=True))[order]
        yield source_of(path, shape, dtype, read, check, chunk=chunk, fortran=fortran)


def npy_header(path: Path, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, whether in Fortran order, dtype, and where the numbers begin; ValueError where it is no array."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"format {version}")
    first = version == (1, 0)
    header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(file)
    check_numbers(path, shape, dtype)
    return shape, fortran, dtype, file.tell()


def nifti_header(path: Path, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """As `npy_header`, of a plain NIfTI-1 file."""
    header = need("nibabel", "NIfTI").Nifti1Header.from_fileobj(file)
    return header.get_data_shape(), True, header.get_data_dtype(), int(header.get_data_offset())


def nifti_bytes(shape: tuple[int, ...], dtype: np.dtype, affine: np.ndarray | None = None) -> bytes:
    """What a file of NIfTI-1 has before its voxels.

    Args:
        shape, dtype: of the array.
        affine: 4 x 4, from indices of voxels to positions in mm; None says size 1 in no unit, the first in the origin.

    Raises:
        ValueError: the array has more dimensions, or larger ones, than the format has room for.
    """
    header = need("nibabel", "writing NIfTI").Nifti1Header()
    if len(shape) > MOST_DIMENSIONS or max(shape) > MOST_SIZE:
        most = f"of at most {MOST_DIMENSIONS} dimensions of {MOST_SIZE}"
        raise ValueError(f"shape {shape} is more than NIfTI has room for, an array {most}: write .npy or .zarr")
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    if affine is not None:
        header.set_xyzt_units("mm")
        header.set_qform(affine, 0)  # sizes of voxels; the rest is approximate where the affine shears
    header.set_sform(np.eye(4) if affine is None else affine, SCANNER)
    header["vox_offset"] = len(header.binaryblock) + len(NO_EXTENSION)
    return bytes(header.binaryblock + NO_EXTENSION)


def checked_affine(affine: np.ndarray, what: str) -> np.ndarray:
    """An affine; ValueError where it is none, or puts all voxels into a plane."""
    with np.errstate(over="ignore"):
        stored = np.asarray(affine, np.float32).astype(float)  # as NIfTI keeps it
    if stored.shape != (4, 4) or not np.isfinite(stored).all() or (stored[3] != (0, 0, 0, 1)).any():
        raise ValueError(f"{what} is no affine: give 4 x 4 numbers, the last row 0 0 0 1")
    if np.linalg.matrix_rank(stored[:3, :3]) < 3:
        raise ValueError(f"{what} puts all voxels into a plane: give an affine that has an inverse")
    return np.asarray(affine, float)


def nifti_affine(path: Path) -> np.ndarray:
    """The affine of a NIfTI file, from indices of voxels to positions in mm, as nibabel chooses it among those it has.

    Raises:
        ValueError: it is no NIfTI file.
    """
    packed = path.name.lower().endswith(".gz")
    with readable(path), gzip.open(path) if packed else open(path, "rb") as file:
        return np.asarray(_header(file.read(HEAD_BYTES)).get_best_affine(), float)


@contextlib.contextmanager
def open_nifti(path: Path, _: str | None) -> Iterator[Source]:
    nibabel, check = need("nibabel", "reading NIfTI"), unchanged(path)
    with _unpacked(path) as plain:
        check()
        image = nibabel.load(plain, mmap=False)
        proxy = image.dataobj
        needed = proxy.offset + math.prod(proxy.shape) * proxy.dtype.itemsize
        if os.path.getsize(plain) < needed:
            raise ValueError(f"{os.path.getsize(plain)} bytes, its header needs {needed}")
        dtype = proxy[tuple(slice(0, 1) for _ in proxy.shape)].dtype  # the proxy's own is that before scaling
        units, spacing = _scales(image.header, len(proxy.shape))
        still = check if plain == path else lambda: None
        yield source_of(path, proxy.shape, dtype, assigning(proxy), still, fortran=True, units=units, spacing=spacing)


def _scales(header: "nibabel.Nifti1Header", ndim: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Units and sizes of voxels; a size that is none counts as 1 without a unit."""
    units = ("unknown",) * ndim
    with contextlib.suppress(KeyError):  # a code of no unit
        space, time = header.get_xyzt_units()
        units = (*(space,) * 3, time, *units)[:ndim]
    known = [math.isfinite(size) and size > 0 for size in header.get_zooms()]
    sizes = [float(size) if ok else 1.0 for size, ok in zip(header.get_zooms(), known, strict=True)]
    named = [unit if ok and unit != "unknown" else "" for unit, ok in zip(units, known, strict=True)]
    return tuple(named), tuple(sizes)


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The file without gzip; slices of that would each be decompressed again, and none would see its checksum."""
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
    """The bytes that the header of a packed file needs."""
    with gzip.open(path) as packed:
        header = _header(packed.read(HEAD_BYTES))
    shape, dtype, offset = header.get_data_shape(), header.get_data_dtype(), int(header.get_data_offset())
    check_numbers(path, shape, dtype)
    if not 0 <= offset <= MOST_OFFSET:
        raise ValueError(f"its voxels begin after {offset} bytes")
    return offset + math.prod(shape) * dtype.itemsize


def _header(head: bytes) -> "nibabel.Nifti1Header":
    """The header that a file of NIfTI-1 or NIfTI-2 begins with."""
    nibabel = need("nibabel", "reading NIfTI")
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
