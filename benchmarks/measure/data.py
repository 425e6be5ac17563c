"""The input of a task, the same for all baselines, and its transform in double precision to hold them against.

input    Gaussian noise from a fixed seed
truth    scipy.fft's transform of the input in complex128 or float64; of nonuniform points a direct sum

error = |y - truth| / |truth|   in the L2 norm, as logical arrays in natural order
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy.fft
from jax.sharding import AxisType, Mesh, PartitionSpec

from meshfft.layout.layout import AXES
from meshfft.layout.padded_array import PaddedArray
from meshfft.layout.storage import stored_on

from .cases import Layout, Task

KINDS = {"fft": scipy.fft.fftn, "rfft": scipy.fft.rfftn, "hfft": scipy.fft.hfftn}
TRIG = {"dct": scipy.fft.dctn, "dst": scipy.fft.dstn}


class Data:
    """Input and truth of a task; the input on the devices of a layout, once for all who want it there."""

    def __init__(self, task: Task, cores: int) -> None:
        self.task = task
        self.turns = random_turns(task.samples)
        self.x = noise(task.shape, task.dtype)
        self.truth = sampled(self.x, self.turns) if task.samples else transformed(self.x, task.kind, cores)
        self._placed: dict[Layout, jax.Array | PaddedArray] = {}

    def error(self, y: Any) -> float:
        """Relative L2 error of a result.

        Raises:
            ValueError: it has another shape.
        """
        y = np.asarray(y)
        if y.shape != self.truth.shape:
            raise ValueError(f"the result has shape {y.shape}, not {self.truth.shape}")
        return float(np.linalg.norm((y - self.truth).ravel()) / (np.linalg.norm(self.truth.ravel()) or 1.0))

    def on(self, mesh: Mesh, layout: Layout) -> jax.Array | PaddedArray:
        """The input on a mesh, padded where the mesh does not divide it."""
        if layout not in self._placed:
            self._placed[layout] = stored_on(self.x, mesh, PartitionSpec(*layout.spec))
        return self._placed[layout]


def mesh_of(layout: Layout, devices: Sequence[Any]) -> Mesh:
    """The mesh of a layout on the first devices."""
    names, sizes = tuple(AXES[: len(layout.mesh)]), layout.mesh
    return jax.make_mesh(sizes, names, (AxisType.Auto,) * len(sizes), devices=devices[: layout.devices])


def noise(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Gaussian noise, of complex types in both parts."""
    wanted = np.dtype(dtype)
    real, rng = np.finfo(wanted).dtype, np.random.default_rng(0)
    if wanted.kind != "c":
        return rng.standard_normal(shape, real.type)
    return rng.standard_normal((*shape, 2), real.type).view(wanted)[..., 0]


def random_turns(samples: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Frequencies in cycles per sample, so many along each dimension, in rising order."""
    return tuple(np.sort(np.random.default_rng(place).random(many)) for place, many in enumerate(samples))


def transformed(x: np.ndarray, kind: str, cores: int = 1) -> np.ndarray:
    """scipy.fft's transform of one of meshfft's kinds, in double precision."""
    wide = x.astype(np.result_type(x.dtype, np.float64))
    return scipy_call(kind)(wide, workers=cores)


def scipy_call(kind: str) -> Any:
    """scipy.fft's function for one of meshfft's kinds."""
    if kind in KINDS:
        return KINDS[kind]
    name, number = kind.split("-")
    return lambda x, **options: TRIG[name](x, type=int(number), **options)


def sampled(x: np.ndarray, turns: Sequence[np.ndarray]) -> np.ndarray:
    """sum_n x[n] exp(-2 pi i n t) along every dimension; the upper half of a turn times n is exact."""
    y = x.astype(np.complex128)
    for axis, t in enumerate(turns):
        n, high = np.arange(y.shape[axis]), np.rint(t * 2**32) / 2**32
        phase = np.outer(high, n) % 1 + np.outer(t - high, n)
        y = np.moveaxis(np.tensordot(np.exp(-2j * np.pi * phase), y, (1, axis)), 0, axis)
    return y
