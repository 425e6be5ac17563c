"""Plans at scattered points: an image on one side, values at points on the other, both sharded.

    c_j = scale sum_n x[n] exp(-2 pi i k_j . n)          (type 2; type 1 is its adjoint)

Values lie as the caller has them, or in the plan's order: in slots of the devices that own their points, where nothing
is sent but halos.
"""

import dataclasses
import textwrap
from html import escape
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from ..layout.layout import Layout
from ..layout.padded_array import AnyArray, mapped, stored_of
from ..layout.storage import stored_on
from ..numerics.dtypes import real_dtype
from ..operators.transform import is_integer
from ..plans.execute import moved
from ..plans.request import Setting, read, received
from ..plans.table import WIDTH
from ..walks.walk import Walk
from .grid.window import LEAST_TOL
from .moving import image_of, values_at
from .normal import NormalPlan, bare, circle, transformed
from .points import Scattered, known_kind
from .record import Planned


class Checked(NamedTuple):
    """How far points are from where a plan has them."""

    farthest: float  # cells of the fine grid, along the dimension where it is most
    beyond: int  # points farther than the plan's slack


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ScatteredPlan(Planned):
    """A transform at scattered points, chosen, priced and ready to run; made
    by `scattered_plan`.

    Attributes:
        points: where the spectrum is sampled.
        tol: the relative error that the window was chosen for.
        origin: "corner" or "centre", from where samples of the image are
            counted.
        slack: cells of the fine grid by which points may move.
        dims: the transformed dimensions of the image.
        ending: how values follow from the fine grid: its sizes, and the
            window.
        load: points that each device owns.
        order: for each point its slot among those of all devices.
        remake: the plan of the same points with something else changed.
        caller: the plan to values as the caller has them.
        owner: the plan to values in the plan's order.
        window_alone: from values to the fine grid and back, without batch
            dimensions.

    >>> plan = mf.scattered_plan((4,), mf.Scattered.turns([[0.0], [0.25]]))
    >>> plan.adjoint(np.ones(2)).real.round(3).tolist()
    [2.0, 1.0, 0.0, 1.0]
    """

    def __call__(self, x: AnyArray, *, placed: bool = False, points: Scattered | None = None) -> Any:
        """The values of an image in `in_layout`, in `out_layout`.

        Args:
            x: the image.
            placed: leave the values in the plan's order.
            points: where the points are now, traced or not, within `slack`
                cells of where they were planned; the value of one that is
                farther is NaN. Differentiable in them, at the cost of a
                transform for each dimension.
        """
        if points is not None:
            return values_at(self, placed, known_kind(points).unit, x, self._near(points))
        return (self.owner if placed else self.caller)(x)

    def adjoint(self, c: AnyArray, *, placed: bool = False, points: Scattered | None = None) -> Any:
        """The image sum_j c_j exp(2 pi i k_j . n): type 1, <plan(x), c> = <x,
        plan.adjoint(c)>.

        With points beyond `slack` all of it is NaN.
        """
        if points is not None:
            return image_of(self, placed, known_kind(points).unit, c, self._near(points))
        return (self.owner if placed else self.caller).adjoint(c)

    def place(self, values: AnyArray) -> Any:
        """Values, of the batch or of the points alone, from `out_layout` into
        the plan's order; empty slots are 0.
        """
        return self._routed(values, back=True)

    def restore(self, values: AnyArray) -> Any:
        """Values from the plan's order into `out_layout`."""
        return self._routed(values, back=False)

    def density(self, iterations: int = 12) -> Array:
        """Weights that compensate for how densely the points lie, in the
        plan's order.

            w <- w / |I I^T w|        I the interpolation alone: no transform

        They add up to the part of the spectrum that the points cover, as
        quadrature weights do, so that plan.adjoint(density * values) is an
        image in the scale of the one sampled.

        Source: Pipe and Menon, "Sampling density compensation in MRI", MRM
        1999.
        """
        if not is_integer(iterations) or iterations < 0:
            raise ValueError(f"iterations is {iterations!r}: give a number of rounds, 0 or more, mostly 12")
        ones = np.ones(self.points.shape, real_dtype(self.caller.dtype))
        weights, gram = mapped(jnp.abs, self.place(ones)), self.window_alone
        for _ in range(iterations):
            # Waited for: on CPUs programs of several rounds in flight hold threads that the first still needs.
            weights = jax.block_until_ready(mapped(_lessened, weights, jax.block_until_ready(gram(weights))))
        volume = np.prod([float(self.ending.window.transform(np.array(0.0))) ** 2 / cells for cells in self.grid])
        return weights * float(volume)

    def normal(self, weights: AnyArray | None = None) -> NormalPlan:
        """Returns the operator A^H W A, to be called on images: the transform,
        weights (1 by default) and the adjoint.

        A call costs two transforms of twice the size and touches no points:
        it is faster than `adjoint` of a transform, and is what conjugate
        gradients need. Making it costs one adjoint transform of twice the
        image.

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
        forward = circle(self.caller, self.dims)
        layout = bare(forward)
        tol = max(self.tol / 4, LEAST_TOL[self.caller.dtype.name])
        wider = self.remake(
            start=layout, dims=tuple(range(layout.ndim)), tol=tol, sigma=None, origin="centre", norm=None, slack=0
        )
        if weights is None:
            q = wider.adjoint(np.ones(self.points.shape, real_dtype(self.caller.dtype)))
        else:
            q = wider.adjoint(brought(self.restore(weights), wider.out_layout))
        return NormalPlan(forward, transformed(forward, q, self.walk.scale**2))

    def check(self, points: Scattered) -> Checked:
        """How far points are from the plan's, on the host: with `slack` they
        may move by that many cells under `jit`.

        Raises:
            ValueError: another number of points or coordinates.
        """
        points = known_kind(points).settled
        if not points.known:
            raise ValueError("the points are traced, and check compares on the host: call it outside of jit")
        if points.coords.shape != self.points.coords.shape:
            raise ValueError(f"points have shape {points.coords.shape}, the plan's {self.points.coords.shape}")
        apart = points.in_turns - self.points.in_turns
        away = np.abs(apart - np.round(apart)) * self.grid
        return Checked(float(away.max()), int((away.max(1) > self.slack * (1 + 1e-5)).sum()))

    def __str__(self) -> str:
        lines = str(self.caller).split("\n")
        return "\n".join([lines[0], textwrap.fill(self._account, WIDTH), *lines[1:]])

    def _repr_html_(self) -> str:
        """The plan as a table for notebooks, with its points and window."""
        return f"<p>{escape(self._account)}</p>{self.caller._repr_html_()}"

    @property
    def _account(self) -> str:
        """Points, window and balance in a sentence."""
        window, many = self.ending.window, " x ".join(map(str, self.points.shape))
        return (
            f"{many} points, tolerance {self.tol:g}: windows of {window.width} cells at sigma {window.sigma:g}, fine "
            f"grid {' x '.join(map(str, self.grid))}; the device that owns the most has {int(self.load.max())}, "
            f"{self.imbalance:.2f} times the mean"
        )

    def __repr__(self) -> str:
        return f"<ScatteredPlan: {self.points.size} points, image {self.in_layout.shape}, tol {self.tol:g}>"

    def _near(self, points: Scattered) -> Array:
        """The coordinates of points that have moved."""
        if self.slack == 0:
            raise ValueError("points= is for points that move, and this plan has slack 0: make it with slack=1")
        if points.coords.shape != self.points.coords.shape:
            raise ValueError(f"points have shape {points.coords.shape}, the plan's {self.points.coords.shape}")
        return jnp.asarray(points.coords)

    def _routed(self, values: AnyArray, back: bool) -> Any:
        """Values of the batch or of the points alone, by the last step of the walk."""
        step, layout = self.walk.pairs[-1]
        ends, ndim = (self.out_layout, self.placed_layout), len(self.points.shape)
        if back:
            step, layout, tail = step.transpose(layout), ends[0], ndim
        else:
            tail = 1
        if np.ndim(values) == tail:
            layout = Layout(layout.shape[-tail:], layout.cuts[-tail:])
        given = values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype
        real = np.dtype(given).kind != "c"
        walk = Walk(layout, (step.at_slot(0),), 1.0, False, real)
        return dataclasses.replace(self.caller, walk=walk, points=self.caller.points[-1:])(values)


def _lessened(weights: Array, there_and_back: Array) -> Array:
    """The weights over what they add up to around each point; 0 in empty slots."""
    size = jnp.abs(there_and_back)
    return jnp.where(size > 0, weights / jnp.where(size > 0, size, 1), 0)


def brought(values: AnyArray, layout: Layout, setting: Setting | None = None) -> Any:
    """Values of the points in a layout of them, from wherever they lie."""
    there = read(values).setting if setting is None else setting
    if there.start == layout:
        return values
    if there.start.mesh_axes == layout.mesh_axes or not isinstance(there.mesh, Mesh):
        return moved(values, layout.spec, None if setting is None else there.start.spec)
    (array,) = received(values)
    return stored_on(stored_of(array), there.mesh, layout.spec)
