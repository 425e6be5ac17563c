"""Flags, devices and cases, checked before anything is compiled; and the run."""

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import jax

from meshfft.cli import flags
from meshfft.cli.cluster import running_devices
from meshfft.cli.output import waiting
from meshfft.layout.memory import available_bytes
from meshfft.operators.transform import natural_dtype

from .. import rows as files
from .baselines import BASELINES, MESHFFT
from .cases import Case, Task, usual_meshes
from .data import Place
from .measured import measured, needed_bytes, packages
from .mpi import MpiRanks

CALM = {"KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "passive"}  # or a baseline's threads would spin on into others' calls
VIRTUAL = 8  # CPU devices by default
REAL, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
Ways = list[dict[str, str]]
Rows = list[files.Values]


class Asked(NamedTuple):
    """The flags, except for the shape, the order and the devices."""

    kind: flags.KindFlag = "fft"
    dtype: Annotated[str | None, flags.option("NAME", f"{', '.join(flags.DTYPES)}; by the kind.")] = None
    method: Annotated[str, flags.option("A,B,...", "Methods of meshfft.")] = "auto"
    ring: flags.RingFlag = None
    baselines: Annotated[str, flags.option("A,B,...", "Libraries to compare: all, none, or jnp,fftw.")] = "all"
    rounds: Annotated[int, flags.option("N", "How often each call is timed.")] = 15
    rows: Annotated[Path | None, flags.option("FILE", "Write the rows here, as JSON lines.")] = None

    def read(self, shape: str, order: str) -> tuple[Task, Ways]:
        """The task, and keywords of a meshfft case for each combination. Sets the precision of JAX."""
        flags.check_count(self.rounds, "--rounds", "rounds")
        flags.check_rows(self.rows)
        lengths = flags.read_sizes(shape, "the shape", "256,256,256")
        kind = flags.check_choice(self.kind or "fft", flags.CHOICES["kind"], "--kind")
        dtypes = REAL if natural_dtype(kind) in REAL else COMPLEX
        dtype = flags.check_choice(self.dtype or dtypes[0], dtypes, "--dtype")
        methods, orders = _choices(self.method, "method"), _choices(order, "order")
        ring = flags.check_choice(self.ring or "auto", flags.CHOICES["ring"], "--ring")
        if dtype == dtypes[1]:
            jax.config.update("jax_enable_x64", True)
        named = {} if ring == "auto" else {"ring": ring}
        combined = itertools.product(methods, orders)
        return Task(lengths, dtype, kind), [{"method": m, "order": o, **named} for m, o in combined]

    def others(self, known: Sequence[str]) -> list[str]:
        if self.baselines in ("all", "none"):
            return list(known) if self.baselines == "all" else []
        return [flags.check_choice(word.strip(), known, "--baselines") for word in self.baselines.split(",")]

    def run(self, cases: Sequence[Case], devices: Sequence[jax.Device], program: Path | None = None) -> Rows:
        need, free = needed_bytes(cases) / 1e9, available_bytes() / 1e9
        remedy = "give a smaller array, fewer --mesh or fewer --baselines"
        if not need <= free:
            raise ValueError(f"{len(cases)} cases take about {need:.3g} GB and {free:.3g} GB are free: {remedy}")
        calm()
        facts = files.circumstances(*packages(cases))
        with MpiRanks() as ranks, waiting(f"measuring {len(cases)} cases"):
            found = measured(cases, self.rounds, Place(devices, files.cores(), ranks.prepare, program), facts)
        files.write(self.rows, found)
        return found


def calm() -> None:
    """Lets threads of baselines sleep; to be called before they are imported."""
    for name, value in CALM.items():
        os.environ.setdefault(name, value)


def start_meshes(texts: Sequence[str] | None, ndim: int) -> tuple[list[jax.Device], list[tuple[int, ...]]]:
    """The devices, started, and the meshes; without any, slab, pencil and block of all devices."""
    sizes = [flags.read_mesh(text) for text in texts or ()]
    for mesh in sizes:
        flags.read_spec(None, mesh, ndim)
    found = [tuple(mesh.values()) for mesh in sizes]
    devices = start_devices(max(map(math.prod, found), default=None))
    return devices, found or usual_meshes(len(devices), ndim)


def start_devices(count: int | None) -> list[jax.Device]:
    """So many of the machine's devices, or of CPU devices that share its cores; before any other use of JAX.

    Without a number, all accelerators, or VIRTUAL CPU devices.
    """
    found = running_devices(count or VIRTUAL)
    if count is None:
        return list(jax.devices())
    if len(found) < count:
        raise ValueError(
            f"--mesh asks for {count} devices and there are {len(found)} {found[0].platform} devices: give fewer"
        )
    return found[:count]


def cases_of(task: Task, meshes: Sequence[tuple[int, ...]], ways: Ways, baselines: Sequence[str]) -> list[Case]:
    own = [Case(task, MESHFFT, mesh, **way) for mesh in meshes for way in ways]
    return own + _theirs(task, baselines, meshes, files.cores())


def _choices(text: str, name: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    return list(dict.fromkeys(flags.check_choice(word, flags.CHOICES[name], f"--{name}") for word in words))


def _theirs(task: Task, names: Sequence[str], meshes: Sequence[tuple[int, ...]], cores: int) -> list[Case]:
    return [case for name, one in BASELINES.items() if name in names for case in one.cases(task, meshes, cores)]
