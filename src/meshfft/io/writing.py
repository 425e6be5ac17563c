"""Sharded arrays, written shard by shard: one .npy, .nii or HDF5 file, or a Zarr array whose chunks follow the shards.

Every process copies the blocks of its devices to the host, one at a time, crops their padding and writes them. A
.nii.gz file is packed from a complete .nii file. Invariant: the output gets its name only when it is on the disk.
"""

import contextlib
import gzip
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
from numpy.typing import DTypeLike

from ..atomic import refuse_existing, replacing, scratch
from ..extras import need
from ..layout.layout import Layout, dim_name, from_spec
from ..layout.padded_array import PaddedArray, stored_of
from .grid import Box, Grid, block_index, boxes_of, grid_of, starts, within
from .hdf5_writer import SUFFIXES
from .nifti import checked_affine
from .processes import exchange, together
from .record import KEY, Record
from .refusals import DTYPES
from .source import FORMATS, Header, Labels, Sink
from .zarr import check_name, is_zarr

KINDS = (".npy", ".zarr", *SUFFIXES)
WRITTEN = (*KINDS, ".nii")
PACKED = ".nii.gz"
OUTPUTS = (*WRITTEN, PACKED)
NEEDED = {".nii": ("nibabel", "NIfTI"), ".zarr": ("tensorstore", "Zarr"), **dict.fromkeys(SUFFIXES, ("h5py", "HDF5"))}
FAST = 1  # nibabel's gzip level: the noise in an image packs hardly better at any other
COPY_BYTES = 2**20
DATA = "data"

Report = Callable[[int], None]


def write_array(
    path: str | Path,
    array: jax.Array | PaddedArray,
    *,
    overwrite: bool = False,
    record: Record | None = None,
    report: Report = lambda nbytes: None,
    about: Mapping[str, object] = MappingProxyType({}),
    affine: np.ndarray | None = None,
) -> None:
    """Writes a sharded array, without its padding: .npy, .zarr, HDF5 (.h5, .hdf5), NetCDF-4 (.nc), NIfTI-1 (.nii[.gz]).

    Holds one device's block in host memory at a time, plus 128 MiB. If anything fails, `path` is unchanged. If several
    processes hold the array, all call this, and each writes its own blocks.

    Args:
        path: the file to write, on a file system that all processes share; its suffix chooses the format.
        array: a jax.Array, or a PaddedArray, whose padding is left out.
        overwrite: replaces an existing file.
        record: origin of the array (`record_of(plan)`), stored in a .zarr store or HDF5 file.
        report: called with the number of bytes of each write of this process.
        about: plain values, stored as further attributes of a .zarr store or HDF5 file.
        affine: 4 x 4, from indices to mm, for a .nii or .nii.gz file; None means size 1 without a unit.

    Raises:
        ValueError: an unknown suffix, an unsupported type, a record of another array, or shared chunks of a .zarr
            store.
        OSError: `path` exists and `overwrite` is false, it cannot be written, or the disk is full.
        PeerError: another process failed.
    """
    path, layout, stored = Path(path), _layout(array), stored_of(array)
    shape, dtype, kind = layout.shape, stored.dtype, kind_of(path)
    _check_array(shape, dtype, kind, record)
    affine = None if affine is None else checked_affine(affine, "the affine given")
    owners = {device.process_index for device in stored.sharding.device_set}
    grid = grid_of(layout, dtype.itemsize, len(owners)) if kind == ".zarr" else Grid(shape)
    check = partial(check_output, path, overwrite, math.prod(shape) * dtype.itemsize, OUTPUTS)
    how = partial(create_sink, shape=shape, dtype=dtype, grid=grid, kind=kind)
    create = partial(how, record=record, about=about, affine=affine)
    fill = partial(_fill, stored=stored, layout=layout, report=report)
    if owners == {jax.process_index()}:
        check()
        with _complete(path, overwrite) as temporary:
            fill(create(temporary))
    elif len(owners) > 1:
        together(check)
        _write_together(path, overwrite, create, fill)


def _check_array(shape: tuple[int, ...], dtype: np.dtype, kind: str, record: Record | None) -> None:
    if dtype not in DTYPES:
        raise ValueError(f"the array is of {dtype}: give one of integers, real or complex numbers")
    if record is not None and record.out_shape != shape:
        shapes = f"the array has shape {shape} and the record is of one of {record.out_shape}"
        raise ValueError(f"{shapes}: give the record of its plan")
    if kind == ".nc" and dtype.char in "?e":
        raise ValueError(f"the array is of {dtype}, which NetCDF has not: give int8 or float32, or write .h5")


def create_sink(
    path: Path,
    shape: Sequence[int],
    dtype: DTypeLike,
    grid: Grid,
    record: Record | None = None,
    *,
    kind: str,
    about: Mapping[str, object] = {},
    affine: np.ndarray | None = None,
) -> Sink:
    """Creates a plain file of full size, or an empty Zarr array in a group; `kind` is one of `WRITTEN`."""
    _check_kind(kind)
    if record is None:
        labels = Labels("", tuple(dim_name(dim, len(shape)) for dim in range(len(shape))))
    else:
        labels = record.labels or Labels("", tuple(dimension.name for dimension in record.dimensions))
    coordinates = tuple(one for one in labels.coordinates if kind == ".zarr" or one.values is not None)
    name = labels.name or DATA
    while not labels.name and name in labels.dims:  # xarray would take it for a coordinate
        name += "_"
    more = [one.name for one in coordinates if one.dims != (one.name,)]
    beside = {"coordinates": " ".join(more)} if more else {}
    attributes = {**labels.attributes, **beside, **about, KEY: {} if record is None else record.to_dict()}
    labels = labels._replace(name=name, coordinates=coordinates)
    number = np.dtype(dtype).newbyteorder("=")
    return FORMATS[kind].create(path, Header(tuple(shape), number, grid, labels, attributes, affine))


def open_sink(path: Path, kind: str) -> Sink:
    """Reopens an existing array for writing; raises OSError if it is gone."""
    _check_kind(kind)
    return FORMATS[kind].reopen(path)


def _check_kind(kind: str) -> None:
    if kind not in WRITTEN:
        raise ValueError(f"kind {kind!r} cannot be written: use {' or '.join(WRITTEN)}")


def _write_together(path: Path, overwrite: bool, create: Callable[[Path], Sink], fill: Callable[[Sink], None]) -> None:
    with contextlib.ExitStack() as stack:

        def begin() -> str | None:
            if jax.process_index() > 0:
                return None
            temporary = stack.enter_context(_complete(path, overwrite))
            create(temporary)
            return temporary.name

        name, kind = exchange(together(begin))[0], kind_of(path)
        sink = together(lambda: _shared(path.resolve().with_name(name), kind))
        together(lambda: fill(sink))
        together(stack.close)


@contextlib.contextmanager
def _complete(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a temporary path, which becomes `path` if the block succeeds, packed for .nii.gz."""
    with replacing(path, overwrite) as final:
        if suffix_of(path) != PACKED:
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


def kind_of(path: Path) -> str:
    return suffix_of(path).removesuffix(".gz")


def suffix_of(path: Path) -> str:
    return PACKED if path.name.endswith(PACKED) else path.suffix


def _layout(array: jax.Array | PaddedArray) -> Layout:
    if isinstance(array, PaddedArray):
        return array.layout
    if isinstance(array.sharding, jax.sharding.NamedSharding):
        return from_spec(array.shape, array.sharding.mesh.shape, array.sharding.spec)
    return from_spec(array.shape, {}, None)


def _shared(temporary: Path, kind: str) -> Sink:
    if not temporary.exists():
        unseen = f"process {jax.process_index()} does not find {temporary}, which process 0 made"
        raise FileNotFoundError(f"{unseen}: write to a file system that all processes share")
    return open_sink(temporary, kind)


def shards_of(stored: jax.Array, layout: Layout) -> Iterator[tuple[Box, np.ndarray]]:
    """Box and unpadded host block of each shard of this process, one for each set of replicas."""
    boxes = dict(zip(np.ndindex(*layout.parts), boxes_of(layout), strict=True))
    for shard in (shard for shard in stored.addressable_shards if shard.replica_id == 0):
        box = boxes[block_index(layout, shard.index)]
        yield box, np.asarray(shard.data)[within(box, starts(box))]


def _fill(sink: Sink, stored: jax.Array, layout: Layout, report: Report) -> None:
    for box, block in shards_of(stored, layout):
        sink.write(box, block)
        report(block.nbytes)
    sink.flush()


def check_output(path: str | Path, overwrite: bool, nbytes: int, kinds: Sequence[str] = KINDS) -> None:
    """Refuses an output that could not be written, before any work is done for it.

    A file to be replaced still takes space on the disk meanwhile. Raises as `write_array`, or ValueError if that file
    is of
    another kind.
    """
    path = Path(path)
    if suffix_of(path) not in kinds:
        raise ValueError(f"{path} is of no kind that can be written: end it in {' or '.join(kinds)}")
    if kind_of(path) in NEEDED:
        package, format = NEEDED[kind_of(path)]
        need(package, f"writing {format}")
    if path.suffix == ".zarr":
        check_name(path.resolve())
    refuse_existing(path, overwrite)
    same = is_zarr(path) if path.suffix == ".zarr" else path.is_file()
    if path.exists() and not same:
        raise ValueError(f"{path} exists and is no {suffix_of(path)} output: name another")
    check_room(path, 2 * nbytes if suffix_of(path) == PACKED else nbytes)


def check_names(record: Record, path: Path) -> Record:
    labels = record.labels
    names = [dimension.name for dimension in record.dimensions]
    names += [labels.name, *(one.name for one in labels.coordinates)] if labels else []
    for name in names if path.suffix in SUFFIXES else ():
        if "/" in name or name in (".", ".."):
            raise ValueError(f"{path} cannot have the name {name!r}, which is a path in HDF5: write .zarr")
    return record


def check_disjoint(source: str | Path, target: str | Path) -> None:
    """Refuses an output inside its source, around it, or equal to it under another name.

    A file may be replaced by its own transform under the same name, because it is read first.
    """
    source, target, elsewhere = Path(source), Path(target), "write elsewhere"
    if source.suffix == ".zarr" and _holds(source, target):  # any other folder is refused when it is opened
        raise ValueError(f"{target} lies inside {source}, which is read: {elsewhere}")
    if _holds(target, source):
        raise ValueError(f"{source}, which is read, lies inside {target}: {elsewhere}")
    same = target.exists() and source.exists() and os.path.samefile(source, target)
    if same and os.path.abspath(source) != os.path.abspath(target):
        raise ValueError(f"{target} is {source}, which is read, by another name: {elsewhere}")


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
