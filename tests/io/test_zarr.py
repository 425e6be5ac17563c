"""Zarr stores that were harmed, or made to do harm: metadata, chunks, links and pipes are refused in one line each."""

import contextlib
import gzip
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from array_files import BYTES, GZIP, complex_values, refusal, store, zarr
from hypothesis import given
from hypothesis import strategies as st

from meshfft.io import open_array, write_array
from meshfft.io.grid import ChunkGrid
from meshfft.io.writing import create_sink

VALUES = complex_values((8, 6))


def shards(inner: list[int]) -> list[dict[str, Any]]:
    """The codecs of shards of inner chunks."""
    index = [BYTES, {"name": "crc32c"}]
    found = {"chunk_shape": inner, "codecs": [BYTES], "index_codecs": index}
    return [{"name": "sharding_indexed", "configuration": found}]


def test_the_plain_store_is_read(tmp_path: Path) -> None:
    """Catches a refusal of the valid store; the other stores here differ from it in one thing each."""
    with open_array(store(tmp_path / "a.zarr")) as source:
        np.testing.assert_array_equal(source[...], np.zeros((4, 4)))


HOSTILE: list[dict[str, Any]] = [
    {"shape": [-4, 4]},
    {"shape": [-4, -4]},
    {"shape": [2**62, 4]},
    {"shape": [2**59, 2**59]},
    {"shape": [math.nan, 4]},
    {"shape": [4.5, 4]},
    {"shape": [True, 4]},
    {"shape": [10**400, 4]},
    {"shape": [4]},
    {"shape": [1] * 40, "chunk_shape": [1] * 40},
    {"shape": "44"},
    {"shape": [0, 4]},
    {"shape": []},
    {"chunk_shape": [0, 4]},
    {"chunk_shape": [-4, 4]},
    {"chunk_shape": [2**20, 2**20]},
    {"chunk_shape": [2**62, 2**62]},
    {"chunk_shape": [4]},
    {"chunk_shape": [4, 4], "codecs": shards([3, 4])},
    {"chunk_shape": [4, 4], "codecs": shards([0, 4])},
    {"chunk_shape": [4, 4], "codecs": shards([2, 2, 2])},
    {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shape": [4, 4]}}},
    {"chunk_grid": None},
    {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/../"}}},
    {"chunk_key_encoding": {"name": "../v2"}},
    {"data_type": "string"},
    {"data_type": "r8"},
    {"data_type": {"name": "numpy.datetime64"}},
    {"data_type": "float128"},
    {"codecs": [{"name": "../../plugin"}]},
    {"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}, BYTES]},
    {"codecs": None},
    {"fill_value": "x"},
    {"zarr_format": 4},
    {"node_type": "thing"},
    {"attributes": {"meshfft": [1]}},
    {"attributes": {"meshfft": {"format": 1}}},
    {"attributes": 5},
    {"storage_transformers": [{"name": "x"}]},
]


@pytest.mark.parametrize("changed", HOSTILE, ids=lambda changed: json.dumps(changed)[:60])
def test_hostile_metadata_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Catches sizes that are trusted, a process (this one) that runs out of memory, and errors without a file's
    name."""
    refusal(store(tmp_path / "a.zarr", **changed))


def test_shards_of_too_many_chunks(tmp_path: Path) -> None:
    """Catches an index of gigabytes read for a shard whose chunks are a number each."""
    wide = store(tmp_path / "a.zarr", chunk_shape=[2**13, 2**14], codecs=shards([1, 1]))
    assert "chunks of (1, 1) in files of (8192, 16384)" in refusal(wide)


def test_chunks_without_number(tmp_path: Path) -> None:
    """Catches minutes spent on looking up chunks of one number each, and a chunk far larger than its array."""
    many = store(tmp_path / "a.zarr", shape=[2**11, 2**11], chunk_shape=[1, 1])
    assert "has 4194304 chunks of shape (1, 1), 4 bytes" in refusal(many)
    assert "for an array of shape (4, 4)" in refusal(store(tmp_path / "b.zarr", chunk_shape=[2**13, 2**14]))


def test_metadata_of_many_megabytes(tmp_path: Path) -> None:
    """Catches a file of any size read whole before it is looked at."""
    path = store(tmp_path / "a.zarr") / "zarr.json"
    path.write_text(path.read_text() + " " * 5_000_000)
    assert "4 MiB" in refusal(path.parent)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        "{}",
        "[]",
        "",
        "\xff\xfe",
    ],
    ids=lambda text: text[-20:],
)
@pytest.mark.parametrize("name", ["zarr.json", ".zarray"])
def test_json_that_is_none(tmp_path: Path, name: str, text: str) -> None:
    """Catches brackets too deep, files too large, and text that is no JSON."""
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / name).write_text(text, "latin-1")
    refusal(tmp_path / "a.zarr")


@pytest.mark.parametrize(
    "changed", [{"dtype": "|O"}, {"dtype": [["a", "<f4"]]}, {"shape": [-4, 4]}, {"chunks": [2**20, 2**20]}]
)
def test_hostile_metadata_of_format_2(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Catches the older format read with less care: pickled objects, absurd sizes."""
    zarr.create_array(tmp_path / "a.zarr", shape=(4, 4), chunks=(2, 2), dtype="f4", zarr_format=2)[...] = 1
    path = tmp_path / "a.zarr" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    refusal(tmp_path / "a.zarr")


@given(at=st.floats(0, 1, exclude_max=True), byte=st.integers(32, 126))
def test_any_byte_of_the_metadata(tmp_path_factory: pytest.TempPathFactory, at: float, byte: int) -> None:
    """Catches metadata that end in anything but numbers, or one line."""
    path = store(tmp_path_factory.mktemp("zarr") / "a.zarr")
    text = bytearray((path / "zarr.json").read_bytes())
    text[int(at * len(text))] = byte
    (path / "zarr.json").write_bytes(text)
    try:
        with open_array(path) as source:
            assert source[:1, :1].nbytes <= 16
    except ValueError as error:
        assert path.name in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("chunk", [b"", bytes(63), bytes(65)])
def test_chunks_cut_short_or_too_long(tmp_path: Path, chunk: bytes) -> None:
    """Catches zeros where a file ends, in a store without checksums."""
    assert "damaged or cut short" in refusal(store(tmp_path / "a.zarr", chunk))


def test_a_chunk_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    """Catches a gigabyte unpacked from a file of a megabyte."""
    bomb = gzip.compress(bytes(2**26))
    assert "damaged or cut short" in refusal(store(tmp_path / "a.zarr", bomb, codecs=[BYTES, GZIP]))
    assert "damaged or cut short" in refusal(store(tmp_path / "b.zarr", b"\x1f\x8b" + bytes(9), codecs=[BYTES, GZIP]))


@pytest.fixture(params=[None, (4, 6)], ids=["chunks", "shards"])
def written(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A store that this library wrote, of four chunks, or two shards of two."""
    path = tmp_path / "a.zarr"
    grid = ChunkGrid((4, 3), request.param)
    create_sink(path, VALUES.shape, VALUES.dtype, grid).write((slice(0, 8), slice(0, 6)), VALUES)
    return path


def emptied(path: Path) -> None:
    path.unlink()
    path.mkdir()


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[7] ^= 0x10
    path.write_bytes(data)


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "lost": (Path.unlink, r"damaged or cut short.*c\.1\.0.*is missing"),
    "folder": (emptied, r"has data/c\.1\.0, which is no file"),
    "flipped": (flipped, r"damaged or cut short.*c\.1\.0"),
    "short": (lambda path: os.truncate(path, 50), r"damaged or cut short.*c\.1\.0"),
    "empty": (lambda path: os.truncate(path, 0), r"damaged or cut short.*c\.1\.0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_chunks_that_were_harmed(written: Path, fault: str) -> None:
    """Catches zeros or noise for a chunk that was lost, cut, changed by one bit or cannot be opened; and good blocks
    beside it refused with it."""
    harm, words = FAULTS[fault]
    harm(written / "data" / "c.1.0")
    assert re.search(words, refusal(written))
    with open_array(written) as source:
        np.testing.assert_array_equal(source[:4], VALUES[:4])


def test_a_chunk_inside_a_shard_that_was_lost(tmp_path: Path) -> None:
    """Catches zeros for one chunk of a shard whose index marks it as never written."""
    store = create_sink(tmp_path / "a.zarr", (4, 6), VALUES.dtype, ChunkGrid((4, 3), (4, 6)))
    store.write((slice(0, 4), slice(0, 3)), VALUES[:4, :3])
    with open_array(tmp_path / "a.zarr") as source:
        np.testing.assert_array_equal(source[:, :3], VALUES[:4, :3])
    assert "is missing" in refusal(tmp_path / "a.zarr")


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Leaves root's rights aside, where it has them."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_chunk_without_leave_to_read() -> None:
    """Catches zeros, or blame on the file, for a chunk that may not be read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = store(Path(folder) / "a.zarr")
        (path / "c" / "0" / "0").chmod(0)
        with open_array(path) as source, nobody(), pytest.raises(PermissionError, match=r"denied.*c/0/0"):
            source[...]


def test_zeros_are_written(tmp_path: Path) -> None:
    """Catches chunks of zeros left out, as Zarr's writers may, which then count as lost."""
    write_array(tmp_path / "a.zarr", jnp.zeros((4, 4)))
    with open_array(tmp_path / "a.zarr") as source:
        assert source.record is None
        np.testing.assert_array_equal(source[...], np.zeros((4, 4)))


def test_links_out_of_a_store(tmp_path: Path) -> None:
    """Catches a chunk, a folder of chunks, metadata or a dataset that is a link to somebody's file."""
    away = store(tmp_path / "home" / "secret.zarr", np.full(16, 42, "f4").tobytes())
    for name in ("c/0/0", "c/0", "c", "zarr.json"):
        path = store(tmp_path / f"{name.replace('/', '-')}.zarr")
        target = path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        target.symlink_to(away / name)
        assert re.search(rf"has {name}\S*, a link that leads out of it", refusal(path))
    group = tmp_path / "group.zarr"
    zarr.create_group(group).create_array("own", data=np.zeros(3))
    (group / "link").symlink_to(away)
    assert "has link, a link that leads out" in refusal(group, "link")


def test_links_inside_a_store_are_its_own(tmp_path: Path) -> None:
    """Catches a store refused for its internal links, or for being reached through a link; and an endless walk round a
    circle."""
    path = store(tmp_path / "a.zarr")
    (path / "c" / "0" / "0").rename(path / "c" / "data")
    (path / "c" / "0" / "0").symlink_to("../data")
    (tmp_path / "b.zarr").symlink_to("a.zarr")
    with open_array(tmp_path / "b.zarr") as source:
        assert source[...].sum() == 0
    zarr.create_group(tmp_path / "group.zarr").create_array("own", data=np.zeros(3))
    (tmp_path / "group.zarr" / "again").symlink_to(".")
    with open_array(tmp_path / "group.zarr") as source:
        assert source.shape == (3,)


@pytest.mark.parametrize("dataset", ["../other", "own/../../other.zarr/x", "/etc", "own/c", "..", "", ".", "own/."])
def test_datasets_outside_a_store(tmp_path: Path, dataset: str) -> None:
    """Catches a dataset's name that leads out of the store."""
    for name in ("a.zarr", "other.zarr"):
        zarr.create_group(tmp_path / name).create_array("own" if name == "a.zarr" else "x", data=np.zeros(3))
    store(tmp_path / "other")
    assert "has no dataset" in refusal(tmp_path / "a.zarr", dataset)


def test_a_pipe_in_a_store(tmp_path: Path) -> None:
    """Catches a reader that waits for ever for a chunk, or for metadata, that is a pipe."""
    path = store(tmp_path / "a.zarr")
    (path / "c" / "0" / "0").unlink()
    os.mkfifo(path / "c" / "0" / "0")
    assert "has c/0/0, which is no file" in refusal(path)
    (tmp_path / "b.zarr").mkdir()
    os.mkfifo(tmp_path / "b.zarr" / "zarr.json")
    assert "is not a Zarr store" in refusal(tmp_path / "b.zarr")
