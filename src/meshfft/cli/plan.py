"""`meshfft plan`: what a transform would take on a mesh, without its devices."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..numerics.units import plain
from . import flags, parse
from .guard import guarded
from .say import say
from .show import print_columns, print_json

DTYPES = ("complex64", "complex128", "float32", "float64")
OTHERS = 4  # runners-up shown


@guarded
def plan(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 8192,8192,8192.")],
    mesh: Annotated[str | None, typer.Option(metavar="P,P,...", help="Devices along mesh axes; best if free.")] = None,
    topology: Annotated[
        str | None, typer.Option(metavar="NAME", help="A machine: v3:32x32, v5p:8x8x16, h100:8.")
    ] = None,
    spec: flags.Spec = None,
    axes: flags.Axes = None,
    method: flags.Method = "auto",
    order: flags.Order = "natural",
    norm: flags.Norm = "backward",
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help=f"{', '.join(DTYPES)}; by the kind.")] = None,
    kind: flags.Kind = "fft",
    precision: flags.Precision = "default",
    inverse: Annotated[bool, typer.Option("--inverse", help="Plan the inverse transform.")] = False,
    compiling: Annotated[bool, typer.Option("--compile", help="Compile it too, for --topology.")] = False,
    as_json: flags.Json = False,
) -> None:
    """Show the steps, memory and traffic of a transform.

    It is planned for the devices that are here, and where there are fewer for as many CPU devices. No device is needed:
    a laptop can plan for any pod. With --topology it is priced on that machine; without --mesh, every mesh that its
    devices can form is tried.
    """
    from .describe import compiled, use_tpu_compiler

    if mesh is None and topology is None:
        raise ValueError("neither --mesh nor --topology is given: name one, as --mesh 2,2,2")
    if topology is None and compiling:
        raise ValueError("--compile needs a machine to compile for: add --topology, as v3:4x4")
    lengths = parse.sizes(shape, "the shape", "8192,8192,8192")
    names = {"method": method, "order": order, "norm": norm, "kind": kind, "precision": precision}
    options = plan_options(dtype, inverse, axes, names)
    if compiling:
        use_tpu_compiler()
    machine = _machine(topology)
    best, *others = _candidates(lengths, mesh, machine, spec, options)
    made = compiled(best, topology) if compiling and topology is not None else None
    _show(best, others, made, as_json)


def plan_options(dtype: str | None, inverse: bool, axes: str | None, names: dict[str, str]) -> dict[str, Any]:
    """What `meshfft.plan` is to be given; where that is double precision, JAX is let compute in it."""
    from .devices import use_float64

    if dtype is not None:
        parse.choice(dtype, DTYPES, "--dtype")
    if dtype in ("complex128", "float64") or names["precision"] == "float64":
        use_float64()
    return {"dtype": dtype, "inverse": inverse, **parse.given(axes, **names)}


def _show(best: Any, others: Sequence[Any], made: dict[str, Any] | None, as_json: bool) -> None:
    """The plan, its rivals and what the compiler made of it, as tables or as one object."""
    if as_json:
        print_json(
            {**best.to_dict(), "runners_up": list(map(_summary, others)), **({"compiled": made} if made else {})}
        )
        return
    say(str(best))
    if others:
        _print_others(best, others[:OTHERS])
    if made:
        _print_compiled(best, made)


def _machine(topology: str | None) -> Any:
    """The machine of a name."""
    from ..machine.machine import topology as named

    return None if topology is None else named(topology)


def _candidates(
    lengths: tuple[int, ...], mesh: str | None, topology: Any, spec: str | None, options: dict[str, Any]
) -> Sequence[Any]:
    """The plan asked for, or the best of every mesh; and on a machine, what else there is, best first."""
    import meshfft

    from ..plans.planning import ranked
    from .devices import describe_mesh, mesh_here

    if mesh is None:
        if spec is not None:
            raise ValueError("--spec names mesh axes: give --mesh too, or leave both free")
        return ranked(lengths, topology, **options)
    sizes = parse.mesh(mesh)
    laid = mesh_here(sizes) if topology is None else describe_mesh(sizes)
    options = {"mesh": laid, "spec": parse.spec(spec, sizes, len(lengths)), **options}
    best = meshfft.plan(lengths, topology=topology, **options)
    return [best, *(_other_methods(lengths, topology, options) if topology is not None else ())]


def _other_methods(lengths: tuple[int, ...], topology: Any, options: dict[str, Any]) -> Sequence[Any]:
    """The same by the other methods that have a walk, best first."""
    import meshfft

    from ..walks.candidates import METHODS

    found = []
    for method in METHODS:
        if method != options["method"]:
            try:
                found.append(meshfft.plan(lengths, topology=topology, **{**options, "method": method}))
            except ValueError:
                continue
    return sorted(found, key=lambda one: (one.fits is False, one.seconds or 0.0))


def _summary(plan: Any) -> dict[str, Any]:
    """A runner-up in a few values."""
    whole = plan.to_dict()
    kept = ("mesh", "method", "seconds", "seconds_by_resource", "peak_bytes_per_device", "bytes_per_device", "fits")
    return {name: whole[name] for name in kept}


def _print_others(best: Any, others: Sequence[Any]) -> None:
    """The runners-up, and what each has more of than the winner."""
    say("\nRunners-up, modelled:")
    rows = [
        [_mesh(one), one.method, _seconds(one.seconds), plain(one.peak_bytes / 1e9, 3), _why(best, one)]
        for one in others
    ]
    print_columns(["mesh", "method", "seconds", "peak GB", "because"], rows)


def _why(best: Any, other: Any) -> str:
    """The resource of which a runner-up takes most more."""
    if other.fits is False:
        return "does not fit"
    pairs = zip(other.seconds_by_resource[:-1], best.seconds_by_resource[:-1], strict=True)
    more = dict(zip(best.seconds_by_resource._fields, (a - b for a, b in pairs), strict=False))
    name = max(more, key=lambda resource: more[resource])
    return f"{name} {_seconds(more[name])} more" if more[name] > 0 else "less overlaps"


def _print_compiled(plan: Any, made: dict[str, Any]) -> None:
    """Model and compiler side by side, two rows a step."""
    clock, rows = plan.machine.chip.clock.value, []
    for j, (step, layout) in enumerate(plan.walk.pairs):
        model = plan.machine.seconds(step.work(layout, plan.dtype.itemsize, plan.machine.chip))
        cycles = {one["unit"]: one["cycles"] / clock for one in made["cycles"] if one["step"] == j}
        units = [cycles.get(unit, 0.0) for unit in ("matrix", "vector", "copy")]
        rows.append([f"{j + 1}. cost model", *map(_seconds, model[:3]), _seconds(model.links)])
        waited = sum(one["waited_seconds"] for one in made["collectives"] if (one["step"] or 0) == j)
        rows.append(["   compiler", *map(_seconds, [*units, waited])])
    say(f"\nSeconds by step for {plan.machine.chip.name}, modelled: by cost; by the compiler's cycles, and the")
    say("waits for links that its schedule leaves:")
    print_columns(["step", "products", "vector", "memory", "links"], rows)
    spent, peak = made["seconds_modelled"], made["peak_bytes_per_device"] / 1e9
    hidden = sum(one["times"] for one in made["collectives"] if one["asynchronous"] and one["covered"])
    many = sum(one["times"] for one in made["collectives"])
    say(f"{plain(peak, 3)} GB per device at the compiler's peak; {hidden} of {many} collectives have work under them.")
    compute, links = _seconds(spent["compute"]), _seconds(spent["links"])
    say(f"Played in the compiler's order: {_seconds(spent['total'])} s, compute {compute}, links {links}.")


def _mesh(plan: Any) -> str:
    return ", ".join(f"{name}={size}" for name, size in plan.mesh.shape.items())


def _seconds(value: float | None) -> str:
    return "-" if value is None else plain(value, 3)
