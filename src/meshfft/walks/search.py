"""The search: the cheapest walk from a layout to the layout wanted, over every step that the method allows.

A node is (layout, dimensions already transformed); an edge is a step, priced in modelled seconds on a chip; Dijkstra's
algorithm finds the shortest path, told by a lower bound what at least lies ahead (A*). Slabs, pencils, blocks, mixed
algorithms, natural or free output order and idle mesh axes are all just paths.
"""

import contextlib
import heapq
import itertools
import math

from ..layout.layout import Layout, real_cuts
from ..steps import Problem, Step
from .candidates import METHODS, moves

BUDGET = 50_000  # edges, about a second


def search(problem: Problem) -> tuple[Step, ...] | None:
    """The steps of the cheapest walk, or None where the method has none.

    Steps that do not fit in a device's memory are taken only where nothing else leads to the end.

    Takes milliseconds for three dimensions. The nodes are all the ways to lay axes out over dimensions: where they are
    too many (five dimensions over four mesh axes), the bound is weighted more and more, and the walk found is good
    rather than best.
    """
    capacity = problem.machine.chip.capacity
    if capacity is not None and (found := _weighted(problem, capacity.value)) is not None:
        return found
    return _weighted(problem, math.inf)


def _weighted(problem: Problem, memory: float) -> tuple[Step, ...] | None:
    for weight in (1, 3, 10):
        with contextlib.suppress(_TooManyError):
            return _search(problem, memory, weight, BUDGET)
    return _search(problem, memory, 100, math.inf)


class _TooManyError(Exception):
    """More edges than the budget."""


def _search(problem: Problem, memory: float, weight: float, budget: float) -> tuple[Step, ...] | None:
    start, ahead = (problem.start, frozenset[int]()), _Ahead(problem)
    best, order = {start: 0.0}, itertools.count()
    queue: list = [(0.0, 0.0, next(order), 0.0, start, ())]
    while queue:
        _, _, _, cost, node, path = heapq.heappop(queue)
        if cost > best[node]:
            continue
        layout, done = node
        todo = problem.todo(done)
        if not todo and _wanted(problem, layout):
            return path
        itemsize = problem.bytes_at(todo)
        for step in moves(problem, layout, todo):
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
    return None


class _Ahead:
    """A lower bound on the seconds still ahead of a node.

    A dimension still to be transformed costs at least its arithmetic, or a ring. If its outermost cut is the goal's
    own, that cut must leave; and a dimension that lacks a cut of the goal's must be the target of a swap. One swap
    cannot do both, since what leaves home travels outside what returns with it. Where one exchange may be several
    swaps, they are counted by `_moves`, and some dimensions by rings beside others that are opened by `_mixed`.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.cached = problem, problem.machine.chip.cached
        found = [kind.least(problem) for kind in dict.fromkeys(itertools.chain(*METHODS.values()))]
        moves = [least for least in found if least.move < math.inf]
        self.move, self.strided = (min(getattr(least, name) for least in moves) for name in ("move", "strided"))
        self.whole = {d: min(least.whole.get(d, math.inf) for least in found) for d in problem.transform.dims}
        self.cut = {d: min(least.cut.get(d, math.inf) for least in found) for d in problem.transform.dims}

    def seconds(self, layout: Layout, done: frozenset[int]) -> float:
        dims = [(d, d in self.whole and d not in done) for d in range(layout.ndim)]
        if not self.cached:
            return sum(self._dim(layout, d, todo) for d, todo in dims)
        left = [d for d, todo in dims if todo]
        cut = [d for d in left if real_cuts(layout.cuts[d])]
        whole = sum(self.whole[d] for d in left)
        opened = whole + self._moves(layout, dims, cut)
        if not cut:
            return opened
        extra = {d: self.cut[d] - self.whole[d] for d in cut}
        rings = whole + sum(extra.values())
        return min(opened, rings, self._mixed(whole, extra, layout.ndim - 1) if len(cut) > 1 else math.inf)

    def _mixed(self, whole: float, extra: dict[int, float], last: int) -> float:
        """Some dimensions by a ring, and at least one opened, and cut again where the goal has all of them cut."""
        goal = self.problem.goal
        returns = goal is not None and all(real_cuts(goal.cuts[d]) for d in extra)
        least = whole + sum(min(more, 0.0) for more in extra.values()) + self.move * (1 + returns)
        ring = {d: max(more, 0.0) for d, more in extra.items()}
        if last not in ring:
            return least + min(ring.values())
        others = min(more for d, more in ring.items() if d != last)
        return least + min(ring[last], others + self.strided * (1 + returns))

    def _moves(self, layout: Layout, dims: list[tuple[int, bool]], cut: list[int]) -> float:
        """The least seconds of exchanges without a ring: one opens a dimension, another cuts it again, and none opens
        all.
        """
        last, goal = layout.ndim - 1, self.problem.goal
        found = [*map(real_cuts, layout.cuts)]
        wanted = found if goal is None else [*map(real_cuts, goal.cuts)]
        if not cut:
            return (found != wanted) * self.move + (found[last] != wanted[last]) * self.strided
        first, opens = 2 if len(cut) == len(dims) > 1 else 1, last in cut
        again = goal is not None and any(wanted[d] for d in cut)
        closes = goal is not None and bool(wanted[last]) and (opens or found[last] != wanted[last])
        return (first + again) * self.move + (opens + closes) * self.strided

    def _dim(self, layout: Layout, dim: int, todo: bool) -> float:
        goal = self.problem.goal
        cuts, wanted = real_cuts(layout.cuts[dim]), real_cuts(goal.cuts[dim]) if goal is not None else ()
        if not todo:
            return self.move * (cuts[: len(wanted)] != wanted)
        if not cuts:
            return self.whole[dim] + self.move * bool(wanted)
        leaves, returns = goal is None or cuts[:1] == wanted[:1], bool(wanted)
        return min(self.whole[dim] + self.move * (leaves + returns), self.cut[dim])


def _wanted(problem: Problem, layout: Layout) -> bool:
    if problem.goal is not None:
        return layout == problem.goal
    return layout.even or (layout.tail and not problem.even)
