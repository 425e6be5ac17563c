"""Zarr stores, read in formats 2 and 3 and written in 3, by tensorstore.

tensorstore ends the process if a chunk does not fit in memory, and follows links. So sizes are checked when a store is
opened, and files before they are read. Invariant: no file outside the store is read, and no chunk larger than a
gigabyte is allocated.
"""

import contextlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..extras import need
from .grid import Box
from .labels import MOST_COORDINATE, coordinate_of, data_among, described, plain_json, words
from .record import KEY, conformed
from .refusals import Refused, check_chunk, choose, system_errors, unchanged
from .source import Coordinate, Labels, Source, source_of

if TYPE_CHECKING:
    import tensorstore

NAMES = ("zarr.json", ".zarray", ".zgroup")
JSON_BYTES = 2**22
INNER_CHUNKS = 2**22  # most chunks in a shard, whose index is read whole


class Metadata(NamedTuple):
    third: bool
    is_array: bool
    dims: tuple[str, ...] | None
    attributes: dict[str, object]


class Node(NamedTuple):
    """An array or group: the store as named by the user, the store's resolved folder, and the node's folder."""

    path: Path
    root: Path
    folder: Path

    @property
    def name(self) -> str:
        return "" if self.folder == self.root else self.folder.relative_to(self.root).as_posix()

    def check_inside(self, file: Path) -> None:
        if not file.resolve().is_relative_to(self.root):
            away = f"{self.path} has {file.relative_to(self.root)}, a link that leads out of it"
            raise Refused(f"{away}: give the store itself")

    def metadata(self) -> Metadata:
        third = (self.folder / "zarr.json").exists()
        if third:
            found = self._json("zarr.json")
        else:
            array = (self.folder / ".zarray").exists()
            found = self._json(".zarray") if array else {}
            attributes = self._json(".zattrs") if (self.folder / ".zattrs").exists() else {}
            if found.get("fill_value"):  # as xarray does; 0 is a default
                attributes = {"_FillValue": found["fill_value"], **attributes}
            names = attributes.get("_ARRAY_DIMENSIONS")
            found |= {"node_type": "array" if array else "group", "attributes": attributes, "dimension_names": names}
        given, is_array = found.get("attributes"), found.get("node_type") == "array"
        dims = () if found.get("shape") == [] else _dims(found.get("dimension_names"))
        return Metadata(third, is_array, dims, given if isinstance(given, dict) else {})

    def _json(self, name: str) -> dict[str, object]:
        file = self.folder / name
        self.check_inside(file)
        if not file.is_file() or file.stat().st_size > JSON_BYTES:
            raise ValueError(f"{name} is no file of at most 4 MiB")
        found = json.loads(file.read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"{name} is no object")
        return found

    def arrays(self) -> "Iterator[tuple[Node, Metadata]]":
        for folder in sorted(self.folder.iterdir()):
            self.check_inside(folder)
            if is_zarr(folder) and not folder.is_symlink():
                node = self._replace(folder=folder)
                about = node.metadata()
                if about.is_array:
                    yield node, about
                else:
                    yield from node.arrays()


def is_zarr(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in NAMES)


def _dims(given: object) -> tuple[str, ...] | None:
    try:
        names: tuple[str, ...] = conformed(tuple[str, ...], given)
    except ValueError:
        return None
    return names if all(names) and len(set(names)) == len(names) else None


@contextlib.contextmanager
def open_zarr(path: Path, dataset: str | None) -> Iterator[Source]:
    if not is_zarr(path):
        raise Refused(f"{path} is not a Zarr store, it has no zarr.json, .zarray or .zgroup: give one")
    node = _chosen(Node(path, path.resolve(), path.resolve()), dataset)
    about, source = node.metadata(), _opened(node)
    yield described(source, _labels(node, about), about.attributes)


def _chosen(root: Node, dataset: str | None) -> Node:
    if root.metadata().is_array:
        if dataset is not None:
            raise Refused(f"{root.path} is one array without datasets: leave out {dataset!r}")
        return root
    arrays = {node.name: (node, about) for node, about in root.arrays()}
    names = sorted(arrays)
    if dataset is None:
        names = data_among({name: (about.dims, about.attributes) for name, (_, about) in arrays.items()})
    return arrays[choose(root.path, names, dataset)][0]


def _opened(node: Node) -> Source:
    check = unchanged(node.path, next(file for name in NAMES if (file := node.folder / name).exists()))
    third, _, _, attributes = node.metadata()
    spec: dict[str, object] = {"driver": "zarr3" if third else "zarr"}
    if KEY in attributes:
        spec["fill_missing_data_reads"] = False  # such a store is complete
    handle = opened_zarr(node.folder, spec, open=True, read=True)
    shape, dtype = tuple(handle.shape), np.dtype(handle.dtype.numpy_dtype)
    chunk, inside = sides_of(handle.chunk_layout.read_chunk), sides_of(handle.chunk_layout.write_chunk)
    file_name = _file_names(handle, third)

    def read(box: Box, out: np.ndarray) -> None:
        indices = (range(s.start // n, -(-s.stop // n)) for s, n in zip(box, inside, strict=True))
        for index in itertools.product(*indices):
            _check_file(node, node.folder / file_name(index))
        with system_errors():
            if out.dtype == dtype:
                tensorstore = need("tensorstore", "reading Zarr")
                part = handle[box][tensorstore.d[:].translate_to[0]]
                tensorstore.array(out, copy=False, write=True).write(part).result()
            else:
                out[...] = handle[box].read().result()

    source = source_of(node.path, shape, dtype, read, check, chunk=chunk, name=node.name)
    check_chunk(node.path, chunk, dtype.itemsize, shape)
    if math.prod(inside) // math.prod(chunk) > INNER_CHUNKS:
        raise ValueError(f"chunks of {chunk} in files of {inside}, shape {shape}")
    return source


def sides_of(grid: "tensorstore.ChunkLayout.Grid") -> tuple[int, ...]:
    return tuple(n or 1 for n in grid.shape or ())


def _file_names(handle: "tensorstore.TensorStore", third: bool) -> Callable[[tuple[int, ...]], str]:
    metadata = handle.spec().to_json()["metadata"]
    if not third:
        return lambda index: metadata["dimension_separator"].join(map(str, index))
    keys = metadata["chunk_key_encoding"]
    before, usual = (["c"], "/") if keys["name"] == "default" else ([], ".")
    separator = keys.get("configuration", {}).get("separator", usual)
    return lambda index: separator.join([*before, *map(str, index)])


def _check_file(node: Node, chunk: Path) -> None:
    """Refuses a chunk that is no plain file of this store; tensorstore handles a missing one."""
    node.check_inside(chunk)
    if chunk.exists() and not chunk.is_file():
        raise Refused(f"{node.path} has {chunk.relative_to(node.root)}, which is no file: make it again")


def _labels(node: Node, about: Metadata) -> Labels | None:
    dims, attributes = about.dims, about.attributes
    if dims is None:
        return None
    if not node.name:
        return Labels("", dims, plain_json(attributes))
    group = node._replace(folder=node.folder.parent)
    outer = group.metadata().attributes
    names = dict.fromkeys([*dims, *words(attributes.get("coordinates")), *words(outer.get("coordinates"))])
    inside = [name for name in names if "/" not in name and name not in ("", ".", "..", node.folder.name)]
    found = [_coordinate(group._replace(folder=group.folder / name), dims) for name in inside]
    known = tuple(one for one in found if one is not None)
    return Labels(node.folder.name, dims, plain_json(attributes), known, plain_json(outer, (KEY, "coordinates")))


def _coordinate(node: Node, dims: tuple[str, ...]) -> Coordinate | None:
    """An array of the group along some of the dimensions; an unreadable one is copied if it has format 3."""
    node.check_inside(node.folder)
    if not is_zarr(node.folder):
        return None
    (third, is_array, own, attributes), name = node.metadata(), node.folder.name
    if not is_array or own is None or not set(own) <= set(dims):
        return None
    source = None
    with contextlib.suppress(ValueError):  # of text, or a single value
        source = _opened(node)
    if source is not None and math.prod(source.shape) * source.dtype.itemsize <= MOST_COORDINATE:
        return coordinate_of(name, own, attributes, source[...])
    if not third:
        return None
    plain_files(node.folder)
    return Coordinate(name, own, plain_json(attributes), None, node.folder)


def plain_files(folder: Path) -> list[Path]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    for path in found:
        if path.is_symlink() or not path.is_file():
            raise ValueError(f"{path} is a link or no file: copy the store, with what its links lead to")
    return found


def check_name(path: Path) -> None:
    """Refuses the name of a store for which tensorstore would open another one, or none."""
    if any(letter == "\\" or "\ud800" <= letter <= "\udfff" for letter in str(path.absolute())):
        raise ValueError(f"{path} has a backslash, or bytes that are no text, in its name: rename it, or its folder")


def opened_zarr(folder: Path, spec: Mapping[str, object], **how: bool) -> "tensorstore.TensorStore":
    """Opens an array of a store, without a chunk cache."""
    check_name(folder)
    files = {"driver": "file", "path": f"{folder.absolute()}/"}
    limits = {"cache_pool": {"total_bytes_limit": 0}}
    library = need("tensorstore", "reading Zarr")
    with system_errors():
        opened: tensorstore.TensorStore = library.open({**spec, "kvstore": files, "context": limits}, **how).result()
    return opened
