"""The table of baselines: who there is, what each can do, the ways each is called, and what prepares it.

A baseline that is not installed, or does not do a task, is reported with the reason. Its ways are all that are likely
to be its best, so that nobody is beaten by a bad choice.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from meshfft.extras import installed
from meshfft.operators.transform import KINDS

from . import on_cores, on_devices
from .cases import POINTS, Case, Layout, Task, balanced, case_of, layout_of
from .data import Data
from .prepared import Place, Prepared

MESHFFT, SLAB, PENCIL = "meshfft", "slab", "pencil"
Prepare = Callable[[Case, Data, Place], Prepared]
Ways = Callable[[Task, Sequence[Layout], int], list[Case]]


class Baseline(NamedTuple):
    """One library.

    Attributes:
        name: as tables and rows say it.
        what: the kinds of transform it does.
        prepare: makes a call of a case.
        ways: the cases of a task, from the layouts that are asked for and the number of cores.
        modules: what has to be installed.
        packages: what brings that, and what versions are told of.
    """

    name: str
    what: tuple[str, ...]
    prepare: Prepare
    ways: Ways
    modules: tuple[str, ...]
    packages: tuple[str, ...]

    def cases(self, task: Task, layouts: Sequence[Layout], cores: int) -> list[Case]:
        """The ways it does a task; where it does not, one, to say so."""
        return [case_of(task, self.name)] if self.missing(task.what) else self.ways(task, layouts, cores)

    def missing(self, what: str) -> str | None:
        """Why it cannot do a kind of transform; None where it can."""
        if what not in self.what:
            return f"does {', '.join(self.what)}, not {what}"
        absent = [module for module in self.modules if not installed(module)]
        return f"{absent[0]} is not installed: pip install {' '.join(self.packages)}" if absent else None


def named(names: Sequence[str]) -> list[Baseline]:
    """The baselines with these names, in the table's order."""
    return [baseline for name, baseline in BASELINES.items() if name in names]


def names_for(what: str) -> list[str]:
    """The names of baselines to set beside meshfft: those that do nonuniform points, or all others."""
    return [
        name
        for name, baseline in BASELINES.items()
        if (POINTS in baseline.what) == (what == POINTS) and name != MESHFFT
    ]


def names_that_scale() -> list[str]:
    """The names of baselines that can be told how many devices or ranks to take."""
    return ["jnp-sharded", "jaxdecomp", "mpi4py-fft"]


def on_mesh(case: Case) -> bool:
    """Whether a case takes as many of JAX's devices as its mesh has."""
    return case.library in (MESHFFT, "jnp-sharded", "jaxdecomp")


def prepare(case: Case, data: Data, place: Place) -> Prepared:
    """The call of a case.

    Raises:
        ValueError: the baseline is not installed, or does not do this.
        Exception: whatever the baseline raises.
    """
    baseline = BASELINES[case.library]
    if reason := baseline.missing(case.task.what):
        raise ValueError(reason)
    return baseline.prepare(case, data, place)


def _alone(name: str) -> Ways:
    return lambda task, layouts, cores: [case_of(task, name)]


def _threaded(name: str) -> Ways:
    hows = (on_cores.ONE, on_cores.THREADS)
    return lambda task, layouts, cores: [case_of(task, name, method=how) for how in hows[: 1 + (cores > 1)]]


def _sharded(task: Task, layouts: Sequence[Layout], cores: int) -> list[Case]:
    return [case_of(task, "jnp-sharded", layout) for layout in layouts if layout.devices > 1]


def _decomposed(task: Task, layouts: Sequence[Layout], cores: int) -> list[Case]:
    """jaxDecomp on every mesh of two axes with as many devices, with both settings of its result."""
    counts = dict.fromkeys(layout.devices for layout in layouts)
    meshes = [(p, count // p) for count in counts for p in range(1, count + 1) if count % p == 0]
    hows = (on_devices.CONTIGUOUS, on_devices.AS_IT_LIES)
    ways = [(Layout(mesh, ("x", "y")), how) for mesh in meshes for how in hows]
    return [case_of(task, "jaxdecomp", layout, method=how) for layout, how in ways]


def _ranked(task: Task, layouts: Sequence[Layout], cores: int) -> list[Case]:
    """mpi4py-fft on a rank for each core; on a prime number a pencil is a slab, a dimension at a time."""
    ndim = max(2, len(task.shape))
    pencil = balanced(cores, 2) if ndim > 2 else (1, cores)
    grids = ((SLAB, (cores,)), (PENCIL, pencil))
    return [case_of(task, "mpi4py-fft", layout_of(grid, ndim), method=how) for how, grid in grids]


def _on_ranks(case: Case, data: Data, place: Place) -> Prepared:
    if len(case.shape) < 2:
        raise ValueError("it does two dimensions and more")
    if place.ranks is None:
        raise ValueError("no MPI ranks can be started here")
    return place.ranks.prepare(case, data)


_MESHFFT = Baseline(MESHFFT, (*KINDS, POINTS), on_devices.prepare_meshfft, lambda *_: [], (), ("meshfft",))
_REAL = ("fft", "rfft")
_ALL: tuple[Any, ...] = (
    _MESHFFT,
    Baseline("jnp-sharded", (*_REAL, "dct-2"), on_devices.prepare_sharded, _sharded, (), ("jax",)),
    Baseline("jnp", (*_REAL, "dct-2"), on_devices.prepare_single, _alone("jnp"), (), ("jax",)),
    Baseline(
        "jaxdecomp", ("fft",), on_devices.prepare_jaxdecomp, _decomposed, ("jaxdecomp",), ("jaxdecomp", "packaging")
    ),
    Baseline("mpi4py-fft", _REAL, _on_ranks, _ranked, ("mpi4py", "mpi4py_fft"), ("mpi4py", "mpi4py-fft")),
    Baseline("scipy", tuple(KINDS), on_cores.prepare_scipy, _threaded("scipy"), ("scipy",), ("scipy",)),
    Baseline("fftw", (*_REAL, *on_cores.FFTW_TRIG), on_cores.prepare_fftw, _threaded("fftw"), ("pyfftw",), ("pyfftw",)),
    Baseline("mkl", _REAL, on_cores.prepare_mkl, _alone("mkl"), ("mkl_fft",), ("mkl_fft",)),
    Baseline("finufft", (POINTS,), on_cores.prepare_finufft, _alone("finufft"), ("finufft",), ("finufft",)),
)
BASELINES: dict[str, Baseline] = {baseline.name: baseline for baseline in _ALL}
