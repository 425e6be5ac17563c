"""The search: the cheapest walk from a layout to the layout wanted, over every step that the method allows.

A node is (layout, dimensions already transformed); an edge is a step, priced in modelled seconds on a chip; Dijkstra's
algorithm finds the shortest path, told by a lower bound what at least lies ahead (A*). Slabs, pencils, blocks, mixed
algorithms, natural or free output order and idle mesh axes are all just paths.
"""

import contextlib
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterator

from .arguments import Transform
from .hardware import Chip
from .layout import Cut, Cuts, Layout, even_cuts, nested
from .local import fits_stockham
from .matrices import Matrix, Roots
from .phase import MAX_LENGTH
from .steps import LocalFFT, PhaseFFT, RingDense, Step, Swap
from .steps.phase_fft import PASSES as PHASE_PASSES
from .steps.swap import PASSES as SWAP_PASSES
from .tiers import Dot
from .work import Work

BUDGET = 50_000  # edges, about a second


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a walk has to do, and on what.

    Attributes:
        start: the layout the array comes in.
        transform: the dimensions, and the matrix along each.
        method: a key of METHODS.
        goal: the layout wanted, or None for any whose padding, if it has some, lies at the tail.
        even: accept only a final layout without padding.
        chip: the rates that price a step.
        itemsize: bytes of one element.
        dots: the ways to multiply that the precision asked for allows.
    """

    start: Layout
    transform: Transform
    method: str
    goal: Layout | None
    even: bool
    chip: Chip
    itemsize: int
    dots: tuple[Dot, ...]

    def seconds(self, step: Step, layout: Layout) -> float:
        """The modelled price of a step."""
        return self.chip.seconds(step.work(layout, self.itemsize))

    def todo(self, done: frozenset[int]) -> dict[int, Matrix]:
        """The dimensions still to be transformed, with their matrices."""
        pairs = zip(self.transform.dims, self.transform.matrices, strict=True)
        return {dim: matrix for dim, matrix in pairs if dim not in done}


def search(problem: Problem) -> tuple[Step, ...] | None:
    """The steps of the cheapest walk, or None where the method has none.

    Takes milliseconds for three dimensions. The nodes are all the ways to lay axes out over dimensions: where they are
    too many (five dimensions over four mesh axes), the bound is weighted more and more, and the walk found is good
    rather than best.
    """
    for weight in (1, 3, 10):
        with contextlib.suppress(_TooManyError):
            return _search(problem, weight, BUDGET)
    return _search(problem, 100, math.inf)


class _TooManyError(Exception):
    """More edges than the budget."""


def _search(problem: Problem, weight: float, budget: float) -> tuple[Step, ...] | None:
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
        for step in moves(problem, layout, problem.todo(done)):
            budget -= 1
            if budget < 0:
                raise _TooManyError
            after = (step.after(layout), done.union(step.dims))
            price = cost + problem.seconds(step, layout)
            if price < best.get(after, math.inf):
                best[after], left = price, ahead.seconds(*after)
                heapq.heappush(queue, (price + weight * left, left, next(order), price, after, (*path, step)))
    return None


class _Ahead:
    """A lower bound on the seconds still ahead of a node.

    A dimension still to be transformed costs at least its arithmetic, or a ring. If its outermost cut is the goal's
    own, that cut must leave; and a dimension that lacks a cut of the goal's must be the target of a swap. One swap
    cannot do both, since what leaves home travels outside what returns with it.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.todo = problem, problem.todo(frozenset())
        sizes = [min(n, self.todo[d].rows) if d in self.todo else n for d, n in enumerate(problem.start.shape)]
        self.points = math.prod(sizes) // math.prod(problem.start.parts)
        self.bytes, self.chip = self.points * problem.itemsize, problem.chip
        self.swap = self._least(memory_bytes=SWAP_PASSES * self.bytes, sent_bytes=self.bytes // 2, all_to_alls=1)
        self.dense = min(dot.flops for dot in problem.dots)
        self.fft = {dim: self._arithmetic(matrix) for dim, matrix in self.todo.items()}
        self.ring = {dim: self._rings(matrix) for dim, matrix in self.todo.items()}

    def _least(self, **counts: int) -> float:
        return self.chip.seconds(Work(overlapped="matrix_flops" in counts, **counts))

    def _arithmetic(self, matrix: Matrix) -> float:
        """The least seconds any step takes for one dimension."""
        passes, log = {"memory_bytes": 2 * self.bytes}, math.log2(max(matrix.rows, 1))
        dense = self._least(matrix_flops=self.dense * self.points * matrix.rows, **passes)
        return min(dense, self._least(vector_flops=int(5 * self.points * log), **passes)) if matrix.whole else dense

    def _rings(self, matrix: Matrix) -> float:
        """The least seconds of a dimension that stays cut, over two shards."""
        dense = self._least(matrix_flops=self.dense * self.points * matrix.rows, sent_bytes=self.bytes, hops=1)
        sent, memory = self.bytes // 2 + self.bytes, (PHASE_PASSES - 2) * self.bytes
        phase = self._arithmetic(matrix) + self._least(memory_bytes=memory, sent_bytes=sent, hops=1)
        return min(dense, phase) if matrix.whole else dense

    def seconds(self, layout: Layout, done: frozenset[int]) -> float:
        return sum(self._dim(layout, d, d in self.todo and d not in done) for d in range(layout.ndim))

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


def _wanted(problem: Problem, layout: Layout) -> bool:
    if problem.goal is not None:
        return layout == problem.goal
    return layout.even or (layout.tail and not problem.even)


def moves(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Step]:
    """The steps that may be taken from a layout."""
    for offered in METHODS[problem.method]:
        yield from offered(problem, layout, todo)


def _local(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[LocalFFT]:
    """All whole dimensions in one call of XLA, or the first of them by the engine that needs no transpose."""
    roots = {d: m for d, m in sorted(todo.items()) if isinstance(m, Roots) and m.whole and layout.parts[d] == 1}
    if roots:
        dims, lengths = tuple(roots), tuple(m.length for m in roots.values())
        sign = next(iter(roots.values())).sign
        yield LocalFFT(dims, sign, lengths, lengths, "xla")
        if problem.chip.cached and fits_stockham(layout.block, dims[0], lengths[0]):
            yield LocalFFT(dims[:1], sign, lengths[:1], lengths[:1], "stockham")


def _phase(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[PhaseFFT]:
    for dim, matrix in todo.items():
        parts, size = layout.parts[dim], layout.shape[dim]
        fits = nested(layout.cuts[dim]) and size == matrix.rows < MAX_LENGTH
        if isinstance(matrix, Roots) and matrix.whole and fits and parts > 1 and size % parts**2 == 0:
            yield PhaseFFT(dim, matrix.sign, size)


def _ring(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[RingDense]:
    for dim, matrix in todo.items():
        slot = None if matrix.row_axis is None else problem.transform.dims.index(dim)
        if max(matrix.rows, matrix.columns) < MAX_LENGTH:
            for dot in problem.dots:
                yield RingDense(dim, matrix, matrix.rows, layout.resize(dim, matrix.rows).cuts[dim], dot, slot)


def _swaps(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Swap]:
    """Axes leave a dimension that is still to be transformed, or where the goal does not want them."""
    for source, cuts in enumerate(layout.cuts):
        for first in range(0 if source in todo else _settled(problem, source, cuts), len(cuts)):
            if nested(cuts[first:]) and _real(cuts[first:]):
                for target in _targets(problem, layout, source, todo):
                    yield from _leaving(problem, layout, source, target, cuts[first:])


def _evasions(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Swap]:
    """Axes may leave only where the result would not divide as it came."""
    return _swaps(problem, layout, todo) if problem.even and problem.goal is None else iter(())


def _targets(problem: Problem, layout: Layout, source: int, todo: dict[int, Matrix]) -> list[int]:
    """Where axes may go. A plain transpose sends least: axes that need not come back move once, so not onto a cut
    dimension that is still to be opened."""
    others = [d for d in range(layout.ndim) if d != source]
    free = [d for d in others if d not in todo or layout.parts[d] == 1]
    return free or others if problem.goal is None and problem.method == "transpose" else others


def _settled(problem: Problem, dim: int, cuts: Cuts) -> int:
    """How many outer cuts of a dimension may stay, which are those of the goal, or without one all that nest."""
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


Offer = Callable[[Problem, Layout, dict[int, Matrix]], Iterator[Step]]
METHODS: dict[str, tuple[Offer, ...]] = {
    "auto": (_local, _swaps, _ring, _phase),
    "transpose": (_local, _swaps),
    "cooley-tukey": (_local, _phase),
    "kdft": (_ring, _evasions),
}
