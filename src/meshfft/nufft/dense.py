"""The paper's transform at scattered points: a walk of one dense ring, which leaves the values with their points."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..layout.layout import Layout, Spec, axis_sizes, from_spec, mapped_axes
from ..layout.memory import check_blocks
from ..numerics.dtypes import Precision, check_reached, complex_dtype, dots_of, real_dtype
from ..operators.transform import factor, resolve_once
from ..plans.plan import Plan
from ..plans.request import Request, Setting
from ..steps.problem import RINGS
from ..walks.choice import moves
from ..walks.walk import Walk
from .points import Scattered, anywhere
from .problem import ScatteredProblem, points_layout
from .steps import RingPoints
from .steps.point_step import sub_layout


def at_points(
    request: Request,
    points: Scattered,
    axes: Sequence[int] | None,
    norm: str | None,
    spec: Spec | None,
    precision: Precision,
    multiplications: int | None,
    ring: str,
) -> Any:
    """The values of a transform at scattered points, sharded as `spec` says: `kdftn`.

    Raises:
        ValueError, TypeError: as `kdftn`; another number of axes than coordinates.
    """
    setting, points = request.setting, points.settled
    start, machine = setting.start, setting.machine
    dims = _dims(start.shape, points, axes)
    dtype = complex_dtype(setting.dtype, precision)
    dots = dots_of(setting.dtype, precision, multiplications, machine.chip.unit)
    if ring not in RINGS:
        raise ValueError(f"ring {ring!r} is unknown: use one of " + ", ".join(map(repr, RINGS)))
    if 0 in (start.shape[d] for d in dims):
        raise ValueError(f"shape {start.shape} has a size of 0: give images with samples")
    if points.size == 0:
        return no_values(request, dims, points.shape, dtype)
    factor(1, norm, False)
    goal = None if spec is None else _goal(setting, dims, points, spec)
    problem = ScatteredProblem(start, dims, points, setting.mesh, machine, dtype, dots, norm=norm, method="kdft")
    plan = _planned(problem, goal, ring)
    check_reached(precision, plan.error)
    check_blocks(plan.out_layout, real_dtype(dtype).itemsize, setting.room, "the result")
    _check_known(setting, plan.out_layout, spec)
    return plan.execute(request)


def no_values(request: Request, dims: Sequence[int], shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """The values of an image, or of a batch of them, at no points: an empty array."""
    start = request.setting.start
    batch = sub_layout(start, [d for d in range(start.ndim) if d not in dims])
    return request.zeros(batch + Layout(shape, ((),) * len(shape)), dtype)


def dense_plan(problem: ScatteredProblem) -> Plan:
    """The plan of the sum itself, on one ring, to values as the caller wants them if its mesh axes can cut them so.

    Raises:
        ValueError: samples are counted from the middle.
    """
    start, dims, values = problem.start, problem.dims, problem.values
    if problem.origin != "corner":
        raise ValueError(f"method 'kdft' has origin 'corner', this is {problem.origin!r}: use method='auto'")
    goal = None
    if values is not None and values.mesh_axes == sub_layout(start, dims).mesh_axes:
        goal = sub_layout(start, [d for d in range(start.ndim) if d not in dims]) + values
    return _planned(problem._replace(method="kdft"), goal, "auto")


def _planned(problem: ScatteredProblem, goal: Layout | None, ring: str) -> Plan:
    unit = None if problem.points.known else problem.points.unit
    return problem.plan(_walk(problem._replace(points=anywhere(problem.points)), unit, goal, ring), (problem.points,))


@functools.lru_cache(maxsize=256)
def _walk(problem: ScatteredProblem, unit: str | None, goal: Layout | None, ring: str) -> Walk:
    """The cheapest ring from an image to points of some shape, and exchanges from there to `goal`.

    `unit` is that of coordinates that JAX traces, None of those that are known.
    """
    start, machine, dims, itemsize = problem.start, problem.machine, problem.dims, problem.dtype.itemsize
    image, batch = sub_layout(start, dims), start.ndim - len(dims)
    points = points_layout(problem.points.shape, [cut[:2] for by in image.cuts for cut in by], problem.mesh)
    if goal is not None:
        wanted = Layout(goal.shape[batch:], goal.cuts[batch:])
        points = wanted if wanted.mesh_axes == points.mesh_axes else points
    both = ring == "auto" and machine.network is not None and math.prod(image.parts) > 2
    ways = itertools.product(problem.dots, (False, True) if both else (ring == "two-way",))
    steps = [RingPoints(dims, image, points, dot, two_way, unit=unit) for dot, two_way in ways]
    step = min(steps, key=lambda step: machine.price(step.work(start, itemsize, machine.chip)))
    walk = Walk(start, (step,), problem.scale, machine.chip.planes)
    if goal is None or walk.end == goal:
        return walk
    onward = moves(walk.end, goal, machine, itemsize, problem.dots)
    return Walk(start, (step, *onward.steps), problem.scale, machine.chip.planes)


def _dims(shape: tuple[int, ...], points: Scattered, axes: Sequence[int] | None) -> tuple[int, ...]:
    """The transformed dimensions, in the order of the coordinates; by default the last."""
    if axes is None and points.dims <= len(shape):
        return tuple(range(len(shape) - points.dims, len(shape)))
    dims, _ = resolve_once(shape, None, axes)
    if len(dims) != points.dims:
        raise ValueError(
            f"the points have {points.dims} coordinates, for {len(dims)} axes of an array of shape {shape}: give one "
            "coordinate for each axis"
        )
    return dims


def _goal(setting: Setting, dims: tuple[int, ...], points: Scattered, spec: Spec) -> Layout:
    """The layout of the values that a caller wants."""
    start = setting.start
    batch = tuple(size for dim, size in enumerate(start.shape) if dim not in dims)
    goal = from_spec((*batch, *points.shape), axis_sizes(setting.mesh), spec)
    if goal.mesh_axes != start.mesh_axes:
        raise ValueError(
            f"out_spec {spec} has the mesh axes {sorted(goal.mesh_axes)}, the array is cut by "
            f"{sorted(start.mesh_axes)}: name the same ones (jax.device_put gathers, or cuts further)"
        )
    return goal


def _check_known(setting: Setting, end: Layout, spec: Spec | None) -> None:
    """Raises ValueError where values inside a caller's shard_map would not be cut as its out_specs can know."""
    if not mapped_axes(setting.mesh) & setting.start.mesh_axes:
        return
    if spec is not None:
        raise ValueError("out_spec= inside shard_map changes a layout that it has fixed: call outside of shard_map")
    if setting.start.even and not end.even:
        raise ValueError(
            f"the {end.shape} values are not divided by spec {end.spec}, as shard_map wants them: give a number of "
            "points that is, as by repeating the last, or call outside of shard_map"
        )
