"""Files that are damaged, cut short or made to do harm: each is refused in one line that names it."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import complex_values, h5py, refusal, save


def test_missing_folder_and_unknown(tmp_path: Path) -> None:
    """Catches paths that are no array files ending in a traceback from deep inside a reader."""
    assert "does not exist" in refusal(tmp_path / "none.npy")
    (tmp_path / "folder.npy").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.npy")
    (tmp_path / "folder.zarr").mkdir()
    assert "not a Zarr store" in refusal(tmp_path / "folder.zarr")
    (tmp_path / "a.csv").write_text("1,2")
    assert ".npy, .nii, .nii.gz, .h5, .hdf5, .zarr" in refusal(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.npy", "a.nii", "a.nii.gz", "a.h5"])
@pytest.mark.parametrize("keep", [0.0, 0.02, 0.7])
def test_files_cut_short_are_refused(tmp_path: Path, name: str, keep: float) -> None:
    """Catches a truncated download read as zeros, or refused with a reader's own unclear error."""
    path = save(tmp_path / name, complex_values((32, 32, 32)).real)
    os.truncate(path, int(path.stat().st_size * keep))
    assert "damaged or cut short" in refusal(path)


@pytest.mark.parametrize("name", ["a.npy", "a.nii", "a.nii.gz", "a.h5", "a.zarr"])
def test_garbage_is_refused(tmp_path: Path, name: str) -> None:
    """Catches bytes of no format at all reaching the user as a traceback."""
    path = tmp_path / name
    if path.suffix == ".zarr":
        path.mkdir()
        (path / "zarr.json").write_text("{")
    else:
        path.write_bytes(b"garbage " * 100)
    assert "damaged or cut short" in refusal(path)


@pytest.mark.parametrize("at", [10, 2000])
def test_damaged_compressed_voxels_are_refused(tmp_path: Path, at: int) -> None:
    """Catches zlib's own error, and wrong voxels taken for right: slices end before the checksum of the file."""
    path = save(tmp_path / "a.nii", complex_values((16, 16, 16)).real)
    packed = bytearray(gzip.compress(path.read_bytes()))
    packed[at] ^= 0xFF
    (tmp_path / "b.nii.gz").write_bytes(packed)
    assert "damaged or cut short" in refusal(tmp_path / "b.nii.gz")


class Bomb:
    """Pickled, it makes a folder when it is loaded."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def test_pickles_are_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an input file that runs code: an array of objects, and a bare pickle under the suffix .npy."""
    monkeypatch.chdir(tmp_path)
    np.save("objects.npy", np.array([Bomb(), None], dtype=object), allow_pickle=True)
    assert "holds Python objects" in refusal(tmp_path / "objects.npy")
    np.array([Bomb()], dtype=object).dump("pickle.npy")
    assert "damaged" in refusal(tmp_path / "pickle.npy")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.array(["a", "bc"]), "holds values of dtype"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "holds values of dtype"),
        (np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]), "holds values of dtype"),
        (np.zeros(3, dtype=np.longdouble), "holds values of dtype"),
        (np.array(3.0), "a single value"),
        (np.zeros((3, 0)), "holds an empty array"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(tmp_path: Path, array: np.ndarray, word: str) -> None:
    """Catches dtypes and shapes that no transform has, which fail later and less clearly."""
    np.save(tmp_path / "a.npy", array)
    assert word in refusal(tmp_path / "a.npy")


def test_strings_in_hdf5_are_refused(tmp_path: Path) -> None:
    """Catches a text dataset, which h5py gives as Python objects."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["words"] = ["a", "b"]
    assert "strings" in refusal(tmp_path / "a.h5")
