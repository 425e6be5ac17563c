"""The command line as tests run it, in a terminal of 80 columns."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import meshfft
from meshfft.cli.app import app

QUICK = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
SIZES = (7, 6, 5)  # divided by no mesh axis but one
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def call(*words: str) -> Any:
    """Runs a command that has to succeed; returns its output."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "--json" in words or all(len(line) <= 80 for line in result.stdout.splitlines()), result.stdout
    return result.stdout


def refused(*words: str) -> str:
    """Runs a command that has to refuse in one line on stderr; returns the line."""
    before = sorted(os.listdir())
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("meshfft: error: ") and result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.output
    assert sorted(os.listdir()) == before
    return result.stderr


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, putting an array on the devices is a failure."""
    monkeypatch.setattr("meshfft.shard", lambda *_: pytest.fail("went on"))


def python(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a fresh Python on the CPU with the same library, and without this process's settings of JAX."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=fresh(), cwd=folder)


def fresh() -> dict[str, str]:
    """The environment of a process that finds the same library, and compiles with little effort."""
    path = os.pathsep.join([str(Path(meshfft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", **QUICK}


def values(dtype: Any = np.complex64) -> np.ndarray:
    random = np.random.default_rng(1)
    array = random.normal(size=SIZES) + 1j * random.normal(size=SIZES)
    return (array if np.dtype(dtype).kind == "c" else array.real * 100).astype(dtype)
