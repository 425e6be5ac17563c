"""Fourier matrices of arbitrary points of the z-plane, on the host in float64.

V[k, n] = z_k^(-n) = exp(-n (log_radius_k + 2 pi i turns_k)): phase and magnitude apart, never by repeated products.
A factor of n is split so that its product with n < MAX_LENGTH = 2^29 fits in 53 bits: n t mod 1 loses nothing before
the last addition, below an eighth of a turn, whatever n is. So phases are right to 2e-17 of a turn, entries on the
circle to 4e-16, and off it to a relative 1e-15 even where n log_radius is 700. (A plain n * t loses 4e-12 of a turn at
n = 65,536.)
"""

import numpy as np

MAX_LENGTH = 2**29
_DIGITS = 2.0**24  # an integer of 24 bits times one of 29 is exact in float64
_BLOCK = 2**18  # entries made at a time, to keep the temporaries small
_QUARTERS = np.array([1, -1j, -1, 1j])


def vandermonde(turns: np.ndarray, log_radius: np.ndarray | None, columns: int) -> np.ndarray:
    """The matrix V[k, n] = z_k^(-n), 0 <= n < columns, of the points z_k = exp(log_radius_k + 2 pi i turns_k).

    Entries that float64 cannot hold are zero, or not finite; there is no warning.

    Args:
        turns: the angles of the M points, in turns; any real numbers.
        log_radius: the logarithms of their radii; None if all lie on the unit circle.
        columns: N, less than MAX_LENGTH.

    Returns:
        V, complex128, M x N.
    """
    turns, n = np.asarray(turns, np.float64), np.arange(columns, dtype=np.float64)
    matrix = np.empty((len(turns), columns), np.complex128)
    step = max(1, _BLOCK // max(1, columns))
    for rows in (slice(start, start + step) for start in range(0, len(turns), step)):
        matrix[rows] = _phasors(turns[rows, None], n)
        if log_radius is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                matrix[rows] *= _magnitudes(np.asarray(log_radius, np.float64)[rows, None], n)
    return matrix


def _phasors(turns: np.ndarray, n: np.ndarray) -> np.ndarray:
    """exp(-2 pi i n turns): two digits of `turns` times n, mod 1 exactly; what is left is below 2^-49."""
    rest = turns - np.rint(turns)
    fraction = np.zeros(np.broadcast_shapes(turns.shape, n.shape))
    for unit in (_DIGITS, _DIGITS**2):
        digit = np.rint(rest * unit) / unit
        rest = rest - digit
        product = digit * n
        fraction += product - np.rint(product)
    quarter = np.rint(4 * fraction)
    angle = 2 * np.pi * (fraction - quarter / 4 + rest * n)
    return (np.cos(angle) - 1j * np.sin(angle)) * _QUARTERS[quarter.astype(np.int64) % 4]


def _magnitudes(log_radius: np.ndarray, n: np.ndarray) -> np.ndarray:
    """exp(-n log_radius): the leading 24 bits times n exactly, then a correction below 1e-4."""
    mantissa, exponent = np.frexp(log_radius)
    high = np.ldexp(np.rint(mantissa * _DIGITS) / _DIGITS, exponent)
    power = np.exp(-n * high)
    return power + power * np.expm1(-n * (log_radius - high))
