"""The search: the cheapest walk from a layout to the layout wanted, over every step that the method allows.

A node is (layout, dimensions already transformed); an edge is a step, priced in modelled seconds on a chip; Dijkstra's
algorithm finds the shortest path, told by a lower bound what at least lies ahead (A*). Slabs, pencils, blocks, mixed
algorithms, natural or free output order and idle mesh axes are all just paths.
"""

import contextlib
import heapq
import itertools
import math
from typing import Any

from ..kernels.local import stages
from ..layout.layout import Layout
from ..machine.work import Work
from ..operators.matrices import Matrix
from ..steps import Step
from ..steps.exchange import PASSES as EXCHANGE_PASSES
from ..steps.phase_fft import PASSES as PHASE_PASSES
from ..steps.phase_fft import UNIT_PASSES
from ..steps.swap import PASSES as SWAP_PASSES
from .candidates import moves, real_cuts
from .problem import Problem

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
        if not problem.todo(done) and _wanted(problem, layout):
            return path
        todo = problem.todo(done)
        for step in moves(problem, layout, todo):
            budget -= 1
            if budget < 0:
                raise _TooManyError
            work = problem.work(step, layout, todo)
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
    swaps, they are counted by `_exchanges`.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.todo = problem, problem.todo(frozenset())
        sizes = [min(n, _least_rows(self.todo[d])) if d in self.todo else n for d, n in enumerate(problem.start.shape)]
        self.points = math.prod(sizes) // math.prod(problem.start.parts)
        stays_real = problem.real and not any(matrix.becomes for matrix in self.todo.values())
        self.share, self.machine = (2 if stays_real else 1), problem.machine
        self.bytes = self.points * problem.itemsize // self.share
        passes = EXCHANGE_PASSES if self.machine.chip.cached else SWAP_PASSES
        self.swap = self._least(memory_bytes=passes * self.bytes, sent_bytes=self.bytes // 2, all_to_alls=1)
        self.dense = min(dot.flops for dot in problem.dots) // self.share**2
        self.fft = {dim: self._arithmetic(matrix) for dim, matrix in self.todo.items()}
        self.ring = {dim: self._rings(matrix) for dim, matrix in self.todo.items()}

    def _least(self, **counts: Any) -> float:
        if self.machine.chip.overlaps:  # what travels may cost nothing
            counts = {name: n for name, n in counts.items() if name not in ("sent_bytes", "hops", "all_to_alls")}
        return self.machine.price(Work(tier=self.problem.dots[0].tier, **counts))

    def _arithmetic(self, matrix: Matrix) -> float:
        """The least seconds any step takes for one dimension."""
        rows, together = _least_rows(matrix), 2 if self.machine.chip.cached else 1  # dimensions in one pass of a cache
        passes = {"memory_bytes": 2 * self.bytes // together}
        dense = self._least(matrix_flops=self.dense * self.points * rows, **passes)
        if not matrix.whole:
            return dense
        if (side := self.machine.chip.side) > 1:
            flops = 6 * sum(stages(rows, side)) * self.points // self.share
            return min(dense, self.machine.price(Work(flops, "bf16x6", memory_bytes=2 * self.bytes)))
        flops = int(5 * self.points * math.log2(max(rows, 1))) // self.share
        return min(dense, self._least(vector_flops=flops, **passes))

    def _rings(self, matrix: Matrix) -> float:
        """The least seconds of a dimension that stays cut, over two shards."""
        flops = self.dense * self.points * _least_rows(matrix)
        dense = self._least(matrix_flops=flops, sent_bytes=self.bytes, hops=1)
        passes = PHASE_PASSES - 2 if self.machine.chip.side == 1 else 2 * UNIT_PASSES
        sent, memory = self.bytes // 2 + self.bytes, passes * self.bytes
        phase = self._arithmetic(matrix) + self._least(memory_bytes=memory, sent_bytes=sent, hops=1)
        return min(dense, phase) if matrix.whole else dense

    def seconds(self, layout: Layout, done: frozenset[int]) -> float:
        dims = [(d, d in self.todo and d not in done) for d in range(layout.ndim)]
        if not self.machine.chip.cached:
            return sum(self._dim(layout, d, todo) for d, todo in dims)
        left = [d for d, todo in dims if todo]
        cut = [d for d in left if real_cuts(layout.cuts[d])]
        fft = sum(self.fft[d] for d in left)
        least = fft - sum(max(self.fft[d] - self.ring[d], 0.0) for d in cut)
        rings = [least + max(self.ring[d] - self.fft[d], 0.0) for d in cut]
        return min([fft + self.swap * self._exchanges(layout, dims, cut), *rings])

    def _exchanges(self, layout: Layout, dims: list[tuple[int, bool]], cut: list[int]) -> int:
        """The least number of exchanges without a ring: one opens a dimension, another cuts it again, and none opens
        all.
        """
        goal = self.problem.goal
        if not cut:
            return int(goal is not None and [*map(real_cuts, layout.cuts)] != [*map(real_cuts, goal.cuts)])
        first = 2 if len(cut) == len(dims) > 1 else 1
        last = any(real_cuts(goal.cuts[d]) for d in cut) if goal is not None else False
        return first + last

    def _dim(self, layout: Layout, dim: int, todo: bool) -> float:
        goal = self.problem.goal
        cuts, wanted = real_cuts(layout.cuts[dim]), real_cuts(goal.cuts[dim]) if goal is not None else ()
        if not todo:
            return self.swap * (cuts[: len(wanted)] != wanted)
        if not cuts:
            return self.fft[dim] + self.swap * bool(wanted)
        leaves, returns = goal is None or cuts[:1] == wanted[:1], bool(wanted)
        return min(self.fft[dim] + self.swap * (leaves + returns), self.ring[dim])


def _least_rows(matrix: Matrix) -> int:
    """Rows of a matrix; where it halves a spectrum, in complex numbers on either side."""
    return matrix.rows if matrix.becomes is None else max(min(matrix.rows, matrix.columns) - 1, 1)


def _wanted(problem: Problem, layout: Layout) -> bool:
    if problem.goal is not None:
        return layout == problem.goal
    return layout.even or (layout.tail and not problem.even)
