"""A breakdown drawn: a bar for each step, stacked of its kinds of work, as long as its share of the time of a run.

Nothing is computed here, and the axis says whether seconds are measured or modelled.
"""

import textwrap
from pathlib import Path
from typing import Any

from ..atomic import replacing
from ..extras import need
from ..files.picture import check_picture
from .breakdown import Breakdown
from .words import unit_for

COLOURS = {
    "products": "#51127c",
    "fft": "#8f4bb8",
    "permute": "#e8743b",
    "all-to-all": "#f6b26b",
    "copies": "#3c7fb1",
    "other": "#9cc3de",
    "idle": "#d9d9d9",
}
WORDS = 30  # characters of a step's name in a line


def save_breakdown(path: Path, breakdown: Breakdown, title: str) -> None:
    """Draws a breakdown, in place of what was there.

    Raises:
        ImportError, ValueError, OSError: as `check_picture`.
    """
    check_picture(path, overwrite=True)
    height = 1.9 + 0.55 * len(breakdown.places)
    figure = need("matplotlib.figure", "drawing a picture").Figure((7.6, height), layout="constrained", dpi=150)
    _draw(figure, breakdown, title)
    with replacing(path, overwrite=True) as temporary:
        figure.savefig(temporary, format=path.suffix[1:])


def _draw(figure: Any, breakdown: Breakdown, title: str) -> None:
    spot, places = figure.subplots(), breakdown.places
    name, size = unit_for(breakdown.wall)
    ends = [0.0] * len(places)
    for kind in breakdown.kinds:
        widths = [breakdown.seconds(step, kind) / size for step in places]
        spot.barh(range(len(places)), widths, 0.62, left=ends, color=COLOURS[kind], label=kind)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for at, end in enumerate(ends):
        spot.text(
            end, at, f" {end:.3g} {name}, {100 * end * size / breakdown.wall:.0f} %", va="center", fontsize="small"
        )
    spot.set_yticks(range(len(places)), [textwrap.fill(breakdown.name(step), WORDS) for step in places])
    spot.set(
        xlim=(0, 1.25 * max(ends)), xlabel=f"{name} of a run of {breakdown.wall / size:.3g} {name}, {breakdown.known}"
    )
    spot.invert_yaxis()
    figure.suptitle(textwrap.fill(title, 80), fontsize="medium")
    figure.legend(loc="outside lower center", ncols=len(breakdown.kinds), frameon=False)
