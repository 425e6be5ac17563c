"""The engines that there are, in the order in which a search tries them; a folder for a kind of device adds its own."""

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
    """Adds a kind of engine, in front of those that run everywhere."""
    ENGINES.insert(0, kind)
    return kind


def offered(lines: Lines, site: Site) -> Iterator[Offer]:
    """Every engine that takes some of the dimensions, with these; in float64 by slices only those that slice."""
    sliced = site.dots[0].slices > 0
    for kind in ENGINES:
        if kind.slices == sliced:
            yield from kind.offers(lines, site)


def least(rows: int, points: float, nbytes: int, site: Site) -> list[Work]:
    """Lower bounds on the work of one dimension, of which the least holds: see Engine.least."""
    return [work for kind in ENGINES if (work := kind.least(rows, points, nbytes, site)) is not None]
