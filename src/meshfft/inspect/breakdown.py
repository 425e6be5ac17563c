"""Where the time of a run goes: seconds of each device by step and by kind of work, and a figure of them.

sum over steps and kinds = seconds of the run, on every device
"""

import dataclasses
import textwrap
from typing import Any

import numpy as np

from ..extras import need
from .hlo import KINDS

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
COLOURS = ("#51127c", "#8f4bb8", "#e8743b", "#f6b26b", "#3c7fb1", "#9cc3de", "#d9d9d9")  # of KINDS


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """Where the time goes.

    Attributes:
        steps: "start" for what comes before the first step of the walk, then the steps, in words.
        devices: the numbers of the devices.
        walls: seconds of every run.
        seconds: of each device, step and kind in KINDS, in the mean over runs.
        hidden: of messages under other work, by kind, in the mean over runs and devices; `seconds` has none of it.
    """

    steps: tuple[str, ...]
    devices: tuple[int, ...]
    walls: tuple[float, ...]
    seconds: np.ndarray
    hidden: dict[str, float]

    @property
    def wall(self) -> float:
        """Seconds of a run, in the mean."""
        return sum(self.walls) / len(self.walls)

    @property
    def used(self) -> tuple[np.ndarray, np.ndarray]:
        """The steps and the kinds that take any time, as indices."""
        return np.flatnonzero(self.seconds.any((0, 2))), np.flatnonzero(self.seconds.any((0, 1)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        how = f"mean of {len(self.walls)} run{'s' * (len(self.walls) > 1)} under jax.profiler"
        whole = {"known": "measured", "how": how, "wall_seconds": self.wall, "runs": self.walls}
        parts = [self._part(int(j), int(k)) for j, k in np.argwhere(self.seconds.any(0))]
        return {**whole, "devices": self.devices, "hidden": self.hidden, "parts": parts}

    def _part(self, j: int, k: int) -> dict[str, Any]:
        spent, mean = self.seconds[:, j, k].tolist(), float(self.seconds[:, j, k].mean())
        step = {"step": j - 1 if j else None, "name": self.steps[j], "kind": KINDS[k]}
        return {**step, "seconds": mean, "share": mean / self.wall, "by_device": spent}


def unit_for(seconds: float) -> tuple[str, float]:
    """The largest unit in which a time is at least ten, and its seconds."""
    return next(((name, size) for name, size in UNITS.items() if seconds >= 10 * size), ("us", 1e-6))


def figure_of(found: Breakdown, title: str) -> Any:
    """A matplotlib figure with a bar for each step, stacked of its kinds of work, as long as its share of the run."""
    (unit, size), (steps, kinds) = unit_for(found.wall), found.used
    sides = (7.6, 1.9 + 0.55 * len(steps))
    figure = need("matplotlib.figure", "drawing a picture").Figure(sides, layout="constrained", dpi=150)
    spot, means, ends = figure.subplots(), found.seconds.mean(0)[steps] / size, np.zeros(len(steps))
    for k in kinds:
        bars = spot.barh(range(len(steps)), means[:, k], 0.62, left=ends, color=COLOURS[k], label=KINDS[k])
        ends = ends + means[:, k]
    shares = [f"{end:.4g} {unit}, {100 * end * size / found.wall:.0f} %" for end in ends]
    spot.bar_label(bars, shares, padding=3, fontsize="small")
    spot.set_yticks(range(len(steps)), [textwrap.fill(found.steps[j], 30) for j in steps])
    spot.set(xlim=(0, 1.3 * ends.max()), xlabel=f"{unit} of a run of {found.wall / size:.4g} {unit}, measured")
    spot.invert_yaxis()
    figure.suptitle(textwrap.fill(title, 80), fontsize="medium")
    figure.legend(loc="outside lower center", ncols=len(kinds), frameon=False)
    return figure
