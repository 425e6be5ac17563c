"""Trajectories through k-space, in cycles per pixel: every coordinate is between -1/2 and 1/2.

Each has the shape (readouts, samples, d), as a scanner stores it. Lines through the middle include frequency 0.
"""

import numpy as np

GOLDEN = (5**0.5 - 1) / 2


def radial(spokes: int, samples: int, turn: float = GOLDEN) -> np.ndarray:
    """Lines through the middle, each rotated from the last by `turn` half circles, by default 111.2 degrees."""
    angle = np.pi * turn * np.arange(spokes)
    return _along(samples, np.stack([np.cos(angle), np.sin(angle)], -1))


def spiral(interleaves: int, samples: int, turns: float = 16) -> np.ndarray:
    """Archimedes' spirals from the middle outwards, at equal angles."""
    radius = (np.arange(samples) + 0.5) / samples
    angle = 2 * np.pi * (turns * radius + np.arange(interleaves)[:, None] / interleaves)
    return np.asarray(0.5 * radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], -1))


def koosh(spokes: int, samples: int) -> np.ndarray:
    """Lines through the middle of a ball, in directions spread over a half sphere by the golden ratio."""
    i = np.arange(spokes) + 0.5
    z = i / spokes  # the other ends of the lines cover the other half
    around, angle = np.sqrt(1 - z**2), 2 * np.pi * GOLDEN * i
    return _along(samples, np.stack([around * np.cos(angle), around * np.sin(angle), z], -1))


def stars(spokes: int, samples: int, planes: int) -> np.ndarray:
    """A stack of radial planes: (planes * spokes, samples, 3)."""
    plane = np.broadcast_to(radial(spokes, samples), (planes, spokes, samples, 2))
    height = np.broadcast_to(_line(planes)[:, None, None, None], (planes, spokes, samples, 1))
    return np.concatenate([plane, height], -1).reshape(planes * spokes, samples, 3)


def _line(samples: int) -> np.ndarray:
    """Samples from -1/2 on; sample samples // 2 is frequency 0."""
    return np.asarray((np.arange(samples) - samples // 2) / samples)


def _along(samples: int, directions: np.ndarray) -> np.ndarray:
    return np.asarray(_line(samples)[None, :, None] * directions[:, None, :])
