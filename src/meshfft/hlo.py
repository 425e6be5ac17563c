"""What a compiled program really does: its collectives, counted in the text that the compiler prints.

A collective inside a loop counts once for each turn: the loop's instruction carries its known trip count.
"""

import collections
import re

import jax

from .errors import check

COLLECTIVES = ("all-to-all", "collective-permute", "all-gather", "all-reduce", "reduce-scatter", "collective-broadcast")

_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_OPCODE = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*? ([a-z][a-z\-]*)\(")
_CALLEE = re.compile(r"(?:body|condition|to_apply|calls)=%?([\w.\-]+)|branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


def collectives(compiled: jax.stages.Compiled) -> dict[str, int]:
    """How many collectives of each kind one run of a compiled program does on each device."""
    text = compiled.as_text()
    check(bool(text), "the compiled program has no text: this backend keeps none", NotImplementedError)
    bodies, entry = _computations(text or "")
    counts: collections.Counter[str] = collections.Counter()
    _count(bodies, entry, 1, counts)
    return dict(counts)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation, and the name of the entry."""
    bodies: dict[str, list[str]] = {}
    name = entry = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = header[1]
            bodies[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name:
            bodies[name].append(line)
    return bodies, entry


def _count(bodies: dict[str, list[str]], name: str, times: int, counts: collections.Counter[str]) -> None:
    for line in bodies.get(name, ()):
        opcode = _OPCODE.match(line)
        if opcode is None:
            continue
        kind = opcode[1].removesuffix("-start")
        if kind in COLLECTIVES:
            counts[kind] += times
        trips = int(found[1]) if kind == "while" and (found := _TRIPS.search(line)) else 1
        for callee in _CALLEE.finditer(line):
            for called in (callee[1] or callee[2]).split(", "):
                _count(bodies, called.removeprefix("%"), times * trips, counts)
