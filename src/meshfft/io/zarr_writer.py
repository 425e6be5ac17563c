"""Zarr arrays of format 3, written one file at a time, each in a group that xarray opens as a dataset with coordinates.

Each file has a checksum. A write buffers at most 128 MiB, or one shard, besides its block.
"""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..atomic import synced
from .grid import BOX_BYTES, Box, Grid, starts, subboxes, within
from .record import KEY
from .refusals import system_errors
from .source import FORMATS, Format, Header, Labels
from .zarr import open_zarr, opened_zarr, plain_files, sides_of

if TYPE_CHECKING:
    import tensorstore

IN_FLIGHT = 2
# Chunks of zeros are written too, so that a missing chunk is a lost one.
SPEC: dict[str, object] = {"driver": "zarr3", "store_data_equal_to_fill_value": True}
BYTES: dict[str, object] = {"name": "bytes", "configuration": {"endian": "little"}}
CRC32C: dict[str, object] = {"name": "crc32c"}


@dataclasses.dataclass(frozen=True)
class ZarrSink:
    path: Path
    handle: "tensorstore.TensorStore"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.handle.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.handle.dtype.numpy_dtype)

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        return subboxes(at, sides_of(self.handle.chunk_layout.write_chunk), self.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        started = list["tensorstore.WriteFutures"]()
        try:
            with system_errors():
                for box in self.boxes(at, BOX_BYTES):
                    part = block[within(box, starts(at))]
                    many = IN_FLIGHT if part.size * self.dtype.itemsize <= BOX_BYTES else 1
                    while len(started) >= many:
                        started.pop(0).result()
                    started.append(self.handle[box].write(part.astype(self.dtype, copy=False)))
                while started:
                    started.pop(0).result()
        finally:
            for write in started:
                write.exception()  # a pending write would recreate the folder that is now removed

    def flush(self) -> None:
        """Makes file names durable; each file is on the disk when its write ends."""
        synced(self.path)
        synced(self.path.parent)


def _create(path: Path, header: Header) -> ZarrSink:
    path.mkdir()
    sink = ZarrSink(path / header.labels.name, _create_array(path / header.labels.name, header))
    _describe(path, header.labels)
    return sink


def _reopen(path: Path) -> ZarrSink:
    found = json.loads((path / "zarr.json").read_bytes())
    inner = path if found["node_type"] == "array" else path / found["attributes"][KEY]
    return ZarrSink(inner, opened_zarr(inner, SPEC, open=True))


def _create_array(path: Path, header: Header) -> "tensorstore.TensorStore":
    """An uncompressed array: spectra are noise, and packing them takes longer than the transform."""
    codecs: list[dict[str, object]] = [BYTES, CRC32C] if header.dtype.itemsize > 1 else [{"name": "bytes"}, CRC32C]
    if header.grid.shard is not None:
        inner = {"chunk_shape": list(header.grid.chunk), "codecs": codecs, "index_codecs": [BYTES, CRC32C]}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    metadata = {
        "shape": list(header.shape),
        "data_type": header.dtype.name,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},  # all files in one folder
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(header.grid.file)}},
        "codecs": codecs,
        "attributes": header.attributes,
        "dimension_names": list(header.labels.dims),
    }
    return opened_zarr(path, {**SPEC, "metadata": metadata}, create=True)


def _describe(path: Path, labels: Labels) -> None:
    for one in labels.coordinates:
        if one.folder is not None:
            for file in plain_files(one.folder):
                target = path / one.name / file.relative_to(one.folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                synced(target)
        elif one.values is not None:
            shape, own = one.values.shape, Labels(one.name, one.dims)
            header = Header(shape, one.values.dtype, Grid(shape), own, one.attributes)
            with system_errors():
                _create_array(path / one.name, header).write(one.values).result()
            synced(path / one.name)
    known = {entry.parent.name: json.loads(entry.read_bytes()) for entry in sorted(path.glob("*/zarr.json"))}
    inline = {"kind": "inline", "must_understand": False, "metadata": known}
    document = {"zarr_format": 3, "node_type": "group", "attributes": {**labels.about, KEY: labels.name}}
    (path / "zarr.json").write_text(json.dumps({**document, "consolidated_metadata": inline}))
    for file in (path / "zarr.json", path, path.parent):
        synced(file)


FORMATS[".zarr"] = Format(open_zarr, _create, _reopen)
