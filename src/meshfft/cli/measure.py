"""`meshfft measure`, `meshfft profile`, and the choice of a walk by trials."""

import json
import math
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from jax.sharding import AbstractMesh, Mesh

import meshfft

from ..atomic import refuse_existing, replacing
from ..extras import all_versions
from ..inspect.hlo import KINDS
from ..inspect.rates import measured_rates
from ..inspect.trace import Breakdown, check_profiler, figure_of, profiled, unit_for
from ..kept import folder_in_use
from ..layout.layout import Spec, axis_sizes
from ..layout.memory import allocated
from ..machine.chips import chip_for
from ..machine.machine_file import machine_text, measured_chip
from ..numerics.units import quantity
from ..plans.measured import Tell, fastest
from ..plans.options import records_of
from ..plans.plan import Plan
from ..plans.planning import MOST_TRIALS, Placement, candidates, on_meshes
from ..spectral.picture import check_picture
from . import flags
from .cluster import check_memory, mesh_of, run_in, start_mesh
from .output import bar, guarded, print_columns, print_json, say, say_filled, waiting

FOLDER = "machines"  # in the folder of compiled programs
WIDE_TYPES = True  # for products of the float64 tiers


@guarded
@flags.with_flags
def measure(
    mesh: Annotated[
        str | None, flags.option("P,P,...", "Devices along mesh axes; by default all GPUs or TPUs.")
    ] = None,
    out: Annotated[Path | None, flags.option("FILE", "The machine file; by default in your cache.")] = None,
    overwrite: Annotated[bool, flags.switch("--overwrite", "Replace --out where it exists.")] = False,
    *,
    joining: flags.Joining,
    as_json: flags.JsonFlag = False,
) -> None:
    """Measure the rates of the devices here, and write them to a machine file.

    Local FFTs, products of every tier, passes over memory, all-to-alls and
    permutes by size and mesh axis, inside and between nodes. It takes a minute
    or two, best on an idle machine. Plans use the file only where it is given:
    meshfft plan --topology FILE.toml, in Python topology="FILE.toml".
    """

    def ask() -> dict[str, int]:
        if out is not None:
            if out.suffix != ".toml":
                raise ValueError(f"--out {out} does not end in .toml: name it so, as here.toml")
            refuse_existing(out, overwrite)
        return _sizes(mesh)

    run_in(joining, ask, lambda sizes: math.prod(sizes.values()), lambda sizes: _run(sizes, out, as_json))


def _sizes(mesh: str | None) -> dict[str, int]:
    if mesh is not None:
        return flags.read_mesh(mesh)
    devices = jax.devices()
    if devices[0].platform == "cpu":
        raise ValueError("the devices here are virtual ones of a CPU: say how many, as --mesh 8 or --mesh 2,4")
    return {"x": len(devices)}


def _run(sizes: dict[str, int], out: Path | None, as_json: bool) -> None:
    laid = start_mesh(sizes)
    jax.config.update("jax_enable_x64", WIDE_TYPES)
    first = laid.devices.flat[0]
    path = out or _kept(first.device_kind, laid.size)
    with waiting("measuring") as progress:
        found = measured_rates(laid, progress)
    record = found.record(laid)
    if jax.process_index() > 0:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path, overwrite=True) as temporary:
        temporary.write_text(machine_text(record))
    if as_json:
        print_json({**record, "file": str(path)})
        return
    known = chip_for(first.platform, first.device_kind)
    figures, rows = measured_chip(known, found.rates, found.products, "").figures(), list[list[str]]()
    for name, figure in figures.items():
        sheet = known.figures().get(name)
        if figure != sheet:
            rows.append([name, f"{figure.value:.3g}", "-" if sheet is None else f"{sheet.value:.3g}"])
    print_columns([f"one of {laid.size} {first.device_kind} devices", "measured here", "as plans take it"], rows)
    say(f"\nWrote {path}. Plans take it by --topology, in Python by topology=.")


def plan_by_trials(
    lengths: tuple[int, ...], mesh: str | None, spec: str | None, options: flags.Keywords, tell: Tell
) -> Plan:
    """The fastest, measured, of the plans that the model finds fastest."""
    sizes = _sizes(mesh)
    laid = start_mesh(sizes)
    definition, how = records_of(options)
    if mesh is not None:
        cut = flags.read_spec(spec, sizes, len(lengths))
        return fastest(candidates(Placement(lengths, laid, cut), definition, how), tell)

    def find(described: AbstractMesh, cut: Spec) -> list[Plan]:
        over = mesh_of(axis_sizes(described), [*laid.devices.flat])
        return candidates(Placement(lengths, over, cut), definition, how)

    return fastest(on_meshes(lengths, laid.size, options["axes"] is None, find)[:MOST_TRIALS], tell)


def _kept(kind: str, count: int) -> Path:
    if (own := folder_in_use()) is None:
        raise ValueError("no folder of compiled programs is in use: name the file, as --out here.toml")
    return own / FOLDER / f"{re.sub('[^a-z0-9]+', '-', kind.lower())}-{count}-jax-{jax.__version__}.toml"


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
    """Show how the time is spent: products, FFTs, permutes, all-to-alls, copies and idling of every step.

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
    record = {**_facts(plan, laid), "allocated_bytes": allocated(laid.local_devices), **found.to_dict()}
    files = {"trace": trace, "figure": figure, "rows": rows}
    _write(found, record, figure, rows)
    if as_json:
        print_json({**record, **{name: path and str(path) for name, path in files.items()}})
        return
    say(f"{plan}\n")
    _print_breakdown(found, record["how"])
    if record["allocated_bytes"] is not None:
        most, planned = quantity(record["allocated_bytes"], "B"), quantity(plan.peak_bytes, "B")
        say_filled(f"The allocator of a device gave at most {most}; the plan has {planned}.")
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
        **{name: facts[name] for name in ("shape", "dtype", "mesh", *plan.options.asked)},
        "steps": [step.name(layout) for step, layout in plan.walk.pairs],
        "device": mesh.devices.flat[0].device_kind,
        "made_by": all_versions(),
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
    say_filled(f"Measured: {how}{span}, on {len(found.devices)} devices.")
    for kind, seconds in found.hidden.items():
        if seconds > 0.01 * found.wall:  # less is not worth a line
            say(f"Beside these, {seconds / size:.1f} {unit} of {kind} are hidden under other work.")


def _numbers(seconds: Iterable[float], size: float) -> list[str]:
    return [f"{one / size:.1f}" if one else "-" for one in seconds]
