"""Least squares, ridge and total variation for any normal operator, by conjugate gradients.

    (N + l2) x = b                                               min |A x - d|^2 + l2 |x|^2,  N = A^H A,  b = A^H d
    ADMM (split Bregman)                                         min |A x - d|^2 / 2 + tv sum |grad x|

Arrays may be cut in any way: sums of whole arrays are scalars, slopes send the faces of blocks. Invariant: no program
starts before the last one has ended. Of two that do not wait for each other each may hold threads that the other needs,
on CPUs for ever.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax import block_until_ready as ended

Operator = Callable[[Array], Array]
POWERS = 10  # of the normal operator, for its largest eigenvalue
INNER = 5  # conjugate gradients in a round of ADMM
STIFF = 10  # rho over tv: a slope shorter than a tenth of the brightest pixel is shrunk to none in the first round


class Problem(NamedTuple):
    """Find x with normal(x) = right.

    Attributes:
        normal: N, divided by its largest eigenvalue where the problem was made so.
        right: b, alike.
        start: an image already, or zero.
        dims: the last dimensions of the image, those of its pixels.
    """

    normal: Operator
    right: Array
    start: Array
    dims: int


class Iterate(NamedTuple):
    """Where conjugate gradients stand: image, residual b - N x, direction, |residual|^2."""

    image: Array
    residual: Array
    direction: Array
    square: Array


def gradients(problem: Problem, l2: float = 0.0) -> Iterator[Iterate]:
    """Conjugate gradients from the start on, step by step: one application of N each.

    Args:
        l2: weight of |x|^2, of the largest eigenvalue where the problem is of `unit`.
    """

    def normal(x: Array) -> Array:
        return problem.normal(x) + l2 * x

    now = begin(normal, problem.right, problem.start)
    while True:
        yield now
        now = step(normal, now)


def variation(problem: Problem, tv: float, l2: float = 0.0) -> Iterator[Iterate]:
    """Total variation from the start on, round by round: INNER + 1 applications of N each.

    x <- the minimum of x^H N x / 2 - Re b^H x + rho |grad x - z + u|^2 / 2, nearly; z <- grad x + u, every slope
    shortened by tv / rho; u <- u + grad x - z.

    Args:
        problem: of `unit`.
        tv: weight of |grad x| where the brightest pixel of the start is 1.
        l2: as `gradients`.

    Source: Goldstein and Osher, "The split Bregman method for L1-regularized problems", SIAM J. Imaging Sci. 2009.
    """
    rho, image, dims = STIFF * tv, problem.start, problem.dims
    least = ended(jnp.max(jnp.abs(image)) / STIFF)

    def normal(x: Array) -> Array:
        return problem.normal(x) + l2 * x

    def steep(x: Array) -> Array:
        return ended(_steeper(normal(x), x, rho, dims))

    shrunk = ended(slopes(image, dims))
    multiplier = jnp.zeros_like(shrunk)
    while True:
        yield begin(normal, problem.right, image)
        now = begin(steep, ended(problem.right + rho * transposed(shrunk - multiplier)), image)
        for _ in range(INNER):
            now = step(steep, now)
        image = now.image
        shrunk, multiplier = ended(_shrunk(image, multiplier, least))


def relative(problem: Problem, now: Iterate) -> float:
    """|b - N x| / |b|; 0 where b is."""
    return float(jnp.sqrt(over(now.square, dot(problem.right, problem.right))))


def begin(normal: Operator, b: Array, start: Array) -> Iterate:
    """Conjugate gradients before the first step."""
    residual = b - normal(start)
    return Iterate(start, residual, residual, ended(dot(residual, residual)))


def step(normal: Operator, now: Iterate) -> Iterate:
    """One step of conjugate gradients; at the solution it stays there."""
    return ended(_advanced(now, normal(now.direction)))


@functools.partial(jax.jit, static_argnums=1)
def slopes(x: Array, dims: int) -> Array:
    """Differences to the next pixel along the last dimensions, round the edge: (dims, *x.shape)."""
    return jnp.stack([jnp.roll(x, -1, dim) - x for dim in range(x.ndim - dims, x.ndim)])


@jax.jit
def transposed(slope: Array) -> Array:
    """The transpose of `slopes`."""
    first = slope[0].ndim - len(slope)
    return jnp.sum(jnp.stack([jnp.roll(one, 1, first + j) - one for j, one in enumerate(slope)]), 0)


def of_unit(problem: Problem) -> Problem:
    """The problem over the largest eigenvalue of N, found by the power method."""
    image, scale = problem.right, _length(problem.right)
    for _ in range(POWERS):
        image = problem.normal(image / scale)
        scale = _length(image)
    return problem._replace(normal=lambda x: problem.normal(x) / scale, right=problem.right / scale)


def _length(x: Array) -> Array:
    """|x|, or 1 where that is 0, in the type of x."""
    size = ended(jnp.sqrt(dot(x, x)))
    return jnp.where(size > 0, size, 1).astype(x.dtype)


@jax.jit
def _advanced(now: Iterate, product: Array) -> Iterate:
    length = over(now.square, dot(now.direction, product)).astype(now.image.dtype)
    residual = now.residual - length * product
    square = dot(residual, residual)
    direction = residual + over(square, now.square).astype(now.image.dtype) * now.direction
    return Iterate(now.image + length * now.direction, residual, direction, square)


@functools.partial(jax.jit, static_argnums=3)
def _steeper(product: Array, x: Array, rho: float, dims: int) -> Array:
    return product + rho * transposed(slopes(x, dims))


@jax.jit
def _shrunk(image: Array, multiplier: Array, least: Array) -> tuple[Array, Array]:
    """The slopes and the multiplier shortened, and what is left of them."""
    slope = slopes(image, len(multiplier)) + multiplier
    size = jnp.sqrt(jnp.sum(jnp.abs(slope) ** 2, 0, keepdims=True))
    shorter = slope * over(jnp.maximum(size - least, 0), size).astype(slope.dtype)
    return shorter, slope - shorter


@jax.jit
def dot(a: Array, b: Array) -> Array:
    return jnp.real(jnp.sum(jnp.conj(a) * b))


def over(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)
