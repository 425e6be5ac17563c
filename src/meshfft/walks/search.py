"""The search: the cheapest walk from a layout to the layout wanted, over every step that the method allows.

A node is (layout, dimensions already transformed); an edge is a step, priced in modelled seconds on a chip; Dijkstra's
algorithm finds the shortest path, with a lower bound on what lies ahead (A*). Slabs, pencils, blocks, mixed algorithms,
natural or free output order and idle mesh axes are all just paths. What follows a transform, as points that are
interpolated, is priced at each final layout: then the search goes on until no way there can be cheaper.
"""

import contextlib
import heapq
import itertools
import math
from collections.abc import Iterator

from ..layout.layout import Layout, real_cuts
from ..operators.matrices import Matrix
from ..steps import Exchange, LocalFFT, LocalTrig, PackedFFT, PhaseFFT, Pipeline, RealFFT, RingDense, SixStep
from ..steps.base import Step
from ..steps.problem import Problem
from ..steps.rows import pads

METHODS: dict[str, tuple[type[Step], ...]] = {
    "auto": (LocalFFT, RealFFT, LocalTrig, Exchange, Pipeline, RingDense, PhaseFFT, SixStep, PackedFFT),
    "transpose": (LocalFFT, RealFFT, LocalTrig, Exchange, Pipeline),
    "cooley-tukey": (LocalFFT, RealFFT, LocalTrig, PhaseFFT, PackedFFT),
    "kdft": (RingDense, Exchange),
}
BUDGET = 50_000  # edges, about a second
FLOOR = 0.9  # of the seconds of what follows in one layout, if points were even there, those in any other
Node = tuple[Layout, frozenset[int]]


def search(problem: Problem) -> tuple[Step, ...] | None:
    """The steps of the cheapest walk, or None where the method has none.

    Steps that do not fit in a device's memory are taken only where nothing else leads to the end. Takes milliseconds
    for three dimensions. Where nodes are too many (five dimensions over four mesh axes), the bound is weighted more and
    more, and the walk is good rather than best.
    """
    capacity = problem.machine.chip.capacity
    for memory in (math.inf,) if capacity is None else (capacity.value, math.inf):
        for weight, budget in ((1, BUDGET), (3, BUDGET), (10, BUDGET), (100, math.inf)):
            with contextlib.suppress(_TooManyError):
                if (steps := _search(problem, memory, weight, budget)) is not None:
                    return steps
                break
    return None


class _TooManyError(Exception):
    """More edges than the budget."""


def _search(problem: Problem, memory: float, weight: float, budget: float) -> tuple[Step, ...] | None:
    start, ahead = (problem.start, frozenset[int]()), _Ahead(problem)
    best, order = {start: 0.0}, itertools.count()
    queue: list[tuple[float, float, int, float, Node, tuple[Step, ...]]] = [(0.0, 0.0, next(order), 0.0, start, ())]
    least: tuple[float, int, tuple[Step, ...] | None] = (math.inf, 0, None)  # with what follows the transform
    floor = 0.0  # of what follows, at least
    while queue and queue[0][0] + floor < least[0]:
        _, _, _, cost, node, path = heapq.heappop(queue)
        if cost > best[node]:
            continue
        layout, done = node
        todo = problem.todo(done)
        if not todo and _wanted(problem, layout):
            if problem.ending is None:
                return path
            floor = floor or FLOOR * _price(problem, layout, getattr(problem.ending, "least", _nothing)(layout), False)
            least = min(least, (cost + _price(problem, layout, problem.ending(layout)), next(order), path))
        itemsize = problem.bytes_at(todo)
        for step in offered(problem, layout, todo):
            budget -= 1
            if budget < 0:
                raise _TooManyError
            work = step.work(layout, itemsize, problem.machine.chip)
            if work.peak_bytes > memory:
                continue
            after = (step.after(layout), done.union(step.dims))
            price = cost + problem.machine.price(work)
            if price < best.get(after, math.inf):
                best[after], left = price, ahead.seconds(*after)
                heapq.heappush(queue, (price + weight * left, left, next(order), price, after, (*path, step)))
    return least[2]


def offered(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Step]:
    """The steps that may be taken from a layout: of a dimension that was padded or cropped, those it was done for."""
    waiting = {dim: matrix for dim, matrix in todo.items() if layout.shape[dim] != problem.start.shape[dim]}
    for kind in METHODS[problem.method]:
        if not waiting or kind.exact:
            yield from kind.offers(problem, layout, waiting or todo)
        if not waiting and kind.exact:
            yield from pads(kind, problem, layout, todo)


def _wanted(problem: Problem, layout: Layout) -> bool:
    if problem.goal is not None:
        return layout == problem.goal
    return layout.even or (layout.tail and not problem.even)


def _price(problem: Problem, layout: Layout, steps: tuple[Step, ...], sending: bool = True) -> float:
    """Seconds of steps that follow the transform in its final layout; or of those alone that send nothing."""
    seconds, itemsize = 0.0, problem.bytes_at({})
    for step in steps:
        work = step.work(layout, itemsize, problem.machine.chip)
        seconds += problem.machine.price(work) if sending or not work.sent_bytes else 0.0
        layout = step.after(layout)
    return seconds


def _nothing(layout: Layout) -> tuple[Step, ...]:
    return ()


class _Ahead:
    """A lower bound on the seconds still ahead of a node.

    A dimension still to be transformed costs at least its arithmetic, or a ring. If its outermost cut is the goal's
    own, that cut must leave; and axes must move to a dimension that lacks a cut of the goal's. One move cannot do both,
    since what leaves home travels outside what returns with it. Where one exchange may do several moves, `_moves`
    counts them, and `_mixed` takes some dimensions by rings beside others that are opened.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.cached, dims = problem, problem.machine.chip.cached, problem.transform.dims
        least = [kind.least(problem) for kind in dict.fromkeys(itertools.chain(*METHODS.values()))]
        moving = [one for one in least if one.move < math.inf]
        self.move, self.strided = min(one.move for one in moving), min(one.strided for one in moving)
        self.local = {d: min(one.local.get(d, math.inf) for one in least) for d in dims}
        self.cut = {d: min(one.cut.get(d, math.inf) for one in least) for d in dims}

    def seconds(self, layout: Layout, done: frozenset[int]) -> float:
        dims = [(d, d in self.local and d not in done) for d in range(layout.ndim)]
        if not self.cached:
            return sum(self._dim(layout, d, todo) for d, todo in dims)
        left = [d for d, todo in dims if todo]
        cut = [d for d in left if real_cuts(layout.cuts[d])]
        local = sum(self.local[d] for d in left)
        opened = local + self._moves(layout, cut)
        if not cut:
            return opened
        extra = {d: self.cut[d] - self.local[d] for d in cut}
        rings = local + sum(extra.values())
        return min(opened, rings, self._mixed(local, extra, layout.ndim - 1) if len(cut) > 1 else math.inf)

    def _mixed(self, local: float, extra: dict[int, float], last: int) -> float:
        """Some dimensions by a ring, and at least one opened, and cut again where the goal has all of them cut."""
        goal = self.problem.goal
        returns = goal is not None and all(real_cuts(goal.cuts[d]) for d in extra)
        least = local + sum(min(more, 0.0) for more in extra.values()) + self.move * (1 + returns)
        ring = {d: max(more, 0.0) for d, more in extra.items()}
        if last not in ring:
            return least + min(ring.values())
        others = min(more for d, more in ring.items() if d != last)
        return least + min(ring[last], others + self.strided * (1 + returns))

    def _moves(self, layout: Layout, cut: list[int]) -> float:
        """Exchanges without a ring: one opens a dimension, another cuts it again, and none opens all."""
        last, goal = layout.ndim - 1, self.problem.goal
        cuts = [*map(real_cuts, layout.cuts)]
        wanted = cuts if goal is None else [*map(real_cuts, goal.cuts)]
        if not cut:
            return (cuts != wanted) * self.move + (cuts[last] != wanted[last]) * self.strided
        first, opens = 2 if len(cut) == layout.ndim > 1 else 1, last in cut
        again = goal is not None and any(wanted[d] for d in cut)
        closes = goal is not None and bool(wanted[last]) and (opens or cuts[last] != wanted[last])
        return (first + again) * self.move + (opens + closes) * self.strided

    def _dim(self, layout: Layout, dim: int, todo: bool) -> float:
        goal = self.problem.goal
        cuts, wanted = real_cuts(layout.cuts[dim]), real_cuts(goal.cuts[dim]) if goal is not None else ()
        if not todo:
            return self.move * (cuts[: len(wanted)] != wanted)
        if not cuts:
            return self.local[dim] + self.move * bool(wanted)
        leaves, returns = goal is None or cuts[:1] == wanted[:1], bool(wanted)
        return min(self.local[dim] + self.move * (leaves + returns), self.cut[dim])
