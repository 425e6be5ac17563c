"""Least squares at scattered points, by conjugate gradients on the normal equations.

    (A^H A + (tikhonov sigma_max)^2) x = A^H X       A^H A by the plan and its adjoint, or as a convolution: see solvers

The condition number of A is estimated from the extreme eigenvalues of Lanczos' matrices of A^H A: from STEPS steps on
noise, then from all steps of the solution. It is a lower bound: steps do not reach components that the samples hardly
see, as the corners of k-space in a radial scan. An error is raised if its square reaches ATTAINABLE / the residual that
iterations reach. Each program ends before the next: see solvers.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, block_until_ready, lax

from ..layout.layout import AnyMesh, mapped_axes
from ..layout.padded_array import AnyArray, PlanePair, mapped
from ..numerics.dtypes import real_dtype
from ..operators.conjugate_gradients import extremes
from ..plans.inverse_solve import ITERATIVE, Arrays, Solution, check_limits, least_tol
from ..plans.iterative_solve import ATTAINABLE
from ..plans.plan import Plan
from ..plans.request import is_planes
from .points import Scattered
from .solvers import Operator, begin, dot, over, ridged, step

STEPS = 60  # of Lanczos
TINY = 1e-30  # singular values relative to the largest that count as 0
ITERATIONS = 300  # at most, by default


class Limits(NamedTuple):
    """Relative residual, most steps, and the weight of |x| as a part of the largest singular value."""

    tol: float | None = None
    iterations: int | None = None
    tikhonov: float | None = None

    @staticmethod
    def of(method: str, truncation: float | None, *limits: Any) -> "Limits":
        """Raises ValueError for a method or truncation, which exist only along an axis."""
        if method not in ("auto", "iterative") or truncation is not None:
            raise ValueError("scattered points are solved by iterations: leave out method= and truncation=")
        return Limits(*limits)

    def check(self, given: Any, points: Scattered, unknowns: int, mesh: AnyMesh | None) -> None:
        check_limits(self.tol, self.iterations)
        if self.tikhonov is not None and not 0 <= self.tikhonov < math.inf:
            raise ValueError(f"tikhonov is {self.tikhonov}: give a part of the largest singular value, such as 1e-3")
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((given, points))) or mapped_axes(mesh):
            raise ValueError("the system at scattered points is solved by several programs: call outside of jit")
        if points.size < unknowns and not self.tikhonov:
            raise ValueError(f"there are {points.size} samples of {unknowns} unknowns: take more, or give tikhonov=")


@jax.tree_util.register_static
class PointsPlan(Plan):
    """A plan to values at scattered points; `mf.plan(shape, points=...)` makes
    one that evaluates the sum directly.

    >>> plan = mf.plan((4,), points=mf.Scattered.turns([[0.0], [0.25]]))
    >>> plan(np.ones(4)).real.round(3).tolist()
    [4.0, 0.0]
    """

    def inverse(self, y: AnyArray, *, donate: bool = False) -> Any:
        """Scattered samples have no inverse transform.

        Raises:
            ValueError: always.
        """
        raise ValueError("scattered samples have no inverse transform: solve for the image with plan.solve(y)")

    def _solution(self, y: AnyArray, *how: Any) -> Solution:
        tikhonov, truncation, method, tol, iterations = how
        limits, arrays = Limits.of(method, truncation, tol, iterations, tikhonov), self._fitted(self.out_layout, y)
        batch = max(1, math.prod(self.out_shape) // max(1, self._points.size))
        limits.check(arrays, self._points, math.prod(self.shape) // batch, self.mesh)
        return self.solved(arrays, limits, is_planes(y))

    @property
    def _points(self) -> Scattered:
        (points,) = self.sources
        assert isinstance(points, Scattered)
        return points

    def _gram(self) -> Operator:
        return lambda x: self.adjoint(block_until_ready(self(x)))

    def solved(self, given: Arrays, limits: Limits, planes: bool) -> Solution:
        samples = mapped(lax.complex, *given) if len(given) == 2 else given[0]
        samples = mapped(lambda x: x.astype(self.dtype), samples)
        right: Any = self.adjoint(samples)
        normal = self._gram()
        low, high = _extremes(normal, right)
        weight, least = high * (limits.tikhonov or 0.0) ** 2, least_tol(self.dtype)
        low, high = low + weight, high + weight
        _checked_condition(low, high, least)
        stop = (limits.iterations or ITERATIONS, limits.tol or least)
        x, taken = _solved(ridged(normal, weight), right, *stop)
        if taken:
            found = extremes(taken)
            low, high = min(low, found[0]), max(high, found[1])
        condition = _checked_condition(low, high, least)
        rest = block_until_ready(jax.tree.map(jnp.subtract, samples, self(x)))
        residual = block_until_ready(jnp.sqrt(over(dot(rest, rest), dot(samples, samples))))
        value = PlanePair(mapped(jnp.real, x), mapped(jnp.imag, x)) if planes else x
        return Solution(value, residual, (condition,), (ITERATIVE,), (len(taken),), bounded=True)


def _checked_condition(low: float, high: float, eps: float) -> float:
    """The condition number from eigenvalues of A^H A; raises ValueError if it leaves no digit."""
    least, most = math.sqrt(low), math.sqrt(high)
    condition = most / least if least > most * TINY else math.inf
    if not condition**2 * eps < ATTAINABLE:
        limit, wider = math.sqrt(ATTAINABLE / eps), "a plan with precision='float64', " * (eps > 1e-9)
        raise ValueError(
            f"the condition number is {condition:.2g}, and conjugate gradients need one below {limit:.2g} at a "
            f"precision of {eps:.1g}: take points nearer to uniform, fewer unknowns, {wider}or tikhonov= of "
            f"{2 / limit:.1g} or more"
        )
    return condition


def _extremes(normal: Operator, like: Any) -> tuple[float, float]:
    """The extreme eigenvalues of `normal` by STEPS of Lanczos from noise."""

    def noise(x: Array) -> Array:
        return jax.random.normal(jax.random.key(0), x.shape, real_dtype(x.dtype)).astype(x.dtype) + jnp.zeros_like(x)

    start = block_until_ready(mapped(noise, like))
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(start))
    _, taken = _solved(normal, start, STEPS, 10 * eps)  # beyond it rounding adds eigenvalues
    return extremes(taken)


def _solved(normal: Operator, b: Any, steps: int, tol: float) -> tuple[Any, list[tuple[float, ...]]]:
    size = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(b)) or 1.0  # squares of tiny numbers underflow
    now, taken = begin(normal, block_until_ready(jax.tree.map(lambda leaf: leaf / size, b))), list[tuple[float, ...]]()
    limit = float(now.square) * tol**2
    while len(taken) < steps and float(now.square) > limit:
        now, *numbers = step(normal, now)
        taken.append(tuple(map(float, numbers)))
    return block_until_ready(jax.tree.map(lambda leaf: leaf * size, now.image)), taken
