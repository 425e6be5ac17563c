"""Plans at scattered points, between a sharded image and sharded values.

    c_j = scale sum_n x[n] exp(-2 pi i k_j . n)          (type 2; type 1 is its adjoint)

Values have the caller's layout or the plan's order: slots on the devices that own their points.
"""

import dataclasses
import functools
import textwrap
from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..layout.layout import Layout
from ..layout.padded_array import AnyArray, mapped
from ..numerics.dtypes import real_dtype
from ..operators.transform import is_integer
from ..plans.plan import Plan
from ..plans.request import read
from ..plans.table import WIDTH
from ..steps.base import Step
from ..walks.walk import Walk
from .grid.window import LEAST_TOL, Window
from .inverse import PointsPlan
from .moving import Planned, at_moved, exchange_plan
from .points import Scattered, known_kind
from .problem import brought
from .solvers import NormalPlan, Operator, circle, over, transformed


class Checked(NamedTuple):
    """Displacement of points from their planned positions."""

    farthest: float  # cells of the fine grid, along the worst dimension
    beyond: int  # points beyond the plan's slack


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScatteredPlan(PointsPlan):
    """A plan to values at scattered points; made by `scattered_plan`.

    Attributes:
        points: where the spectrum is sampled.
        tol: the relative error that the window was chosen for.
        origin: "corner" or "centre": the pixel with index 0.
        slack: cells of the fine grid by which points may move.
        dims: the transformed dimensions of the image, one for each coordinate.
        grid: cells of the fine grid along each of these.
        window: the window of the interpolation.
        load: number of points that each device owns.
        slots: each point's place in the plan's order, over all devices.
        window_alone: the walk from values in the plan's order to the fine grid
            and back.
        remake: a function that plans the same points with other options.

    Others are those of `Plan`; `out_layout` has the values in the caller's
    order.

    >>> plan = mf.scattered_plan((4,), mf.Scattered.turns([[0.0], [0.25]]))
    >>> plan.adjoint(np.ones(2)).real.round(3).tolist()
    [2.0, 1.0, 0.0, 1.0]
    """

    points: Scattered
    tol: float
    origin: str
    slack: int
    dims: tuple[int, ...]
    grid: tuple[int, ...]
    window: Window
    load: np.ndarray
    slots: np.ndarray
    window_alone: Walk
    remake: Callable[..., "ScatteredPlan"]

    @functools.cached_property
    def owner(self) -> Plan:
        """The plan to values in the plan's order."""
        walk = dataclasses.replace(self.walk, steps=self.walk.steps[:-1])
        return dataclasses.replace(self._plain, walk=walk, sources=self.sources[:-1])

    @functools.cached_property
    def _plain(self) -> Plan:
        how = (self.mesh, self.dtype, self.options, self.machine, self.dots)
        return Plan(self.walk, self.transform, *how, self.sources)

    @property
    def placed_layout(self) -> Layout:
        """The layout of the values in the plan's order."""
        return self.walk.layouts[-2]

    @property
    def imbalance(self) -> float:
        """Points of the device that owns the most, over the mean."""
        return float(self.load.max() / self.load.mean())

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values, with its points and window."""
        what = {"points": list(self.points.shape), "tol": self.tol, "origin": self.origin, "slack": self.slack}
        grid = {"window": self.window.width, "sigma": self.window.sigma, "grid": list(self.grid)}
        return {**super().to_dict(), **what, **grid, "imbalance": self.imbalance}

    def __call__(
        self, x: AnyArray, *, placed: bool = False, points: Scattered | None = None, donate: bool = False
    ) -> Any:
        """Maps an image in `in_layout` to values in `out_layout`.

        Args:
            x: the image.
            placed: leave the values in the plan's order.
            points: the points now, traced or not, within `slack` cells of the
                planned ones; farther points give NaN. Differentiable in them,
                at the cost of a transform for each dimension.
            donate: as for `fftn`.
        """
        return self._at(x, placed, points, donate, back=False)

    def adjoint(
        self, c: AnyArray, *, placed: bool = False, points: Scattered | None = None, donate: bool = False
    ) -> Any:
        """The image sum_j c_j exp(2 pi i k_j . n): type 1, <plan(x), c> = <x,
        plan.adjoint(c)>.

        If a point moved farther than `slack`, the whole image is NaN.
        """
        return self._at(c, placed, points, donate, back=True)

    @property
    def _points(self) -> Scattered:
        return self.points

    def _gram(self) -> Operator:
        return self.normal()

    def _at(self, a: AnyArray, placed: bool, points: Scattered | None, donate: bool, back: bool) -> Any:
        run = self.owner if placed else self._plain
        if points is None:
            return run.adjoint(a, donate=donate) if back else run(a, donate=donate)
        points = known_kind(points)
        if self.slack == 0:
            raise ValueError("points= is for points that move, and this plan has slack 0: make it with slack=1")
        self._check_shape(points)
        plan = Planned(self._plain, run, self.points, self.grid, self.dims, self.origin)
        return at_moved(plan, points.unit, back, a, jnp.asarray(points.coords))

    def place(self, values: AnyArray) -> Any:
        """Moves values from `out_layout` into the plan's order, with or without
        batch dimensions; empty slots are 0.
        """
        step, slots = self.walk.pairs[-1]
        return self._exchanged(values, step.transpose(slots), self.out_layout, len(self.points.shape))

    def restore(self, values: AnyArray) -> Any:
        """Moves values from the plan's order into `out_layout`."""
        return self._exchanged(values, *self.walk.pairs[-1], tail=1)

    def _exchanged(self, values: AnyArray, step: Step, layout: Layout, tail: int) -> Any:
        if np.ndim(values) == tail:
            layout = layout.along(range(layout.ndim - tail, layout.ndim))
        given = values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype
        return exchange_plan(self._plain, step, layout, real=np.dtype(given).kind != "c")(values)

    def density(self, iterations: int = 12) -> Array:
        """Weights that compensate for the density of the points, in the
        plan's order.

            w <- w / |I I^T w|        I: the interpolation, no transform

        Like quadrature weights, they sum to the part of the spectrum that the
        points cover, so `plan.adjoint(plan.restore(weights) * values)` has the
        image's scale.

        Source: Pipe and Menon, "Sampling density compensation in MRI", MRM
        1999.
        """
        if not is_integer(iterations) or iterations < 0:
            raise ValueError(f"iterations is {iterations!r}: give a number of rounds, 0 or more, mostly 12")
        ones = np.ones(self.points.shape, real_dtype(self.dtype))
        weights, gram = mapped(jnp.abs, self.place(ones)), dataclasses.replace(self.owner, walk=self.window_alone)
        for _ in range(iterations):
            # On CPUs, programs of several iterations in flight may deadlock over threads.
            weights = jax.block_until_ready(mapped(_lessened, weights, jax.block_until_ready(gram(weights))))
        volume = np.prod([float(self.window.transform(np.array(0.0))) ** 2 / cells for cells in self.grid])
        return weights * float(volume)

    def normal(self, weights: AnyArray | None = None) -> NormalPlan:
        """Returns the operator A^H W A, to be called on images: the transform,
        weights (1 by default) and the adjoint.

        Making it costs one adjoint transform of twice the size; a call costs
        two FFTs of twice the size, without points.

        Args:
            weights: one real number for each point, in the plan's order, as
                `density` returns them.

        Raises:
            ValueError: weights of another shape, such as an image.
        """
        order = self.placed_layout.shape[-1:]
        if weights is not None and np.shape(weights) != order:
            raise ValueError(
                f"weights has shape {np.shape(weights)}, the plan's order of points has {order}: give weights as "
                "plan.density() returns them, and call the operator that is returned, plan.normal(weights)(image)"
            )
        forward = circle(self._plain, dims := tuple(sorted(self.dims)))
        layout, tol = forward.out_layout.along(dims), max(self.tol / 4, LEAST_TOL[self.dtype.name])
        options = self.options._replace(wire="exact")
        how = {"tol": tol, "sigma": None, "origin": "centre", "norm": None, "slack": 0, "options": options}
        wider = self.remake(start=layout, dims=tuple(range(layout.ndim)), **how)
        if weights is None:
            q = wider.adjoint(np.ones(self.points.shape, real_dtype(self.dtype)))
        else:
            q = wider.execute(brought(read(self.restore(weights)), wider.out_layout), adjoint=True)
        return NormalPlan(forward, transformed(forward, q, self.walk.scale**2))

    def check(self, points: Scattered) -> Checked:
        """Displacements of points from the plan's, on the host; calls accept
        up to `slack` cells.

        Raises:
            ValueError: another number of points or coordinates.
        """
        points = known_kind(points).settled
        if not points.known:
            raise ValueError("the points are traced, and check compares on the host: call it outside of jit")
        self._check_shape(points)
        apart = points.in_turns - self.points.in_turns
        away = np.abs(apart - np.round(apart)) * self.grid
        return Checked(float(away.max()), int((away.max(1) > self.slack * (1 + 1e-5)).sum()))

    def _check_shape(self, points: Scattered) -> None:
        if points.coords.shape != self.points.coords.shape:
            raise ValueError(f"points have shape {points.coords.shape}, the plan's {self.points.coords.shape}")

    def __str__(self) -> str:
        first, *lines = super().__str__().split("\n")
        return "\n".join([first, textwrap.fill(self._account, WIDTH), *lines])

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._account)}</p>{super()._repr_html_()}"

    @property
    def _account(self) -> str:
        window, many = self.window, " x ".join(map(str, self.points.shape))
        return (
            f"{many} points, tolerance {self.tol:g}: windows of {window.width} cells at sigma {window.sigma:g}, fine "
            f"grid {' x '.join(map(str, self.grid))}; the device that owns the most has {int(self.load.max())}, "
            f"{self.imbalance:.2f} times the mean"
        )

    def __repr__(self) -> str:
        return f"<ScatteredPlan: {self.points.size} points, image {self.in_layout.shape}, tol {self.tol:g}>"


def _lessened(weights: Array, there_and_back: Array) -> Array:
    return over(weights, jnp.abs(there_and_back))
