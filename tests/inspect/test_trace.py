"""Traces: time shared out exactly, traces made by hand with known answers, and one of a run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.profiler import ProfileData
from reference import mesh

import meshfft as mf
from meshfft.inspect import trace
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import KINDS, Op, ops_of, program_of
from meshfft.inspect.schedule import executed
from meshfft.inspect.trace import RUN, WORK, Breakdown, Span, check_profiler, measured, profiled, read, share

OPS = {"fft.1": Op(1, "fft"), "swap.1": Op(2, "all-to-all"), "dot.1": Op(3, "products"), "copy.1": Op(4, "copies")}
STEPS = ("fft", "swap", "dot", "copy")
Line = list[tuple[str, int, int, dict[str, Any]]]

spans = st.lists(
    st.builds(
        lambda begin, length, step, kind: Span(begin, begin + length, Op(step, kind)),
        st.integers(0, 20), st.integers(0, 8), st.integers(0, 3), st.sampled_from(WORK),
    ),
    max_size=8,
)  # fmt: skip


def space(**planes: dict[str, Line]) -> ProfileData:
    """A trace of events (name, begin and length in picoseconds, stats) on lines of planes."""
    return ProfileData.from_serialized_xspace(
        ProfileData.text_proto_to_serialized_xspace("\n".join(_plane(*plane) for plane in planes.items()))
    )


def _plane(name: str, lines: dict[str, Line]) -> str:
    names, stats = (
        _numbered(e[0] for line in lines.values() for e in line),
        _numbered(s for line in lines.values() for e in line for s in e[3]),
    )
    parts = [f'name: "{name}"']
    for kind, numbers in (("event", names), ("stat", stats)):
        parts += [f'{kind}_metadata {{ key: {n} value {{ id: {n} name: "{t}" }} }}' for t, n in numbers.items()]
    for title, events in lines.items():
        inside = " ".join(_event(names[e[0]], *e[1:3], {stats[s]: v for s, v in e[3].items()}) for e in events)
        parts.append(f'lines {{ name: "{title}" {inside} }}')
    return f"planes {{ {' '.join(parts)} }}"


def _numbered(names: Any) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names), 1)}


def _event(name: int, begin: int, length: int, stats: dict[int, Any]) -> str:
    kinds = {int: "int64_value", str: "str_value"}
    values = (f"stats {{ metadata_id: {s} {kinds[type(v)]}: {json.dumps(v)} }}" for s, v in stats.items())
    return f"events {{ metadata_id: {name} offset_ps: {begin} duration_ps: {length} {' '.join(values)} }}"


def cpu(op: str, device: int, begin: int, end: int, **stats: int) -> tuple[str, int, int, dict[str, Any]]:
    """An instruction as XLA's CPU devices write it; times in nanoseconds."""
    return (op, 1000 * begin, 1000 * (end - begin), {"hlo_op": op, "device_ordinal": device, **stats})


def mark(name: str, begin: int, end: int, **stats: int) -> tuple[str, int, int, dict[str, Any]]:
    """Something else in the trace."""
    return (name, 1000 * begin, 1000 * (end - begin), stats)


def spent(found: Breakdown, device: int) -> dict[tuple[int, str], int]:
    """Nanoseconds of a device by step and kind."""
    length = found.seconds[found.devices.index(device)]
    return {(j, KINDS[k]): round(1e9 * length[j, k]) for j, k in zip(*length.nonzero(), strict=True)}


@given(spans=spans)
def test_every_moment_belongs_to_one_step_and_kind(spans: list[Span]) -> None:
    """Catches time counted twice or lost, work that a message hides, and idling for another step than the next."""
    begin, end = min([3, *(s.begin for s in spans)]), max([9, *(s.end for s in spans)])
    there = [[s.op for s in spans if s.begin <= moment < s.end] for moment in range(begin, end)]
    owners = [min(ops, key=lambda op: (WORK.index(op.kind), op.step)) if ops else None for ops in there]
    expected: Counter[Op] = Counter()
    for place, owner in enumerate(owners):
        near = next(filter(None, [*owners[place:], *reversed(owners[:place])]), Op(0, "idle"))
        expected[owner or Op(near.step, "idle")] += 1
    found = share(spans, begin, end)
    assert sum(found.values()) == end - begin
    assert found == expected


def test_a_trace_of_cpu_devices_with_known_numbers() -> None:
    """Catches threads taken for devices, waits counted as sending, hidden time in a sum, and runs that are mixed."""
    lines: dict[str, Line] = {
        "python": [mark(RUN, 1000, 1900), mark(RUN, 2000, 2900)],
        "one": [
            cpu("fft.1", 0, 500, 900),  # before the first run: the one that warms up
            cpu("fft.1", 0, 1000, 1100),
            cpu("swap.1", 0, 1100, 1300),
            mark("Wait: pending_threads=1/2", 1120, 1200),
            mark("Wait: pending_threads=1/2", 1310, 1320),  # in no instruction
            cpu("copy.1", 1, 1450, 1500),
            cpu("fft.1", 1, 2000, 2600),
        ],
        "two": [cpu("fft.1", 1, 1050, 1150), cpu("dot.1", 0, 1250, 1400), cpu("fft.1", 0, 2100, 2500)],
    }
    first = {(1, "fft"): 100, (2, "all-to-all"): 70, (2, "idle"): 80, (3, "products"): 150, (3, "idle"): 100}
    other = {(1, "idle"): 50, (1, "fft"): 100, (4, "idle"): 300, (4, "copies"): 50}
    alone = {**lines, "python": [], "two": lines["two"][:2], "one": lines["one"][1:-1]}
    found = measured(space(host=alone), OPS, STEPS)
    assert (spent(found, 0), spent(found, 1)) == (first, other)
    found = measured(space(host=lines), OPS, STEPS)
    assert found.walls == pytest.approx((5e-7, 6e-7)) and found.devices == (0, 1)
    assert found.seconds.sum((1, 2)) == pytest.approx(found.wall, rel=1e-12)
    assert spent(found, 0) == {(1, "fft"): 250, (1, "idle"): 100, **{k: v / 2 for k, v in first.items() if k[0] > 1}}
    assert found.hidden == pytest.approx({"all-to-all": 50e-9 / 4})
    assert [tuple(one) for one in found.used] == [(1, 2, 3, 4), (0, 1, 3, 4, 6)]


def test_what_another_thread_finishes() -> None:
    """Catches an instruction that ends when it was dispatched, and one that lasts as long as its successor."""
    lines: dict[str, Line] = {
        "one": [cpu("dot.1", 0, 0, 10, _p=7), cpu("copy.1", 0, 20, 30, _p=8)],
        "two": [
            cpu("fft.1", 0, 60, 90),
            cpu("fft.1", 1, 15, 18),
            mark("end: dot.1", 95, 95, _c=7),
            mark("end: copy.1", 40, 40, _c=8),
        ],
    }
    (run,) = read(space(host=lines), OPS)
    assert {span.op.kind: (span.begin, span.end) for span in run[0]} == {
        "products": (0, 60_000), "copies": (20_000, 40_000), "fft": (60_000, 90_000)
    }  # fmt: skip


def test_a_compiler_that_would_crash_the_profiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a crash of the process, where libtpu is of another version than JAX was built with."""
    monkeypatch.setattr(trace, "installed", lambda module: True)
    monkeypatch.setattr(trace.metadata, "requires", lambda package: ["numpy>=2", 'libtpu==0.0.42.*; extra == "tpu"'])
    monkeypatch.setattr(trace.metadata, "version", lambda package: "0.0.52")
    check_profiler("cpu")
    for platforms in (None, "", "tpu,cpu"):
        with pytest.raises(ImportError, match=r"libtpu==0\.0\.42\.\*.* JAX_PLATFORMS=cpu"):
            check_profiler(platforms)
    monkeypatch.setattr(trace.metadata, "version", lambda package: "0.0.42.1")
    check_profiler(None)


def test_traces_of_gpus_and_tpus() -> None:
    """Catches a device that only its plane names, an instruction that only its text names, and loops taken for work."""
    gpu: dict[str, Line] = {"Stream #1": [("volta_sgemm", 0, 4000, {"hlo_op": "dot.1"})], "Steps": [("5", 0, 9000, {})]}
    tpu: dict[str, Line] = {
        "XLA Ops": [("%while.1 = (s32[]) while(%t)", 0, 9000, {}), ("%fft.1 = f32[8] fusion(%x)", 1000, 3000, {})],
        "XLA Modules": [("jit_run", 0, 9000, {})],
    }
    host: dict[str, Line] = {"python": [("print", 0, 99, {})]}
    data = space(**{"/device:GPU:3": gpu, "/device:TPU:1": tpu, "/host:CPU": host})
    (run,) = read(data, {**OPS, "while.1": None})
    assert run == {3: [Span(0, 4000, OPS["dot.1"])], 1: [Span(1000, 4000, OPS["fft.1"])]}
    (run,) = read(data, {"while.1": None})
    assert run[1] == [Span(1000, 4000, Op(0, "other"))], "not in the program"
    with pytest.raises(ValueError, match="no instruction of a device"):
        measured(space(host={"python": [mark("print", 0, 1)]}), OPS, STEPS)


@pytest.mark.filterwarnings("ignore:builtin type event_stats")  # the test looks at events itself, as `read` does
def test_a_run_and_its_trace(tmp_path: Path) -> None:
    """Catches an instruction that is missing in the trace or in the text, and parts that do not sum to the run."""
    plan, calls = mf.plan((64, 6), mesh=mesh((8,)), method="cooley-tukey"), list[None]()
    found = profiled(plan, mesh((8,)), 2, tmp_path, lambda: calls.append(None))
    assert found.devices == tuple(range(8)) and len(found.walls) == len(calls) == 2
    assert found.seconds.sum((1, 2)) == pytest.approx(found.wall, rel=1e-9), "on every device"
    assert list(tmp_path.glob("plugins/profile/*/perfetto_trace.json.gz"))
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    data, text = ProfileData.from_file(str(file)), program_of(compile_plan(plan, mesh((8,))))
    events = [event for plane in data.planes for line in plane.lines for event in line.events]
    begin = min(event.start_ns for event in events if event.name == RUN)
    named = [(op, event.start_ns) for event in events if (op := dict(event.stats).get("hlo_op"))]
    seen, ops = Counter(op for op, start in named if start >= begin), ops_of(text)
    assert min(start for _, start in named) < begin, "a first run warms up, and does not count"
    assert seen == {one.name: 2 * 8 * times for one, times in executed(text) if seen[one.name] or ops[one.name]}
    spans = [span for run in read(data, ops) for own in run.values() for span in own]
    assert len(spans) > sum(many for op, many in seen.items() if ops[op]), "no message was cut by its waits"
    assert {KINDS[k] for k in found.used[1]} <= {op.kind for op in ops.values() if op} | {"idle"}
