"""`meshfft plan`: steps, seconds, memory and traffic of a transform on a mesh, without its devices."""

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import typer
from jax.sharding import Mesh

import meshfft

from ..inspect.aot import compile_plan, compile_seconds, mesh_for, report, timeline
from ..layout.layout import axis_sizes
from ..layout.memory import device_bytes
from ..machine.topology import mesh_call
from ..numerics.units import plain
from ..out_of_core.tiles import Passes
from ..plans.plan import Plan
from ..plans.planning import rank, ranked
from ..plans.table import memory_words, mesh_words
from ..walks.search import METHODS
from . import flags
from .cluster import describe_mesh, mesh_here, use_tpu_compiler
from .measure import plan_by_trials
from .output import guarded, print_columns, print_json, say, say_filled, waiting
from .request import SamplingFlags, check_alone, read_sampling, sampled_options

_rounded = functools.partial(plain, digits=3)
OTHERS = 4
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
    trying: Annotated[bool, flags.switch("--measure", "Run ten walks here, and take the fastest.")] = False,
    as_json: flags.JsonFlag = False,
) -> None:
    """Show the steps, memory and traffic of a transform.

    With --mesh alone the plan is for the devices of this machine, or for CPU
    devices where it has too few. With --topology it is for the machine that
    this names, which need not be here; without --mesh, every mesh of its
    devices is tried. With --memory, it shows what meshfft transform --memory
    reads, writes and holds.
    """
    topology = _topology(topology, outer, compiling)
    lengths = flags.read_sizes(shape, "the shape", "8192,8192,8192")
    options = how.read()
    if memory is not None:
        given = {"--topology": topology, "--spec": how.spec, "--points": points, "--measure": trying or None}
        found = _passes(lengths, memory, mesh, options, [name for name, value in given.items() if value is not None])
        print_json(found.to_dict()) if as_json else say(str(found))
        return
    if (sampling := read_sampling(SamplingFlags(points, points_unit))) is not None:
        check_alone(sampling, inverse=options["inverse"], kind=options["kind"])
        options |= sampled_options(sampling, lengths, options["axes"])
        options.pop("shape")
    if compiling:
        use_tpu_compiler()
    if trying and topology is not None:
        raise ValueError(f"--measure runs plans on the devices here, --topology is {topology}: leave one of them out")
    with waiting("trying walks" if trying else "finding the cheapest plan") as tell:
        tried = [plan_by_trials(lengths, mesh, how.spec, options, tell)] if trying else None
        best, *others = tried or _candidates(lengths, mesh, topology, how.spec, options)
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
        say(f"Compiling takes {seconds} s, by the core, estimated from other plans.")
    if topology:
        call = mesh_call(best.machine, axis_sizes(best.mesh))
        say_filled(f"Its mesh: {call or 'plan.device_mesh(), as no call of JAX makes it'}.")
    if others:
        _print_others(best, others[:OTHERS])
    if made:
        _print_compiled(best, made)


def _topology(name: str | None, outer: str | None, compiling: bool) -> str | None:
    if name is None and compiling:
        raise ValueError("--compile needs a machine to compile for: add --topology, as v3:4x4")
    if outer is not None and name is None:
        raise ValueError("--outer is a rate of --topology: name the machine, as --topology 4*h100:8")
    if name is not None and name.endswith(".toml") and (outer or compiling):
        named = "--outer and --compile go with a machine by name"
        raise ValueError(f"{named}: edit outer in {name}, or name one, as v3:4x4")
    return name if outer is None else f"{name}@{outer}"


def _passes(
    lengths: tuple[int, ...], memory: str, mesh: str | None, options: flags.Keywords, useless: list[str]
) -> Passes:
    useless += [f"--{name}" for name, usual in flags.IDLE.items() if options.pop(name) != usual]
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
    """The requested plan, or the best of every mesh, then its rivals, best first."""
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
    return [best, *sorted(others, key=rank)]


def _compiled(plan: Plan, topology: str) -> dict[str, Any]:
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
    if other.fits is False and best.fits is not False:
        return "does not fit"
    if rank(other)[:2] > rank(best)[:2]:
        return f"peak {_rounded((other.peak_bytes - best.peak_bytes) / 1e9)} GB more"
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
    say_filled(
        f"Modelled seconds of each step on {chip.name}: by the cost model; and by the compiler's cycles, with the "
        "waits for links that its schedule leaves."
    )
    print_columns(["step", "products", "vector", "memory", "links"], rows)
    spent, kernels = made["seconds_modelled"], made["kernels"]
    hidden = sum(one["times"] for one in made["collectives"] if one["asynchronous"] and one["covered"])
    count = sum(one["times"] for one in made["collectives"])
    memory = memory_words(made["peak_bytes_per_device"], plan.machine)
    say_filled(f"By the compiler it {memory}; {hidden} of {count} collectives have work under them.")
    if kernels["times"]:
        price = "their own compiled schedules, or the memory that they read and write where that takes longer"
        say_filled(
            f"The compiler has no estimate for {kernels['times']} kernels. They count by {price}: "
            f"{_rounded(kernels['cycles'] / clock)} s, under vector."
        )
    compute, links = _rounded(spent["compute"]), _rounded(spent["links"])
    say_filled(
        f"Played through in the compiler's order it takes {_rounded(spent['total'])} s: {compute} s of computing and "
        f"{links} s of links, less what runs at the same time."
    )
