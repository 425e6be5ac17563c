"""Shared by the commands that measure: their flags, checked, the devices, and the run with its bar.

Every refusal happens before anything is compiled.
"""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import typer

from meshfft.cli import flags
from meshfft.cli.cluster import running_devices
from meshfft.cli.output import bar
from meshfft.layout.memory import available_bytes
from meshfft.operators.transform import natural_dtype

from .. import rows as files
from .baselines import BASELINES, MESHFFT
from .cases import Case, Task, case_of, usual_meshes
from .data import Place
from .measured import Row, measured, needed_bytes, packages
from .mpi import MpiRanks
from .on_devices import plan_of
from .scaling import best_mesh

Shape = Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")]
Meshes = Annotated[
    list[str] | None,
    typer.Option("--mesh", metavar="P,P,...", help="Devices along mesh axes; may be given several times."),
]
Dtype = Annotated[str | None, typer.Option(metavar="NAME", help=f"{', '.join(flags.DTYPES)}; by the kind.")]
Methods = Annotated[str, typer.Option("--method", metavar="A,B,...", help="Methods of meshfft.")]
Orders = Annotated[str, typer.Option("--order", metavar="A,B,...", help="natural, any, or both.")]
Precisions = Annotated[str, typer.Option("--precision", metavar="A,B,...", help="Of dense products.")]
BESIDE = typer.Option(metavar="A,B,...", help="Whom to set beside: all, none, or names, as jnp,scipy,fftw.")
Baselines = Annotated[str, BESIDE]
Rounds = Annotated[int, typer.Option(metavar="N", help="How often each call is timed; slow ones less often.")]
THEIRS = "For swirl-lm, dist_fft.py of the paper's authors: benchmarks/README.md."
Program = Annotated[Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help=THEIRS)]
Rows = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows here, as JSON lines.")]
CALM = {"KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "passive"}  # or a baseline's threads would spin on into others' calls
VIRTUAL = 8  # CPU devices by default
WIDE, REAL = ("complex128", "float64"), ("float32", "float64")
Ways = list[dict[str, str]]


def ways_of(method: str, order: str, precision: str, ring: str | None = None) -> Ways:
    """Keywords of a meshfft case for each combination of the flags, all of them known names."""
    chosen = [_choices(text, name) for text, name in ((method, "method"), (order, "order"), (precision, "precision"))]
    _allow_wide("float64" in chosen[2])
    known = flags.CHOICES["ring"]
    named = {} if ring is None or ring == "auto" else {"ring": flags.check_choice(ring, known, "--ring")}
    return [{"method": m, "order": o, "precision": p, **named} for m, o, p in itertools.product(*chosen)]


def task_of(shape: str, dtype: str | None, kind: str | None) -> Task:
    """The task that flags name; JAX is let compute in double precision where it is in that."""
    lengths = flags.read_sizes(shape, "the shape", "256,256,256")
    kind = flags.check_choice(kind or "fft", flags.CHOICES["kind"], "--kind")
    dtype = flags.check_choice(dtype or natural_dtype(kind), flags.DTYPES, "--dtype")
    if (dtype in REAL) != (real := natural_dtype(kind) in REAL):
        right = "float32 or float64" if real else "complex64 or complex128"
        raise ValueError(f"--dtype {dtype} with --kind {kind}: give {right}")
    _allow_wide(dtype in WIDE)
    return Task(lengths, dtype, kind)


def baselines_of(text: str, known: Sequence[str]) -> list[str]:
    if text in ("all", "none"):
        return list(known) if text == "all" else []
    return [flags.check_choice(word.strip(), known, "--baselines") for word in text.split(",")]


def start_meshes(texts: Sequence[str] | None, ndim: int) -> tuple[list[jax.Device], list[tuple[int, ...]]]:
    """The devices, started, and the meshes; without any, slab, pencil and block of all devices."""
    sizes = [flags.read_mesh(text) for text in texts or ()]
    for mesh in sizes:
        flags.read_spec(None, mesh, ndim)
    found = [tuple(mesh.values()) for mesh in sizes]
    devices = start_devices(max((case_of(Task(()), "", mesh).devices for mesh in found), default=None))
    return devices, found or usual_meshes(len(devices), ndim)


def start_devices(count: int | None, flag: str = "--mesh") -> list[jax.Device]:
    """Running devices: the machine's if there are enough, else CPU devices that share its cores.

    Without a number, all accelerators of the machine, or VIRTUAL CPU devices. Call it before any other use of JAX in
    the process.
    """
    found = running_devices(count or VIRTUAL, flag)
    if count is None:
        return list(jax.devices())
    if len(found) < count:
        there = f"there are {len(found)} {found[0].platform} devices"
        raise ValueError(f"{flag} asks for {count} devices and {there}: give fewer")
    return found[:count]


def check_flags(rounds: int, rows: Path | None) -> None:
    flags.check_count(rounds, "--rounds", "rounds")
    flags.check_rows(rows)


def cases_of(task: Task, meshes: Sequence[tuple[int, ...]], ways: Ways, baselines: Sequence[str]) -> list[Case]:
    """meshfft's cases, of which at least one must have a walk, and those of baselines."""
    own = [case_of(task, MESHFFT, mesh, **way) for mesh in meshes for way in ways]
    check_walks(own)
    return own + _theirs(task, baselines, meshes, files.cores())


def cases_on(task: Task, devices: Sequence[jax.Device], ways: Ways, baselines: Sequence[str]) -> list[Case]:
    """meshfft's cases on all these devices, each on its best mesh, and those of baselines that take as many."""
    own = [case_of(task, MESHFFT, best_mesh(task, devices, **way), **way) for way in ways]
    return own + _theirs(task, baselines, list(dict.fromkeys(case.mesh for case in own)), len(devices))


def check_walks(own: Sequence[Case]) -> None:
    """Refuses meshfft's cases if none has a walk, with the reason of the first."""
    refusals: list[Exception] = []
    for case in own:
        try:
            plan_of(case)
        except (ValueError, TypeError) as error:
            refusals.append(error)
    if own and len(refusals) == len(own):
        raise refusals[0]


def run(cases: Sequence[Case], devices: Sequence[jax.Device], rounds: int, program: Path | None = None) -> list[Row]:
    need, free = needed_bytes(cases) / 1e9, available_bytes() / 1e9
    remedy = "give a smaller array, fewer --mesh or fewer --baselines"
    if not need <= free:
        raise ValueError(f"{len(cases)} cases take about {need:.3g} GB and {free:.3g} GB are free: {remedy}")
    for name, value in CALM.items():
        os.environ.setdefault(name, value)
    facts = files.circumstances(*packages(cases))
    with MpiRanks() as ranks, bar(len(cases) + rounds, in_bytes=False) as report:

        def told(part: str) -> None:
            report.begin(part)
            report.advance(1)

        return measured(cases, rounds, Place(devices, files.cores(), ranks, program), facts, told)


def _choices(text: str, name: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    return list(dict.fromkeys(flags.check_choice(word, flags.CHOICES[name], f"--{name}") for word in words))


def _allow_wide(wide: bool) -> None:
    if wide:
        jax.config.update("jax_enable_x64", True)


def _theirs(task: Task, names: Sequence[str], meshes: Sequence[tuple[int, ...]], cores: int) -> list[Case]:
    return [case for name, one in BASELINES.items() if name in names for case in one.cases(task, meshes, cores)]
