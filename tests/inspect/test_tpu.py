"""Programs that the TPU compiler makes of plans, for described topologies: needs the extra `tpu`, no TPU."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "tpu_programs.py"
ENVIRONMENT = {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
COMPILER = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason='needs the TPU compiler: pip install ".[tpu]"'
)
pytestmark = [pytest.mark.slow, COMPILER]


def _compiled(what: str, topology: str) -> dict[str, Any]:
    """Output of the script."""
    command = [sys.executable, str(SCRIPT), what, topology]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_planes_travel_end_to_end() -> None:
    """Catches a complex number packed or unpacked inside a KDFT of planes, and collectives that no plan printed."""
    for tier, program in _compiled("planes", "v3:2x2").items():
        assert program["complex in planes"] == 0, tier
        assert program["complex in packed"] > 0, "the count sees nothing"
        assert program["collectives"] == program["plan"], tier


def test_hops_have_products_under_them() -> None:
    """Catches hops that no plan printed, one that is waited for, and hops with less under them than half a product."""
    found = _compiled("schedule", "v3:4x4")
    assert found["counts"] == found["plan"] == {"collective-permute": 2 * (3 + 3 + 1)}, "two planes a hop"
    products = sum(one["cycles"] for one in found["report"]["cycles"] if one["unit"] == "matrix") / (4 + 4 + 2)
    for hop in found["report"]["collectives"]:
        assert hop["asynchronous"], hop
        assert hop["bytes"] == 4 * 512**3 // 32
    covered = [hop["covered"] for hop in found["report"]["collectives"]]
    assert statistics.median(covered) >= 0.5 * products > 0
    assert covered.count(0) <= 2 * 2, "the scheduler may let the two planes of a ring's first hop pass first"
    assert not any(hop["asynchronous"] for hop in found["plain"]["collectives"]), "the options are what it takes"
    assert found["donated"]["alias_bytes_per_device"] == found["report"]["argument_bytes_per_device"]
    assert "v3:3x3" in found["refused"] and "v5p:2x2x4" in found["refused"]


def test_the_printed_call_makes_the_mesh_of_the_plan() -> None:
    """Catches a call of `create_hybrid_device_mesh` or `make_mesh` whose devices have other places than in the plan."""
    found = _compiled("meshes", "2*v5e:2x2")
    assert all(found.values()) and any("hybrid" in call for call in found), found
    assert all(_compiled("meshes", "v3:2x2").values())


@pytest.mark.parametrize("topology", ["2*v5e:2x2", "4*v5p:2x2x1"])
def test_bytes_between_slices_are_those_of_the_plan(topology: str) -> None:
    """Catches slices priced as one torus, and a program that sends more through the hosts than its plan counts."""
    for method, found in _compiled("slices", topology).items():
        assert found["counts"] == found["plan"], (method, found)
        assert found["between"] == found["priced"] > 0, (method, found)


def test_real_transforms_take_six_tenths_of_the_cycles() -> None:
    """Catches XLA's real FFT taken where it saves nothing, which on a TPU is everywhere, and complex blocks sent."""
    found = _compiled("real", "v3:2x2")
    for way in ("there", "back"):
        assert found[way]["cycles"] <= 0.6 * found["complex"]["cycles"], (way, found)
    assert all(program["counts"] == program["plan"] for program in found.values()), found


@pytest.mark.parametrize("topology", ["v3:2x2", "v5e:2x2", "v5p:2x2x1"])
def test_plans_take_kernels_of_the_vector_unit(topology: str) -> None:
    """Catches a kernel that does not compile inside shard_map or with 64-bit types, XLA's FFT in place of a kernel, a
    kernel without a price, a collective that no plan printed, a peak above the plan's, and a copy between a kernel and
    a collective. In any order the program has nothing else; in natural order the result is assembled at the end. Half
    spectra are copied too: XLA keeps their dimensions in another order. Kernels also write the words of wires.
    """
    for order, program in _compiled("vector", topology).items():
        assert program["steps"].count("(vector)") == program["steps"].count("fft ") >= 2, (order, program)
        assert program["calls"] == program["kernels"] > 0 and program["ffts"] == 0, (order, program)
        assert program["counts"] == program["plan"], (order, program)
        assert 0 < program["alone"] <= program["played"]["compute"], (order, program)
        small = topology.startswith("v5e")  # blocks of 34 MB, where the compiler spends more than it does at 512^3
        assert 0.7 <= program["peak"] <= (2 if small else 1), (order, program)
        most = {"any": 1.05, "in words": 1.05, "natural": 1.8, "real": 6.0}[order]
        assert (program["words"] >= 2) == (order == "in words"), (order, program)
        assert program["played"]["compute"] <= most * program["alone"], (order, program)


@pytest.mark.parametrize("topology", ["v3:4x4", "v5e:4x4", "v5p:2x2x4"])
def test_collectives_run_under_the_work(topology: str) -> None:
    """Catches a gather, a collective that no plan printed, an exposed collective, and a schedule that hides too little.

    When played through, at least four tenths of the shorter of work and links is hidden; without overlap nothing is.
    """
    for name, walk in _compiled("walks", topology).items():
        counts, played = walk["counts"], walk["played"]
        waits = played.pop("waits")
        assert set(waits) == set(walk["starts"]), (name, walk)
        assert played["compute"] + sum(waits.values()) == pytest.approx(played["total"]), (name, walk)
        assert set(counts) <= {"all-to-all", "collective-permute"} and walk["asynchronous"], (name, walk)
        assert counts == walk["plan"], (name, walk)
        hidden = played["compute"] + played["links"] - played["total"]
        assert hidden >= 0.4 * min(played["compute"], played["links"]), (name, walk)


def test_float64_by_slices() -> None:
    """Catches operations on float64 that the TPU compiler refuses, a gather, a collective that no plan printed, a plan
    that promises less memory than the program takes or 1.3 times as much, and chunks for which whole blocks are copied
    in every iteration.
    """
    for method, found in _compiled("sliced", "v3:2x2").items():
        ring = "phase ring" in found["steps"]
        assert ring if method == "cooley-tukey" else "(int8x7)" in found["steps"], found
        assert found["counts"] == found["plan"] and len(found["plan"]) == 2 * ring and found["gathers"] == 0, found
        assert found["bytes"] <= found["peak"] <= 1.3 * found["bytes"], found
        assert 0.7 * found["modelled"] <= found["seconds"] <= 1.3 * found["modelled"], found


def test_what_long_and_odd_lengths_take() -> None:
    """Catches a matrix as large as a length's square, rows of two or four numbers stored as 128, and chunks that end
    within a tile: such programs took up to 30,000 times the memory of the plan, or nine times as long."""
    for shape, found in _compiled("lengths", "v5e:2x2").items():
        assert found["bytes"] <= 1.02 * found["peak"], (shape, found)
        assert found["seconds"] <= 2 * found["modelled"], (shape, found)
