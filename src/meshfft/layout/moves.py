"""Moves of mesh axes from one dimension to another, on the way to a goal.

Invariant: a move changes the cuts of two dimensions, not the devices.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from .layout import Cut, Cuts, Layout, dim_name, even_cuts, join_axes, nested, real_cuts, shift


class AxisMove(NamedTuple):
    """Mesh axes leave dimension `source` and make `cuts` in `target`, padded at its end if uneven."""

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
        cuts = list(layout.cuts)
        cuts[self.source], cuts[self.target] = cuts[self.source][: -len(self.cuts)], cuts[self.target] + self.cuts
        for dim in (self.source, self.target):
            cuts[dim] = _around(cuts[dim], layout.shape[dim])
        return Layout(layout.shape, tuple(cuts))

    def transpose(self, layout: Layout) -> "AxisMove":
        return AxisMove(self.target, self.source, layout.cuts[self.source][-len(self.cuts) :])

    def insert(self, dim: int) -> "AxisMove":
        return self._replace(source=shift(self.source, dim), target=shift(self.target, dim))

    def name(self, layout: Layout) -> str:
        return f"{join_axes(self.axes)}: {dim_name(self.source, layout.ndim)} -> {dim_name(self.target, layout.ndim)}"


def _around(cuts: Cuts, size: int) -> Cuts:
    """The cuts; one of one part spans all positions that the real cuts around it allow, as in `even_cuts`."""
    outer = min((cut.span for cut in real_cuts(cuts)), default=size)
    inner, changed = 0, list[Cut]()
    for cut in reversed(cuts):
        changed.append(cut if cut.parts > 1 else cut._replace(span=inner or outer))
        inner = changed[-1].parts * changed[-1].span
    return tuple(reversed(changed))


@functools.lru_cache(maxsize=2**14)
def moves_from(
    layout: Layout, goal: Layout | None, todo: frozenset[int], once: bool
) -> tuple[tuple[AxisMove, Layout], ...]:
    """Moves, with the layout after each, out of dimensions in `todo` or whose cuts differ from the goal's.

    A mesh axis of one device begins no move but to where the goal has it. With `once` axes avoid dimensions still to be
    opened, so that each moves once.
    """
    found = list[AxisMove]()
    for source, cuts in enumerate(layout.cuts):
        settled = _settled(goal, source, cuts)
        others = [d for d in range(layout.ndim) if d != source]
        free = [d for d in others if d not in todo or layout.parts[d] == 1]
        for first in range(0 if source in todo else settled, len(cuts)):
            moved = cuts[first:]
            if not nested(moved):
                continue
            if real_cuts(moved[:1] if first < settled else moved):
                for target in (free or others) if once else others:
                    found += _leaving(goal, layout, source, target, moved)
            elif first >= settled and goal is not None:
                found += [AxisMove(source, d, onto) for d in others if (onto := wanted(goal, layout, d, moved))]
    return tuple((move, move.after(layout)) for move in found)


def at_once(moves: tuple[AxisMove, ...]) -> bool:
    """Whether one exchange does all moves: onto one dimension or from one, no axis twice."""
    axes = [axis for move in moves for axis in move.axes]
    ends = {move.source for move in moves}, {move.target for move in moves}
    return len(set(axes)) == len(axes) and 1 in map(len, ends)


def _settled(goal: Layout | None, dim: int, cuts: Cuts) -> int:
    """Number of outer cuts that may stay: the goal's; without a goal, all that nest."""
    if goal is None:
        return max(j for j in range(len(cuts) + 1) if nested(cuts[:j]))
    pairs = zip(cuts, goal.cuts[dim], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _leaving(goal: Layout | None, layout: Layout, source: int, target: int, moved: Cuts) -> Iterator[AxisMove]:
    equal = even_cuts(layout.block[target], [(cut.axis, cut.parts) for cut in moved])
    yield AxisMove(source, target, equal)
    if goal is not None and (cuts := wanted(goal, layout, target, moved)) not in ((), equal):
        yield AxisMove(source, target, cuts)


def wanted(goal: Layout, layout: Layout, target: int, moved: Cuts) -> Cuts:
    """The next cuts that the goal has in a dimension, if they are by the axes that move; else none."""
    begun, cuts = layout.cuts[target], goal.cuts[target]
    last: tuple[Cut, ...] = cuts[len(begun) : len(begun) + len(moved)]
    if cuts[: len(begun)] == begun and [c.axis for c in last] == [c.axis for c in moved] and nested(last):
        return last if layout.block[target] <= last[0].parts * last[0].span else ()
    return ()
