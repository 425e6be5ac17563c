"""Stores that blocks are written to: every block is in its place, by any writer, and other libraries read it."""

import itertools
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from array_files import h5py, raises, zarr
from hypothesis import given
from hypothesis import strategies as st
from strategies import cases

import meshfft as mf
from meshfft.io import flat, labelled, open_array, record_of, write_array
from meshfft.io import zarr as zarr_files
from meshfft.io.grid import ChunkGrid, grid_of, subboxes
from meshfft.io.source import Labels, results
from meshfft.io.writing import create_sink, open_sink
from meshfft.layout.layout import from_spec

DTYPES = ("float32", "complex64", "complex128", "int16", "bool", "float16")


def read(path: Path, kind: str) -> np.ndarray:
    """The array, by those who define the format."""
    if kind not in (".npy", ".zarr"):
        with h5py.File(path) as file:
            return np.asarray(file["data"])
    return np.load(path) if kind == ".npy" else zarr.open_array(path / "data", mode="r")[...]


@given(case=cases(), dtype=st.sampled_from(DTYPES), most=st.integers(1, 600), shard=st.booleans(), data=st.data())
def test_blocks_land_in_their_places(
    tmp_path_factory: pytest.TempPathFactory, case: Any, dtype: str, most: int, shard: bool, data: st.DataObject
) -> None:
    """Catches a run, part or chunk in the wrong place, and one store's writing undone by another's, whatever the
    block, its strides, the type and the order."""
    layout = from_spec(case.shape, dict(zip("xyzw", case.mesh, strict=False)), case.spec)
    values = np.random.default_rng(0).integers(0, 100, case.shape).astype(dtype)
    grid = grid_of(layout, values.itemsize)
    grid = ChunkGrid(grid.chunk, tuple(2 * c for c in grid.chunk)) if shard else grid
    sides = [
        [slice(int(a), int(a + n)) for a, n in zip(layout.starts(d), layout.counts(d), strict=True)]
        for d in range(layout.ndim)
    ]
    for kind in (".npy", ".h5", ".zarr"):
        path = tmp_path_factory.mktemp("store") / f"some{kind}"
        create_sink(path, case.shape, dtype, grid)
        opened = [open_sink(path) for _ in range(2)]
        with mock.patch.object(flat, "BOX_BYTES", most), mock.patch.object(zarr_files, "BOX_BYTES", most):
            for count, at in enumerate(data.draw(st.permutations(list(itertools.product(*sides))))):
                block = np.array(values[at], order="F")
                opened[count % 2].write(at, block)
                block[...] = 0
        for one in opened:
            one.flush()
        found = read(path, kind)
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(found, values)


def test_the_format_that_others_read(tmp_path: Path) -> None:
    """Catches a compressed store, one without checksums, dimension names or the record, and a shard without chunks."""
    record = record_of(mf.plan((8, 6)))
    create_sink(tmp_path / "a.zarr", (8, 6), "c8", ChunkGrid((2, 3), (4, 6)), record)
    array = zarr.open_array(tmp_path / "a.zarr" / "data", mode="r")
    assert (array.chunks, array.shards, array.dtype) == ((2, 3), (4, 6), np.complex64)
    assert array.metadata.dimension_names == ("X", "Y") and array.attrs["meshfft"] == record.to_dict()
    (shards,) = array.metadata.codecs
    assert [type(codec).__name__ for codec in shards.codecs] == ["BytesCodec", "Crc32cCodec"]
    assert [type(codec).__name__ for codec in shards.index_codecs] == ["BytesCodec", "Crc32cCodec"]
    create_sink(tmp_path / "b.zarr", (8, 6), "c8", ChunkGrid((2, 3)))
    plain = zarr.open_array(tmp_path / "b.zarr" / "data", mode="r")
    assert [type(codec).__name__ for codec in plain.metadata.codecs] == ["BytesCodec", "Crc32cCodec"]
    assert plain.attrs["meshfft"] == {} and plain.shards is None


@pytest.mark.filterwarnings("error")
def test_xarray_opens_every_store_at_its_root(tmp_path: Path) -> None:
    """Catches an array at the root of its store, which xr.open_zarr refuses; metadata that are not consolidated, which
    it warns of; and an array named like one of its dimensions, which it takes for a coordinate."""
    xr = pytest.importorskip("xarray")
    values, record = np.arange(12, dtype="c8").reshape(3, 4), record_of(mf.plan((3, 4)))
    named = labelled(record, Labels("", ("data", "data_")))
    for number, (made, name, dims) in enumerate(
        [(None, "data", ("X", "Y")), (record, "data", ("X", "Y")), (named, "data__", ("data", "data_"))]
    ):
        path = tmp_path / f"{number}.zarr"
        write_array(path, jax.numpy.asarray(values), record=made, about={"how": {"tol": 1e-4}})
        with xr.open_zarr(path) as found:
            assert (list(found.data_vars), found[name].dims) == ([name], dims)
            np.testing.assert_array_equal(found[name], values)
            kept = found[name].attrs
        assert kept["how"] == {"tol": 1e-4} and kept["meshfft"] == (made.to_dict() if made else {})
        with open_array(path) as source:
            np.testing.assert_array_equal(source[...], values)
            assert source.record == (made.to_dict() if made else None)


def test_each_file_is_written_once(tmp_path: Path) -> None:
    """Catches shards read back and written anew for every part of them."""
    store = create_sink(tmp_path / "a.zarr", (16, 8), "f4", ChunkGrid((2, 4), (4, 8)))
    wrote: list[Any] = []

    def watched(*args: Any) -> list[Any]:
        wrote.extend(found := list(subboxes(*args)))
        return found

    with mock.patch.multiple(zarr_files, BOX_BYTES=4 * 8, subboxes=watched):
        store.write((slice(0, 16), slice(0, 8)), np.ones((16, 8), "f4"))
    assert wrote == [(slice(i, i + 4), slice(0, 8)) for i in range(0, 16, 4)]


@pytest.mark.parametrize(("kind", "most"), [(".npy", 128), (".h5", 65536)])
def test_a_file_has_its_room_at_once(tmp_path: Path, kind: str, most: int) -> None:
    """Catches a sparse file, whose disk may be full when it is written to."""
    create_sink(tmp_path / f"a{kind}", (1000, 1000), "c8", ChunkGrid((1000, 1000)))
    assert (tmp_path / f"a{kind}").stat().st_blocks * 512 >= 8_000_000
    assert 8_000_000 <= (tmp_path / f"a{kind}").stat().st_size <= 8_000_000 + most


@pytest.mark.parametrize("kind", results())
def test_what_is_there_is_not_made_again(tmp_path: Path, kind: str) -> None:
    """Catches an array of another's emptied or truncated by making one in its place."""
    store = create_sink(tmp_path / f"a{kind}", (4,), "f4", ChunkGrid((4,)))
    store.write((slice(0, 4),), np.arange(4, dtype="f4"))
    with pytest.raises((OSError, ValueError)):
        create_sink(tmp_path / f"a{kind}", (4,), "f4", ChunkGrid((4,)))
    np.testing.assert_array_equal(read(tmp_path / f"a{kind}", kind), np.arange(4))
    with pytest.raises((OSError, ValueError)):
        open_sink(tmp_path / f"none{kind}")
    with pytest.raises(ValueError, match=r"a\.tif is of no kind that can be written: end it in \.npy or \.h5"):
        create_sink(tmp_path / "a.tif", (4,), "f4", ChunkGrid((4,)))


def test_a_write_that_the_system_cuts_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the rest of a run lost where the system writes less than it was given."""
    pwrite = os.pwrite
    monkeypatch.setattr(flat.os, "pwrite", lambda file, run, offset: pwrite(file, run[:5], offset))
    store = create_sink(tmp_path / "a.npy", (3, 7), "f4", ChunkGrid((3, 7)))
    store.write((slice(0, 3), slice(0, 7)), np.arange(21, dtype="f4").reshape(3, 7))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.arange(21).reshape(3, 7))


@pytest.mark.parametrize("kind", results())
def test_flushing_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Catches a flush that does not ask the system to write: a failure must be reported."""
    store = create_sink(tmp_path / f"a{kind}", (4,), "f4", ChunkGrid((4,)))
    store.write((slice(0, 4),), np.arange(4, dtype="f4"))
    monkeypatch.setattr(flat.os, "fsync", raises(OSError(5, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        store.flush()


def test_runs_are_as_long_as_they_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches one system call per row if whole planes are contiguous."""
    sizes: list[int] = []

    def counted(_: int, run: memoryview, __: int) -> int:
        sizes.append(len(run))
        return len(run)

    monkeypatch.setattr(flat.os, "pwrite", counted)
    store = create_sink(tmp_path / "a.npy", (4, 5, 6), "f4", ChunkGrid((4, 5, 6)))
    for at, runs in (
        (np.s_[1:3, 0:5, 0:6], [2 * 5 * 6]),
        (np.s_[1:3, 1:4, 0:6], [3 * 6] * 2),
        (np.s_[1:3, 1:4, 2:3], [1] * 6),
        (np.s_[0:4, 0:5, 0:6], [math.prod((4, 5, 6))]),
    ):
        sizes.clear()
        store.write(at, np.ones([s.stop - s.start for s in at], "f4"))
        assert sizes == [4 * n for n in runs]


class Writes:
    """Stands for a Zarr array: its first write fails, and it knows which it was waited for."""

    def __init__(self) -> None:
        self.chunk_layout = SimpleNamespace(write_chunk=SimpleNamespace(shape=(1,)))
        self.dtype = SimpleNamespace(numpy_dtype=np.dtype("f4"))
        self.started: list[Any] = []

    def __getitem__(self, _: Any) -> Any:
        return self

    def write(self, _: np.ndarray) -> Any:
        failed = ValueError("Error writing: [os_error_code='28']") if not self.started else None
        self.started.append(mock.Mock(exception=mock.Mock(return_value=failed)))
        self.started[-1].result.side_effect = failed
        return self.started[-1]


def test_a_write_that_fails_leaves_none_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a chunk that is still being written when its folder is removed, and makes that anew."""
    monkeypatch.setattr(zarr_files, "BOX_BYTES", 4)
    writes: Any = Writes()
    with pytest.raises(OSError, match="No space left"):
        zarr_files.ZarrSink(tmp_path, writes).write((slice(0, 5),), np.ones(5, "f4"))
    first, second = writes.started
    assert first.result.called and second.exception.called
