"""The inverse at scattered points: the image nearest to its samples, by conjugate gradients on the normal equations.

    (A^H A + (tikhonov sigma_max)^2) x = A^H X       A^H A applied as a convolution on a circle, see solvers

The condition number is that of A: the extreme eigenvalues of Lanczos' matrix of A^H A, started from noise. Where its
square reaches the reciprocal of the precision no digit is left, and there is no answer. As in solvers, each program
ends before the next one starts.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax import block_until_ready as ended

from ..layout.layout import mapped_axes
from ..layout.padded_array import PlanePair, mapped
from ..numerics.dtypes import real_dtype
from ..operators.conjugate_gradients import Iterate, tridiagonal
from ..plans.inverse_solve import ITERATIVE, Solution, check_limits, least_tol
from ..plans.iterative_solve import ATTAINABLE
from ..plans.options import Options
from ..plans.request import Request
from .grid.window import LEAST_TOL
from .planning import scattered_plan_for
from .points import Scattered
from .problem import brought, problem_of_values
from .solvers import Operator, advance, dot, over

STEPS = 60  # of Lanczos
TINY = 1e-30  # singular values relative to the largest that count as 0
ITERATIONS = 300  # at most, if the caller gives no number


class Limits(NamedTuple):
    """How far to iterate: relative residual of the normal equations, steps at most; and the weight of |x|^2."""

    tol: float | None = None
    iterations: int | None = None
    tikhonov: float | None = None

    def check(self) -> None:
        check_limits(self.tol, self.iterations)
        if self.tikhonov is not None and not 0 <= self.tikhonov < math.inf:
            raise ValueError(f"tikhonov is {self.tikhonov}: give a part of the largest singular value, such as 1e-3")


def inverse_at_points(
    request: Request,
    points: Scattered,
    sizes: tuple[int, ...],
    axes: Sequence[int] | None,
    norm: str | None,
    options: Options,
    limits: Limits,
) -> Solution:
    """The image of these sizes whose values at the points are those of a request, or nearest to them."""
    limits.check()
    setting, dtype = request.setting, options.dtype(request.setting.dtype)
    _check(request, points, math.prod(sizes), limits)
    how = (dtype, options.dots(setting.dtype, setting.machine.chip.unit), {"norm": norm, "tol": LEAST_TOL[dtype.name]})
    plan = scattered_plan_for(problem_of_values(setting, points, sizes, axes, *how, options.out_spec))
    given = brought(request._replace(arrays=(_complex(request),), planes=False), plan.out_layout)
    right, normal = plan.execute(given, adjoint=True), plan.normal()
    low, high = _extremes(normal, right)
    weight = high * (limits.tikhonov or 0.0) ** 2
    least, most = math.sqrt(low + weight), math.sqrt(high + weight)
    condition = most / least if least > most * TINY else math.inf
    _check_condition(condition, float(jnp.finfo(dtype).eps))
    stop = (limits.iterations or ITERATIONS, limits.tol or least_tol(dtype))
    x, taken = _solved(lambda p: _plus(normal(p), p, weight), right, *stop)
    (samples,) = given.arrays
    rest = ended(jax.tree.map(jnp.subtract, samples, plan(x)))
    residual = ended(jnp.sqrt(over(dot(rest, rest), dot(samples, samples))))
    value = PlanePair(mapped(jnp.real, x), mapped(jnp.imag, x)) if request.planes else x
    return Solution(value, residual, (condition,), (ITERATIVE,), (len(taken),))


def _check(request: Request, points: Scattered, unknowns: int, limits: Limits) -> None:
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((request.arrays, points)))
    if traced or mapped_axes(request.setting.mesh):
        raise ValueError("the system at scattered points is solved by several programs: call outside of jit")
    if points.log_radius is not None:
        raise ValueError(
            "the points are off the unit circle, where the normal equations are no convolution: drop radius"
        )
    if points.size < unknowns and not limits.tikhonov:
        raise ValueError(f"there are {points.size} samples of {unknowns} unknowns: take more, or give tikhonov=")


def _check_condition(condition: float, eps: float) -> None:
    if not condition**2 * eps < ATTAINABLE:
        raise ValueError(
            f"the condition number is {condition:.2g}, and conjugate gradients need one below "
            f"{math.sqrt(ATTAINABLE / eps):.2g} in a type of precision {eps:.1g}: take points nearer to uniform, fewer "
            "unknowns, precision='float64', or tikhonov="
        )


def _complex(request: Request) -> Any:
    return mapped(lax.complex, *request.arrays) if len(request.arrays) == 2 else request.arrays[0]


def _extremes(normal: Operator, like: Any) -> tuple[float, float]:
    """The least and the largest eigenvalue of `normal` that STEPS of Lanczos from noise find."""
    from scipy import linalg  # importing takes 0.25 s

    def noise(x: Array) -> Array:
        return jax.random.normal(jax.random.key(0), x.shape, real_dtype(x.dtype)).astype(x.dtype) + jnp.zeros_like(x)

    start = ended(mapped(noise, like))
    eps = max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(start))
    _, taken = _solved(normal, start, STEPS, 10 * eps)  # beyond it rounding makes eigenvalues of its own
    lengths, ratios = np.array(taken).T
    found = linalg.eigvalsh_tridiagonal(*tridiagonal(lengths, ratios))
    return max(float(found[0]), 0.0), float(found[-1])


def _solved(normal: Operator, b: Any, steps: int, tol: float) -> tuple[Any, list[tuple[float, float]]]:
    """The x with normal(x) = b to a relative residual, and the coefficients of the steps taken."""
    size = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(b)) or 1.0  # squares of tiny numbers underflow
    b = ended(jax.tree.map(lambda leaf: leaf / size, b))
    now, taken = Iterate(jax.tree.map(jnp.zeros_like, b), b, b, ended(dot(b, b))), list[tuple[float, float]]()
    limit = float(now.square) * tol**2
    while len(taken) < steps and float(now.square) > limit:
        now, length, ratio = ended(advance(now, ended(normal(now.direction))))
        taken.append((float(length), float(ratio)))
    return ended(jax.tree.map(lambda leaf: leaf * size, now.image)), taken


def _plus(x: Any, p: Any, weight: float) -> Any:
    return jax.tree.map(lambda x, p: x + weight * p, x, p) if weight else x
