"""What the commands that measure share: their flags read and refused, the run, and what is written and printed.

Whatever can be refused is refused before anything is compiled.
"""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import typer

from meshfft.cli import flags
from meshfft.cli.devices import available_bytes, running_devices
from meshfft.cli.output import bar, print_columns, print_json, say
from meshfft.operators.transform import natural_dtype

from ..made import circumstances, cores
from ..measure.baselines import MESHFFT, named, names_for, on_mesh
from ..measure.cases import Case, Layout, Task, case_of, layout_of, usual_meshes
from ..measure.mpi import MpiRanks
from ..measure.on_devices import plan_of
from ..measure.prepared import Place
from ..measure.rows import Row, write_rows
from ..measure.running import measured, needed_bytes, packages, steps
from ..measure.scaling import best_layout
from ..measure.words import HEADS, cells, notes

BASELINES = typer.Option(metavar="A,B,...", help="Whom to set beside: all, none, or names, as jnp,scipy,fftw.")
Meshes = Annotated[
    list[str] | None,
    typer.Option("--mesh", metavar="P,P,...", help="Devices along mesh axes; may be given several times."),
]
Dtype = Annotated[str | None, typer.Option(metavar="NAME", help=f"{', '.join(flags.DTYPES)}; by the kind.")]
Methods = Annotated[str, typer.Option("--method", metavar="A,B,...", help="Methods of meshfft.")]
Orders = Annotated[str, typer.Option("--order", metavar="A,B,...", help="natural, any, or both.")]
Precisions = Annotated[str, typer.Option("--precision", metavar="A,B,...", help="Of dense products.")]
Baselines = Annotated[str, BASELINES]
Rounds = Annotated[int, typer.Option(metavar="N", help="How often each call is timed; slow ones less often.")]
Rows = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows here, as JSON lines.")]
CALM = {"KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "passive"}  # or a baseline's threads would spin on into others' calls
VIRTUAL = 8  # CPU devices, where nobody says how many
REAL = ("float32", "float64")


class How(NamedTuple):
    """The ways in which meshfft is to do it."""

    methods: Sequence[str]
    orders: Sequence[str]
    precisions: Sequence[str]


def task_of(
    shape: str,
    dtype: str | None,
    kind: str | None,
) -> Task:
    """The task that flags name; JAX is let compute in double precision where it is in that."""
    lengths = flags.read_sizes(shape, "the shape", "256,256,256")
    kind = flags.check_choice(kind or "fft", flags.CHOICES["kind"], "--kind")
    dtype = flags.check_choice(dtype or natural_dtype(kind), flags.DTYPES, "--dtype")
    real = natural_dtype(kind) in REAL
    if (dtype in REAL) != real:
        raise ValueError(
            f"--dtype {dtype} with --kind {kind}: give {'float32 or float64' if real else 'complex64 or complex128'}"
        )
    if dtype in ("complex128", "float64"):
        jax.config.update("jax_enable_x64", True)
    return Task(lengths, dtype, kind)


def how_of(method: str, order: str, precision: str) -> How:
    """The ways that flags name, each of which is known."""
    found = How(_choices(method, "method"), _choices(order, "order"), _choices(precision, "precision"))
    if "float64" in found.precisions:
        jax.config.update("jax_enable_x64", True)
    return found


def _choices(text: str, name: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    return list(dict.fromkeys(flags.check_choice(word, flags.CHOICES[name], f"--{name}") for word in words))


def baselines_of(text: str, what: str, among: Sequence[str] | None = None) -> list[str]:
    """The names of baselines that a flag names, for a kind of transform, or among some."""
    known = names_for(what) if among is None else list(among)
    if text in ("all", "none"):
        return known if text == "all" else []
    return [flags.check_choice(word.strip(), known, "--baselines") for word in text.split(",")]


def layouts_of(meshes: Sequence[str] | None, ndim: int) -> tuple[list[Any], list[Layout]]:
    """The devices, started, and the layouts that meshes mean; without any, slab, pencil and block of all devices."""
    sizes = [flags.read_mesh(text) for text in meshes or ()]
    for mesh in sizes:
        flags.read_spec(None, mesh, ndim)
    found = [layout_of(tuple(mesh.values()), ndim) for mesh in sizes]
    devices = start_devices(max((layout.devices for layout in found), default=None))
    return devices, found or [layout_of(mesh, ndim) for mesh in usual_meshes(len(devices), ndim)]


def start_devices(count: int | None, flag: str = "--mesh") -> list[Any]:
    """Running devices: the machine's where there are enough, else CPU devices that share its cores.

    Without a number, all accelerators of the machine, or VIRTUAL CPU devices. It has to come before any other use of
    JAX in the process.

    Raises:
        ValueError: JAX runs already, or is bound to one kind of device, and there are fewer than the flag asks for.
    """
    if count is None:
        running_devices(VIRTUAL, flag)
        return list(jax.devices())
    found = running_devices(count, flag)
    if len(found) < count:
        there = f"there are {len(found)} {found[0].platform} devices"
        raise ValueError(f"{flag} asks for {count} devices and {there}: give fewer")
    return found[:count]


def devices_for(cases: Sequence[Case]) -> list[Any]:
    """The devices, started, that cases of a file take; JAX is let compute in double precision where one is in that."""
    if any(case.dtype in ("complex128", "float64") or case.precision == "float64" for case in cases):
        jax.config.update("jax_enable_x64", True)
    return start_devices(max(case.devices for case in cases if on_mesh(case)), "a case of the rows")


def check_flags(rounds: int, rows: Path | None) -> None:
    """Refuses what could not be measured or kept."""
    flags.check_count(rounds, "--rounds", "rounds")
    flags.check_rows(rows)


def cases_of(task: Task, layouts: Sequence[Layout], how: How, baselines: Sequence[str]) -> list[Case]:
    """meshfft's cases, which have a walk, and those of the baselines.

    Raises:
        ValueError, TypeError: no case of meshfft has a walk.
    """
    own = [
        case_of(task, MESHFFT, layout, method=method, order=order, precision=precision)
        for layout in layouts
        for method, order, precision in itertools.product(*how)
    ]
    check_walks(own)
    return own + [case for baseline in named(baselines) for case in baseline.cases(task, layouts, cores())]


def cases_on(task: Task, devices: Sequence[Any], how: How, baselines: Sequence[str]) -> list[Case]:
    """meshfft's cases on all these devices, each on its best mesh, and those of baselines that take as many."""
    own, layouts = [], []
    for method, order, precision in itertools.product(*how):
        way = {"method": method, "order": order, "precision": precision}
        layouts.append(best_layout(task, devices, **way))
        own.append(case_of(task, MESHFFT, layouts[-1], **way))
    layouts = list(dict.fromkeys(layouts))
    return own + [case for baseline in named(baselines) for case in baseline.cases(task, layouts, len(devices))]


def check_walks(own: Sequence[Case]) -> None:
    """Refuses cases of meshfft of which none has a walk, with what the first is refused with."""
    refusals: list[Exception] = []
    for case in own:
        try:
            plan_of(case)
        except (ValueError, TypeError) as error:
            refusals.append(error)
    if own and len(refusals) == len(own):
        raise refusals[0]


def run(cases: Sequence[Case], devices: Sequence[Any], rounds: int) -> list[Row]:
    """Measures, with a bar."""
    need, free = needed_bytes(cases) / 1e9, available_bytes() / 1e9
    remedy = "give a smaller array, fewer --mesh or fewer --baselines"
    if not need <= free:
        raise ValueError(f"{len(cases)} cases take about {need:.3g} GB and {free:.3g} GB are free: {remedy}")

    for name, value in CALM.items():
        os.environ.setdefault(name, value)
    facts = circumstances(packages(cases))
    with MpiRanks() as ranks, bar(steps(cases, rounds), in_bytes=False) as report:

        def told(part: str) -> None:
            report.begin(part)
            report.advance(1)

        return measured(cases, rounds, Place(devices, cores(), ranks), facts, told)


def beside(
    task: Task, meshes: Sequence[str] | None, how: How, baselines: str, rounds: int, path: Path | None
) -> list[Row]:
    """meshfft's ways to do a task beside those of baselines, measured and kept; all as flags name them."""
    others = baselines_of(baselines, task.what)
    devices, layouts = layouts_of(meshes, len(task.shape))
    found = run(cases_of(task, layouts, how, others), devices, rounds)
    keep(found, path)
    return found


def keep(rows: Sequence[Row], path: Path | None) -> None:
    """Writes the rows where they are wanted."""
    if path is not None:
        write_rows(path, rows)


def tell(rows: Sequence[Row], title: str, as_json: bool, path: Path | None) -> None:
    """Prints the rows as a table, or as one object."""
    if as_json:
        print_json({"rows": [row.to_dict() for row in rows]})
        return
    say(f"{title}\n")
    print_columns(HEADS, cells(rows))
    say(f"\n{notes(rows)}")
    if path is not None:
        say(f"Wrote {path}.")
