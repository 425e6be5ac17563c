"""What a library is given, and what it makes of it: a place to compute, and a call that is ready."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from ..timing import Call
from .cases import Case
from .data import Data


class Prepared(NamedTuple):
    """A case that is compiled or planned, its input in place: a call, its result's error, and what else to note."""

    call: Call
    error: float
    facts: dict[str, Any] = {}  # noqa: RUF012


class Ranks(Protocol):
    """MPI ranks that sleep between calls."""

    def prepare(self, case: Case, data: Data) -> Prepared: ...


class Place(NamedTuple):
    """Where to compute: JAX's devices, threads for libraries without devices, and MPI ranks."""

    devices: Sequence[jax.Device]
    cores: int = 1
    ranks: Ranks | None = None


def ready(
    call: Call, data: Data, facts: dict[str, Any] | None = None, read: Callable[[Any], Any] = lambda y: y
) -> Prepared:
    """A call and the error of its first result, which `read` brings to the host in natural order."""
    return Prepared(call, data.error(read(call())), facts or {})
