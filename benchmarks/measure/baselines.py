"""The table of baselines: tasks, variants and setup of each.

A baseline that is not installed, or does not do a task, is reported with the reason. Its variants include all that are
likely to be its best, so a bad choice decides nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from meshfft.extras import installed
from meshfft.operators.transform import KINDS

from . import on_cores, on_devices
from .cases import Case, Task, balanced
from .data import Data, Place, Prepared

MESHFFT, SLAB, PENCIL = "meshfft", "slab", "pencil"
Meshes = Sequence[tuple[int, ...]]
Ways = Callable[[Task, Meshes, int], list[Case]]


class Baseline(NamedTuple):
    name: str
    what: tuple[str, ...]  # the kinds of transform it does
    prepare: Callable[[Case, Data, Place], Prepared]
    ways: Ways  # the cases of a task, from the meshes that are asked for and the number of cores
    modules: tuple[str, ...]  # packages that must be installed
    packages: tuple[str, ...]  # to install for these modules; rows have their versions

    def cases(self, task: Task, meshes: Meshes, cores: int) -> list[Case]:
        """Its variants for a task; a single one if it cannot do it, to report that."""
        return [Case(task, self.name)] if self.missing(task.kind) else self.ways(task, meshes, cores)

    def missing(self, what: str) -> str | None:
        """Why it cannot do a kind of transform; None where it can."""
        if what not in self.what:
            return f"does {', '.join(self.what)}, not {what}"
        absent = [module for module in self.modules if not installed(module)]
        return f"{absent[0]} is not installed: pip install {' '.join(self.packages)}" if absent else None


def prepare(case: Case, data: Data, place: Place) -> Prepared:
    baseline = BASELINES[case.library]
    if reason := baseline.missing(case.task.kind):
        raise ValueError(reason)
    return baseline.prepare(case, data, place)


def _alone(name: str) -> Ways:
    return lambda task, meshes, cores: [Case(task, name)]


def _threaded(name: str) -> Ways:
    hows = (on_cores.ONE, on_cores.THREADS)
    return lambda task, meshes, cores: [Case(task, name, method=how) for how in hows[: 1 + (cores > 1)]]


def _sharded(name: str) -> Ways:
    return lambda task, meshes, cores: [Case(task, name, mesh) for mesh in meshes if math.prod(mesh) > 1]


def _decomposed(task: Task, meshes: Meshes, cores: int) -> list[Case]:
    """jaxDecomp on every mesh of two axes with as many devices, with both settings of its result."""
    counts = dict.fromkeys(Case(task, "jaxdecomp", mesh).devices for mesh in meshes)
    pairs = [(p, count // p) for count in counts for p in range(1, count + 1) if count % p == 0]
    hows = (on_devices.CONTIGUOUS, on_devices.AS_IT_LIES)
    return [Case(task, "jaxdecomp", pair, method=how) for pair in pairs for how in hows]


def _ranked(task: Task, meshes: Meshes, cores: int) -> list[Case]:
    """mpi4py-fft on a rank for each core; on a prime number a pencil is a slab, transformed one dimension at a time."""
    pencil = [Case(task, "mpi4py-fft", balanced(cores, 2), method=PENCIL)] if len(task.shape) > 2 else []
    return [Case(task, "mpi4py-fft", (cores,), method=SLAB), *pencil]


_REAL = ("fft", "rfft")
_MPI = ("mpi4py", "mpi4py_fft"), ("mpi4py", "mpi4py-fft")
_ALL = (
    Baseline(MESHFFT, tuple(KINDS), on_devices.prepare_meshfft, lambda *_: [], (), ("meshfft",)),
    Baseline("jnp-sharded", (*_REAL, "dct-2"), on_devices.prepare_jnp, _sharded("jnp-sharded"), (), ("jax",)),
    Baseline("swirl-lm", ("fft",), on_devices.prepare_swirl, _sharded("swirl-lm"), (), ("jax",)),
    Baseline("jnp", (*_REAL, "dct-2"), on_devices.prepare_jnp, _alone("jnp"), (), ("jax",)),
    Baseline(
        "jaxdecomp", ("fft",), on_devices.prepare_jaxdecomp, _decomposed, ("jaxdecomp",), ("jaxdecomp", "packaging")
    ),
    Baseline("mpi4py-fft", _REAL, lambda case, data, place: place.on_ranks(case, data), _ranked, *_MPI),
    Baseline("scipy", tuple(KINDS), on_cores.prepare_scipy, _threaded("scipy"), ("scipy",), ("scipy",)),
    Baseline("fftw", (*_REAL, *on_cores.FFTW_TRIG), on_cores.prepare_fftw, _threaded("fftw"), ("pyfftw",), ("pyfftw",)),
    Baseline("mkl", _REAL, on_cores.prepare_mkl, _alone("mkl"), ("mkl_fft",), ("mkl_fft",)),
)
BASELINES = {baseline.name: baseline for baseline in _ALL}
