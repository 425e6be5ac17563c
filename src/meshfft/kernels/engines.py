"""The registered engines, of complex and of real lines, in search order."""

from collections.abc import Iterator
from typing import Any, TypeVar

from ..machine.work import Work
from .engine import Engine, Lines, Offer, RealEngine, RealOffer, Site
from .real import Products, XlaReal
from .sliced import Slices
from .stockham import Cached
from .xla import Batched, Xla

Kind = type[Engine[Any]] | type[RealEngine]
K = TypeVar("K", bound=Kind)
ENGINES: list[Kind] = [Cached, Xla, Batched, Slices, XlaReal, Products]


def register(kind: K) -> K:
    """Registers a kind of engine, before those that run everywhere."""
    ENGINES.insert(0, kind)
    return kind


def offered(lines: Lines, site: Site) -> Iterator[Offer]:
    """Every engine of complex lines with the dimensions it takes; only slicing engines in float64 by slices."""
    sliced = site.dots[0].slices > 0
    for kind in ENGINES:
        if issubclass(kind, Engine) and kind.slices == sliced and (kind.by_xla or not site.xla):
            yield from kind.offers(lines, site)


def offered_for_reals(lines: Lines, site: Site) -> Iterator[RealOffer]:
    for kind in ENGINES:
        if issubclass(kind, RealEngine):
            yield from kind.offers(lines, site)


def least(rows: int, points: float, nbytes: int, site: Site) -> list[Work]:
    """Lower bounds on the work of one dimension; the lowest holds (Engine.least)."""
    complex_kinds = (kind for kind in ENGINES if issubclass(kind, Engine))
    return [work for kind in complex_kinds if (work := kind.least(rows, points, nbytes, site)) is not None]
