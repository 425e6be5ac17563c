"""The Fourier matrix of arbitrary points of the z-plane and its inverse, on the host in float64.

    V[k, n] = z_k^-n = exp(-n (log_radius_k + 2 pi i turns_k)),   phase and magnitude separately

A factor of n is split so that its product with n < 2^29 fits in 53 bits. Errors: phases 2e-17 of a turn, entries 4e-16
on the circle and a relative 1e-15 off it.

V = Vs D with D = diag(rho^-n), rho the geometric mean of the radii; only Vs is inverted. Invariant: W Vs = I up to eps
times the condition number of Vs, which is reported; the result is D^-1 W. Square Vs: LU, or Newton interpolation
(Björck and Pereyra 1970) if its residual is smaller. More points: QR. With a weight, the minimiser of ||Vs y - b||^2 +
(tikhonov sigma_max)^2 ||y||^2, or no singular values below truncation sigma_max.
"""

from typing import NamedTuple

import numpy as np

from ..numerics.phases import QUARTERS, Floats

_DIGITS = 2.0**24  # 24 bits, whose products with 29 are exact in float64
_BLOCK = 2**18  # entries made at a time
_INTERPOLATION = 512  # most points for Newton interpolation
_ACCURATE = 1e-12  # LU with a smaller residual needs no interpolation
_RELATIVE = "relative to the largest singular value"
_ITERATIONS, _VECTORS = 30, 4  # of the power iteration, whose norms are at most a few per cent too small


def host_vandermonde(turns: Floats, log_radius: Floats | None, columns: int, stride: int = 1) -> np.ndarray:
    """V in complex128 for n = 0, stride, 2 stride ..., on the unit circle without radii; entries may overflow."""
    turns, n = np.asarray(turns, np.float64), stride * np.arange(columns, dtype=np.float64)
    matrix = np.empty((len(turns), columns), np.complex128)
    step = max(1, _BLOCK // max(1, columns))
    for rows in (slice(start, start + step) for start in range(0, len(turns), step)):
        matrix[rows] = _phasors(turns[rows, None], n)
        if log_radius is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                matrix[rows] *= _magnitudes(np.asarray(log_radius, np.float64)[rows, None], n)
    return matrix


def _phasors(turns: np.ndarray, n: np.ndarray) -> np.ndarray:
    """exp(-2 pi i n turns): two digits of `turns` times n, mod 1 exactly; the rest is below 2^-49."""
    rest = turns - np.rint(turns)
    fraction = np.zeros(np.broadcast_shapes(turns.shape, n.shape))
    for unit in (_DIGITS, _DIGITS**2):
        digit = np.rint(rest * unit) / unit
        rest = rest - digit
        product = digit * n
        fraction += product - np.rint(product)
    quarter = np.rint(4 * fraction)
    angle = 2 * np.pi * (fraction - quarter / 4 + rest * n)
    return (np.cos(angle) - 1j * np.sin(angle)) * QUARTERS[-quarter.astype(np.int64) % 4]


def _magnitudes(log_radius: np.ndarray, n: np.ndarray) -> np.ndarray:
    """exp(-n log_radius): the leading 24 bits times n exactly, then a correction below 1e-4."""
    mantissa, exponent = np.frexp(log_radius)
    high = np.ldexp(np.rint(mantissa * _DIGITS) / _DIGITS, exponent)
    power = np.exp(-n * high)
    return power + power * np.expm1(-n * (log_radius - high))


class Inverse(NamedTuple):
    """The inverse of V, for M points and N samples.

    Attributes:
        matrix: N x M, complex128; NaN without an inverse.
        condition: 2-norm condition number of the scaled matrix, at most 10 % too small, exact if regularised; infinite
            without an inverse.
        method: the algorithm, or "none".
    """

    matrix: np.ndarray
    condition: float
    method: str


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def invert(
    turns: Floats,
    log_radius: Floats | None,
    columns: int,
    *,
    tikhonov: float | None = None,
    truncation: float | None = None,
) -> Inverse:
    """The matrix from values at the points to the samples.

    Without weights no inverse exists if M < N, if fewer than N points differ, or if float64 overflows.
    """
    _check_weights(tikhonov, truncation)
    turns = np.asarray(turns, np.float64)
    logs = np.zeros(len(turns)) if log_radius is None else np.asarray(log_radius, np.float64)
    mean = float(np.mean(logs))
    scaled = host_vandermonde(turns, logs - mean, columns)
    unscale = host_vandermonde(np.zeros(1), np.full(1, -mean), columns).real.T
    none = Inverse(np.full((columns, len(turns)), np.nan, np.complex128), np.inf, "none")
    if not (np.isfinite(scaled).all() and np.isfinite(unscale).all() and unscale.all()):
        return none
    if tikhonov is None and truncation is None and _distinct(turns, logs) < columns:
        return none
    try:
        inverse = _solve(scaled, tikhonov, truncation)
    except np.linalg.LinAlgError:
        return none
    matrix = unscale * inverse.matrix
    return inverse._replace(matrix=matrix) if np.isfinite(matrix).all() and inverse.condition < np.inf else none


def _check_weights(tikhonov: float | None, truncation: float | None) -> None:
    if tikhonov is not None and truncation is not None:
        raise ValueError(f"tikhonov is {tikhonov} and truncation is {truncation}: give one of the two, the other None")
    if tikhonov is not None and not 0 < tikhonov < np.inf:
        raise ValueError(f"tikhonov is {tikhonov}: give a positive number, such as 1e-6, {_RELATIVE}")
    if truncation is not None and not 0 < truncation < 1:
        raise ValueError(f"truncation is {truncation}: give a number between 0 and 1, such as 1e-6, {_RELATIVE}")


def _distinct(turns: np.ndarray, logs: np.ndarray) -> int:
    angle = turns - np.rint(turns)
    points = np.stack([np.where(angle == 0.5, -0.5, angle), logs], axis=1)
    return len(np.unique(points + 0.0, axis=0))  # -0.0 + 0.0 is 0.0


def _solve(matrix: np.ndarray, tikhonov: float | None, truncation: float | None) -> Inverse:
    if tikhonov is not None or truncation is not None:
        return _regularised(matrix, tikhonov, truncation)
    if len(matrix) == matrix.shape[1]:
        inverse, method = _square(matrix)
    else:
        q, r = np.linalg.qr(matrix)
        inverse, method = _left_inverse(r) @ q.conj().T, "QR"  # minimises the residual's 2-norm
    return Inverse(inverse, _norm(matrix) * _norm(inverse), method)


def _square(matrix: np.ndarray) -> tuple[np.ndarray, str]:
    inverse = _left_inverse(matrix)
    residual = _residual(inverse, matrix)
    if residual > _ACCURATE and len(matrix) <= _INTERPOLATION:
        points = matrix[:, 1]
        interpolated = _bjorck_pereyra(points, _leja(points))
        if _residual(interpolated, matrix) < residual:
            return interpolated, "Leja-ordered Björck-Pereyra"
    return inverse, "LU"


def _left_inverse(matrix: np.ndarray) -> np.ndarray:
    """By LU, row by row from V^T W^T = I, so that W V = I to eps times the condition number."""
    return np.linalg.inv(matrix.T).T


def _residual(inverse: np.ndarray, matrix: np.ndarray) -> float:
    residual = float(np.linalg.norm(inverse @ matrix - np.eye(len(inverse))))
    return residual if residual < np.inf else np.inf


@np.errstate(divide="ignore")
def _leja(points: np.ndarray) -> np.ndarray:
    """Each point has the largest product of distances from the previous ones."""
    order, distance = [int(np.argmax(np.abs(points)))], np.zeros(len(points))
    while len(order) < len(points):
        distance += np.log(np.abs(points - points[order[-1]]))
        order.append(int(np.argmax(distance)))
    return np.array(order)


def _bjorck_pereyra(points: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The inverse of points[k]^n by divided differences and Newton's form, which grow unless in Leja order."""
    points, table = points[order], np.eye(len(points), dtype=np.complex128)[order]
    for k in range(1, len(points)):
        table[k:] = (table[k:] - table[k - 1 : -1]) / (points[k:] - points[:-k])[:, None]
    for k in reversed(range(len(points) - 1)):
        table[k:-1] -= points[k] * table[k + 1 :]
    return table


def _regularised(matrix: np.ndarray, tikhonov: float | None, truncation: float | None) -> Inverse:
    u, sigma, v = np.linalg.svd(matrix, full_matrices=False)
    part = sigma / sigma[0]
    if tikhonov is not None:
        method, gain = "Tikhonov", part / np.hypot(part, tikhonov) / np.hypot(part, tikhonov)
    else:
        kept = part >= truncation
        method, gain = "truncated SVD", kept / np.where(kept, part, 1.0)
    return Inverse((v.conj().T * (gain / sigma[0])) @ u.conj().T, float(gain.max()), method)


def _norm(matrix: np.ndarray) -> float:
    """The largest singular value, never too large, by power iteration from a fixed random start."""
    block = np.random.default_rng(0).standard_normal((matrix.shape[1], _VECTORS)) + 0j
    for _ in range(_ITERATIONS):
        left = np.linalg.qr(matrix @ block)[0]
        block = np.linalg.qr((left.conj().T @ matrix).conj().T)[0]
    return float(np.linalg.norm(matrix @ block, 2))
