"""The page: sections of figures and tables as one HTML text, without network or script; figures are matplotlib's SVG.

Every text is data and is escaped here; only the images are markup.
"""

import base64
import io
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from meshfft.extras import need

MEASURED, MODELLED = "measured", "modelled"
MARKS = "osD^vP*X"
LOOK = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "meshfft", "axes.axisbelow": True}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #222 }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc } nav a { margin-right: 1rem }
figure { margin: 2rem 0 } img { max-width: 100% } figcaption, .note { color: #555; font-size: .85rem }
table { border-collapse: collapse; font-size: .85rem } .wide { overflow-x: auto }
td, th { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid #eee; white-space: nowrap }
td:first-child, th:first-child { text-align: left } summary { cursor: pointer; margin: .8rem 0 }
.known { font-weight: bold } .modelled { color: #a34a00 } pre { overflow-x: auto; background: #f6f6f6; padding: .6rem }
code { overflow-wrap: anywhere }
"""


class Figure(NamedTuple):
    """A drawing: its title, its image (a data URI), how its numbers are known, what to note, what made its rows."""

    title: str
    image: str
    known: str = ""
    note: str = ""
    command: str = ""


class Table(NamedTuple):
    """Cells under heads; the other fields as of a figure."""

    title: str
    heads: Sequence[str]
    cells: Sequence[Sequence[str]]
    known: str = ""
    note: str = ""
    command: str = ""


class Section(NamedTuple):
    """A chapter: its name in links, its title, what is to be seen, and its parts. `text` is a plan as it prints."""

    name: str
    title: str
    intro: str
    parts: Sequence[Figure | Table]
    text: str = ""


def page(sections: Sequence[Section], notes: Sequence[str], version: str) -> str:
    links = "".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one in sections)
    body = "".join(map(section_html, sections)) + "".join(f'<p class="note">{escape(line)}</p>' for line in notes)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>meshfft: a report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>meshfft {escape(version)}: a report</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def section_html(one: Section) -> str:
    text = f"<pre>{escape(one.text)}</pre>" if one.text else ""
    parts = "".join(_figure(part) if isinstance(part, Figure) else _table(part) for part in one.parts)
    return f'<section id="{one.name}"><h2>{escape(one.title)}</h2><p>{escape(one.intro)}</p>{text}{parts}</section>'


def drawn(draw: Callable[[Any], None], height: float, width: float = 8.0) -> str:
    """A figure of some inches, which `draw` is given empty, as a data URI of SVG; the same gives the same text."""
    matplotlib, buffer = need("matplotlib", "a report"), io.BytesIO()
    with matplotlib.rc_context(LOOK):
        figure = need("matplotlib.figure", "a report").Figure((width, height), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def logarithmic(spot: Any, axes: str) -> None:
    """Axes "x", "y" or "xy" logarithmic, their numbers as plain text, since mathematics is not parsed (`LOOK`)."""
    for name in axes:
        getattr(spot, f"set_{name}scale")("log")
        getattr(spot, f"{name}axis").set_major_formatter("{x:g}")
    spot.minorticks_off()
    spot.grid(alpha=0.3)


def _figure(one: Figure) -> str:
    image = f'<img src="{one.image}" alt="{escape(one.title)}">'
    return f"<figure>{image}<figcaption>{escape(one.title)}. {_about(one)}</figcaption></figure>"


def _table(one: Table) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in one.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in one.cells)
    table = f'<div class="wide"><table><tr>{heads}</tr>{rows}</table></div>'
    return f'<details><summary>{escape(one.title)}</summary><p class="note">{_about(one)}</p>{table}</details>'


def _about(one: Figure | Table) -> str:
    look = "known modelled" if MODELLED in one.known else "known"
    known = f'<span class="{look}">{escape(one.known)}</span> ' if one.known else ""
    return f"{known}{escape(one.note)}" + (f" <code>{escape(one.command)}</code>" if one.command else "")
