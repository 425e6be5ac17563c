"""The page: sections of figures and tables as one HTML text, without network or script.

Every text is data and is escaped here; only the images, which matplotlib made, are markup.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

MEASURED, MODELLED = "measured", "modelled"
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
    """The whole page; `notes` are its last lines."""
    links = "".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one in sections)
    body = "".join(map(section_html, sections)) + "".join(f'<p class="note">{escape(line)}</p>' for line in notes)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>meshfft: a report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>meshfft {escape(version)}: a report</h1><nav>{links}</nav>{body}</body></html>\n"
    )


def section_html(one: Section) -> str:
    """A chapter as HTML."""
    text = f"<pre>{escape(one.text)}</pre>" if one.text else ""
    parts = "".join(_figure(part) if isinstance(part, Figure) else _table(part) for part in one.parts)
    return f'<section id="{one.name}"><h2>{escape(one.title)}</h2><p>{escape(one.intro)}</p>{text}{parts}</section>'


def _figure(one: Figure) -> str:
    image = f'<img src="{one.image}" alt="{escape(one.title)}">'
    return f"<figure>{image}<figcaption>{escape(one.title)}. {_about(one)}</figcaption></figure>"


def _table(one: Table) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in one.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in one.cells)
    table = f'<div class="wide"><table><tr>{heads}</tr>{rows}</table></div>'
    about = f'<p class="note">{_about(one)}</p>'
    return f"<details><summary>{escape(one.title)}</summary>{about}{table}</details>"


def _about(one: Figure | Table) -> str:
    """How it is known, what to note, and the command."""
    look = "known modelled" if MODELLED in one.known else "known"
    known = f'<span class="{look}">{escape(one.known)}</span> ' if one.known else ""
    return f"{known}{escape(one.note)}" + (f" <code>{escape(one.command)}</code>" if one.command else "")
