"""Gridding windows: one polynomial fitted to the prolate spheroidal function of order zero.

    phi(z) = s q(t),   s = max(1 - z^2, 0),   t = s - 1/2         |z| <= 1 spans `width` cells of the fine grid
    phihat(xi) = width / 2 int_-1^1 phi(z) cos(pi width xi z) dz

Among functions that vanish for |z| > 1, the prolate one has the most of its spectrum within a band, so its aliases, the
error of gridding, are least. The polynomial has no table, no branch and exact derivatives; s = 0 is the mask.
In t it is evaluated without cancellation.

Source: Osipov, Rokhlin, Xiao, "Prolate Spheroidal Wave Functions of Order Zero", 2013; finufft 2.5.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.polynomial import Polynomial, chebyshev, legendre

WIDTHS = range(2, 17)
LEAST_TOL = {"complex64": 1e-6, "complex128": 1e-12}
SUMMED = "the sum itself: method='kdft', or for a plan mf.plan(shape, points=points, dtype='complex128')"
BELOW = {"complex64": "precision='float64'", "complex128": SUMMED}  # remedies for a smaller tolerance
QUADRATURE = 200  # Gauss points for a window's transform
ENDS, BETWEEN = 121, 1.02  # modes tested for the largest error, and its allowed growth between them
# By oversampling, for widths from 2: bandwidth / width with the least error (by `best_bandwidth`), and the degree of q.
BEST = {
    2.0: (
        (2.245, 2.302, 2.320, 2.329, 2.334, 2.337, 2.340, 2.342, 2.344, 2.346, 2.347, 2.349, 2.350, 2.350, 2.350),
        (3, 3, 6, 6, 8, 10, 12, 13, 15, 17, 19, 20, 22, 23, 23),
    ),
    1.5: (
        (1.982, 2.022, 2.046, 2.057, 2.064, 2.070, 2.074, 2.077, 2.080, 2.082, 2.084, 2.086, 2.087, 2.088, 2.089),
        (3, 4, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22),
    ),
    1.25: (
        (1.736, 1.779, 1.820, 1.838, 1.849, 1.856, 1.861, 1.865, 1.869, 1.871, 1.873, 1.875, 1.876, 1.877, 1.878),
        (3, 4, 3, 4, 6, 7, 9, 10, 12, 13, 14, 15, 17, 18, 20),
    ),
}
WindowProfile = Callable[[np.ndarray], np.ndarray]
X = TypeVar("X", np.ndarray, Array)


@dataclasses.dataclass(frozen=True)
class Window:
    width: int
    sigma: float  # cells of the fine grid per pixel
    coefficients: tuple[float, ...]  # of q in t, the lowest first
    error: float  # relative RMS error of a 1-D transform, over points and modes
    worst: float  # largest relative error of any point and mode

    def values(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(phi(z * (self.width / 2), self.width, self.coefficients))

    def transform(self, xi: np.ndarray) -> np.ndarray:
        """phihat at frequencies in cycles per cell, by quadrature and Chebyshev interpolation."""
        z, weights = _gauss()
        largest = float(np.abs(xi).max(initial=0.0)) or 1.0
        nodes = chebyshev.chebpts1(24 + math.ceil(math.pi * self.width * largest))  # more than its half waves
        there = _transform(self.values(z) * weights, z, self.width, largest * np.sqrt((1 + nodes) / 2))
        series = chebyshev.chebfit(nodes, there, len(nodes) - 1)
        return np.asarray(chebyshev.chebval(2 * np.square(np.asarray(xi) / largest) - 1, series))


def phi(x: X, width: int, coefficients: tuple[float, ...], order: int = 0) -> X:
    """The window at x cells from its middle, or its derivative of some order in -x.

    t is computed directly: by way of s, one more rounding would make the error half as large again.
    """
    xp = jnp if isinstance(x, Array) else np
    z = x * (2 / width)
    t = xp.maximum(0.5 - z * z, -0.5)
    if order == 0:
        return (t + 0.5) * polynomial(coefficients, t)
    even, odd = _derived(coefficients, order)
    total = z * polynomial(odd, t)
    if any(even):
        total = total + polynomial(even, t)
    return xp.where(t > -0.5, total * (-2 / width) ** order, 0)


@functools.lru_cache(maxsize=64)
def reciprocal(made: Window) -> tuple[float, ...]:
    """Coefficients of 1 / phihat(xi) in 2 (2 sigma xi)^2 - 1, for |xi| <= 1 / (2 sigma), to a float64."""
    t = chebyshev.chebpts1(60)
    fit = chebyshev.chebfit(t, 1 / made.transform(np.sqrt((1 + t) / 2) / (2 * made.sigma)), 24)
    kept = np.flatnonzero(np.abs(fit) > 1e-17 * np.abs(fit).max())[-1] + 1
    return tuple(map(float, Polynomial(chebyshev.cheb2poly(fit[:kept])).coef))


@functools.lru_cache(maxsize=64)
def _derived(coefficients: tuple[float, ...], order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Polynomials a and b in t with d^n phi / dz^n = a + z b; dt/dz = -2 z and z^2 = 1/2 - t."""
    even, odd = Polynomial(coefficients) * Polynomial([0.5, 1.0]), Polynomial([0.0])
    for _ in range(order):
        even, odd = odd - Polynomial([1.0, -2.0]) * odd.deriv(), -2 * even.deriv()
    return tuple(map(float, even.coef)), tuple(map(float, odd.coef))


def polynomial(coefficients: tuple[float, ...], t: X) -> X:
    xp = jnp if isinstance(t, Array) else np
    total = xp.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * t + c
    return total


def window(tol: float, sigma: float, dims: int, dtype: np.dtype) -> Window:
    """The narrowest window whose error in `dims` dimensions is at most `tol` for every point and mode.

    Raises ValueError if the type cannot hold the tolerance, or if sigma is not in [1.1, 4].
    """
    if not isinstance(sigma, int | float) or not 1.1 <= sigma <= 4:
        raise ValueError(f"sigma is {sigma!r}: give cells of the fine grid for each sample, from 1.1 to 4, mostly 2")
    check_tol(tol, dtype)
    return _window(float(tol), float(sigma), dims, np.dtype(dtype).name)


def check_tol(tol: object, dtype: np.dtype, remedies: Mapping[str, str] = BELOW) -> None:
    """Raises ValueError if the type cannot hold the tolerance."""
    name = np.dtype(dtype).name
    if not isinstance(tol, int | float) or not 0 < tol < 1:
        raise ValueError(f"tol is {tol!r}: give a relative error, such as 1e-6")
    if tol < LEAST_TOL[name] * (1 - 1e-6):  # tolerates a float32
        other = f", or {remedies[name]}" if name in remedies else ""
        raise ValueError(f"tol={tol:g} is below what {name} holds: use tol >= {LEAST_TOL[name]:g}{other}")


@functools.lru_cache(maxsize=256)
def gain(made: Window) -> float:
    """Factor by which the window and its division magnify rounding, in one dimension."""
    xi = np.linspace(-0.5, 0.5, 101)
    grid, modes = made.transform(xi), made.transform(xi / made.sigma)
    return math.sqrt(np.mean(grid**2) * np.mean(modes**-2.0))


@functools.lru_cache(maxsize=256)
def _window(tol: float, sigma: float, dims: int, name: str) -> Window:
    """The narrowest window that leaves room for rounding."""
    rounding = math.inf
    for one in (fitted(width, sigma) for width in WIDTHS):
        if one.worst * dims <= tol:
            rounding = min(rounding, float(np.finfo(name).eps) * gain(one) ** dims)
            if one.worst * dims + rounding <= tol:
                return one
    if rounding == math.inf:
        raise ValueError(f"tol={tol:g} wants more than {WIDTHS[-1]} cells at sigma={sigma:g}: use a larger sigma, as 2")
    raise ValueError(
        f"tol={tol:g} at sigma={sigma:g}: {dims} dimensions magnify the rounding of {name} to {rounding:.0e}; use "
        f"sigma=2, tol >= {1.5 * rounding:.0e} or precision='float64'"
    )


@functools.lru_cache(maxsize=256)
def fitted(width: int, sigma: float) -> Window:
    ratios, degrees = BEST.get(sigma, ((), ()))
    ratio = ratios[width - WIDTHS[0]] if ratios else best_bandwidth(width, sigma)
    best = prolate(width * ratio)
    s = (1 + np.cos((np.arange(400) + 0.5) / 400 * np.pi)) / 2
    wanted = best(np.sqrt(1 - s))
    tried = (degrees[width - WIDTHS[0]],) if degrees else range(3, 24)
    limit = 0.0 if degrees else 1.15 * errors(best, width, sigma)[0]
    for degree in tried:
        basis = s[:, None] * chebyshev.chebvander(2 * s - 1, degree)
        fit, *_ = np.linalg.lstsq(basis, wanted, rcond=None)
        q = Polynomial(chebyshev.cheb2poly(fit))(Polynomial([0.0, 2.0])).coef  # 2 s - 1 = 2 (s - 1/2)
        made = Window(width, sigma, tuple(map(float, q)), 0.0, 0.0)
        reached, worst = errors(made.values, width, sigma)
        if reached < limit:
            break
    return dataclasses.replace(made, error=reached, worst=worst)


def prolate(bandwidth: float) -> WindowProfile:
    """Prolate spheroidal function of order zero, 1 in the middle, by Legendre coefficients."""
    from scipy import linalg  # importing takes 0.25 s

    k = np.arange(0, 120, 2).astype(float)
    diagonal = k * (k + 1) + (2 * k * (k + 1) - 1) / ((2 * k + 3) * (2 * k - 1)) * bandwidth**2
    beside = (k + 2) * (k + 1) / ((2 * k + 3) * np.sqrt((2 * k + 1) * (2 * k + 5))) * bandwidth**2
    _, vectors = linalg.eigh_tridiagonal(diagonal, beside[:-1], select="i", select_range=(0, 0))
    coefficients = np.zeros(120)
    coefficients[::2] = vectors[:, 0] * np.sqrt(k + 0.5)
    middle = legendre.legval(0.0, coefficients)
    return lambda z: np.where(np.abs(z) < 1, legendre.legval(np.clip(z, -1, 1), coefficients) / middle, 0.0)


def errors(phi: WindowProfile, width: int, sigma: float) -> tuple[float, float]:
    """Root mean square and largest relative error of a 1-D transform, over points and modes."""
    z, weights = _gauss()
    # Points and modes for the mean, then cell edges, and modes near the band's end.
    t = np.append((np.arange(40) + 0.5) / 40, [0, 1])
    xi = np.append(np.linspace(-0.5, 0.5, 61), np.sin(np.linspace(0, np.pi / 2, ENDS)) / 2) / sigma
    from_point = np.arange(width) - (width / 2 - 1 + t[:, None])
    waves = np.exp(-2j * np.pi * xi[:, None, None] * from_point)
    sums = np.einsum("tl,xtl->tx", phi(from_point * 2 / width), waves)
    misses = np.abs(sums / _transform(phi(z) * weights, z, width, xi) - 1)
    return float(np.sqrt(np.mean(misses[:40, :61] ** 2))), float(BETWEEN * misses.max())


def _transform(weighted: np.ndarray, z: np.ndarray, width: int, xi: np.ndarray) -> np.ndarray:
    return np.asarray(width / 2 * np.cos(np.pi * width * np.multiply.outer(xi, z)) @ weighted)


@functools.lru_cache(maxsize=1)
def _gauss() -> tuple[np.ndarray, np.ndarray]:
    return legendre.leggauss(QUADRATURE)


def best_bandwidth(width: int, sigma: float) -> float:
    from scipy import optimize

    def log_error(ratio: float) -> float:
        return math.log(errors(prolate(width * ratio), width, sigma)[0])

    start = math.pi * (1 - 1 / (2 * sigma))
    bounds = (0.75 * start, 1.12 * start)
    return float(optimize.minimize_scalar(log_error, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x)
