"""Sharded arrays, written shard by shard in any format: one file, or a Zarr array whose chunks follow the shards.

Every process copies its devices' blocks to the host one at a time, crops their padding and writes them. A .nii.gz file
is packed from a complete .nii file. Invariant: the output gets its name only when it is on the disk.
"""

import contextlib
import gzip
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
from numpy.typing import DTypeLike

from ..atomic import refuse_existing, replacing, scratch
from ..collectives.processes import from_all, on_first, together
from ..extras import need
from ..layout.layout import Layout, dim_name, from_spec
from ..layout.padded_array import PaddedArray, stored_of
from .grid import Box, ChunkGrid, block_index, boxes_of, grid_of, within
from .record import KEY, Record
from .refusals import DTYPES
from .source import FORMATS, Format, Header, Labels, Sink, format_in, results

GZIP = ".gz"
FAST = 1  # nibabel's gzip level: noise packs hardly better at any other
COPY_BYTES = 2**20
DATA = "data"

ReportBytes = Callable[[int], None]


def write_array(
    path: str | Path,
    array: jax.Array | PaddedArray,
    *,
    overwrite: bool = False,
    record: Record | None = None,
    report: ReportBytes = lambda nbytes: None,
    about: Mapping[str, object] = MappingProxyType({}),
    affine: np.ndarray | None = None,
) -> None:
    """Writes a sharded array, without its padding: .npy, .zarr, HDF5 (.h5, .hdf5), NetCDF-4 (.nc), NIfTI-1 (.nii[.gz]).

    Holds one device's block in host memory at a time, plus 128 MiB. If anything fails, `path` is unchanged. All
    processes that hold the array call this.

    Args:
        path: the file to write, on a file system that all processes share; its suffix chooses the format.
        array: a jax.Array or a PaddedArray.
        overwrite: replaces an existing file.
        record: origin of the array (`record_of(plan)`), stored in a .zarr store or HDF5 file.
        report: called with the bytes of each write of this process.
        about: plain values, further attributes of the array in a .zarr store or HDF5 file.
        affine: 4 x 4, from indices to mm, for a .nii or .nii.gz file; None means voxels of size 1 without a unit.

    Raises:
        ValueError: an unknown suffix, a type that the format does not have, a record of another array, or .zarr
            chunks that processes would share.
        OSError: `path` exists and `overwrite` is false, it cannot be written, or the disk is full.
        PeerError: another process failed.
    """
    path, layout, stored = Path(path), _layout(array), stored_of(array)
    shape, dtype = layout.shape, stored.dtype
    format = _checked_format(path, tuple(FORMATS))
    header = header_of(path, shape, dtype, record, about=about, affine=affine)
    owners = {device.process_index for device in tuple[jax.Device, ...](stored.sharding.device_set)}
    if format.folder:
        header = header._replace(grid=grid_of(layout, dtype.itemsize, len(owners)))

    def check() -> None:
        check_output(path, overwrite, math.prod(shape) * dtype.itemsize, tuple(FORMATS))

    def fill(sink: Sink) -> None:
        for box, block in shards_of(stored, layout):
            sink.write(box, block)
            report(block.nbytes)
        sink.flush()

    if owners == {jax.process_index()}:
        check()
        with _complete(path, overwrite) as temporary:
            fill(format.create(temporary, header))
    elif len(owners) > 1:
        together(check)
        _write_together(path, overwrite, format, header, fill)


def header_of(
    path: Path,
    shape: Sequence[int],
    dtype: DTypeLike,
    record: Record | None = None,
    *,
    about: Mapping[str, object] = {},
    affine: np.ndarray | None = None,
) -> Header:
    """Raises ValueError if the array is empty, or the format cannot hold its shape, type of numbers or name."""
    shape, number = tuple(shape), np.dtype(dtype).newbyteorder("=")
    format = _checked_format(path, tuple(FORMATS))
    if 0 in shape:
        raise ValueError(f"the array has shape {shape}, without numbers: there is nothing to write")
    if number not in DTYPES:
        raise ValueError(f"the array is of {number}: give one of integers, real or complex numbers")
    if number.char in format.lacks:
        lacks = f"the array is of {number}, which {format.title} has not"
        raise ValueError(f"{lacks}: give int8 or float32, or write .h5")
    if record is None:
        labels = Labels("", tuple(dim_name(dim, len(shape)) for dim in range(len(shape))))
    elif record.out_shape == shape:
        labels = record.labels or Labels("", tuple(dimension.name for dimension in record.dimensions))
    else:
        shapes = f"the array has shape {shape} and the record is of one of {record.out_shape}"
        raise ValueError(f"{shapes}: give the record of its plan")
    coordinates = tuple(one for one in labels.coordinates if format.folder or one.values is not None)
    name = labels.name or DATA
    while not labels.name and name in labels.dims:  # xarray would take it for a coordinate
        name += "_"
    more = [one.name for one in coordinates if one.dims != (one.name,)]
    beside = {"coordinates": " ".join(more)} if more else {}
    attributes = {**labels.attributes, **beside, **about, KEY: {} if record is None else record.to_dict()}
    labels = labels._replace(name=name, coordinates=coordinates)
    header = Header(shape, number, ChunkGrid(shape), labels, attributes, affine)
    format.check(path, header)
    return header


def create_sink(
    path: Path, shape: Sequence[int], dtype: DTypeLike, grid: ChunkGrid, record: Record | None = None
) -> Sink:
    header = header_of(path, shape, dtype, record)
    return FORMATS[suffix_of(path)].create(path, header._replace(grid=grid))


def open_sink(path: Path) -> Sink:
    """Raises OSError if the array is gone."""
    return FORMATS[suffix_of(path)].reopen(path)


def _write_together(path: Path, overwrite: bool, format: Format, header: Header, fill: Callable[[Sink], None]) -> None:
    with contextlib.ExitStack() as stack:

        def begin() -> str:
            temporary = stack.enter_context(_complete(path, overwrite))
            format.create(temporary, header)
            return temporary.name

        shared = path.resolve().with_name(from_all(on_first(begin))[0])

        def opened() -> Sink:
            if not shared.exists():
                unseen = f"process {jax.process_index()} does not find {shared}, which process 0 made"
                raise FileNotFoundError(f"{unseen}: write to a file system that all processes share")
            return format.reopen(shared)

        sink = together(opened)
        together(lambda: fill(sink))
        together(stack.close)


@contextlib.contextmanager
def _complete(path: Path, overwrite: bool) -> Iterator[Path]:
    with replacing(path, overwrite) as final:
        if not suffix_of(path).endswith(GZIP):
            yield final
            return
        with scratch(path) as plain:
            yield plain
            with (
                open(plain, "rb") as whole,
                open(final, "xb") as file,
                gzip.GzipFile("", "wb", FAST, file, 0) as packed,
            ):
                shutil.copyfileobj(whole, packed, COPY_BYTES)


def suffix_of(path: Path) -> str:
    """The suffix of a file to write, such as .nii.gz."""
    return next((suffix for suffix in FORMATS if path.name.endswith(suffix)), path.suffix)


def _checked_format(path: Path, kinds: Sequence[str]) -> Format:
    if (suffix := suffix_of(path)) not in kinds:
        raise ValueError(f"{path} is of no kind that can be written: end it in {' or '.join(kinds)}")
    return FORMATS[suffix]


def _layout(array: jax.Array | PaddedArray) -> Layout:
    if isinstance(array, PaddedArray):
        return array.layout
    if isinstance(array.sharding, jax.sharding.NamedSharding):
        return from_spec(array.shape, array.sharding.mesh.shape, array.sharding.spec)
    return from_spec(array.shape, {}, None)


def shards_of(stored: jax.Array, layout: Layout) -> Iterator[tuple[Box, np.ndarray]]:
    """Box and unpadded host block of each of this process's shards, without replicas."""
    boxes = dict(zip(np.ndindex(*layout.parts), boxes_of(layout), strict=True))
    for shard in (shard for shard in stored.addressable_shards if shard.replica_id == 0):
        box = boxes[block_index(layout, shard.index)]
        yield box, np.asarray(shard.data)[within(box, box)]


def check_output(path: str | Path, overwrite: bool, nbytes: int, kinds: Sequence[str] = ()) -> None:
    """Raises as `write_array`, or ValueError if an existing file has another kind. `kinds` are the allowed suffixes, by
    default all except NIfTI's.
    """
    path = Path(path)
    suffix, format = suffix_of(path), _checked_format(path, kinds or results())
    if format.package:
        need(format.package, f"writing {format.title}")
    refuse_existing(path, overwrite)
    if path.exists() and not format.is_one(path):
        raise ValueError(f"{path} exists and is no {suffix} output: name another")
    check_room(path, 2 * nbytes if suffix.endswith(GZIP) else nbytes)


def check_disjoint(source: str | Path, target: str | Path) -> None:
    """Refuses an output inside its source, around it, or equal to it: a file may hold other datasets."""
    source, target, elsewhere = Path(source), Path(target), "write elsewhere"
    format = format_in(source)
    if format and format.folder and _holds(source, target):  # any other folder is refused when opened
        raise ValueError(f"{target} lies inside {source}, which is read: {elsewhere}")
    if _holds(target, source):
        raise ValueError(f"{source}, which is read, lies inside {target}: {elsewhere}")
    if target.exists() and source.exists() and os.path.samefile(source, target):
        alias = ", by another name" * (os.path.abspath(source) != os.path.abspath(target))
        raise ValueError(f"{target} is {source}, which is read{alias}: {elsewhere}")


def _holds(folder: Path, path: Path) -> bool:
    return folder.is_dir() and any(above.exists() and above.samefile(folder) for above in path.resolve().parents)


def check_room(path: Path, nbytes: int) -> None:
    folder = path.resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: make it first, or write elsewhere")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} is not writable: write elsewhere")
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        room = f"{path} takes {nbytes / 1e9:.3g} GB and {folder} has {free / 1e9:.3g} GB free"
        raise OSError(f"{room}: free some, or write elsewhere")
