"""Planning of transforms at scattered points, and the choice between two methods. Plans are cached.

fine grid    one transform of a fine grid, W^d cells per point, and the exchange of values
ring         the sum itself: 8 M N flops for M points and N samples; only the image is sent

The host places concrete points on the devices that own their cells. A plan of traced points depends on their shape.
"""

import dataclasses
import functools
import itertools
import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..layout.layout import Layout, Spec, axis_sizes, mapped_axes
from ..layout.memory import check_blocks
from ..layout.padded_array import Transformed
from ..numerics.dtypes import check_reached, real_dtype
from ..operators.operands import Held
from ..operators.transform import factor, resolve_once
from ..plans.execute import tried
from ..plans.options import Options
from ..plans.plan import Plan
from ..plans.request import Request, Setting
from ..steps.base import Step
from ..walks.choice import NOTHING, goal_of, moves
from ..walks.walk import Walk
from .grid.balance import lend
from .grid.binning import Tables
from .plan import ScatteredPlan
from .points import Scattered, anywhere
from .post_transform import PostTransform, to_grid, values_layout
from .problem import ScatteredProblem, points_layout
from .steps import Deconvolve, RingPoints, TileBalance
from .steps.known_points import exchange_of
from .steps.point_step import sub_layout

LOG = logging.getLogger("meshfft")


def plan_to_points(problem: ScatteredProblem) -> Plan:
    """Plan from an image to values in the caller's layout, by the requested method or the cheaper one."""
    if problem.method == "kdft":
        return dense_plan(problem)
    gridded = scattered_plan_for(problem).caller if problem.points.known else _traced_plan(problem)
    if problem.method != "auto" or problem.origin != "corner" or problem.machine.chip.side == 1:
        return gridded  # without matrix units the ring is never faster
    dense = dense_plan(problem)
    return min(gridded, dense, key=_price) if dense.error <= problem.tol else gridded


def _price(plan: Plan) -> float:
    return sum(map(plan.machine.price, plan.walk.works(plan.dtype.itemsize, plan.machine.chip)))


@functools.lru_cache(maxsize=32)
def scattered_plan_for(problem: ScatteredProblem) -> ScatteredPlan:
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
    """Tables of points by working device, the slot of each point, and the tile exchange if tiles are lent."""
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
    """Walk from points to the fine grid and back, without phases and batch dimensions."""
    bare, dims = sub_layout(layout, post.problem.dims), tuple(range(len(post.grid)))
    balance = None if balance is None else dataclasses.replace(balance, along=dims)
    start = sub_layout(post.problem.start, post.problem.dims)
    post = dataclasses.replace(post, problem=post.problem._replace(start=start, dims=dims))
    there = Walk(bare, post.steps(bare, slots, most, balance, sign=0)[1:])
    back = there.transpose()
    return dataclasses.replace(back, steps=(*back.steps, *there.steps))


def _from_image(walk: Walk, post: PostTransform, behind: tuple[Step, ...]) -> Walk:
    problem = post.problem
    steps = (Deconvolve(problem.dims, post.grid, post.window), *walk.steps, *behind)
    return Walk(walk.start, steps, problem.scale, walk.planes)


def _remade(problem: ScatteredProblem, **changes: object) -> ScatteredPlan:
    return scattered_plan_for(problem._replace(**changes))  # type: ignore[arg-type]


def _traced_plan(problem: ScatteredProblem) -> Plan:
    walk = _traced_walk(problem._replace(points=anywhere(problem.points)))
    if (machine := tried(walk, problem.machine, problem.dtype.itemsize)) is not problem.machine:
        return _traced_plan(problem._replace(machine=machine))
    return problem.plan(walk, (problem.points,))


@functools.lru_cache(maxsize=32)
def _traced_walk(problem: ScatteredProblem) -> Walk:
    walk, post = to_grid(problem, functools.partial(PostTransform, problem))
    return _from_image(walk, post, post(walk.end))


def dense_plan(problem: ScatteredProblem) -> Plan:
    """Plan of the dense sum on one ring. Values have the caller's layout if its mesh axes allow."""
    start, dims, values = problem.start, problem.dims, problem.values
    if problem.origin != "corner":
        raise ValueError(f"method 'kdft' has origin 'corner', this is {problem.origin!r}: use method='auto'")
    goal = None
    if values is not None and values.mesh_axes == sub_layout(start, dims).mesh_axes:
        goal = _batch(start, dims) + values
    return _ring_plan(problem._replace(method="kdft"), goal, "auto")


def _ring_plan(problem: ScatteredProblem, goal: Layout | None, ring: str) -> Plan:
    points = problem.points
    unit = None if points.known else points.unit
    return problem.plan(_ring_walk(problem._replace(points=anywhere(points)), unit, goal, ring), (points,))


@functools.lru_cache(maxsize=256)
def _ring_walk(problem: ScatteredProblem, unit: str | None, goal: Layout | None, ring: str) -> Walk:
    start, machine, dims, itemsize = problem.start, problem.machine, problem.dims, problem.dtype.itemsize
    image, batch = sub_layout(start, dims), start.ndim - len(dims)
    points = _points_of(problem)
    if goal is not None and sub_layout(goal, range(batch, goal.ndim)).mesh_axes == points.mesh_axes:
        points = sub_layout(goal, range(batch, goal.ndim))
    both = ring == "auto" and machine.network is not None and math.prod(image.parts) > 2
    ways = itertools.product(problem.dots, (False, True) if both else (ring == "two-way",))
    steps = [RingPoints(dims, image, points, dot, two_way, unit=unit) for dot, two_way in ways]
    step = min(steps, key=lambda step: machine.price(step.work(start, itemsize, machine.chip)))
    walk = Walk(start, (step,), problem.scale, machine.chip.planes)
    if goal is None or walk.end == goal:
        return walk
    onward = moves(walk.end, goal, machine, itemsize, problem.dots)
    return dataclasses.replace(walk, steps=(step, *onward.steps))


def _points_of(problem: ScatteredProblem) -> Layout:
    cuts = [problem.start.cuts[d] for d in problem.dims]
    return points_layout(problem.points.shape, [cut[:2] for by in cuts for cut in by], problem.mesh)


def _batch(start: Layout, dims: Sequence[int]) -> Layout:
    return sub_layout(start, [d for d in range(start.ndim) if d not in dims])


def no_values(request: Request, dims: Sequence[int], shape: tuple[int, ...], dtype: np.dtype) -> Any:
    return request.zeros(_batch(request.setting.start, dims) + Layout(shape, ((),) * len(shape)), dtype)


def at_points(
    request: Request, points: Scattered, axes: Sequence[int] | None, norm: str | None, options: Options
) -> Transformed:
    options.check()
    if options.wire != "exact":
        raise ValueError(f"wire is {options.wire!r}, and Scattered points send exactly: leave it out")
    setting, points = request.setting, points.settled
    start, machine, spec = setting.start, setting.machine, options.out_spec
    dims = _dims(start.shape, points, axes)
    dtype, dots = options.dtype(setting.dtype), options.dots(setting.dtype, machine.chip.unit)
    if 0 in (start.shape[d] for d in dims):
        raise ValueError(f"shape {start.shape} has a size of 0: give images with samples")
    if points.size == 0:
        return no_values(request, dims, points.shape, dtype)
    factor(1, norm, False)
    problem = ScatteredProblem(start, dims, points, setting.mesh, machine, dtype, dots, norm=norm, method="kdft")
    natural, sizes = _batch(start, dims) + _points_of(problem), axis_sizes(setting.mesh)
    plan = _ring_plan(problem, goal_of(natural, NOTHING, "natural", spec, sizes), options.ring)
    check_reached(options.precision, plan.error)
    check_blocks(plan.out_layout, real_dtype(dtype).itemsize, setting.room, "the result")
    _check_known(setting, plan.out_layout, spec)
    return plan.execute(request)


def _dims(shape: tuple[int, ...], points: Scattered, axes: Sequence[int] | None) -> tuple[int, ...]:
    if axes is None and points.dims <= len(shape):
        return tuple(range(len(shape) - points.dims, len(shape)))
    dims, _ = resolve_once(shape, None, axes)
    if len(dims) != points.dims:
        raise ValueError(
            f"the points have {points.dims} coordinates, for {len(dims)} axes of an array of shape {shape}: give one "
            "coordinate for each axis"
        )
    return dims


def _check_known(setting: Setting, end: Layout, spec: Spec | None) -> None:
    """Raises ValueError if values inside a caller's shard_map have a layout that its out_specs cannot describe."""
    if not mapped_axes(setting.mesh) & setting.start.mesh_axes:
        return
    if spec is not None:
        raise ValueError("out_spec= inside shard_map changes a layout that it has fixed: call outside of shard_map")
    if setting.start.even and not end.even:
        raise ValueError(
            f"the {end.shape} values are not divided by spec {end.spec}, as shard_map wants them: give a number of "
            "points that is, as by repeating the last, or call outside of shard_map"
        )
