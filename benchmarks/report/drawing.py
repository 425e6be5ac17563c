"""Drawings: matplotlib's figures as SVG that can stand inside a page.

Text stays text, in the page's own font; colours that were named as variables of the page's style (`palette`) become
those; what names the program, the date or another address is taken out. The same rows give the same bytes.

A figure is as wide as a phone, so that a point of matplotlib is about a pixel there.
"""

import contextlib
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from meshfft.extras import need

from .palette import INK, LINE, PAPER, SERIES, SOFT

INCHES = 4.2  # the width of a figure
PURPOSE = "drawing the report"
LETTERS = 48  # of a name that fit above a line
VARIABLES = (INK, SOFT, LINE, PAPER, *SERIES)
NAMES = {variable: f"#0a0b{place:02x}" for place, variable in enumerate(VARIABLES)}  # what matplotlib is told instead
BACK = {name: variable for variable, name in NAMES.items()}
DROPPED = ("metadata", "style", "clipPath")  # nothing is drawn beyond its axes, so nothing has to be cut off
NAMELESS = {"Creator": None, "Date": None, "Format": None, "Type": None}
STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": NAMES[INK],
    "axes.labelcolor": NAMES[INK],
    "axes.edgecolor": NAMES[SOFT],
    "xtick.color": NAMES[SOFT],
    "ytick.color": NAMES[SOFT],
    "xtick.labelcolor": NAMES[INK],
    "ytick.labelcolor": NAMES[INK],
    "grid.color": NAMES[LINE],
}


def drawn(draw: Callable[[Any], None], height: float, salt: str) -> str:
    """A figure as SVG.

    Args:
        draw: is given the empty figure.
        height: in inches.
        salt: something that no other figure of the page has, so that names inside the two differ.

    Raises:
        ImportError: matplotlib is missing.
    """
    text = io.StringIO()
    with _styled(salt):
        figure = need("matplotlib.figure", PURPOSE).Figure((INCHES, height), layout="constrained")
        draw(figure)
        figure.savefig(text, format="svg", metadata=NAMELESS)
    return _inline(text.getvalue())


def colour(variable: str) -> str:
    """What matplotlib is to be told for a colour of `palette`."""
    return NAMES[variable]


def plain_ticks(axis: Any, values: Sequence[float], words: Callable[[float], str], most: int = 6) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, or fewer, in words; none between."""
    matplotlib = need("matplotlib.ticker", PURPOSE)
    ticks = nice(min(values), max(values), most)
    axis.set_major_locator(matplotlib.FixedLocator(ticks))
    axis.set_major_formatter(matplotlib.FixedFormatter([words(tick) for tick in ticks]))
    axis.set_minor_locator(matplotlib.NullLocator())


def nice(low: float, high: float, most: int) -> list[float]:
    """Round numbers from a little below some values to a little above, at most so many."""
    exponents = range(-40, 41)
    for steps, every in ((("1", "2", "5"), 1), (("1", "3"), 1), (("1",), 1), (("1",), 2), (("1",), 4), (("1",), 8)):
        found = [float(f"{step}e{ten}") for ten in exponents if ten % every == 0 for step in steps]
        found = [value for value in found if low / 1.5 <= value <= 1.5 * high]
        if len(found) <= most:
            break
    return found or [low]


def spaced(places: Sequence[float], least: float) -> list[float]:
    """Places in the same order, moved apart where they are nearer than `least`; their mean stays."""
    order = sorted(range(len(places)), key=lambda j: places[j])
    found = list(places)
    for _ in range(200):
        for low, high in itertools.pairwise(order):
            lack = least - (found[high] - found[low])
            if lack > 1e-9:
                found[low], found[high] = found[low] - lack / 2, found[high] + lack / 2
    return found


def named(spot: Any, x: float, y: float, text: str, **look: Any) -> None:
    """A name above a line of a figure whose lines have names instead of ticks; it hides the grid behind it."""
    words = text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
    behind = {"facecolor": colour(PAPER), "edgecolor": "none", "pad": 0.6}
    spot.text(x, y, words, va="bottom", fontsize=9.5, bbox=behind, **look)


@contextlib.contextmanager
def _styled(salt: str) -> Iterator[None]:
    """matplotlib's own style, not the user's, and this one's on top."""
    matplotlib, style = need("matplotlib", PURPOSE), need("matplotlib.style", PURPOSE)
    with style.context("default"), matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # the page's font may have it
        yield


def _inline(text: str) -> str:
    """The drawing without its head, its addresses and its names; colours as variables."""
    root = ElementTree.fromstring(text)
    for part in root.iter():
        part.tag = part.tag.split("}")[-1]
        for name, value in list(part.attrib.items()):
            del part.attrib[name]
            if name != "clip-path" and (name != "id" or part.tag != "g"):
                part.attrib[name.split("}")[-1]] = _recoloured(value)
    for parent in root.iter():
        for child in [child for child in parent if child.tag in DROPPED or (child.tag == "defs" and not len(child))]:
            parent.remove(child)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "class": "chart"}
    return ElementTree.tostring(root, encoding="unicode")


def _recoloured(value: str) -> str:
    value = re.sub(r"#0a0b[0-9a-f]{2}", lambda match: BACK.get(match[0], match[0]), value)
    return re.sub(r"font: *([\d.]+px)[^;]*", r"font-size: \1", re.sub(r"font-family:[^;]*;?", "", value))
