"""Measurements except their times: the baselines and their numbers, cases, rows, tables, and the command."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from reference import dft
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.common import noise
from benchmarks.measure import baselines as baselines_module
from benchmarks.measure.baselines import BASELINES, MESHFFT, prepare
from benchmarks.measure.cases import Case, Task, balanced, usual_meshes
from benchmarks.measure.data import Data, Place, Prepared, transformed
from benchmarks.measure.flags import CALM
from benchmarks.measure.measured import measured, name_of, needed_bytes, packages
from benchmarks.measure.mpi import MpiRanks
from benchmarks.measure.words import HEADS, cells, fastest_baseline, notes
from benchmarks.rows import Values, read, write
from benchmarks.timing import Seconds

THEIRS = Path(__file__).with_name("stand_in_dist_fft.py")  # has the signature of the authors' program
ISSUE = {"jnp-sharded", "swirl-lm", "jnp", "scipy", "fftw", "mkl", "jaxdecomp", "mpi4py-fft"}
SHAPE = (8, 4, 12)
BOUNDS = {"complex64": 1e-6, "float32": 1e-6, "complex128": 1e-11, "float64": 1e-14}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder, a terminal of 80 columns, and JAX's precision restored afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, value in CALM.items():
        monkeypatch.setenv(name, value)  # restores the environment that a command changes
    before = jax.config.read("jax_enable_x64")
    yield tmp_path
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Eight devices, two cores, MPI ranks where they can be started, and a stand-in for the authors' program."""
    with MpiRanks() as ranks:
        yield Place(jax.devices(), 2, ranks.prepare, THEIRS)


def row(baseline: str = MESHFFT, seconds: tuple[float, ...] = (1.0,), absent: str = "", **way: Any) -> Values:
    """A row made by hand."""
    case = Case(Task((256,) * 3), baseline, **way)
    found = {"seconds": [*seconds], "error": 1.8e-7 if seconds else None, "absent": absent}
    return {**case.to_dict(), **found, **FACTS}


FACTS = {
    "device": "cpu", "cpu": "a processor with a name of some length", "cores": 2, "load_before": 0.25,
    "versions": {"jax": "1"}, "command": "python -m benchmarks fft",
}  # fmt: skip


def test_the_table_of_baselines_is_the_issue_s() -> None:
    """Catches a baseline that was promised and is not in the table, or would never be asked."""
    assert set(BASELINES) == ISSUE | {MESHFFT}
    meshes = usual_meshes(8, 3)
    for name in ISSUE:
        assert {case.library for case in BASELINES[name].ways(Task(SHAPE), meshes, 2)} == {name}
    assert len({way for way in BASELINES["jaxdecomp"].ways(Task(SHAPE), meshes, 2)}) == 8


@pytest.mark.quick(2, 3, 8, 15)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", [*BASELINES])
def test_every_baseline_that_is_here_has_the_right_numbers(name: str, dtype: str, place: Place) -> None:
    """Catches a baseline timed on something else than the transform, and one that is absent without a reason."""
    jax.config.update("jax_enable_x64", dtype == "complex128")
    task = Task(SHAPE, dtype)
    own = [Case(task, name, (2, 2), method="auto", order="natural")]
    for case in own if name == MESHFFT else BASELINES[name].ways(task, [(2, 2)], place.cores):
        if reason := BASELINES[name].missing(task.kind):
            assert f"not installed: pip install {BASELINES[name].packages[0]}" in reason
            with pytest.raises(ValueError, match="not installed"):
                prepare(case, Data(task, 1), place)
        elif name == "swirl-lm" and dtype == "complex128":
            with pytest.raises(ValueError, match="complex64"):
                prepare(case, Data(task, 1), place)
        else:
            assert prepare(case, Data(task, 1), place).error < BOUNDS[dtype], case


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("rfft", "float32"), ("hfft", "complex64"), ("dct-2", "float32"), ("dct-4", "float64"), ("dst-1", "float32")],
)
def test_baselines_do_the_kinds_they_say(kind: str, dtype: str, place: Place) -> None:
    """Catches a baseline that confuses two kinds, or fails at a kind that it claims."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    task, able = Task(SHAPE, dtype, kind), []
    data = Data(task, 1)
    for name, baseline in BASELINES.items():
        own = [Case(task, name, (2, 2), method="auto", order="any")]
        for case in own if name == MESHFFT else baseline.cases(task, [(2, 2)], 2):
            if kind not in baseline.what:
                assert f"not {kind}" in (baseline.missing(kind) or "")
            elif baseline.missing(kind) is None and (case.devices < 4 or name == MESHFFT):
                assert prepare(case, data, place).error < BOUNDS[dtype], case
                able.append(name)
    assert {MESHFFT, "scipy"} <= set(able)


def test_the_truth_is_the_direct_sum() -> None:
    """Catches a truth in single precision, and an error that is not relative."""
    x = noise((5, 6), "complex64")
    truth = dft(x, (0, 1))
    assert np.linalg.norm(transformed(x, "fft") - truth) < 1e-13 * np.linalg.norm(truth)
    real = noise((5, 6), "float32")
    half = dft(real, (0, 1))[:, :4]
    assert np.linalg.norm(transformed(real, "rfft") - half) < 1e-13 * np.linalg.norm(half)
    data = Data(Task((4, 4)), 1)
    assert data.error(data.truth) == 0 and data.error(0 * data.truth) == 1
    assert data.error(1.5 * data.truth) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="shape"):
        data.error(data.truth[:2])


@pytest.mark.parametrize(
    ("count", "parts", "factors"), [(8, 3, (2, 2, 2)), (12, 2, (3, 4)), (7, 2, (1, 7)), (1, 1, (1,))]
)
def test_factors_are_balanced(count: int, parts: int, factors: tuple[int, ...]) -> None:
    """Catches factors with a wrong product, or farther apart than necessary."""
    assert balanced(count, parts) == factors


def test_usual_meshes_are_slab_pencil_and_block() -> None:
    """Catches a mesh with an axis of one device, and one with more axes than the array has dimensions."""
    assert usual_meshes(8, 3) == [(8,), (2, 4), (2, 2, 2)] and usual_meshes(8, 1) == [(8,)]
    assert usual_meshes(4, 3) == [(4,), (2, 2)] and usual_meshes(1, 3) == [(1,)]
    assert usual_meshes(16, 5) == [(16,), (4, 4), (2, 2, 4)]
    assert Case(Task((4, 4, 4)), MESHFFT, (2, 4)).spec == ("x", "y", None)


def test_what_fails_is_a_row_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    """Catches a run that one baseline ends, reasons without their error, and seconds that go to another case."""
    errors = {"jnp": RuntimeError("no room\nfor it"), "mkl": ValueError("does not do that"), "fftw": ValueError()}

    def ready(case: Case, data: Data, place: Place) -> Prepared:
        if case.library in errors:
            raise errors[case.library]
        return Prepared(lambda: Seconds(len(case.library)), 0.5, {"extra": case.library})

    monkeypatch.setattr("benchmarks.measure.measured.prepare", ready)
    cases = [Case(Task((4,)), name) for name in ("jnp", "scipy", "mkl", MESHFFT, "fftw")]
    found = measured(cases, 3, place, {"a": 1})
    assert [one["library"] for one in found] == [case.library for case in cases]
    reasons = ["RuntimeError: no room for it", "", "does not do that", "", "ValueError: "]
    assert [one["absent"] for one in found] == reasons
    assert [one["seconds"] for one in found] == [[], [5.0] * 3, [], [7.0] * 3, []]
    assert found[1].items() >= {"a": 1, "extra": "scipy"}.items() and found[0]["a"] == 1 and "extra" not in found[0]
    assert {"meshfft", "jax", "pyfftw", "mkl_fft", "scipy"} <= set(packages(cases))


def test_rows_survive_a_file(tmp_path: Path) -> None:
    """Catches a field that is lost or changes its type, and a number of devices that differs from the mesh's."""
    way = {"method": "kdft", "order": "any"}
    kept = [row(seconds=(0.1, 0.2, 0.4), mesh=(2, 4), **way), row("mkl", (), "not here"), row()]
    write(tmp_path / "rows.jsonl", kept)
    again = read(tmp_path / "rows.jsonl")
    assert all(json.loads(json.dumps(one)).items() <= found.items() for one, found in zip(kept, again, strict=True))
    assert (again[0]["devices"], again[0]["seconds"]) == (8, [0.1, 0.2, 0.4]) and again[0]["commit"]
    assert set(again[0]) > {"shape", "dtype", "kind", "mesh", "spec", "method", "order", "versions"}


def test_the_table_s_numbers() -> None:
    """Catches a ratio to meshfft and not to the fastest baseline, seconds for milliseconds, a mean for a median."""
    rows = [
        row(seconds=(0.2, 0.1, 0.9), method="auto", order="any"),
        row("jnp", (0.4,)), row("scipy", (0.15, 0.05, 0.05)), row("mkl", (), "mkl_fft is not installed"),
    ]  # fmt: skip
    best = fastest_baseline(rows)
    assert best is not None and best["library"] == "scipy"
    lines = cells(rows)
    assert lines[0] == ["meshfft auto any", "-", "200", "150-550", "4.00", "1.8e-07"]
    assert [line[4] for line in lines] == ["4.00", "8.00", "1.00"] and len(HEADS) == len(lines[0])
    assert "ratio: to the fastest baseline, scipy." in notes(rows)
    assert "absent: mkl: mkl_fft is not installed" in notes(rows) and "0.2 before" in notes(rows)
    assert [line[4] for line in cells(rows[:1])] == ["-"] and "ratio" not in notes(rows[:1])
    assert "transposed" in notes([*rows, row("jaxdecomp")]) and "transposed" not in notes(rows)
    assert all(len(line) <= 80 for line in notes([row("mkl", (), "why " * 60), *rows]).splitlines())


def call(*words: str) -> Any:
    return CliRunner().invoke(app, [*words])


@pytest.mark.more
def test_the_command_measures_prints_and_writes(work: Path) -> None:
    """Catches a table wider than a terminal, a missing case, and rows without their origin."""
    flags = ("--mesh", "2,2,2", "--mesh", "8", "--method", "auto,cooley-tukey", "--baselines", "scipy,mkl,jaxdecomp")
    result = call("fft", "8,8,8", *flags, "--rounds", "2", "--rows", "rows.jsonl")
    assert result.exit_code == 0, result.output
    assert all(len(line) <= 80 for line in result.stdout.splitlines()) and "…" not in result.stdout, result.stdout
    rows = read(work / "rows.jsonl")
    assert {tuple(one["mesh"]) for one in rows if one["library"] == MESHFFT} == {(8,), (2, 2, 2)}
    own = [one for one in rows if one["library"] == MESHFFT]
    assert len(own) == 8 and all(one["seconds"] or one["absent"] for one in rows) and any(one["seconds"] for one in own)
    assert {"scipy", "mkl", "jaxdecomp"} < {one["library"] for one in rows}
    assert {"versions", "device", "cpu", "cores", "load_before", "date", "commit", "command"} <= set(rows[0])


def test_the_command_takes_the_usual_meshes(work: Path) -> None:
    """Catches meshes that were not requested."""
    call("fft", "8,8", "--baselines", "none", "--rounds", "1", "--kind", "rfft", "--rows", "rows.jsonl")
    rows = read(work / "rows.jsonl")
    assert [one["mesh"] for one in rows] == [[8], [8], [2, 4], [2, 4]]
    assert {(one["kind"], one["dtype"], one["devices"]) for one in rows} == {("rfft", "float32", 8)}


@pytest.mark.slow
def test_the_authors_program_is_a_baseline(work: Path) -> None:
    """Catches a baseline that runs only where the authors' file is: a stand-in with their function's signature runs."""
    words = ("--method", "cooley-tukey,auto", "--order", "natural", "--baselines", "swirl-lm", "--rounds", "1")
    result = call("fft", "8,8,8", "--mesh", "2,2,2", *words, "--program", str(THEIRS), "--rows", "rows.jsonl")
    assert result.exit_code == 0 and "ratio: to the fastest baseline, swirl-lm" in result.stdout, result.output
    rows = read(work / "rows.jsonl")
    assert [name_of(row) for row in rows] == ["meshfft cooley-tukey natural", "meshfft auto natural", "swirl-lm"]
    assert all(row["seconds"] and row["error"] < 1e-6 for row in rows)
    assert rows[-1]["program"].startswith("sha256 ")
    for case in (["8,8,8"], ["8,8,8,2", "--program", str(THEIRS)]):
        result = call("fft", *case, "--mesh", "2", "--rounds", "1", "--baselines", "swirl-lm", "--order", "natural")
        assert "absent: swirl-lm 2: " in result.stdout and result.exit_code == 0, result.output
    assert call("fft", "8,8", "--program", "none.py").exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fft", "8,0"), "the shape"),
        (("fft", "8,8", "--mesh", "2,2,2"), "--mesh 2,2,2"),
        (("fft", "8,8", "--mesh", "64"), "--mesh asks for 64 devices"),
        (("fft", "8,8", "--mesh", "x"), "--mesh"),
        (("fft", "8,8", "--method", "auto,fast"), "--method 'fast'"),
        (("fft", "8,8", "--order", "none"), "--order"),
        (("fft", "8,8", "--kind", "dct"), "--kind"),
        (("fft", "8,8", "--dtype", "int8"), "--dtype"),
        (("fft", "8,8", "--dtype", "float32"), "complex64, complex128"),
        (("fft", "8,8", "--dtype", "complex64", "--kind", "rfft"), "float32, float64"),
        (("fft", "8,8", "--baselines", "cufft"), "--baselines 'cufft'"),
        (("fft", "8,8", "--baselines", "finufft"), "--baselines 'finufft'"),
        (("fft", "8,8", "--rounds", "0"), "--rounds 0"),
        (("fft", "8,8", "--rows", "no/rows.jsonl"), "no is not a folder"),
        (("fft", "9" * 99), "the shape '999"),
        (("fft", "8,8", "--rounds", "9" * 99), "--rounds 999"),
    ],
)
def test_refusals_come_before_the_work(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str) -> None:
    """Catches minutes of useless work, a traceback, and a refusal that does not name the mistake."""
    monkeypatch.setattr("benchmarks.measure.flags.measured", lambda *_: pytest.fail("it worked"))
    result = call(*words)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and said in result.stderr, result.stderr


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a machine that swaps, and counts of bytes that forget what sharded jnp.fft gathers."""
    own, sharded = (Case(Task((100, 10, 10)), name, (8,)) for name in (MESHFFT, "jnp-sharded"))
    assert needed_bytes([own]) == 64 * 10**4 + 4 * 80_000 and needed_bytes([]) == 0
    assert needed_bytes([own, sharded]) == 64 * 10**4 + 4 * 80_000 + 16 * 80_000
    monkeypatch.setattr("benchmarks.measure.flags.available_bytes", lambda: 10**6)
    monkeypatch.setattr("benchmarks.measure.flags.measured", lambda *_: pytest.fail("it worked"))
    result = call("fft", "64,64,64")
    assert result.exit_code == 2 and "0.001 GB are free" in result.stderr and result.stderr.count("\n") == 1


# A stand-in for MPI with one rank: the rank's program itself runs, and records its arguments.
MPI4PY = """
class Comm:
    rank, size = 0, 1
    Barrier = staticmethod(lambda: None)
    allreduce = staticmethod(lambda value, op=None: value)

class MPI:
    COMM_WORLD, MAX = Comm, max
    Get_library_version = staticmethod(lambda: "no MPI, version 0")
"""
MPI4PY_FFT = """
import json, sys
import numpy as np

class PFFT:
    def __init__(self, comm, shape, dtype, grid, collapse):
        open("asked.jsonl", "a").write(json.dumps([grid, collapse, dtype]) + chr(10))
        if grid[0] == 3:
            raise ValueError("too many ranks")
    local_slice = staticmethod(lambda spectral: ...)
    forward = staticmethod(lambda x=None, normalize=True: None if x is None else np.fft.fftn(x))
    backward = staticmethod(lambda normalize: open("back.txt", "a").write("."))

newDistArray = lambda plan, forward_output: np.zeros((4, 6, 5), np.complex64)
"""


@pytest.fixture
def mpi(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """MPI's starter and modules, as stand-ins."""
    (work / "mpi4py.py").write_text(MPI4PY)
    (work / "mpi4py_fft.py").write_text(MPI4PY_FFT)
    (work / "mpiexec").write_text('#!/bin/sh\nwhile [ "$1" != -P ]; do last=$1; shift; done\nexec "$last" "$@"\n')
    (work / "mpiexec").chmod(0o755)
    monkeypatch.setenv("PATH", str(work), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(work), prepend=os.pathsep)
    return work


def test_ranks_transform_and_what_ends_them_is_told(mpi: Path) -> None:
    """Catches another grid, another input, seconds that do not belong to a run, and a failure that ends other ranks."""
    task = Task((4, 6, 5))
    data = Data(task, 1)
    slab, pencil = BASELINES["mpi4py-fft"].ways(task, (), 2)
    many = BASELINES["mpi4py-fft"].ways(task, (), 3)[0]
    with MpiRanks() as ranks:
        first = ranks.prepare(slab, data)
        with pytest.raises(RuntimeError, match="ValueError: too many ranks"):
            ranks.prepare(many, data)
        second = ranks.prepare(pencil, data)
        assert first.error < 1e-6 and first.facts == {"mpi": "no MPI", "ranks": 1}
        assert all(0 < one.call() < 60 for one in (first, second, first))
        assert ranks.prepare(slab, data, turns=3).call() > 0 and (mpi / "back.txt").read_text() == "..."
        folder, runs = ranks._folder, ranks._runs
    asked = [json.loads(line) for line in (mpi / "asked.jsonl").read_text().splitlines()]
    assert asked == [[[2, 1, 1], True, "F"], [[3, 1, 1], True, "F"], [[1, 2, 1], False, "F"]]  # the slab once
    assert not folder.exists() and all(run.returncode is not None for run, *_ in runs.values())


def test_ranks_that_cannot_be_started_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that ends because there is no MPI."""
    monkeypatch.setattr("benchmarks.measure.mpi.shutil.which", lambda name: None)
    task = Task((4, 4))
    with MpiRanks() as ranks, pytest.raises(RuntimeError, match="mpiexec is not installed"):
        ranks.prepare(Case(task, "mpi4py-fft", (2,), method=baselines_module.SLAB), Data(task, 1))
