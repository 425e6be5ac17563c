"""A Zarr group that xarray opens as a dataset: an array with its coordinates, and what describes them all in one place.

Coordinates are arrays of one file each. Invariant: everything written here is on the disk when it is written.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from ..formats.labels import Coordinate, Labels
from ..formats.zarr_metadata import KEY, plain_files

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def begin_dataset(path: Path, labels: Labels) -> Path:
    """Makes the folder of the group; returns where its array is to be made."""
    path.mkdir()
    return path / labels.name


def end_dataset(path: Path, labels: Labels) -> None:
    """Writes the coordinates of an array that is there, and the description of the whole."""
    for one in labels.coordinates:
        if one.folder is not None:
            _copy(one.folder, path / one.name)
        elif one.values is not None:
            _write(path / one.name, one)
    known = {entry.parent.name: json.loads(entry.read_bytes()) for entry in sorted(path.glob("*/zarr.json"))}
    inline = {"kind": "inline", "must_understand": False, "metadata": known}
    document = {"zarr_format": 3, "node_type": "group", "attributes": {**labels.about, KEY: labels.name}}
    _put(path / "zarr.json", json.dumps({**document, "consolidated_metadata": inline}).encode())


def array_in(path: Path) -> Path:
    """The folder of the array that was written into a store, which may be the store itself."""
    found = json.loads((path / "zarr.json").read_bytes())
    return path if found["node_type"] == "array" else path / found["attributes"][KEY]


def attributes_of(labels: Labels) -> dict[str, Any]:
    """The attributes of the array: its own, and the names of coordinates that are none of its dimensions."""
    more = [one.name for one in labels.coordinates if one.dims != (one.name,)]
    return {**labels.attributes, **({"coordinates": " ".join(more)} if more else {})}


def _write(path: Path, one: Coordinate) -> None:
    values: Any = one.values
    shape, little = list(values.shape), values.dtype.newbyteorder("<")
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": values.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": False if values.dtype.kind == "b" else 0,
        "codecs": [BYTES] if values.dtype.itemsize > 1 else [{"name": "bytes"}],
        "attributes": dict(one.attributes),
        "dimension_names": list(one.dims),
    }
    path.mkdir()
    _put(path / ".".join(["c", *("0" for _ in shape)]), values.astype(little).tobytes())
    _put(path / "zarr.json", json.dumps(document).encode())


def _copy(source: Path, path: Path) -> None:
    """Copies an array file by file, whatever it holds."""
    for file in plain_files(source):
        target = path / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        with open(target, "rb+") as copied:
            os.fsync(copied.fileno())


def _put(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
