"""Array files, read by slices: values of every kind, units, and no reading beyond the slice."""

import contextlib
import sys
import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from array_files import VALUES, complex_values, h5py, nibabel, raises, save, zarr
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import meshfft as mf
from meshfft.io import flat, nifti, open_array, source


@pytest.mark.parametrize("name", ["a.npy", "a.NPY", "a.nii", "a.nii.gz", "a.h5", "a.hdf5", "a.zarr"])
def test_reads_every_kind_by_slices(tmp_path: Path, name: str) -> None:
    """Catches a kind of file with wrong values, shape or slices, and a suffix that depends on its case."""
    path = save(tmp_path / name.lower(), VALUES)
    path = path.rename(tmp_path / name)
    with open_array(path) as source:
        assert (source.shape, source.ndim, source.dtype) == (VALUES.shape, 3, np.float32)
        np.testing.assert_array_equal(source[1:, :2, 3:], VALUES[1:, :2, 3:])
        np.testing.assert_array_equal(source[:, 0, ...], VALUES[:, 0])


def test_reads_no_more_than_the_slice(tmp_path: Path) -> None:
    """Catches a reader that fetches the whole array: these are larger than memory, and hardly stored."""
    shape = (2**20, 2**20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", shape, "f4", chunks=(64, 64))
    zarr.create_array(tmp_path / "a.zarr", shape=shape, dtype="f4", chunks=(64, 64))
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 2**42)
    for name in ("a.h5", "a.zarr", "a.npy"):
        with open_array(tmp_path / name) as source:
            assert source[5:7, -3:].tolist() == [[0, 0, 0]] * 2


def test_a_block_with_padding_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a block at the edge that is read, and then copied to where its padding is."""
    monkeypatch.setattr(source, "BOX_BYTES", 2**18)
    with h5py.File(tmp_path / "a.h5", "w") as made:
        made.create_dataset("a", data=np.ones((1023, 4096), "f4"), chunks=(31, 512))
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    with open_array(tmp_path / "a.h5") as file:
        tracemalloc.start()
        try:
            y = mf.shard(file, mesh, PartitionSpec("x"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert float(mf.gather(y.sum())) == 1023 * 4096
    assert peak < 2.5 * 512 * 4096 * 4  # this block, and the one before it


def test_gaps_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches reading more than a box that consists of runs, and one call per number for a box that does not; `preadv`
    returns a few bytes at a time."""
    values = np.arange(64 * 64 * 2048, dtype="f4").reshape(64, 64, 2048)
    np.save(tmp_path / "a.npy", values)
    plain, got = flat.os.preadv, list[int]()

    def short(file: int, rooms: Any, at: int) -> int:
        got.append(plain(file, [rooms[0][:1500]], at))
        return got[-1]

    monkeypatch.setattr(flat.os, "preadv", short)
    for box, most in (
        (np.s_[3:5, 1:9, :500], 1),
        (np.s_[:, 7, 1], 1025),
        (np.s_[7:9, :, ::1], 1),
        (np.s_[2, 3:40, 5:8], 400),
    ):
        with open_array(tmp_path / "a.npy") as found:
            got.clear()
            np.testing.assert_array_equal(found[box], values[box])
        assert sum(got) <= most * values[box].nbytes


def test_nifti_is_scaled(tmp_path: Path) -> None:
    """Catches voxels returned as stored, without the header's slope and intercept, or with the stored dtype."""
    image = nibabel.Nifti1Image(np.arange(8, dtype=np.int16).reshape(2, 2, 2), np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / "a.nii.gz")
    expected = nibabel.load(tmp_path / "a.nii.gz").get_fdata()
    with open_array(tmp_path / "a.nii.gz") as source:
        assert source.dtype == np.float64
        np.testing.assert_array_equal(source[...], expected)


@pytest.mark.parametrize("code", [">f4", ">i2", ">c8"])
def test_bytes_come_in_native_order(tmp_path: Path, code: str) -> None:
    """Catches big-endian files, common in NIfTI, returned in a byte order that JAX refuses."""
    np.save(tmp_path / "a.npy", VALUES.astype(code))
    with open_array(tmp_path / "a.npy") as source:
        assert source.dtype.isnative and source[...].dtype.isnative
        np.testing.assert_array_equal(source[...], VALUES)


def test_fortran_order_is_kept_right(tmp_path: Path) -> None:
    """Catches a .npy file in Fortran order read as if it were in C order."""
    np.save(tmp_path / "a.npy", np.asfortranarray(VALUES))
    with open_array(tmp_path / "a.npy") as source:
        np.testing.assert_array_equal(source[0], VALUES[0])


def test_astype_converts_what_is_read(tmp_path: Path) -> None:
    """Catches 64-bit integers that JAX would wrap to 32 bits instead of taking as floating point."""
    for name in ("a.npy", "a.zarr", "a.h5"):
        with open_array(save(tmp_path / name, np.array([2**40, -1]))) as source:
            floats = source.astype(np.float32)
            assert floats.dtype == floats[:].dtype == np.float32
            assert floats[0] == 2.0**40


def two_datasets(path: Path) -> Path:
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["a"], file["group/b"] = VALUES, VALUES + 1
    else:
        group = zarr.create_group(path)
        group.create_array("a", data=VALUES)
        group.create_array("group/b", data=VALUES + 1)
    return path


@pytest.mark.parametrize("name", ["two.h5", "two.zarr"])
def test_datasets_are_chosen_by_name(tmp_path: Path, name: str) -> None:
    """Catches the wrong array of several, and an error for a wrong name, or for none, that does not list the right."""
    path = two_datasets(tmp_path / name)
    for wanted in ("group/b", "/group/b"):
        with open_array(path, wanted) as source:
            np.testing.assert_array_equal(source[...], VALUES + 1)
    for wrong in (None, "group", "c"):
        with pytest.raises(ValueError, match=r"a, group/b.*: name one of"), open_array(path, wrong):
            pass


@pytest.mark.parametrize("name", ["a.npy", "a.nii", "one.zarr"])
def test_dataset_of_a_single_array_is_refused(tmp_path: Path, name: str) -> None:
    """Catches a dataset name that is silently ignored."""
    with pytest.raises(ValueError, match="leave out"), open_array(save(tmp_path / name, VALUES), "x"):
        pass


def test_a_full_disk_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a good file blamed for a system error during reading."""
    path = save(tmp_path / "a.nii.gz", VALUES)
    monkeypatch.setattr(nifti, "_copy", raises(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"), open_array(path):
        pass


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an import error that does not name the package to install."""
    for name, package in (("a.nii", "nibabel"), ("a.h5", "h5py"), ("a.zarr", "tensorstore")):
        path = save(tmp_path / name, VALUES)
        monkeypatch.setitem(sys.modules, package, None)
        needs = rf'reading \w+ needs {package} .* pip install "\.\[files\]"'
        with pytest.raises(ImportError, match=needs), open_array(path):
            pass


FOREIGN: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "second": {"zarr_format": 2},
    "second-big": {"zarr_format": 2, "dtype": ">f4", "order": "F"},
    "slashes": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "dots": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
    "gzip": {"compressors": [{"name": "gzip", "configuration": {"level": 1}}]},
    "shards": {"shards": (4, 4, 6)},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_stores_of_others_are_read(tmp_path: Path, name: str) -> None:
    """Catches a wrong format, codec, byte order, chunk name or shard of zarr-python."""
    values = complex_values((5, 7, 6)).real
    options = {"dtype": "f4", "chunks": (2, 4, 3), **FOREIGN[name]}
    zarr.create_array(tmp_path / "a.zarr", shape=values.shape, **options)[...] = values
    with open_array(tmp_path / "a.zarr") as found:
        assert (found.dtype, found.record, found.units) == (np.float32, None, ("", "", ""))
        np.testing.assert_array_equal(found[...], values)
        np.testing.assert_array_equal(found[1:4, 3, -2:], values[1:4, 3, -2:])


def test_what_a_foreign_store_leaves_out_is_its_fill_value(tmp_path: Path) -> None:
    """Catches chunks that were never written, as Zarr allows, refused or read as something else."""
    array = zarr.create_array(tmp_path / "a.zarr", shape=(4, 4), chunks=(2, 2), dtype="f4", fill_value=7)
    array[:2, :2] = 1
    with open_array(tmp_path / "a.zarr") as found:
        np.testing.assert_array_equal(found[...], np.kron([[1, 7], [7, 7]], np.ones((2, 2))))


KINDS = ("c.npy", "f.npy", "a.nii", "a.h5", "a.zarr")


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, dict[str, Path]]:
    """One array in files of every kind, chunked where they can be."""
    folder, values = tmp_path_factory.mktemp("volumes"), complex_values((6, 5, 7)).real
    np.save(folder / "c.npy", values)
    np.save(folder / "f.npy", np.asfortranarray(values))
    save(folder / "a.nii", values)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("only", data=values, chunks=(2, 3, 4))
    zarr.create_array(folder / "a.zarr", shape=values.shape, chunks=(4, 2, 3), dtype="f4")[...] = values
    return values, {name: folder / name for name in KINDS}


@given(data=st.data(), most=st.integers(1, 900), wide=st.booleans())
def test_any_slice_in_any_pieces(volumes: Any, data: st.DataObject, most: int, wide: bool) -> None:
    """Catches a part read twice, left out or put in the wrong place, whatever the file's order and chunks."""
    values, paths = volumes
    index = tuple(
        data.draw(st.one_of(st.integers(-n, n - 1), st.slices(n).filter(lambda s: s.step in (None, 1))))
        for n in values.shape[: data.draw(st.integers(0, 3))]
    )
    for name in KINDS:
        with contextlib.ExitStack() as stack:
            for module in (source, flat):
                stack.enter_context(mock.patch.object(module, "BOX_BYTES", most))
            stack.enter_context(mock.patch.object(flat, "READ_BYTES", most % 97))  # gaps read through, or not
            with open_array(paths[name]) as found:
                read = found.astype("f8")[index] if wide else found[index]
        np.testing.assert_array_equal(read, values[index])
        assert read.dtype == (np.float64 if wide else np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_blocks_are_read_into_padded_places(volumes: Any, name: str) -> None:
    """Catches padding that is not zero, and shifted values, on devices that do not divide the file."""
    values, paths = volumes
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"))
    with open_array(paths[name]) as found:
        stored = mf.shard(found, mesh, PartitionSpec("x", "y", "z"))
    assert isinstance(stored, mf.PaddedArray)
    np.testing.assert_array_equal(np.asarray(stored.stored), np.pad(values, [(0, 0), (0, 1), (0, 1)]))


def test_indices_that_are_none_are_refused(volumes: Any) -> None:
    """Catches a step ignored, and an index beyond the array wrapped round or cut off."""
    _, paths = volumes
    with open_array(paths["c.npy"]) as found:
        for index in (np.s_[::2], 6, -7, np.s_[0, 0, 0, 0]):
            with pytest.raises(IndexError, match=r": "):
                found[index]
        with pytest.raises(TypeError):
            found[1.5]


def test_units_of_voxels(tmp_path: Path) -> None:
    """Catches a voxel's size or unit that is lost or put with another dimension, and accepted invalid sizes."""
    image = nibabel.Nifti1Image(np.zeros((2, 3, 4, 5, 2), np.int16), np.eye(4))
    image.header.set_zooms((0.5, 2, 3, 1.5, 4))
    image.header.set_xyzt_units("mm", "sec")
    nibabel.save(image, tmp_path / "a.nii.gz")
    with open_array(tmp_path / "a.nii.gz") as found:
        assert (found.units, found.spacing) == (("mm", "mm", "mm", "sec", ""), (0.5, 2, 3, 1.5, 4))
    image.header["pixdim"][2:4] = np.nan, np.inf
    for code, named in ((10, ("mm", "", "", "sec", "")), (7, ("",) * 5)):  # 7 is no unit
        image.header["xyzt_units"] = code
        (tmp_path / "b.nii").write_bytes(image.header.binaryblock + bytes(4 + 480))
        with open_array(tmp_path / "b.nii") as found:
            assert (found.units, found.spacing) == (named, (0.5, 1, 1, 1.5, 4))


def test_an_opened_array_prints_as_one_line(tmp_path: Path) -> None:
    """Catches a screen of closures and coordinates as the repr of an opened array."""
    with open_array(save(tmp_path / "a.npy", VALUES)) as source:
        assert repr(source) == f"<Source: float32 2 x 3 x 5 in {tmp_path / 'a.npy'}>"
