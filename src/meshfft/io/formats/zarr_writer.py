"""Zarr arrays of format 3 to be written a file at a time, and the group of coordinates that each is made in."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...atomic import synced
from .grid import Grid
from .record import KEY
from .source import Labels
from .zarr import opened_zarr, plain_files, system_words

if TYPE_CHECKING:
    import tensorstore

# A chunk of zeros is written too, so that one that is not there is one that was lost.
SPEC: dict[str, object] = {"driver": "zarr3", "store_data_equal_to_fill_value": True}
BYTES: dict[str, object] = {"name": "bytes", "configuration": {"endian": "little"}}
CRC32C: dict[str, object] = {"name": "crc32c"}


def create_array(
    path: Path,
    shape: Sequence[int],
    dtype: np.dtype,
    grid: Grid,
    attributes: Mapping[str, object],
    names: Sequence[str],
) -> "tensorstore.TensorStore":
    """An array of format 3, uncompressed: to a compressor a spectrum is noise that takes longer than the transform."""
    codecs: list[dict[str, object]] = [BYTES, CRC32C] if dtype.itemsize > 1 else [{"name": "bytes"}, CRC32C]
    if grid.shard is not None:
        inner = {"chunk_shape": list(grid.chunk), "codecs": codecs, "index_codecs": [BYTES, CRC32C]}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    metadata = {
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},  # all files in one folder
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(grid.file)}},
        "codecs": codecs,
        "attributes": attributes,
        **({"dimension_names": list(names)} if len(names) == len(shape) else {}),
    }
    return opened_zarr(path, {**SPEC, "metadata": metadata}, create=True)


def describe(path: Path, labels: Labels) -> None:
    """Writes the coordinates of an array into its group, and the description of all."""
    for one in labels.coordinates:
        if one.folder is not None:
            for file in plain_files(one.folder):
                target = path / one.name / file.relative_to(one.folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                synced(target)
        elif one.values is not None:
            made = one.values.shape, one.values.dtype, Grid(one.values.shape), one.attributes, one.dims
            with system_words():
                create_array(path / one.name, *made).write(one.values).result()
            synced(path / one.name)
    known = {entry.parent.name: json.loads(entry.read_bytes()) for entry in sorted(path.glob("*/zarr.json"))}
    inline = {"kind": "inline", "must_understand": False, "metadata": known}
    document = {"zarr_format": 3, "node_type": "group", "attributes": {**labels.about, KEY: labels.name}}
    (path / "zarr.json").write_text(json.dumps({**document, "consolidated_metadata": inline}))
    for file in (path / "zarr.json", path, path.parent):
        synced(file)
