"""The registered engines, in search order."""

from collections.abc import Iterator
from typing import Any

from ..machine.work import Work
from .batches import Batched
from .engine import Engine, Lines, Offer, Site
from .sliced import Slices
from .stockham import Cached
from .xla import Xla

ENGINES: list[type[Engine[Any]]] = [Cached, Xla, Batched, Slices]


def register(kind: type[Engine[Any]]) -> type[Engine[Any]]:
    """Registers a kind of engine, before those that run everywhere."""
    ENGINES.insert(0, kind)
    return kind


def offered(lines: Lines, site: Site) -> Iterator[Offer]:
    """Every engine with the dimensions it takes; only slicing engines in float64 by slices."""
    sliced = site.dots[0].slices > 0
    for kind in ENGINES:
        if kind.slices == sliced and (kind.by_xla or not site.xla):
            yield from kind.offers(lines, site)


def least(rows: int, points: float, nbytes: int, site: Site) -> list[Work]:
    """Lower bounds on the work of one dimension; the lowest holds (Engine.least)."""
    return [work for kind in ENGINES if (work := kind.least(rows, points, nbytes, site)) is not None]
