"""Planning of transforms at scattered points: from what is asked for to a ScatteredPlan, kept.

The image goes to a fine grid of its spectrum, by a walk that pads it on its way, and points are interpolated by the
devices that own the cells around them. Who owns which points is worked out once, on the host.
"""

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jax import Array
from jax.core import Tracer

from ..layout.layout import AnyMesh, Cuts, Layout, axis_sizes, even_cuts, mapped_axes
from ..layout.placement import varies_over
from ..machine.machine import Machine
from ..numerics.dtypes import Dot
from ..operators.operands import Held
from ..operators.transform import Transform, check_once, dims_of, factor, is_integer, transform_of
from ..plans.execute import tried
from ..plans.plan import Plan
from ..steps.problem import Problem
from ..walks.choice import ORDERS, find_walk
from ..walks.walk import Walk
from .ending import GROWTH, Ending, cells, working
from .grid.binning import place
from .grid.weights import Form
from .grid.window import Window, window
from .plan import ScatteredPlan
from .points import Scattered, known_kind
from .steps import Deconvolve, Lend, Route
from .steps.route import ways

LOG = logging.getLogger("meshfft")
ORIGINS = ("corner", "centre")
SIGMA = 2.0
LOOSE = 1e-3  # the least tolerance for which a coarser grid may do: it magnifies rounding
SIGMAS = (SIGMA, 1.5, 1.25)  # a coarser grid is a smaller transform and a wider window: what pays in 3-D
MOST_CELLS = 2**31 - 1  # along a dimension: cells are integers of 32 bits
Follows = TypeVar("Follows", bound=Callable[[Layout], tuple[Any, ...]])


class Asked(NamedTuple):
    """What is to be computed, and where."""

    start: Layout  # of the image, batch dimensions among it
    dims: tuple[int, ...]  # that are transformed
    points: Scattered
    mesh: AnyMesh | None
    machine: Machine
    dtype: np.dtype
    dots: tuple[Dot, ...]
    tol: float = 1e-6
    sigma: float | None = None
    order: str = "any"
    norm: str | None = None
    origin: str = "corner"
    slack: int = 0
    method: str = "auto"
    balance: bool | None = None  # crowded owners lend; by default where devices have memories of their own
    values: Layout | None = None  # of the points, as the caller has or wants them
    capacity: float | None = None  # of traced points: they go to the grid's owners, see `traced`

    @property
    def modes(self) -> tuple[int, ...]:
        """Samples of the image along each transformed dimension."""
        return tuple(self.start.shape[d] for d in self.dims)


def asked_for(
    start: Layout,
    points: Scattered,
    axes: Sequence[int] | None,
    mesh: AnyMesh | None,
    machine: Machine,
    dtype: np.dtype,
    dots: tuple[Dot, ...],
    options: Mapping[str, Any],
) -> Asked:
    """What is asked for, checked.

    Raises:
        ValueError, TypeError: points that are none, or have another number of coordinates than there are dimensions;
            a name that is unknown; a tolerance or slack out of range; an image without samples.
    """
    points = known_kind(points).settled
    dims = dims_of(start.ndim, tuple(range(-min(points.dims, start.ndim), 0)) if axes is None else axes)
    check_once(dims, "name one dimension for each coordinate")
    if len(dims) != points.dims:
        turned = "; did you mean points.T?" if points.coords.shape[0] == len(dims) else ""
        other = "" if axes is None else f", or name {points.dims} axes"
        raise ValueError(
            f"points have shape {tuple(points.coords.shape)}: give (..., {len(dims)}), a coordinate for each of the "
            f"{len(dims)} transformed dimensions{other}{turned}"
        )
    order = sorted(range(len(dims)), key=dims.__getitem__)
    if order != list(range(len(dims))):  # coordinates in the order of the dimensions
        points = Scattered(points.coords[..., np.array(order)], points.unit)
    plain = {name: plain_number(value) for name, value in options.items()}
    asked = Asked(start, tuple(sorted(dims)), points, mesh, machine, dtype, dots, **plain)
    _check(asked)
    return asked


def plain_number(value: Any) -> Any:
    """A number of NumPy or JAX as one of Python; all else as it is."""
    numeric = isinstance(value, np.generic | np.ndarray | Array) and not isinstance(value, Tracer)
    return value.item() if numeric and value.ndim == 0 else value


def _check(asked: Asked) -> None:
    """Refuses names that are unknown, and numbers out of range."""
    for name, value, known in (("order", asked.order, ORDERS), ("origin", asked.origin, ORIGINS)):
        if value not in known:
            raise ValueError(f"{name} {value!r} is unknown: use " + " or ".join(map(repr, known)))
    if not is_integer(asked.slack) or asked.slack < 0:
        raise ValueError(f"slack is {asked.slack!r}: give cells of the fine grid by which points may move, 0 or more")
    if asked.capacity is not None:
        if asked.points.known:
            raise ValueError("capacity is for points that JAX traces, and these are placed on the host: drop capacity=")
        if not isinstance(asked.capacity, int | float) or not 0 < asked.capacity < math.inf:
            raise ValueError(f"capacity is {asked.capacity!r}: give slots in multiples of the mean, as 1.5")
    if asked.balance not in (None, True, False):
        raise ValueError(f"balance is {asked.balance!r}: give True, False or None")
    if 0 in asked.start.shape:
        raise ValueError(f"shape {asked.start.shape} has a size of 0: give images with samples")
    if isinstance(asked.points.coords, Tracer):
        varying = varies_over(asked.points.coords) & asked.start.mesh_axes
        if varying:
            raise ValueError(
                f"points differ along the mesh axes {sorted(varying)}, which cut the image inside shard_map: give all "
                "points to every device, by P() in in_specs"
            )
    factor(1, asked.norm, False)


@functools.lru_cache(maxsize=32)
def scattered_plan_for(asked: Asked) -> ScatteredPlan:
    """The plan, kept: a change of points is another plan."""
    if not asked.points.known:
        raise ValueError("the points are traced, and a plan places them on the host: make it outside, or use nufftn")
    if asked.points.size == 0:
        raise ValueError(f"points have shape {asked.points.shape}: plan for at least one")
    LOG.info("placing %d points on the grid of a plan", asked.points.size)
    walk, ending = to_grid(asked, functools.partial(_ending, asked))
    layout, dims, form = walk.end, asked.dims, ending.form(walk.end)
    block, parts = (tuple(one[d] for d in dims) for one in (layout.block, layout.parts))
    middles = (0,) * len(dims) if asked.origin == "centre" else asked.modes
    where = (ending.grid, block, parts, ending.window, asked.slack, form.tile, form.chunk, asked.dtype)
    placed = place(asked.points.in_turns, middles, *where)
    tables, order, loan, starts = working(ending, placed, block)
    slots, load = tables.cell.shape[1], np.count_nonzero(tables.cell[..., 0] >= 0, 1)
    how = (form, slots, int(load.max()))
    behind = ending.steps(layout, *how, loan)
    scale = factor(math.prod(asked.modes), asked.norm, False)
    owned = Walk(walk.start, (Deconvolve(dims, ending.grid, ending.window), *walk.steps, *behind), scale, walk.planes)
    if (machine := tried(owned, asked.machine, asked.dtype.itemsize)) is not asked.machine:
        return scattered_plan_for(asked._replace(machine=machine))
    cuts = owned.end.cuts[-1]
    names = tuple(cut.axis for cut in cuts)
    values = asked.values
    if values is None or values.mesh_axes != set(names):
        values = points_layout(asked.points.shape, cuts, asked.mesh)
    routes, pair = ways(order, slots, values, cuts)
    every = (tables, routes) if loan is None else (tables, starts, routes)
    held = tuple(Held(one, asked.mesh, names) for one in every)
    route = Route(owned.end.shape[-1], cuts, values, pair, at=len(held) - 1)
    what = (Transform((), (), scale), asked.mesh, asked.dtype, asked.method, asked.order, asked.machine, asked.dots)
    plans = {
        "caller": Plan(dataclasses.replace(owned, steps=(*owned.steps, route)), *what, held),
        "owner": Plan(owned, *what, held[:-1]),
        "window_alone": Plan(_window_alone(layout, ending, how, loan), *what, held[:-1]),
    }
    remake = functools.partial(_remade, asked)
    return ScatteredPlan(asked.points, asked.tol, asked.origin, asked.slack, dims, ending, load, order, remake, **plans)


def _window_alone(layout: Layout, ending: Ending, how: tuple[Form, int, int], loan: Lend | None) -> Walk:
    """From points to the fine grid and back, without phases and batch dimensions."""
    dims = tuple(range(len(ending.dims)))
    bare = Layout(tuple(layout.shape[d] for d in ending.dims), tuple(layout.cuts[d] for d in ending.dims))
    loan = None if loan is None else dataclasses.replace(loan, along=dims)
    steps = dataclasses.replace(ending, dims=dims).steps(bare, *how, loan, phases=False)
    there = Walk(bare, steps[1:])
    back = there.transpose()
    return dataclasses.replace(back, steps=(*back.steps, *there.steps))


def _ending(asked: Asked, grid: tuple[int, ...], one: Window) -> Ending:
    """What follows at points that are known."""
    devices = math.prod(asked.start.parts)
    balance = devices > 1 and (not asked.machine.chip.cached if asked.balance is None else asked.balance)
    return Ending(asked.dims, asked.modes, grid, one, asked.slack, asked.points, asked.machine.gridding, balance)


def _remade(asked: Asked, **changes: Any) -> ScatteredPlan:
    return scattered_plan_for(asked._replace(**changes))


def to_grid(asked: Asked, ending: Callable[[tuple[int, ...], Window], Follows]) -> tuple[Walk, Follows]:
    """The cheapest walk from the image to a fine grid, and what follows there: of three where none is asked for."""
    sigma, dims, dtype = SIGMA if asked.sigma is None else asked.sigma, len(asked.dims), asked.dtype
    windows = [window(asked.tol, sigma, dims, dtype)]
    for coarser in SIGMAS[1:] if asked.sigma is None and asked.tol >= LOOSE else ():
        with contextlib.suppress(ValueError):  # its rounding misses the tolerance
            windows.append(window(asked.tol, coarser, dims, dtype))
    return min((_on_grid(asked, ending, one) for one in windows), key=lambda found: _price(asked, *found))


def _price(asked: Asked, walk: Walk, follows: Follows) -> float:
    """Modelled seconds from an image to its values, in the plan's order."""
    whole = dataclasses.replace(walk, steps=(*walk.steps, *follows(walk.end)))
    return sum(map(asked.machine.price, whole.works(asked.dtype.itemsize, asked.machine.chip)))


def _on_grid(asked: Asked, ending: Callable[[tuple[int, ...], Window], Follows], one: Window) -> tuple[Walk, Follows]:
    """The cheapest walk to the fine grid of a window that its last layout divides evenly."""
    devices = math.prod(cut.parts for cuts in asked.start.cuts for cut in cuts)
    how = (asked.machine, asked.dtype.itemsize, asked.dots, asked.method)
    for growth in (1, GROWTH, math.inf):
        grid = tuple(cells(n, one, devices, growth) for n in asked.modes)
        if max(grid) > MOST_CELLS:
            raise ValueError(
                f"the fine grid {grid} has more than {MOST_CELLS} cells along a dimension: use method='kdft'"
            )
        transform = transform_of(asked.dims, grid, None, False, "fft")
        follows = ending(grid, one)
        walk = find_walk(Problem(asked.start, transform, *how, even=True, ending=follows), asked.order)
        if all(walk.end.shape[d] == walk.end.storage[d] for d in asked.dims):
            return walk, follows
    raise ValueError(
        f"no layout divides the fine grid {grid} of an image cut as {asked.start.label()}: cut it otherwise"
    )


def points_layout(shape: tuple[int, ...], cuts: Cuts, mesh: AnyMesh | None) -> Layout:
    """Values along the dimensions of the points: cut by these axes in the order of the mesh, evenly if they can be.

    The axes that a caller's shard_map has mapped come first, as it cuts first.
    """
    order, mapped = list(axis_sizes(mesh)), mapped_axes(mesh)
    axes = sorted((cut[:2] for cut in cuts), key=lambda axis: (axis[0] not in mapped, order.index(axis[0])))
    for first in range(len(axes), -1, -1) if len(shape) > 1 else (len(axes),):
        by = [axes[:first], axes[first:], *[[]] * (len(shape) - 2)][: len(shape)]
        layout = Layout(shape, tuple(even_cuts(n, one) for n, one in zip(shape, by, strict=True)))
        if layout.even:
            return layout
    return Layout(shape, (even_cuts(shape[0], axes), *[()] * (len(shape) - 1)))


def spread_over(layout: Layout, dims: Sequence[int], moving: Sequence[tuple[str, int]]) -> Layout:
    """The layout with each of some mesh axes on a dimension, evenly where that can be, the least cut first."""
    axes: dict[int, list[tuple[str, int]]] = {dim: [] for dim in dims}
    for axis in moving:

        def parts(dim: int, axis: tuple[str, int] = axis) -> tuple[bool, int, int]:
            cut = math.prod(size for _, size in axes[dim])
            return layout.shape[dim] % (cut * axis[1]) != 0, cut, dim

        axes[min(dims, key=parts)].append(axis)
    for dim, by in axes.items():
        layout = layout.replace(dim, layout.shape[dim], even_cuts(layout.shape[dim], by))
    return layout
