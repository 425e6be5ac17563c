"""A scan of the phantom: points, data of every coil, coil maps and the true image.

Data are integrals over the field of view, times the number of pixels, to compare with sums over pixels:

    d_cj = sum_n S_cn x_n exp(-2 pi i k_j.n)        up to the difference of pixels and points

Pixel n is at (n + 1/2) / N - 1/2 in the view, and meshfft counts n from 0, hence the phase exp(-pi i k.(N - 1)).
"""

import dataclasses
from pathlib import Path

import coils
import numpy as np
import phantom
import trajectories

# By name: the number of dimensions, and the points for N pixels along each. Only the spiral is fully sampled.
TRAJECTORIES = {
    "radial": (2, lambda n: trajectories.radial(n // 2, 2 * n)),
    "radial-137.5": (2, lambda n: trajectories.radial(n // 2, 2 * n, 3 - 5**0.5)),
    "spiral": (2, lambda n: trajectories.spiral(n // 8, 16 * n)),
    "koosh": (3, lambda n: trajectories.koosh(n * n, 2 * n)),
    "stars": (3, lambda n: trajectories.stars(n // 2, 2 * n, n)),
}


@dataclasses.dataclass(frozen=True)
class Scan:
    """Measured data, and the true image.

    Attributes:
        turns: the points, of shape (readouts, samples, d), in cycles per pixel.
        data: complex128, of shape (coils, readouts, samples).
        maps: coil maps, of shape (coils, *image).
        truth: the image, float64.
    """

    turns: np.ndarray
    data: np.ndarray
    maps: np.ndarray
    truth: np.ndarray

    def error(self, image: np.ndarray) -> float:
        """|image - truth| / |truth|: the NRMSE."""
        return float(np.linalg.norm(image - self.truth) / np.linalg.norm(self.truth))


def scan(trajectory: str, size: int, count: int, noise: float = 0, seed: int = 0) -> Scan:
    """Scans the phantom.

    Args:
        trajectory: a name of TRAJECTORIES.
        size: pixels along each dimension.
        count: coils.
        noise: its standard deviation, relative to the root mean square of the data.
    """
    dims, points = TRAJECTORIES[trajectory]
    turns, bodies, shape = points(size), phantom.shepp_logan(dims), (size,) * dims
    data = coils.kspace(lambda f: phantom.kspace(bodies, f), turns * size, count) * size**dims
    data = data * np.exp(-1j * np.pi * (turns @ np.subtract(shape, 1)))
    if noise:
        rng = np.random.default_rng(seed)
        pairs = rng.standard_normal((2, *data.shape)) * noise * np.sqrt(np.mean(np.abs(data) ** 2) / 2)
        data = data + pairs[0] + 1j * pairs[1]
    return Scan(turns, data, coils.maps(count, shape), phantom.raster(bodies, shape, 8 if dims == 2 else 4))


def write(found: Scan, folder: Path) -> None:
    """Writes traj.npy, kspace.npy and maps.npy, complex64 where complex, and truth.npy."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "traj.npy", found.turns)
    np.save(folder / "kspace.npy", found.data.astype(np.complex64))
    np.save(folder / "maps.npy", found.maps.astype(np.complex64))
    np.save(folder / "truth.npy", found.truth)
