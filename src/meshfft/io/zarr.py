"""Zarr stores by tensorstore: formats 2 and 3 are read; arrays of format 3 are written, in a group that xarray opens.

tensorstore ends the process if a chunk does not fit in memory, and follows links, so both are checked first. Invariant:
reads no file outside the store, and no chunk above a gigabyte.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..atomic import synced
from .grid import BOX_BYTES, Box, ChunkGrid, subboxes, within
from .labels import MOST_COORDINATE, choose, coordinate_of, described, dims_of, plain_json, words
from .record import KEY
from .refusals import Refused, check_chunk, system_errors, unchanged
from .source import FORMATS, Coordinate, Format, Header, Labels, Source, source_of

if TYPE_CHECKING:
    import tensorstore

NAMES = ("zarr.json", ".zarray", ".zgroup")
JSON_BYTES = 2**22
INNER_CHUNKS = 2**22  # most chunks in a shard, whose index is read whole
IN_FLIGHT = 2
SPEC: dict[str, object] = {"driver": "zarr3", "store_data_equal_to_fill_value": True}  # a missing chunk is a lost one
BYTES: dict[str, object] = {"name": "bytes", "configuration": {"endian": "little"}}
CRC32C: dict[str, object] = {"name": "crc32c"}


class ZarrNode(NamedTuple):
    """An array or group: the store as the user named it, its resolved folder, and the node's."""

    path: Path
    root: Path
    folder: Path
    is_array: bool = False
    dims: tuple[str, ...] | None = None
    attributes: Mapping[str, object] = {}

    @property
    def name(self) -> str:
        return "" if self.folder == self.root else self.folder.relative_to(self.root).as_posix()

    @property
    def third(self) -> bool:
        return (self.folder / "zarr.json").exists()

    def at(self, folder: Path) -> "ZarrNode":
        node = ZarrNode(self.path, self.root, folder)
        if node.third:
            found = node._json("zarr.json")
        else:
            array = (folder / ".zarray").exists()
            found = node._json(".zarray") if array else {}
            attributes = node._json(".zattrs") if (folder / ".zattrs").exists() else {}
            if found.get("fill_value"):  # as xarray does; 0 is a default
                attributes = {"_FillValue": found["fill_value"], **attributes}
            names = attributes.get("_ARRAY_DIMENSIONS")
            found |= {"node_type": "array" if array else "group", "attributes": attributes, "dimension_names": names}
        given, is_array = found.get("attributes"), found.get("node_type") == "array"
        dims = () if found.get("shape") == [] else dims_of(found.get("dimension_names"))
        return node._replace(is_array=is_array, dims=dims, attributes=given if isinstance(given, dict) else {})

    def _json(self, name: str) -> dict[str, object]:
        file = self.folder / name
        self.check_inside(file)
        if not file.is_file() or file.stat().st_size > JSON_BYTES:
            raise ValueError(f"{name} is no file of at most 4 MiB")
        found = json.loads(file.read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"{name} is no object")
        return found

    def check_inside(self, file: Path) -> None:
        if not file.resolve().is_relative_to(self.root):
            away = f"{self.path} has {file.relative_to(self.root)}, a link that leads out of it"
            raise Refused(f"{away}: give the store itself")

    def arrays(self) -> "Iterator[ZarrNode]":
        for folder in sorted(self.folder.iterdir()):
            self.check_inside(folder)
            if is_zarr(folder) and not folder.is_symlink():
                node = self.at(folder)
                yield from [node] if node.is_array else node.arrays()


def is_zarr(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in NAMES)


@contextlib.contextmanager
def _open(path: Path, dataset: str | None) -> Iterator[Source]:
    if not is_zarr(path):
        raise Refused(f"{path} is not a Zarr store, it has no zarr.json, .zarray or .zgroup: give one")
    root = path.resolve()
    node = ZarrNode(path, root, root).at(root)
    if not node.is_array:
        arrays = {one.name: one for one in node.arrays()}
        node = arrays[choose(path, {name: (one.dims, one.attributes) for name, one in arrays.items()}, dataset)]
    elif dataset is not None:
        raise Refused(f"{path} is one array without datasets: leave out {dataset!r}")
    yield described(_source(node), _labels(node), node.attributes)


def _source(node: ZarrNode) -> Source:
    import tensorstore

    check = unchanged(node.path, next(file for name in NAMES if (file := node.folder / name).exists()))
    spec: dict[str, object] = {"driver": "zarr3" if node.third else "zarr"}
    if KEY in node.attributes:
        spec["fill_missing_data_reads"] = False  # such a store is complete
    handle = _opened(node.folder, spec, open=True, read=True)
    shape, dtype, grid = tuple(handle.shape), np.dtype(handle.dtype.numpy_dtype), handle.chunk_layout
    chunk, inside = (tuple(n or 1 for n in one.shape or ()) for one in (grid.read_chunk, grid.write_chunk))
    name_of = _file_names(handle, node.third)

    def read(box: Box, out: np.ndarray) -> None:
        indices = (range(s.start // n, -(-s.stop // n)) for s, n in zip(box, inside, strict=True))
        for index in itertools.product(*indices):
            file = node.folder / name_of(index)
            node.check_inside(file)
            if file.exists() and not file.is_file():  # tensorstore handles missing ones
                raise Refused(f"{node.path} has {file.relative_to(node.root)}, which is no file: make it again")
        with system_errors():
            if out.dtype == dtype:
                part = handle[box][tensorstore.d[:].translate_to[0]]
                tensorstore.array(out, copy=False, write=True).write(part).result()
            else:
                out[...] = handle[box].read().result()

    source = source_of(node.path, shape, dtype, read, check, chunk=chunk, name=node.name)
    check_chunk(node.path, chunk, dtype.itemsize, shape)
    if math.prod(inside) // math.prod(chunk) > INNER_CHUNKS:
        raise ValueError(f"chunks of {chunk} in files of {inside}, shape {shape}")
    return source


def _file_names(handle: "tensorstore.TensorStore", third: bool) -> Callable[[tuple[int, ...]], str]:
    metadata = handle.spec().to_json()["metadata"]
    if not third:
        return lambda index: metadata["dimension_separator"].join(map(str, index))
    keys = metadata["chunk_key_encoding"]
    before, usual = (["c"], "/") if keys["name"] == "default" else ([], ".")
    separator = keys.get("configuration", {}).get("separator", usual)
    return lambda index: separator.join([*before, *map(str, index)])


def _labels(node: ZarrNode) -> Labels | None:
    dims, attributes = node.dims, node.attributes
    if dims is None or not node.name:
        return None if dims is None else Labels("", dims, plain_json(attributes))
    group = node.at(node.folder.parent)
    outer = group.attributes
    names = dict.fromkeys([*dims, *words(attributes.get("coordinates")), *words(outer.get("coordinates"))])
    inside = [name for name in names if "/" not in name and name not in ("", ".", "..", node.folder.name)]
    known = tuple(_coordinates(group, inside, set(dims)))
    return Labels(node.folder.name, dims, plain_json(attributes), known, plain_json(outer, (KEY, "coordinates")))


def _coordinates(group: ZarrNode, names: Sequence[str], dims: set[str]) -> Iterator[Coordinate]:
    """The named arrays along some of the dimensions; an unreadable one of format 3 is copied."""
    for folder in (group.folder / name for name in names):
        group.check_inside(folder)
        node = group.at(folder) if is_zarr(folder) else group
        if not node.is_array or node.dims is None or not set(node.dims) <= dims:
            continue
        source = None
        with contextlib.suppress(ValueError):  # of text, or a single value
            source = _source(node)
        if source is not None and math.prod(source.shape) * source.dtype.itemsize <= MOST_COORDINATE:
            yield coordinate_of(folder.name, node.dims, node.attributes, source[...])
        elif node.third:
            _check_plain(folder)
            yield Coordinate(folder.name, node.dims, plain_json(node.attributes), None, folder)


def _check_plain(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise ValueError(f"{path} is a link or no file: copy the store, with what its links lead to")


def _check(path: Path, _: Header | None = None) -> None:
    """Refuses the name of a store for which tensorstore would open another one, or none."""
    if any(letter == "\\" or "\ud800" <= letter <= "\udfff" for letter in str(path.resolve())):
        raise ValueError(f"{path} has a backslash, or bytes that are no text, in its name: rename it, or its folder")


def _opened(folder: Path, spec: Mapping[str, object], **how: Any) -> "tensorstore.TensorStore":
    import tensorstore

    _check(folder)
    files = {"driver": "file", "path": f"{folder.absolute()}/"}
    limits = {"cache_pool": {"total_bytes_limit": 0}}  # no cache of chunks
    with system_errors():
        return tensorstore.open({**spec, "kvstore": files, "context": limits}, **how).result()


@dataclasses.dataclass(frozen=True)
class ZarrSink:
    path: Path
    handle: "tensorstore.TensorStore"

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.handle.dtype.numpy_dtype)

    def boxes(self, at: Box, most: int) -> Iterator[Box]:
        file = self.handle.chunk_layout.write_chunk.shape or ()
        return subboxes(at, [n or 1 for n in file], self.dtype.itemsize, most)

    def write(self, at: Box, block: np.ndarray) -> None:
        started = list["tensorstore.WriteFutures"]()
        try:
            with system_errors():
                for box in self.boxes(at, BOX_BYTES):
                    part = block[within(box, at)]
                    many = IN_FLIGHT if part.size * self.dtype.itemsize <= BOX_BYTES else 1
                    while len(started) >= many:
                        started.pop(0).result()
                    started.append(self.handle[box].write(part.astype(self.dtype, copy=False)))
                while started:
                    started.pop(0).result()
        finally:
            for write in started:
                write.exception()  # a pending write would recreate the removed folder

    def flush(self) -> None:
        synced(self.path)  # names of files, each synced by its write
        synced(self.path.parent)

    def missing(self) -> str:
        needed = sum(1 for _ in self.boxes(tuple(slice(0, n) for n in self.handle.shape), 1))
        have = sum(entry.name.startswith("c.") for entry in os.scandir(self.path))
        return f"{have} chunks of {needed}" if have < needed else ""


def _create(path: Path, header: Header) -> ZarrSink:
    path.mkdir()
    sink = ZarrSink(path / header.labels.name, _create_array(path / header.labels.name, header))
    _describe(path, header.labels)
    return sink


def _reopen(path: Path) -> ZarrSink:
    found = json.loads((path / "zarr.json").read_bytes())
    inner = path if found["node_type"] == "array" else path / found["attributes"][KEY]
    return ZarrSink(inner, _opened(inner, SPEC, open=True))


def _create_array(path: Path, header: Header) -> "tensorstore.TensorStore":
    """Uncompressed: spectra are noise, and packing takes longer than the transform."""
    codecs: list[dict[str, object]] = [BYTES if header.dtype.itemsize > 1 else {"name": "bytes"}, CRC32C]
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
    return _opened(path, {**SPEC, "metadata": metadata}, create=True)


def _describe(path: Path, labels: Labels) -> None:
    for one in labels.coordinates:
        if one.folder is not None:
            _check_plain(one.folder)
            shutil.copytree(one.folder, path / one.name, copy_function=shutil.copyfile)
        elif one.values is not None:
            shape, own = one.values.shape, Labels(one.name, one.dims)
            header = Header(shape, one.values.dtype, ChunkGrid(shape), own, one.attributes)
            with system_errors():
                _create_array(path / one.name, header).write(one.values).result()
    known = {entry.parent.name: json.loads(entry.read_bytes()) for entry in sorted(path.glob("*/zarr.json"))}
    document = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {**labels.about, KEY: labels.name},
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": known},
    }
    (path / "zarr.json").write_text(json.dumps(document))
    for file in (*path.rglob("*"), path, path.parent):
        synced(file)


FORMATS[".zarr"] = Format("Zarr", _open, _create, _reopen, "tensorstore", folder=True, is_one=is_zarr, check=_check)
