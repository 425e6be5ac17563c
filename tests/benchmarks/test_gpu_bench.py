"""The script for a GPU, at toy sizes: it has not been run on one, but all of it runs."""

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.measure.cases import Case
from benchmarks.measure.rows import Row, read_rows

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "gpu.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")  # which the script would leave set
    spec = importlib.util.spec_from_file_location("gpu_bench", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    with pytest.raises(SystemExit) as end:
        script.main()
    return int(end.value.code or 0)


def test_toy_sizes(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a case that cannot be prepared, an error above the plan's, and toys that pass for a measurement."""
    path = tmp_path / "rows.jsonl"
    assert run(script, monkeypatch, "--small", "--rounds", "1", "--rows", str(path)) == 0
    rows, said = read_rows(path), capsys.readouterr().out
    assert "NO MEASUREMENT" in said and "not judged" in said and "| yes |" not in said
    assert len(rows) == 3 + 2 * len(script.TIERS) and not any(row.absent for row in rows)
    ours = [row for row in rows if row.case.library == "meshfft"]
    assert [row.case.precision for row in ours] == ["", "", *script.TIERS] and ours[0].facts["donated"]
    for row in ours:
        assert row.error is not None and 0 < row.error <= row.facts["expected_error"], row.case
    for row in rows[3:]:
        assert row.facts["operations"] > 0 and f"| {row.case.precision} |" in said
    assert json.loads(path.read_text().splitlines()[0])["facts"]["versions"]["jax"]


def test_what_does_not_fit_is_told(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a crash for want of memory in place of a line, and a run without numbers that counts as good."""
    monkeypatch.setattr(script, "room", lambda: 1000)
    monkeypatch.setattr(script, "TIERS", ("float32",))
    rows = script.measured(script.SMALL, 1)
    assert all("GiB, JAX has" in row.absent for row in rows)
    assert all(math.isinf(found) for _, _, found in script.goals_of(rows))
    monkeypatch.setattr(script, "measured", lambda sizes, rounds: rows)
    assert run(script, monkeypatch, "--small") == 1


def test_goals(script: ModuleType) -> None:
    """Catches a ratio turned over, milliseconds for seconds, and an error that is no number but meets its goal."""
    facts = {"expected_error": 2e-7, "donated": True, "peak_bytes_in_use": 2**37}
    large, usual = Case("meshfft", (2048,) * 3, method="auto"), Case("meshfft", (1024,) * 3, method="auto")
    rows = [Row(large, (0.1,), 1e-7, "", facts), Row(usual, (0.012,), math.nan, "", {**facts, "donated": False})]
    goals = script.goals_of([*rows, Row(Case("jnp", (1024,) * 3), (0.01,), 1e-7)])
    found = {name.rpartition(",")[0][8:12] + name.rpartition(",")[2]: (limit, value) for name, limit, value in goals}
    assert found["1024 over cuFFT's 3-D plan"] == (1.15, pytest.approx(1.2))
    assert found["1024 ms"] == (14.8, pytest.approx(12)) and found["2048 ms"] == (118, pytest.approx(100))
    assert found["2048 GiB"] == (139, 128) and found["2048 error"] == (2e-7, 1e-7)
    assert not found["1024 error"][1] <= found["1024 error"][0]


def test_full_sizes_need_a_gpu(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that would fill a laptop's memory."""
    assert run(script, monkeypatch) == 2


def test_direct_sums_are_those_of_the_noise(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a wrong sign, slabs that are lost, and places that are not those of the truth."""
    one = script.mesh_of(script.layout_of((1,), 3), script.jax.devices())
    monkeypatch.setattr(script, "SLAB", 4 * 6 * 5)
    x = np.asarray(script.noise((8, 6, 5), "complex64", one)())
    places, truth = script.few((8, 6, 5), "complex64", one)
    np.testing.assert_allclose(truth, np.fft.fftn(x.astype(np.complex128))[np.ix_(*places)], rtol=1e-12)
    assert len(np.unique(x)) == x.size
