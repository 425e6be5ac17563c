"""Shepp-Logan phantoms of ellipses (2-D) and ellipsoids (3-D), and their k-space in closed form.

A body with value v and semi-axes a, rotated by R about its centre r0, contains r if |R^T (r - r0) / a| <= 1. Its
spectrum is

    S(f) = v exp(-2 pi i f.r0) prod(a) B(q),    q = |a R^T f|,    f in cycles per field of view, which has side 1

    B(q) = J1(2 pi q) / q                      of the disk,      B(0) = pi
    B(q) = 4 pi (sin t - t cos t) / t^3        of the ball,      t = 2 pi q,  B(0) = 4 pi / 3

so data for a reconstruction need no discrete transform. Pixel n of N is at r = (n + 1/2) / N - 1/2.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import special

# Value, semi-axes, centre, degrees about z, on a square from -1 to 1: Shepp and Logan's ellipses with Toft's values.
ELLIPSES = """
 1.0  .6900 .920    0     0      0
-0.8  .6624 .874    0    -.0184  0
-0.2  .1100 .310   .22    0    -18
-0.2  .1600 .410  -.22    0     18
 0.1  .2100 .250    0     .35    0
 0.1  .0460 .046    0     .1     0
 0.1  .0460 .046    0    -.1     0
 0.1  .0460 .023  -.08   -.605   0
 0.1  .0230 .023    0    -.606   0
 0.1  .0230 .046   .06   -.605   0
"""
# The same head in 3-D, with the heights of Schabel's phantom3d; rotated about z only.
ELLIPSOIDS = """
 1.0  .6900 .920 .810    0     0      0     0
-0.8  .6624 .874 .780    0    -.0184  0     0
-0.2  .1100 .310 .220   .22    0      0   -18
-0.2  .1600 .410 .280  -.22    0      0    18
 0.1  .2100 .250 .410    0     .35  -.15    0
 0.1  .0460 .046 .050    0     .1    .25    0
 0.1  .0460 .046 .050    0    -.1    .25    0
 0.1  .0460 .023 .050  -.08   -.605   0     0
 0.1  .0230 .023 .020    0    -.606   0     0
 0.1  .0230 .046 .020   .06   -.605   0     0
"""
NEAR = 1e-2  # t below which a series replaces sin t - t cos t, which would cancel


@dataclasses.dataclass(frozen=True)
class Body:
    """An ellipse or ellipsoid of constant value, in a field of view of side 1 about the origin.

    Attributes:
        value: of the image inside it.
        axes: the d semi-axes.
        centre: d coordinates.
        turn: matrix (d, d), whose columns are the directions of the semi-axes.
    """

    value: float
    axes: np.ndarray
    centre: np.ndarray
    turn: np.ndarray

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Mask of the points, of shape (..., d), that are inside."""
        return np.asarray((((points - self.centre) @ self.turn / self.axes) ** 2).sum(-1) <= 1)

    def kspace(self, f: np.ndarray) -> np.ndarray:
        """The spectrum at f, of shape (..., d), in cycles per field of view."""
        q = np.linalg.norm(f @ self.turn * self.axes, axis=-1)
        shape = _disk(q) if len(self.axes) == 2 else _ball(q)
        return np.asarray(self.value * self.axes.prod() * shape * np.exp(-2j * np.pi * (f @ self.centre)))


def shepp_logan(dims: int = 2) -> list[Body]:
    """The ten bodies of the phantom in 2 or 3 dimensions."""
    rows = np.array([line.split() for line in (ELLIPSES if dims == 2 else ELLIPSOIDS).split("\n") if line], float)
    return [Body(row[0], row[1 : 1 + dims] / 2, row[1 + dims : -1] / 2, _about_z(row[-1], dims)) for row in rows]


def kspace(bodies: Sequence[Body], f: np.ndarray) -> np.ndarray:
    """The spectrum of all bodies at f, of shape (..., d), in cycles per field of view: complex128, of shape (...)."""
    return np.asarray(sum(body.kspace(f) for body in bodies))


def raster(bodies: Sequence[Body], shape: Sequence[int], over: int = 8) -> np.ndarray:
    """Mean of the image over every pixel, from `over` samples along each dimension: the truth."""
    fine = [(np.arange(n * over) + 0.5) / (n * over) - 0.5 for n in shape]
    rows = np.split(fine[0], shape[0])  # one row of pixels at a time: a volume of samples may not fit in memory
    folded = [size for n in shape[1:] for size in (n, over)]
    found = []
    for row in rows:
        points = np.stack(np.meshgrid(row, *fine[1:], indexing="ij"), -1)
        image = sum(body.value * body.holds(points) for body in bodies)
        found.append(np.reshape(image, (over, *folded)).mean(axis=tuple(range(0, 2 * len(shape), 2))))
    return np.stack(found)


def _about_z(degrees: float, dims: int) -> np.ndarray:
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    turn = np.eye(dims)
    turn[:2, :2] = [[c, -s], [s, c]]
    return turn


def _disk(q: np.ndarray) -> np.ndarray:
    safe = np.where(q > 0, q, 1)
    return np.where(q > 0, special.j1(2 * np.pi * safe) / safe, np.pi)


def _ball(q: np.ndarray) -> np.ndarray:
    t = 2 * np.pi * q
    safe = np.where(t > NEAR, t, 1)
    series = 1 / 3 - t**2 / 30 + t**4 / 840
    return 4 * np.pi * np.where(t > NEAR, (np.sin(safe) - safe * np.cos(safe)) / safe**3, series)
