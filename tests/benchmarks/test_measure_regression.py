"""The guard by hand-made rows: ratios and their changes, what is compared with what, and the command's exit codes."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.measure.baselines import MESHFFT
from benchmarks.measure.cases import Case, Task, case_of
from benchmarks.measure.flags import CALM
from benchmarks.measure.measured import Row, read_rows
from benchmarks.measure.regression import Change, changes, to_measure, unlike
from benchmarks.rows import write

FACTS = {"device": "cpu", "cpu": "a processor", "cores": 2, "load_before": 0.25}
TASK = Task((256, 256, 256))


def own(order: str = "any", task: Task = TASK) -> Case:
    return case_of(task, MESHFFT, (2, 2, 2), method="transpose", order=order, precision="default")


def row(case: Case, *seconds: float, absent: str = "") -> Row:
    return Row(case, seconds, 1e-7 if seconds else None, absent, FACTS)


def worse(found: Sequence[Change], factor: float) -> list[Change]:
    return [one for one in found if one.change > factor]


SCIPY, JNP = case_of(TASK, "scipy", method="threads"), case_of(TASK, "jnp")
BEFORE = [row(own(), 2.0, 3.0, 1.0), row(own("natural"), 4.0), row(SCIPY, 1.0), row(JNP, 4.0)]


def test_a_slower_machine_is_no_regression() -> None:
    """Catches seconds that are compared, and ratios to one baseline for ratios to all."""
    now = [row(one.case, *(3.0 * s for s in one.seconds)) for one in BEFORE]
    found = changes(BEFORE, now)
    assert [one.case for one in found] == [own(), own("natural")]
    assert [one.before for one in found] == pytest.approx([1.0, 2.0]), "over the geometric mean of 1 s and 4 s"
    assert [one.change for one in found] == pytest.approx([1.0, 1.0]) and worse(found, 1.0 + 1e-9) == []


def test_a_ratio_that_grew_is_told() -> None:
    """Catches a change upside down, a median that is not one, and a factor that is not the one given."""
    now = [row(own(), 3.0, 3.0, 30.0), row(own("natural"), 2.0), row(SCIPY, 1.0), row(JNP, 4.0)]
    found = changes(BEFORE, now)
    assert [one.change for one in found] == pytest.approx([1.5, 0.5])
    assert [one.case.order for one in worse(found, 1.25)] == ["any"] and worse(found, 1.51) == []


def test_only_baselines_of_both_runs_count() -> None:
    """Catches a ratio to other baselines than before, which changes though nothing became slower."""
    now = [row(own(), 2.0), row(SCIPY, absent="gone"), row(JNP, 4.0), row(case_of(TASK, "mkl"), 0.01)]
    (found,) = changes(BEFORE, now)
    assert (found.before, found.now) == pytest.approx((0.5, 0.5))
    with pytest.raises(ValueError, match="no baseline was measured both times"):
        changes(BEFORE, now[:2])


def test_tasks_are_held_against_their_own_baselines() -> None:
    """Catches a small array's baselines in the ratio of a large one."""
    small = Task((8, 8, 8))
    before = [*BEFORE, row(own(task=small), 0.02), row(case_of(small, "jnp"), 0.01)]
    found = changes(before, before)
    assert [one.before for one in found] == pytest.approx([1.0, 2.0, 2.0])


def test_a_case_that_is_absent_now_is_worse() -> None:
    """Catches a method that lost its walk and is passed over."""
    now = [row(own(), absent="no walk"), *BEFORE[1:]]
    found = changes(BEFORE, now)
    (lost,) = worse(found, 100.0)
    assert lost.reason == "no walk" and math.isinf(lost.change) and lost.to_dict()["change"] is None


def test_what_was_measured_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches cases that were absent, are twice in the file, or whose baseline is not here; rows without a ratio."""
    monkeypatch.setattr("benchmarks.measure.baselines.installed", lambda module: module != "mkl_fft")
    mkl, fftw = case_of(TASK, "mkl"), case_of(TASK, "fftw", method="threads")
    before = [*BEFORE, BEFORE[0], row(mkl, 1.0), row(fftw, absent="not here"), row(case_of(TASK, "unknown"), 1.0)]
    assert to_measure(before) == [one.case for one in BEFORE]
    other = row(case_of(Task((4,)), "jnp"), 1.0)
    assert other.case not in to_measure([*BEFORE, other]), "without meshfft there is nothing to compare"
    for rows, said in (
        ([row(own(), absent="why"), row(JNP, 1.0)], "no seconds of meshfft"),
        ([row(own(), 1.0), row(mkl, 1.0)], "install one of mkl"),
        ([row(own(), 1.0)], "measure some, with baselines"),
    ):
        with pytest.raises(ValueError, match=said):
            to_measure(rows)


def test_another_machine_is_told() -> None:
    """Catches ratios of two machines compared without a word."""
    other = [Row(one.case, one.seconds, one.error, "", {**FACTS, "cores": 64}) for one in BEFORE]
    assert unlike(BEFORE, BEFORE) == "" and "now on cpu devices, 64 cores" in unlike(BEFORE, other)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[Case, float]], None]:
    """The file of rows in a folder of its own; to be told the seconds of each case now, for nothing is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, value in CALM.items():
        monkeypatch.setenv(name, value)
    write(tmp_path / "before.jsonl", (one.to_dict() for one in BEFORE))

    def set_seconds(seconds: dict[Case, float]) -> None:
        def measured(cases: Sequence[Case], *_: Any) -> list[Row]:
            return [row(case, seconds[case]) for case in cases]

        monkeypatch.setattr("benchmarks.measure.flags.measured", measured)

    return set_seconds


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["guard", *words])


def test_the_command_passes_and_fails(fake: Callable[[dict[Case, float]], None], tmp_path: Path) -> None:
    """Catches an exit code that no script would notice, and a factor that is not asked."""
    fake({own(): 20.0, own("natural"): 56.0, SCIPY: 10.0, JNP: 40.0})
    result = call("before.jsonl", "--rows", "now.jsonl")
    assert result.exit_code == 1, result.output
    assert all(len(line) <= 80 for line in result.stdout.splitlines()) and "…" not in result.stdout, result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["meshfft", "transpose", "any", "256x256x256", "2,2,2", "1.00", "1.00", "1.00"] in lines
    assert ["meshfft", "transpose", "natural", "256x256x256", "2,2,2", "2.00", "2.80", "1.40", "worse"] in lines
    assert "1 of 2 worse than 1.25 times before" in result.stdout and len(read_rows(tmp_path / "now.jsonl")) == 4
    passed = call("before.jsonl", "--factor", "1.5", "--json")
    assert passed.exit_code == 0, passed.output
    found = json.loads(passed.stdout)
    assert [one["change"] for one in found["changes"]] == pytest.approx([1.0, 1.4]) and found["worse"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no.jsonl",), "no.jsonl"),
        (("before.jsonl", "--factor", "0.9"), "--factor 0.9"),
        (("before.jsonl", "--rounds", "0"), "--rounds 0"),
        (("before.jsonl", "--rows", "no/now.jsonl"), "not a folder"),
        (("other.jsonl",), "line 1 of other.jsonl"),
        (("alone.jsonl",), "no baseline of these rows"),
    ],
)
def test_refusals_come_before_the_work(
    fake: Callable[[dict[Case, float]], None], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    """Catches minutes of work for nothing, and an exit code of a regression where there is none."""
    fake({})
    (tmp_path / "other.jsonl").write_text('{"case": "meshfft transpose natural", "mesh": "slab (8,)"}\n')
    write(tmp_path / "alone.jsonl", (one.to_dict() for one in BEFORE[:2]))
    result = call(*words)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and said in result.stderr, result.stderr
