"""`meshfft plan` and `meshfft info`: output for present and for described machines."""

import json
from collections.abc import Sequence

import jax
import numpy as np
import pytest
from commands import call, refused
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import meshfft
from meshfft.cli.measure import plan_by_trials
from meshfft.cli.plan import _print_compiled, _why
from meshfft.inspect.hlo import collectives
from meshfft.plans import measured
from meshfft.plans.plan import Plan

pytestmark = pytest.mark.usefixtures("terminal")
ESTIMATE = "compile_core_seconds_estimated"


def test_plan_needs_no_devices() -> None:
    """Catches a plan that asks for the 2048 devices it describes, or does not fit the terminal."""
    printed = call("plan", "8192,8192,8192", "--mesh", "8,16,16")
    assert "8192 x 8192 x 8192 complex64" in printed
    record = json.loads(call("plan", "8192,8192,8192", "--mesh", "8,16,16", "--dtype", "complex128", "--json"))
    assert record["mesh"] == {"x": 8, "y": 16, "z": 16}
    assert record["dtype"] == "complex128"
    assert record["peak_bytes_per_device"] >= 2 * 16 * 8192**3 // 2048


def test_plan_in_double_precision() -> None:
    """Catches --precision float64 refused, since JAX has 64-bit types switched off."""
    record = json.loads(call("plan", "8,8", "--mesh", "2", "--precision", "float64", "--json"))
    assert record["out_dtype"] == "complex128"


@pytest.mark.parametrize(
    ("error", "topology", "tier"),
    [
        ("1e-10", None, "float64"),
        (".5e-5", None, "float32"),
        ("1E-10", "v5e:2x2", "int8x6"),
        ("1", "v5p:2x2x1", "bf16x6"),
    ],
)
def test_precision_as_an_error_to_stay_within(error: str, topology: str | None, tier: str) -> None:
    """Catches a number taken for an unknown name, and a plan that keeps to itself which tier it took for it."""
    words = ("plan", "64,64", "--mesh", "4", "--precision", error, *(("--topology", topology) if topology else ()))
    record = json.loads(call(*words, "--json"))
    assert record["precision"] == tier and tier in call(*words)
    assert record["error_expected"] <= float(error)


def test_plan_shows_the_walk_that_runs_here() -> None:
    """Catches a plan for other devices than the present ones: another walk than that of `mf.fftn`, and no seconds."""
    record = json.loads(call("plan", "64,64,64", "--mesh", "2,2,2", "--json"))
    devices = jax.make_mesh((2, 2, 2), ("x", "y", "z"))
    x = jax.ShapeDtypeStruct((64, 64, 64), np.complex64, sharding=NamedSharding(devices, P("x", "y", "z")))
    assert record["steps"] == meshfft.plan(x.shape, mesh=devices).to_dict()["steps"]
    assert record["seconds"] > 0 and record["chip"] == "cpu"
    assert collectives(jax.jit(meshfft.fftn).lower(x).compile()) == {"all-to-all": record["all_to_alls"]}
    more = json.loads(call("plan", "64,64,64", "--mesh", "4,4,4", "--json"))
    assert more["chip"] == "cpu" and more["seconds"] > 0


def test_plan_says_how_long_compiling_takes() -> None:
    """Catches an estimate that is missing for a pod, or made up for machines whose compiler was not measured."""
    assert "Compiling takes 4.7 to 230 s, by the core" in call("plan", "16,16", "--topology", "v3:2x2", "--mesh", "8")
    assert json.loads(call("plan", "16,16", "--topology", "v3:2x2", "--mesh", "8", "--json"))[ESTIMATE][0] > 1
    assert json.loads(call("plan", "16,16", "--topology", "h100:8", "--mesh", "8", "--json"))[ESTIMATE] is None
    assert "Compiling takes" not in call("plan", "16,16", "--mesh", "8")


def test_plan_of_the_inverse_and_of_some_axes() -> None:
    """Catches flags of `plan` that change nothing."""
    assert "inverse" in call("plan", "8,8", "--mesh", "2", "--inverse")
    flags = ["plan", "16,16", "--mesh", "4", "--json"]
    layouts = {json.loads(call(*flags, *more))["out_layout"] for more in ([], ["--axes", "1"], ["--spec", "-,x"])}
    assert len(layouts) == 3


def test_plan_of_blocks_with_ghost_cells_and_of_a_ring_one_way() -> None:
    """Catches a margin or a direction that does not reach the plan, and a width that is no number of cells."""
    ring = ["--method", "kdft", "--ring", "one-way"]
    words = ["plan", "24,20,8", "--mesh", "4,2", *ring]
    made = json.loads(call(*words, "--margin", "1,1,0", "--json"))
    names = [step["step"] for step in made["steps"]]
    assert made["margin"] == [1, 1, 0] and "trim X by 1, Y by 1" in names and "ring X (dense, one-way)" in names
    assert json.loads(call("plan", "24,16", "--mesh", "4", "--margin", "2", "--json"))["margin"] == [2, 2]
    for width in ("-1", "1.5", ""):
        assert f"--margin {width!r} is no number of cells" in refused(*words, "--margin", width)
    assert "has 2 widths for 3 axes" in refused(*words, "--margin", "1,1")
    assert "--margin says nothing of passes" in refused("plan", "24,20", "--memory", "1GB", "--margin", "1")


@pytest.mark.slow
def test_plan_for_a_pod_that_is_only_named() -> None:
    """Catches a free mesh that is not the best of those tried, missing keys, and a wrong total."""
    record = json.loads(call("plan", "2048,2048,2048", "--topology", "v3:8x8", "--json"))
    spent = record["seconds_by_resource"]
    assert record["fits"] is True and record["chip"] == "v3" and len(record["steps"]) >= 1
    assert max(spent["products"], spent["links"]) < record["seconds"] == spent["total"] < sum(spent.values())
    assert int(np.prod(list(record["mesh"].values()))) == 128
    others = record["runners_up"]
    assert all(other["seconds"] >= record["seconds"] for other in others if other["fits"]) and len(others) > 3
    given = json.loads(call("plan", "2048,2048,2048", "--topology", "v3:8x8", "--mesh", "4,4,8", "--json"))
    assert given["mesh"] == {"x": 4, "y": 4, "z": 8} and given["seconds"] >= record["seconds"]
    assert {other["method"] for other in given["runners_up"]} == {"transpose", "cooley-tukey", "kdft"}


def test_rivals_of_a_plan_that_does_not_fit() -> None:
    """Catches "does not fit" as the reason against others where the best does not fit either."""
    text, table = call("plan", "9000,9001,9000", "--topology", "v3:2x2").split("because")
    assert "does not fit" in text and "does not fit" not in table
    assert "memory 27.9 more" in table and "peak 2560 GB more" in table


def test_help_says_that_a_plan_needs_a_mesh_or_a_machine() -> None:
    """Catches a help text that promises a call without a mesh."""
    assert "neither --mesh nor --topology" in refused("plan", "512,512,512")
    assert "With --mesh alone the plan is for the devices of this machine" in " ".join(call("plan", "--help").split())


@pytest.mark.more
def test_plan_says_who_else_ran_and_what_does_not_fit() -> None:
    """Catches a table wider than the terminal, a winner without its rivals, and no warning of a plan that is too
    large."""
    printed = call("plan", "512,512,512", "--topology", "v3:4x4", "--mesh", "4,8")
    assert "Runners-up, modelled:" in printed and "more" in printed and "fits:" in printed
    large = " ".join(call("plan", "8192,8192,8192", "--topology", "v3:4x4", "--method", "kdft").split())
    assert (
        "does not fit:" in large
        and "more than the 16.6 GB of a device" in large
        and "times as many devices would do" in large
        and "but the largest" not in large
    )
    huge = " ".join(call("plan", "16384,16384,16384", "--topology", "v5e:16x16", "--mesh", "16,16").split())
    assert "times as many devices would do, but the largest v5e has 256: plan for a chip with more memory" in huge


def test_what_the_compiler_says_fits_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches lines that a terminal breaks, a peak without the capacity, and the winner among its rivals."""
    best, other = (meshfft.plan((512,) * 3, topology="v5e:2x2", method=method) for method in ("auto", "transpose"))
    seconds = {"total": 0.00887, "compute": 0.00253, "links": 0.00855}
    one = {"step": 0, "times": 16, "asynchronous": True, "covered": 1, "waited_seconds": 0.00355}
    cycles = [{"step": 0, "unit": "vector", "cycles": 10**6}]
    made = {"cycles": cycles, "collectives": [one], "kernels": {"times": 16, "cycles": 10**6}}
    _print_compiled(best, {**made, "seconds_modelled": seconds, "peak_bytes_per_device": 1_040_000_000})
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "fits: 1.04 GB of 16.0 GB per device" in printed and "16 of 16 collectives" in " ".join(printed.split())
    assert other.walk == best.walk and _why(best, other) == "the same walk"


def test_machines_that_cannot_be_planned_for_are_refused() -> None:
    """Catches a machine that does not exist, or has other devices, planned for all the same."""
    plan = ["plan", "64,64,64"]
    assert "as --mesh 2,2,2" in refused(*plan)
    assert "begin with one of cpu, v2, v3" in refused(*plan, "--topology", "v1:4x4")
    assert "v3:32x32" in refused(*plan, "--topology", "v3:4x4x4")
    assert "larger than the largest v3" in refused(*plan, "--topology", "v3:64x64")
    assert "has 4 devices, v3:4x4 has 32" in refused(*plan, "--topology", "v3:4x4", "--mesh", "2,2")
    assert "add --topology" in refused(*plan, "--mesh", "2,2", "--compile")
    assert "plan for v5e:4x8" in refused(*plan, "--topology", "h100:8", "--mesh", "8", "--compile")
    assert "give --mesh too" in refused(*plan, "--topology", "v3:4x4", "--spec", "x,y")
    assert "cannot be laid over shape (3, 3)" in refused("plan", "3,3", "--topology", "v3:4x4")


def test_info_says_what_a_report_needs() -> None:
    """Catches missing facts, and a table wider than the terminal."""
    printed = call("info")
    record = json.loads(call("info", "--json"))
    assert record["versions"]["jax"] == jax.__version__
    assert sum(device["count"] for device in record["devices"]) == len(jax.devices())
    assert record["memory_available_bytes"] > 0
    assert "measured" not in {figure["mark"] for figure in record["rates"]["figures"].values()}
    assert set(record["extras"]) == {"files", "plots", "tpu"}
    assert all(name in printed for name in (*record["versions"], "devices", "memory", "extra files"))
    assert "(measured elsewhere)" in printed and "(measured)" not in printed and "none is measured" in printed


def test_plan_of_the_lowest_modes() -> None:
    """Catches modes that do not reach the plan, and what is no number of frequencies."""
    words = ("plan", "24,20,16", "--mesh", "2,2")
    assert json.loads(call(*words, "--modes", "6,-1,4", "--json"))["out_shape"] == [6, 20, 4]
    assert json.loads(call(*words, "--modes", "8", "--kind", "rfft", "--json"))["out_shape"] == [8, 8, 5]
    for text in ("6,x,4", "0.5", "--6"):
        assert f"--modes {text!r} is no number of frequencies" in refused(*words, f"--modes={text}")
    assert "--modes says nothing of passes" in refused("plan", "24,20", "--memory", "1GB", "--modes", "4")
    assert "modes" in refused(*words, "--modes", "25")


def test_plan_by_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches --measure that prints the walk of the model, and one where nothing can be run."""
    seconds = [0.3, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    monkeypatch.setattr(measured, "_timed", lambda plans, tell: tell("round 1") or seconds[: len(plans)])
    measured._SECONDS.clear()
    words = ("plan", "24,20", "--mesh", "2,2")
    record = json.loads(call(*words, "--measure", "--json"))
    assert record["trials_seconds"] == [0.1, 0.3, *seconds[2:]] != json.loads(call(*words, "--json"))["trials_seconds"]
    assert record["steps"] != json.loads(call(*words, "--json"))["steps"]
    assert "0.1 s measured, the fastest of 10 walks" in " ".join(call(*words, "--measure").split())
    measured._SECONDS.clear()
    assert "say how many, as --mesh 8" in refused("plan", "24,20", "--measure")
    assert "leave one of them out" in refused(*words, "--measure", "--topology", "v5e:2x2")
    assert "--measure says nothing of passes" in refused(*words, "--measure", "--memory", "1GB")


@pytest.mark.more
def test_trials_on_every_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches meshes without --mesh that are left out, on a machine whose devices are its own."""
    taken = list[tuple[int, ...]]()

    def timed(plans: Sequence[Plan], tell: object) -> list[float]:
        taken.extend(plan.mesh.axis_sizes for plan in plans if plan.mesh)
        return [1.0 - 0.1 * j for j in range(len(plans))]

    monkeypatch.setattr(measured, "_timed", timed)
    monkeypatch.setattr("meshfft.cli.measure._sizes", lambda mesh: {"x": 8})
    plan = plan_by_trials((4, 64, 64), None, None, {"axes": None}, print)
    assert len({*taken}) > 1 and plan.mesh is not None and plan.mesh.axis_sizes == taken[-1]
    measured._SECONDS.clear()
