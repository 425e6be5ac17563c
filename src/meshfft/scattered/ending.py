"""What follows a transform to the fine grid: the steps from there to values at points, for the search and for plans.

    Twist -> Halo of every dimension -> Interpolate

The search asks for them in every layout that the grid may end in, and prices them: halos are cheap in blocks and dear
in thin slabs, and the time is that of the device which owns the most points.
"""

import dataclasses
import math

from ..kernels.forms import chosen
from ..kernels.window_weights import Form
from ..layout.layout import Layout
from ..numerics.window import Window
from ..operators.placing import loads
from ..operators.scattered import Scattered
from ..steps.base import Step
from .halo import Halo
from .interpolate import Grid, Interpolate, Spread
from .twist import Twist

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

    def __call__(self, layout: Layout) -> tuple[Step, ...]:
        """The steps that follow in a layout, by the points that its devices would own."""
        block, parts = (tuple(one[d] for d in self.dims) for one in (layout.block, layout.parts))
        load = loads(self.points.in_turns, self.grid, self.window.width, self.slack, block, parts)
        most = math.ceil(load.max())
        return self.steps(layout, self.form(layout), most, most)

    def form(self, layout: Layout) -> Form:
        """The local form in the blocks of a layout."""
        block = tuple(layout.block[d] for d in self.dims)
        return chosen(self.window, self.slack, block, self.points.size, self.platform)

    def steps(self, layout: Layout, form: Form, slots: int, points: int) -> tuple[Step, ...]:
        """Twist, halos and interpolation, from a layout of the fine grid."""
        twist, halos = Twist(self.dims, tuple(n // 2 for n in self.modes), 1), self.halos
        return (twist, *halos, Interpolate(self.dims, self._haloed(layout), slots, points, form, 1))

    def back_and_forth(self, layout: Layout, form: Form, slots: int, points: int) -> tuple[Step, ...]:
        """The window alone, from points to the grid and back, in layouts without batch dimensions."""
        dims = tuple(range(len(self.dims)))
        bare = Layout(tuple(layout.shape[d] for d in self.dims), tuple(layout.cuts[d] for d in self.dims))
        alone = dataclasses.replace(self, dims=dims)
        there = (dims, alone._haloed(bare), slots, points, form, 0)
        adding = tuple(dataclasses.replace(halo, added=True) for halo in reversed(alone.halos))
        return (Spread(*there), *adding, *alone.halos, Interpolate(*there))

    @property
    def halos(self) -> tuple[Halo, ...]:
        """One of each dimension."""
        return tuple(Halo(dim, self.window.width + 2 * self.slack - 1) for dim in self.dims)

    def _haloed(self, layout: Layout) -> Grid:
        for halo in self.halos:
            layout = halo.after(layout)
        return tuple((layout.shape[d], layout.cuts[d]) for d in self.dims)


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
