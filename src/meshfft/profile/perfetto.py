"""The shared-out time of every device as a trace of its own: a row for each, the steps, and under them the kinds.

What jax.profiler leaves shows threads or streams, and instructions by the compiler's names; this shows the walk. It is
in the Trace Event Format, which Perfetto opens: times in microseconds, a slice nested in another lies within it.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from .breakdown import START
from .trace import Track

NAME = "steps.json.gz"
MICRO = 1e-6  # microseconds of a picosecond


def save(folder: Path, tracks: Sequence[Track], steps: Sequence[str]) -> Path:
    """Writes the trace of some runs into a folder; returns the file."""
    events = [*_titles(tracks), *(event for track in tracks for event in _slices(track, steps))]
    path = folder / NAME
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def _titles(tracks: Iterable[Track]) -> Iterator[dict[str, Any]]:
    for device in sorted({track.device for track in tracks}):
        yield {"ph": "M", "name": "process_name", "pid": device, "args": {"name": f"device {device}"}}


def _slices(track: Track, steps: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A slice for each stretch of a step, and within it one for each kind."""
    for step, group in groupby(track.slices, key=lambda one: one.step):
        inside = list(group)
        name = START if step is None else f"{step + 1}. {steps[step]}"
        yield _slice(name, inside[0].begin, inside[-1].end, track)
        for one in inside:
            yield _slice(one.kind, one.begin, one.end, track)


def _slice(name: str, begin: int, end: int, track: Track) -> dict[str, Any]:
    times = {"ts": begin * MICRO, "dur": (end - begin) * MICRO}
    return {"ph": "X", "name": name, **times, "pid": track.device, "tid": 0, "args": {"run": track.run}}
