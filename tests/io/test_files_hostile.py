"""Files that are damaged, cut short or made to do harm: each is refused in one line that names it."""

import gzip
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from array_files import VALUES, complex_values, h5py, nibabel, refusal, save
from commands import python
from hypothesis import given
from hypothesis import strategies as st

from meshfft.io import nifti, open_array


def test_missing_folder_and_unknown(tmp_path: Path) -> None:
    """Catches paths that are no array files ending in a traceback from deep inside a reader."""
    assert "does not exist" in refusal(tmp_path / "none.npy")
    (tmp_path / "folder.npy").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.npy")
    (tmp_path / "folder.zarr").mkdir()
    assert "not a Zarr store" in refusal(tmp_path / "folder.zarr")
    (tmp_path / "a.csv").write_text("1,2")
    assert "ends in .npy, .h5, .hdf5, .nc, .nii, .nii.gz, .zarr" in refusal(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.npy", "a.nii", "a.nii.gz", "a.h5"])
@pytest.mark.parametrize("keep", [0.0, 0.02, 0.7])
def test_files_cut_short_are_refused(tmp_path: Path, name: str, keep: float) -> None:
    """Catches a truncated download read as zeros, or refused with a reader's own unclear error."""
    path = save(tmp_path / name, complex_values((32, 32, 32)).real)
    os.truncate(path, int(path.stat().st_size * keep))
    assert "damaged or cut short" in refusal(path)


def replaced(path: Path, others: Path) -> None:
    os.replace(others, path)


def rewritten(path: Path, others: Path) -> None:
    path.write_bytes(others.read_bytes())


def cut(path: Path, _: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


CHANGES = {"replaced": replaced, "rewritten": rewritten, "cut": cut, "gone": lambda path, _: path.unlink()}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["a.npy", "f.npy", "a.nii", "a.h5"])
def test_files_that_change_while_they_are_read(tmp_path: Path, name: str, change: str) -> None:
    """Catches numbers of two files in one array, or those of a deleted file returned for the opened one."""
    values = complex_values((32, 32, 32)).real
    path, other = save(tmp_path / name, np.asfortranarray(values) if name == "f.npy" else values), tmp_path / "other"
    other.write_bytes(save(tmp_path / f"more-{name}", values + 1).read_bytes())
    os.utime(path, (1, 1))  # its last change is no part of a clock's tick ago
    with open_array(path) as source:
        np.testing.assert_array_equal(source[:3], values[:3])
        CHANGES[change](path, other)
        with pytest.raises(ValueError, match=f"{name} was replaced or written to while it was read"):
            source[...]


CUT = """
import os, sys, threading
from meshfft.io import open_array
with open_array("a.npy") as source:
    threading.Timer(0.05, os.truncate, ("a.npy", 4096)).start()
    try:
        while True:
            source[...]
    except ValueError as error:
        print(error)
"""


def test_a_file_cut_short_in_the_middle_of_a_read(tmp_path: Path) -> None:
    """Catches a process ended by SIGBUS, as one is that reads a map of such a file."""
    np.save(tmp_path / "a.npy", np.zeros(2**25, "u1"))
    run = python("-c", CUT, folder=tmp_path)
    assert run.returncode == 0 and "a.npy was replaced or written to while it was read" in run.stdout, run


def test_a_store_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    """Catches chunks of another store returned as those of the opened one."""
    for name in ("a.zarr", "b.zarr"):
        save(tmp_path / name, complex_values((4, 4)))
    with open_array(tmp_path / "a.zarr") as source:
        (tmp_path / "a.zarr").rename(tmp_path / "old.zarr")
        (tmp_path / "b.zarr").rename(tmp_path / "a.zarr")
        with pytest.raises(ValueError, match=r"a\.zarr was replaced or written to"):
            source[...]


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


def test_gzip_that_unpacks_to_more_than_its_header_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a disk filled by a packed volume that is longer than its voxels, or claims to be."""
    plain = save(tmp_path / "a.nii", VALUES).read_bytes()

    def packed(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(gzip.compress(data))
        return tmp_path / name

    with open_array(packed("trailing.nii.gz", plain + bytes(1000))) as source:
        np.testing.assert_array_equal(source[...], VALUES)
    assert "unpacks to more than its header needs" in refusal(packed("bomb.nii.gz", plain + bytes(2**26)))
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4))
    image.header["dim"][:4] = 3, 200, 200, 200
    assert "its header needs 16000000" in refusal(packed("wide.nii.gz", image.header.binaryblock + bytes(2**20)))
    image.header["dim"][:4], image.header["vox_offset"] = (3, 2, 2, 2), 2**30
    assert "begin after 1073741824 bytes" in refusal(packed("late.nii.gz", image.header.binaryblock + bytes(2**20)))
    monkeypatch.setattr(nifti.shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    assert "free some, or unpack it elsewhere" in refusal(tmp_path / "trailing.nii.gz")


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


def npy(path: Path, header: bytes, version: bytes = b"\x01\x00", body: bytes = b"") -> Path:
    """A .npy file with any header at all."""
    size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    path.write_bytes(b"\x93NUMPY" + version + size + header + body)
    return path


@pytest.mark.parametrize("shape", [(-1, -4), (-4,), (2**62, 2**62), (2**40,), (2**70,), (2**30, 2**31)])
def test_headers_of_shapes_that_no_array_has(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Catches negative sizes whose product is positive, and memory allocated on the word of a header."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode()
    text = refusal(npy(tmp_path / "a.npy", header, body=bytes(16)))
    assert ("16 bytes of numbers" if shape == (2**40,) else "which no array has") in text


@pytest.mark.parametrize(
    ("header", "version"),
    [
        (b"(" * 60_000, b"\x01\x00"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'more': 1}", b"\x01\x00"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", b"\x09\x09"),
        (b" " * 10_000_000, b"\x02\x00"),
        (b"__import__('os').mkdir('exploded')", b"\x01\x00"),
        (b"{'descr': '|O', 'fortran_order': False, 'shape': (4,)}", b"\x03\x00"),
        (b"{'descr': [('a', '<f4', (-3,))], 'fortran_order': False, 'shape': (4,)}", b"\x01\x00"),
    ],
)
def test_headers_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes, version: bytes) -> None:
    """Catches a parser's own error for brackets too deep, unknown versions and code."""
    monkeypatch.chdir(tmp_path)
    refusal(npy(tmp_path / "a.npy", header, version, bytes(16)))
    assert not (tmp_path / "exploded").exists()


@given(at=st.integers(0, 127), byte=st.integers(0, 255))
def test_any_byte_of_a_header(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    """Catches a header that ends in anything but numbers, or one line."""
    path = save(tmp_path_factory.mktemp("npy") / "a.npy", np.arange(6, dtype="f4").reshape(2, 3))
    text = bytearray(path.read_bytes())
    text[at] = byte
    path.write_bytes(text)
    try:
        with open_array(path) as source:
            assert source[...].nbytes <= 100
    except ValueError as error:
        assert path.name in str(error) and "\n" not in str(error)


def test_voxels_that_are_not_there(tmp_path: Path) -> None:
    """Catches memory taken for a volume that a header of 348 bytes makes up."""
    image = nibabel.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.eye(4))
    image.header["dim"][:5] = 4, 32767, 32767, 32767, 32767
    (tmp_path / "a.nii").write_bytes(image.header.binaryblock + bytes(20))
    assert "damaged or cut short" in refusal(tmp_path / "a.nii")
    image.header["dim"][:5] = 3, -2, 2, 2, 1
    (tmp_path / "a.nii").write_bytes(image.header.binaryblock + bytes(20))
    refusal(tmp_path / "a.nii")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Catches a reader that waits for ever on a pipe."""
    for name in ("a.npy", "a.nii.gz", "a.h5"):
        os.mkfifo(tmp_path / name)
        assert "give a file" in refusal(tmp_path / name)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's, beside the one that is opened, that it must not make anybody read."""
    folder = tmp_path / "home"
    folder.mkdir()
    with h5py.File(folder / "secret.h5", "w") as file:
        file["key"] = np.full(4, 42.0)
    np.full(4, 42.0).tofile(folder / "secret.bin")
    return folder


def test_hdf5_links_to_other_files(tmp_path: Path, secret: Path) -> None:
    """Catches an external link followed, alone in a file, by its name, and through a group."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["link"] = h5py.ExternalLink(str(secret / "secret.h5"), "/key")
        file["group/away"] = h5py.ExternalLink(str(secret / "secret.h5"), "/")
    assert "has no dataset of its own" in refusal(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["own"] = np.zeros(3)
        file["soft"] = h5py.SoftLink("/link")
    for dataset in ("link", "/link", "group/away/key"):
        assert "not followed" in refusal(tmp_path / "a.h5", dataset)
    for dataset in ("soft", "group/../link", "./link"):
        assert "has no dataset" in refusal(tmp_path / "a.h5", dataset)
    with open_array(tmp_path / "a.h5") as source:
        assert source.shape == (3,)


def test_hdf5_numbers_in_other_files(tmp_path: Path, secret: Path) -> None:
    """Catches external raw storage, and a virtual dataset, through which a file shows any other."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("raw", (4,), "f8", external=[(str(secret / "secret.bin"), 0, 32)])
    assert "in other files" in refusal(tmp_path / "a.h5")
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(secret / "secret.h5", "key", (4,))
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_virtual_dataset("mixed", layout)
    assert "together from other datasets" in refusal(tmp_path / "b.h5")


def test_hdf5_chunks_larger_than_memory(tmp_path: Path) -> None:
    """Catches a chunk of four gigabytes unpacked for one number."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", (2**15, 2**15), "f4", chunks=(2**15, 2**14), compression="gzip")
    assert "chunks of shape (32768, 16384), 2.15 GB" in refusal(tmp_path / "a.h5")
