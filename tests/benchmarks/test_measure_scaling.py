"""Scaling by hand-made times: ideal lines, efficiencies, arrays that grow, the best mesh, and the command."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.measure.cases import Case, Task
from benchmarks.measure.flags import CALM
from benchmarks.measure.measured import median_of
from benchmarks.measure.scaling import best_mesh, scaled, tables
from benchmarks.measure.words import sharing
from benchmarks.rows import Values, read

FACTS = {"device": "cpu", "cpu": "a processor", "cores": 2, "load_before": 0.25}


def row(devices: int, seconds: tuple[float, ...], mesh: tuple[int, ...] = (), **way: Any) -> Values:
    """A hand-made row on `devices` devices."""
    case = Case(Task((8, 8)), way.pop("baseline", "meshfft"), mesh or (devices,), **way)
    found = {"seconds": [*seconds], "error": 1e-7 if seconds else None, "absent": "" if seconds else "not here"}
    return {**case.to_dict(), **found, **FACTS}


def numbers(rows: Sequence[Values]) -> dict[str, list[tuple[int, float, float]]]:
    """Devices, seconds and ideal seconds by way."""
    found = scaled(rows).items()
    return {name: [(one["devices"], median_of(one), ideal) for one, ideal in line] for name, line in found}


def test_the_ideal_line_is_the_paper_s() -> None:
    """Catches a line that starts elsewhere than at the fewest devices, and one that does not fall with them."""
    rows = [row(64, (5.0,)), row(32, (8.0,)), row(2048, (1.0,))]
    assert numbers(rows) == {"meshfft": [(32, 8.0, 8.0), (64, 5.0, 4.0), (2048, 1.0, 0.125)]}
    lines = tables([row(4, (1.0,)), row(2, (1.5,)), row(8, (0.375,))])["meshfft"]
    assert [line[5] for line in lines] == ["1.00", "0.75", "1.00"]


def test_every_way_has_its_own_line_on_its_best_meshes() -> None:
    """Catches two ways mixed into one line, a baseline on a worse mesh than it has, and one that is absent."""
    rows = [
        row(1, (4.0,), order="any"),
        row(2, (3.0, 2.0, 9.0), order="any"),
        row(4, (2.0,), (4,), order="any"), row(4, (1.0,), (2, 2), order="any"),
        row(1, (6.0,), order="natural"), row(2, (), order="natural"),
        row(2, (1.0,), baseline="jnp-sharded"),
    ]  # fmt: skip
    assert numbers(rows) == {
        "meshfft any": [(1, 4.0, 4.0), (2, 3.0, 2.0), (4, 1.0, 1.0)],
        "meshfft natural": [(1, 6.0, 6.0)],
        "jnp-sharded": [(2, 1.0, 1.0)],
    }
    assert scaled(rows)["meshfft any"][-1][0]["mesh"] == (2, 2)
    assert "4 CPU devices share 2 cores" in sharing(rows) and sharing(rows[:2]) == ""


def test_the_mesh_is_the_one_that_is_modelled_to_be_fastest() -> None:
    """Catches a mesh of fewer devices, a length refused that shards do not divide, and a refusal without a reason."""
    way = {"order": "natural"}
    devices = jax.devices()
    assert math.prod(best_mesh(Task((16, 16, 16)), devices, method="transpose", **way)) == 8
    assert best_mesh(Task((64,)), devices[:4], method="cooley-tukey", **way) == (4,)
    assert best_mesh(Task((2, 64)), devices[:4], method="cooley-tukey", **way)[1] > 1
    assert best_mesh(Task((8, 8)), devices[:1], method="auto", **way) == (1, 1)
    assert best_mesh(Task((7,)), devices[:4], method="cooley-tukey", **way) == (4,)
    with pytest.raises(ValueError, match="fewer --devices"):
        best_mesh(Task((2, 2)), devices, method="auto", **way)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command in a private folder; each case takes 8 s over its devices, and nothing runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, value in CALM.items():
        monkeypatch.setenv(name, value)

    def measured(cases: Sequence[Case], *_: Any) -> list[Values]:
        found = {"error": 1e-7, "absent": "", **FACTS}
        return [{**case.to_dict(), "seconds": [8.0 / case.devices], **found} for case in cases]

    monkeypatch.setattr("benchmarks.measure.flags.measured", measured)
    return tmp_path


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["scaling", *words])


def test_the_command_prints_and_writes(fake: Path) -> None:
    """Catches a table wider than a terminal, and points that are not those of the rows."""
    result = call("256,256,256", "--rows", "rows.jsonl", "--order", "natural,any", "--method", "transpose")
    assert result.exit_code == 0, result.output
    assert all(len(line) <= 80 for line in result.stdout.splitlines()) and "…" not in result.stdout, result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["8", "256x256x256", "8,1,1", "1000", "1000", "1.00", "1.0e-07"] in lines
    assert {one["devices"] for one in read(fake / "rows.jsonl")} >= {1, 2, 4, 8}
    assert "share 2 cores" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("8,8", "--devices", "1,x"), "--devices"),
        (("8,8", "--devices", "64"), "--devices asks for 64 devices"),
        (("2,2", "--devices", "8"), "fewer --devices"),
        (("8,8", "--baselines", "scipy"), "--baselines 'scipy'"),
        (("8,8", "--rounds", "0"), "--rounds 0"),
        (("8,8", "--method", "none"), "--method"),
    ],
)
def test_refusals_come_before_the_work(fake: Path, words: tuple[str, ...], said: str) -> None:
    """Catches minutes of useless work, and a refusal that does not name the mistake."""
    result = call(*words)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and said in result.stderr, result.stderr
