"""HDF5 files as h5py writes them, and as somebody made them: every number is the file's own, and found in seconds."""

import itertools
import json
import os
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from array_files import complex_values, h5py, refusal
from hypothesis import given
from hypothesis import strategies as st

import meshfft as mf
from meshfft.io import hdf5, labelled, open_array, record_of, write_array
from meshfft.io.source import Coordinate, Labels
from meshfft.io.writing import header_of

VALUES = np.round(complex_values((9, 10)).real, 1)
PACKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "gzip": {"compression": "gzip", "compression_opts": 9},
    "lzf": {"compression": "lzf"},
    "summed": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "all-lzf": {"compression": "lzf", "shuffle": True, "fletcher32": True},
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("code", ["f4", ">f8", "c8", "?", "i2", "u1"])
def test_filters_are_undone(tmp_path: Path, name: str, code: str) -> None:
    """Catches a filter, a byte order or an edge chunk that differs from h5py's result."""
    values = (VALUES * 20).astype(code)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", data=values, chunks=(4, 3), maxshape=(None, 10), **PACKED[name])
    with open_array(tmp_path / "a.h5") as found:
        np.testing.assert_array_equal(found[...], values)
        np.testing.assert_array_equal(found[3:5, 2:7], values[3:5, 2:7])


def test_a_checksum_may_lie_under_the_packing(tmp_path: Path) -> None:
    """Catches checksum bytes counted as numbers if filters have another order than h5py's."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((4,))
        made.set_fletcher32()
        made.set_deflate(1)
        kind, space = h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((8,))
        h5py.Dataset(h5py.h5d.create(file.id, b"only", kind, space, made))[...] = np.arange(8)
    with open_array(tmp_path / "a.h5") as found:
        np.testing.assert_array_equal(found[...], np.arange(8))


@given(data=st.binary(min_size=1, max_size=400), times=st.integers(1, 40), name=st.sampled_from(sorted(PACKED)))
def test_any_bytes_are_unpacked(tmp_path_factory: pytest.TempPathFactory, data: bytes, times: int, name: str) -> None:
    """Catches runs and copies of LZF, and sums of Fletcher's, that HDF5 makes and this library reads otherwise."""
    path, values = tmp_path_factory.mktemp("hdf5") / "a.h5", np.frombuffer(data * times, "u1")
    with h5py.File(path, "w") as file:
        file.create_dataset("only", data=values, chunks=values.shape, **PACKED[name])
    with open_array(path) as found:
        np.testing.assert_array_equal(found[...], values)


def test_numbers_of_odd_kinds_are_converted(tmp_path: Path) -> None:
    """Catches the bits of 12-bit integers, which are not the lowest, read as plain numbers."""
    kind = h5py.h5t.STD_I16LE.copy()
    kind.set_precision(12)
    kind.set_offset(2)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((4,))
        made.set_deflate(1)
        one = h5py.Dataset(h5py.h5d.create(file.id, b"only", kind, h5py.h5s.create_simple((8,)), made))
        one[...] = np.arange(8) - 3
    with open_array(tmp_path / "a.h5") as found:
        np.testing.assert_array_equal(found[2:7], np.arange(2, 7) - 3)


def chunk_of(path: Path, name: str, raw: bytes, mask: int = 0) -> Path:
    """A file of one chunk of 16 numbers, 64 bytes, whose bytes on the disk are these."""
    with h5py.File(path, "w") as file:
        one = file.create_dataset("only", (16,), "f4", chunks=(16,), **PACKED[name])
        one.id.write_direct_chunk((0,), raw, mask)
    return path


SHORT: dict[str, tuple[str, bytes, int]] = {
    "plain": ("plain", bytes(60), 0),
    "gzip": ("gzip", zlib.compress(bytes(60)), 0),
    "gzip-long": ("gzip", zlib.compress(bytes(68)), 0),
    "gzip-cut": ("gzip", zlib.compress(np.arange(16, dtype="f4").tobytes())[:-6], 0),
    "without": ("gzip", bytes(60), 1),
    "lzf": ("lzf", b"\x1f" + bytes(32) + b"\x0f" + bytes(16), 0),
    "lzf-cut": ("lzf", b"\x1f" + bytes(32) + b"\x1f" + bytes(16), 0),
    "lzf-before": ("lzf", b"\x01ab\xe0\x34\x7f", 0),
    "summed": ("summed", bytes(64), 0),
    "sum-only": ("summed", bytes(2), 0),
    "sum-wrong": ("summed", b"\x01" + bytes(67), 0),
}


@pytest.mark.parametrize("name", SHORT)
def test_chunks_that_are_too_short_or_too_long(tmp_path: Path, name: str) -> None:
    """Catches what lay in memory before taken for the numbers that a damaged chunk does not have."""
    packed, raw, mask = SHORT[name]
    assert "damaged or cut short (" in refusal(chunk_of(tmp_path / "a.h5", packed, raw, mask))


@pytest.mark.parametrize("name", ["gzip", "lzf"])
def test_a_chunk_that_unpacks_to_a_gigabyte(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches memory sized by the unpacked content of a chunk of 64 bytes, not by the chunk's shape."""
    if name == "lzf" and h5py.version.hdf5_version_tuple < (2,):
        pytest.skip("HDF5 before 2 writes no chunk that is so much longer than its shape")
    bomb = zlib.compress(bytes(2**26)) if name == "gzip" else b"\x00a" + b"\xe0\xff\x00" * 2**12
    assert "damaged or cut short" in refusal(chunk_of(tmp_path / "a.h5", name, bomb))
    monkeypatch.setattr(hdf5, "most_bytes", lambda _: len(bomb))  # also where the bomb itself is small
    assert "unpacks to more than" in refusal(tmp_path / "a.h5")


def test_a_chunk_far_larger_than_its_array(tmp_path: Path) -> None:
    """Catches half a gigabyte unpacked for four numbers."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", (4,), "f4", chunks=(2**27,), maxshape=(None,), compression="gzip")
    assert "for an array of shape (4,)" in refusal(tmp_path / "a.h5")


def test_filters_whose_length_nobody_can_check(tmp_path: Path) -> None:
    """Catches a chunk of another filter that is read although HDF5 cannot tell its unpacked length."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", data=np.arange(64), chunks=(8,), scaleoffset=True)
    assert "packs its chunks with scaleoffset" in refusal(tmp_path / "a.h5")


@pytest.mark.parametrize("chunks", [(4,), None])
def test_what_was_never_written(tmp_path: Path, chunks: Any) -> None:
    """Catches stale memory returned as numbers that were never written, and a fill value that is lost."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", (10,), "f4", chunks=chunks, fillvalue=7, fill_time="never")
        file.create_dataset("filled", (10,), "f4", chunks=chunks, fillvalue=7)
    assert "never written, and no value" in refusal(tmp_path / "a.h5", "only")
    with open_array(tmp_path / "a.h5", "filled") as found:
        np.testing.assert_array_equal(found[...], np.full(10, 7, "f4"))


def test_groups_in_groups(tmp_path: Path) -> None:
    """Catches every group opened from the root, which takes time as their number squared, and a circle of them."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        at = file
        for _ in range(500):
            at = at.create_group("g")
        at["only"], at["again"], at["round"] = VALUES, h5py.SoftLink("only"), file["g"]
        at["twice"] = at["only"]
    path = "/".join(["g"] * 500)
    for dataset in (None, f"{path}/only", f"{path}/twice"):
        with open_array(tmp_path / "a.h5", dataset) as found:
            np.testing.assert_array_equal(found[...], VALUES)
    assert "has no dataset" in refusal(tmp_path / "a.h5", f"{path}/again")


def test_more_objects_than_are_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a search without a limit, also through links to one group."""
    monkeypatch.setattr(hdf5, "MOST_OBJECTS", 20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["only"] = VALUES
        for i in range(21):
            file[f"link {i}"] = h5py.SoftLink("/only")
    assert "more than 20 groups and datasets" in refusal(tmp_path / "a.h5")
    with open_array(tmp_path / "a.h5", "only") as found:
        np.testing.assert_array_equal(found[...], VALUES)


def test_chunks_without_number(tmp_path: Path) -> None:
    """Catches minutes spent on looking up chunks of one number each."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", (2**22,), "f4", chunks=(1,))
    assert "has 4194304 chunks of shape (1,), 4 bytes" in refusal(tmp_path / "a.h5")


@pytest.mark.parametrize("at", [0.0, 0.3, 0.6, 0.9])
def test_damage_is_no_number(tmp_path: Path, at: float) -> None:
    """Catches any byte of a file with checksums that, changed, gives other numbers."""
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.create_dataset("only", data=VALUES, chunks=(4, 5), compression="gzip", fletcher32=True)
    good = (tmp_path / "a.h5").read_bytes()
    for place in itertools.islice(range(int(at * len(good)), len(good)), 0, 100, 3):
        bad = bytearray(good)
        bad[place] ^= 0x55
        (tmp_path / "b.h5").write_bytes(bad)
        try:
            with open_array(tmp_path / "b.h5") as found:
                same = found.shape != VALUES.shape or np.array_equal(found[...], VALUES)
        except (ValueError, OSError):
            continue
        assert same, place


ODD: dict[str, object] = {
    **{
        "none": None,
        "nested": {"b": [1, {"c": True}]},
        "flag": True,
        "nul": "a\0b",
        "half": "\ud800",
        "mixed": [1, "a"],
    },
    **{
        "many": list(range(20_000)),
        "huge": 2**70,
        "empty": [],
        "text": ["a", "b"],
        "numbers": [1, 2.5],
        "lines": "a\nb",
    },
    **{"": 1, "DIMENSION_LIST": 3, "CLASS": "DIMENSION_SCALE", "_Netcdf4Dimid": 7, "_NCProperties": "x", "a/b": 1},
}


def test_netcdf_opens_what_is_written(tmp_path: Path) -> None:
    """Catches attributes without an HDF5 type, or HDF5's own, that spoil a result; an array named like a dimension;
    complex numbers and dimensions that NetCDF does not find; and content that changes."""
    netcdf = pytest.importorskip("netCDF4")
    values = complex_values((4, 5))
    found = (
        Coordinate("y", ("y",), {"units": "m", "odd": {"a": 1}}, np.arange(5.0)),
        Coordinate("land", ("y",), {}, np.arange(5) % 2 == 0),
        Coordinate("level", (), {}, np.array(3, "i2")),
        Coordinate("names", ("y",), {}, None, tmp_path),
    )
    labels = Labels("x", ("x", "y"), ODD, found, {"title": "a field", "meshfft": "none", "odd": None})
    record = labelled(record_of(mf.plan((4, 5), axes=(0,))), labels)
    write_array(tmp_path / "a.nc", jax.numpy.asarray(values), record=record, about={"how": {"tol": 1e-4}})
    with netcdf.Dataset(tmp_path / "a.nc", auto_complex=True) as file:
        assert {name: len(one) for name, one in file.dimensions.items()} == {"x": 4, "y": 5}
        (name,) = (name for name, one in file.variables.items() if one.dimensions == ("x", "y"))
        np.testing.assert_array_equal(file[name][:], values)
        np.testing.assert_array_equal(file["land"][:], [1, 0, 1, 0, 1])
        assert (file["y"].units, file["level"][...].item(), file.title) == ("m", 3, "a field")
        assert json.loads(file[name].meshfft) == record.to_dict() and json.loads(file[name].how) == {"tol": 1e-4}
        assert file[name].coordinates == "land level" and file[name].lines == "a\nb"
    with netcdf.Dataset(tmp_path / "a.nc", "a") as file:  # NetCDF does not write to files without an order
        file.history = "seen"
    with open_array(tmp_path / "a.nc") as source:
        np.testing.assert_array_equal(source[...], values)
        assert source.record == record.to_dict() and source.labels is not None
        back = {one.name: one for one in source.labels.coordinates}
        assert (source.labels.name, source.labels.dims, set(back)) == ("x", ("x", "y"), {"y", "land", "level"})
        kept = source.labels.attributes
        assert (kept["text"], kept["numbers"], kept["lines"]) == (["a", "b"], [1, 2.5], "a\nb")
        assert [json.loads(str(kept[name])) for name in ("nested", "nul", "huge")] == [ODD["nested"], "a\0b", 2**70]


def test_what_hdf5_and_netcdf_have_no_name_or_type_for(tmp_path: Path) -> None:
    """Catches an array found where nobody looks for it, as its name was a path, and numbers that NetCDF cannot open."""
    record = record_of(mf.plan((4, 5)))
    for name, dims in (("a/b", ("y", "x")), ("t", ("..", "x")), ("t", ("y", "x/y"))):
        bad = labelled(record, Labels(name, dims))
        with pytest.raises(ValueError, match=r"a\.h5 cannot have the name '.*', which is a path in HDF5: write \.zarr"):
            header_of(tmp_path / "a.h5", bad.out_shape, bad.out_dtype, bad)
        assert header_of(tmp_path / "a.zarr", bad.out_shape, bad.out_dtype, bad).labels.dims == dims
    for dtype in (bool, "float16"):
        array = jax.numpy.ones(3, dtype)
        with pytest.raises(ValueError, match="which NetCDF has not: give int8 or float32"):
            write_array(tmp_path / "a.nc", array)
        write_array(tmp_path / "a.h5", array, overwrite=True)
        with open_array(tmp_path / "a.h5") as source:
            np.testing.assert_array_equal(source[...], np.asarray(array))
    assert os.listdir(tmp_path) == ["a.h5"]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("{", "damaged"),
        ("[1]", "is no record"),
        ('{"a": 1}', "has a record whose format is None: transform it again"),
        ('{"format": 2}', "has a record of format"),
        ("[" * 10**5, "damaged"),
    ],
)
def test_records_that_are_none(tmp_path: Path, record: str, words: str) -> None:
    """Catches an attribute that anybody may have written taken for the record of a transform, or for text to ignore."""
    write_array(tmp_path / "a.h5", jax.numpy.ones(3))
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["data"].attrs["meshfft"] = record
    assert words in refusal(tmp_path / "a.h5")
