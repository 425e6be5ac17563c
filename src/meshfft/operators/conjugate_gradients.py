"""Conjugate gradients on N x = b for a Hermitian positive N, and the tridiagonal matrix of Lanczos.

    a = |r|^2 / p^H N p,   x += a p,   r -= a N p,   c = |r'|^2 / |r|^2,   p <- r + c p

Arrays are JAX's or NumPy's, or tuples of planes. The extreme eigenvalues of Lanczos' matrix approximate those of N.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..numerics.split_complex import Planes, scaled


class Iterate(NamedTuple):
    """State of conjugate gradients: image, residual b - N x, direction, |residual|^2."""

    image: Any
    residual: Any
    direction: Any
    square: Any


def advanced(
    now: Iterate, product: Any, inner: Callable[[Any, Any], Any], ratio: Callable[[Any, Any], Any]
) -> tuple[Iterate, Any, Any]:
    """One step, given N p, with its coefficients a and c."""

    def plus(x: Any, factor: Any, y: Any) -> Any:
        return jax.tree.map(lambda x, y: x + factor.astype(y.dtype) * y, x, y)

    length = ratio(now.square, inner(now.direction, product))
    residual = plus(now.residual, -length, product)
    square = inner(residual, residual)
    onward = ratio(square, now.square)
    after = Iterate(plus(now.image, length, now.direction), residual, plus(residual, onward, now.direction), square)
    return after, length, onward


def tridiagonal(lengths: Any, ratios: Any) -> tuple[Any, Any]:
    """The diagonal and off-diagonal of Lanczos' matrix, from the coefficients a and c of all steps."""
    xp: Any = np if isinstance(lengths, np.ndarray) else jnp
    before = ratios[:-1] / lengths[:-1]
    return 1 / lengths + xp.concatenate([xp.zeros_like(ratios[:1]), before]), xp.sqrt(ratios[:-1]) / lengths[:-1]


def solved(
    normal: Callable[[Planes], Planes], b: Planes, mapped: tuple[str, ...], tol: float, iterations: int
) -> tuple[Planes, Array]:
    """The x with normal(x) = b to a relative residual, and the iterations; NaN if the matrix is not positive.

    Sums include the mesh axes `mapped` of a caller's shard_map.
    """

    def inner(p: Planes, q: Planes) -> Array:
        total = sum(jnp.sum(jnp.real(a) * jnp.real(b) + jnp.imag(a) * jnp.imag(b)) for a, b in zip(p, q, strict=True))
        return lax.psum(total, mapped) if mapped else jnp.asarray(total)

    def ratio(a: Array, b: Array) -> Array:
        return jnp.where(b > 0, a / b, jnp.full_like(b, jnp.nan))

    def more(state: tuple[Iterate, Array]) -> Array:
        return (state[0].square > limit) & (state[1] < iterations)

    def step(state: tuple[Iterate, Array]) -> tuple[Iterate, Array]:
        now, count = state
        return advanced(now, normal(now.direction), inner, ratio)[0], count + 1

    largest = functools.reduce(jnp.maximum, (jnp.max(jnp.abs(part)) for part in b))
    largest = lax.pmax(largest, mapped) if mapped else largest
    size = jnp.where(largest > 0, largest, jnp.ones_like(largest))
    r = tuple(scaled(part, 1 / size) for part in b)  # squares of tiny numbers would underflow
    energy = inner(r, r)
    limit = energy * tol**2
    zero = tuple(part - part for part in r)
    now, count = lax.while_loop(more, step, (Iterate(zero, r, r, energy), jnp.zeros((), jnp.int32)))
    count = lax.pcast(count, mapped, to="varying") if mapped else count  # JAX requires both results to vary alike
    return tuple(scaled(part, size) for part in now.image), count
