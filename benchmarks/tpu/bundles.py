"""The static schedule of a TPU program as its compiler dumps it: VLIW bundles and trip counts.

    cycles of a body = max(its bundles, rows that its products feed one matrix unit) + those of each loop in it * turns

A bundle is a cycle; waiting for DMA is not included. The bundles after a branch that run before it takes effect belong
to the loop. A grid's loop whose blocks arrive by DMA runs two more iterations than the grid, which are subtracted.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Bundles after a branch that run before it is taken (libtpu 0.0.52): the last of a loop's body stand there.
DELAYS = {"v2": 1, "v3": 1, "v4": 1, "v5e": 4, "v5p": 4, "v6e": 4, "tpu7x": 6}
MATRIX_ROWS = {"f32": 8}  # rows of the unit's operand that one instruction feeds, by type; others 16
SPILLED = "spill"  # an index that was spilled to memory begins at 0

_BUNDLE = re.compile(r"^\s*(?:0x[0-9a-f]+|0)\s+(?:[A-Z]{2})?\s*:[\s>]*\{")
_DEFINED = re.compile(r"(%[sp]\d+(?:_[sp]\d+)?)\s*=\s*([^;{}]*)")
_GUARD = re.compile(r"\(!?%p\w+(?:, %\w+)?\), ")  # the predicate of an operation
_REGION = re.compile(r"Start(?:/End empty)? region (\d+)")
_BRANCH = re.compile(r"sbr\.rel (?:\(!?(%\w+)\) )?target = \$region(\d+)")
_PRODUCT = re.compile(r"vmatmul\.(\w+)\S*?\.mxu(\d)")


@dataclasses.dataclass
class Loop:
    """Bundles from `first` to `last`, and their trip count; None if the text does not give it."""

    first: int
    last: int
    turns: int | None
    inside: list["Loop"] = dataclasses.field(default_factory=list)


class Spent(NamedTuple):
    """Cycles, and the number of loops with an unknown trip count, which count once."""

    cycles: int
    unknown: int = 0


class Schedule:
    """The bundles of one HLO instruction, from a file of the dump; `delay` run after a branch before it is taken."""

    def __init__(self, text: str, delay: int) -> None:
        self.bundles, self._delay = _bundles(text), delay
        found = (found for one in self.bundles for found in _DEFINED.finditer(one))
        self._defined = {one[1]: _GUARD.sub("", one[2]).strip() for one in found}
        self.loops = _nested(self._loops())

    def spent(self) -> Spent:
        return self._span(0, len(self.bundles), self.loops)

    def _span(self, first: int, end: int, loops: Sequence[Loop]) -> Spent:
        inside = {at for loop in loops for at in range(loop.first, loop.last + 1)}
        own = [at for at in range(first, end) if at not in inside]
        rows = Counter[str]()
        for kind, unit in (product for at in own for product in _PRODUCT.findall(self.bundles[at])):
            rows[unit] += MATRIX_ROWS.get(kind, 16)
        cycles, unknown = max([len(own), *rows.values()]), 0
        for loop in loops:
            body = self._span(loop.first, loop.last + 1, loop.inside)
            cycles += body.cycles * (1 if loop.turns is None else loop.turns)
            unknown += body.unknown + (loop.turns is None)
        return Spent(cycles, unknown)

    def _loops(self) -> Iterator[Loop]:
        starts = {number: at for at, one in enumerate(self.bundles) for number in _REGION.findall(one)}
        for at, one in enumerate(self.bundles):
            for condition, region in _BRANCH.findall(one):
                first = starts.get(region)
                if first is not None and first <= at:
                    last = min(at + self._delay, len(self.bundles) - 1)
                    yield Loop(first, last, self._turns(condition, first, last))

    def _turns(self, condition: str, first: int, last: int) -> int | None:
        """From the test `x >= bound`, where x = step + y, and y begins with some number."""
        test = re.match(r"scmp\.\w+\.\w+\.totalorder (%\w+), (%?\w+)", self._defined.get(condition, ""))
        step = re.match(r"sadd\.s32 (%?\w+), (%?\w+)", self._defined.get(test[1], "")) if test else None
        if test is None or step is None:
            return None
        by, index = (step[1], step[2]) if self._number(step[1]) is not None else (step[2], step[1])
        begins = re.match(r"sphi (%?\w+), (%?\w+)", self._defined.get(index, ""))
        bound, size, begin = self._number(test[2]), self._number(by), self._number(begins[1]) if begins else None
        if begin is None and SPILLED in self._defined.get(index, "") + self._defined[test[1]]:
            begin = 0
        if bound is None or begin is None or not size:
            return None
        turns = max(1, -(-(bound - begin) // size))
        brought = any(re.search("stage = [12]", one) for one in self.bundles[first : last + 1])
        return turns - 2 if brought and turns > 2 else turns

    def _number(self, name: str, depth: int = 8) -> int | None:
        if re.fullmatch(r"-?\d+", name):
            return int(name) - (1 << 32) * (int(name) >= 1 << 31)
        moved = re.match(r"smov(?:\.u32)? ([^\s,]+)", self._defined.get(name, ""))
        return self._number(moved[1], depth - 1) if moved and depth else None


def _bundles(text: str) -> list[str]:
    found = list[str]()
    for line in text.splitlines():
        if _BUNDLE.match(line):
            found.append(line)
        elif found:
            found[-1] += "\n" + line
    return found


def _nested(loops: Iterator[Loop]) -> list[Loop]:
    outer, open_loops = list[Loop](), list[Loop]()
    for loop in sorted(loops, key=lambda one: (one.first, -one.last)):
        while open_loops and loop.last > open_loops[-1].last:
            open_loops.pop()
        (open_loops[-1].inside if open_loops else outer).append(loop)
        open_loops.append(loop)
    return outer
