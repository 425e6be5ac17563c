"""A breakdown: seconds of each device by step and by kind of work, which add up to the seconds of a run.

    sum over steps and kinds = wall

Measured, seconds are means over the runs, wall time on the device. Modelled, they are the compiler's cycles over the
clock, and for collectives the modelled seconds that the device waits for its links.
"""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from .kinds import KINDS
from .trace import Track

PICO = 1e-12
START = "start"


class Part(NamedTuple):
    """Seconds of one step (None: before the first) in one kind of work, on each device; modelled, the cycles too."""

    step: int | None
    kind: str
    by_device: tuple[float, ...]
    cycles: int | None = None

    @property
    def seconds(self) -> float:
        """The mean over devices."""
        return statistics.fmean(self.by_device)


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """Where the time goes.

    Attributes:
        steps: the steps of the walk, in words.
        parts: seconds by step and kind, of those that take any.
        devices: the devices, as `Part.by_device` has them; modelled, one that stands for all.
        walls: seconds of every run; modelled, of one.
        hidden: seconds of collectives under other work, by kind, in the mean; they are in no part.
        known: "measured" or "modelled".
        how: in words.
    """

    steps: tuple[str, ...]
    parts: tuple[Part, ...]
    devices: tuple[int, ...]
    walls: tuple[float, ...]
    hidden: dict[str, float]
    known: str
    how: str

    @property
    def wall(self) -> float:
        """Seconds of a run, in the mean."""
        return statistics.fmean(self.walls)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of work that take any time, in their order."""
        present = {part.kind for part in self.parts}
        return tuple(kind for kind in KINDS if kind in present)

    @property
    def places(self) -> tuple[int | None, ...]:
        """The steps that take any time, in their order."""
        present = {part.step for part in self.parts}
        return tuple(step for step in (None, *range(len(self.steps))) if step in present)

    def seconds(self, step: int | None, kind: str) -> float:
        """Of one step in one kind of work."""
        return sum(part.seconds for part in self.parts if (part.step, part.kind) == (step, kind))

    def of_kind(self, kind: str) -> tuple[float, ...]:
        """Seconds of one kind of work in all steps, on each device."""
        found = [part.by_device for part in self.parts if part.kind == kind]
        return tuple(map(sum, zip(*found, strict=True))) if found else (0.0,) * len(self.devices)

    def name(self, step: int | None) -> str:
        """A step in words, counted from one."""
        return START if step is None else f"{step + 1}. {self.steps[step]}"

    def to_dict(self) -> dict[str, Any]:
        """The breakdown as plain values, for JSON."""
        parts = [
            {"step": part.step, "name": self.name(part.step), "kind": part.kind, "seconds": part.seconds}
            | {"share": part.seconds / self.wall if self.wall else 0.0, "by_device": list(part.by_device)}
            | ({} if part.cycles is None else {"cycles": part.cycles})
            for part in self.parts
        ]
        return {
            "known": self.known,
            "how": self.how,
            "wall_seconds": self.wall,
            "runs": list(self.walls),
            "devices": list(self.devices),
            "hidden": self.hidden,
            "parts": parts,
        }


def measured(tracks: Sequence[Track], steps: Sequence[str]) -> Breakdown:
    """The breakdown of runs whose devices' time is shared out."""
    runs, devices = sorted({t.run for t in tracks}), sorted({t.device for t in tracks})
    spent: Counter[tuple[int, int | None, str]] = Counter()
    hidden: Counter[str] = Counter()
    for track in tracks:
        hidden.update(track.hidden)
        for begin, end, step, kind in track.slices:
            spent[track.device, step, kind] += end - begin
    walls = {track.run: track.length * PICO for track in tracks}
    return Breakdown(
        tuple(steps),
        tuple(
            Part(step, kind, tuple(spent[device, step, kind] * PICO / len(runs) for device in devices))
            for step, kind in ordered({key[1:] for key, many in spent.items() if many})
        ),
        tuple(devices),
        tuple(walls[run] for run in runs),
        {kind: many * PICO / len(tracks) for kind, many in hidden.items() if many},
        "measured",
        f"mean of {len(runs)} run{'s' * (len(runs) > 1)} under jax.profiler",
    )


def ordered(keys: set[tuple[int | None, str]]) -> list[tuple[int | None, str]]:
    """Steps and kinds, sorted: by step, by kind as in KINDS."""
    return sorted(keys, key=lambda key: (-1 if key[0] is None else key[0], KINDS.index(key[1])))
