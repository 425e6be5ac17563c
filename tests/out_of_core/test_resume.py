"""Runs that were not finished: resumed, started again, or refused; and several processes that share one."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from addresses import free_address
from commands import PIPES, fresh
from jax.sharding import AbstractMesh
from reference import error, noise

import meshfft as mf
from meshfft.io import open_array
from meshfft.out_of_core import recorded_budgets, run_passes
from meshfft.out_of_core import run as passing
from meshfft.out_of_core.tiles import Passes

SCRIPT = Path(__file__).parent.parent / "passing_process.py"
SHAPE, BUDGET = (6, 7, 8), 10_000
WAYS: tuple[dict[str, Any], ...] = ({}, {"resume": True}, {"overwrite": True})


def started(folder: Path, *arguments: Any) -> "subprocess.Popen[str]":
    """A run of the array in `folder` in a separate process."""
    command = [sys.executable, str(SCRIPT), str(folder / "x.npy"), str(folder / "y.npy"), str(BUDGET)]
    return subprocess.Popen([*command, *map(str, arguments)], env=fresh(), **PIPES)


def planned(**options: Any) -> Passes:
    return mf.passes(SHAPE, **{"budget": BUDGET, "mesh": AbstractMesh((2,), ("x",)), **options})


def source(folder: Path, seed: int = 0) -> Path:
    np.save(folder / "x.npy", noise(SHAPE, seed=seed))
    return folder / "x.npy"


def run(folder: Path, made: Passes | None = None, **options: Any) -> np.ndarray:
    with open_array(folder / "x.npy") as array:
        run_passes(made or planned(), array, folder / "y.npy", **options)
    return np.load(folder / "y.npy")


def ended(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiles: int = 3,
    code: int = errno.EIO,
    of: tuple[str, str | None] | None = None,
    to: str = "y.npy",
) -> Path:
    """A run that failed after some tiles, and its working folder; `of` names another file, and its dataset."""
    path, dataset = of or (source(folder).name, None)
    write, count = passing.write_tile, [0]

    def failing(*values: Any) -> None:
        count[0] += 1
        if count[0] == tiles + 1:  # one alone, which is heard all the same
            raise OSError(code, os.strerror(code))
        write(*values)

    with monkeypatch.context() as patch:
        patch.setattr(passing, "write_tile", failing)
        with open_array(folder / path, dataset) as array, pytest.raises(OSError, match=os.strerror(code)):
            run_passes(planned(), array, folder / to)
    assert not (folder / to).exists()
    return folder / f".{to}.passes"


def moved(folder: Path, **options: Any) -> int:
    """Bytes that a run reads and writes."""
    parts: list[int] = []
    run(folder, report=parts.append, **options)
    return sum(parts)


def finished_in(folder: Path) -> list[tuple[int, int]]:
    """The pass and the index of each tile that the first process has finished."""
    done = np.fromfile(folder / ".y.npy.passes" / "done", np.uint8)
    tiles = [(step, tile) for step, one in enumerate(planned().steps) for tile in range(len(one.tiles))]
    return [tile for tile, have in zip(tiles, done, strict=True) if have]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("end", "least"), [(1, 0), (8, 1), pytest.param(18, 3, marks=pytest.mark.slow)])
def test_killed_and_resumed(tmp_path: Path, end: int, least: int) -> None:
    """Catches a run that needs more than the files on the disk: the process is killed, and none of its code runs."""
    source(tmp_path)
    process = started(tmp_path, end)
    said = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, said
    assert not (tmp_path / "y.npy").exists()
    made, finished = planned(), finished_in(tmp_path)
    done = [made.steps[step].bytes_of(made.steps[step].tiles[tile]) for step, tile in finished]
    assert len(done) >= least, "a tile is reported once as read, and for each box that is written: five times in pass 1"
    assert moved(tmp_path, resume=True) == made.read_bytes + made.written_bytes - sum(map(sum, done))
    resumed = np.load(tmp_path / "y.npy")
    np.testing.assert_array_equal(resumed, run(tmp_path, overwrite=True))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy", "y.npy"]


@pytest.mark.parametrize("place", [4, -1])
def test_a_full_disk_keeps_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Catches tiles that an error discards although there is room to continue; and an error that is not reported."""
    made = planned()
    sizes = [sum(step.bytes_of(tile)) for step in made.steps for tile in step.tiles]
    ended(tmp_path, monkeypatch, place % len(sizes), errno.ENOSPC)
    assert moved(tmp_path, resume=True) == sum(sizes[place:])
    assert error(np.load(tmp_path / "y.npy"), np.fft.fftn(noise(SHAPE).astype("c16"))) <= 2e-7


def test_room_is_asked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches hours of work before a disk is found too small for the store between passes."""
    source(tmp_path)
    need = max(planned().disk_bytes)
    for free in (need - 1, need):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        if free < need:
            with pytest.raises(OSError, match="free some"):
                run(tmp_path)
            assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]
    run(tmp_path)


def test_an_unfinished_run_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that is restarted or resumed unasked; and no way to do either."""
    folder = ended(tmp_path, monkeypatch)
    with pytest.raises(
        FileExistsError, match=r"an unfinished run: resume=True continues it, overwrite=True starts again"
    ):
        run(tmp_path)
    made = planned()
    assert moved(tmp_path, overwrite=True) == made.read_bytes + made.written_bytes and not folder.exists()
    (tmp_path / "y.npy").unlink()
    assert ended(tmp_path, monkeypatch, 0).exists()
    run(tmp_path)  # nothing was done yet, so nothing is lost


def test_another_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches tiles of two transforms, sources or versions in one result; and a refusal without both values."""
    folder = ended(tmp_path, monkeypatch)
    for other, words in (
        (planned(inverse=True), "transform kind transform, this one has inverse transform: give"),
        (planned(norm="ortho"), r"transform scale 1\.0, this one has 0\.05"),
        (planned(budget=2**20), r"transform pass 1 tiles of \[.*, this one has \[.*: give"),
        (planned(mesh=None), r"transform mesh \{'x': 2\}, this one has \{\}"),
        (planned(axes=(2, 1, 0)), r"transform axes \[0, 1, 2\], this one has \[2, 1, 0\]"),
        (planned(method="kdft", budget=20_000), r"transform pass [12] (tiles of|steps) \["),
    ):
        with pytest.raises(ValueError, match=f"the unfinished run has .*{words}"):
            run(tmp_path, other, resume=True)
    journal = json.loads((folder / "run.json").read_text())
    journal["versions jax"] = "0.0.1"
    (folder / "run.json").write_text(json.dumps(journal))
    with pytest.raises(ValueError, match=r"versions jax 0\.0\.1, this one has 0\.1"):
        run(tmp_path, resume=True)
    run(tmp_path, overwrite=True)


def test_a_changed_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a source whose numbers changed between the first tiles and the last."""
    ended(tmp_path, monkeypatch)
    source(tmp_path, seed=1)
    with pytest.raises(ValueError, match=r"source modified \d+, this one has \d+: give the same, or overwrite"):
        run(tmp_path, resume=True)
    assert error(run(tmp_path, overwrite=True), np.fft.fftn(noise(SHAPE, seed=1).astype("c16"))) <= 2e-7


def test_another_array_of_the_same_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches half of one dataset and half of another in one result."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"], file["b"] = noise(SHAPE), noise(SHAPE, seed=1)
    ended(tmp_path, monkeypatch, of=("x.h5", "a"))
    with (
        open_array(tmp_path / "x.h5", "b") as array,
        pytest.raises(ValueError, match="source dataset a, this one has b"),
    ):
        run_passes(planned(), array, tmp_path / "y.npy", resume=True)


def test_chunks_of_another_store_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches files of a store replaced by others of the same size, when none of them is newer than the newest."""
    mf.io.write_array(tmp_path / "x.zarr", jnp.asarray(noise(SHAPE)))
    os.utime(tmp_path / "x.zarr" / "zarr.json", ns=(2**61, 2**61))
    ended(tmp_path, monkeypatch, of=("x.zarr", None))
    (chunk,) = (tmp_path / "x.zarr").glob("data/c.*")
    os.utime(chunk, ns=(0, 0))
    with open_array(tmp_path / "x.zarr") as array, pytest.raises(ValueError, match="the unfinished run has"):
        run_passes(planned(), array, tmp_path / "y.npy", resume=True)


def test_a_store_that_is_written_to_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches old chunks and new ones in one result: what describes the store is not written to when a chunk is."""
    mf.io.write_array(tmp_path / "x.zarr", jnp.asarray(noise(SHAPE)))
    (chunk,), write = (tmp_path / "x.zarr").glob("data/c.*"), passing.write_tile

    def meanwhile(*values: Any) -> None:
        (tmp_path / "new").write_bytes(chunk.read_bytes())
        os.replace(tmp_path / "new", chunk)  # whole at any time, though the next tile is being read
        write(*values)

    monkeypatch.setattr(passing, "write_tile", meanwhile)
    with open_array(tmp_path / "x.zarr") as array, pytest.raises(ValueError, match="was written to while it was read"):
        run_passes(planned(), array, tmp_path / "y.npy")
    assert not (tmp_path / "y.npy").exists()


def test_another_budget_for_the_same_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that cannot go on because a little more memory is free; and a budget that is not remembered."""
    ended(tmp_path, monkeypatch)
    assert recorded_budgets(tmp_path / "z.npy") is None
    assert recorded_budgets(tmp_path / "y.npy") == {"budget": BUDGET, "device_budget": None}
    more = planned(budget=BUDGET + 1)
    assert [step.before for step in more.steps] == [step.before for step in planned().steps]
    run(tmp_path, more, resume=True)
    assert recorded_budgets(tmp_path / "y.npy") is None


N = sum(len(step.tiles) for step in planned().steps)
HOSTILE = {
    "done": (b"", b"\1", b"\1" * 999, b"\2" + bytes(N - 1), b"\xff" * N, b"1" * N, b"[0, 1]"),
    "run.json": (
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"passes": 3}',
        b"{}",
        b"[" * 99999,
        b'{"budget": "1"}',
        b'{"budget": 1, "device_budget": 0}',
    ),
}


@pytest.mark.quick(6, 7, 9, 11)
@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in HOSTILE.items() for text in texts])
def test_a_damaged_journal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: bytes) -> None:
    """Catches what no run wrote taken for work that is done, or a traceback from deep inside."""
    folder = ended(tmp_path, monkeypatch, 1)
    (folder / name).write_bytes(text)
    with pytest.raises(ValueError, match="overwrite=True starts again") as refused:
        run(tmp_path, resume=True)
    assert len(str(refused.value)) < 500 and "\n" not in str(refused.value)
    if name == "run.json":
        with pytest.raises(ValueError, match="is damaged"):
            recorded_budgets(tmp_path / "y.npy")
    run(tmp_path, overwrite=True)


def test_a_journal_cut_short_is_no_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a journal that was not yet written, when the power went, taken for one; and tiles at another's index."""
    folder = ended(tmp_path, monkeypatch, 2)
    (folder / ".done.1-0123abcd.partial").write_bytes(b"\1")
    again = passing.journal_of(planned(), folder.parent / "y.npy")
    again.add(0, 2)
    again.add(1, 0)
    assert [np.flatnonzero(done).tolist() for done in again.finished()] == [[0, 1, 2], [0]]
    run(tmp_path, overwrite=True)


@pytest.mark.parametrize("gone", ["pass-0.npy", "pass-1.npy"])
def test_a_store_that_is_gone_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    """Catches zeros in place of tiles whose store was removed."""
    folder = ended(tmp_path, monkeypatch, len(planned().steps[0].tiles) + 1)
    (folder / gone).unlink()
    with pytest.raises((ValueError, OSError), match=rf"{gone} is gone"):
        run(tmp_path, resume=True)


@pytest.mark.parametrize(("cut", "tiles"), [("pass-0.npy", 2), ("pass-1.npy", 1)])
def test_a_store_that_is_cut_short_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str, tiles: int
) -> None:
    """Catches zeros in place of tiles that were cut off: later tiles make the file long again."""
    folder = ended(tmp_path, monkeypatch, tiles + (cut == "pass-1.npy") * len(planned().steps[0].tiles))
    os.truncate(folder / cut, 200)
    with pytest.raises(OSError, match=rf"{cut} was cut short, it has \d+ bytes of \d+"):
        run(tmp_path, resume=True)
    assert not (tmp_path / "y.npy").exists()


def test_chunks_that_are_gone_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a store without some of its files given its name, when the last pass was ended after them."""
    source(tmp_path)

    def ending(*values: Any) -> None:
        raise OSError(errno.EIO, "ended")

    with open_array(tmp_path / "x.npy") as array:
        with monkeypatch.context() as patch, pytest.raises(OSError, match="ended"):
            patch.setattr(passing, "put", ending)
            run_passes(planned(), array, tmp_path / "y.zarr")
        next((tmp_path / ".y.zarr.passes" / "pass-1.zarr").glob("data/c.*")).unlink()
        with pytest.raises(OSError, match=r"has \d+ chunks of \d+, the others are gone: overwrite"):
            run_passes(planned(), array, tmp_path / "y.zarr", resume=True)
    assert not (tmp_path / "y.zarr").exists()


def test_an_array_at_the_root_of_its_store_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that was ended before arrays were written into groups and cannot go on, or begins anew."""
    tiles, begun = planned().steps, list[str]()
    folder = ended(tmp_path, monkeypatch, tiles=len(tiles[0].tiles) + 1, to="y.zarr")
    (folder / "pass-1.zarr" / "data").rename(tmp_path / "root")
    shutil.rmtree(folder / "pass-1.zarr")
    (tmp_path / "root").rename(folder / "pass-1.zarr")
    with open_array(tmp_path / "x.npy") as array:
        run_passes(planned(), array, tmp_path / "y.zarr", resume=True, begin=begun.append)
    assert not (tmp_path / "y.zarr" / "data").exists() and "pass 2" in begun
    with open_array(tmp_path / "y.zarr") as found:
        assert error(found[...], np.fft.fftn(noise(SHAPE).astype("c16"))) <= 2e-7


def test_what_is_not_ours_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the removal of files that no run made, and work in a folder that a link leads to."""
    source(tmp_path)
    folder, other = tmp_path / ".y.npy.passes", tmp_path / "other"
    other.mkdir()
    (other / "pass-0.npy").write_text("mine")
    folder.symlink_to(other)
    for options in WAYS:
        with pytest.raises(ValueError, match="is not the working folder of a run: move it away"):
            run(tmp_path, **options)
    folder.unlink()
    other.rename(folder)
    (folder / "thesis.tex").write_text("mine")
    for options in WAYS:
        with pytest.raises(ValueError, match=r"it has thesis\.tex"):
            run(tmp_path, **options)
    assert (folder / "thesis.tex").read_text() == (folder / "pass-0.npy").read_text() == "mine"
    (folder / "thesis.tex").unlink()
    (folder / "done").symlink_to(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"it has done"):
        run(tmp_path, overwrite=True)


def test_one_program_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches two programs that write to one working folder."""
    folder = ended(tmp_path, monkeypatch)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    for options in WAYS[1:]:
        with pytest.raises(FileExistsError, match="another program works in"):
            run(tmp_path, **options)
    os.close(held)
    run(tmp_path, resume=True)


def test_refusals_before_any_work(tmp_path: Path) -> None:
    """Catches work for an output that cannot be, of an array that was not planned for, on devices that lack."""
    source(tmp_path)
    run(tmp_path)
    with pytest.raises(FileExistsError, match=r"y\.npy exists"):
        run(tmp_path)
    with open_array(tmp_path / "x.npy") as array:
        for target, words in (("y.csv", "no kind that can be written"), ("none/y.npy", "is not a folder")):
            with pytest.raises((ValueError, OSError), match=words):
                run_passes(planned(), array, tmp_path / target)
        with pytest.raises(ValueError, match=r"the source is complex64 of shape \(6, 7, 8\), the passes take float32"):
            run_passes(planned(dtype="float32"), array, tmp_path / "z.npy")
        with pytest.raises(ValueError, match="a process has 8: plan for a smaller mesh"):
            run_passes(planned(mesh=AbstractMesh((16,), ("x",)), budget=2**20), array, tmp_path / "z.npy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def two(folder: Path, fault: str = "") -> list[dict[str, Any]]:
    """Output of two processes that share a run."""
    address = free_address()
    both = [started(folder, 0, fault, address, index) for index in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert not any(process.returncode for process in both), [text[-2000:] for _, text in said]
    return [json.loads(next(line for line in out.splitlines() if line.startswith("{"))) for out, _ in said]


@pytest.mark.slow
def test_processes_share_the_tiles(tmp_path: Path) -> None:
    """Catches tiles that two processes do, or none, and processes that do not wait for one another."""
    source(tmp_path)
    first, second = two(tmp_path)
    assert min(first["bytes"], second["bytes"]) > first["all"] / 4 and first["bytes"] + second["bytes"] == first["all"]
    assert error(np.load(tmp_path / "y.npy"), np.fft.fftn(noise(SHAPE).astype("c16"))) <= 2e-7
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy", "y.npy"]


@pytest.mark.slow
def test_a_process_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches processes that wait for ever for one that failed; a single process resumes their work."""
    source(tmp_path)
    first, second = two(tmp_path, "write")
    assert "Input/output error" in second["error"] and "process 1 failed: " in first["error"]
    assert finished_in(tmp_path) == [(0, tile) for tile in range(0, len(planned().steps[0].tiles), 2)]
    assert error(run(tmp_path, resume=True), np.fft.fftn(noise(SHAPE).astype("c16"))) <= 2e-7


@pytest.mark.slow
def test_processes_must_have_one_source(tmp_path: Path) -> None:
    """Catches two processes that transform two arrays into one."""
    source(tmp_path)
    for said in two(tmp_path, "source"):
        assert "process 0 has the run" in said["error"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]
