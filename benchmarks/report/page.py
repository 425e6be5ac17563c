"""The page: rows and a plan as one HTML text that needs nothing else, no network, no script.

    sections in a fixed order, each only where there are rows for it; then what was not understood

The same rows and plan give the same text: nothing here knows the time or the machine.
"""

from collections.abc import Sequence

from meshfft.plans.plan import Plan

from . import accuracy, breakdowns, models, others, peers, scaling, walks
from .content import Section
from .kinds import KINDS, Rows, sort
from .reading import Line
from .replanned import plan_of_rows
from .runs import origins
from .templating import rendered

CHARTS = (scaling, peers, breakdowns, accuracy, models)
TOLD = 5  # places of rows that are not understood


def sections(rows: Rows, plan: Plan | None) -> list[Section]:
    """The chapters for which there is something."""
    made = plan or plan_of_rows(rows)
    found = [walks.section(made) if made is not None else None]
    found += [chapter.section(rows) for chapter in CHARTS]
    return [section for section in (*found, others.section(rows)) if section is not None]


def page(lines: Sequence[Line], plan: Plan | None, version: str) -> str:
    """The whole page.

    Args:
        lines: rows of any kind, as `reading.read` gives them.
        plan: whose walk to draw; by default that of the first row that tells one.
        version: of meshfft, which makes the page.

    Raises:
        ImportError: matplotlib or jinja2 is missing.
        ValueError: the plan is none that can be drawn.
    """
    rows = sort(lines)
    return rendered(
        "page.html",
        sections=sections(rows, plan),
        origins=origins(lines) if lines else None,
        counts=counts(rows),
        unknown=unknown_words(rows.unknown),
        version=version,
    )


def counts(rows: Rows) -> dict[str, int]:
    """How many rows of each kind there are, in words, of those that are understood."""
    return {kind.words: len(found) for kind in KINDS if (found := getattr(rows, kind.name))}


def unknown_words(unknown: Sequence[Line]) -> str:
    """How many rows were not understood, and where the first of them stand; empty where all were."""
    if not unknown:
        return ""
    places = ", ".join(line.place for line in unknown[:TOLD]) + " ..." * (len(unknown) > TOLD)
    rows = "1 row was" if len(unknown) == 1 else f"{len(unknown)} rows were"
    return f"{rows} not understood and left out: {places}."
