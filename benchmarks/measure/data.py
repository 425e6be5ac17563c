"""Inputs and truths for a library, and a call of it that is ready to time.

input    Gaussian noise from a fixed seed
truth    scipy.fft's transform of the input in double precision
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.fft
from jax.sharding import Mesh, PartitionSpec

from meshfft.layout.padded_array import PaddedArray
from meshfft.layout.storage import stored_on

from ..common import noise, relative
from ..rows import Values
from ..timing import Call
from .cases import Case, Task

KINDS = {"fft": scipy.fft.fftn, "rfft": scipy.fft.rfftn, "hfft": scipy.fft.hfftn}
TRIG = {"dct": scipy.fft.dctn, "dst": scipy.fft.dstn}


class Data:
    """Input and truth of a task; the input on each mesh, made once."""

    def __init__(self, task: Task, cores: int) -> None:
        self.task = task
        self.x = noise(task.shape, task.dtype)
        self.truth = transformed(self.x, task.kind, cores)
        self._placed: dict[tuple[int, ...], jax.Array | PaddedArray] = {}

    def error(self, y: Any) -> float:
        y = np.asarray(y)
        if y.shape != self.truth.shape:
            raise ValueError(f"the result has shape {y.shape}, not {self.truth.shape}")
        return relative(y, self.truth)

    def on(self, mesh: Mesh, case: Case) -> jax.Array | PaddedArray:
        """The input on a mesh, padded where the mesh does not divide it."""
        if case.mesh not in self._placed:
            self._placed[case.mesh] = stored_on(self.x, mesh, PartitionSpec(*case.spec))
        return self._placed[case.mesh]


def transformed(x: np.ndarray, kind: str, cores: int = 1) -> np.ndarray:
    """scipy.fft's transform of one of meshfft's kinds, in double precision."""
    found: np.ndarray = scipy_call(kind)(x.astype(np.result_type(x.dtype, np.float64)), workers=cores)
    return found


def scipy_call(kind: str) -> Callable[..., np.ndarray]:
    if kind in KINDS:
        return KINDS[kind]
    name, number = kind.split("-")
    return lambda x, **options: TRIG[name](x, type=int(number), **options)


class Prepared(NamedTuple):
    """A case that is compiled or planned, its input in place: a call, its result's error, and what else to note."""

    call: Call
    error: float
    facts: dict[str, Any] = {}  # noqa: RUF012


class Place(NamedTuple):
    """Place of a computation: JAX's devices, threads, what prepares MPI ranks, and the path of the authors' program."""

    devices: Sequence[jax.Device]
    cores: int
    on_ranks: Callable[[Case, Data], Prepared]
    program: Path | None = None


def ready(call: Call, data: Data, facts: Values | None = None, read: Callable[[Any], Any] = lambda y: y) -> Prepared:
    """A call and the error of its first result, which `read` brings to the host in natural order."""
    return Prepared(call, data.error(read(call())), facts or {})
