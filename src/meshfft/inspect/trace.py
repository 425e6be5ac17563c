"""A run under jax.profiler: the time of each device, divided among steps and kinds of work.

    sum over steps and kinds = last end - first begin of any device, exactly: times are integers, in picoseconds

Time with several instructions at work belongs to the first of WORK: a message counts only while nothing hides it. Idle
time belongs to the step of the next instruction, or of the last one at the end.

On CPUs all devices share the threads, and waiting in a collective is idle. On a GPU or TPU waiting counts as sending.
"""

import dataclasses
import re
import textwrap
import warnings
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.profiler import ProfileData
from jax.sharding import Mesh, NamedSharding

from ..extras import installed, need
from ..layout.padded_array import padded
from ..plans.plan import Plan
from .aot import compile_plan
from .hlo import KINDS, SENT, Op, ops_of, program_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORK = ("products", "fft", "copies", "other", "all-to-all", "permute")  # each hides those after it
RUN, END, WAIT = "meshfft run", "end: ", "Wait: pending_threads"  # events: of a run, and XLA's on CPUs
PICO = 1e-12
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
COLOURS = ("#51127c", "#8f4bb8", "#e8743b", "#f6b26b", "#3c7fb1", "#9cc3de", "#d9d9d9")

_TEXT = re.compile(r"%?([\w.\-]+)")
_PLANE = re.compile(r"/device:\w+:(\d+)")


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """Seconds of a run by device, step and kind of work.

    Attributes:
        steps: names; the first is "start", before the walk.
        walls: seconds of every run.
        seconds: of each device, step and kind in KINDS, mean over runs.
        hidden: seconds of messages under other work, by kind, mean over runs and devices; not in `seconds`.
    """

    steps: tuple[str, ...]
    devices: tuple[int, ...]
    walls: tuple[float, ...]
    seconds: np.ndarray
    hidden: dict[str, float]

    @property
    def wall(self) -> float:
        return sum(self.walls) / len(self.walls)

    @property
    def used(self) -> tuple[np.ndarray, np.ndarray]:
        return np.flatnonzero(self.seconds.any((0, 2))), np.flatnonzero(self.seconds.any((0, 1)))

    def to_dict(self) -> dict[str, object]:
        how = f"mean of {len(self.walls)} run{'s' * (len(self.walls) > 1)} under jax.profiler"
        run = {"known": "measured", "how": how, "wall_seconds": self.wall, "runs": self.walls}
        parts = [self._part(int(j), int(k)) for j, k in np.argwhere(self.seconds.any(0))]
        return {**run, "devices": self.devices, "hidden": self.hidden, "parts": parts}

    def _part(self, j: int, k: int) -> dict[str, object]:
        spent, mean = self.seconds[:, j, k].tolist(), float(self.seconds[:, j, k].mean())
        step = {"step": j - 1 if j else None, "name": self.steps[j], "kind": KINDS[k]}
        return {**step, "seconds": mean, "share": mean / self.wall, "by_device": spent}


class Span(NamedTuple):
    begin: int
    end: int
    op: Op


class _Event(NamedTuple):
    """An event of the trace; an instruction has name, device, and the edges of its waits."""

    begin: int
    end: int
    line: int
    device: int | None
    instruction: str | None
    name: str
    stats: dict[str, object]
    waits: list[int]


def check_profiler(platforms: str | None) -> None:
    """Raises ImportError if jax.profiler would crash: JAX loads a libtpu of another version."""
    if not installed("libtpu") or "tpu" not in (platforms or "tpu"):
        return
    pins = (re.match(r"libtpu==([\d.]+)", line) for line in metadata.requires("jax") or ())
    wanted, have = next((pin[1] for pin in pins if pin), ""), metadata.version("libtpu")
    if not have.startswith(wanted):
        remedy = f"pip install 'libtpu=={wanted}*', or for CPU devices set JAX_PLATFORMS=cpu in the environment"
        raise ImportError(f"with libtpu {have} the profiler of this JAX would crash: {remedy}")


def profiled(plan: Plan, mesh: Mesh, runs: int, folder: Path, done: Callable[[], None]) -> Breakdown:
    compiled, sharding = compile_plan(plan, mesh), NamedSharding(mesh, plan.in_layout.spec)
    x = padded(jnp.ones(plan.in_layout.storage, plan.in_dtype, device=sharding), plan.in_layout, mesh)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # it slows the run
    with jax.profiler.trace(folder, create_perfetto_trace=True, profiler_options=options):
        jax.block_until_ready(compiled(x))
        for number in range(runs):
            with jax.profiler.StepTraceAnnotation(RUN, step_num=number):
                jax.block_until_ready(compiled(x))
            done()
    file = max(folder.glob("plugins/profile/*/*.xplane.pb"), key=lambda file: file.stat().st_mtime_ns)
    steps = [step.name(layout) for step, layout in plan.walk.pairs]
    return measured(ProfileData.from_file(str(file)), ops_of(program_of(compiled)), steps)


def measured(data: ProfileData, ops: Mapping[str, Op | None], steps: Sequence[str]) -> Breakdown:
    """An instruction not in `ops` is "other"."""
    runs = read(data, ops)
    if not runs:
        raise ValueError("the trace holds no instruction of a device: profile a run that is not empty")
    devices, walls, hidden = sorted({device for run in runs for device in run}), list[float](), Counter[str]()
    spent = np.zeros((len(devices), 1 + len(steps), len(KINDS)), np.int64)
    for run in runs:
        edges = [edge for spans in run.values() for span in spans for edge in span[:2]]
        walls.append((max(edges) - min(edges)) * PICO)
        for index, device in enumerate(devices):
            shared = share(run[device], min(edges), max(edges))
            hidden += _hidden(run[device], shared)
            for op, length in shared.items():
                spent[index, op.step, KINDS.index(op.kind)] += length
    mean = {kind: length * PICO / len(runs) / len(devices) for kind, length in hidden.items()}
    names = ("start", *(f"{number}. {step}" for number, step in enumerate(steps, 1)))
    return Breakdown(names, tuple(devices), tuple(walls), spent * (PICO / len(runs)), mean)


def share(spans: Sequence[Span], begin: int, end: int) -> Counter[Op]:
    cuts = sorted({begin, end, *(edge for span in spans for edge in span[:2])})
    owners: list[Op | None] = [None] * (len(cuts) - 1)
    for span in sorted(spans, key=lambda span: (WORK.index(span.op.kind), span.op.step), reverse=True):
        first, last = (bisect_left(cuts, edge) for edge in span[:2])
        owners[first:last] = [span.op] * (last - first)
    spent, step = Counter[Op](), next((op.step for op in reversed(owners) if op), 0)
    for owner, left, right in zip(reversed(owners), cuts[-2::-1], cuts[:0:-1], strict=True):
        step = owner.step if owner else step
        spent[owner or Op(step, "idle")] += right - left
    return spent


def _hidden(spans: Sequence[Span], shared: Counter[Op]) -> Counter[str]:
    hidden = Counter[str]()
    for kind in SENT.values():
        own = [span for span in spans if span.op.kind == kind]
        alone = share(own, own[0].begin, own[0].end) if own else Counter[Op]()
        hidden[kind] = sum(alone[op] - shared[op] for op in {*alone, *shared} if op.kind == kind)
    return hidden


def read(data: ProfileData, ops: Mapping[str, Op | None]) -> list[dict[int, list[Span]]]:
    runs, works = [defaultdict[int, list[Span]](list)], []
    ends, begins, latest = dict[object, _Event](), defaultdict[object, list[int]](list), dict[int, _Event]()
    with warnings.catch_warnings():  # a warning as an error ends the process here
        warnings.simplefilter("ignore", DeprecationWarning)
        events = sorted(_events(data), key=lambda event: (event.begin, event.name != RUN))
    for event in events:
        if event.name == RUN:
            runs.append(defaultdict(list))
        elif event.name.startswith(END):
            ends[event.stats.get("_c")] = event
        elif event.name.startswith(WAIT) and event.line in latest and event.begin < latest[event.line].end:
            latest[event.line].waits.extend((event.begin, event.end))
        elif event.instruction and event.device is not None:
            begins[event.line, event.device].append(event.begin)
            latest[event.line] = event
            works.append((runs[-1][event.device], event))
    for spans, event in works:
        if op := ops.get(event.instruction or "", Op(0, "other")):
            edges = [event.begin, *event.waits, _end(event, ends, begins)]
            spans += [Span(*pair, op) for pair in zip(edges[::2], edges[1::2], strict=True)]
    return [run for run in runs[len(runs) > 1 :] if any(run.values())]


def _end(event: _Event, ends: Mapping[object, _Event], begins: Mapping[object, list[int]]) -> int:
    """The thread's mark that ends an instruction, or the begin of the device's next one if earlier."""
    mark = ends.get(event.stats.get("_p", ""))
    if mark is None:
        return event.end
    later = begins[mark.line, event.device]
    return max(event.end, min([mark.begin, *later[bisect_left(later, event.end) :][:1]]))


def _events(data: ProfileData) -> Iterator[_Event]:
    for number, (plane, line) in enumerate([(p.name, line) for p in data.planes for line in p.lines]):
        own = _PLANE.search(plane)
        for event in line.events:
            stats, text = dict(event.stats), _TEXT.match(event.name) if line.name.endswith("XLA Ops") else None
            device = stats.get("device_ordinal", int(own[1]) if own else None)
            begin, instruction = round(event.start_ns * 1000), stats.get("hlo_op") or (text[1] if text else None)
            end = begin + round(event.duration_ns * 1000)
            yield _Event(begin, end, number, device, instruction, event.name, stats, [])


def unit_for(seconds: float) -> tuple[str, float]:
    return next(((name, size) for name, size in UNITS.items() if seconds >= 10 * size), ("us", 1e-6))


def figure_of(breakdown: Breakdown, title: str) -> "Figure":
    (unit, size), (steps, kinds) = unit_for(breakdown.wall), breakdown.used
    sides = (7.6, 1.9 + 0.55 * len(steps))
    figure = need("matplotlib.figure", "drawing a picture").Figure(sides, layout="constrained", dpi=150)
    spot, means, ends = figure.subplots(), breakdown.seconds.mean(0)[steps] / size, np.zeros(len(steps))
    for k in kinds:
        bars = spot.barh(range(len(steps)), means[:, k], 0.62, left=ends, color=COLOURS[k], label=KINDS[k])
        ends = ends + means[:, k]
    shares = [f"{end:.4g} {unit}, {100 * end * size / breakdown.wall:.0f} %" for end in ends]
    spot.bar_label(bars, shares, padding=3, fontsize="small")
    spot.set_yticks(range(len(steps)), [textwrap.fill(breakdown.steps[j], 30) for j in steps])
    spot.set(xlim=(0, 1.3 * ends.max()), xlabel=f"{unit} of a run of {breakdown.wall / size:.4g} {unit}, measured")
    spot.invert_yaxis()
    figure.suptitle(textwrap.fill(title, 80), fontsize="medium")
    figure.legend(loc="outside lower center", ncols=len(kinds), frameon=False)
    return figure
