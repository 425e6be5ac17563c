"""Plans compiled for a mesh, and programs played through: work between a start and its done hides it."""

import dataclasses
import json
import re
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P
from reference import mesh

import meshfft as mf
from meshfft.inspect.aot import compile_plan, compile_seconds, devices_of, play, report, timeline
from meshfft.inspect.hlo import collectives, counts, program_of
from meshfft.inspect.schedule import executed, parse
from meshfft.machine.torus import hops

HEAD = "HloModule m, is_scheduled=true\n"


WORK = 'fusion(%a), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"100"}'


LOOP = """
%body (b: (s32[], f32[8])) -> (s32[], f32[8]) {
  %b = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%b), index=0
  %x = f32[8] get-tuple-element(%b), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %collective-permute-start.1 = (f32[8], f32[8]) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}
  %w = f32[8] fusion(%x), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"100"}
  %collective-permute-done.1 = f32[8] collective-permute-done(%collective-permute-start.1)
  ROOT %t = (s32[], f32[8]) tuple(%next, %collective-permute-done.1)
}

%condition (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %limit = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %limit), direction=LT
}

ENTRY %main (a: f32[8]) -> (s32[], f32[8]) {
  %a = f32[8] parameter(0)
  %zero = s32[] constant(0)
  %init = (s32[], f32[8]) tuple(%zero, %a)
  ROOT %loop = (s32[], f32[8]) while(%init), condition=%condition, body=%body
}
"""


def _line(*instructions: str) -> str:
    lines = "\n".join(f"  {one}" for one in instructions)
    return f"{HEAD}ENTRY %main (a: f32[8]) -> f32[8] {{\n  %a = f32[8] parameter(0)\n{lines}\n}}\n"


def _start(number: int) -> str:
    return f"%all-to-all-start.{number} = ((f32[8]), f32[8]) all-to-all-start(%a), replica_groups={{{{0,1}}}}"


def _done(number: int) -> str:
    return f"%all-to-all-done.{number} = f32[8] all-to-all-done(%all-to-all-start.{number})"


@pytest.mark.parametrize(
    ("text", "seconds", "played"),
    [
        (_line(_start(1), f"%w = f32[8] {WORK}", _done(1)), 30.0, (100, 30, 100)),
        (_line(_start(1), f"%w = f32[8] {WORK}", _done(1)), 150.0, (100, 150, 150)),
        (_line(_start(1), _done(1), f"%w = f32[8] {WORK}"), 30.0, (100, 30, 130)),
        (_line(_start(1), _start(2), f"%w = f32[8] {WORK}", _done(1), _done(2)), 70.0, (100, 140, 140)),
        (_line("%all-to-all.1 = f32[8] all-to-all(%a)", f"%w = f32[8] {WORK}"), 30.0, (100, 30, 130)),
    ],
    ids=["hidden", "longer than the work", "waited for", "two share the links", "synchronous"],
)
def test_what_hides_a_collective(text: str, seconds: float, played: tuple[float, ...]) -> None:
    """Catches a message that costs nothing, or all of its time, regardless of the work above it."""
    names = {"all-to-all-start.1": seconds, "all-to-all-start.2": seconds, "all-to-all.1": seconds}
    found = play(parse(text), 1.0, names)
    assert found[:3] == played
    assert found.compute + sum(found.waits.values()) == found.total


@pytest.mark.parametrize(("seconds", "total"), [(30.0, 500.0), (130.0, 650.0)])
def test_loops(seconds: float, total: float) -> None:
    """Catches a loop counted once, and iterations whose messages pile up."""
    played = play(parse(HEAD + LOOP), 1.0, {"collective-permute-start.1": seconds})
    assert played == (500.0, 5 * seconds, total, {"collective-permute-start.1": total - 500.0})


def test_the_estimate_of_compiling_holds_what_was_measured() -> None:
    """Catches an estimate that the rows do not bear out, and one for machines whose compiler was not measured."""
    lines = (Path(__file__).parents[2] / "benchmarks/results/compile.jsonl").read_text().splitlines()
    rows, mesh = [json.loads(line) for line in lines], AbstractMesh((8,), ("x",))
    for method in ("auto", "kdft"):
        measured = [row["cpu_seconds"] for row in rows if (row["method"] == "kdft") == (method == "kdft")]
        expected = compile_seconds(mf.plan((8, 8), mesh=mesh, topology="v3:2x2", method=method))
        assert expected is not None
        least, most = expected
        assert 0.8 * least <= min(measured) <= max(measured) <= 1.2 * most, "a core of another speed: widen COMPILING"
        assert most / max(measured) < 5 and min(measured) / least < 5, "COMPILING is of other code"
    assert compile_seconds(mf.plan((8, 8), mesh=mesh, topology="h100:8")) is None


@pytest.mark.more
def test_a_plan_compiled_for_a_mesh() -> None:
    """Catches a report of another program than the plan's, and planes or a described mesh not taken."""
    shape, spec = (17, 12, 10), P("x", "y")
    plan = mf.plan(shape, mesh=AbstractMesh((4, 2), ("x", "y")), spec=spec, method="kdft")
    block = int(np.prod(plan.in_layout.block)) * 8
    for planes in (False, True):
        program = compile_plan(plan, mesh((4, 2)), planes=planes)
        found = report(program)
        assert counts(found.collectives) == collectives(program) == plan.collectives
        assert found.memory["argument"] == block
        assert found.memory["peak"] >= found.memory["argument"] + found.memory["output"]
        assert len(jax.tree.leaves(program.in_avals)) == 1 + planes
        plain = json.loads(json.dumps(found.to_dict()))
        assert plain["argument_bytes_per_device"] == block
        assert sum(one["times"] for one in plain["collectives"]) == 2 * plan.work.hops, "both planes travel"
    assert report(compile_plan(plan, mesh((4, 2)), donate=True)).memory["alias"] > 0
    backwards = Mesh(mesh((4, 2)).devices[::-1], ("x", "y"))
    moved = compile_plan(dataclasses.replace(plan, mesh=mesh((4, 2))), backwards)
    shown = {one.mesh for one in jax.tree.leaves(moved.input_shardings)}
    assert shown == {backwards}, "a plan of other devices is compiled for these"
    assert not executed(program_of(program))[0].instruction.cycles, "a CPU prices nothing"
    with pytest.raises(ValueError, match="the plan is for"):
        compile_plan(plan, mesh((2, 4)))


def test_the_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches JAX's own error, which names no remedy of ours."""
    monkeypatch.setattr("meshfft.inspect.aot.installed", lambda module: False)
    with pytest.raises(ValueError, match=re.escape('in a clone of meshfft, pip install ".[tpu]"')):
        devices_of("v3:2x2")


class _Compiled(NamedTuple):
    """What a timeline asks of a compiled program."""

    text: str

    def as_text(self) -> str:
        return self.text


def _permute(pairs: str, step: int) -> str:
    scope = f'metadata={{op_name="jit(f)/step{step}_x/ppermute"}}'
    return _line(
        f"%send = (f32[8], f32[8]) collective-permute-start(%a), source_target_pairs={{{pairs}}}, {scope}",
        "%done = f32[8] collective-permute-done(%send)",
    )


def test_a_permute_costs_what_its_pairs_load() -> None:
    """Catches a permute priced as the ring of its step: that step may have none, and its devices may be far apart."""
    plan = mf.plan((64, 64), mesh=AbstractMesh((4, 4), ("x", "y")), topology="v5e:4x4", method="transpose")
    first = next(j for j, step in enumerate(plan.walk.steps) if not step.dims)
    chip, network = plan.machine.chip, plan.machine.network
    assert network is not None and network.torus is not None
    order, seconds = network.order.array.ravel(), dict[int, float]()
    far = [hops(network.torus, order[:1], order[j : j + 1]) for j in range(16)]
    for many in (1, max(far)):  # the first device sends to a neighbour, or across the torus
        made = _Compiled(_permute(f"{{0,{far.index(many)}}}", first))
        seconds[many] = timeline(made, plan).total  # type: ignore[arg-type]
    assert max(seconds) > 1
    assert seconds == pytest.approx({n: 32 / chip.link.value + n * chip.hop.value for n in seconds})


def test_what_no_step_sends_has_no_price() -> None:
    """Catches a gather that is priced as an exchange of its step."""
    plan = mf.plan((64, 64), mesh=AbstractMesh((4, 4), ("x", "y")), topology="v5e:4x4", method="transpose")
    with pytest.raises(NotImplementedError, match="all-gather gather has no price"):
        timeline(_Compiled(_line("%gather = f32[32] all-gather(%a)")), plan)  # type: ignore[arg-type]
