"""Normal operator of scattered samples, and solvers for any normal operator: ridge and penalties.

    A^H W A x = crop F^-1 lambda F pad x,    lambda = F q,    q[m] = sum_j w_j exp(2 pi i k_j . m)
    (N + l2) x = b                                            min |A x - d|^2 + l2 |x|^2,  N = A^H A,  b = A^H d
    ADMM (split Bregman)                                      min |A x - d|^2 / 2 + t f(K x)

A^H W A depends on differences of positions only, so it is a convolution on a circle of 2 N - 1 or more. q is one
adjoint transform; lambda is real.

Invariant: each program ends before the next one starts, because on CPUs two programs can deadlock when each holds
threads that the other needs.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, block_until_ready, lax

from ..layout.layout import Layout
from ..layout.padded_array import AnyArray, AnyStored, mapped, stored_of
from ..numerics.split_complex import scaled
from ..operators.conjugate_gradients import Iterate, advanced
from ..operators.transform import Transform, transform_of
from ..plans.execute import sound_walk
from ..plans.plan import Plan
from ..steps.problem import Options, Problem
from ..walks.walk import Walk
from .penalties import Penalty
from .post_transform import even_walk
from .steps import PhaseShift

Operator = Callable[[Array], Array]
State = Iterate[Array, Array]
POWERS = 10  # iterations of the power method
INNER = 5  # conjugate gradient steps per ADMM round
STIFF = 10  # rho / weight: the first round zeroes slopes below a tenth of the brightest pixel


class LeastSquares(NamedTuple):
    """Find x with normal(x) = right.

    Attributes:
        normal: N; after `of_unit`, N over its largest eigenvalue.
        right: b, scaled as `normal`.
        start: initial image, or zero.
        dims: number of pixel dimensions, the last ones.
        units: factors of the image: the unit of the data, and one over that of the maps.
    """

    normal: Operator
    right: Array
    start: Array
    dims: int
    units: tuple[float, ...] = ()


class Split(NamedTuple):
    """ADMM state: the image x, z that approximates K x, and the scaled multiplier u."""

    image: Array
    shrunk: Array
    multiplier: Array


def descent(problem: LeastSquares, l2: float = 0.0) -> Iterator[State]:
    """Yields conjugate gradient iterates, one application of N each.

    After `of_unit`, l2 is relative to the largest eigenvalue of N.
    """
    normal = ridged(problem.normal, l2)
    now = begin(normal, problem.right, problem.start)
    while True:
        yield now
        now, *_ = step(normal, now)


def penalised(problem: LeastSquares, penalty: Penalty, weight: float, l2: float = 0.0) -> Iterator[State]:
    """Yields iterates of ADMM, INNER + 2 applications of N each.

    `problem` is scaled by `of_unit`; `weight` is for a start whose brightest pixel is 1.
    """
    normal, peak = ridged(problem.normal, l2), float(jnp.max(jnp.abs(problem.start)))
    now = split(problem.start, penalty)
    while True:
        yield begin(normal, problem.right, now.image)
        now = round_(normal, problem.right, now, penalty, weight * peak, STIFF * min(weight, 1))


def ridged(normal: Operator, l2: float) -> Operator:
    return (lambda x: jax.tree.map(lambda product, x: product + l2 * x, normal(x), x)) if l2 else normal


def relative(problem: LeastSquares, now: State) -> float:
    return float(jnp.sqrt(over(now.square, dot(problem.right, problem.right))))


def begin(normal: Operator, b: Array, start: Array | None = None) -> State:
    image = jax.tree.map(jnp.zeros_like, b) if start is None else start
    residual = b if start is None else b - normal(start)
    return Iterate(image, residual, residual, block_until_ready(dot(residual, residual)))


def step(normal: Operator, now: State) -> tuple[State, Array, Array]:
    return block_until_ready(_advanced(now, block_until_ready(normal(now.direction))))


def split(image: Array, penalty: Penalty) -> Split:
    shrunk = block_until_ready(penalty.onto(image))
    return Split(image, shrunk, jnp.zeros_like(shrunk))


def round_(
    normal: Operator, b: Array, now: Split, penalty: Penalty, weight: float, rho: float, inner: int = INNER
) -> Split:
    """One ADMM round: `inner` + 1 applications of `normal`.

    x <- the approximate minimum of x^H N x / 2 - Re b^H x + rho |K x - z + u|^2 / 2; y = K x + u; z <- nearest(y,
    weight / rho); u <- y - z.

    Source: Goldstein and Osher, "The split Bregman method for L1-regularized problems", SIAM J. Imaging Sci. 2009.
    """

    def steep(x: Array) -> Array:
        return block_until_ready(_steeper(normal(x), x, rho, penalty))

    at = begin(steep, block_until_ready(b + rho * penalty.back(now.shrunk - now.multiplier)), now.image)
    for _ in range(inner):
        at, *_ = step(steep, at)
    moved = block_until_ready(penalty.onto(at.image) + now.multiplier)
    shrunk = block_until_ready(penalty.nearest(moved, weight / rho))
    return Split(at.image, shrunk, block_until_ready(moved - shrunk))


def largest(normal: Operator, like: Array, rounds: int = POWERS) -> Array:
    """Largest eigenvalue of `normal` by the power method from `like`; 1 if it is 0."""

    def turn(_: int, at: tuple[Array, Array]) -> tuple[Array, Array]:
        image = normal(at[0] / at[1].astype(like.dtype))
        return image, _length(image)

    return lax.fori_loop(0, rounds, turn, (like, _length(like)))[1]


def of_unit(problem: LeastSquares) -> LeastSquares:
    scale = block_until_ready(largest(problem.normal, problem.right)).astype(problem.right.dtype)
    return problem._replace(normal=lambda x: problem.normal(x) / scale, right=problem.right / scale)


def _length(x: Array) -> Array:
    """|x|, or 1 if that is 0."""
    size = jnp.sqrt(dot(x, x))
    return block_until_ready(jnp.where(size > 0, size, 1))


@jax.jit
def _advanced(now: State, product: Array) -> tuple[State, Array, Array]:
    return advanced(now, product, dot, over)


@functools.partial(jax.jit, static_argnums=3)
def _steeper(product: Array, x: Array, rho: float, penalty: Penalty) -> Array:
    return product + rho * penalty.back(penalty.onto(x))


@jax.jit
def dot(a: AnyStored, b: AnyStored) -> Array:
    return jnp.real(jnp.sum(jnp.conj(stored_of(a)) * stored_of(b)))


def over(a: Array, b: Array) -> Array:
    """a / b, or 0 if b is 0."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NormalPlan:
    """A^H W A of a plan at scattered points, made by its `normal`."""

    forward: Plan  # transform to the circle, with padding
    kernel: Array  # lambda, in the last layout of `forward` without batch

    def __call__(self, x: AnyArray) -> Any:
        """A^H W A x of an image; differentiable in x."""
        batch = tuple(d for d in range(self.forward.in_layout.ndim) if d not in self.forward.transform.dims)
        with jax.ensure_compile_time_eval():
            kernel = jnp.expand_dims(self.kernel, batch)
        spectrum: Any = self.forward(x)
        return self.forward.adjoint(mapped(scaled, spectrum, kernel))

    def __repr__(self) -> str:
        sizes = " x ".join(map(str, self.kernel.shape))
        return f"<NormalPlan: images {self.forward.shape} by periodic ones of {sizes}>"


def circle(plan: Plan, dims: tuple[int, ...]) -> Plan:
    start, options = plan.in_layout, Options(order="any")
    how = (plan.machine, plan.dtype.itemsize, plan.dots, options)
    walk, sizes = even_walk(start, dims, [2 * start.shape[d] for d in dims], how, lambda _: _nothing, sound_walk)
    transform = transform_of(dims, sizes, None, False, "fft")
    return dataclasses.replace(plan, walk=walk, transform=transform, options=options, sources=())


def _nothing(layout: Layout) -> tuple[()]:
    """The search may end in any layout."""
    return ()


def transformed(forward: Plan, q: Array, scale: float) -> Array:
    """lambda, in its own layout, of a kernel whose differences count from the middle."""
    layout = forward.out_layout.along(forward.transform.dims)
    dims = tuple(range(layout.ndim))
    transform = transform_of(dims, layout.shape, None, False, "fft")
    walk = sound_walk(Problem(layout, transform, forward.machine, forward.dtype.itemsize, forward.dots, goal=layout))
    steps = (*walk.steps, PhaseShift(dims, tuple(n // 2 for n in layout.shape), 1))
    factor = scale / math.prod(layout.shape)
    walk = Walk(layout, steps, factor, walk.planes)
    return mapped(jnp.real, dataclasses.replace(forward, walk=walk, transform=Transform((), (), factor))(q))
