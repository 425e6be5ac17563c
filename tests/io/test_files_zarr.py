"""Metadata of Zarr stores made to do harm: sizes, types and names are refused before anything is done with them."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import BYTES, refusal, store, zarr
from hypothesis import given
from hypothesis import strategies as st

from meshfft.io import open_array


def shards(inner: list[int]) -> list[dict[str, Any]]:
    """The codecs of shards of inner chunks."""
    index = [BYTES, {"name": "crc32c"}]
    found = {"chunk_shape": inner, "codecs": [BYTES], "index_codecs": index}
    return [{"name": "sharding_indexed", "configuration": found}]


def test_the_plain_store_is_read(tmp_path: Path) -> None:
    """Catches the store, of which the others here differ in one thing each, refused itself."""
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
    """Catches sizes believed, a process ended for want of memory (it is this one), and errors without a file's name."""
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
