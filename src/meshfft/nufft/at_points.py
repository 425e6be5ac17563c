"""The paper's transform at scattered points: a walk of one dense ring, which leaves the values with their points."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..layout.layout import Layout, Spec, axis_sizes, even_cuts, from_spec, mapped_axes
from ..layout.memory import check_blocks
from ..numerics.dtypes import Dot, Precision, check_reached, complex_dtype, dots_of, real_dtype
from ..operators.transform import factor, resolve_once
from ..plans.execute import applied
from ..plans.request import Request, Setting, formed
from ..steps.problem import RINGS
from ..walks.choice import moves
from ..walks.walk import Walk
from .points import Scattered
from .steps import RingPoints

Axes = list[tuple[str, int]]


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
    """The values of a transform at scattered points, sharded as `spec` says.

    Raises:
        ValueError, TypeError: as `kdftn`; another number of axes than coordinates.
    """
    setting, points = request.setting, points.settled
    dims = _dims(setting.start.shape, points, axes)
    dtype, chip = complex_dtype(setting.dtype, precision), setting.machine.chip
    dots = dots_of(setting.dtype, precision, multiplications, chip.unit)
    if ring not in RINGS:
        raise ValueError(f"ring {ring!r} is unknown: use one of " + ", ".join(map(repr, RINGS)))
    samples = math.prod(setting.start.shape[d] for d in dims)
    if samples == 0:
        raise ValueError(f"shape {setting.start.shape} has a size of 0: give images with samples")
    if points.size == 0:
        return no_values(request, dims, points.shape, dtype)
    scale = factor(samples, norm, False)
    goal = None if spec is None else _goal(setting, dims, points, spec)
    unit = None if points.known else points.unit
    walk = walk_to_points(setting, dims, points.shape, unit, scale, goal, dots, ring, dtype.itemsize)
    check_reached(precision, walk.error(dtype.itemsize))
    check_blocks(walk.end, real_dtype(dtype).itemsize, setting.room, "the result")
    _check_known(setting, walk.end, spec)
    return formed(applied(request.arrays, walk, (points,), setting.mesh, chip, dtype, request.planes))


def no_values(request: Request, dims: Sequence[int], shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """The values of an image, or of a batch of them, at no points: an empty array."""
    start = request.setting.start
    rest = [d for d in range(start.ndim) if d not in dims]
    batch = Layout(tuple(start.shape[d] for d in rest), tuple(start.cuts[d] for d in rest))
    return request.zeros(batch + Layout(shape, ((),) * len(shape)), dtype)


@functools.lru_cache(maxsize=256)
def walk_to_points(
    setting: Setting,
    dims: tuple[int, ...],
    shape: tuple[int, ...],
    unit: str | None,
    scale: float,
    goal: Layout | None,
    dots: tuple[Dot, ...],
    ring: str,
    itemsize: int,
) -> Walk:
    """The cheapest ring from an image to points of some shape, and where `goal` lies otherwise, exchanges to there.

    `unit` is that of coordinates that JAX traces, None of those that are known.
    """
    start, machine = setting.start, setting.machine
    image = Layout(tuple(start.shape[d] for d in dims), tuple(start.cuts[d] for d in dims))
    points, batch = _laid(setting, image, shape), start.ndim - len(dims)
    if goal is not None:
        wanted = Layout(goal.shape[batch:], goal.cuts[batch:])
        points = wanted if wanted.mesh_axes == points.mesh_axes else points
    open_ways = ring == "auto" and machine.network is not None and math.prod(image.parts) > 2
    ways = (False, True) if open_ways else (ring == "two-way",)
    steps = [RingPoints(dims, image, points, dot, 0, unit, two_way=way) for dot, way in itertools.product(dots, ways)]
    step = min(steps, key=lambda step: machine.price(step.work(start, itemsize, machine.chip)))
    walk = Walk(start, (step,), scale, machine.chip.planes)
    if goal is None or walk.end == goal:
        return walk
    onward = moves(walk.end, goal, machine, itemsize, dots)
    return Walk(start, (step, *onward.steps), scale, machine.chip.planes)


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


def _laid(setting: Setting, image: Layout, shape: tuple[int, ...]) -> Layout:
    """Points cut by the image's mesh axes, each along the first dimension that it divides; else all by the first."""
    mapped, sizes = mapped_axes(setting.mesh), axis_sizes(setting.mesh)
    axes = sorted(itertools.chain(*image.axes), key=lambda axis: axis not in mapped)  # manual ones cut first
    by: list[Axes] = [[] for _ in shape]
    for axis in axes:
        blocks = (size // math.prod(parts for _, parts in cut) for size, cut in zip(shape, by, strict=True))
        fits = [dim for dim, block in enumerate(blocks) if block % sizes[axis] == 0]
        if not fits:
            by = [[(axis, sizes[axis]) for axis in axes] if dim == 0 else [] for dim in range(len(shape))]
            break
        by[fits[0]].append((axis, sizes[axis]))
    return Layout(shape, tuple(even_cuts(size, cut) for size, cut in zip(shape, by, strict=True)))


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
    """Raises ValueError where values inside a caller's shard_map would not lie as its out_specs can know."""
    if not mapped_axes(setting.mesh) & setting.start.mesh_axes:
        return
    if spec is not None:
        raise ValueError("out_spec= inside shard_map changes a layout that it has fixed: call outside of shard_map")
    if setting.start.even and not end.even:
        raise ValueError(
            f"the {end.shape} values are not divided by spec {end.spec}, as shard_map wants them: give a number of "
            "points that is, as by repeating the last, or call outside of shard_map"
        )
