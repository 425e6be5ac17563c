"""Planning of transforms at scattered points, by one of two methods. Plans are cached.

fine grid    one transform of a fine grid, W^d cells per point, and the exchange of values
ring         the sum itself: 8 M N flops for M points and N samples; only the image is sent
"""

import dataclasses
import functools
import itertools
import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..layout.layout import Layout, Spec, mapped_axes
from ..layout.memory import check_blocks
from ..numerics.dtypes import check_reached, real_dtype
from ..operators.operands import DeviceTables
from ..plans.execute import tried
from ..plans.inverse_solve import Solution
from ..plans.options import Definition, check_options
from ..plans.plan import Plan
from ..plans.planning import planned
from ..plans.request import Request, Setting
from ..steps.base import Step
from ..steps.problem import Options
from ..steps.sends import wired
from ..walks.choice import moves
from ..walks.walk import Walk
from .grid.balance import lend
from .grid.binning import Tables
from .grid.window import LEAST_TOL
from .inverse import Limits, PointsPlan
from .plan import ScatteredPlan
from .points import Scattered, anywhere
from .post_transform import PostTransform, to_grid, values_layout
from .problem import ScatteredProblem, brought, cuts_along, ordered, points_layout, problem_of
from .steps import Deconvolve, RingPoints, TileBalance
from .steps.known_points import exchange_of

LOG = logging.getLogger("meshfft")


def plan_to_points(problem: ScatteredProblem) -> PointsPlan:
    """The plan from an image to values, by the chosen or cheaper method."""
    if problem.method == "kdft" or problem.points.size == 0:
        plan = ring_plan(problem)
    elif problem.points.known:
        plan = _known_plan(problem)
    else:
        plan = _traced_plan(problem)
    goal, end = problem.values, plan.out_layout
    if goal is None or goal == end or goal.mesh_axes != end.mesh_axes:
        return plan
    onward = moves(end, goal, plan.machine, plan.dtype.itemsize, plan.dots, options=problem.options)
    walk = dataclasses.replace(plan.walk, steps=(*plan.walk.steps, *onward.steps))
    return PointsPlan(*problem.parts(walk, plan.sources))


@functools.lru_cache(maxsize=32)
def scattered_plan_for(problem: ScatteredProblem) -> ScatteredPlan:
    points = problem.points
    if not points.known:
        raise ValueError("the points are traced, and a plan places them on the host: make it outside, or use nufftn")
    if points.size == 0:
        raise ValueError(f"points have shape {points.shape}: plan for at least one")
    walk, post = to_grid(problem)
    assert post is not None
    return _placed_plan(problem, walk, post)


@functools.lru_cache(maxsize=32)
def _known_plan(problem: ScatteredProblem) -> PointsPlan:
    instead = rings(problem)
    if not instead:
        return scattered_plan_for(problem)
    walk, post = to_grid(problem, instead)
    if post is None:
        return PointsPlan(*problem.parts(walk, (problem.points,)))
    return _placed_plan(problem, walk, post)


def _placed_plan(problem: ScatteredProblem, walk: Walk, post: PostTransform) -> ScatteredPlan:
    points = problem.points
    LOG.info("placing %d points on the grid of a plan", points.size)
    tables, order, balance, starts = _working(post, walk.end)
    slots, load = tables.cell.shape[1], np.count_nonzero(tables.cell[..., 0] >= 0, 1)
    what = (slots, post.busy(load), balance)
    owned = _from_image(walk, post, post.steps(walk.end, *what))
    if (machine := tried(owned, problem.machine, problem.dtype.itemsize)) is not problem.machine:
        return scattered_plan_for(problem._replace(machine=machine))
    in_slots = owned.end.along([owned.end.ndim - 1])
    every: list[object] = [tables, *starts]
    how = (problem.machine, problem.dtype.itemsize)
    step, routes = exchange_of(order, owned.end, values_layout(problem, in_slots), len(every), *how)
    last = wired(step, owned.end, problem.machine, problem.wires)
    held = tuple(DeviceTables(one, problem.mesh, in_slots.axes[0]) for one in (*every, routes))
    given = np.argsort(problem.order or problem.dims).tolist()
    return ScatteredPlan(
        *problem.parts(dataclasses.replace(owned, steps=(*owned.steps, last)), held),
        points=ordered(points, given),
        tol=problem.tol,
        origin=problem.origin,
        slack=problem.slack,
        dims=tuple(problem.dims[j] for j in given),
        grid=tuple(post.grid[j] for j in given),
        window=post.window,
        load=load,
        slots=order,
        window_alone=_window_alone(post, walk.end, *what),
        remake=functools.partial(_remade, problem),
    )


def _remade(problem: ScatteredProblem, **changes: Any) -> ScatteredPlan:
    return scattered_plan_for(problem._replace(**changes))


def _working(
    post: PostTransform, layout: Layout
) -> tuple[Tables[np.ndarray], np.ndarray, TileBalance | None, list[np.ndarray]]:
    """Tables of points by working device, slots of points, and any tile exchange with its operand."""
    placed, dims, halo = post.placed(layout), post.problem.dims, post.reach - 1
    if not post.balanced:
        return placed.tables, placed.order, None, []
    lent = lend(placed, post.reach, tuple(n + halo for n in layout.along(dims).block))
    if not lent.rounds:
        return placed.tables, placed.order, None, []
    step = TileBalance(dims, lent.rounds, tuple(t + halo for t in placed.tile), slot=1)
    return lent.tables, lent.order, step, [lent.start]


def _window_alone(post: PostTransform, layout: Layout, slots: int, most: int, balance: TileBalance | None) -> Walk:
    bare, dims = layout.along(post.problem.dims), tuple(range(len(post.grid)))
    balance = None if balance is None else dataclasses.replace(balance, along=dims)
    start = post.problem.start.along(post.problem.dims)
    post = dataclasses.replace(post, problem=post.problem._replace(start=start, dims=dims))
    there = Walk(bare, post.steps(bare, slots, most, balance, sign=0)[1:])
    back = there.transpose()
    return dataclasses.replace(back, steps=(*back.steps, *there.steps)).wired()


def _from_image(walk: Walk, post: PostTransform, behind: tuple[Step, ...]) -> Walk:
    problem = post.problem
    steps = (Deconvolve(problem.dims, post.grid, post.window), *walk.steps, *behind)
    return Walk(walk.start, steps, problem.scale, walk.planes)


def _traced_plan(problem: ScatteredProblem) -> PointsPlan:
    walk = traced_walk(problem._replace(points=anywhere(problem.points)))
    if (machine := tried(walk, problem.machine, problem.dtype.itemsize)) is not problem.machine:
        return _traced_plan(problem._replace(machine=machine))
    return PointsPlan(*problem.parts(walk, (problem.points,)))


@functools.lru_cache(maxsize=32)
def traced_walk(problem: ScatteredProblem) -> Walk:
    walk, post = to_grid(problem, rings(problem))
    return walk if post is None else _from_image(walk, post, post(walk.end))


def rings(problem: ScatteredProblem) -> tuple[Step, ...]:
    """Direct sums that may replace a grid; none without matrix units, where a grid is faster."""
    if problem.method != "auto" or problem.origin != "corner" or problem.machine.chip.side == 1:
        return ()
    steps = _ring_steps(problem._replace(points=anywhere(problem.points)), _unit(problem.points))
    return tuple(step for step in steps if Walk(problem.start, (step,)).error(problem.dtype.itemsize) <= problem.tol)


def ring_plan(problem: ScatteredProblem) -> PointsPlan:
    if problem.origin != "corner" and problem.points.size:
        raise ValueError(f"method 'kdft' has origin 'corner', this is {problem.origin!r}: use method='auto'")
    machine, start, itemsize = problem.machine, problem.start, problem.dtype.itemsize
    steps = _ring_steps(problem._replace(points=anywhere(problem.points)), _unit(problem.points))
    step = min(steps, key=lambda step: machine.price(step.work(start, itemsize, machine.chip)))
    walk = Walk(start, (step,), problem.scale, machine.chip.planes)
    return PointsPlan(*problem.parts(walk, (problem.points,)))


@functools.lru_cache(maxsize=256)
def _ring_steps(problem: ScatteredProblem, unit: str | None) -> list[Step]:
    image, there, ring = problem.start.along(problem.dims), problem.at_points, problem.options.ring
    if there is None or there.mesh_axes != image.mesh_axes:
        there = points_layout(problem.points.shape, cuts_along(problem.start, problem.dims), problem.mesh)
    both = ring == "auto" and problem.machine.network is not None and math.prod(image.parts) > 2
    dots = [dot for dot in problem.dots if dot.tier == problem.dots[0].tier]
    ways = itertools.product(dots, (False, True) if both else (ring == "two-way",))
    steps = [RingPoints(problem.dims, image, there, dot, two_way, unit=unit) for dot, two_way in ways]
    return [wired(step, problem.start, problem.machine, problem.wires) for step in steps]


def _unit(points: Scattered) -> str | None:
    return None if points.known else points.unit


@planned.register(Scattered)
def _planned(points: Scattered, setting: Setting, definition: Definition, options: Options) -> Plan:
    """The sum itself, for `mf.plan`."""
    other = {"s": definition.s, "kind": definition.kind != "fft", "inverse": definition.inverse}
    other |= {"margin": bool(np.any(definition.margin)), "precompute": options.precompute}
    other |= {"modes": definition.modes is not None}
    if wrong := [f"{name}=" for name, given in other.items() if given]:
        raise ValueError(f"Scattered points go without {wrong[0]}: leave it out")
    if options.method not in ("auto", "kdft"):
        raise ValueError(f"Scattered points need dense products: use method='auto' or 'kdft', not {options.method!r}")
    return sum_plan(setting, points, definition.axes, definition.norm, options)


def sum_plan(
    setting: Setting, points: Scattered, axes: Sequence[int] | None, norm: str | None, options: Options
) -> Plan:
    """A plan of the sum itself, for `kdftn`."""
    check_options(options)
    problem = problem_of(setting, points, axes, options._replace(method="kdft"), norm=norm)
    plan = plan_to_points(problem)
    check_reached(options.precision, plan.error, problem.wires.remedy)
    check_blocks(plan.out_layout, real_dtype(problem.dtype).itemsize, setting.room, "the result")
    _check_known(setting, plan.out_layout, options.out_spec)
    return plan


def solved_at_points(
    request: Request,
    points: Scattered,
    sizes: tuple[int, ...],
    axes: Sequence[int] | None,
    norm: str | None,
    options: Options,
    limits: Limits,
) -> Solution:
    setting, off = request.setting, points.log_radius is not None
    limits.check(request.arrays, points, math.prod(sizes), setting.mesh)
    if not off and options.ring != "auto":
        raise ValueError(f"ring is {options.ring!r}, and FFTs solve at points on the unit circle: leave it out")
    options = options._replace(method="kdft" if off else "auto", order="any")
    tol = LEAST_TOL[options.dtype(setting.dtype).name]
    problem = problem_of(setting, points, axes, options, sizes, norm=norm, tol=tol)
    plan = ring_plan(problem) if off else scattered_plan_for(problem)
    return plan.solved(brought(request, plan.out_layout).arrays, limits, request.planes)


def _check_known(setting: Setting, end: Layout, spec: Spec | None) -> None:
    if not mapped_axes(setting.mesh) & setting.start.mesh_axes:
        return
    if spec is not None:
        raise ValueError("out_spec= inside shard_map changes a layout that it has fixed: call outside of shard_map")
    if setting.start.even and not end.even:
        raise ValueError(
            f"the {end.shape} values are not divided by spec {end.spec}, as shard_map wants them: give a number of "
            "points that is, as by repeating the last, or call outside of shard_map"
        )
