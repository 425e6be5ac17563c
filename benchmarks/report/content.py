"""What a page is made of: sections of figures, tables and words. Plain values, which `page` writes as HTML.

Invariant: every text here is data, and escaped where it is written; only `drawing` is markup, made by `drawing` and
`panels` themselves, which escape what they are given.
"""

from collections.abc import Sequence
from typing import NamedTuple

MEASURED, MODELLED = "measured", "modelled"


class Figure(NamedTuple):
    """A drawing.

    Attributes:
        title: above it.
        alt: what it shows, for those who do not see it.
        drawing: SVG.
        known: how its numbers are known: MEASURED, MODELLED, or both in words; empty where there are none.
        note: below it.
        code: the command that made its rows; may be empty.
        layout: of a walk's array; may be empty.
    """

    title: str
    alt: str
    drawing: str
    known: str = ""
    note: str = ""
    code: str = ""
    layout: str = ""


class Table(NamedTuple):
    """Rows of words and numbers, the first column of words.

    Attributes:
        title: above it.
        heads: of the columns.
        rows: cells.
        known: as of a figure.
        note: below it.
        code: as of a figure.
        folded: shown only when asked for.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    known: str = ""
    note: str = ""
    code: str = ""
    folded: bool = False


class Section(NamedTuple):
    """A chapter of the page.

    Attributes:
        name: of its anchor, and in the line of links.
        title: above it.
        intro: what is to be seen.
        figures, tables: its parts.
        panels: small drawings that are read one after the other, before the figures.
        text: preformatted, as a plan prints itself.
    """

    name: str
    title: str
    intro: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    panels: Sequence[Figure] = ()
    text: str = ""
