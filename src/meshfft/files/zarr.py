"""Zarr stores, read by tensorstore once what they say of themselves was seen to be right.

tensorstore ends the process where a chunk does not fit in memory, and follows links; so sizes are checked before it is
asked to open a store, and files before it is asked to read them. Invariant: no file outside the store is read, and
nothing is allocated for a chunk that is larger than a gigabyte.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import check
from ..extras import need
from .grid import Box
from .record import Record
from .rules import count, many
from .source import DTYPES, Refused, Source, check_chunk, check_numbers, choose, source_of
from .steady import Steady
from .stores import KEY, context, system_words

NAMES = ("zarr.json", ".zarray", ".zgroup")
JSON_BYTES = 2**22
INNER_CHUNKS = 2**22  # of a shard, whose index is read whole
SIZES = many(count)
V3_DTYPES = {dtype.name: dtype for dtype in DTYPES}


class Array(NamedTuple):
    """What a Zarr array says of itself: `chunk` is decoded at once, `file` is what lies in one file, named by `key`."""

    driver: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: tuple[int, ...]
    file: tuple[int, ...]
    key: Callable[[tuple[int, ...]], str]
    ours: dict[str, Any] | None = None


@contextlib.contextmanager
def open_zarr(path: Path, dataset: str | None) -> Iterator[Source]:
    tensorstore = need("tensorstore", "reading Zarr")
    check(is_zarr(path), f"{path} is not a Zarr store, it has no zarr.json, .zarray or .zgroup: give one", Refused)
    root = path.resolve()
    folder = root / _chosen(path, root, dataset)
    steady = Steady(path, next((folder / name for name in NAMES if (folder / name).exists()), folder))
    found = _array(path, root, folder)
    record = None
    if found.ours:
        record = Record.from_dict(found.ours, str(path))
        same = record.out_shape == found.shape and record.out_dtype == found.dtype.name
        what = f"{path} has a record of {record.out_dtype} {record.out_shape} and holds {found.dtype} {found.shape}"
        check(same, f"{what}: remove its attribute {KEY!r}", Refused)
    handle = _opened(tensorstore, folder, found)

    def read(box: Box, out: np.ndarray) -> None:
        _check_files(path, root, folder, found, box)
        part = handle[box]
        with system_words():
            if out.dtype == found.dtype.newbyteorder("="):
                place = tensorstore.d[:].translate_to[0]
                tensorstore.array(out, copy=False, write=True).write(part[place]).result()
            else:
                out[...] = part.read().result()

    source = source_of(path, found.shape, found.dtype, steady.reading(read), chunk=found.chunk)
    if record is not None:
        source = dataclasses.replace(source, record=record.to_dict(), units=record.units, spacing=record.spacing)
    yield source


def is_zarr(path: Path) -> bool:
    """True for the folder of a Zarr array or group, of format 2 or 3."""
    return path.is_dir() and any((path / name).is_file() for name in NAMES)


def _opened(tensorstore: Any, folder: Path, found: Array) -> Any:
    spec: dict[str, Any] = {
        "driver": found.driver,
        "kvstore": {"driver": "file", "path": f"{folder}/"},
        "context": context(),
    }
    if found.ours is not None:
        spec["fill_missing_data_reads"] = False
    with system_words():
        handle = tensorstore.open(spec, open=True, read=True).result()
    same = tuple(handle.shape) == found.shape and tuple(handle.chunk_layout.read_chunk.shape) == found.chunk
    check(same, "its metadata can be read in two ways")
    return handle


def _chosen(path: Path, root: Path, dataset: str | None) -> str:
    """The folder of the array asked for inside the store."""
    if _is_array(path, root, root):
        check(dataset is None, f"{path} is one array without datasets: leave out {dataset!r}", Refused)
        return "."
    return choose(path, sorted(_arrays(path, root)), dataset)


def _arrays(path: Path, root: Path) -> Iterator[str]:
    """The names of all arrays in a group, through groups that are folders of their own."""
    groups = [root]
    while groups:
        for folder in sorted(groups.pop().iterdir()):
            _check_inside(path, root, folder)
            if folder.is_symlink() or not is_zarr(folder):
                continue
            if _is_array(path, root, folder):
                yield folder.relative_to(root).as_posix()
            else:
                groups.append(folder)


def _is_array(path: Path, root: Path, folder: Path) -> bool:
    if (folder / "zarr.json").exists():
        return _json(path, root, folder / "zarr.json").get("node_type") == "array"
    return (folder / ".zarray").exists()


def _array(path: Path, root: Path, folder: Path) -> Array:
    """The array in a folder, its sizes seen to be such that it can be opened."""
    third = (folder / "zarr.json").exists()
    found = _third(_json(path, root, folder / "zarr.json")) if third else _second(_json(path, root, folder / ".zarray"))
    check_numbers(path, found.shape, found.dtype)
    check_chunk(path, found.chunk, found.dtype.itemsize, found.shape)
    fits = len(found.chunk) == len(found.file) == len(found.shape)
    whole = fits and all(size % part == 0 for size, part in zip(found.file, found.chunk, strict=True))
    inner = math.prod(found.file) // math.prod(found.chunk)
    check(whole and inner <= INNER_CHUNKS, f"chunks of {found.chunk} in files of {found.file}, shape {found.shape}")
    return found


def _third(doc: dict[str, Any]) -> Array:
    """zarr.json of format 3."""
    name, grid, keys = doc["data_type"], doc["chunk_grid"], doc["chunk_key_encoding"]
    known = isinstance(name, str) and name in V3_DTYPES
    check(doc["zarr_format"] == 3 and grid["name"] == "regular", "an unknown format or chunk grid")
    dtype = V3_DTYPES[name] if known else np.dtype(object if name in ("string", "bytes") else "V1")
    file = SIZES(grid["configuration"]["chunk_shape"])
    default = keys["name"] == "default"
    separator = keys.get("configuration", {}).get("separator", "/" if default else ".")
    check(keys["name"] in ("default", "v2") and separator in ("/", "."), "unknown names of chunks")
    ours = doc.get("attributes", {}).get(KEY)
    check(ours is None or isinstance(ours, dict), f"attribute {KEY!r} is no record")
    key = _key("c" if default else None, separator)
    return Array("zarr3", SIZES(doc["shape"]), dtype, _inner(doc["codecs"], file), file, key, ours)


def _second(doc: dict[str, Any]) -> Array:
    """.zarray of format 2."""
    check(doc["zarr_format"] == 2, "an unknown format")
    dtype = np.dtype(doc["dtype"]) if isinstance(doc["dtype"], str) else np.dtype("V1")
    chunk, separator = SIZES(doc["chunks"]), doc.get("dimension_separator", ".")
    check(separator in ("/", "."), "unknown names of chunks")
    return Array("zarr", SIZES(doc["shape"]), dtype, chunk, chunk, _key(None, separator))


def _inner(codecs: Any, chunk: tuple[int, ...]) -> tuple[int, ...]:
    """The chunks inside shards, or the chunk itself."""
    for codec in codecs:
        if isinstance(codec, dict) and codec.get("name") == "sharding_indexed":
            return _inner(codec["configuration"]["codecs"], SIZES(codec["configuration"]["chunk_shape"]))
    return chunk


def _key(first: str | None, separator: str) -> Callable[[tuple[int, ...]], str]:
    return lambda place: separator.join([*([] if first is None else [first]), *map(str, place)])


def _check_files(path: Path, root: Path, folder: Path, found: Array, box: Box) -> None:
    """Raises Refused where a chunk that a box needs is no file of this store, or was lost."""
    places = (range(s.start // f, -(-s.stop // f)) for s, f in zip(box, found.file, strict=True))
    seen: set[Path] = set()
    for place in itertools.product(*places):
        chunk = folder / found.key(place)
        name = chunk.relative_to(root)
        for above in (at for at in chunk.parents if at not in seen and root in at.parents):
            _check_inside(path, root, above)
            seen.add(above)
        _check_inside(path, root, chunk)
        try:
            mode = chunk.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            lost = f"{path} has lost its chunk {name}: make or copy it anew"
            check(found.ours is None, lost, Refused)
            continue
        check(stat.S_ISREG(mode), f"{path} has {name}, which is no file: make or copy it anew", Refused)


def _check_inside(path: Path, root: Path, file: Path) -> None:
    """Raises Refused where a link leads out of the store."""
    inside = not file.is_symlink() or file.resolve().is_relative_to(root)
    check(inside, f"{path} has {file.relative_to(root)}, a link that leads out of it: give the store itself", Refused)


def _json(path: Path, root: Path, file: Path) -> dict[str, Any]:
    """A JSON object of a plain file of the store, in which nothing is named twice."""
    _check_inside(path, root, file)
    check(file.is_file() and file.stat().st_size <= JSON_BYTES, f"{file.name} is no file of at most 4 MiB")
    found = json.loads(file.read_bytes(), object_pairs_hook=_once)
    check(isinstance(found, dict), f"{file.name} is no object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two readers one might take the first value, and the other the last."""
    found = dict(pairs)
    check(len(found) == len(pairs), "a name that is given twice")
    return found
