"""Out of core: right for every kind, never more than tiles at once, and resumed wherever a run was ended."""

import itertools
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from reference import error, mesh, noise

import meshfft as mf
from meshfft.io import open_array
from meshfft.operators.transform import KINDS, becomes
from meshfft.out_of_core import journal, run_passes
from meshfft.out_of_core import run as passing
from meshfft.out_of_core.tiles import Passes

SHAPE = (11, 12, 13)


def truth(x: np.ndarray, kind: str, inverse: bool, **options: Any) -> np.ndarray:
    """The result of scipy.fft in float64."""
    name = "i" * inverse + (kind.partition("-")[0] + "n")
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    if kind[:3] in ("dct", "dst"):
        options["type"] = int(kind[-1])
    return getattr(scipy.fft, name)(wide, **options)


def saved(folder: Path, x: np.ndarray) -> Path:
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def transform(made: Passes, source: Path, target: Path, **options: Any) -> np.ndarray:
    """Runs passes from file to file, and reads the result."""
    with open_array(source) as array:
        run_passes(made, array, target, **options)
    with open_array(target) as result:
        return result[...]


@st.composite
def tasks(draw: st.DrawFn) -> dict[str, Any]:
    """A transform of any kind, in a budget that takes one tile or many."""
    kind, inverse = draw(st.sampled_from(KINDS)), draw(st.booleans())
    shape = tuple(draw(st.lists(st.sampled_from((2, 3, 5, 8, 11, 12)), min_size=1, max_size=3)))
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    s = [draw(st.sampled_from((shape[d], 7, 10))) for d in axes] if draw(st.booleans()) else None
    turn = becomes(kind, inverse)
    dtype = "complex64" if turn == "real" else "float32" if turn else draw(st.sampled_from(("float32", "complex64")))
    norm, places = draw(st.sampled_from((None, "ortho", "forward"))), draw(st.sampled_from(((1,), (4,), (2, 2))))
    what = {"kind": kind, "inverse": inverse, "axes": axes, "s": s, "norm": norm}
    return {"shape": shape, "dtype": dtype, "mesh": places, "share": draw(st.floats(0, 1)), "what": what}


@given(task=tasks(), kind=st.sampled_from((".npy", ".zarr")), seed=st.integers(0, 99))
def test_every_kind_as_in_core(
    tmp_path_factory: pytest.TempPathFactory, task: dict[str, Any], kind: str, seed: int
) -> None:
    """Catches a factor, a sign, a half spectrum or a length that a pass gets wrong, and tiles out of place."""
    shape, what = task["shape"], task["what"]
    x, folder = noise(shape, task["dtype"], seed), tmp_path_factory.mktemp("passes")
    options = {"mesh": mesh(task["mesh"]) if task["mesh"] != (1,) else None, "dtype": x.dtype, **what}
    most = mf.passes(shape, budget=2**30, **options)
    least = next(b for b in itertools.count(6) if _possible(shape, 2**b, options))
    budget = int(2**least * max(1, most.peak_bytes / 2**least) ** task["share"])
    y = transform(mf.passes(shape, budget=budget, **options), saved(folder, x), folder / f"y{kind}")
    expected = truth(x, **what)
    assert y.shape == expected.shape and (y.dtype.kind == "c") == (expected.dtype.kind == "c")
    assert error(y, expected) <= 4e-7
    assert sorted(path.name for path in folder.iterdir()) == ["x.npy", f"y{kind}"]


def _possible(shape: tuple[int, ...], budget: int, options: dict[str, Any]) -> bool:
    try:
        return mf.passes(shape, budget=budget, **options) is not None
    except ValueError:
        return False


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", [".npy", ".zarr"])
def test_lines_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Catches tiles that cut two dimensions, in three passes, as where one plane is too large; chunks that two of them
    share; and stores that are kept longer than they are needed."""
    x, made_for, many = noise((9, 10, 12)), list[Any](), list[int]()
    made = mf.passes(x.shape, budget=4200)
    assert [len(step.dims) for step in made.steps] == [1, 1, 1] and min(made.steps[0].before.parts[:2]) > 1
    between = passing.scratch_of

    def making(*values: Any) -> Any:
        made_for.append(between(*values))
        return made_for[-1]

    def look(_: int) -> None:
        many.append(len(list((tmp_path / f".y{kind}.passes").glob("pass-*"))))

    monkeypatch.setattr(passing, "scratch_of", making)
    y = transform(made, saved(tmp_path, x), tmp_path / f"y{kind}", report=look)
    assert error(y, np.fft.fftn(x.astype("c16"))) <= 2e-7
    assert max(many) == 2
    files = {blocks.file.path: blocks for blocks in made_for}
    for blocks, one, next in zip(files.values(), made.steps, made.steps[1:], strict=False):
        for tile in (*(tile.target for tile in one.tiles), *(tile.source for tile in next.tiles)):
            assert all({at.start, at.stop} <= set(ends) for at, ends in zip(tile, blocks.sides, strict=True))


def test_double_precision_and_integers(tmp_path: Path, x64: None) -> None:
    """Catches numbers that are rounded to 32 bits between passes, or not converted as they are read."""
    for x in (noise(SHAPE, "complex128"), np.random.default_rng(0).integers(-99, 99, SHAPE, "int64")):
        made = mf.passes(SHAPE, budget=2**16, dtype=x.dtype)
        assert len(made.steps) == 2 and made.out_dtype == np.complex128
        y = transform(made, saved(tmp_path, x), tmp_path / "y.npy", overwrite=True)
        assert error(y, np.fft.fftn(x)) <= 1e-14


def test_integers_of_64_bits(tmp_path: Path) -> None:
    """Catches integers that JAX would wrap to 32 bits instead of taking as floating point."""
    x = np.random.default_rng(0).integers(-(2**40), 2**40, SHAPE)
    for inverse in (False, True):
        made = mf.passes(SHAPE, budget=2**15, dtype=x.dtype, inverse=inverse, norm="ortho")
        y = transform(made, saved(tmp_path, x), tmp_path / "y.npy", overwrite=True)
        assert error(y, truth(x, "fft", inverse, norm="ortho")) <= 2e-7


class Watched:
    """An array that remembers what of it was read, and how much at once."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.largest, self.total = 0, 0

    def __getitem__(self, index: Any) -> np.ndarray:
        part = self.array[index]
        self.largest, self.total = max(self.largest, part.nbytes), self.total + part.nbytes
        return part


@pytest.mark.quick(2)
@pytest.mark.parametrize("sizes", [None, (4,), (2, 2)])
def test_never_more_than_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Any) -> None:
    """Catches a tile read or written in one go with another, arrays kept on devices, and bytes read twice."""
    x, alive, moved = Watched(noise((32, 24, 40))), [0], [0]
    made = mf.passes(x.shape, budget=2**19, mesh=None if sizes is None else mesh(sizes))
    assert min(len(step.tiles) for step in made.steps) > 3
    before = sum(array.nbytes for array in jax.live_arrays())

    def watched(nbytes: int) -> None:
        alive.append(sum(array.nbytes for array in jax.live_arrays()) - before)
        moved[0] += nbytes

    run_passes(made, x, tmp_path / "y.npy", report=watched)
    first = made.steps[0]
    devices = math.prod(sizes or ())
    assert x.largest <= devices * max(plan.peak_bytes for plan in first.plans) and x.largest <= first.tile_bytes
    assert x.total == first.read_bytes
    assert 0 < max(alive) <= made.peak_bytes <= 2**19
    assert moved[0] == made.read_bytes + made.written_bytes


class KilledError(BaseException):
    """Ends a run as a signal would: nothing catches it."""


class Event:
    """Ends a run at its n-th effect on the disk, and remembers those before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: Path, end: int | None = None) -> None:
        self.target, self.end, self.names = target, end, list[str]()
        self.done: list[tuple[int, int]] = []
        for owner, name in (
            (passing, "create_sink"),
            (passing, "write_tile"),
            (passing, "put"),
            (journal, "write"),
            (journal, "clear"),
            (passing, "clear"),
        ):
            monkeypatch.setattr(owner, name, self._counted(name, getattr(owner, name)))
        for name in ("begin", "add"):
            monkeypatch.setattr(journal.Journal, name, self._counted(name, getattr(journal.Journal, name)))

    def _counted(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*values: Any, **options: Any) -> Any:
            if len(self.names) == self.end:
                raise KilledError(name)
            self.names.append(name)
            assert "put" in self.names or not self.target.exists(), "the output has its name too early"
            if name == "add":
                self.done.append(values[1:3])
            return work(*values, **options)

        return counted


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", [".npy", ".zarr", pytest.param(".h5", marks=pytest.mark.slow)])
def test_ended_anywhere_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Catches, at every single effect of a run: work lost or done twice, a result that is not bit for bit the same, an
    output under its name before its time, and leftovers."""
    x = noise((5, 6, 4))
    made, source = mf.passes(x.shape, budget=4000), saved(tmp_path, x)
    assert [len(step.tiles) for step in made.steps] == [3, 3]
    with pytest.MonkeyPatch.context() as patch:
        whole = Event(patch, tmp_path / f"whole{kind}")
        expected = transform(made, source, whole.target)
    for end in range(len(whole.names)):
        target = tmp_path / f"y{kind}"
        with pytest.MonkeyPatch.context() as patch:
            first = Event(patch, target, end)
            with pytest.raises(KilledError):
                transform(made, source, target)
        with pytest.MonkeyPatch.context() as patch:
            second = Event(patch, tmp_path / "other")
            y = transform(made, source, target, resume=True)
        assert sorted(first.done + second.done) == sorted(whole.done), whole.names[end]
        np.testing.assert_array_equal(y, expected)
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["x.npy", f"whole{kind}", target.name])
        (shutil.rmtree if target.is_dir() else os.unlink)(target)
