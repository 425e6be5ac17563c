"""The search: the cheapest walk from a layout to the layout wanted, over every step that the method allows.

A node is (layout, dimensions already transformed); an edge is a step, priced in modelled seconds on a chip; Dijkstra's
algorithm finds the shortest path, told by a lower bound what at least lies ahead (A*). Slabs, pencils, blocks, mixed
algorithms, natural or free output order and idle mesh axes are all just paths.
"""

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterator

from .hardware import Chip
from .layout import Cut, Cuts, Layout, even_cuts, nested
from .local import fits_stockham
from .phase import MAX_LENGTH
from .steps import LocalFFT, PhaseFFT, RingDense, Step, Swap
from .steps.phase_fft import PASSES as PHASE_PASSES
from .steps.swap import PASSES as SWAP_PASSES
from .work import Work

METHODS = {
    "auto": (LocalFFT, Swap, RingDense, PhaseFFT),
    "transpose": (LocalFFT, Swap),
    "cooley-tukey": (LocalFFT, PhaseFFT),
    "kdft": (RingDense,),
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a walk has to do.

    Attributes:
        start: the layout the array comes in.
        dims: the dimensions to transform.
        lengths: the transform length N of each, which is also its size afterwards.
        sign: the sign in the exponent.
        method: a key of METHODS.
        goal: the layout wanted, or None for any whose padding, if it has some, lies at the tail.
        even: accept only a final layout without padding.
        in_cache: offer the local engine that works on columns in cache.
    """

    start: Layout
    dims: tuple[int, ...]
    lengths: tuple[int, ...]
    sign: int
    method: str = "auto"
    goal: Layout | None = None
    even: bool = False
    in_cache: bool = True


def search(problem: Problem, chip: Chip, itemsize: int) -> tuple[Step, ...] | None:
    """The steps of the cheapest walk, or None where the method has none."""
    start, ahead = (problem.start, frozenset[int]()), _Ahead(problem, chip, itemsize)
    best, order = {start: 0.0}, itertools.count()
    queue: list = [(0.0, 0.0, next(order), 0.0, start, ())]
    while queue:
        _, _, _, cost, node, path = heapq.heappop(queue)
        if cost > best[node]:
            continue
        layout, done = node
        if len(done) == len(problem.dims) and _wanted(problem, layout):
            return path
        for step in _moves(problem, layout, done):
            after = (step.after(layout), done.union(step.dims))
            price = cost + chip.seconds(step.work(layout, itemsize))
            if price < best.get(after, math.inf):
                best[after], left = price, ahead.seconds(*after)
                heapq.heappush(queue, (price + left, left, next(order), price, after, (*path, step)))
    return None


class _Ahead:
    """A lower bound on the seconds still ahead of a node.

    A dimension still to be transformed costs at least its arithmetic, or a ring. If its outermost cut is the goal's
    own, that cut must leave; and a dimension that lacks a cut of the goal's must be the target of a swap. One swap
    cannot do both, since what leaves home travels outside what returns with it.
    """

    def __init__(self, problem: Problem, chip: Chip, itemsize: int) -> None:
        self.problem = problem
        lengths = dict(zip(problem.dims, problem.lengths, strict=True))
        sizes = [min(n, lengths.get(d, n)) for d, n in enumerate(problem.start.shape)]
        points = math.prod(sizes) // math.prod(problem.start.parts)
        size = points * itemsize
        self.swap = chip.seconds(Work(memory_bytes=SWAP_PASSES * size, sent_bytes=size // 2, all_to_alls=1))
        self.fft = {d: _arithmetic(n, points, size, chip) for d, n in lengths.items()}
        ring = {
            d: Work(matrix_flops=8 * n * points, sent_bytes=size, hops=1, overlapped=True) for d, n in lengths.items()
        }
        phase = chip.seconds(Work(memory_bytes=PHASE_PASSES * size, sent_bytes=size // 2 + size, all_to_alls=1, hops=1))
        self.ring = {d: min(chip.seconds(ring[d]), self.fft[d] + phase) for d in lengths}

    def seconds(self, layout: Layout, done: frozenset[int]) -> float:
        return sum(self._dim(layout, d, d in self.fft and d not in done) for d in range(layout.ndim))

    def _dim(self, layout: Layout, dim: int, todo: bool) -> float:
        goal = self.problem.goal
        cuts, wanted = _real(layout.cuts[dim]), _real(goal.cuts[dim]) if goal is not None else ()
        if not todo:
            return self.swap * (cuts[: len(wanted)] != wanted)
        if not cuts:
            return self.fft[dim] + self.swap * bool(wanted)
        leaves, returns = goal is None or cuts[:1] == wanted[:1], bool(wanted)
        return min(self.fft[dim] + self.swap * (leaves + returns), self.ring[dim])


def _real(cuts: Cuts) -> Cuts:
    """The cuts that cut: an axis of size 1 does not."""
    return tuple(cut for cut in cuts if cut.parts > 1)


def _arithmetic(length: int, points: int, size: int, chip: Chip) -> float:
    """The least seconds any step takes for one dimension."""
    dense = Work(matrix_flops=8 * points * length, memory_bytes=2 * size)
    fast = Work(vector_flops=int(5 * points * math.log2(max(length, 1))), memory_bytes=2 * size)
    return min(chip.seconds(dense), chip.seconds(fast))


def _wanted(problem: Problem, layout: Layout) -> bool:
    if problem.goal is not None:
        return layout == problem.goal
    return layout.even or (layout.tail and not problem.even)


def _moves(problem: Problem, layout: Layout, done: frozenset[int]) -> Iterator[Step]:
    allowed = METHODS[problem.method]
    todo = {d: n for d, n in zip(problem.dims, problem.lengths, strict=True) if d not in done}
    makers: dict[type, Callable] = {LocalFFT: _local, PhaseFFT: _phase, RingDense: _ring, Swap: _swaps}
    for kind in allowed:
        if kind in makers:
            yield from makers[kind](problem, layout, todo)


def _local(problem: Problem, layout: Layout, todo: dict[int, int]) -> Iterator[LocalFFT]:
    """All whole dimensions in one call of XLA, or the first of them by the engine that needs no transpose."""
    whole = tuple(d for d in sorted(todo) if layout.parts[d] == 1)
    if whole:
        lengths = tuple(todo[d] for d in whole)
        yield LocalFFT(whole, problem.sign, lengths, lengths, "xla")
        if problem.in_cache and fits_stockham(layout.block, whole[0], lengths[0]):
            yield LocalFFT(whole[:1], problem.sign, lengths[:1], lengths[:1], "stockham")


def _phase(problem: Problem, layout: Layout, todo: dict[int, int]) -> Iterator[PhaseFFT]:
    for dim, length in todo.items():
        parts, nested_ = layout.parts[dim], nested(layout.cuts[dim])
        if parts > 1 and layout.shape[dim] == length and length % parts**2 == 0 and nested_ and length < MAX_LENGTH:
            yield PhaseFFT(dim, problem.sign)


def _ring(problem: Problem, layout: Layout, todo: dict[int, int]) -> Iterator[RingDense]:
    for dim, length in todo.items():
        if length < MAX_LENGTH:
            yield RingDense(dim, problem.sign, length, length, layout.resize(dim, length).cuts[dim])


def _swaps(problem: Problem, layout: Layout, todo: dict[int, int]) -> Iterator[Swap]:
    """Axes leave a dimension that is still to be transformed, or where the goal does not want them."""
    for source, cuts in enumerate(layout.cuts):
        for first in range(0 if source in todo else _settled(problem, source, cuts), len(cuts)):
            if nested(cuts[first:]) and _real(cuts[first:]):
                for target in _targets(problem, layout, source, todo):
                    yield from _leaving(problem, layout, source, target, cuts[first:])


def _targets(problem: Problem, layout: Layout, source: int, todo: dict[int, int]) -> list[int]:
    """Where axes may go; those that need not come back should move once, so not onto a cut dimension still to open."""
    others = [d for d in range(layout.ndim) if d != source]
    free = [d for d in others if d not in todo or layout.parts[d] == 1]
    return others if problem.goal is not None else free or others


def _settled(problem: Problem, dim: int, cuts: Cuts) -> int:
    """How many cuts of a dimension, from the outermost, may stay:

    those the goal has, or without a goal all in one row.
    """
    if problem.goal is None:
        return max(j for j in range(len(cuts) + 1) if nested(cuts[:j]))
    pairs = zip(cuts, problem.goal.cuts[dim], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _leaving(problem: Problem, layout: Layout, source: int, target: int, moved: Cuts) -> Iterator[Swap]:
    """Equal blocks in the target, or the very cuts the goal has there: they differ where sizes do not divide."""
    equal = even_cuts(layout.block[target], [(cut.axis, cut.parts) for cut in moved])
    yield Swap(source, target, equal)
    if problem.goal is not None:
        begun, wanted = layout.cuts[target], problem.goal.cuts[target]
        last: tuple[Cut, ...] = wanted[len(begun) : len(begun) + len(moved)]
        if wanted[: len(begun)] == begun and [c.axis for c in last] == [c.axis for c in moved] and last != equal:
            if nested(last) and layout.block[target] <= last[0].parts * last[0].span:
                yield Swap(source, target, last)
