"""Zarr stores of formats 2 and 3, opened by tensorstore.

tensorstore ends the process where a chunk does not fit in memory, and follows links: so sizes are checked as soon as a
store is open, and files before they are read. Invariant: no file outside the store is read, and nothing is allocated
for a chunk that is larger than a gigabyte.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..extras import need
from .conventions import PACKED, UNSIGNED, data_among, decoded, plain_json, unpacked_values, words
from .grid import Box
from .labels import ENCODING, MOST_COORDINATE, Coordinate, Labels, scales_of
from .record import Record
from .source import Refused, Source, Steady, check_chunk, check_numbers, choose, source_of
from .zarr_metadata import KEY, NAMES, Node, is_zarr, plain_files

INNER_CHUNKS = 2**22  # of a shard, whose index is read whole
OS_ERROR = re.compile(r"os_error_code='(\d+)|OS error (\d+)")  # as tensorstore says it, and older ones did


@contextlib.contextmanager
def open_zarr(path: Path, dataset: str | None) -> Iterator[Source]:
    if not is_zarr(path):
        raise Refused(f"{path} is not a Zarr store, it has no zarr.json, .zarray or .zgroup: give one")
    node = _chosen(Node(path, path.resolve(), path.resolve()), dataset)
    array = _opened(node)
    source = dataclasses.replace(array.source(), name=node.name)
    labels = _labels(node)
    if labels is not None and len(labels.dims) == source.ndim:
        units, spacing = scales_of(labels)
        source = dataclasses.replace(source, labels=labels, units=units, spacing=spacing)
        source = source if array.record else decoded(source, labels.attributes)
    yield _recorded(source, array.record) if array.record else source


def _chosen(root: Node, dataset: str | None) -> Node:
    """The array asked for, or the only one that is no coordinate of others."""
    if root.is_array:
        if dataset is not None:
            raise Refused(f"{root.path} is one array without datasets: leave out {dataset!r}")
        return root
    arrays = {node.name: node for node in root.arrays()}
    names = sorted(arrays)
    if dataset is None:
        names = data_among({name: node.described() for name, node in arrays.items()})
    return arrays[choose(root.path, names, dataset)]


def _recorded(source: Source, given: dict[str, Any]) -> Source:
    """A source with the record that its store has, once it is seen to be one of this array."""
    record = Record.from_dict(given, str(source.path))
    what = (
        f"{source.path} has a record of {record.out_dtype} {record.out_shape} and holds {source.dtype} {source.shape}"
    )
    same = record.out_shape == source.shape and record.out_dtype == source.dtype.name
    if not same:
        raise Refused(f"{what}: remove its attribute {KEY!r}")
    return dataclasses.replace(source, record=record.to_dict(), units=record.units, spacing=record.spacing)


class _Array(NamedTuple):
    """An array that tensorstore has opened: what describes it, and the record of one that was written here."""

    node: Node
    handle: Any
    steady: Steady
    record: dict[str, Any] | None

    def source(self) -> Source:
        """The numbers as they are stored."""
        path, shape, dtype = self.node.path, tuple(self.handle.shape), np.dtype(self.handle.dtype.numpy_dtype)
        check_numbers(path, shape, dtype)
        chunk = tuple(self.handle.chunk_layout.read_chunk.shape)
        check_chunk(path, chunk, dtype.itemsize, shape)
        many = math.prod(self._file) // math.prod(chunk)
        if not many <= INNER_CHUNKS:
            raise ValueError(f"chunks of {chunk} in files of {self._file}, shape {shape}")
        return source_of(path, shape, dtype, self.steady.reading(self._read), chunk=chunk)

    @property
    def _file(self) -> tuple[int, ...]:
        """The shape of what lies in one file."""
        return tuple(self.handle.chunk_layout.write_chunk.shape)

    def _read(self, box: Box, out: np.ndarray) -> None:
        tensorstore = need("tensorstore", "reading Zarr")
        self._check_files(box)
        with system_words():
            if out.dtype == self.handle.dtype.numpy_dtype:
                part = self.handle[box][tensorstore.d[:].translate_to[0]]
                tensorstore.array(out, copy=False, write=True).write(part).result()
            else:
                out[...] = self.handle[box].read().result()

    def _check_files(self, box: Box) -> None:
        """Raises Refused where a chunk that a box needs is no plain file of this store."""
        indices = (range(s.start // f, -(-s.stop // f)) for s, f in zip(box, self._file, strict=True))
        before, separator = self._naming()
        seen: set[Path] = set()
        for index in itertools.product(*indices):
            chunk = self.node.folder / separator.join([*before, *map(str, index)])
            for file in (chunk, *(above for above in chunk.parents if self.node.root in above.parents)):
                if file not in seen:
                    self.node.check_inside(file)
                    seen.add(file)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # zeros, or missed by tensorstore
                odd = f"{self.node.path} has {chunk.relative_to(self.node.root)}, which is no file: make it again"
                if not stat.S_ISREG(chunk.stat().st_mode):
                    raise Refused(odd)

    def _naming(self) -> tuple[list[str], str]:
        """How files of chunks are named: what comes before their indices, and what lies between these."""
        metadata = self.handle.spec().to_json()["metadata"]
        if not self.node.third:
            return [], metadata["dimension_separator"]
        keys = metadata["chunk_key_encoding"]
        default = keys["name"] == "default"
        separator = keys.get("configuration", {}).get("separator", "/" if default else ".")
        return ["c"] if default else [], separator


def _opened(node: Node) -> _Array:
    check_name(node.folder)
    node.check_numbers()
    tensorstore = need("tensorstore", "reading Zarr")
    steady = Steady(node.path, next((node.folder / name for name in NAMES if (node.folder / name).exists()), None))
    record = node.described().attributes.get(KEY)
    if record is not None and not isinstance(record, dict):
        raise ValueError(f"attribute {KEY!r} is no record")
    spec: dict[str, Any] = {
        "driver": "zarr3" if node.third else "zarr",
        "kvstore": {"driver": "file", "path": f"{node.folder}/"},
        "context": context(),
    }
    if record is not None:
        spec["fill_missing_data_reads"] = False  # all of it was written
    with system_words():
        return _Array(node, tensorstore.open(spec, open=True, read=True).result(), steady, record)


def _labels(node: Node) -> Labels | None:
    """What xarray knows of an array: its coordinates are other arrays of its group."""
    dims, attributes = node.described()
    if dims is None:
        return None
    if not node.name:
        return Labels("", dims, plain_json(attributes, [KEY]))
    group = node._replace(folder=node.folder.parent)
    about = group.attributes()
    names = dict.fromkeys([*dims, *words(attributes.get("coordinates")), *words(about.get("coordinates"))])
    inside = [name for name in names if "/" not in name and name not in ("", ".", "..", node.folder.name)]
    found = [_coordinate(group.below(name), dims) for name in inside]
    known = tuple(one for one in found if one is not None)
    about = plain_json(about, [KEY, "coordinates"])
    return Labels(node.folder.name, dims, plain_json(attributes, [KEY]), known, about)


def _coordinate(node: Node, dims: tuple[str, ...]) -> Coordinate | None:
    """An array of the group that lies along some of the dimensions; one of format 2 has to be read to be copied."""
    node.check_inside(node.folder)
    if not is_zarr(node.folder) or not node.is_array:
        return None
    (own, attributes), name = node.described(), node.folder.name
    if own is None or not set(own) <= set(dims):
        return None
    values = _values(node) if own == (name,) or not node.third else None
    packed = values is not None and any(key in attributes for key in (*PACKED, UNSIGNED))
    if packed or not node.third:
        plain = None if values is None else unpacked_values(values, attributes)
        return None if plain is None else Coordinate(name, own, plain_json(attributes, ENCODING), plain)
    plain_files(node.folder)
    return Coordinate(name, own, plain_json(attributes), values, node.folder)


def _values(node: Node) -> np.ndarray | None:
    """The numbers of a coordinate, None where it has none, or too many to be held."""
    try:
        source = _opened(node).source()
    except Refused:
        return None
    few = math.prod(source.shape) * source.dtype.itemsize <= MOST_COORDINATE
    return source[...] if few else None


def check_name(path: Path) -> None:
    """Raises ValueError for the name of a store in which tensorstore would find another one, or none."""
    odd = any(letter == "\\" or "\ud800" <= letter <= "\udfff" for letter in str(path.absolute()))
    if odd:
        raise ValueError(f"{path} has a backslash, or bytes that are no text, in its name: rename it, or its folder")


def context() -> dict[str, Any]:
    """What tensorstore may keep: no chunk that it is not working on."""
    return {"cache_pool": {"total_bytes_limit": 0}}


@contextlib.contextmanager
def system_words() -> Iterator[None]:
    """Turns tensorstore's ValueError into OSError where it was the system that failed."""
    try:
        yield
    except ValueError as error:
        code = OS_ERROR.search(str(error))
        if code is None:
            raise
        number = int(code[1] or code[2])
        raise OSError(number, f"{os.strerror(number)} ({str(error).split(' [')[0]})") from error
