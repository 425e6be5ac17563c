"""Type 3: from values at positions anywhere to sums at frequencies anywhere.

    c_j = sum_i b_i exp(-2 pi i s_j . x_i)

Values are spread to a grid of positions, fine enough that the window's transform is far from 0 at all frequencies; the
grid is then an image, whose spectrum is wanted at scattered points: the walk of type 1 without its transform, followed
by a walk of type 2. With |x - x0| <= X and |s - s0| <= S along a dimension, cells of the grid are 1 / (2 sigma S) wide
and it has 4 sigma X S of them, and a window. What is left is a factor for each value and one for each sum, of float64.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from ..layout.layout import Layout, Spec, even_cuts
from ..layout.memory import check_blocks
from ..layout.padded_array import AnyArray
from ..numerics.dtypes import complex_dtype, dots_of
from ..operators.operands import Held
from ..plans.execute import moved, tried
from ..plans.plan import Plan
from ..plans.request import read
from ..walks.walk import Walk
from .dense import no_values
from .grid.binning import Tables
from .grid.window import LEAST_TOL, Window, window
from .plan import ScatteredPlan
from .planning import scattered_plan_for
from .points import Scattered
from .post_transform import MOST_CELLS, SIGMA, PostTransform, fast_length
from .problem import ScatteredProblem, plain_number
from .steps.point_step import sub_layout
from .steps.value_exchange import exchange_of


def nufftn_type3(
    c: AnyArray,
    positions: ArrayLike,
    frequencies: Scattered,
    *,
    tol: float = 1e-5,
    precision: str | None = None,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Array:
    """Sums of waves from scattered positions at scattered frequencies: the
    nonuniform FFT of type 3.

        X_j = sum_i c_i exp(-2 pi i s_j . x_i)

    Args:
        c: values at the positions: their shape, with any batch dimensions
            before it.
        positions: x, of shape (..., d), in any unit of length.
        frequencies: s, in cycles (`Scattered.turns`) or radians
            (`Scattered.radians`) for each unit of length.
        tol: as `nufftn`, from 2e-6 on, and from 2e-12 on in complex128: the
            errors of two windows add up.
        precision: as `nufftn`.
        spec, out_spec: how c is cut where JAX hides that, and how the sums are
            to be.

    Returns:
        The sums, batch dimensions first and then the shape of the frequencies,
        cut by the mesh axes that cut the positions' dimensions of c.

    Raises:
        ValueError, TypeError: values of another shape than the positions,
            another number of coordinates, traced points.

    Costs a grid of 4 sigma^2 X S cells along each dimension with |x - x0| <= X
    and |s - s0| <= S, and windows twice. Differentiable in c.

    Source: Lee and Greengard, "The type 3 nonuniform FFT and its
    applications", JCP 2005; as `nufftn`.

    >>> s = mf.Scattered.turns([[1.0], [0.5]])
    >>> y = mf.nufftn_type3(np.ones(2), [[0.0], [2.5]], s)
    >>> [f"{size:.3f}" for size in abs(y)]
    ['0.000', '1.414']
    """
    request = read(c, spec)
    setting = request.setting
    if not isinstance(frequencies, Scattered):
        raise TypeError(
            f"frequencies is a {type(frequencies).__name__}: say what they are, as mf.Scattered.turns(s) or .radians(s)"
        )
    lengths = Scattered.lengths(positions)
    for points, name in ((lengths, "positions"), (frequencies.settled, "frequencies")):
        if not points.known:
            raise ValueError(f"{name} are traced: the grid for them is made on the host; call outside of jit")
    if lengths.dims != frequencies.dims:
        raise ValueError(
            f"positions have {lengths.dims} coordinates, frequencies {frequencies.dims}: give one for each dimension"
        )
    start = setting.start
    if start.shape[-len(lengths.shape) :] != lengths.shape:
        raise ValueError(f"the values have shape {start.shape}, the positions {lengths.shape}: give one for each")
    dtype, dots = complex_dtype(setting.dtype, precision), dots_of(setting.dtype, precision, None)
    if lengths.size == 0 or frequencies.size == 0:
        dims = range(start.ndim - len(lengths.shape), start.ndim)
        none: Array = moved(no_values(request, dims, frequencies.shape, dtype), out_spec)
        return none
    what = (start, (), frequencies.settled, setting.mesh, setting.machine, dtype, dots)
    plan = type3_plan(start, lengths, ScatteredProblem(*what, tol=plain_number(tol)))
    for _, layout in plan.walk.pairs:
        check_blocks(layout, dtype.itemsize, setting.room, "the grid between positions and frequencies")
    y: Array = moved(plan.execute(request), out_spec)
    return y


class Scales(NamedTuple):
    """How positions and frequencies of one dimension lie: middles, and cells of the grid."""

    x0: float
    s0: float
    cell: float  # width of one
    cells: int  # at least


def scales(positions: np.ndarray, frequencies: np.ndarray, one: Window) -> tuple[Scales, ...]:
    """Those of every dimension."""
    found = []
    for x, s in zip(positions.T, frequencies.T, strict=True):
        (x0, extent), (s0, band) = ((float(v.max() + v.min()) / 2, float(np.ptp(v)) / 2) for v in (x, s))
        extent, band = extent or (1 / band if band else 1.0), band or (1 / extent if extent else 1.0)
        band = max(band, 1 / extent)  # a grid of few cells is no smaller than its window
        cell = 1 / (2 * one.sigma * band)
        if 2 * extent / cell > MOST_CELLS / 2:
            raise ValueError(
                f"positions span {2 * extent:g} and frequencies {2 * band:g}: their grid of {2 * extent / cell:.0e} "
                "cells is longer than 32 bits count; give fewer of them a call, that lie closer together"
            )
        found.append(Scales(x0, s0, cell, math.ceil(2 * extent / cell) + 2 * one.width + 2))
    return tuple(found)


@functools.lru_cache(maxsize=32)
def type3_plan(values: Layout, positions: Scattered, problem: ScatteredProblem) -> Plan:
    """The plan from values in a layout at positions to sums at the frequencies of `problem`.

    `problem` has no image yet: its first layout is that of the values, whose mesh axes are to cut the image.
    """
    d = positions.dims
    tol = _half(problem)
    one = window(tol, SIGMA, d, problem.dtype)
    x, s = np.asarray(positions.coords).reshape(-1, d), _cycles(problem.points)
    found = scales(x, s, one)
    image = _image(values, len(positions.shape), found)
    middle = [(n // 2) for n in image.shape[-d:]]
    u = (x - [f.x0 for f in found]) / [f.cell for f in found] + middle
    k = (s - [f.s0 for f in found]) * [f.cell for f in found]
    dims = tuple(range(image.ndim - d, image.ndim))
    points = Scattered.turns(k.reshape(problem.points.coords.shape))
    there = scattered_plan_for(problem._replace(start=image, dims=dims, points=points, tol=tol))
    before = np.exp(-2j * np.pi * ((x * [f.s0 for f in found]) % 1).sum(1))
    turns = (k * middle - (s - [f.s0 for f in found]) * [f.x0 for f in found]) % 1
    behind = np.exp(2j * np.pi * turns.sum(1))
    for dim in range(d):
        behind = behind / one.transform(k[:, dim])
    plan = _joined(values, image, (u / image.shape[-d:], one, before), there, behind, problem)
    if (machine := tried(plan.walk, plan.machine, problem.dtype.itemsize)) is not plan.machine:
        return type3_plan(values, positions, problem._replace(machine=machine))
    return plan


def _joined(
    values: Layout,
    image: Layout,
    sources: tuple[np.ndarray, Window, np.ndarray],
    there: ScatteredPlan,
    behind: np.ndarray,
    problem: ScatteredProblem,
) -> Plan:
    """The walk from values to the image, and on by another plan with a factor for every sum."""
    turns, one, before = sources
    dims = tuple(range(image.ndim - turns.shape[1], image.ndim))
    given = problem._replace(start=image, dims=dims, points=Scattered.turns(turns), origin="centre", balance=False)
    post = PostTransform(given, tuple(image.shape[d] for d in dims), one)
    placed = post.placed(image)
    walk = Walk(image, post.steps(image, placed.tables.cell.shape[1], int(placed.load.max()))[1:])
    in_slots, batch = sub_layout(walk.end, [walk.end.ndim - 1]), image.ndim - len(dims)
    last, routes = exchange_of(placed.order, in_slots, sub_layout(values, range(batch, values.ndim)), 1)
    back = dataclasses.replace(walk, steps=(*walk.steps, last)).transpose()
    every = (_factored(placed.tables, placed.order, before), routes)
    held = [Held(one, problem.mesh, in_slots.axes[0]) for one in every]
    on = tuple(step if step.slot is None else step.at_slot(step.slot + 2) for step in there.walk.steps)
    first, *others = there.caller.points
    assert isinstance(first, Held)
    tables = Held(_factored(first.host, there.order, behind), problem.mesh, there.placed_layout.axes[-1])
    whole = Walk(back.start, (*back.steps, *on), there.walk.scale, there.walk.planes)
    return dataclasses.replace(there.caller, walk=whole, points=(*held, tables, *others))


def _factored(tables: Tables, order: np.ndarray, factors: np.ndarray) -> Tables:
    """Tables whose phases have a factor for each point more."""
    phase = tables.phase.copy()
    phase.reshape(-1)[order] *= factors.astype(phase.dtype)
    return tables._replace(phase=phase)


def _half(problem: ScatteredProblem) -> float:
    """The tolerance of each of the two windows: their errors add up.

    Raises:
        ValueError: a tolerance that the precision does not have twice, or none.
    """
    name = problem.dtype.name
    if not isinstance(problem.tol, int | float) or not 0 < problem.tol < 1:
        raise ValueError(f"tol is {problem.tol!r}: give a relative error, such as 1e-6")
    if problem.tol < 2 * LEAST_TOL[name] * (1 - 1e-6):
        other = "precision='float64'" if name == "complex64" else "sums of NumPy"
        raise ValueError(
            f"tol={problem.tol:g} is below what {name} holds through the two windows of type 3: use tol >= "
            f"{2 * LEAST_TOL[name]:g}, or {other}"
        )
    return problem.tol / 2


def _cycles(points: Scattered) -> np.ndarray:
    """Frequencies (M, d) in turns for each unit of position, which have no period."""
    flat = np.asarray(points.coords).reshape(-1, points.dims)
    return flat if points.unit == "turns" else flat / (2 * np.pi)


def _image(values: Layout, ndim: int, found: tuple[Scales, ...]) -> Layout:
    """The layout of the grid of positions, batch dimensions first, cut by the axes that cut the points."""
    lead = values.ndim - ndim
    axes = [cut[:2] for by in values.cuts[lead:] for cut in by]
    by: list[list[tuple[str, int]]] = [[] for _ in found]
    for axis in axes:
        min(by, key=lambda one: math.prod(parts for _, parts in one)).append(axis)
    sizes = [
        fast_length(-(-one.cells // math.prod(p for _, p in cut)), 1, 1.0) * math.prod(p for _, p in cut)
        for one, cut in zip(found, by, strict=True)
    ]
    cuts = tuple(even_cuts(n, cut) for n, cut in zip(sizes, by, strict=True))
    return Layout((*values.shape[:lead], *sizes), (*values.cuts[:lead], *cuts))
