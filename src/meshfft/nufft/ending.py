"""What follows a transform to the fine grid: the steps from there to values at points, for the search and for plans.

    Twist -> Halo of every dimension -> Lend, where owners are crowded -> Interpolate

The search asks for them in every layout that the grid may end in, and prices them: halos are cheap in blocks and dear
in thin slabs, and the time is that of the device which owns the most points.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..layout.layout import Layout
from ..steps.base import Step
from .grid.balance import GOAL, lend
from .grid.binning import Placed, Tables, loads
from .grid.forms import chosen
from .grid.weights import Form
from .grid.window import Window
from .points import Scattered
from .steps.halo import Halo
from .steps.interpolate import Grid, Interpolate
from .steps.lend import Lend
from .steps.twist import Twist

GROWTH = 1.07  # of a fine grid that more devices can share


@dataclasses.dataclass(frozen=True)
class Ending:
    """The steps behind a transform of some dimensions to a fine grid, at some points."""

    dims: tuple[int, ...]
    modes: tuple[int, ...]
    grid: tuple[int, ...]
    window: Window
    slack: int
    points: Scattered
    platform: str
    balance: bool  # crowded owners lend

    def __call__(self, layout: Layout) -> tuple[Step, ...]:
        """The steps that follow in a layout, by the points that its devices would own."""
        block, parts = (tuple(one[d] for d in self.dims) for one in (layout.block, layout.parts))
        load = loads(self.points.in_turns, self.grid, self.window.width, self.slack, block, parts)
        most = math.ceil(min(load.max(), GOAL * load.mean() + 1) if self.balance else load.max())
        return self.steps(layout, self.form(layout), most, most)

    def least(self, layout: Layout) -> tuple[Step, ...]:
        """The steps if all devices owned as many points."""
        mean = self.points.size // math.prod(layout.parts[d] for d in self.dims)
        return self.steps(layout, self.form(layout), mean, mean)

    def form(self, layout: Layout) -> Form:
        """The local form in the blocks of a layout."""
        block = tuple(layout.block[d] for d in self.dims)
        return chosen(self.window, self.slack, block, self.points.size, self.platform)

    def steps(
        self, layout: Layout, form: Form, slots: int, points: int, lend: Lend | None = None, phases: bool = True
    ) -> tuple[Step, ...]:
        """Twist, halos, loans and interpolation, from a layout of the fine grid."""
        twist = Twist(self.dims, tuple(n // 2 for n in self.modes), 1)
        before = (*self.halos, *([] if lend is None else [lend]))
        return (twist, *before, Interpolate(self.dims, self._grid(before, layout), slots, points, form, int(phases)))

    @property
    def reach(self) -> int:
        """Cells that a point may touch along each dimension."""
        return self.window.width + 2 * self.slack

    @property
    def halos(self) -> tuple[Halo, ...]:
        """One of each dimension."""
        return tuple(Halo(dim, self.reach - 1) for dim in self.dims)

    def _grid(self, steps: Sequence[Step], layout: Layout) -> Grid:
        for step in steps:
            layout = step.after(layout)
        return tuple((layout.shape[d], layout.cuts[d]) for d in self.dims)


class Working(NamedTuple):
    """Points on the devices that work on them: their tables, their slots, and how tiles are lent if they are."""

    tables: Tables
    order: np.ndarray
    lend: Lend | None = None
    starts: np.ndarray | None = None  # the operand of `lend`


def working(ending: Ending, placed: Placed, block: tuple[int, ...]) -> Working:
    """The points of owners, or of those whom crowded owners lend to; of blocks without halo."""
    if not ending.balance:
        return Working(placed.tables, placed.order)
    lent = lend(placed, ending.reach, tuple(n + ending.reach - 1 for n in block))
    if not lent.rounds:
        return Working(placed.tables, placed.order)
    rounds = tuple((one.pairs, one.start.shape[1]) for one in lent.rounds)
    places = tuple(tuple(map(int, at)) for at in lent.at)
    step = Lend(ending.dims, rounds, tuple(t + ending.reach - 1 for t in placed.tile), lent.rows, places, at=1)
    return Working(lent.tables, lent.order, step, np.concatenate([one.start for one in lent.rounds], 1))


def cells(modes: int, window: Window, devices: int, growth: float = GROWTH) -> int:
    """Cells of the fine grid: at least sigma times the modes and twice the window; see `cells_of`."""
    return cells_of(max(math.ceil(window.sigma * modes), 2 * window.width), devices, growth)


def cells_of(least: int, devices: int, growth: float) -> int:
    """A fast length from `least` on.

    Of the divisors of the devices the largest that divides a length at most `growth` times the least one.
    """
    from scipy import fft  # a fifth of a second that only those who ask for a length should wait

    lengths = {m: m * int(fft.next_fast_len(-(-least // m))) for m in range(1, devices + 1) if devices % m == 0}
    return lengths[max(m for m, length in lengths.items() if length <= growth * lengths[1])]
