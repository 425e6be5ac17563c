"""The search: the cheapest walk between two layouts over every step of a method.

A node is (layout, dimensions transformed), an edge a step priced in modelled seconds. Dijkstra's algorithm, with a
lower bound on the remaining cost (A*), finds the shortest path; slabs, pencils, blocks and mixed algorithms are all
paths. Steps after a transform, such as interpolation, are priced at each final layout; a step that does all at once is
compared with the paths.
"""

import bisect
import dataclasses
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterator

from ..layout.layout import Cuts, Layout, real_cuts
from ..operators.matrices import Matrix
from ..steps import Exchange, InPlace, KeptDense, PhaseFFT, Pipeline, RingDense, SixStep
from ..steps.base import Step, reached
from ..steps.local_fft import LocalFFT, LocalTrig
from ..steps.problem import Problem, ready
from ..steps.real_fft import PackedFFT, RealFFT
from ..steps.rows import Band, Bands
from ..steps.sends import wired

LOCAL = (LocalFFT, RealFFT, LocalTrig)
METHODS: dict[str, tuple[type[Step], ...]] = {
    "auto": (*LOCAL, Exchange, InPlace, Pipeline, RingDense, KeptDense, PhaseFFT, SixStep, PackedFFT),
    "transpose": (*LOCAL, Exchange, InPlace, Pipeline),
    "cooley-tukey": (*LOCAL, PhaseFFT, PackedFFT),
    "kdft": (RingDense, KeptDense, Exchange),
}
WHOLE = (SixStep, PackedFFT)  # their dimension must have its matrix's length; it may be padded or cropped first
BUDGET = 20_000  # edges
LAST = 1e6  # seconds for a step whose transpose leads elsewhere, so that gradients fail
DEEP = 1e9  # seconds for each dimension left, without a budget
Node = tuple[Layout, frozenset[int]]
Path = tuple[Step, ...]


def search(problem: Problem, count: int = 1) -> list[Path]:
    """Steps of at most `count` walks, cheapest first; of walks with equal prices, only one. Steps that exceed a
    device's memory are a last resort. With too many edges (four dimensions over three mesh axes) the bound is weighted
    more, and walks are good rather than best.
    """
    capacity = problem.machine.chip.capacity
    for memory in (math.inf,) if capacity is None else (capacity.value, math.inf):
        for weight, budget in ((1, BUDGET), (3, BUDGET), (10, BUDGET), (10, math.inf)):
            found = _search(problem, memory, weight, budget, count)
            if found:
                return found
            if found is not None:
                break
    return []


class _Cheapest:
    """The `count` lowest prices of each node, no two alike."""

    def __init__(self, count: int) -> None:
        self.count, self.prices = count, dict[object, list[float]]()

    def most(self, node: object) -> float:
        prices = self.prices.get(node, [])
        return prices[-1] if len(prices) == self.count else math.inf

    def admit(self, node: object, price: float) -> bool:
        prices = self.prices.setdefault(node, [])
        if price >= self.most(node) or (self.count > 1 and any(math.isclose(price, one) for one in prices)):
            return False
        bisect.insort(prices, price)
        del prices[self.count :]
        return True


def _search(problem: Problem, memory: float, weight: float, budget: float, count: int) -> list[Path] | None:
    """The walks; None if they take more edges than the budget."""
    start, ahead = (problem.start, frozenset[int]()), functools.cache(functools.partial(_Ahead, problem))
    renames = problem.goal is None and problem.machine.network is None
    alike: Callable[[Node], object] = _renamed if renames else lambda node: node
    cheapest, order, found = _Cheapest(count), itertools.count(), _at_once(problem, memory)
    cheapest.admit(alike(start), 0.0)
    queue: list[tuple[float, float, int, float, Node, Path]] = [(0.0, 0.0, next(order), 0.0, start, ())]
    while queue and queue[0][0] < (most := found[count - 1][0] if len(found) >= count else math.inf):
        _, _, _, cost, node, path = heapq.heappop(queue)
        if cost > cheapest.most(alike(node)):
            continue
        layout, done = node
        todo = problem.todo(done)
        if not todo and _wanted(problem, layout):
            price = _ended(problem, layout, cost, most)
            if price < most and not any(math.isclose(price, one) for one, _ in found):
                found = sorted([*found, (price, path)], key=operator.itemgetter(0))[:count]
            if problem.ending is None:
                continue
        itemsize = problem.bytes_at(todo)
        for step in offered(problem, layout, todo):
            budget -= 1
            if budget < 0:
                return [path for _, path in found] if found and count > 1 else None
            after = (step.after(layout), done.union(step.dims))
            if cheapest.most(key := alike(after)) <= cost:
                continue  # no step is cheaper than nothing
            work = step.work(layout, itemsize, problem.machine.chip)
            if work.peak_bytes > memory:
                continue
            price = cost + problem.machine.price(work) + LAST * (not _returns(problem, layout, after[0]))
            if cheapest.admit(key, price) and not (count > 1 and after in _nodes(problem, path)):
                left = ahead(after[0].shape).seconds(*after)
                first = price + weight * left + (DEEP * len(problem.todo(after[1])) if budget == math.inf else 0)
                heapq.heappush(queue, (first, left, next(order), price, after, (*path, step)))
    return [path for _, path in found]


def _returns(problem: Problem, layout: Layout, after: Layout) -> bool:
    """Whether the transposed step leads back."""
    return all(layout.shape[d] == after.shape[d] or _is_cut_back(problem, layout, d) for d in range(layout.ndim))


def _is_cut_back(problem: Problem, layout: Layout, dim: int) -> bool:
    """Whether a resized dimension gets these cuts again: resizing cuts evenly. The start's are not refused."""
    return layout.cuts[dim] in (problem.start.cuts[dim], layout.cut_by(dim, layout.cuts[dim]).cuts[dim])


def _nodes(problem: Problem, path: Path) -> set[Node]:
    """A path's nodes; a path back to one is no new walk."""
    done = itertools.accumulate(path, lambda done, step: done.union(step.dims), initial=frozenset[int]())
    return set(zip(reached(problem.start, path), done, strict=True))


def _ended(problem: Problem, layout: Layout, cost: float, most: float) -> float:
    """The price with the steps after the transform; if it is `most` or more, a lower bound."""
    if problem.ending is None:
        return cost
    cheap = getattr(problem.ending, "least", problem.ending)  # a bound: steps for known points count them
    least = cost + _price(problem, layout, cheap(layout))
    return least if least >= most else cost + _price(problem, layout, problem.ending(layout))


def _at_once(problem: Problem, memory: float) -> list[tuple[float, Path]]:
    """The cheapest step straight to the end, and its price."""
    works = [(step.work(problem.start, problem.itemsize, problem.machine.chip), step) for step in problem.instead]
    prices: list[tuple[float, Path]]
    prices = [(problem.machine.price(work), (step,)) for work, step in works if work.peak_bytes <= memory]
    return sorted(prices, key=operator.itemgetter(0))[:1]


def _renamed(node: Node) -> object:
    """A key for nodes that differ only in axis names, which cost the same without a goal and a network."""
    layout, done = node
    names = dict[str, int]()
    cuts = [[(names.setdefault(cut.axis, len(names)), cut.parts, cut.span) for cut in one] for one in layout.cuts]
    return layout.shape, tuple(map(tuple, cuts)), done


def offered(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Step]:
    """Steps from a layout; after padding or cropping a dimension, only those that needed it."""
    waiting = {dim: matrix for dim, matrix in todo.items() if layout.shape[dim] != problem.start.shape[dim]}
    machine, wires = problem.machine, problem.wires
    for kind in METHODS[problem.options.method]:
        if not waiting or kind in WHOLE:
            yield from (wired(step, layout, machine, wires) for step in kind.offers(problem, layout, waiting or todo))
        if not waiting and kind in WHOLE:
            yield from _pads(kind, problem, layout, todo)
    if not waiting:
        yield from _evened(problem, layout, todo)


def _evened(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Bands]:
    """Bands that cut dimensions evenly, which steps that change their sizes then lead back to."""
    for dim, matrix in ready(todo).items():
        n = layout.shape[dim]
        if matrix.rows != n and not _is_cut_back(problem, layout, dim):
            yield Bands(dim, n, layout.cut_by(dim, layout.cuts[dim]).cuts[dim], (Band(0, 0, n),))


def _pads(kind: type[Step], problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Bands]:
    """Bands that pad or crop a cut dimension to its matrix's columns, for steps of this kind. Not for half spectra."""
    for dim, matrix in ready(todo).items():
        old, new = layout.shape[dim], matrix.columns
        if old != new and layout.parts[dim] > 1 and matrix.becomes != "real":
            padded = layout.resize(dim, new)
            if any(True for _ in kind.offers(problem, padded, {dim: matrix})):
                yield Bands(dim, new, padded.cuts[dim], (Band(0, 0, min(old, new)),))


def _wanted(problem: Problem, layout: Layout) -> bool:
    if problem.goal is not None:
        return layout == problem.goal
    return layout.even or (layout.tail and not problem.even)


def _price(problem: Problem, layout: Layout, steps: Path) -> float:
    itemsize, chip = problem.bytes_at({}), problem.machine.chip
    works = (step.work(at, itemsize, chip) for step, at in zip(steps, reached(layout, steps), strict=False))
    return sum(map(problem.machine.price, works))


class _Ahead:
    """A lower bound on the remaining seconds at a node.

    A dimension to be transformed costs at least its arithmetic, or a ring. If its outermost cut is the goal's, that cut
    must leave; a cut that only the goal has must arrive. One move cannot do both, because leaving axes would lie
    outside the arriving ones.
    """

    def __init__(self, problem: Problem, shape: tuple[int, ...]) -> None:
        chip, dims = problem.machine.chip, problem.transform.dims
        self.problem, self.at_once = problem, chip.cached or chip.switched
        problem = dataclasses.replace(problem, start=Layout(shape, problem.start.cuts))
        self.growth = {d: max(problem.least_rows[d] / max(shape[d], 1), 1.0) for d in dims}
        least = [kind.least(problem) for kind in dict.fromkeys(itertools.chain(*METHODS.values()))]
        moving = [one for one in least if one.move < math.inf]
        self.move, self.strided = min(one.move for one in moving), min(one.strided for one in moving)
        self.single = all(one.single for one in moving)
        self.local = {d: min(one.local.get(d, math.inf) for one in least) for d in dims}
        self.cut = {d: min(one.cut.get(d, math.inf) for one in least) for d in dims}

    def seconds(self, layout: Layout, done: frozenset[int]) -> float:
        dims = [(d, d in self.local and d not in done) for d in range(layout.ndim)]
        if not self.at_once:
            return sum(self._dim(layout, d, todo) for d, todo in dims)
        local = {d: self.local[d] for d, todo in dims if todo}
        cut = [d for d in local if real_cuts(layout.cuts[d])]
        ways = itertools.chain(*(itertools.combinations(cut, rings) for rings in range(len(cut) + 1)))
        return min(
            self._total(local | {d: self.cut[d] for d in rings}) + self._moves(layout, set(cut) - set(rings), rings)
            for rings in ways
        )

    def _total(self, seconds: dict[int, float]) -> float:
        """Seconds for several dimensions in sequence; one that grows adds lines to later ones."""
        lines = itertools.accumulate(sorted(self.growth[d] for d in seconds), operator.mul, initial=1.0)
        return sum(map(operator.mul, sorted(seconds.values(), reverse=True), lines))

    def _moves(self, layout: Layout, opened: set[int], rings: Collection[int]) -> float:
        """Exchanges that open some dimensions, and cut them again as the goal does. A single one cannot open all, and
        opens at most one if it moves only one dimension's axes.
        """
        last, goal = layout.ndim - 1, self.problem.goal
        cuts = [*map(real_cuts, layout.cuts)]
        wanted = cuts if goal is None else [*map(real_cuts, goal.cuts)]
        differs = cuts[last] != wanted[last]
        if not opened:
            return 0.0 if rings or cuts == wanted else self._recuts(cuts, wanted) * self.move + differs * self.strided
        returns = [goal is not None and bool(wanted[d]) for d in opened]
        count = 2 + all(returns) if len(opened) == layout.ndim > 1 else 1 + any(returns)
        if self.single:
            count = max(count, len(opened) + all(returns))
        opens, elsewhere = last in opened, set(range(last)) - opened
        closes = goal is not None and bool(wanted[last]) and (opens or differs)
        if opens or closes or elsewhere or (len(opened) > 1 and goal is not None and not all(returns)):
            return count * self.move + (opens + closes) * self.strided
        through = (1 + (goal is not None)) * self.strided  # the last dimension, or one more exchange
        return count * self.move + (min(through, self.move) if len(opened) > 1 else through)

    def _recuts(self, cuts: list[Cuts], wanted: list[Cuts]) -> int:
        """Exchanges, each onto one dimension or from one."""
        axes = [({cut.axis for cut in old}, {cut.axis for cut in new}) for old, new in zip(cuts, wanted, strict=True)]
        lose, gain = sum(1 for old, new in axes if old - new), sum(1 for old, new in axes if new - old)
        return max(lose, gain, 1) if self.single else 1 + (min(lose, gain) > 1)

    def _dim(self, layout: Layout, dim: int, todo: bool) -> float:
        goal = self.problem.goal
        cuts, wanted = real_cuts(layout.cuts[dim]), real_cuts(goal.cuts[dim]) if goal is not None else ()
        if not todo:
            return self.move * (cuts[: len(wanted)] != wanted)
        if not cuts:
            return self.local[dim] + self.move * bool(wanted)
        leaves, returns = goal is None or cuts[:1] == wanted[:1], bool(wanted)
        return min(self.local[dim] + self.move * (leaves + returns), self.cut[dim])
