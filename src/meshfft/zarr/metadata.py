"""What Zarr stores say of themselves, in formats 2 and 3, seen to be right before anything is done with it.

Invariant: no file outside the store is read, and no size is believed for which memory would be taken.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import check
from ..formats.rules import count, many, text
from ..formats.source import DTYPES, Refused, check_chunk, check_numbers
from .stores import KEY

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


def is_zarr(path: Path) -> bool:
    """True for the folder of a Zarr array or group, of format 2 or 3."""
    return path.is_dir() and any((path / name).is_file() for name in NAMES)


def arrays_in(path: Path, root: Path) -> Iterator[str]:
    """The names of all arrays in a group, through groups that are folders of their own."""
    groups = [root]
    while groups:
        for folder in sorted(groups.pop().iterdir()):
            check_inside(path, root, folder)
            if folder.is_symlink() or not is_zarr(folder):
                continue
            if is_array(path, root, folder):
                yield folder.relative_to(root).as_posix()
            else:
                groups.append(folder)


class Described(NamedTuple):
    """The names of an array's dimensions, None where not all have one, and its attributes."""

    dims: tuple[str, ...] | None
    attributes: dict[str, Any]


def described(path: Path, root: Path, folder: Path) -> Described:
    """What an array says of its dimensions, as Zarr of format 3 does, or as xarray does in format 2."""
    if (folder / "zarr.json").exists():
        doc = json_of(path, root, folder / "zarr.json")
    else:
        doc = json_of(path, root, folder / ".zarray")
    attributes = attributes_at(path, root, folder)
    if doc.get("zarr_format") == 2 and doc.get("fill_value"):  # as xarray; 0 stands there for no reason
        attributes = {"_FillValue": doc["fill_value"], **attributes}
    names = doc.get("dimension_names") or attributes.get("_ARRAY_DIMENSIONS")
    return Described(() if doc.get("shape") == [] else _names(names), attributes)


def attributes_at(path: Path, root: Path, folder: Path) -> dict[str, Any]:
    """The attributes of an array or a group, of either format."""
    if (folder / "zarr.json").exists():
        found = json_of(path, root, folder / "zarr.json").get("attributes", {})
        return found if isinstance(found, dict) else {}
    return json_of(path, root, folder / ".zattrs") if (folder / ".zattrs").exists() else {}


def _names(given: Any) -> tuple[str, ...] | None:
    """Names that can be those of dimensions: short lines, each another."""
    try:
        found = many(text)(given)
    except ValueError:
        return None
    return found if all(found) and len(set(found)) == len(found) else None


def is_array(path: Path, root: Path, folder: Path) -> bool:
    if (folder / "zarr.json").exists():
        return json_of(path, root, folder / "zarr.json").get("node_type") == "array"
    return (folder / ".zarray").exists()


def array_at(path: Path, root: Path, folder: Path) -> Array:
    """The array in a folder, its sizes seen to be such that it can be opened."""
    third = (folder / "zarr.json").exists()
    found = (
        _third(json_of(path, root, folder / "zarr.json")) if third else _second(json_of(path, root, folder / ".zarray"))
    )
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


def check_inside(path: Path, root: Path, file: Path) -> None:
    """Raises Refused where a link leads out of the store."""
    inside = not file.is_symlink() or file.resolve().is_relative_to(root)
    check(inside, f"{path} has {file.relative_to(root)}, a link that leads out of it: give the store itself", Refused)


def json_of(path: Path, root: Path, file: Path) -> dict[str, Any]:
    """A JSON object of a plain file of the store, in which nothing is named twice."""
    check_inside(path, root, file)
    check(file.is_file() and file.stat().st_size <= JSON_BYTES, f"{file.name} is no file of at most 4 MiB")
    found = json.loads(file.read_bytes(), object_pairs_hook=_once)
    check(isinstance(found, dict), f"{file.name} is no object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two readers one might take the first value, and the other the last."""
    found = dict(pairs)
    check(len(found) == len(pairs), "a name that is given twice")
    return found
