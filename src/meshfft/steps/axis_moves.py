"""Moves of mesh axes between dimensions."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from ..layout.layout import Cut, Cuts, Layout, even_cuts, join_axes, nested, real_cuts
from ..operators.matrices import Matrix
from .base import names, shift
from .problem import Problem


class AxisMove(NamedTuple):
    """Mesh axes leave dimension `source` and make `cuts` in `target`, padded at its end if they do not divide it."""

    source: int
    target: int
    cuts: Cuts

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(cut.axis for cut in self.cuts)

    @property
    def parts(self) -> int:
        return math.prod(cut.parts for cut in self.cuts)

    def after(self, layout: Layout) -> Layout:
        source, target = layout.cuts[self.source][: -len(self.cuts)], layout.cuts[self.target] + self.cuts
        opened = layout.replace(self.source, layout.shape[self.source], source)
        return opened.replace(self.target, layout.shape[self.target], target)

    def transpose(self, layout: Layout) -> "AxisMove":
        return AxisMove(self.target, self.source, layout.cuts[self.source][-len(self.cuts) :])

    def insert(self, dim: int) -> "AxisMove":
        return self._replace(source=shift(self.source, dim), target=shift(self.target, dim))

    def name(self, layout: Layout) -> str:
        return f"{join_axes(self.axes)}: {names((self.source,), layout)} -> {names((self.target,), layout)}"


def axis_moves(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[AxisMove]:
    """Moves out of dimensions that still need their transform, or whose cuts differ from the goal's."""
    for source, cuts in enumerate(layout.cuts):
        for first in range(0 if source in todo else _settled(problem, source, cuts), len(cuts)):
            if nested(cuts[first:]) and real_cuts(cuts[first:]):
                for target in _targets(problem, layout, source, todo):
                    yield from _leaving(problem, layout, source, target, cuts[first:])


def _targets(problem: Problem, layout: Layout, source: int, todo: dict[int, Matrix]) -> list[int]:
    """Candidate targets. In a plain transpose, axes avoid dimensions still to be opened, so that each moves once."""
    others = [d for d in range(layout.ndim) if d != source]
    free = [d for d in others if d not in todo or layout.parts[d] == 1]
    least = problem.goal is None and problem.method == "transpose" and not problem.machine.chip.cached
    return free or others if least else others


def _settled(problem: Problem, dim: int, cuts: Cuts) -> int:
    """Number of outer cuts that may stay: the goal's, or without a goal all that nest."""
    if problem.goal is None:
        return max(j for j in range(len(cuts) + 1) if nested(cuts[:j]))
    pairs = zip(cuts, problem.goal.cuts[dim], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _leaving(problem: Problem, layout: Layout, source: int, target: int, moved: Cuts) -> Iterator[AxisMove]:
    """Moves to equal blocks, and to the goal's own cuts if those differ."""
    equal = even_cuts(layout.block[target], [(cut.axis, cut.parts) for cut in moved])
    yield AxisMove(source, target, equal)
    if problem.goal is not None:
        begun, wanted = layout.cuts[target], problem.goal.cuts[target]
        last: tuple[Cut, ...] = wanted[len(begun) : len(begun) + len(moved)]
        if wanted[: len(begun)] == begun and [c.axis for c in last] == [c.axis for c in moved] and last != equal:
            if nested(last) and layout.block[target] <= last[0].parts * last[0].span:
                yield AxisMove(source, target, last)
