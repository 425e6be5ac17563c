"""Compiled programs played through: what stands between a start and its done hides it, loops multiplied out."""

import json
from pathlib import Path

import pytest
from jax.sharding import AbstractMesh

import meshfft as mf
from meshfft.inspect.aot import compile_seconds, play
from meshfft.inspect.schedule import parse

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
    """Catches a message that costs nothing, or all of its time, whatever stands under it."""
    names = {"all-to-all-start.1": seconds, "all-to-all-start.2": seconds, "all-to-all.1": seconds}
    found = play(parse(text), 1.0, names)
    assert found[:3] == played
    assert found.compute + sum(found.waits.values()) == found.total


@pytest.mark.parametrize(("seconds", "total"), [(30.0, 500.0), (130.0, 650.0)])
def test_loops(seconds: float, total: float) -> None:
    """Catches a loop counted once, and turns whose messages pile up."""
    played = play(parse(HEAD + LOOP), 1.0, {"collective-permute-start.1": seconds})
    assert played == (500.0, 5 * seconds, total, {"collective-permute-start.1": total - 500.0})


def test_the_estimate_of_compiling_is_what_was_measured() -> None:
    """Catches an estimate that the rows do not bear out, and one for machines whose compiler was not measured."""
    lines = (Path(__file__).parents[2] / "benchmarks/results/compile-pod.jsonl").read_text().splitlines()
    rows, mesh = [json.loads(line) for line in lines], AbstractMesh((8,), ("x",))
    for method in ("auto", "kdft"):
        measured = [row["cpu_seconds"] for row in rows if (row["method"] == "kdft") == (method == "kdft")]
        expected = compile_seconds(mf.plan((8, 8), mesh=mesh, topology="v3:2x2", method=method))
        assert expected == (round(min(measured)), round(max(measured)))
    assert compile_seconds(mf.plan((8, 8), mesh=mesh, topology="h100:8")) is None
