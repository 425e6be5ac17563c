"""Passes: the fewest, in the fewest and largest tiles that fit, against definitions written out."""

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh

import meshfft as mf
from meshfft.layout.layout import Cut, Layout
from meshfft.operators.transform import KINDS, becomes
from meshfft.out_of_core.passes import alike, cut, partitions
from meshfft.out_of_core.tiles import Pass, Passes, buffer_bytes, covered, held_bytes, runs, transfer_bytes

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17)
MESHES = (None, AbstractMesh((1,), ("x",)), AbstractMesh((4,), ("x",)), AbstractMesh((2, 3), ("x", "y")))


@st.composite
def tasks(draw: st.DrawFn) -> tuple[tuple[int, ...], dict]:
    """A shape and its task, in a budget from far too small to ample."""
    kind, inverse = draw(st.sampled_from(KINDS)), draw(st.booleans())
    ndim = draw(st.integers(1, 4))
    shape = [draw(st.sampled_from(SIZES)) for _ in range(ndim)]
    axes = draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True))
    s = [draw(st.sampled_from((shape[d], shape[d], 6, 11))) for d in axes] if draw(st.booleans()) else None
    if (becomes(kind, inverse) == "real" or kind.endswith("-1")) and s is None:
        shape = [max(n, 2) for n in shape]
    s = s if s is None or not kind.endswith("-1") else [max(n, 2) for n in s]
    dtype = draw(st.sampled_from(("float32", "complex64")))
    dtype = dtype if becomes(kind, inverse) is None else natural(becomes(kind, inverse))
    budget = int(math.prod(shape) * 8 * 2 ** draw(st.floats(-6, 5)))
    options = {"kind": kind, "inverse": inverse, "axes": axes, "s": s, "dtype": dtype, "budget": max(budget, 1)}
    return tuple(shape), {**options, "mesh": draw(st.sampled_from(MESHES))}


def boxes(made: Passes) -> Iterator[tuple[Pass, np.ndarray, np.ndarray]]:
    """Number of tiles of each pass that hold each position, read and written."""
    for step in made.steps:
        read, written = np.zeros(step.before.shape, int), np.zeros(step.after.shape, int)
        for tile in step.tiles:
            read[tile.source] += 1
            written[tile.target] += 1
        yield step, read, written


@given(tasks())
def test_tiles_fit_and_hold_every_position_once(task: tuple[tuple[int, ...], dict]) -> None:
    """Catches a tile over the budget, a lost, doubled or empty tile, a pass that cuts a dimension that it transforms,
    and dimensions that no pass or two passes transform."""
    shape, options = task
    try:
        made = mf.passes(shape, **options)
    except ValueError as refused:
        assert "give at least" in str(refused), refused
        return
    assert sorted(d for step in made.steps for d in step.dims) == sorted(options["axes"])
    for step, read, written in boxes(made):
        assert (read == 1).all() and (written == 1).all()
        assert all(step.before.parts[d] == step.after.parts[d] == 1 for d in step.dims)
        for tile in step.tiles:
            plan = step.plan_of(tile)
            assert plan is not None
            assert plan.shape == tuple(at.stop - at.start for at in tile.source)
            assert plan.out_shape == tuple(at.stop - at.start for at in tile.target)
            devices = math.prod(plan.mesh.axis_sizes) if plan.mesh is not None else 1
            copies = math.prod(plan.shape) * step.dtype.itemsize + math.prod(plan.out_shape) * plan.out_dtype.itemsize
            held = held_bytes(plan, step.dtype, shared=True) + 6 * transfer_bytes(options["budget"])
            assert copies + devices * plan.peak_bytes <= held <= made.peak_bytes <= options["budget"]
    whole = mf.plan(shape, **{name: value for name, value in options.items() if name not in ("budget", "mesh")})
    assert (made.out_shape, made.out_dtype) == (whole.out_shape, whole.out_dtype)
    for one, next in itertools.pairwise(made.steps):
        assert (one.after.shape, one.out_dtype) == (next.before.shape, next.dtype)


@given(tasks())
def test_no_fewer_passes_would_do(task: tuple[tuple[int, ...], dict]) -> None:
    """Catches a pass too many, and a refusal of what can be done: every way to group dimensions, lines as thin as can
    be."""
    shape, options = task
    options, dims = {**options, "kind": "fft", "s": None, "mesh": None, "dtype": "complex64"}, options["axes"]

    def possible(group: list[int]) -> bool:
        thin = tuple(n if d in group else 1 for d, n in enumerate(shape))
        plan = mf.plan(thin, axes=sorted(group), inverse=options["inverse"], order="any")
        return (
            held_bytes(plan, np.dtype("complex64"), shared=True) + buffer_bytes(options["budget"], 8)
            <= options["budget"]
        )

    ways = itertools.product(range(len(dims)), repeat=len(dims))
    grouped = [[[d for d, at in zip(dims, way, strict=True) if at == j] for j in set(way)] for way in ways]
    least = min((len(groups) for groups in grouped if all(map(possible, groups))), default=None)
    if least is None:
        with pytest.raises(ValueError, match="give at least"):
            mf.passes(shape, **options)
    else:
        assert len(mf.passes(shape, **options).steps) == least


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sets(st.integers(0, 3)), st.integers(1, 4000))
@example([10, 10, 3], {2}, 20)
def test_the_fewest_and_largest_tiles(shape: list[int], whole: set[int], most: int) -> None:
    """Catches cuts of more dimensions than needed, more parts than needed, and of two ways the one in more places."""
    free, sides = [d for d in range(len(shape)) if d not in whole], tuple(shape)
    found = cut(sides, sorted(whole), lambda block: math.prod(block) <= most, (1,) * len(sides))
    ways = [p for p in itertools.product(*(range(1, n + 1) if d in free else (1,) for d, n in enumerate(shape)))]
    fitting = [p for p in ways if math.prod(-(-n // k) for n, k in zip(shape, p, strict=True)) <= most]
    assert (found is None) == (not fitting)
    if found is None:
        return
    cuts = min(sum(k > 1 for k in parts) for parts in fitting)
    assert sum(k > 1 for k in found.parts) == cuts and math.prod(found.block) <= most
    assert all(0 not in found.counts(d) for d in range(len(shape)))
    if cuts == 1:
        alone = [parts for parts in fitting if sum(k > 1 for k in parts) == 1]
        dim = next(d for d, k in enumerate(found.parts) if k > 1)
        assert found.parts[dim] == min(parts[dim] for parts in alone if parts[dim] > 1)
        places = (
            math.prod(shape[:d]) * min(p[d] for p in alone if p[d] > 1) for d in free if any(p[d] > 1 for p in alone)
        )
        assert runs(found) == min(places)
    for dim in [d for d, k in enumerate(found.parts) if k > 1]:
        thicker = [n if d == dim else b for d, (n, b) in enumerate(zip(shape, found.block, strict=True))]
        assert math.prod(thicker) > most, "this dimension need not be cut"
        fewer = [-(-n // (found.parts[d] - (d == dim))) for d, n in enumerate(shape)]
        assert math.prod(fewer) > most, "this dimension needs fewer parts"


@given(st.data())
def test_runs_are_counted(data: st.DataObject) -> None:
    """Catches counts of contiguous places that are not one more than the gaps."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    blocks = [data.draw(st.integers(1, n)) for n in shape]
    cuts = (
        ((Cut(f"a{d}", -(-n // b), b),) if b < n else ()) for d, (n, b) in enumerate(zip(shape, blocks, strict=True))
    )
    layout, fortran = Layout(shape, tuple(cuts)), data.draw(st.booleans())
    order: Literal["C", "F"] = "F" if fortran else "C"
    places, index = 0, np.arange(math.prod(shape)).reshape(shape, order=order)
    for corner in itertools.product(*(range(0, n, b) for n, b in zip(shape, blocks, strict=True))):
        block = index[tuple(slice(a, a + b) for a, b in zip(corner, blocks, strict=True))].ravel(order)
        gaps = np.flatnonzero(np.diff(block) != 1) + 1
        places += 1 + len(gaps)
    assert runs(layout, fortran=fortran) == places


@pytest.mark.parametrize("many", [1, 2, 3, 4, 5])
def test_partitions(many: int) -> None:
    """Catches a grouping lost, repeated, or with an empty group: there are S(5, many) of them."""
    found = [frozenset(map(frozenset, groups)) for groups in partitions((0, 1, 2, 3, 4), many)]
    assert len(found) == len(set(found)) == {1: 1, 2: 15, 3: 25, 4: 10, 5: 1}[many]
    assert all(sorted(itertools.chain(*groups)) == [0, 1, 2, 3, 4] and len(groups) == many for groups in found)


@given(tasks())
def test_stores_between_passes_need_no_shared_files(task: tuple[tuple[int, ...], dict]) -> None:
    """Catches passes that cut one dimension at different indices: hardly a chunk would be inside one tile of each."""
    shape, options = task
    try:
        made = mf.passes(shape, **options)
    except ValueError:
        return
    for one, next in itertools.pairwise(made.steps):
        for dim in range(len(shape)):
            if one.after.parts[dim] > 1 and next.before.parts[dim] > 1:
                assert one.after.starts(dim).tolist() == next.before.starts(dim).tolist()


def test_passes_that_cut_one_dimension_cut_it_in_the_same_places() -> None:
    """Catches parts that each pass chooses for itself: of 20 x 30 x 40 real numbers, in blocks of 3 and of 2."""
    first, second, third = mf.passes((20, 30, 40), budget=11_000, kind="rfft").steps
    assert first.after.starts(0).tolist() == second.before.starts(0).tolist() == list(range(0, 20, 2))
    assert second.after.starts(2).tolist() == third.before.starts(2).tolist()


@pytest.mark.parametrize(("kind", "inverse"), [("rfft", False), ("rfft", True), ("hfft", False), ("hfft", True)])
def test_reals_turn_in_the_right_pass(kind: str, inverse: bool) -> None:
    """Catches a half spectrum that is not made first, or not unmade last: only then is all else complex."""
    turn = becomes(kind, inverse)
    made = mf.passes((8, 9, 10), budget=1500, kind=kind, inverse=inverse, axes=(2, 0, 1), dtype=natural(turn))
    assert [len(step.dims) for step in made.steps] == [1, 1, 1]
    assert made.steps[0 if turn == "complex" else -1].dims == (1,)
    reals = [step.dtype == np.float32 for step in made.steps] + [made.out_dtype == np.float32]
    assert reals == ([True, False, False, False] if turn == "complex" else [False, False, False, True])
    joint = mf.passes((8, 9, 10), budget=2**14, kind=kind, inverse=inverse, axes=(2, 0, 1), dtype=natural(turn))
    assert len(joint.steps) == 2 and joint.steps[0 if turn == "complex" else -1].dims[-1] == 1


def natural(turn: str | None) -> str:
    """The type of the input, for a transform that changes its type so."""
    return "float32" if turn == "complex" else "complex64"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inverse", [False, True])
def test_types_that_nobody_gave_are_those_of_a_plan(kind: str, inverse: bool) -> None:
    """Catches half a spectrum that is taken for real numbers, so that half of its bytes are counted as read."""
    made, plan = (
        mf.passes((8, 6, 10), budget=10**8, kind=kind, inverse=inverse),
        mf.plan((8, 6, 10), kind=kind, inverse=inverse),
    )
    assert (made.dtype, made.out_dtype) == (plan.in_dtype, plan.out_dtype)
    assert made.read_bytes == 8 * 6 * 10 * plan.in_dtype.itemsize


def test_alike_takes_the_smallest_block() -> None:
    """Catches tiles that grow beyond what fits, or are cut where they were whole."""
    wide, narrow = (Layout((12, 10), ((Cut("p", -(-12 // b), b),), ())) for b in (5, 4))
    other = Layout((12, 10), ((), (Cut("p", 2, 5),)))
    assert [layout.block for layout in alike([wide, other, narrow])] == [(4, 10), (12, 5), (4, 10)]


def test_a_table_teaches() -> None:
    """Catches a table that is too wide, or silent on tiles, bytes, disk or memory."""
    made = mf.passes((97, 113, 89), budget=2**20, kind="rfft", mesh=AbstractMesh((2, 2), ("x", "y")))
    text = str(made)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("97 x 113 x 89 float32", "97 x 113 x 45 complex64", "x=2, y=2", "passes over the disk", "of 1.05 MB"):
        assert word in text
    for step in made.steps:
        assert f" {len(step.tiles)} " in text and step.after.label().replace("'", "")[:3] in text
    long = mf.passes((12,) * 5, budget=2**20)
    assert max(map(len, str(long).splitlines())) <= 80 and "<Passes: transform" in repr(long)
    assert "nothing on the disk besides the output" in str(mf.passes((8, 8), budget=2**20))


def test_bytes_are_those_of_the_files() -> None:
    """Catches a pass whose reading, writing or place on the disk is left out: three passes of a complex cube."""
    made = mf.passes((64,) * 3, budget=2**15)
    size = 64**3 * 8
    assert [(s.read_bytes, s.written_bytes) for s in made.steps] == [(size, size)] * 3
    assert (made.disk_bytes, made.extra_bytes) == ((size, 2 * size, 2 * size), size)
    found = json.loads(json.dumps(made.to_dict()))
    assert (found["read_bytes"], found["written_bytes"], found["extra_bytes"]) == (3 * size, 3 * size, size)
    assert [step["tiles"] for step in found["passes"]] == [len(step.tiles) for step in made.steps]
    assert mf.passes((64,) * 3, budget=2**15, dtype="float32").steps[0].read_bytes == size // 2


def test_8192_cubed_is_planned_at_once() -> None:
    """Catches a search that grows with the array: 4.4 TB in tiles of 1 GiB, on a mesh that this machine lacks."""
    made = mf.passes((8192,) * 3, budget=2**30, mesh=AbstractMesh((2, 2, 2), ("x", "y", "z")))
    assert len(made.steps) == 3 and made.peak_bytes <= 2**30


def test_the_source_is_read_in_few_places() -> None:
    """Catches a first pass that reads a C-ordered file in columns where planes would do."""
    made = mf.passes((64, 64, 64), budget=2**19, mesh=AbstractMesh((1,), ("x",)), method="transpose")
    assert [step.dims for step in made.steps] == [(1, 2), (0,)] and made.steps[1].before.parts[2] == 1


@pytest.mark.parametrize(("kind", "first"), [("fft", (0, 1)), ("rfft", (0, 2))])
def test_a_source_in_fortran_order_is_read_in_few_places(kind: str, first: tuple[int, ...]) -> None:
    """Catches tiles of a NIfTI file that cut its first dimension, so that each reads all of the file."""
    mesh, dtype = AbstractMesh((1,), ("x",)), "float32"
    made = mf.passes((64, 64, 64), budget=2**19, mesh=mesh, method="transpose", kind=kind, dtype=dtype, fortran=True)
    assert sorted(made.steps[0].dims) == list(first) and made.steps[0].before.parts[0] == 1


def test_devices_with_memory_of_their_own() -> None:
    """Catches a tile that fits the host and not the device, or a device's bytes counted as the host's."""
    shape, mesh = (64, 64, 64), AbstractMesh((2,), ("x",))
    for host, device in ((2**22, 2**14), (2**16, 2**22)):
        made = mf.passes(shape, budget=host, device_budget=device, mesh=mesh)
        plans = [plan for step in made.steps for plan in step.plans]
        assert all(plan.peak_bytes <= device for plan in plans) and "a device" in str(made)
        most = max(held_bytes(plan, np.dtype("complex64"), shared=False) for plan in plans)
        assert made.peak_bytes == most + buffer_bytes(host) <= host
        assert len(made.steps[0].tiles) > len(
            mf.passes(shape, budget=2**26, device_budget=2**26, mesh=mesh).steps[0].tiles
        )
    with pytest.raises(ValueError, match="device_budget is 64: give at least"):
        mf.passes(shape, budget=2**22, device_budget=64, mesh=mesh)


@pytest.mark.parametrize("kind", ["fft", "dct-2", "rfft"])
def test_a_refusal_names_the_budget_that_does(kind: str) -> None:
    """Catches a remedy that does not help, and one that asks for more than is needed."""
    with pytest.raises(ValueError, match=r"a line of 4096 points along dimension 1 .* budget is 1000") as refused:
        mf.passes((8, 4096, 4), budget=1000, kind=kind)
    least = int(re.findall(r"at least (\d+)", str(refused.value))[0])
    assert mf.passes((8, 4096, 4), budget=least, kind=kind).peak_bytes == least
    with pytest.raises(ValueError, match="give at least"):
        mf.passes((8, 4096, 4), budget=least - 1, kind=kind)


@pytest.mark.parametrize("devices", [1, 2, 8])
@pytest.mark.parametrize(("shape", "chunk"), [((60, 60, 4), (60, 60, 4)), ((120, 120), (120, 60)), ((7, 31), (7, 1))])
def test_a_refusal_for_a_large_chunk_names_a_budget_that_does(
    shape: tuple[int, ...], chunk: tuple[int, ...], devices: int
) -> None:
    """Catches a remedy that is refused too where a chunk takes most of the budget."""
    options: dict[str, Any] = {"chunk": chunk, "dtype": "float32", "mesh": AbstractMesh((devices,), ("x",))}
    with pytest.raises(ValueError, match="has chunks of") as refused:
        mf.passes(shape, budget=1000, **options)
    assert "precision" not in str(refused.value), "it is single precision already"
    least = int(re.findall(r"at least (\d+)", str(refused.value))[0])
    assert mf.passes(shape, budget=least, **options).peak_bytes <= least


@pytest.mark.parametrize("chunk", [(40, 192, 200), (160, 48, 200), (32, 96, 100)])
def test_a_table_says_what_reads_large_chunks_less_often(chunk: tuple[int, ...]) -> None:
    """Catches a source read many times without a word, and advice that does not hold."""
    how: dict = {"chunk": chunk, "dtype": np.float32, "mesh": AbstractMesh((2,), ("x",))}
    once, least = 160 * 192 * 200 * 4, math.prod(chunk) * 4 * 39 // 10
    made = mf.passes((160, 192, 200), budget=least, **how)
    times = made.steps[0].read_bytes / once
    said = re.search(r"read (\d+) times.* at most 3 with (.*) MB a process", " ".join(str(made).split()))
    assert said and times > 3 and int(said[1]) == round(times)
    roomy = mf.passes((160, 192, 200), budget=int(float(said[2]) * 1e6), **how)
    assert roomy.steps[0].read_bytes <= 3 * once and "times" not in str(roomy)


def test_wrong_arguments_are_refused() -> None:
    """Catches budgets that are no numbers of bytes, empty arrays, and complex arrays for real transforms."""
    with pytest.raises(ValueError, match="budget is 0: give a positive number"):
        mf.passes((8, 8), budget=0)
    with pytest.raises(TypeError, match="budget is None: give an integer"):
        mf.passes((8, 8), budget=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"budget is 1\.5: give an integer"):
        mf.passes((8, 8), budget=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="device_budget is -1"):
        mf.passes((8, 8), budget=8, device_budget=-1)
    with pytest.raises(ValueError, match="holds nothing"):
        mf.passes((8, 0), budget=2**20)
    with pytest.raises(TypeError, match=r"transforms real numbers, the array is complex64: use kind='fft'"):
        mf.passes((8, 8), budget=2**20, kind="rfft", dtype="complex64")
    for axes in ((0, 0), (0, -2)):
        with pytest.raises(ValueError, match="axis 0 is given twice in axes"):
            mf.passes((2**40, 8), budget=10**6, axes=axes)


@pytest.mark.quick(3)
@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("kind", ["fft", "rfft"])
def test_the_chunks_of_a_source_are_read_once(devices: int, kind: str) -> None:
    """Catches tiles that cut chunks, a first pass that reads each chunk several times although another would not, a
    real transform in the wrong pass for it, and a plan that does not count repeated reads."""
    shape, mesh = (128, 128, 128), AbstractMesh((devices,), ("x",))
    options: dict[str, Any] = {"mesh": mesh, "dtype": "float32", "kind": kind, "budget": 2**23}
    size, passes = 4 * math.prod(shape), []
    for chunk in ((128, 1, 128), (1, 128, 128), (16, 32, 32), (64, 64, 32)):
        made = mf.passes(shape, chunk=chunk, **options)
        first = made.steps[0]
        assert first.read_bytes == size == sum(first.bytes_of(tile)[0] for tile in first.tiles)
        whole = zip(first.before.block, chunk, strict=True)
        assert all(block % side == 0 or block == 128 for block, side in whole)
        assert made.out_dtype == np.complex64 and sorted(itertools.chain(*(s.dims for s in made.steps))) == [0, 1, 2]
        passes.append([step.dims for step in made.steps])
    assert passes[-1][0] == () and not made.steps[0].plans and made.steps[1].dtype == np.float32
    assert "copy" in str(made) and made.to_dict()["passes"][0]["plan"] is None
    large = mf.passes(shape, chunk=(128, 128, 2), **{**options, "kind": "dct-2"})
    assert large.read_bytes == sum(sum(step.bytes_of(tile)[0] for tile in step.tiles) for step in large.steps)
    with pytest.raises(ValueError, match=r"has chunks of 2097152 bytes, budget is 4194304: give at least 7\d{6}"):
        mf.passes(shape, chunk=(128, 128, 32), **{**options, "budget": 2**22})
    with pytest.raises(ValueError, match=r"chunk \(1, 2\) is none of an array of shape"):
        mf.passes(shape, chunk=(1, 2), **options)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=3), st.data())
def test_whole_chunks_are_cut_and_covered(shape: list[int], data: st.DataObject) -> None:
    """Catches blocks that begin inside a chunk where one fits in, blocks below one where that is not allowed, and
    counts of what whole chunks cover that are not those of the chunks."""
    unit = tuple(data.draw(st.integers(1, n)) for n in shape)
    most, strict = data.draw(st.integers(1, 2 * math.prod(shape))), data.draw(st.booleans())
    found = cut(tuple(shape), (), lambda block: math.prod(block) <= most, unit, strict=strict)
    assert (found is None) == (strict and math.prod(unit) > most)
    if found is None:
        return
    for block, side, size in zip(found.block, unit, shape, strict=True):
        assert block == size or block % side == 0 or (block < side and not strict)
    read = 0
    for corner in itertools.product(*(range(0, n, b) for n, b in zip(shape, found.block, strict=True))):
        ends = [min(n, a + b) for a, b, n in zip(corner, found.block, shape, strict=True)]
        needed = [
            sum(min(n, at + side) - at for at in range(0, n, side) if at < end and at + side > a)
            for a, end, side, n in zip(corner, ends, unit, shape, strict=True)
        ]
        read += math.prod(needed)
    assert covered(found, unit) == read
