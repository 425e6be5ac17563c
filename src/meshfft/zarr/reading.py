"""Zarr stores, read by tensorstore once what they say of themselves was seen to be right.

tensorstore ends the process where a chunk does not fit in memory, and follows links; so sizes are checked before it is
asked to open a store, and files before it is asked to read them. Invariant: no file outside the store is read, and
nothing is allocated for a chunk that is larger than a gigabyte.
"""

import contextlib
import dataclasses
import itertools
import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import check
from ..extras import need
from ..formats.conventions import PACKED, UNSIGNED, data_among, decoded, plain_json, unpacked_values, words
from ..formats.grid import Box
from ..formats.labels import ENCODING, MOST_COORDINATE, Coordinate, Labels, scales_of
from ..formats.record import Record
from ..formats.source import Refused, Source, choose, source_of
from ..formats.steady import Steady
from .dataset import KEY, plain_files
from .metadata import (
    NAMES,
    Array,
    array_at,
    arrays_in,
    attributes_at,
    check_inside,
    described,
    is_array,
    is_zarr,
)
from .stores import check_name, context, system_words


@contextlib.contextmanager
def open_zarr(path: Path, dataset: str | None) -> Iterator[Source]:
    check(is_zarr(path), f"{path} is not a Zarr store, it has no zarr.json, .zarray or .zgroup: give one", Refused)
    root = path.resolve()
    folder = root / _chosen(path, root, dataset)
    found, source = _source(path, root, folder)
    source = dataclasses.replace(source, name="" if folder == root else str(folder.relative_to(root)))
    labels = _labels(path, root, folder)
    if labels is not None and len(labels.dims) == source.ndim:
        units, spacing = scales_of(labels)
        source = dataclasses.replace(source, labels=labels, units=units, spacing=spacing)
        source = source if found.ours else decoded(source, labels.attributes)
    if found.ours:
        record = Record.from_dict(found.ours, str(path))
        same = record.out_shape == found.shape and record.out_dtype == found.dtype.name
        what = f"{path} has a record of {record.out_dtype} {record.out_shape} and holds {found.dtype} {found.shape}"
        check(same, f"{what}: remove its attribute {KEY!r}", Refused)
        source = dataclasses.replace(source, record=record.to_dict(), units=record.units, spacing=record.spacing)
    yield source


def _source(path: Path, root: Path, folder: Path) -> tuple[Array, Source]:
    """The array in a folder, as it is stored."""
    tensorstore = need("tensorstore", "reading Zarr")
    steady = Steady(path, next((folder / name for name in NAMES if (folder / name).exists()), folder))
    found = array_at(path, root, folder)
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

    return found, source_of(path, found.shape, found.dtype, steady.reading(read), chunk=found.chunk)


def _labels(path: Path, root: Path, folder: Path) -> Labels | None:
    """What xarray knows of an array: its coordinates are other arrays of its group."""
    dims, attributes = described(path, root, folder)
    if dims is None:
        return None
    if folder == root:
        return Labels("", dims, plain_json(attributes, [KEY]))
    about = attributes_at(path, root, folder.parent)
    names = dict.fromkeys([*dims, *words(attributes.get("coordinates")), *words(about.get("coordinates"))])
    found = [_coordinate(path, root, folder.parent / name, dims) for name in names if _is_name(name, folder)]
    known = tuple(one for one in found if one is not None)
    return Labels(folder.name, dims, plain_json(attributes, [KEY]), known, plain_json(about, [KEY, "coordinates"]))


def _is_name(name: str, folder: Path) -> bool:
    return "/" not in name and name not in ("", ".", "..", folder.name)


def _coordinate(path: Path, root: Path, folder: Path, dims: tuple[str, ...]) -> Coordinate | None:
    """An array of the group that lies along some of the dimensions; one of format 2 has to be read to be copied."""
    check_inside(path, root, folder)
    if not is_zarr(folder) or not is_array(path, root, folder):
        return None
    own, attributes = described(path, root, folder)
    if own is None or not set(own) <= set(dims):
        return None
    third, values = (folder / "zarr.json").exists(), None
    if own == (folder.name,) or not third:
        values = _values(path, root, folder)
    packed = values is not None and any(name in attributes for name in (*PACKED, UNSIGNED))
    if packed or not third:
        plain = None if values is None else unpacked_values(values, attributes)
        return None if plain is None else Coordinate(folder.name, own, plain_json(attributes, ENCODING), plain)
    plain_files(folder)
    return Coordinate(folder.name, own, plain_json(attributes), values, folder)


def _values(path: Path, root: Path, folder: Path) -> np.ndarray | None:
    """The numbers of a coordinate, None where it has none, or too many to be held."""
    try:
        _, source = _source(path, root, folder)
    except Refused:
        return None
    few = math.prod(source.shape) * source.dtype.itemsize <= MOST_COORDINATE
    return source[...] if few else None


def _opened(tensorstore: Any, folder: Path, found: Array) -> Any:
    check_name(folder)
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
    if is_array(path, root, root):
        check(dataset is None, f"{path} is one array without datasets: leave out {dataset!r}", Refused)
        return "."
    names = sorted(arrays_in(path, root))
    if dataset is None:
        names = data_among({name: described(path, root, root / name) for name in names})
    return choose(path, names, dataset)


def _check_files(path: Path, root: Path, folder: Path, found: Array, box: Box) -> None:
    """Raises Refused where a chunk that a box needs is no file of this store, or was lost."""
    places = (range(s.start // f, -(-s.stop // f)) for s, f in zip(box, found.file, strict=True))
    seen: set[Path] = set()
    for place in itertools.product(*places):
        chunk = folder / found.key(place)
        name = chunk.relative_to(root)
        for above in (at for at in chunk.parents if at not in seen and root in at.parents):
            check_inside(path, root, above)
            seen.add(above)
        check_inside(path, root, chunk)
        try:
            mode = chunk.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            lost = f"{path} has lost its chunk {name}: make or copy it anew"
            check(found.ours is None, lost, Refused)
            continue
        check(stat.S_ISREG(mode), f"{path} has {name}, which is no file: make or copy it anew", Refused)
