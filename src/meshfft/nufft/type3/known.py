"""Type 3: sums at scattered frequencies of values at scattered positions.

    c_j = sum_i b_i exp(-2 pi i s_j . x_i)

Values are spread to a grid of positions, the image of a type 2 transform to the frequencies. With |x - x0| <= X and
|s - s0| <= S along a dimension, the grid has 4 sigma X S cells of width 1 / (2 sigma S), plus a window: then the
window's transform is far from 0 at all frequencies.
"""

import dataclasses
import functools

import numpy as np

from ...layout.layout import Layout
from ...operators.operands import DeviceTables
from ...plans.execute import tried
from ...plans.plan import Plan
from ...steps.base import at_slot, slot_of
from ...walks.walk import Walk
from ..grid.binning import Tables
from ..grid.window import Window, window
from ..plan import ScatteredPlan
from ..planning import scattered_plan_for
from ..points import Scattered
from ..post_transform import MOST_CELLS, SIGMA, PostTransform
from ..problem import ScatteredProblem
from ..steps.known_points import exchange_of
from .traced import image_for


def scales(positions: np.ndarray, frequencies: np.ndarray, one: Window) -> tuple[np.ndarray, ...]:
    """Midpoints of positions and frequencies, and the width and least number of the cells between them."""
    (x0, extent), (s0, band) = (((v.max(0) + v.min(0)) / 2, np.ptp(v, axis=0) / 2) for v in (positions, frequencies))
    extent = np.where(extent > 0, extent, np.where(band > 0, 1 / np.where(band > 0, band, 1), 1.0))
    band = np.maximum(band, 1 / extent)  # a grid of few cells is no smaller than its window
    cell = 1 / (2 * one.sigma * band)
    for span, width, size in zip(2 * extent, 2 * band, cell, strict=True):
        if span / size > MOST_CELLS / 2:
            raise ValueError(
                f"positions span {span:g} and frequencies {width:g}: their grid of {span / size:.0e} cells is longer "
                f"than {MOST_CELLS}; give fewer of them a call, that lie closer together"
            )
    return x0, s0, cell, np.ceil(2 * extent / cell).astype(int) + 2 * one.width + 2


@functools.lru_cache(maxsize=32)
def type3_plan(values: Layout, positions: Scattered, problem: ScatteredProblem) -> Plan:
    """Plan from values at positions to sums at the frequencies of `problem`.

    The start of `problem` is the layout of the values, whose mesh axes will cut the image.
    """
    d, tol = positions.dims, problem.tol
    one = window(tol, SIGMA, d, problem.dtype)
    x, s = (np.asarray(points.coords).reshape(-1, d) for points in (positions, problem.points))
    s = s if problem.points.unit == "turns" else s / (2 * np.pi)  # without a period, unlike `in_turns`
    x0, s0, cell, cells = scales(x, s, one)
    image = image_for(values, len(positions.shape), cells)
    middle, dims = np.array(image.shape[-d:]) // 2, tuple(range(image.ndim - d, image.ndim))
    u, k = (x - x0) / cell + middle, (s - s0) * cell
    points = Scattered.turns(k.reshape(problem.points.coords.shape))
    there = scattered_plan_for(problem._replace(start=image, dims=dims, points=points))
    before = np.exp(-2j * np.pi * (x * s0 % 1).sum(1))
    behind = np.exp(2j * np.pi * ((k * middle - (s - s0) * x0) % 1).sum(1))
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
    turns, one, before = sources
    dims = tuple(range(image.ndim - turns.shape[1], image.ndim))
    given = problem._replace(start=image, dims=dims, points=Scattered.turns(turns), origin="centre", balance=False)
    post = PostTransform(given._replace(machine=there.machine), tuple(image.shape[d] for d in dims), one, known=True)
    placed = post.placed(image)
    walk = Walk(image, post.steps(image, placed.tables.cell.shape[1], int(placed.load.max()))[1:])
    in_slots, batch = walk.end.along([walk.end.ndim - 1]), image.ndim - len(dims)
    points, how = values.along(range(batch, values.ndim)), (there.machine, problem.dtype.itemsize)
    last, routes = exchange_of(placed.order, walk.end, points, 1, *how)
    back = dataclasses.replace(walk, steps=(*walk.steps, last)).transpose()
    every = (_factored(placed.tables, placed.order, before), routes)
    held = [DeviceTables(one, problem.mesh, in_slots.axes[0]) for one in every]
    on = tuple(at_slot(step, 2 + (slot_of(step) or 0)) for step in there.walk.steps)
    first, *others = there.sources
    assert isinstance(first, DeviceTables)
    tables = DeviceTables(_factored(first.host, there.slots, behind), problem.mesh, there.placed_layout.axes[-1])
    whole = Walk(back.start, (*back.steps, *on), there.walk.scale, there.walk.planes)
    return Plan(*problem.parts(whole, (*held, tables, *others)))


def _factored(tables: Tables[np.ndarray], order: np.ndarray, factors: np.ndarray) -> Tables[np.ndarray]:
    phase = tables.phase.copy()
    phase.reshape(-1)[order] *= factors.astype(phase.dtype)
    return tables._replace(phase=phase)
