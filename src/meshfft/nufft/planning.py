"""Planning of transforms at scattered points, kept: the one place that builds a plan, and chooses between two.

fine grid    one transform of a fine grid, W^d cells a point, and their exchange
ring         the sum itself, 8 M N flops for M points and N samples, in which only the image travels

Known points are placed on the devices that own their cells, once; a plan of traced points knows their shape alone.
"""

import dataclasses
import functools
import logging

import numpy as np

from ..layout.layout import Layout
from ..operators.operands import Held
from ..plans.execute import tried
from ..plans.plan import Plan
from ..steps.base import Step
from ..walks.walk import Walk
from .dense import dense_plan
from .grid.balance import lend
from .grid.binning import Tables
from .plan import ScatteredPlan
from .points import anywhere
from .post_transform import PostTransform, to_grid, values_layout
from .problem import ScatteredProblem
from .steps import Deconvolve, TileBalance
from .steps.point_step import sub_layout
from .steps.value_exchange import exchange_of

LOG = logging.getLogger("meshfft")


def plan_to_points(problem: ScatteredProblem) -> Plan:
    """The plan from an image to values as the caller has them: by the method asked for, or the cheaper."""
    if problem.method == "kdft":
        return dense_plan(problem)
    gridded = scattered_plan_for(problem).caller if problem.points.known else _traced_plan(problem)
    if problem.method != "auto" or problem.origin != "corner" or problem.machine.chip.side == 1:
        return gridded  # without matrix units no image is so small that its ring is faster
    dense = dense_plan(problem)
    return min(gridded, dense, key=_price) if dense.error <= problem.tol else gridded


def _price(plan: Plan) -> float:
    """Modelled seconds, of unknown machines too."""
    return sum(map(plan.machine.price, plan.walk.works(plan.dtype.itemsize, plan.machine.chip)))


@functools.lru_cache(maxsize=32)
def scattered_plan_for(problem: ScatteredProblem) -> ScatteredPlan:
    """The plan of known points.

    Raises:
        ValueError: points are traced, or there are none.
    """
    points = problem.points
    if not points.known:
        raise ValueError("the points are traced, and a plan places them on the host: make it outside, or use nufftn")
    if points.size == 0:
        raise ValueError(f"points have shape {points.shape}: plan for at least one")
    LOG.info("placing %d points on the grid of a plan", points.size)
    walk, post = to_grid(problem, functools.partial(PostTransform, problem))
    tables, order, balance = _working(post, walk.end)
    slots, load = tables.cell.shape[1], np.count_nonzero(tables.cell[..., 0] >= 0, 1)
    what = (slots, int(load.max()), None if balance is None else balance[0])
    owned = _from_image(walk, post, post.steps(walk.end, *what))
    if (machine := tried(owned, problem.machine, problem.dtype.itemsize)) is not problem.machine:
        return scattered_plan_for(problem._replace(machine=machine))
    in_slots = sub_layout(owned.end, [owned.end.ndim - 1])
    every: list[object] = [tables] if balance is None else [tables, balance[1]]
    last, routes = exchange_of(order, in_slots, values_layout(problem, in_slots), len(every))
    held = tuple(Held(one, problem.mesh, in_slots.axes[0]) for one in (*every, routes))
    return ScatteredPlan(
        problem.plan(dataclasses.replace(owned, steps=(*owned.steps, last)), held),
        *(points, problem.tol, problem.origin, problem.slack, problem.dims),
        *(post.grid, post.window, load, order, _window_alone(post, walk.end, *what)),
        remake=functools.partial(_remade, problem),
    )


def _working(post: PostTransform, layout: Layout) -> tuple[Tables, np.ndarray, tuple[TileBalance, np.ndarray] | None]:
    """Points on the devices that work on them, the slot of each, and how tiles are lent, if they are."""
    placed, dims, halo = post.placed(layout), post.problem.dims, post.reach - 1
    if not post.balanced:
        return placed.tables, placed.order, None
    lent = lend(placed, post.reach, tuple(n + halo for n in sub_layout(layout, dims).block))
    if not lent.rounds:
        return placed.tables, placed.order, None
    rounds = tuple((one.pairs, one.start.shape[1]) for one in lent.rounds)
    places = tuple(tuple(map(int, at)) for at in lent.at)
    step = TileBalance(dims, rounds, tuple(t + halo for t in placed.tile), lent.rows, places, slot=1)
    return lent.tables, lent.order, (step, np.concatenate([one.start for one in lent.rounds], 1))


def _window_alone(post: PostTransform, layout: Layout, slots: int, most: int, balance: TileBalance | None) -> Walk:
    """From points to the fine grid and back, without phases and batch dimensions."""
    bare, dims = sub_layout(layout, post.problem.dims), tuple(range(len(post.grid)))
    balance = None if balance is None else dataclasses.replace(balance, along=dims)
    start = sub_layout(post.problem.start, post.problem.dims)
    post = dataclasses.replace(post, problem=post.problem._replace(start=start, dims=dims))
    there = Walk(bare, post.steps(bare, slots, most, balance, sign=0)[1:])
    back = there.transpose()
    return dataclasses.replace(back, steps=(*back.steps, *there.steps))


def _from_image(walk: Walk, post: PostTransform, behind: tuple[Step, ...]) -> Walk:
    """The walk to a fine grid with what comes before and after it."""
    problem = post.problem
    steps = (Deconvolve(problem.dims, post.grid, post.window), *walk.steps, *behind)
    return Walk(walk.start, steps, problem.scale, walk.planes)


def _remade(problem: ScatteredProblem, **changes: object) -> ScatteredPlan:
    return scattered_plan_for(problem._replace(**changes))  # type: ignore[arg-type]


def _traced_plan(problem: ScatteredProblem) -> Plan:
    """The plan of traced points, of which all but these is kept."""
    walk = _traced_walk(problem._replace(points=anywhere(problem.points)))
    if (machine := tried(walk, problem.machine, problem.dtype.itemsize)) is not problem.machine:
        return _traced_plan(problem._replace(machine=machine))
    return problem.plan(walk, (problem.points,))


@functools.lru_cache(maxsize=32)
def _traced_walk(problem: ScatteredProblem) -> Walk:
    walk, post = to_grid(problem, functools.partial(PostTransform, problem))
    return _from_image(walk, post, post(walk.end))
