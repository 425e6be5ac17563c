"""The registered engines, in search order."""

from collections.abc import Iterator
from typing import TypeVar

from ..machine.machine import Work
from .base import Lines, LocalEngine, Offer, Site
from .real import Products, XlaReal
from .sliced import SlicedFFT
from .stockham import Cached
from .xla import Batched, Xla

K = TypeVar("K", bound=type[LocalEngine])
ENGINES: list[type[LocalEngine]] = [Cached, Xla, Batched, SlicedFFT, XlaReal, Products]


def register(kind: K) -> K:
    """Puts an engine before those that run everywhere."""
    ENGINES.insert(0, kind)
    return kind


def offered(lines: Lines, site: Site, of_reals: bool = False) -> Iterator[Offer]:
    """Engines of such lines, each with its dimensions; only slicing ones in float64 by slices."""
    sliced = site.dots[0].slices > 0
    for kind in ENGINES:
        if (kind.of_reals, kind.slices) == (of_reals, sliced) and (kind.by_xla or not site.xla):
            yield from kind.offers(lines, site)


def least(rows: int, points: float, nbytes: int, site: Site) -> list[Work]:
    """Lower bounds on the work of one dimension; the lowest holds."""
    return [work for kind in ENGINES if (work := kind.least(rows, points, nbytes, site)) is not None]
