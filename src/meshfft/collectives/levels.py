"""The wires of both levels of a network, and their one name: "int16", "outer=int16" or "inner=int24,outer=int16"."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .wires import EXACT, Wire, wire_of

WireLike = str | Mapping[str, str]  # of all messages, or by level


class Wires(NamedTuple):
    """The wires inside domains, and between them."""

    inner: Wire = EXACT
    outer: Wire = EXACT

    @property
    def lossy(self) -> bool:
        return self.inner.lossy or self.outer.lossy

    @property
    def remedy(self) -> str:
        return max(self, key=lambda wire: wire.error).remedy

    def least(self, nbytes: int) -> int:
        return min(wire.least(nbytes) for wire in self)


def wire_name(wire: WireLike) -> str:
    """One hashable name for both wires, as "outer=int16"; the wire's own if they are equal."""
    if not isinstance(wire, Mapping):
        return wire
    if not wire:
        return EXACT.name
    if wire.keys() == {*Wires._fields} and wire["inner"] == wire["outer"]:
        return wire["outer"]
    return ",".join(f"{level}={name}" for level, name in wire.items())


@functools.lru_cache(maxsize=64)
def wires_of(name: str, dtype: np.dtype, flat: bool = False) -> Wires:
    """The wires of `wire_name` for planes of a real type; a missing level is exact. Raises ValueError as `wire_of`, or
    for an unknown level."""
    if "=" not in str(name):
        return Wires(*[wire_of(name, dtype, flat)] * len(Wires._fields))
    levels = {level: each for level, _, each in (part.rpartition("=") for part in name.split(","))}
    if unknown := sorted(levels.keys() - {*Wires._fields}):
        remedy = "use inner for messages inside a node or slice, outer for those between them"
        raise ValueError(f"wire {name!r} has a level {unknown[0]!r}: {remedy}")
    return Wires(**{level: wire_of(each, dtype, flat) for level, each in levels.items()})
