"""The steps from an image to a fine grid and on to values at points, chosen together.

    Deconvolve -> a transform to the fine grid -> PhaseShift -> Halo of every dimension -> the points

    known points    TileBalance, if owners are crowded -> Interpolate
    traced points   RingGrid, or with a capacity PointExchange

The device with the most points sets the time, unless devices share cores.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ..layout.layout import Layout
from ..machine.machine import Machine
from ..numerics.dtypes import Dot
from ..numerics.phases import MAX_LENGTH
from ..operators.transform import fast_length, transform_of
from ..steps import Halo
from ..steps.base import Step, reached
from ..steps.problem import Ending, Options, Problem
from ..steps.sends import wired
from ..walks.choice import find_walk, price_of
from ..walks.walk import Walk
from .grid.balance import GOAL
from .grid.binning import Placed, loads, place
from .grid.form import Form, chosen
from .grid.window import Window, window
from .points import anywhere
from .problem import ScatteredProblem, cuts_along, points_layout
from .steps import Interpolate, PhaseShift, PointExchange, RingGrid, TileBalance

GROWTH = 1.07  # allowed growth of a grid that more devices can share
SIGMA = 2.0
LOOSE = 1e-3  # least tolerance for a coarser grid, which magnifies rounding
SIGMAS = (SIGMA, 1.5, 1.25)  # coarser grids, with wider windows, pay in 3-D
MOST_CELLS = MAX_LENGTH  # along a dimension
SPARE = 16  # slots of a pair: with capacity 2, random points on 512 devices need more once in 1e5 sets


@dataclasses.dataclass(frozen=True)
class PostTransform:
    problem: ScatteredProblem
    grid: tuple[int, ...]  # along transformed dimensions
    window: Window
    known: bool  # the points are, though the problem here may have only their number

    def __call__(self, layout: Layout) -> tuple[Step, ...]:
        problem = self.problem
        if not self.known:
            return self._wired(layout, self._traced(layout))
        if not problem.points.known:
            return self.least(layout)
        load = loads(problem.points.in_turns, layout.along(problem.dims), self.form(layout))
        most = math.ceil(min(load.max(), GOAL * load.mean() + 1) if self.balanced else load.max())
        return self.steps(layout, most, min(most, self.busy(load)))

    def least(self, layout: Layout) -> tuple[Step, ...]:
        if not self.known:
            return ()
        mean = self.problem.points.size // math.prod(layout.along(self.problem.dims).parts)
        return self.steps(layout, mean, mean)

    def busy(self, load: np.ndarray) -> int:
        """Points that set the time: those of the fullest device, or the mean if devices share cores."""
        return math.ceil(load.mean() if self.problem.machine.chip.cached else load.max())

    @property
    def balanced(self) -> bool:
        problem = self.problem
        wanted = not problem.machine.chip.cached if problem.balance is None else problem.balance
        return wanted and math.prod(problem.start.parts) > 1

    @property
    def reach(self) -> int:
        return self.window.width + 2 * self.problem.slack

    def form(self, layout: Layout) -> Form:
        block = layout.along(self.problem.dims).block
        return chosen(self.window, self.problem.slack, block, self.problem.machine.gridding)

    def placed(self, layout: Layout) -> Placed:
        problem, cells = self.problem, layout.along(self.problem.dims)
        return place(problem.points.in_turns, problem.middles, cells, self.form(layout), problem.dtype)

    def steps(
        self, layout: Layout, slots: int, most: int, balance: TileBalance | None = None, sign: int = -1
    ) -> tuple[Step, ...]:
        """Steps to `slots` of known points per device, priced for `most`; `sign` 0 leaves out the phases."""
        before, grid = self._onto_halos(layout, balance)
        before = self._wired(layout, before)
        total = slots * math.prod(grid.parts)
        points = Layout((total,), ((),)).cut_by(0, cuts_along(grid, range(grid.ndim)))
        what = (self.grid, self.problem.middles, self.form(layout), most)
        return (*before, Interpolate(self.problem.dims, grid, points, *what, sign=sign))

    def _traced(self, layout: Layout) -> tuple[Step, ...]:
        problem, (before, grid) = self.problem, self._onto_halos(layout)
        values = values_layout(problem, grid)
        kind = "points" if problem.machine.chip.platform == "cpu" else "gather"  # tiles need points sorted on the host
        form = dataclasses.replace(self.form(layout), kind=kind, chunk=1)
        what = (problem.dims, grid, values, self.grid, problem.middles, form)
        if problem.capacity is None:
            return (*before, RingGrid(*what, unit=problem.points.unit))
        mine, devices = math.prod(values.block), math.prod(values.parts)
        slots = min(math.ceil(problem.capacity * mine / devices) + SPARE, mine)
        return (*before, PointExchange(*what, slots=slots, unit=problem.points.unit))

    def _wired(self, layout: Layout, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        pairs = zip(steps, reached(layout, steps), strict=False)
        return tuple(wired(step, at, self.problem.machine, self.problem.wires) for step, at in pairs)

    def _onto_halos(self, layout: Layout, *balance: TileBalance | None) -> tuple[tuple[Step, ...], Layout]:
        """Steps to blocks with halos and lent tiles, and the grid's layout after them."""
        dims = self.problem.dims
        shift = PhaseShift(dims, tuple(n // 2 for n in self.problem.modes), 1)
        steps = (shift, *(Halo(dim, 0, self.reach - 1) for dim in dims), *filter(None, balance))
        for step in steps:
            layout = step.after(layout)
        return steps, layout.along(dims)


def values_layout(problem: ScatteredProblem, grid: Layout) -> Layout:
    """The caller's layout of values if the grid's mesh axes allow it, else a cut along points."""
    there = problem.at_points
    if there is not None and there.mesh_axes == grid.mesh_axes:
        return there
    return points_layout(problem.points.shape, cuts_along(grid, range(grid.ndim)), problem.mesh, ordered=True)


def to_grid(problem: ScatteredProblem, instead: tuple[Step, ...] = ()) -> tuple[Walk, PostTransform | None]:
    """The cheapest walk to a fine grid and on, or a step of `instead`. Where devices share cores, points cost the same
    wherever they are.
    """
    points, known = problem.points, problem.points.known
    walk, post = _to_grid(
        problem._replace(points=anywhere(points)) if problem.machine.chip.cached else problem, known, instead
    )
    return walk, None if post is None else dataclasses.replace(post, problem=problem)


@functools.lru_cache(maxsize=32)
def _to_grid(problem: ScatteredProblem, known: bool, instead: tuple[Step, ...]) -> tuple[Walk, PostTransform | None]:
    sigma, dims, dtype = SIGMA if problem.sigma is None else problem.sigma, len(problem.dims), problem.dtype
    windows = [window(problem.tol, sigma, dims, dtype)]
    for coarser in SIGMAS[1:] if problem.sigma is None and problem.tol >= LOOSE else ():
        with contextlib.suppress(ValueError):  # rounding on the grid misses the tolerance
            windows.append(window(problem.tol, coarser, dims, dtype))
    return min((_on_grid(problem, one, known, instead) for one in windows), key=lambda found: _price(problem, *found))


def _on_grid(
    problem: ScatteredProblem, one: Window, known: bool, instead: tuple[Step, ...]
) -> tuple[Walk, PostTransform | None]:
    follows: dict[tuple[int, ...], PostTransform] = {}

    def ending(grid: tuple[int, ...]) -> PostTransform:
        if max(grid) > MOST_CELLS:
            raise ValueError(
                f"the fine grid {grid} has more than {MOST_CELLS} cells along a dimension: use method='kdft'"
            )
        return follows.setdefault(grid, PostTransform(problem, grid, one, known))

    least = tuple(max(math.ceil(one.sigma * n), 2 * one.width) for n in problem.modes)
    how = (problem.machine, problem.dtype.itemsize, problem.dots, problem.options)
    walk, grid = even_walk(problem.start, problem.dims, least, how, ending, find_walk.__wrapped__, instead)
    if walk.steps[0] in instead:
        return dataclasses.replace(walk, scale=problem.scale), None
    if not _divided(walk, problem.dims):
        raise ValueError(
            f"no layout divides the fine grid {grid} of an image cut as {problem.start.label()}: cut it otherwise"
        )
    return walk, follows[grid]


def _price(problem: ScatteredProblem, walk: Walk, follows: PostTransform | None) -> float:
    whole = dataclasses.replace(walk, steps=(*walk.steps, *(follows(walk.end) if follows else ())))
    return price_of(whole, problem.machine, problem.dtype.itemsize)


def even_walk(
    start: Layout,
    dims: tuple[int, ...],
    least: Sequence[int],
    how: tuple[Machine, int, tuple[Dot, ...], Options],
    ending: Callable[[tuple[int, ...]], Ending],
    find: Callable[[Problem], Walk],
    instead: tuple[Step, ...] = (),
) -> tuple[Walk, tuple[int, ...]]:
    """The cheapest FFT, padded from `least` to fast lengths that its last layout divides."""
    devices = math.prod(start.parts)
    for growth in (1, GROWTH, math.inf):
        sizes = tuple(_shared_length(n, devices, growth) for n in least)
        transform = transform_of(dims, sizes, None, False, "fft")
        walk = find(Problem(start, transform, *how, even=True, ending=ending(sizes), instead=instead))
        if walk.steps[0] in instead or _divided(walk, dims):
            break
    return walk, sizes


def _divided(walk: Walk, dims: tuple[int, ...]) -> bool:
    return all(walk.end.shape[d] == walk.end.storage[d] for d in dims)


def _shared_length(least: int, devices: int, growth: float) -> int:
    """A fast length of at least `least`, divisible by as many devices as `growth` allows."""
    lengths = {m: fast_length(least, m) for m in range(1, devices + 1) if devices % m == 0}
    return lengths[max(m for m, length in lengths.items() if length <= growth * lengths[1])]
