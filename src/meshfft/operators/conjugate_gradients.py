"""Conjugate gradients on N x = b for a Hermitian positive N, and the normal equations of samples.

    a = |r|^2 / p^H N p,   x += a p,   r -= a N p,   c = |r'|^2 / |r|^2,   p <- r + c p

Arrays are JAX's or NumPy's, or tuples of planes. The extreme eigenvalues of Lanczos' matrix, made of a and c,
approximate those of N: condition numbers.

    T = V^H V,   T[m, n] = t_{m - n},   t_j = sum_k z_k^j,   |z_k| = 1

T is the corner of a circulant matrix of P >= 2 N - 1 columns with eigenvalues 2 Re FFT_P(t_0 ... t_{N-1}) - t_0,
applied by two FFTs. With j = a B + b the moments are one product, t = A^T B, of 2 sqrt(N) exact phases per sample.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from ..layout.memory import check_held
from ..numerics.phases import Floats, of_logarithm, power_of_two, snapped, times
from ..numerics.split_complex import Planes, scaled
from .inverses import host_vandermonde
from .matrices import Logarithm, Samples
from .points import Points
from .transform import fast_length

STEPS = 2000  # most on the host
TRACED_STEPS = 256  # for traced points
TRACED_ENTRIES = 2**24  # largest matrix that every device makes for the condition of traced points off the circle
_ENTRIES = 2**22  # phases made at a time on the host
_CONVERGED = 1e-8  # residual that leaves the extreme eigenvalues accurate to a few per cent

X = TypeVar("X", Array, np.ndarray, Planes)  # images
R = TypeVar("R", Array, np.float64)  # numbers
V = TypeVar("V", Array, np.ndarray)


class Iterate(NamedTuple, Generic[X, R]):
    """The image, residual b - N x, direction, and |residual|^2."""

    image: X
    residual: X
    direction: X
    square: R


def advanced(
    now: Iterate[X, R], product: X, inner: Callable[[X, X], R], ratio: Callable[[R, R], R]
) -> tuple[Iterate[X, R], R, R]:
    """One step, given N p, with its coefficients a and c."""

    def plus(x: X, factor: R, y: X) -> X:
        return jax.tree.map(lambda x, y: x + factor.astype(y.dtype) * y, x, y)

    length = ratio(now.square, inner(now.direction, product))
    residual = plus(now.residual, -length, product)
    square = inner(residual, residual)
    onward = ratio(square, now.square)
    after = Iterate(plus(now.image, length, now.direction), residual, plus(residual, onward, now.direction), square)
    return after, length, onward


def tridiagonal(lengths: V, ratios: V) -> tuple[V, V]:
    """The diagonal and off-diagonal of Lanczos' matrix."""
    xp = np if isinstance(lengths, np.ndarray) else jnp
    before = ratios[:-1] / lengths[:-1]
    return 1 / lengths + xp.concatenate([xp.zeros_like(ratios[:1]), before]), xp.sqrt(ratios[:-1]) / lengths[:-1]


def extremes(taken: Sequence[tuple[float, ...]]) -> tuple[float, float]:
    """The extreme eigenvalues of Lanczos' matrix, none below 0, from the coefficients of every step."""
    from scipy import linalg  # importing takes 0.25 s

    values = linalg.eigvalsh_tridiagonal(*tridiagonal(*np.array(taken).T))
    return max(float(values[0]), 0.0), float(values[-1])


def solved(
    normal: Callable[[Planes], Planes], b: Planes, mapped: tuple[str, ...], tol: float, iterations: int
) -> tuple[Planes, Array]:
    """The x with normal(x) = b to a relative residual, and the iterations; NaN if the matrix is not positive."""

    def inner(p: Planes, q: Planes) -> Array:
        total = sum(jnp.sum(jnp.real(a) * jnp.real(b) + jnp.imag(a) * jnp.imag(b)) for a, b in zip(p, q, strict=True))
        return lax.psum(total, mapped) if mapped else jnp.asarray(total)

    def ratio(a: Array, b: Array) -> Array:
        return jnp.where(b > 0, a / b, jnp.full_like(b, jnp.nan))

    def more(state: tuple[Iterate[Planes, Array], Array]) -> Array:
        return (state[0].square > limit) & (state[1] < iterations)

    def step(state: tuple[Iterate[Planes, Array], Array]) -> tuple[Iterate[Planes, Array], Array]:
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
    count = lax.pcast(count, mapped, to="varying") if mapped else count  # both results must vary alike
    return tuple(scaled(part, size) for part in now.image), count


def about_the_circle(points: Points) -> tuple[Points, Floats | float]:
    """Points about the unit circle, and their mean log radius."""
    if points.log_radius is None:
        return points, 0.0
    logs = points.log_radius
    mean = float(np.mean(logs)) if isinstance(logs, np.ndarray) else lax.stop_gradient(jnp.mean(logs))
    rest = logs - mean
    return dataclasses.replace(points, log_radius=snapped(rest) if isinstance(rest, np.ndarray) else rest), mean


def growth(mean: Floats | float, size: int, real: DTypeLike) -> Array | np.ndarray:
    if isinstance(mean, float):
        return host_vandermonde(np.zeros(1), np.full(1, -mean), size)[0].real
    words = tuple(word[None] for word in of_logarithm(jnp.asarray(mean), 3))
    return power_of_two(times(jnp.arange(size, dtype=jnp.uint32), words), real)


def eigenvalues(points: Points, size: int, length: int, real: DTypeLike) -> Floats:
    """Eigenvalues of the circulant matrix of `length` columns, for points on the unit circle."""
    if points.known:
        t = _moments(points, size)
        return np.asarray(2 * np.fft.fft(t, length).real - t[0].real)
    traced = _traced_moments(points, size, real)
    return 2 * jnp.fft.fft(traced, length).real - traced[0].real


@functools.lru_cache(maxsize=64)
def _moments(points: Points, size: int) -> np.ndarray:
    """t_0 ... t_{size-1} of known points on the unit circle."""
    turns, width = points.in_turns, math.isqrt(size - 1) + 1
    total, rows = np.zeros((width, width), np.complex128), max(1, _ENTRIES // width)
    for part in (turns[start : start + rows] for start in range(0, len(turns), rows)):
        total += host_vandermonde(part, None, width, width).T @ host_vandermonde(part, None, width)
    return total.conj().ravel()[:size]


def _traced_moments(points: Points, size: int, real: DTypeLike) -> Array:
    """`_moments` by exact phases times exp(i n d), with d = 0 the variable of derivatives."""
    width, angles = math.isqrt(size - 1) + 1, jnp.asarray(points.angle)
    fixed = lax.stop_gradient(angles)
    samples = Samples(points.size, size, points.unit, conjugated=True)
    operand = samples.prepare(Logarithm(fixed, None), real)
    change = (angles - fixed).astype(real) * (2 * np.pi if points.unit == "turns" else 1.0)

    def powers(n: np.ndarray) -> Array:
        angle = change[:, None] * jnp.asarray(n, real)[None, :]
        return lax.complex(*samples.block(operand, jnp.asarray(n), jnp.asarray(n), real)) * lax.complex(
            jnp.cos(angle), jnp.sin(angle)
        )

    n = np.arange(width)
    return jnp.matmul(powers(width * n).T, powers(n), precision="highest").ravel()[:size]


@functools.lru_cache(maxsize=64)
def condition_number(points: Points, size: int) -> float:
    """V's 2-norm condition number for known points, by Lanczos; infinite if it does not converge."""
    if points.log_radius is None:
        length = fast_length(2 * size - 1, 1, real=True)
        symbol = eigenvalues(points, size, length, np.float64)
        return _condition(lambda x: np.fft.ifft(symbol * np.fft.fft(x, length))[:size], size)
    check_held(2 * 16 * size * points.size, "the matrix of points off the circle", "solve for fewer unknowns")
    matrix = host_vandermonde(points.in_turns, points.log_radius, size)
    return _condition(lambda x: (matrix.T @ (matrix @ x).conj()).conj(), size)


@np.errstate(all="ignore")
def _condition(normal: Callable[[np.ndarray], np.ndarray], size: int) -> float:
    def inner(a: np.ndarray, b: np.ndarray) -> np.float64:
        return np.float64(np.vdot(a, b).real)

    rng, taken = np.random.default_rng(0), list[tuple[np.float64, ...]]()
    rest = rng.standard_normal(size) + 1j * rng.standard_normal(size)
    now = Iterate(np.zeros_like(rest), rest, rest, inner(rest, rest))
    small = _CONVERGED**2 * now.square
    while now.square > small and len(taken) < STEPS:
        now, *numbers = advanced(now, normal(now.direction), inner, operator.truediv)
        taken.append(tuple(numbers))
    if not now.square <= small or min(length for length, _ in taken) <= 0:
        return math.inf
    low, high = extremes(taken)
    return math.sqrt(high / low) if low > 0 else math.inf


def _traced_normal(points: Points, symbol: Floats | None, size: int, real: DTypeLike) -> Callable[[Array], Array]:
    if symbol is not None:
        values = jnp.asarray(symbol, real)
        return lambda x: jnp.fft.ifft(lax.complex(values, values * 0) * jnp.fft.fft(x, values.shape[0]))[:size]
    samples, n = Samples(points.size, size, points.unit), jnp.arange(size, dtype=jnp.int32)
    operand = samples.prepare(Logarithm(jnp.asarray(points.angle), points.log_radius), real)
    matrix = lax.complex(*samples.block(operand, jnp.arange(points.size), n, real))
    product = functools.partial(jnp.matmul, precision="highest")
    return lambda x: product(matrix.conj().T, product(matrix, x))


def traced_condition(points: Points, symbol: Floats | None, size: int, real: DTypeLike) -> Array:
    """V's condition number for traced points; infinite if TRACED_STEPS do not suffice.

    T is applied by its eigenvalues `symbol`, or by V.
    """
    normal = _traced_normal(points, symbol, size, real)
    start = jnp.asarray(np.random.default_rng(0).standard_normal(size), real)
    vector = lax.complex(start, start * 0)
    first = Iterate(vector * 0, vector, vector, jnp.vdot(start, start))
    small = jnp.finfo(real).eps * first.square

    def step(now: Iterate[Array, Array], _: None) -> tuple[Iterate[Array, Array], tuple[Array, Array, Array]]:
        after, length, ratio = advanced(now, normal(now.direction), lambda a, b: jnp.vdot(a, b).real, operator.truediv)
        done = now.square <= small
        return jax.tree.map(functools.partial(jnp.where, done), now, after), (length, ratio, done)

    last, (lengths, ratios, done) = lax.scan(step, first, None, length=TRACED_STEPS)
    lengths, ratios = jnp.where(done, lengths[0], lengths), jnp.where(done, jnp.zeros_like(ratios), ratios)
    bad = ~((last.square <= small) & (lengths > 0).all())
    diagonal, beside = tridiagonal(lengths, ratios)
    beside = jnp.where(done[1:], jnp.zeros_like(beside), beside)
    diagonal, beside = (jnp.where(bad, jnp.ones_like(part), part) for part in (diagonal, beside))
    values = jnp.linalg.eigvalsh(jnp.diag(diagonal) + jnp.diag(beside, 1) + jnp.diag(beside, -1))
    infinite = jnp.full_like(small, jnp.inf)
    return jnp.where(bad | (values[0] <= 0), infinite, jnp.sqrt(jnp.abs(values[-1] / values[0])))
