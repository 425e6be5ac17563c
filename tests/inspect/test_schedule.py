"""Trip counts of loops: texts small enough to count by hand, then compiled programs."""

import re

import jax
import numpy as np
import pytest
from jax import Array, lax
from jax.sharding import PartitionSpec as P
from reference import mesh

from meshfft.inspect import schedule
from meshfft.inspect.hlo import collectives, counts, cycles, every_collective
from meshfft.inspect.schedule import executed, parse

# A loop in a loop, as TPUs print them: the inner limit is a constant of the entry, handed through both loops' tuples.
NESTED = """HloModule nested, is_scheduled=true, entry_computation_layout={(f32[8]{0:T(256)})->f32[8]{0:T(256)}}

%inner.body (p.0: (s32[], f32[8], s32[], s32[])) -> (s32[], f32[8], s32[], s32[]) {
  %p.0 = (s32[]{:T(256)}, f32[8]{0:T(256)}, s32[]{:T(256)}, /*index=3*/s32[]{:T(256)}) parameter(0)
  %gte.0 = s32[]{:T(256)} get-tuple-element(%p.0), index=0
  %gte.1 = f32[8]{0:T(256)} get-tuple-element(%p.0), index=1
  %gte.2 = s32[]{:T(256)} get-tuple-element(%p.0), index=2
  %gte.3 = s32[]{:T(256)} get-tuple-element(%p.0), index=3
  %ppermute.1 = f32[8]{0:T(256)} collective-permute(%gte.1), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %add.1 = s32[]{:T(256)} add(%gte.0, %gte.3), control-predecessors={%ppermute.1}
  ROOT %tuple.1 = (s32[], f32[8], s32[], s32[]) tuple(%add.1, %ppermute.1, %gte.2, /*index=3*/%gte.3)
}

%inner.test (p.1: (s32[], f32[8], s32[], s32[])) -> pred[] {
  %p.1 = (s32[]{:T(256)}, f32[8]{0:T(256)}, s32[]{:T(256)}, /*index=3*/s32[]{:T(256)}) parameter(0)
  %gte.4 = s32[]{:T(256)} get-tuple-element(%p.1), index=0
  %gte.5 = s32[]{:T(256)} get-tuple-element(%p.1), index=2
  ROOT %lt.1 = pred[]{:T(1024)} compare(%gte.4, %gte.5), direction=LT, metadata={op_name="jit(f)/while/cond/lt"}
}

%outer.body (p.2: (s32[], s32[], f32[8])) -> (s32[], s32[], f32[8]) {
  %two..sunk = s32[]{:T(256)} constant(2)
  %zero..sunk = s32[]{:T(256)} constant(0)
  %p.2 = (s32[]{:T(256)}, s32[]{:T(256)}, f32[8]{0:T(256)}) parameter(0)
  %gte.6 = s32[]{:T(256)} get-tuple-element(%p.2), index=0
  %gte.7 = s32[]{:T(256)} get-tuple-element(%p.2), index=1
  %gte.8 = f32[8]{0:T(256)} get-tuple-element(%p.2), index=2
  %copy.1 = s32[]{:T(256)} copy(%zero..sunk)
  %one = s32[] constant(1)
  %tuple.2 = (s32[], f32[8], s32[], s32[]) tuple(%copy.1, %gte.8, %gte.7, %one)
  %while.1 = (s32[], f32[8], s32[], s32[]) while(%tuple.2), condition=%inner.test, body=%inner.body
  %gte.9 = f32[8]{0:T(256)} get-tuple-element(%while.1), index=1
  %gte.10 = s32[]{:T(256)} get-tuple-element(%while.1), index=2
  %add.2 = s32[]{:T(256)} add(%two..sunk, %gte.6)
  ROOT %tuple.3 = (s32[], s32[], f32[8]) tuple(%add.2, %gte.10, %gte.9)
}

%outer.test (p.3: (s32[], s32[], f32[8])) -> pred[] {
  %limit = s32[]{:T(256)} constant(6)
  %p.3 = (s32[]{:T(256)}, s32[]{:T(256)}, f32[8]{0:T(256)}) parameter(0)
  %gte.11 = s32[]{:T(256)} get-tuple-element(%p.3), index=0
  ROOT %lt.2 = pred[]{:T(1024)} compare(%gte.11, %limit), direction=LT
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0:T(256)} parameter(0)
  %first = s32[]{:T(256)} constant(1)
  %hoisted = s32[]{:T(256)} constant(7)
  %copy.2 = s32[]{:T(256)} copy(%hoisted)
  %tuple.4 = (s32[], s32[], f32[8]) tuple(%first, %copy.2, %x)
  %while.2 = (s32[], s32[], f32[8]) while(%tuple.4), condition=%outer.test, body=%outer.body
  ROOT %gte.12 = f32[8]{0:T(256)} get-tuple-element(%while.2), index=2
}
"""


def test_loops_in_loops_multiply() -> None:
    """Catches a loop counted once, a limit lost on its way through two tuples, and a step of two taken for one."""
    outer, inner = len(range(1, 6, 2)), len(range(7))
    assert counts(every_collective(parse(NESTED))) == {"collective-permute": outer * inner}
    times = {one.instruction.name: one.times for one in executed(parse(NESTED))}
    assert (times["while.2"], times["while.1"], times["add.2"], times["add.1"]) == (1, outer, outer, outer * inner)


@pytest.mark.parametrize("direction", ["LT", "LE", "GT", "GE", "NE"])
@pytest.mark.parametrize(
    ("first", "limit", "step"), [(0, 6, 1), (1, 6, 2), (2, 8, 3), (6, 0, -1), (0, 6, -1), (9, -1, -2), (3, 3, 1)]
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_turns_are_those_of_the_loop_run_by_hand(
    monkeypatch: pytest.MonkeyPatch, direction: str, first: int, limit: int, step: int, mirrored: bool
) -> None:
    """Catches a bound off by one, a direction or an operand mixed up, and a loop without end that is counted."""
    monkeypatch.setattr(schedule, "LONGEST", 100)
    text = NESTED
    for name, shown in (("%limit", limit), ("%first", first), ("%two..sunk", step)):
        text = re.sub(rf"({name} = .*)constant\(\d\)", rf"\g<1>constant({shown})", text)
    turned = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}[direction]
    test = f"(%limit, %gte.11), direction={turned}" if mirrored else f"(%gte.11, %limit), direction={direction}"
    text = text.replace("(%gte.11, %limit), direction=LT", test)
    goes = {"LT": int.__lt__, "LE": int.__le__, "GT": int.__gt__, "GE": int.__ge__, "NE": int.__ne__}[direction]
    at, turns = first, 0
    while goes(at, limit) and turns < 100:
        at, turns = at + step, turns + 1
    if turns < 100:
        assert counts(every_collective(parse(text))) == ({"collective-permute": 7 * turns} if turns else {})
    else:
        with pytest.raises(ValueError, match=re.escape("loop while.2: cannot tell its trip count")):
            executed(parse(text))


@pytest.mark.parametrize(
    ("changes", "loop"),
    [
        ({"%hoisted = s32[]{:T(256)} constant(7)": "%hoisted = s32[]{:T(256)} parameter(1)"}, "while.1"),
        ({"tuple(%add.2, %gte.10, %gte.9)": "tuple(%add.2, %add.2, %gte.9)"}, "while.1"),
        ({"add(%two..sunk, %gte.6)": "multiply(%gte.6, %two..sunk)"}, "while.2"),
        (
            {"add(%two..sunk, %gte.6)": "divide(%gte.6, %two..sunk)", "constant(6)": "constant(-3)", "LT\n": "GT\n"},
            "while.2",
        ),
        ({"compare(%gte.4, %gte.5)": "shift-left(%gte.4, %gte.5)"}, "while.1"),
    ],
)
def test_a_loop_that_cannot_be_told_raises(changes: dict[str, str], loop: str) -> None:
    """Catches a limit or counter that the program computes, with the loop silently counted once."""
    text = NESTED
    for told, changed in changes.items():
        assert told in text
        text = text.replace(told, changed)
    with pytest.raises(ValueError, match=f"loop {loop}: cannot tell its trip count"):
        executed(parse(text))


def test_a_loop_may_double_its_counter() -> None:
    """Catches a counter that is taken for one of equal steps."""
    text = NESTED.replace("add(%two..sunk, %gte.6)", "add(%gte.6, %gte.6)")
    assert counts(every_collective(parse(text))) == {"collective-permute": 7 * len((1, 2, 4))}


def test_a_counter_of_64_bits_is_a_pair() -> None:
    """Catches rings of many hops that no report counts where 64-bit types are on, as TPUs compile their loops."""
    root = "  ROOT %lt.1 = pred[]{:T(1024)} compare(%gte.4, %gte.5)"
    pair = """  %high = s32[]{:T(256)} bitcast-convert(%gte.4)
  %none = s32[]{:T(256)} constant(0)
  %less = pred[]{:T(1024)} compare(%high, %none), direction=LT
  %even = pred[]{:T(1024)} compare(%none, %none), direction=EQ
  %low = pred[]{:T(1024)} compare(%gte.4, %gte.5), direction=LT
  %both = pred[]{:T(1024)} and(%even, %low)
  ROOT %lt.1 = pred[]{:T(1024)} or(%less, %both)"""
    text = NESTED.replace(root, pair).replace("tuple(%add.1, %ppermute.1", "tuple(%carried, %ppermute.1")
    carry = """  %over = pred[]{:T(1024)} compare(%add.1, %gte.0), direction=LT
  %carried = s32[]{:T(256)} select(%over, %gte.0, %add.1)
  ROOT %tuple.1 ="""
    text = text.replace("  ROOT %tuple.1 =", carry)
    assert text.count("select") == text.count(" or(") == 1
    assert counts(every_collective(parse(text))) == counts(every_collective(parse(NESTED)))


def test_a_loop_may_count_down() -> None:
    """Catches a step taken with the wrong sign."""
    text = NESTED.replace("add(%two..sunk, %gte.6)", "subtract(%gte.6, %two..sunk)")
    text = text.replace("%limit), direction=LT", "%limit), direction=GE").replace(
        "%first = s32[]{:T(256)} constant(1)", "%first = s32[] constant(11)"
    )
    assert counts(every_collective(parse(text))) == {"collective-permute": 7 * len((11, 9, 7))}


def test_what_runs_under_a_pair_counts_with_its_turns() -> None:
    """Catches a loop between the halves of a pair that counts as one iteration, and the pair's time counted twice."""
    hop = "collective-permute(%gte.1), channel_id=1, source_target_pairs={{0,1},{1,0}}"
    text = NESTED.replace(hop, 'negate(%gte.1), backend_config={"estimated_cycles":"10"}')
    start = "(f32[8], f32[8], u32[]) collective-permute-start(%gte.8), source_target_pairs={{0,1},{1,0}}"
    text = text.replace("  %while.1 =", f"  %start.1 = {start}\n  %while.1 =")
    text = text.replace("  %gte.9 =", "  %done.1 = f32[8] collective-permute-done(%start.1)\n  %gte.9 =")
    assert every_collective(parse(text)) == (("start.1", "collective-permute", None, 3, 32, True, 7 * 10),)
    assert cycles(parse(text)) == ((None, "vector", 3 * 7 * 10),)


def test_branches_all_count() -> None:
    """Catches a collective that hides in a branch."""
    branch = """%{0} (y.{0}: f32[8]) -> f32[8] {{
  %y.{0} = f32[8]{{0}} parameter(0)
  ROOT %{0}.root = f32[8]{{0}} {1}(%y.{0}), replica_groups={{}}
}}
"""
    entry = """ENTRY %main (k: s32[], x: f32[8]) -> f32[8] {
  %k = s32[] parameter(0)
  %x = f32[8]{0} parameter(1)
  ROOT %c = f32[8]{0} conditional(%k, %x, %x), branch_computations={%one, %other}
}
"""
    text = (
        "HloModule m, is_scheduled=true\n\n" + branch.format("one", "all-reduce") + branch.format("other", "all-gather")
    )
    assert counts(every_collective(parse(text + entry))) == {"all-reduce": 1, "all-gather": 1}


def _hops(x: Array, turns: tuple[int, ...]) -> Array:
    """A permute in loops in loops."""
    if not turns:
        return lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)]) + 1
    return lax.fori_loop(0, turns[0], lambda _, y: _hops(y, turns[1:]), x)


@pytest.mark.parametrize("turns", [(), (5,), (3, 4), (2, 3, 5)])
def test_compiled_loops(turns: tuple[int, ...]) -> None:
    """Catches a real compiler's loops misread, with and without trip counts in the text."""
    run = jax.shard_map(lambda x: _hops(x, turns), mesh=mesh((8,)), in_specs=P("x"), out_specs=P("x"))
    program = jax.jit(run).lower(np.zeros(16, np.float32)).compile()
    assert collectives(program) == {"collective-permute": int(np.prod(turns))}
    silent = re.sub(r'"known_trip_count":\{"n":"\d+"\},?', "", program.as_text() or "")
    assert "known_trip_count" not in silent
    assert counts(every_collective(parse(silent))) == {"collective-permute": int(np.prod(turns))}


def test_a_data_dependent_loop_raises() -> None:
    """Catches a real loop with a data-dependent trip count that is counted once."""
    run = jax.shard_map(
        lambda x: lax.while_loop(lambda y: y[0] < 9, lambda y: _hops(y, ()), x),
        mesh=mesh((8,)), in_specs=P("x"), out_specs=P("x"),
    )  # fmt: skip
    program = jax.jit(run).lower(np.zeros(16, np.float32)).compile()
    with pytest.raises(ValueError, match="cannot tell its trip count"):
        collectives(program)
    with pytest.raises(ValueError, match="no ENTRY"):
        parse("nothing")
