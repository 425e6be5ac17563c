"""Truth: the direct sum in float64, and random inputs, layouts and meshes to hold against it."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

AXES = "xyzw"


def dft(x: np.ndarray, axes: Sequence[int], s: Sequence[int] | None = None, sign: int = -1) -> np.ndarray:
    """sum_n x[n] exp(sign 2 pi i k n / N) along each axis, term by term, phases reduced in integers."""
    y = x.astype(np.complex128)
    for axis, length in zip(axes, s or [x.shape[a] for a in axes], strict=True):
        kept = min(length, y.shape[axis])
        turns = np.outer(np.arange(length), np.arange(kept)) % length / length
        cropped = np.take(y, np.arange(kept), axis)
        y = np.moveaxis(np.tensordot(np.exp(sign * 2j * np.pi * turns), cropped, (1, axis)), 0, axis)
    return y


def noise(shape: Sequence[int], dtype: str = "complex64", seed: int = 0) -> np.ndarray:
    """Gaussian noise, real and imaginary parts both where the type has them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def error(y: object, truth: np.ndarray) -> float:
    """Relative L2 error."""
    norm = float(np.linalg.norm(truth))
    return float(np.linalg.norm(np.asarray(y) - truth)) / (norm or 1.0)


def mesh(sizes: Sequence[int], kind: AxisType = AxisType.Auto) -> Mesh:
    """A mesh with axes x, y, z, w over the first devices."""
    count = int(np.prod(sizes))
    return jax.make_mesh(tuple(sizes), tuple(AXES[: len(sizes)]), (kind,) * len(sizes), devices=jax.devices()[:count])
