"""Array files made by the packages that define them, or by hand, and the refusals of those that are not right."""

import copy
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from meshfft.io import open_array
from meshfft.layout.layout import from_spec
from meshfft.layout.padded_array import PaddedArray

h5py, nibabel, zarr = (pytest.importorskip(name) for name in ("h5py", "nibabel", "zarr"))

VALUES: np.ndarray = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)


def save(path: Path, array: np.ndarray) -> Path:
    """Writes an array as the kind of file that its suffix names, with the package that defines the kind."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            file["only"] = array
    elif path.suffix == ".zarr":
        zarr.save_array(path, array)
    else:
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)
    return path


def sharded(array: np.ndarray, spec: PartitionSpec, sizes: dict[str, int]) -> Any:
    """The array on a mesh, padded at the tail with values that are not data, without the library's help."""
    mesh = jax.make_mesh(
        tuple(sizes.values()), tuple(sizes), devices=jax.devices()[: int(np.prod(list(sizes.values())))]
    )
    layout = from_spec(array.shape, sizes, spec)
    storage = layout.storage
    padded = np.pad(array, [(0, m - n) for m, n in zip(storage, array.shape, strict=True)], constant_values=-99)
    stored = jax.device_put(padded, NamedSharding(mesh, spec))
    return stored if storage == array.shape else PaddedArray(stored, layout, mesh)


def complex_values(shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(0)
    return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(np.complex64)


def raises(error: BaseException) -> Any:
    """A function that does nothing but fail."""

    def fail(*_: Any) -> None:
        raise error

    return fail


def refusal(path: Path, dataset: str | None = None) -> str:
    """The one line that opening and reading `path` is refused with."""
    with pytest.raises((ValueError, OSError)) as caught, open_array(path, dataset) as source:
        source[...]
    text = str(caught.value)
    assert path.name in text and "\n" not in text and ": " in text and len(text) < 800
    return text


BYTES: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP: dict[str, Any] = {"name": "gzip", "configuration": {"level": 1}}

METADATA: dict[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 4],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": [BYTES],
    "attributes": {},
}


def store(path: Path, chunk: bytes = bytes(64), **changed: Any) -> Path:
    """A store of one chunk, with other metadata than fit it."""
    (path / "c" / "0").mkdir(parents=True)
    document = copy.deepcopy(METADATA)
    if "chunk_shape" in changed:
        document["chunk_grid"]["configuration"]["chunk_shape"] = changed.pop("chunk_shape")
    (path / "zarr.json").write_text(json.dumps({**document, **changed}))
    (path / "c" / "0" / "0").write_bytes(chunk)
    return path
