"""`meshfft profile`: where the time of a transform goes, step by step, measured on the devices that are here."""

import json
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..atomic import replacing
from . import flags, parse
from .guard import guarded
from .made import check_rows, made_by
from .plan import DTYPES, plan_options
from .progress import bar
from .say import say
from .show import print_columns, print_json


@guarded
def profile(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    mesh: flags.Mesh,
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

    Runs on the machine's accelerators where there are enough of them, else on CPU devices that share its cores. A
    figure and rows that are there are replaced.
    """
    names = {"method": method, "order": order, "norm": norm, "kind": kind, "precision": precision}
    options = plan_options(dtype, inverse, axes, names)
    lengths, sizes = parse.sizes(shape, "the shape", "256,256,256"), parse.mesh(mesh)
    parse.count(runs, "--runs", "runs")
    _check(trace, figure, rows)
    options["spec"] = parse.spec(spec, sizes, len(lengths))
    made, found = _measured(lengths, sizes, options, runs, trace)
    record, files = {**_facts(made), **found.to_dict()}, {"trace": trace, "figure": figure, "rows": rows}
    _write(found, record, figure, rows)
    if as_json:
        print_json({**record, **{name: path and str(path) for name, path in files.items()}})
        return
    say(f"{made}\n")
    _print(found, record["how"])
    for path in filter(None, files.values()):
        say(f"Wrote {path}{', to open at https://ui.perfetto.dev' * (path is trace)}.")


def _check(trace: Path | None, figure: Path | None, rows: Path | None) -> None:
    """Refuses what could not be done, before anything is compiled."""
    import jax

    from ..files.picture import check_picture
    from ..inspect.trace import check_profiler

    check_profiler(jax.config.values["jax_platforms"])
    if trace is not None:
        folder, remedy = trace if trace.exists() else trace.resolve().parent, "make it first, or name another"
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is not a folder: {remedy}")
    if figure is not None:
        check_picture(figure, overwrite=True)
    if rows is not None:
        check_rows(rows)


def _measured(
    lengths: tuple[int, ...], sizes: dict[str, int], options: dict[str, Any], runs: int, trace: Path | None
) -> tuple[Any, Any]:
    """Runs the plan; returns it and the breakdown."""
    import meshfft

    from ..inspect.trace import profiled
    from .devices import local_devices, start_mesh
    from .memory import check_memory

    laid = start_mesh(sizes)
    made = meshfft.plan(lengths, mesh=laid, **options)
    check_memory(made.peak_bytes, local_devices(laid))
    with tempfile.TemporaryDirectory() as scratch, bar(runs, in_bytes=False) as report:
        report.begin("run")
        return made, profiled(made, laid, runs, trace or Path(scratch), lambda: report.advance(1))


def _facts(plan: Any) -> dict[str, Any]:
    """What was profiled, on which kind of device, by which versions."""
    facts, device = plan.to_dict(), plan.mesh.devices.flat[0].device_kind
    kept = {name: facts[name] for name in ("shape", "dtype", "mesh", "method", "order")}
    steps = [step.name(layout) for step, layout in plan.walk.pairs]
    return {"transform": facts["kind"], **kept, "steps": steps, "device": device, "made_by": made_by()}


def _write(found: Any, record: dict[str, Any], figure: Path | None, rows: Path | None) -> None:
    """Draws the figure, and writes a row for each step and kind, with all that is known of the run."""
    from ..inspect.trace import figure_of

    if figure is not None:
        shape, mesh = (" x ".join(map(str, sizes)) for sizes in (record["shape"], record["mesh"].values()))
        what = f"{record['transform']} of {shape} {record['dtype']}, method {record['method']}, mesh {mesh}"
        with replacing(figure, overwrite=True) as temporary:
            figure_of(found, f"{what}, on {record['device']}").savefig(temporary, format=figure.suffix[1:])
    if rows is not None:
        shared = {"benchmark": "profile", **{name: value for name, value in record.items() if name != "parts"}}
        with replacing(rows, overwrite=True) as temporary:
            temporary.write_text("".join(json.dumps({**shared, **part}) + "\n" for part in record["parts"]))


def _print(found: Any, how: str) -> None:
    """Seconds of each step by kind of work, their sums and shares, and of several devices the least and the most."""
    from ..inspect.hlo import KINDS
    from ..inspect.trace import unit_for

    (unit, size), (steps, kinds), total = unit_for(found.wall), found.used, found.seconds.mean(0)
    rows = [[found.steps[j], *_numbers([*total[j, kinds], total[j].sum()], size)] for j in steps]
    sums = [["run", *_numbers([*total.sum(0)[kinds], total.sum()], size)]]
    sums += [["share", *(f"{100 * part / found.wall:.1f}%" for part in total.sum(0)[kinds]), ""]]
    if len(found.devices) > 1:
        by_device = found.seconds.sum(1)[:, kinds] / size
        least, most = by_device.min(0), by_device.max(0)
        sums += [[f"{name} of a device", *_numbers(by), ""] for name, by in (("least", least), ("most", most))]
    heads = [unit, *(KINDS[k] for k in kinds), "total"]
    print_columns(["all-to-\nall" if head == "all-to-all" else head for head in heads], rows, sums)
    span = f", of {min(found.walls) / size:.1f} to {max(found.walls) / size:.1f} {unit}" * (len(found.walls) > 1)
    say(textwrap.fill(f"Measured: {how}{span}, on {len(found.devices)} devices.", 80))
    for kind, seconds in found.hidden.items():
        if seconds > 0.01 * found.wall:  # less is not worth a line
            say(f"Beside these, {seconds / size:.1f} {unit} of {kind} are hidden under other work.")


def _numbers(seconds: Iterable[float], size: float = 1.0) -> list[str]:
    return [f"{one / size:.1f}" if one else "-" for one in seconds]
