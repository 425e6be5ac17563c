"""`meshfft profile`: the time of each step of a transform by kind of work, measured on the devices here."""

import json
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from jax.sharding import Mesh

import meshfft

from ..atomic import replacing
from ..extras import versions_of
from ..inspect.hlo import KINDS
from ..inspect.trace import Breakdown, check_profiler, figure_of, profiled, unit_for
from ..plans.plan import Plan
from ..spectral.picture import check_picture
from . import flags
from .devices import check_memory, start_mesh
from .output import bar, guarded, print_columns, print_json, say


@guarded
@flags.with_flags
def profile(
    shape: Annotated[str, typer.Argument(metavar="N,N,...", help="Sizes of the array: 256,256,256.")],
    mesh: Annotated[str, flags.option("P,P,...", "Devices along mesh axes x, y, z, w: 2,2,2.")],
    how: flags.Options,
    runs: Annotated[int, flags.option("N", "How often it runs.")] = 5,
    trace: Annotated[Path | None, flags.option("DIR", "Keep the trace here, for Perfetto.")] = None,
    figure: Annotated[Path | None, flags.option("FILE", "Draw it: .png, .pdf, .svg.")] = None,
    rows: Annotated[Path | None, flags.option("FILE", "Write the rows here, as JSON lines.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Show where the time goes: products, FFTs, permutes, all-to-alls, copies and idling of every step.

    Runs on the machine's accelerators where there are enough of them, else on
    CPU devices that share its cores. An existing figure or file of rows is
    replaced.
    """
    options = how.read()
    lengths, sizes = flags.read_sizes(shape, "the shape", "256,256,256"), flags.read_mesh(mesh)
    spec = flags.read_spec(how.spec, sizes, len(lengths))
    _check(runs, trace, figure, rows)
    laid = start_mesh(sizes)
    plan = meshfft.plan(lengths, mesh=laid, spec=spec, **options)
    found = _measured(plan, laid, runs, trace)
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
    folder = trace if trace is None or trace.exists() else trace.resolve().parent
    if folder is not None and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder: make it first, or name another")
    if figure is not None:
        check_picture(figure, overwrite=True)
    flags.check_rows(rows)


def _measured(plan: Plan, mesh: Mesh, runs: int, trace: Path | None) -> Breakdown:
    check_memory(plan.peak_bytes, mesh.local_devices)
    with tempfile.TemporaryDirectory() as scratch, bar(runs, in_bytes=False) as progress:
        progress.begin("run")
        return profiled(plan, mesh, runs, trace or Path(scratch), lambda: progress.advance(1))


def _facts(plan: Plan, mesh: Mesh) -> dict[str, Any]:
    facts, device = plan.to_dict(), mesh.devices.flat[0].device_kind
    kept = {name: facts[name] for name in ("shape", "dtype", "mesh", "method", "order", "wire")}
    steps = [step.name(layout) for step, layout in plan.walk.pairs]
    return {
        "transform": facts["kind"],
        **kept,
        "steps": steps,
        "device": device,
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
    say(textwrap.fill(f"Measured: {how}{span}, on {len(found.devices)} devices.", 80))
    for kind, seconds in found.hidden.items():
        if seconds > 0.01 * found.wall:  # less is not worth a line
            say(f"Beside these, {seconds / size:.1f} {unit} of {kind} are hidden under other work.")


def _numbers(seconds: Iterable[float], size: float) -> list[str]:
    return [f"{one / size:.1f}" if one else "-" for one in seconds]
