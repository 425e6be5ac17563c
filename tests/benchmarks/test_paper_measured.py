"""The paper's two algorithms measured: cases, rings that go one way, tables by hand-made times, and the command."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.cli.speed import CALM
from benchmarks.measure.cases import Case
from benchmarks.measure.on_devices import plan_of
from benchmarks.measure.rows import Row, read_rows
from benchmarks.paper.measured import breakdown, measured_cases

FACTS = {"device": "cpu", "cpu": "a processor", "cores": 2, "load_before": 0.25}


def test_cases_are_both_scalings_of_both_algorithms() -> None:
    """Catches a point measured twice, and an array of weak scaling on fewer than all devices."""
    cases = measured_cases((1, 2, 8), (16, 32))
    pairs = [(case.shape[0], case.mesh) for case in cases if case.method == "kdft"]
    assert pairs == [(32, (1, 1, 1)), (32, (1, 1, 2)), (32, (2, 2, 2)), (16, (2, 2, 2))]
    assert [case.method for case in cases] == ["kdft", "cooley-tukey"] * 4


def test_the_ring_goes_one_way() -> None:
    """Catches meshfft's two-way ring measured as the paper's."""
    for case in measured_cases((8,), (16,)):
        steps: list[Any] = list(plan_of(case).walk.steps)
        assert not any(getattr(step, "two_way", False) for step in steps), case
        assert "one-way" in case.name


def test_the_breakdown_is_of_a_real_run() -> None:
    """Catches kinds of work in another order than their seconds."""
    found = breakdown(measured_cases((2,), (16,))[0], jax.devices())
    assert found["products"] > 0 and found["permute"] > 0 and found["fft"] == found["all-to-all"] == 0


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command in a folder of its own; a case takes n ms over its devices, and nothing is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, value in CALM.items():
        monkeypatch.setenv(name, value)

    def measured(cases: Sequence[Case], *_: Any) -> list[Row]:
        return [Row(case, (1e-3 * case.shape[0] ** 2 / case.devices,), 1e-7, "", FACTS) for case in cases]

    monkeypatch.setattr("benchmarks.cli.speed.measured", measured)
    monkeypatch.setattr("benchmarks.paper.measured.breakdown", lambda case, devices: {"products": 0.25, "idle": 0.5})
    return tmp_path


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["paper", "--measure", "--sizes", "16,32", *words])


def test_the_command_prints_and_writes(fake: Path) -> None:
    """Catches a table wider than a terminal, growth upside down, and a breakdown that its row does not have."""
    result = call("--rows", "rows.jsonl")
    assert result.exit_code == 0, result.output
    assert all(len(line) <= 80 for line in result.stdout.splitlines()) and "…" not in result.stdout, result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["8", "32x32x32", "2,2,2", "128", "128", "1.00", "1.0e-07"] in lines
    assert ["32^3", "8", "2,2,2", "128", "4.0", "1.0e-07"] in lines
    assert ["32^3", "8", "250", *["0.00"] * 4, "500", "750"] in lines and "share 2 cores" in result.stdout
    values = [json.loads(line) for line in (fake / "rows.jsonl").read_text().splitlines()]
    assert len(read_rows(fake / "rows.jsonl")) == len(values) == 10
    assert all(one["breakdown"]["seconds"]["idle"] == 0.5 for one in values)


@pytest.mark.parametrize(("words", "said"), [(("--compile",), "--compile"), (("--devices", "64"), "--devices")])
def test_refusals_come_before_the_work(fake: Path, words: tuple[str, ...], said: str) -> None:
    """Catches a model left out without a word, and devices that are not there."""
    result = call(*words)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and said in result.stderr, result.stderr
