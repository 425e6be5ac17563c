"""Profiles: time shared out exactly, traces made by hand with known answers, and every walk's kinds of work."""

import itertools
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
from meshfft.inspect.hlo import every_collective, program_of
from meshfft.inspect.schedule import executed
from meshfft.profile import running
from meshfft.profile.breakdown import measured
from meshfft.profile.kinds import Op, ops_of
from meshfft.profile.running import prepared, record
from meshfft.profile.slices import IDLE, WORK, Slice, busy, shared, without
from meshfft.profile.trace import RUN, Event, Track, load, newest, read, tracks

OPS = {"fft.1": Op(0, "fft"), "swap.1": Op(1, "all-to-all"), "dot.1": Op(2, "products"), "copy.1": Op(3, "copies")}
Line = list[tuple[str, int, int, dict[str, Any]]]

spans = st.lists(
    st.builds(
        lambda begin, length, step, kind: Slice(begin, begin + length, step, kind),
        st.integers(0, 20), st.integers(0, 8), st.none() | st.integers(0, 3), st.sampled_from(WORK),
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


def spent(track: Track) -> dict[tuple[int | None, str], int]:
    """Nanoseconds of a track by step and kind."""
    total: Counter[tuple[int | None, str]] = Counter()
    for begin, end, step, kind in track.slices:
        total[step, kind] += (end - begin) // 1000
    return dict(total)


@given(spans=spans)
def test_every_moment_belongs_to_one_step_and_kind(spans: list[Slice]) -> None:
    """Catches time counted twice or lost, work hidden by a message, and idling for a step that is not the next."""
    begin, end = min([3, *(s.begin for s in spans)]), max([9, *(s.end for s in spans)])
    slices = shared(spans, begin, end)
    assert [slices[0].begin, *(s.end for s in slices)] == [*(s.begin for s in slices), end] and slices[0].begin == begin
    assert all(a[2:] != b[2:] for a, b in itertools.pairwise(slices)), "neighbours that are one"
    last = None
    for moment in range(begin, end):
        (owner,) = [s for s in slices if s.begin <= moment < s.end]
        here = [s for s in spans if s.begin <= moment < s.end]
        coming = [s for s in spans if s.begin > moment and s.end > s.begin]
        if here:
            assert owner.kind == min((s.kind for s in here), key=WORK.index)
            assert owner.step in {s.step for s in here if s.kind == owner.kind}
        else:
            soonest = min((s.begin for s in coming), default=None)
            assert owner.kind == IDLE
            assert owner.step in ({s.step for s in coming if s.begin == soonest} if coming else {last})
        last = owner.step


@given(spans=spans, pauses=st.lists(st.integers(0, 30), unique=True, max_size=8).map(sorted))
def test_lengths_of_unions_and_differences(spans: list[Slice], pauses: list[int]) -> None:
    """Catches an overlap counted twice, and a pause that is not taken out, or taken out beyond its ends."""
    assert busy(spans) == len({m for s in spans for m in range(s.begin, s.end)})
    pairs = list(zip(pauses[::2], pauses[1::2], strict=False))
    paused = {m for a, b in pairs for m in range(a, b)}
    for span in spans:
        left = [m for part in without(span, pairs) for m in range(part.begin, part.end)]
        assert left == [m for m in range(span.begin, span.end) if m not in paused]


def test_a_trace_of_cpu_devices_with_known_numbers() -> None:
    """Catches threads taken for devices, waits counted as sending, hidden time in a sum, and runs that are mixed."""
    lines: dict[str, Line] = {
        "python": [mark(RUN, 1000, 1900), mark(RUN, 2000, 2900)],
        "one": [
            cpu("fft.1", 0, 500, 900),  # before the first run: the one that warms up
            cpu("fft.1", 0, 1000, 1100),
            cpu("swap.1", 0, 1100, 1300),
            mark("Wait: pending_threads=1/2", 1120, 1200),
            cpu("copy.1", 1, 1450, 1500),
            cpu("fft.1", 1, 2000, 2600),
        ],
        "two": [cpu("fft.1", 1, 1050, 1150), cpu("dot.1", 0, 1250, 1400), cpu("fft.1", 0, 2100, 2500)],
    }
    found = tracks(read(space(host=lines)), OPS)
    assert [(t.run, t.device, t.length) for t in found] == [
        (0, 0, 500_000), (0, 1, 500_000), (1, 0, 600_000), (1, 1, 600_000)
    ]  # fmt: skip
    first = {(0, "fft"): 100, (1, "all-to-all"): 70, (1, IDLE): 80, (2, "products"): 150, (2, IDLE): 100}
    other = {(0, IDLE): 50, (0, "fft"): 100, (3, IDLE): 300, (3, "copies"): 50}
    assert [spent(t) for t in found[:3]] == [first, other, {(0, IDLE): 200, (0, "fft"): 400}]
    assert found[0].hidden == {"all-to-all": 50_000, "permute": 0}
    made = measured(found, ("fft", "swap", "dot", "copy"))
    assert made.walls == pytest.approx((5e-7, 6e-7)) and made.devices == (0, 1)
    assert made.seconds(0, "fft") == pytest.approx((100 + 100 + 400 + 600) / 4 * 1e-9)
    assert made.of_kind("fft") == pytest.approx((250e-9, 350e-9))
    assert made.hidden == pytest.approx({"all-to-all": 50e-9 / 4})
    assert made.places == (0, 1, 2, 3) and made.kinds == ("products", "fft", "all-to-all", "copies", "idle")


def test_what_another_thread_finishes() -> None:
    """Catches an instruction that ends when it was handed out, and one that lasts as long as what comes after it."""
    lines: dict[str, Line] = {
        "one": [cpu("dot.1", 0, 0, 10, _p=7), cpu("copy.1", 0, 20, 30, _p=8)],
        "two": [
            cpu("fft.1", 0, 60, 90),
            cpu("fft.1", 1, 15, 18),
            mark("end: dot.1", 95, 95, _c=7),
            mark("end: copy.1", 40, 40, _c=8),
        ],
    }
    events = read(space(host=lines)).events
    length = {op: sum(e.end - e.begin for e in events if e.op == op and e.device == 0) // 1000 for op in OPS}
    assert length == {"dot.1": 10 + 50, "copy.1": 10 + 10, "fft.1": 30, "swap.1": 0}


def test_a_compiler_that_would_crash_the_profiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a crash of the process, where libtpu is of another version than JAX was built with."""
    monkeypatch.setattr(running, "installed", lambda module: True)
    monkeypatch.setattr(running.metadata, "requires", lambda package: ["numpy>=2", 'libtpu==0.0.42.*; extra == "tpu"'])
    monkeypatch.setattr(running.metadata, "version", lambda package: "0.0.52")
    running.check_profiler("cpu")
    for platforms in (None, "", "tpu,cpu"):
        with pytest.raises(ImportError, match=r"libtpu==0\.0\.42\.\*.* JAX_PLATFORMS=cpu"):
            running.check_profiler(platforms)
    monkeypatch.setattr(running.metadata, "version", lambda package: "0.0.42.1")
    running.check_profiler(None)


def test_traces_of_gpus_and_tpus() -> None:
    """Catches a device that only its plane names, an instruction that only its text names, and loops taken for work."""
    gpu: dict[str, Line] = {"Stream #1": [("volta_sgemm", 0, 4000, {"hlo_op": "dot.1"})], "Steps": [("5", 0, 9000, {})]}
    tpu: dict[str, Line] = {
        "XLA Ops": [("%while.1 = (s32[]) while(%t)", 0, 9000, {}), ("%fft.1 = f32[8] fusion(%x)", 1000, 3000, {})],
        "XLA Modules": [("jit_run", 0, 9000, {})],
    }
    host: dict[str, Line] = {"python": [("print", 0, 99, {})]}
    data = space(**{"/device:GPU:3": gpu, "/device:TPU:1": tpu, "/host:CPU": host})
    events = set(read(data).events)
    assert events == {Event(3, "dot.1", 0, 4000), Event(1, "while.1", 0, 9000), Event(1, "fft.1", 1000, 4000)}
    track, _ = tracks(read(data), {**OPS, "while.1": None})
    assert (track.device, track.slices) == (1, (Slice(0, 1000, 0, IDLE), Slice(1000, 4000, 0, "fft")))
    assert tracks(read(data), {"while.1": None})[0].slices[-1] == (1000, 4000, None, "other"), "not in the program"
    with pytest.raises(ValueError, match="no instruction of a device"):
        tracks(read(space(host={"python": [mark("print", 0, 1)]})), OPS)


def test_a_run_and_its_trace(tmp_path: Path) -> None:
    """Catches an instruction that is missing in the trace or in the text, and parts that do not sum to the run."""
    plan = mf.plan((64, 6), mesh=mesh((8,)), method="cooley-tukey")
    compiled, x = prepared(plan, plan.mesh)
    told: list[None] = []
    record(compiled, x, 2, tmp_path, lambda: told.append(None))
    text, trace = program_of(compiled), load(newest(tmp_path))
    ops = ops_of(text)
    assert len(trace.runs) == len(told) == 2
    seen = Counter(event.op for event in trace.events if event.begin >= trace.runs[0])
    assert set(seen) <= set(ops)
    assert min(event.begin for event in trace.events) < trace.runs[0], "a first run warms up, and does not count"
    for instruction, times in executed(text):
        if ops[instruction.name] is not None:
            assert seen[instruction.name] >= 2 * 8 * times, instruction.name
    parts = [one.name for one in every_collective(text) if seen[one.name] > 2 * 8 * one.times]
    assert parts, "no message was taken apart by its waits: XLA calls them otherwise"
    found = measured(tracks(trace, ops), [step.name(layout) for step, layout in plan.walk.pairs])
    assert found.devices == tuple(range(8)) and len(found.walls) == 2 and found.known == "measured"
    for device in range(8):
        assert sum(part.by_device[device] for part in found.parts) == pytest.approx(found.wall, rel=1e-9)
    assert {part.kind for part in found.parts} <= {op.kind for op in ops.values() if op} | {IDLE}
    assert list(tmp_path.glob("plugins/profile/*/perfetto_trace.json.gz"))
    with pytest.raises(FileNotFoundError, match="holds no trace"):
        newest(tmp_path / "plugins")
