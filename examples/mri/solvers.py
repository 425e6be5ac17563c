"""Image from data: conjugate gradients and total variation, for any normal operator.

Least squares:      min |W^(1/2) (A x - d)|^2 + ridge |x|^2          (N + ridge) x = b,   N = A^H W A,  b = A^H W d
Total variation:    min |W^(1/2) (A x - d)|^2 / 2 + strength sum |grad x|        by ADMM (split Bregman):

    x <- argmin x^H N x / 2 - Re b^H x + rho |grad x - z + u|^2 / 2    a few steps of CG
    z <- shrink(grad x + u, strength / rho)                            |.| over dimensions and over re, im together
    u <- u + grad x - z

Everything is written with arrays of any rank and any sharding: sums of whole arrays are scalars, differences send the
faces of blocks, and all else is local or in N.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

Operator = Callable[[Array], Array]


class Iterate(NamedTuple):
    """Where conjugate gradients stand: image, residual b - N x, direction, |residual|^2."""

    image: Array
    residual: Array
    direction: Array
    square: Array


def begin(normal: Operator, b: Array, start: Array | None = None) -> Iterate:
    """Conjugate gradients before the first step, from `start` or from zero."""
    image = jnp.zeros_like(b) if start is None else start
    residual = b if start is None else b - normal(start)
    return Iterate(image, residual, residual, _dot(residual, residual))


def step(normal: Operator, now: Iterate) -> Iterate:
    """One step of conjugate gradients: one application of `normal`. At the solution it stays there."""
    product = normal(now.direction)
    length = _over(now.square, _dot(now.direction, product)).astype(now.image.dtype)
    residual = now.residual - length * product
    square = _dot(residual, residual)
    direction = residual + _over(square, now.square).astype(now.image.dtype) * now.direction
    return Iterate(now.image + length * now.direction, residual, direction, square)


class Split(NamedTuple):
    """Where ADMM stands: image, its gradient as shrunk, and the scaled multiplier; the last two (d, *image)."""

    image: Array
    shrunk: Array
    multiplier: Array


def split(image: Array) -> Split:
    """ADMM before the first round."""
    return Split(image, gradient(image), jnp.zeros_like(gradient(image)))


def round_(normal: Operator, b: Array, now: Split, strength: float, rho: float, inner: int = 5) -> Split:
    """One round of ADMM: `inner` applications of `normal`, and one more."""
    target = b + rho * divergence(now.shrunk - now.multiplier)
    steep: Operator = lambda x: normal(x) + rho * divergence(gradient(x))  # noqa: E731
    found = lax.fori_loop(0, inner, lambda _, at: step(steep, at), begin(steep, target, now.image)).image
    slope = gradient(found) + now.multiplier
    size = jnp.sqrt(jnp.sum(jnp.abs(slope) ** 2, 0, keepdims=True))
    shrunk = slope * _over(jnp.maximum(size - strength / rho, 0), size).astype(slope.dtype)
    return Split(found, shrunk, slope - shrunk)


def gradient(x: Array) -> Array:
    """Differences to the next pixel along every dimension, round the edge: (d, *x.shape)."""
    return jnp.stack([jnp.roll(x, -1, dim) - x for dim in range(x.ndim)])


def divergence(slopes: Array) -> Array:
    """The transpose of `gradient`."""
    return jnp.sum(jnp.stack([jnp.roll(one, 1, dim) - one for dim, one in enumerate(slopes)]), 0)


def largest(normal: Operator, like: Array, rounds: int = 10) -> Array:
    """The largest eigenvalue of `normal`, by the power method from `like`: a scale for ridge, strength and rho."""

    def turn(_: int, at: tuple[Array, Array]) -> tuple[Array, Array]:
        image, size = at
        found = normal(image / size.astype(image.dtype))
        return found, jnp.sqrt(_dot(found, found))

    return lax.fori_loop(0, rounds, turn, (like, jnp.sqrt(_dot(like, like))))[1]


def _dot(a: Array, b: Array) -> Array:
    return jnp.real(jnp.sum(jnp.conj(a) * b))


def _over(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0."""
    return jnp.where(b != 0, a / jnp.where(b != 0, b, 1), 0)
