"""Machine files: what `meshfft measure` writes, what plans take from it, and refusals."""

import dataclasses
import json
import re
from pathlib import Path

import jax
import pytest
from commands import call, refused
from jax.sharding import AbstractMesh, Mesh

import meshfft as mf
from meshfft.inspect import rates
from meshfft.inspect.rates import Measured, Timing, _links
from meshfft.machine.chips import CHIPS, CPU
from meshfft.machine.machine import Move, Work
from meshfft.machine.machine_file import machine_text
from meshfft.machine.topology import placed, topology

SLOW_LINKS = {"vector": 5e9, "memory": 4e9, "link": 1e6, "hop": 1e-4}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of eight CPU devices with slow links."""
    mesh, path = jax.make_mesh((8,), ("x",)), tmp_path / "here.toml"
    found = Measured(SLOW_LINKS, {"float32": 1e10}, (Timing("ring", ("x",), 8, 4096, 1e-4),))
    path.write_text(machine_text(found.record(mesh)))
    return path


def test_a_file_gives_the_rates_that_were_measured(file: Path) -> None:
    """Catches a rate under another's name, and one that the file lacks but is not the data sheet's."""
    chip = topology(file).chip
    assert {name: getattr(chip, name).value for name in SLOW_LINKS} == SLOW_LINKS
    assert chip.product_rate("float32") == 1e10 and chip.product_rate("bf16x3") == CPU.product_rate("bf16x3")
    assert chip.outer == CPU.outer and (chip.name, chip.options, chip.cached) == (CPU.name, CPU.options, CPU.cached)
    assert {chip.vector.mark, chip.link.mark, chip.products[0][1].mark} == {"measured here"}


@pytest.mark.parametrize("described", [True, False])
def test_plans_price_by_the_file_only_where_it_is_given(file: Path, described: bool) -> None:
    """Catches a plan that takes a file unasked, ignores one, or prints its seconds as a data sheet's."""
    mesh = AbstractMesh((2, 4), ("x", "y")) if described else jax.make_mesh((2, 4), ("x", "y"))
    usual, measured = mf.plan((32, 32, 8), mesh=mesh), mf.plan((32, 32, 8), mesh=mesh, topology=str(file))
    assert "s modelled by rates measured here" in str(measured) and "measured here" not in str(usual)
    assert measured.to_dict()["rates_measured_here"] is True and usual.to_dict()["rates_measured_here"] is False
    assert measured.seconds_by_resource.links > 0.5 * measured.work.sent_bytes / 1e6
    assert usual.seconds_by_resource.links < 0.1 * measured.seconds_by_resource.links


def test_files_of_other_devices_and_other_files_are_refused(file: Path, tmp_path: Path) -> None:
    """Catches rates of eight devices for a mesh of four, and a damaged file that is taken."""
    for mesh in (AbstractMesh((4,), ("x",)), Mesh(jax.devices()[:4], ("x",))):
        with pytest.raises(ValueError, match="8"):
            mf.plan((16, 16), mesh=mesh, topology=file)
    text, bad = file.read_text(), tmp_path / "bad.toml"
    for old, new, says in [
        ("link = 1000000.0", "link = -1.0", "link -1.0"),
        ("link =", "lnik =", "rates of lnik"),
        ("devices = 8", "", "devices None"),
        ("devices = 8", "devices = -8", "devices -8, which is no count"),
        ("domains = 1", "domains = true", "domains True"),
        ("torus = []", 'torus = ["a"]', "torus ['a']"),
        ("torus = []", "torus = [2, 4]", "torus [2, 4], which is not one of 8 cpu devices"),
        ("domains = 1", "domains = 3", "3 domains, which 8 devices do not fill equally"),
        ("float32 =", "flaot32 =", "rates of flaot32"),
        ("link = 1000000.0", "link = true", "link True"),
        ("[rates]", "[rates", "no TOML"),
    ]:
        assert old in text
        bad.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=re.escape(says)):
            mf.plan((16, 16), topology=bad, mesh=AbstractMesh((8,), ("x",)))
    with pytest.raises(OSError, match=r"none\.toml"):
        mf.plan((16, 16), topology=tmp_path / "none.toml")
    line = refused("plan", "16,16", "--topology", str(file), "--outer", "1GB/s")
    assert "edit outer in" in line


@pytest.mark.parametrize(
    "name, sizes", [("h100:8", (2, 4)), ("2*h100:4", (2, 4)), ("4*h100:2", (4, 2)), ("v5e:2x4", (2, 4))]
)
def test_links_are_found_from_the_seconds_that_plans_would_print(name: str, sizes: tuple[int, int]) -> None:
    """Catches a level's rate found from the other's timings, and the start of several messages taken for one's: timings
    by the model must give the model's rates back.
    """
    machine = placed(topology(name), sizes, ("x", "y"))
    chip = dataclasses.replace(machine.chip, memory=machine.chip.memory._replace(value=1e30))
    machine = dataclasses.replace(machine, chip=chip)
    timings = []
    for axes in (("x",), ("y",), ("x", "y")):
        for kind in ("ring", "all-to-all"):
            for nbytes in (4096, 2**30):
                move = Move(kind, axes, nbytes, 1)
                parts = {("x",): sizes[0], ("y",): sizes[1], ("x", "y"): 8}[axes]
                sent = nbytes * (parts - 1) // parts if kind == "all-to-all" else nbytes
                work = Work(sent_bytes=sent, hops=kind == "ring", all_to_alls=kind != "ring", moves=(move,))
                timings.append(Timing(kind, axes, parts, nbytes, machine.seconds(work).links))
    found = _links(machine, timings, chip.memory.value)
    wanted = ("link", "outer") if "*" in name else ("link",)
    assert found.keys() == {*wanted, "hop", *(["start"] if "outer" in wanted else [])}
    if "outer" in wanted and chip.start is not None:
        assert found["start"] == pytest.approx(chip.start.value, rel=0.3)
    for rate in wanted:
        assert found[rate] == pytest.approx(getattr(CHIPS[machine.chip.name], rate).value, rel=0.1)


def test_measure_writes_a_file_that_plan_takes(tmp_path: Path, terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a rate that is missing or no rate, a file that plans refuse, and a file replaced unasked."""
    monkeypatch.chdir(tmp_path)
    small = {"BLOCK": 2**14, "SIZES": (2**12, 2**14), "WIDTH": 8}
    for name, value in small.items():
        monkeypatch.setattr(rates, name, {"default": value})
    monkeypatch.setattr(rates, "RUNS", 1)
    monkeypatch.setattr(rates, "MOST", 1)
    monkeypatch.setattr(rates, "WIDE", (*rates.WIDE, "bf16x3", "bf16x6"))
    monkeypatch.setattr("meshfft.cli.measure.WIDE_TYPES", False)
    record = json.loads(call("measure", "--mesh", "2,4", "--out", "here.toml", "--json"))
    assert record["rates"].keys() == {"vector", "memory", "hop", "link"} and min(record["rates"].values()) > 0
    assert record["products"].keys() == {"float32", "bf16"} and (record["devices"], record["domains"]) == (8, 1)
    assert {(one["kind"], *one["axes"], one["nbytes"]) for one in record["timings"]} == {
        (kind, *axes, nbytes)
        for kind in ("ring", "all-to-all")
        for axes in (("x",), ("y",), ("x", "y"))
        for nbytes in (2**12, 2**14)
    }
    assert "by rates measured here" in " ".join(call("plan", "64,64", "--mesh", "8", "--topology", "here.toml").split())
    assert "--overwrite" in refused("measure", "--mesh", "8", "--out", "here.toml")
    assert "--mesh 8" in refused("measure")
    assert ".toml" in refused("measure", "--mesh", "8", "--out", "here.txt")
