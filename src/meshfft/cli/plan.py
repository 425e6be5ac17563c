"""`meshfft plan`: steps, seconds, memory and traffic of a transform on a mesh, without its devices.

`meshfft profile`: the time of each step by kind of work, measured on the devices here.
"""

import contextlib
import functools
import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from jax.sharding import Mesh

import meshfft

from ..atomic import replacing
from ..extras import versions_of
from ..inspect.aot import compile_plan, compile_seconds, mesh_for, report, timeline
from ..inspect.hlo import KINDS
from ..inspect.trace import Breakdown, check_profiler, figure_of, profiled, unit_for
from ..layout.layout import axis_sizes
from ..layout.memory import device_bytes
from ..machine.topology import mesh_call
from ..numerics.units import plain
from ..out_of_core.tiles import Passes
from ..plans.plan import Plan
from ..plans.planning import ranked
from ..plans.table import filled, memory_words, mesh_words
from ..spectral.picture import check_picture
from ..walks.search import METHODS
from . import flags
from .cluster import check_memory, describe_mesh, mesh_here, start_mesh, use_tpu_compiler
from .output import bar, guarded, print_columns, print_json, say, waiting
from .request import SamplingFlags, check_alone, read_sampling, sampled_options

_rounded = functools.partial(plain, digits=3)
OTHERS = 4
# Flags without effect on passes.
USUAL = {"order": "natural", "ring": "auto", "engine": "auto", "wire": "exact", "margin": 0}
KEPT = ("mesh", "method", "seconds", "seconds_by_resource", "peak_bytes_per_device", "bytes_per_device", "fits")


@guarded
@flags.with_flags
def plan(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 8192,8192,8192.")],
    *,
    mesh: Annotated[str | None, flags.option("P,P,...", "Devices along mesh axes; may be left to --topology.")] = None,
    topology: Annotated[str | None, flags.option("NAME", "A machine: v3:32x32, 2*v5p:8x8x8, 4*h100:8.")] = None,
    outer: Annotated[str | None, flags.option("RATE", "Between nodes or slices, of a device: 25GB/s.")] = None,
    how: flags.PlanFlags,
    points: flags.PointsFlag = None,
    points_unit: flags.PointsUnitFlag = None,
    memory: Annotated[str | None, flags.option("SIZE", "In passes over the disk: 8GB a process.")] = None,
    compiling: Annotated[bool, flags.switch("--compile", "Compile it too, for --topology.")] = False,
    as_json: flags.JsonFlag = False,
) -> None:
    """Show the steps, memory and traffic of a transform.

    Without --topology the plan is for the devices of this machine, or for CPU
    devices where it has too few. With it, for the machine it names, which need
    not be here. Without --mesh, every mesh of those devices is tried. With
    --memory, what meshfft transform --memory reads, writes and holds.
    """
    topology = flags.read_topology(topology, outer, compiling)
    lengths = flags.read_sizes(shape, "the shape", "8192,8192,8192")
    options = how.read()
    if memory is not None:
        useless: flags.Keywords = {"--topology": topology, "--spec": how.spec, "--points": points}
        found = _passes(lengths, memory, mesh, options, useless)
        print_json(found.to_dict()) if as_json else say(str(found))
        return
    if (sampling := read_sampling(SamplingFlags(points, points_unit))) is not None:
        check_alone(sampling, inverse=options["inverse"], kind=options["kind"])
        options |= sampled_options(sampling, lengths, options["axes"])
        options.pop("shape")
    if compiling:
        use_tpu_compiler()
    with waiting("finding the cheapest plan"):
        best, *others = _candidates(lengths, mesh, topology, how.spec, options)
    with waiting(f"compiling for {topology}") if compiling else contextlib.nullcontext():
        made = _compiled(best, topology) if compiling and topology else None
    expected = compile_seconds(best) if topology else None
    if as_json:
        runners_up = [{name: one.to_dict()[name] for name in KEPT} for one in others]
        record = {**best.to_dict(), "compile_core_seconds_estimated": expected, "runners_up": runners_up}
        print_json({**record, **({"compiled": made} if made else {})})
        return
    say(str(best))
    if expected:
        seconds = " to ".join(dict.fromkeys(map(_rounded, expected)))
        say(f"Compiling it takes {seconds} s of one core, an estimate from other plans.")
    if topology:
        call = mesh_call(best.machine, axis_sizes(best.mesh))
        _say_filled(f"Its mesh: {call or 'plan.device_mesh(), as no call of JAX makes it'}.")
    if others:
        _print_others(best, others[:OTHERS])
    if made:
        _print_compiled(best, made)


def _passes(
    lengths: tuple[int, ...], memory: str, mesh: str | None, options: flags.Keywords, others: flags.Keywords
) -> Passes:
    """The passes that `meshfft transform --memory` makes of an array in one plain file."""
    useless = [name for name, value in others.items() if value is not None]
    useless += [f"--{name}" for name, usual in USUAL.items() if options.pop(name) != usual]
    if useless:
        raise ValueError(f"{useless[0]} says nothing of passes over the disk: leave it or --memory out")
    found, first = mesh_here({"x": math.prod(flags.read_mesh(mesh or "1").values())}), jax.devices()[0]
    own = device_bytes(first) if isinstance(found, Mesh) and first.platform != "cpu" else None
    return meshfft.passes(
        lengths, budget=flags.read_bytes(memory, "--memory"), device_budget=own, mesh=found, **options
    )


def _candidates(
    lengths: tuple[int, ...], mesh: str | None, topology: str | None, spec: str | None, options: flags.Keywords
) -> list[Plan]:
    """The requested plan, or the best of every mesh, then its rivals on the machine, best first."""
    if mesh is None:
        if topology is None:
            raise ValueError("neither --mesh nor --topology is given: name one, as --mesh 2,2,2")
        if spec is not None:
            raise ValueError("--spec names mesh axes: give --mesh too, or leave both free")
        return ranked(lengths, topology, **options)
    sizes, others = flags.read_mesh(mesh), list[Plan]()
    options["mesh"] = mesh_here(sizes) if topology is None else describe_mesh(sizes)
    options |= {"topology": topology, "spec": flags.read_spec(spec, sizes, len(lengths))}
    best = meshfft.plan(lengths, **options)
    for method in METHODS if topology is not None else ():
        if method != options["method"]:
            with contextlib.suppress(ValueError):  # it has no walk
                others.append(meshfft.plan(lengths, **{**options, "method": method}))
    return [best, *sorted(others, key=lambda one: (one.fits is False, one.seconds or 0.0))]


def _compiled(plan: Plan, topology: str) -> dict[str, Any]:
    """The compiler's report on a plan, with modelled seconds of its schedule and of the wait for each collective."""
    program = compile_plan(plan, mesh_for(plan, topology), planes=plan.machine.chip.planes)
    made, spent = report(program, plan.machine.chip), timeline(program, plan)
    sent = [{**one._asdict(), "waited_seconds": spent.waits[one.name]} for one in made.collectives]
    seconds = {"compute": spent.compute, "links": spent.links, "total": spent.total}
    return {**made.to_dict(), "collectives": sent, "seconds_modelled": seconds}


def _print_others(best: Plan, others: Sequence[Plan]) -> None:
    say("\nRunners-up, modelled:")
    rows = []
    for one in others:
        mesh, numbers = mesh_words(axis_sizes(one.mesh), {}), (one.seconds or 0.0, one.peak_bytes / 1e9)
        rows.append([mesh, one.options.method, *map(_rounded, numbers), _why(best, one)])
    print_columns(["mesh", "method", "seconds", "peak GB", "because"], rows)


def _why(best: Plan, other: Plan) -> str:
    if other.fits is False:
        return "does not fit"
    if other.walk == best.walk:
        return "the same walk"
    spent, there = (one.seconds_by_resource._asdict() for one in (best, other))
    name = max((name for name in spent if name != "total"), key=lambda name: there[name] - spent[name])
    more = there[name] - spent[name]
    return f"{name} {_rounded(more)} more" if more > 0 else "less overlaps"


def _print_compiled(plan: Plan, made: dict[str, Any]) -> None:
    chip, rows = plan.machine.chip, list[list[str]]()
    clock = chip.clock.value if chip.clock else math.nan
    for j, (step, layout) in enumerate(plan.walk.pairs):
        model = plan.machine.seconds(step.work(layout, plan.dtype.itemsize, chip))
        cycles = {one["unit"]: one["cycles"] / clock for one in made["cycles"] if one["step"] == j}
        units = [cycles.get(unit, 0.0) for unit in ("matrix", "vector", "copy")]
        rows.append([f"{j + 1}. cost model", *map(_rounded, model[:3]), _rounded(model.links)])
        waited = sum(one["waited_seconds"] for one in made["collectives"] if (one["step"] or 0) == j)
        rows.append(["   compiler", *map(_rounded, [*units, waited])])
    say()
    _say_filled(
        f"Modelled seconds of each step on {chip.name}: by the cost model; and by the compiler's cycles, with the "
        "waits for links that its schedule leaves."
    )
    print_columns(["step", "products", "vector", "memory", "links"], rows)
    spent, kernels = made["seconds_modelled"], made["kernels"]
    hidden = sum(one["times"] for one in made["collectives"] if one["asynchronous"] and one["covered"])
    count = sum(one["times"] for one in made["collectives"])
    memory = memory_words(made["peak_bytes_per_device"], plan.machine)
    _say_filled(f"By the compiler it {memory}; {hidden} of {count} collectives have work under them.")
    if kernels["times"]:
        price = "their own compiled schedules, or the memory that they read and write where that takes longer"
        _say_filled(
            f"The compiler has no estimate for {kernels['times']} kernels. They count by {price}: "
            f"{_rounded(kernels['cycles'] / clock)} s, under vector."
        )
    compute, links = _rounded(spent["compute"]), _rounded(spent["links"])
    _say_filled(
        f"Played through in the compiler's order it takes {_rounded(spent['total'])} s: {compute} s of computing and "
        f"{links} s of links, less what runs at the same time."
    )


def _say_filled(text: str) -> None:
    say(filled(text))


@guarded
@flags.with_flags
def profile(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    mesh: Annotated[str, flags.option("P,P,...", "Devices along mesh axes x, y, z, w: 2,2,2.")],
    how: flags.PlanFlags,
    runs: Annotated[int, flags.option("N", "How often it runs.")] = 5,
    trace: Annotated[Path | None, flags.option("DIR", "Keep the trace here, for Perfetto.")] = None,
    figure: Annotated[Path | None, flags.option("FILE", "Draw it: .png, .pdf, .svg.")] = None,
    rows: Annotated[Path | None, flags.option("FILE", "Write the rows here, as JSON lines.")] = None,
    as_json: flags.JsonFlag = False,
) -> None:
    """Show where the time goes: products, FFTs, permutes, all-to-alls, copies and idling of every step.

    Runs on accelerators if there are enough of them, else on CPU devices that
    share the cores. An existing figure or file of rows is replaced.
    """
    options = how.read()
    lengths, sizes = flags.read_sizes(shape, "the shape", "256,256,256"), flags.read_mesh(mesh)
    spec = flags.read_spec(how.spec, sizes, len(lengths))
    _check(runs, trace, figure, rows)
    laid = start_mesh(sizes)
    plan = meshfft.plan(lengths, mesh=laid, spec=spec, **options)
    check_memory(plan.peak_bytes, laid.local_devices)
    with tempfile.TemporaryDirectory() as scratch, bar(runs, in_bytes=False) as progress:
        progress.begin("run")
        found = profiled(plan, laid, runs, trace or Path(scratch), lambda: progress.advance(1))
    record, files = {**_facts(plan, laid), **found.to_dict()}, {"trace": trace, "figure": figure, "rows": rows}
    _write(found, record, figure, rows)
    if as_json:
        print_json({**record, **{name: path and str(path) for name, path in files.items()}})
        return
    say(f"{plan}\n")
    _print_breakdown(found, record["how"])
    for path in filter(None, files.values()):
        say(f"Wrote {path}{', to open at https://ui.perfetto.dev' * (path is trace)}.")


def _check(runs: int, trace: Path | None, figure: Path | None, rows: Path | None) -> None:
    flags.check_count(runs, "--runs", "runs")
    check_profiler(jax.config.values["jax_platforms"])
    if trace is not None and not (folder := trace if trace.exists() else trace.resolve().parent).is_dir():
        raise NotADirectoryError(f"{folder} is not a folder: make it first, or name another")
    if figure is not None:
        check_picture(figure, overwrite=True)
    flags.check_rows(rows)


def _facts(plan: Plan, mesh: Mesh) -> dict[str, Any]:
    facts = plan.to_dict()
    return {
        "transform": facts["kind"],
        **{name: facts[name] for name in ("shape", "dtype", "mesh", "method", "order", "wire")},
        "steps": [step.name(layout) for step, layout in plan.walk.pairs],
        "device": mesh.devices.flat[0].device_kind,
        "made_by": versions_of(("meshfft", "jax")),
    }


def _write(found: Breakdown, record: dict[str, Any], figure: Path | None, rows: Path | None) -> None:
    if figure is not None:
        shape, mesh = (" x ".join(map(str, sizes)) for sizes in (record["shape"], record["mesh"].values()))
        what = f"{record['transform']} of {shape} {record['dtype']}, method {record['method']}, mesh {mesh}"
        with replacing(figure, overwrite=True) as temporary:
            figure_of(found, f"{what}, on {record['device']}").savefig(temporary, format=figure.suffix[1:])
    if rows is not None:
        shared = {"benchmark": "profile", **{name: value for name, value in record.items() if name != "parts"}}
        with replacing(rows, overwrite=True) as temporary:
            temporary.write_text("".join(json.dumps({**shared, **part}) + "\n" for part in record["parts"]))


def _print_breakdown(found: Breakdown, how: str) -> None:
    (unit, size), (steps, kinds), total = unit_for(found.wall), found.used, found.seconds.mean(0)
    rows = [[found.steps[j], *_numbers([*total[j, kinds], total[j].sum()], size)] for j in steps]
    shares = [f"{100 * part / found.wall:.1f}%" for part in total.sum(0)[kinds]]
    sums = [["run", *_numbers([*total.sum(0)[kinds], total.sum()], size)], ["share", *shares, ""]]
    if len(found.devices) > 1:
        by_device = found.seconds.sum(1)[:, kinds]
        sums += [["least of a device", *_numbers(by_device.min(0), size), ""]]
        sums += [["most of a device", *_numbers(by_device.max(0), size), ""]]
    heads = [unit, *(KINDS[k].replace("all-to-all", "all-to-\nall") for k in kinds), "total"]
    print_columns(heads, rows, sums)
    span = f", of {min(found.walls) / size:.1f} to {max(found.walls) / size:.1f} {unit}" * (len(found.walls) > 1)
    _say_filled(f"Measured: {how}{span}, on {len(found.devices)} devices.")
    for kind, seconds in found.hidden.items():
        if seconds > 0.01 * found.wall:  # less is not worth a line
            say(f"Beside these, {seconds / size:.1f} {unit} of {kind} are hidden under other work.")


def _numbers(seconds: Iterable[float], size: float) -> list[str]:
    return [f"{one / size:.1f}" if one else "-" for one in seconds]
