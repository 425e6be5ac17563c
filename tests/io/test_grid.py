"""Chunks and files of stored arrays: none is shared by two blocks, none is too large, and there are not too many."""

import itertools
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfft.io import grid as module
from meshfft.io.grid import CHUNK_BYTES, MANY_FILES, SHARD_BYTES, ChunkGrid, grid_of, grid_of_tiles, subboxes, within
from meshfft.layout.layout import Cut, Cuts, Layout, even_cuts, from_spec


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """A layout cut by several axes, with padding at the tail or inside."""
    shape = tuple(draw(st.lists(st.integers(1, 24), min_size=1, max_size=3)))
    cuts: list[Cuts] = []
    for n in shape:
        parts = draw(st.lists(st.integers(1, 4), max_size=2))
        spans: Cuts = even_cuts(n, [(f"a{len(cuts)}{i}", p) for i, p in enumerate(parts)])
        if len(spans) == 2 and draw(st.booleans()):  # each cut rounds up separately: padding inside
            outer = -(-n // parts[0])
            spans = (Cut("o", parts[0], outer), Cut("i", parts[1], -(-outer // parts[1])))
        cuts.append(spans)
    return Layout(shape, tuple(cuts))


def blocks(layout: Layout) -> list[tuple[slice, ...]]:
    """The logical part of every block."""
    sides = [
        [slice(int(a), int(a + n)) for a, n in zip(layout.starts(d), layout.counts(d), strict=True) if n]
        for d in range(layout.ndim)
    ]
    return list(itertools.product(*sides))


def files_of(box: tuple[slice, ...], file: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Every file that holds a position of the box, position by position."""
    places = itertools.product(*(range(s.start, s.stop) for s in box))
    return {tuple(i // f for i, f in zip(place, file, strict=True)) for place in places}


@given(layout=layouts(), chunk=st.integers(1, 400), shard=st.integers(1, 2000), files=st.integers(1, 20))
def test_no_file_is_shared(layout: Layout, chunk: int, shard: int, files: int) -> None:
    """Catches a file that two blocks of one layout write, a chunk or shard above its limit, and ragged shards."""
    small: dict[str, Any] = {
        "CHUNK_BYTES": chunk,
        "SHARD_BYTES": max(chunk, shard),
        "MANY_FILES": files,
        "LEAST_BYTES": 1,
    }
    with mock.patch.multiple(module, **small):
        grid = grid_of(layout, 4)
    owners = [files_of(box, grid.file) for box in blocks(layout)]
    assert sum(map(len, owners)) == len(set().union(*owners))
    assert 4 * math.prod(grid.chunk) <= max(4, chunk)
    assert 4 * math.prod(grid.file) <= max(4, chunk, shard)
    assert all(f % c == 0 for f, c in zip(grid.file, grid.chunk, strict=True))


@pytest.mark.parametrize(
    ("shape", "sizes", "spec", "grid"),
    [
        ((4, 4), {}, (), ChunkGrid((4, 4))),
        ((1024, 1024, 64), {}, (), ChunkGrid((16, 1024, 64))),
        ((1009, 1024, 64), {}, (), ChunkGrid((16, 1024, 64))),  # a prime that nothing cuts ends in a smaller chunk
        ((1024, 1024, 64), {"x": 8}, ("x",), ChunkGrid((16, 1024, 64))),
        ((1000, 1024, 64), {"x": 8}, ("x",), ChunkGrid((5, 1024, 64))),
        ((1024, 1024, 64), {"x": 2, "y": 4}, ("x", "y"), ChunkGrid((64, 256, 64))),
        ((7, 2**24), {}, (), ChunkGrid((1, 2**20))),
        ((1,), {}, (), ChunkGrid((1,))),
    ],
)
def test_chunks_are_even_parts_of_at_most_8_mib(shape: Any, sizes: Any, spec: Any, grid: ChunkGrid) -> None:
    """Catches chunks too large to read a slice from, needlessly small, or that do not divide the block."""
    assert grid_of(from_spec(shape, sizes, spec), 8) == grid


def test_many_chunks_become_shards() -> None:
    """Catches a file for every chunk of a huge array, and shards that are larger than they need to be."""
    eighth = grid_of(from_spec((8192,) * 3, {"x": 16, "y": 16}, ("x", "y")), 8)
    assert eighth.shard is not None and 8 * math.prod(eighth.shard) == SHARD_BYTES
    assert 8 * math.prod(eighth.chunk) == CHUNK_BYTES
    fewer = grid_of(from_spec((4096, 4096, 1024), {"x": 16}, ("x",)), 8)
    assert fewer.shard is not None and 4096 * 4096 * 1024 // math.prod(fewer.shard) <= MANY_FILES
    assert 8 * math.prod(fewer.shard) == 2 * CHUNK_BYTES


def test_shards_divide_the_block_as_well() -> None:
    """Catches a shard that reaches over a block's end, where its chunks do not: five chunks make no even shards."""
    small: dict[str, Any] = {"CHUNK_BYTES": 2, "SHARD_BYTES": 7, "MANY_FILES": 1, "LEAST_BYTES": 1}
    with mock.patch.multiple(module, **small):
        assert grid_of(from_spec((20,), {"x": 2}, ("x",)), 1) == ChunkGrid((2,))
        assert grid_of(from_spec((24,), {"x": 2}, ("x",)), 1) == ChunkGrid((2,), (6,))


def test_pieces_have_several_chunks() -> None:
    """Catches chunks as wide as the written parts, which the inverse would read in parts."""
    assert grid_of_tiles(from_spec((64, 64, 64), {"x": 8}, ("x",)), 8, 2**24) == ChunkGrid((2, 64, 64))
    assert grid_of_tiles(from_spec((1024, 512, 256), {"x": 8}, ("x",)), 8, 2**24) == ChunkGrid((8, 512, 256))


def test_starts_without_a_divisor() -> None:
    """Catches thousands of tiny files, and several processes that would write to one file."""
    layout = Layout((4 * 10**6,), ((Cut("x", 2, 2_000_003),),))
    assert grid_of(layout, 8) == ChunkGrid((1_000_002,))
    with pytest.raises(ValueError, match=r"chunks of shape \(1,\).*: give order 'natural', .* or a \.npy file"):
        grid_of(layout, 8, processes=2)
    few = Layout((10,), ((Cut("x", 2, 5), Cut("y", 2, 3)),))
    assert grid_of(few, 8, processes=2) == ChunkGrid((1,))


@given(
    box=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=3),
    most=st.integers(1, 300),
    fortran=st.booleans(),
)
def test_pieces_make_up_the_box(box: list[tuple[int, int, int]], most: int, fortran: bool) -> None:
    """Catches positions left out or taken twice, files cut apart, and parts above the limit."""
    whole, file = tuple(slice(a, a + n) for a, n, _ in box), tuple(f for *_, f in box)
    seen = np.zeros([a + n for a, n, _ in box], int)
    for part in subboxes(whole, file, 4, most, fortran=fortran):
        seen[part] += 1
        assert all(s.start % f == 0 or s.start == w.start for s, f, w in zip(part, file, whole, strict=True))
        assert 4 * math.prod(s.stop - s.start for s in part) <= max(most, 4 * math.prod(file))
    assert (seen[whole] == 1).all() and seen.sum() == seen[whole].size


def test_pieces_are_few_and_of_long_runs() -> None:
    """Catches parts cut along the dimension of contiguous runs, and many parts if a few suffice."""
    box = tuple(slice(0, 64) for _ in range(3))
    rows = list(subboxes(box, (1, 1, 1), 8, 2**19))
    columns = list(subboxes(box, (1, 1, 1), 8, 2**19, fortran=True))
    assert (
        [part[0] for part in rows]
        == [part[2] for part in columns]
        == [slice(0, 16), slice(16, 32), slice(32, 48), slice(48, 64)]
    )
    assert within((slice(3, 5),), (slice(2, 6),)) == (slice(1, 3),)
