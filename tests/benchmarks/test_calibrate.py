"""Calibration: rates recovered from prices, a row that is kept and found again, and what `meshfft info` shows of it."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import pytest
from typer.testing import CliRunner

from meshfft import calibrate as calibration
from meshfft.calibrate import Timing, calibrate, fitted, rates_of, row
from meshfft.cli import calibration as kept
from meshfft.cli.app import app
from meshfft.machine.chips import CPU
from meshfft.machine.machine import Machine
from meshfft.machine.work import Work

TRUE = row([3e10, 2e9, 1e9, 5e8], 4e-5, "made up")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of one's own, and a calibration that takes no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(calibration, "calibrate", functools.partial(calibrate, sizes=(16,), rounds=1))
    return tmp_path / "meshfft" / "cpu.json"


def _call(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.stdout


def _works() -> list[Work]:
    """The work of every part of a calibration."""
    return [part.work for size in (128, 256) for part in calibration._parts((size,) * 3, 8)]


def test_the_fit_finds_the_rates_that_made_the_prices() -> None:
    """Catches a resource whose share is wrong or forgotten: prices by known rates, fitted from others."""
    timings = [Timing("part", work, Machine(TRUE).price(work)) for work in _works()]
    found = fitted(timings, dataclasses.replace(CPU, hop=TRUE.hop))
    assert rates_of(found) == pytest.approx(rates_of(TRUE), rel=0.1)
    assert [Machine(found).price(one.work) for one in timings] == pytest.approx([t.measured for t in timings], rel=0.02)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_fit_holds_against_anything_measured(factor: float) -> None:
    """Catches rates that turn negative, or fly off, where parts are far from what they promise or contradict it."""
    works = _works()
    timings = [Timing("part", w, factor ** (j % 2) * Machine(CPU).price(w)) for j, w in enumerate(works)]
    assert all(1e3 < rate < 1e16 for rate in rates_of(fitted(timings, CPU)))


def test_a_row_has_what_it_was_given() -> None:
    """Catches rates in each other's place, and a hop that stays the built-in one."""
    assert rates_of(TRUE) == (3e10, 2e9, 1e9, 5e8) and TRUE.hop.value == 4e-5
    assert (TRUE.platform, TRUE.cached) == (CPU.platform, CPU.cached)
    assert {figure.mark for figure in TRUE.figures().values()} == {"measured"}
    assert {figure.source for figure in TRUE.figures().values()} == {"made up"}


def test_a_calibration_measures_every_part() -> None:
    """Catches a part that does not compile, is not timed, or whose work is not a step's own."""
    found = calibrate(jax.devices(), sizes=(16, 24), rounds=1)
    assert len(found.timings) == 18 and len({timing.name for timing in found.timings}) == 18
    assert all(timing.measured > 0 and timing.modelled > 0 for timing in found.timings)
    assert all(figure.mark == "measured" and "8 devices" in figure.source for figure in found.chip.figures().values())
    assert any(t.work.matrix_flops for t in found.timings) and any(t.work.all_to_alls for t in found.timings)
    with pytest.raises(ValueError, match="calibrate 8 CPU devices"):
        calibrate(jax.devices()[:1])


def test_nothing_is_found_before_and_the_row_after(cache: Path) -> None:
    """Catches a row that changes on its way through the file, and parts of one left behind."""
    assert kept.stored_chip() is None
    kept.store(TRUE)
    assert kept.stored_chip() == TRUE
    assert [file.name for file in cache.parent.iterdir()] == ["cpu.json"]


def test_rows_of_other_machines_are_kept_and_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a shared home folder in which one machine's rates are used on another, or overwritten by them."""
    kept.store(TRUE)
    monkeypatch.setattr(kept, "machine_key", lambda: "another processor, 4 cores, jax 1.0")
    assert kept.stored_chip() is None
    kept.store(CPU)
    found = kept.stored_chip()
    assert found is not None and rates_of(found) == rates_of(CPU)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent.parent))
    assert kept.stored_chip() == TRUE and len(json.loads(cache.read_text())) == 2


GOOD = {"product": 1e10, "vector": 1e9, "memory": 1e9, "link": 1e8, "hop": 1e-5, "source": "here"}
BAD: dict[str, Any] = {
    "no JSON": "{",
    "no object": "[1]",
    "no row": {},
    "a row that is none": 3,
    "a rate is missing": {name: value for name, value in GOOD.items() if name != "link"},
    "a rate is no number": GOOD | {"link": "fast"},
    "a rate of zero": GOOD | {"link": 0},
    "an endless rate": GOOD | {"link": float("inf")},
    "a rate of none": GOOD | {"vector": float("nan")},
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_read_counts_as_none(name: str, cache: Path) -> None:
    """Catches every plan of a machine refused, or priced as nothing, because of a file that something else wrote."""
    cache.parent.mkdir()
    text = BAD[name] if isinstance(BAD[name], str) else json.dumps({kept.machine_key(): BAD[name]})
    cache.write_text(text)
    assert kept.stored_chip() is None
    kept.store(TRUE)
    assert kept.stored_chip() == TRUE


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a file in the working folder where the variable is empty or relative, as its standard forbids."""
    for named in ("", "cache", None):
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.delenv("XDG_CACHE_HOME") if named is None else monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert kept.cache_file() == tmp_path / "home" / ".cache" / "meshfft" / "cpu.json"
        monkeypatch.setenv("XDG_CACHE_HOME", "x")


def test_the_processors_name(tmp_path: Path) -> None:
    """Catches a key that is empty, or that every machine has."""
    assert kept.cpu_model(tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9004 Test\nflags\t: fpu\n")
    assert kept.cpu_model(tmp_path) == "AMD EPYC 9004 Test"
    assert jax.__version__ in kept.machine_key() and "cores" in kept.machine_key()


def test_info_shows_the_row_in_use() -> None:
    """Catches a row that is measured and not shown, or shown as measured where it is the built-in one."""
    before = json.loads(_call("info", "--json"))["rates"]
    assert (before["chip"], before["calibrated"]) == ("cpu", False) and "as built in" in _call("info")
    assert before["figures"]["vector, op/s"] == CPU.vector._asdict()
    made = json.loads(_call("info", "--calibrate", "--json"))
    assert made["rates"]["calibrated"] and len(made["calibration"]) == 9
    assert {figure["mark"] for figure in made["rates"]["figures"].values()} == {"measured"}
    after = json.loads(_call("info", "--json"))
    assert after["rates"] == made["rates"] and "calibration" not in after
    printed = _call("info")
    assert "calibrated on this machine" in printed and "8 devices" in printed and "(measured)" in printed
    assert max(map(len, _call("info", "--calibrate").splitlines())) <= 80
