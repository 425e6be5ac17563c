"""Every command of `python -m benchmarks`, run as people run it, at sizes that take seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from commands import QUICK
from typer.testing import CliRunner

from benchmarks import __main__ as benchmarks
from benchmarks.measure import baselines
from benchmarks.measure.flags import CALM
from benchmarks.rows import read
from benchmarks.virtual_nodes import missing
from meshfft.extras import installed

ROOT = Path(__file__).parent.parent.parent
SMALLEST = {
    "bounds": "--sizes 16 --methods kdft --tiers float32",
    "clusters": "--sizes 64 --machines 2*h100:8,2*v5e:2x2",
    "compile": "8,8,8 --mesh 2",
    "dense_tables": "--most 64",
    "fft": "8,8,8 --mesh 2 --rounds 1",
    "first_on_tpu": "--lengths 8 --points 64 --rounds 1 --interpret",
    "guard": "HEAD --cases 16^3 --rounds 1 --slower inf --peers",  # no test judges a time
    "inverse": "--sizes 16 --columns 2",
    "kernels": "--topology v5e:2x2 --lengths 256 --kinds lane",
    "long_convolution": "--lengths 64 --rounds 1",
    "nodes": "--cases 16,16:16 --rounds 1",
    "paper": "--help",  # whose smallest size takes minutes: test_bench.py runs it on few cases
    "passes": "--lengths 16",
    "plans": "--draws 2",
    "programs": "--shape 8,8,8 --mesh 8 --rounds 1 --turns 2",
    "regret": "--draws 1",
    "scattered": "--shape 16,16 --tol 1e-3 --points 1000 --rounds 1",
    "scattered_scaling": "--cores 2",
    "tables": "--pages",
    "tolerance": "--sets 20",
    "wire_kernels": "--topology v5e:2x2",
    "wires": "loopback --size 16 --rounds 1",
}
NEEDS = {"kernels": "libtpu", "wire_kernels": "libtpu"}
NEEDS |= {"passes": "jax_cuda12_plugin"}


def test_every_command_has_a_smallest_size() -> None:
    """Catches a command that the next test does not run."""
    assert {*SMALLEST} == {*typer.main.get_command(benchmarks.app).commands}  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_every_command_runs(name: str, tmp_path: Path) -> None:
    """Catches a command that fails where nobody looks: six did, on names that had moved and on small sizes."""
    pytest.importorskip(NEEDS.get(name, "jax"))
    if name == "nodes" and (why := missing()):
        pytest.skip(why)
    done = run(tmp_path, name, *SMALLEST[name].split())
    assert len(done.stdout.splitlines()) > 1 and " nan " not in done.stdout, done.stdout
    if name in benchmarks.BESIDE:
        assert ("absent: " in done.stderr) != installed(benchmarks.BESIDE[name])


@pytest.mark.slow
def test_no_error_exceeds_its_bound(tmp_path: Path) -> None:
    """Catches a tier, method or line whose error is above what plans print, uncut or over eight devices."""
    done = run(tmp_path, *"bounds --sizes 16,131,288 --tiers float32,float64,bf16x6,bf16x3,bf16".split())
    assert float(done.stdout.split()[-1]) <= 1, done.stdout


def run(folder: Path, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command in a folder; it has to succeed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), "XLA_FLAGS": ""}
    environment |= QUICK if name != "bounds" else {}  # whose errors are those of optimised programs
    command = [sys.executable, "-m", "benchmarks", name, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a table that lacks finufft or mpi4py-fft without a note, and a traceback without libtpu."""
    monkeypatch.setattr(benchmarks, "import_module", lambda name: benchmarks)
    monkeypatch.setattr(benchmarks, "main", lambda: None, raising=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    monkeypatch.setattr(benchmarks, "installed", lambda name: False)
    for name, baseline in benchmarks.BESIDE.items():
        result = CliRunner().invoke(benchmarks.app, [name])
        assert result.exit_code == 0 and f"absent: {baseline} " in result.stderr and "pip install" in result.stderr
    for name in benchmarks.COMPILED:
        result = CliRunner().invoke(benchmarks.app, [name])
        remedy = "Several GPUs" if name == "passes" else 'pip install ".[tpu]"'
        assert result.exit_code == 2 and remedy in result.stderr, result.output


def test_baselines_that_are_not_installed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches `fft` beside a baseline that is not here, in a table of meshfft alone."""
    monkeypatch.setattr(baselines, "installed", lambda name: False)
    monkeypatch.chdir(tmp_path)
    for variable, value in CALM.items():
        monkeypatch.setenv(variable, value)  # restores the environment that the command changes
    words = ["fft", "4,4", "--mesh", "2", "--rounds", "1", "--baselines", "mpi4py-fft,jaxdecomp"]
    result = CliRunner().invoke(benchmarks.app, [*words, "--rows", "rows.jsonl"])
    assert result.exit_code == 0, result.output
    found = {row["library"]: row["absent"] for row in read(Path("rows.jsonl"))}
    assert "mpi4py is not installed: pip install" in found["mpi4py-fft"], found
    assert "jaxdecomp is not installed: pip install" in found["jaxdecomp"]
    assert "absent: " in result.stdout
