"""Drawings: matplotlib figures as images inside a page, and the axes that several of them share."""

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

from meshfft.extras import need
from meshfft.plans.picture import COLOURS

MARKS = "osD^vP*X"
STYLE = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "meshfft", "axes.axisbelow": True}
PURPOSE = "a report"


def drawn(draw: Callable[[Any], None], height: float, width: float = 8.0) -> str:
    """A figure as a data URI of SVG; the same figure gives the same text.

    Args:
        draw: is given the empty figure.
        height, width: in inches.

    Raises:
        ImportError: matplotlib is missing.
    """
    matplotlib, buffer = need("matplotlib", PURPOSE), io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure = need("matplotlib.figure", PURPOSE).Figure((width, height), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def against_devices(spot: Any, counts: Sequence[int], what: str = "devices") -> None:
    """Both axes logarithmic: seconds against so many devices, dashed lines ideal."""
    logarithmic(spot, "xy")
    spot.set(xlabel=f"{what} (dashed: ideal)", ylabel="seconds")
    spot.set_xticks(list(counts), [str(count) for count in counts])
    spot.grid(alpha=0.3)
    spot.legend(frameon=False, fontsize="small")


def logarithmic(spot: Any, axes: str) -> None:
    """Axes "x", "y" or "xy" logarithmic, their numbers as plain text, since mathematics is not parsed (`STYLE`)."""
    for name in axes:
        getattr(spot, f"set_{name}scale")("log")
        getattr(spot, f"{name}axis").set_major_formatter("{x:g}")
    spot.minorticks_off()


def stacked(figure: Any, names: Sequence[str], parts: dict[str, Sequence[float]], what: str) -> None:
    """A bar for each name, from the top, stacked of parts."""
    spot, ends = figure.subplots(), [0.0] * len(names)
    for (label, widths), colour in zip(parts.items(), COLOURS, strict=False):
        spot.barh(range(len(names)), widths, 0.6, left=ends, label=label, color=colour)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    spot.set_yticks(range(len(names)), names)
    spot.set(xlabel=what, ylim=(len(names) - 0.4, -0.6))
    figure.legend(loc="outside lower center", ncols=len(parts), frameon=False, fontsize="small")
