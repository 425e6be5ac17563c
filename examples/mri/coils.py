"""Coil maps as trigonometric polynomials of period 2, so that the k-space of every coil has a closed form.

    S_c(r) = sum_p s_cp exp(2 pi i p.r / 2),    p in {-1, 0, 1}^d,    r in a field of view of side 1

The period is twice the view, so the maps do not repeat inside it. A coil sees map times image, whose spectrum is a sum
of shifted spectra of the image:    D_c(f) = sum_p s_cp S(f - p / 2).
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

DISTANCE = 0.45  # of a coil from the middle, in fields of view
DECAY = 0.45  # of coefficients, exp(-DECAY |p|^2): larger values make smoother maps


def orders(dims: int) -> np.ndarray:
    """The frequencies p, of shape (3^d, d)."""
    return np.array(list(itertools.product((-1, 0, 1), repeat=dims)))


def coefficients(count: int, dims: int) -> np.ndarray:
    """Coefficients s_cp, of shape (count, 3^d), of coils on a circle, in 3-D alternately above and below it."""
    angles = 2 * np.pi * np.arange(count) / count
    height = np.where(np.arange(count) % 2, -DISTANCE, DISTANCE)
    centres = np.stack([DISTANCE * np.cos(angles), DISTANCE * np.sin(angles), height], -1)[:, :dims]
    p = orders(dims)
    decay = np.exp(-DECAY * (p**2).sum(-1))
    return np.asarray(decay * np.exp(-1j * np.pi * (centres @ p.T)) * np.exp(1j * angles)[:, None])


def maps(count: int, shape: Sequence[int]) -> np.ndarray:
    """The maps at the middles of the pixels, of shape (count, *shape)."""
    values = coefficients(count, len(shape)).reshape(count, *(3,) * len(shape))
    waves = [np.exp(1j * np.pi * np.outer((-1, 0, 1), (np.arange(n) + 0.5) / n - 0.5)) for n in shape]
    for wave in waves:  # each dimension moves from the front to the back
        values = np.tensordot(values, wave, (1, 0))
    return values


def kspace(source: Callable[[np.ndarray], np.ndarray], f: np.ndarray, count: int) -> np.ndarray:
    """Samples of every coil at f, of shape (..., d), in cycles per field of view.

    Args:
        source: returns the spectrum of the image at points of shape (..., d).

    Returns:
        complex128, of shape (count, ...), from 3^d spectra for any number of coils.
    """
    dims = f.shape[-1]
    spectra = np.stack([source(f - p / 2) for p in orders(dims)])
    return np.tensordot(coefficients(count, dims), spectra, 1)
