"""What a baseline is given, and what it makes of it: a place to compute, and a call that is ready."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from .cases import Case
from .data import Data
from .timing import Timer


class Prepared(NamedTuple):
    """A case that is ready: compiled, planned, its input in place, run once.

    Attributes:
        timer: one call, and its seconds to the finished result.
        error: of the first result.
        versions: of what only the baseline knows.
    """

    timer: Timer
    error: float
    versions: Mapping[str, Any] = MappingProxyType({})


class Ranks(Protocol):
    """MPI ranks that sleep between calls."""

    def prepare(self, case: Case, data: Data) -> Prepared: ...


class Place(NamedTuple):
    """Where to compute.

    Attributes:
        devices: JAX's.
        cores: threads that libraries without devices may use, and MPI ranks.
        ranks: how ranks are started; without, there are none.
    """

    devices: Sequence[Any]
    cores: int = 1
    ranks: Ranks | None = None
