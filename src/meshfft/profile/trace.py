"""What jax.profiler left, read: which instruction ran when on which device, and how one run's time is shared out.

A run begins with its first instruction on any device and ends with its last on any, so every device's slices of a run
add up to the same wall time. Times are whole picoseconds.

What the parts of a trace are, by platform:

- CPU. Each event names its instruction and device; threads are shared by all devices, so lines are threads and say
  nothing. Devices share the cores: an instruction counts while it is begun and not ended, also while its thread waits
  for a core. In a collective a thread waits for the others to come (XLA's "Wait: pending_threads"): that is idle, what
  is left is the exchange. So idle is the time between instructions, and waiting for other devices.
- GPU: a plane a device, a line a stream, events with the name of their instruction. TPU: a plane a device, a line "XLA
  Ops", events called by the text of their instruction. Neither tells waiting for the others from sending: a collective
  has both, and idle is the time between instructions.
"""

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jax.profiler import ProfileData

from ..errors import check
from .kinds import SENT, Op
from .slices import Slice, busy, shared, without

RUN = "meshfft run"  # what `running` calls a run in the trace
ENDS = "end: "  # of an instruction; it tells on which thread
WAITS = "Wait: pending_threads"
LINES = ("XLA Ops", "Async XLA Ops")
UNKNOWN = Op(None, "other")

_TEXT = re.compile(r"%?([\w.\-]+)")
_PLANE = re.compile(r"/device:\w+:(\d+)")


class Event(NamedTuple):
    """An instruction at work, or a part of that."""

    device: int
    op: str
    begin: int
    end: int


class Trace(NamedTuple):
    """Events, and when runs begin; without any, all is one run."""

    events: tuple[Event, ...]
    runs: tuple[int, ...]


class Track(NamedTuple):
    """A device's time in one run, shared out, and how long collectives are hidden under other work, by kind."""

    run: int
    device: int
    slices: tuple[Slice, ...]
    hidden: dict[str, int]

    @property
    def length(self) -> int:
        """The wall time of the run."""
        return self.slices[-1].end - self.slices[0].begin


def newest(folder: Path) -> Path:
    """The newest trace in a folder that jax.profiler wrote to."""
    files = sorted(folder.glob("plugins/profile/*/*.xplane.pb"), key=lambda file: file.stat().st_mtime_ns)
    check(bool(files), f"{folder} holds no trace of jax.profiler: run one into it", FileNotFoundError)
    return files[-1]


def load(file: Path) -> Trace:
    """The events of instructions in a file."""
    return read(ProfileData.from_file(str(file)))


def read(data: ProfileData) -> Trace:
    """The events of instructions in a trace."""
    lines = [_Line(plane.name, line.name, tuple(_noted(line))) for plane in data.planes for line in plane.lines]
    runs = sorted(note.begin for line in lines for note in line.notes if note.name == RUN)
    works = [work for number, line in enumerate(lines) for work in _works(line, number)]
    later = _Later(lines, works)
    events = [event for work in works for event in _events(work, later.end(work))]
    return Trace(tuple(sorted(events, key=lambda event: event.begin)), tuple(runs))


def tracks(trace: Trace, ops: Mapping[str, Op | None]) -> list[Track]:
    """Every device's time in every run, shared out among steps and kinds; instructions not in `ops` are "other".

    Raises:
        ValueError: no instruction ran.
    """
    spans: dict[int, dict[int, list[Slice]]] = defaultdict(lambda: defaultdict(list))
    for event in trace.events:
        run = bisect.bisect_right(trace.runs, event.begin) - 1 if trace.runs else 0
        if run >= 0 and (op := ops.get(event.op, UNKNOWN)) is not None:
            spans[run][event.device].append(Slice(event.begin, event.end, *op))
    check(bool(spans), "the trace holds no instruction of a device: profile a run that is not empty")
    devices = sorted({device for there in spans.values() for device in there})
    return [_track(run, device, spans[run]) for run in sorted(spans) for device in devices]


def _track(run: int, device: int, spans: Mapping[int, Sequence[Slice]]) -> Track:
    """A device's time from the first instruction of any device to the last."""
    everything = [span for there in spans.values() for span in there]
    begin, end = min(span.begin for span in everything), max(span.end for span in everything)
    mine = list(spans.get(device, ()))
    slices = tuple(shared(mine, begin, end))
    return Track(run, device, slices, {kind: _hidden(mine, slices, kind) for kind in SENT.values()})


def _hidden(spans: Iterable[Slice], slices: Iterable[Slice], kind: str) -> int:
    """How long spans of a kind last beyond what they got."""
    return busy(span for span in spans if span.kind == kind) - busy(part for part in slices if part.kind == kind)


class _Note(NamedTuple):
    """An event as it stands in the trace."""

    name: str
    begin: int
    end: int
    stats: dict[str, Any]


class _Line(NamedTuple):
    """A line of the trace: of its plane, by name, with its events."""

    plane: str
    name: str
    notes: tuple[_Note, ...]


class _Work(NamedTuple):
    """An instruction's event, the number of its line, and the waits on that line while it lasts."""

    device: int
    op: str
    note: _Note
    line: int
    waits: Sequence[tuple[int, int]]


class _Later:
    """When instructions end that other threads finish.

    The thread that finishes one says so, but first it goes on with what needs the result: so the end is where it says
    so, or where it begins with the next instruction of the device.
    """

    def __init__(self, lines: Sequence[_Line], works: Iterable[_Work]) -> None:
        self.said = {
            note.stats["_c"]: (note.begin, number)
            for number, line in enumerate(lines)
            for note in line.notes
            if note.name.startswith(ENDS) and "_c" in note.stats
        }
        self.begins: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for work in sorted(works, key=lambda work: work.note.begin):
            self.begins[work.line, work.device].append(work.note.begin)

    def end(self, work: _Work) -> int:
        said, line = self.said.get(work.note.stats.get("_p"), (0, 0))
        begins = self.begins[line, work.device]
        after = begins[bisect.bisect_left(begins, work.note.end) :]
        return max(work.note.end, min([said, *after[:1]]))


def _noted(line: Any) -> Iterator[_Note]:
    for event in line.events:
        begin = round(event.start_ns * 1000)
        yield _Note(event.name, begin, begin + round(event.duration_ns * 1000), dict(event.stats))


def _works(line: _Line, number: int) -> Iterator[_Work]:
    """The instructions of a line."""
    waits = sorted((note.begin, note.end) for note in line.notes if note.name.startswith(WAITS))
    for note in line.notes:
        op, device = _op(note, line.name), _device(note, line.plane)
        if op is not None and device is not None:
            near = waits[bisect.bisect_left(waits, (note.begin,)) : bisect.bisect_left(waits, (note.end,))]
            yield _Work(device, op, note, number, near)


def _events(work: _Work, end: int) -> Iterator[Event]:
    """An instruction without the waits in it, and what other threads do of it later."""
    for piece in without(Slice(work.note.begin, work.note.end, None, ""), work.waits):
        yield Event(work.device, work.op, piece.begin, piece.end)
    if end > work.note.end:
        yield Event(work.device, work.op, work.note.end, end)


def _op(note: _Note, line: str) -> str | None:
    """The instruction an event is of, where it is of one."""
    text = _TEXT.match(note.name) if line in LINES else None
    named = text[1] if text else None
    return note.stats.get("hlo_op") or named


def _device(note: _Note, plane: str) -> int | None:
    """The device an event is of, where it is of one."""
    named = _PLANE.search(plane)
    return note.stats.get("device_ordinal", int(named[1]) if named else None)
