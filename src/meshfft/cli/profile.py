"""`meshfft profile`: where the time of a transform goes, step by step; measured here, or modelled for a TPU by name.

Whatever can be refused is refused before anything is compiled.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ..errors import check
from . import flags, parse
from .guard import guarded
from .made import check_rows, made_by
from .plan import DTYPES
from .progress import bar
from .say import say
from .show import print_json


class Wanted(NamedTuple):
    """The flags, read."""

    shape: tuple[int, ...]
    mesh: dict[str, int] | None
    topology: str | None
    spec: str | None
    options: dict[str, Any]
    runs: int
    trace: Path | None
    figure: Path | None
    rows: Path | None
    as_json: bool


@guarded
def profile(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    mesh: Annotated[str | None, typer.Option(metavar="P,P,...", help="Devices along mesh axes x, y, z, w.")] = None,
    topology: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compile for this TPU instead of running: v3:2x2.")
    ] = None,
    spec: flags.Spec = None,
    axes: flags.Axes = None,
    method: flags.Method = "auto",
    order: flags.Order = "natural",
    norm: flags.Norm = "backward",
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help=f"{', '.join(DTYPES)}; by the kind.")] = None,
    kind: flags.Kind = "fft",
    precision: flags.Precision = "default",
    inverse: Annotated[bool, typer.Option("--inverse", help="Profile the inverse transform.")] = False,
    runs: Annotated[int, typer.Option(metavar="N", help="How often it runs.")] = 5,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the trace here, for Perfetto.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .pdf, .svg.")] = None,
    rows: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows here, as JSON lines.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Show where the time goes: products, FFTs, permutes, all-to-alls, copies and idling of every step.

    Runs on the machine's accelerators where there are enough of them, else on CPU devices that share its cores. With
    --topology nothing runs: the TPU compiler's cycles are counted, which are modelled. A figure and rows that are there
    are replaced.
    """
    names = {"method": method, "order": order, "norm": norm, "kind": kind, "precision": precision}
    options = {"dtype": dtype, "inverse": inverse, **parse.given(axes, **names)}
    if dtype is not None:
        parse.choice(dtype, DTYPES, "--dtype")
    lengths, sizes = parse.sizes(shape, "the shape", "256,256,256"), None if mesh is None else parse.mesh(mesh)
    wanted = Wanted(lengths, sizes, topology, spec, options, runs, trace, figure, rows, as_json)
    _check(wanted)
    _report(wanted, *(_measured(wanted) if topology is None else _modelled(wanted, topology)))


def _check(wanted: Wanted) -> None:
    """Refuses what could not be done, before any work is done for it."""
    import jax

    from ..files.picture import check_picture
    from ..profile.running import check_profiler

    named = wanted.mesh is not None or wanted.topology is not None
    check(named, "neither --mesh nor --topology is given: name one, as --mesh 2,2,2")
    check(wanted.mesh is not None or wanted.spec is None, "--spec names mesh axes: give --mesh too, or leave both free")
    parse.count(wanted.runs, "--runs", "runs")
    kept = wanted.trace is not None and wanted.topology is not None
    check(not kept, "--trace keeps what a run leaves, and with --topology nothing runs: leave one out")
    if wanted.topology is None:
        check_profiler(jax.config.values["jax_platforms"])
    if wanted.trace is not None:
        folder = wanted.trace if wanted.trace.exists() else wanted.trace.resolve().parent
        check(
            folder.is_dir(), f"{folder} is not a folder: make it first, or keep the trace elsewhere", NotADirectoryError
        )
    if wanted.figure is not None:
        check_picture(wanted.figure, overwrite=True)
    if wanted.rows is not None:
        check_rows(wanted.rows)


def _measured(wanted: Wanted) -> tuple[Any, Any, str, dict[str, Any]]:
    """Runs the plan; returns it, the breakdown, the device, and what the trace is kept as."""
    from ..inspect.hlo import program_of
    from ..profile import perfetto
    from ..profile.breakdown import measured
    from ..profile.kinds import ops_of
    from ..profile.running import PERFETTO, prepared, record
    from ..profile.trace import load, newest, tracks
    from .devices import local_devices, start_mesh
    from .memory import check_memory

    mesh = start_mesh(wanted.mesh or {})
    made = _plan(wanted, mesh)
    check_memory(made.peak_bytes, local_devices(mesh))
    with _folder(wanted.trace) as folder, bar(wanted.runs + 1, in_bytes=False) as report:
        report.begin("compile")
        compiled, x = prepared(made, mesh)
        report.begin("run")
        record(compiled, x, wanted.runs, folder, lambda: report.advance(1))
        file, steps = newest(folder), [step.name(layout) for step, layout in made.walk.pairs]
        shared = tracks(load(file), ops_of(program_of(compiled)))
        files = [perfetto.save(file.parent, shared, steps), file.with_name(PERFETTO)] if wanted.trace else []
    kind = mesh.devices.flat[0].device_kind
    return made, measured(shared, steps), kind, {"trace": list(map(str, files))}


def _modelled(wanted: Wanted, topology: str) -> tuple[Any, Any, str, dict[str, Any]]:
    """Compiles the plan for a machine by name; returns it, the breakdown, and the device."""
    from .describe import use_tpu_compiler

    use_tpu_compiler()
    from ..inspect.aot import compile_plan, devices_of, mesh_for
    from ..machine.topology import topology as named
    from ..plans.planning import ranked
    from ..profile.modelled import modelled
    from .devices import describe_mesh

    machine = named(topology)
    if machine.chip.clock is None:
        raise ValueError(
            f"--topology {topology} is no TPU, and only their compiler prices programs: give one, as v3:2x2"
        )
    devices_of(topology)
    if wanted.mesh is None:
        made = ranked(wanted.shape, machine, **_options(wanted))[0]
    else:
        made = _plan(wanted, describe_mesh(wanted.mesh), topology=machine)
    compiled = compile_plan(made, mesh_for(made, topology), planes=made.machine.chip.planes)
    return made, modelled(compiled, made), topology, {}


def _plan(wanted: Wanted, mesh: Any, **more: Any) -> Any:
    """The plan for a mesh."""
    import meshfft

    spec = parse.spec(wanted.spec, wanted.mesh or {}, len(wanted.shape))
    return meshfft.plan(wanted.shape, mesh=mesh, spec=spec, **_options(wanted), **more)


def _options(wanted: Wanted) -> dict[str, Any]:
    """What the plan is asked for; where that is double precision, JAX is let compute in it."""
    from .devices import use_float64

    if wanted.options["dtype"] in ("complex128", "float64") or wanted.options["precision"] == "float64":
        use_float64()
    return wanted.options


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """Where the trace goes: where it is to be kept, or where it will be removed."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _report(wanted: Wanted, made: Any, found: Any, device: str, kept: dict[str, Any]) -> None:
    """Writes, draws and prints what was asked for."""
    from ..profile.figure import save_breakdown
    from ..profile.rows import about, title, to_rows, write
    from ..profile.words import notes, table

    facts = about(made, device, made_by(*(["libtpu"] if wanted.topology else [])))
    if wanted.rows is not None:
        write(wanted.rows, to_rows(found, facts))
    if wanted.figure is not None:
        save_breakdown(wanted.figure, found, title(facts))
    if wanted.as_json:
        files = {"figure": wanted.figure, "rows": wanted.rows}
        print_json({**facts, **found.to_dict(), **kept, **{k: v and str(v) for k, v in files.items()}})
        return
    say(f"{made}\n\n{table(found)}\n{notes(found)}")
    for verb, path in (("Wrote", wanted.rows), ("Drew", wanted.figure)):
        if path is not None:
            say(f"{verb} {path}.")
    if kept.get("trace"):
        say("Kept the trace. Open these files at https://ui.perfetto.dev: the steps of every")
        say("device, and every instruction on its thread or stream.")
        for path in kept["trace"]:
            say(f"  {path}")
