"""Plans at points that JAX traces: nothing is known of them but how many there are and how they are cut.

    Deconvolve -> the transform to the fine grid -> Twist -> Halo of every dimension -> RingGrid, or Deal

Points stay where their values are and the fine grid goes round a ring; or the grid stays, and points go to its owners.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from ..layout.layout import AnyMesh, Layout
from ..operators.transform import Transform, factor
from ..plans.execute import tried
from ..plans.plan import Plan
from ..steps.base import Step
from ..walks.walk import Walk
from .grid.forms import chosen
from .grid.window import Window
from .planning import Asked, points_layout, to_grid
from .points import Scattered, Unit
from .steps import Deal, Deconvolve, Halo, RingGrid, Twist


@dataclasses.dataclass(frozen=True)
class Anywhere:
    """The steps behind a transform of some dimensions to a fine grid, for points that may be anywhere."""

    dims: tuple[int, ...]
    modes: tuple[int, ...]
    grid: tuple[int, ...]
    window: Window
    middles: tuple[int, ...]  # from which modes are counted, see RingGrid
    shape: tuple[int, ...]  # of the points
    unit: Unit
    values: Layout | None  # of the points as the caller has or wants them
    mesh: AnyMesh | None
    platform: str
    capacity: float | None  # slots of a pair of devices, in mean numbers of points of one; None: the grid travels

    def __call__(self, layout: Layout) -> tuple[Step, ...]:
        """The steps that follow in a layout."""
        halos, haloed = tuple(Halo(dim, self.window.width - 1) for dim in self.dims), layout
        for halo in halos:
            haloed = halo.after(haloed)
        sides = tuple((haloed.shape[d], haloed.cuts[d]) for d in self.dims)
        cuts = tuple(cut for _, by in sides for cut in by)
        values = self.values
        if values is None or values.mesh_axes != {cut.axis for cut in cuts}:
            values = points_layout(self.shape, cuts, self.mesh)
        form = chosen(self.window, 0, tuple(layout.block[d] for d in self.dims), math.prod(self.shape), self.platform)
        kind = "points" if self.platform == "cpu" else "gather"  # tiles need points that are sorted on the host
        form = dataclasses.replace(form, kind=kind)
        last = self._kind(values)(self.dims, sides, self.grid, self.middles, values, form, self.unit)
        return (Twist(self.dims, tuple(n // 2 for n in self.modes), 1), *halos, last)

    def _kind(self, values: Layout) -> Callable[..., RingGrid]:
        if self.capacity is None:
            return RingGrid
        mine, devices = math.prod(values.block), math.prod(values.parts)
        return functools.partial(Deal, room=min(max(math.ceil(self.capacity * mine / devices), 1), mine))


def traced_plan(asked: Asked) -> Plan:
    """The plan, of which all but the points is kept."""
    points = asked.points
    shaped = asked._replace(points=Scattered(np.zeros((1, points.dims)), points.unit))
    transform = Transform((), (), factor(math.prod(asked.modes), asked.norm, False))
    walk = _walk(shaped, points.shape, points.unit)
    if (machine := tried(walk, asked.machine, asked.dtype.itemsize)) is not asked.machine:
        return traced_plan(asked._replace(machine=machine))
    how = (machine, asked.dots, (points,))
    return Plan(walk, transform, asked.mesh, asked.dtype, asked.method, asked.order, *how)


@functools.lru_cache(maxsize=32)
def _walk(asked: Asked, shape: tuple[int, ...], unit: Unit) -> Walk:
    middles = tuple(0 if asked.origin == "centre" else n // 2 for n in asked.modes)
    where = (middles, shape, unit, asked.values, asked.mesh, asked.machine.chip.platform, asked.capacity)

    def ending(grid: tuple[int, ...], window: Window) -> Anywhere:
        return Anywhere(asked.dims, asked.modes, grid, window, *where)

    walk, follows = to_grid(asked, ending)
    scale = factor(math.prod(asked.modes), asked.norm, False)
    steps = (Deconvolve(asked.dims, follows.grid, follows.window), *walk.steps, *follows(walk.end))
    return Walk(walk.start, steps, scale, walk.planes)
