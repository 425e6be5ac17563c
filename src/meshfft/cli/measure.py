"""`meshfft measure`: the rates of the devices here, in a machine file by which plans are priced."""

import math
import re
from pathlib import Path
from typing import Annotated

import jax

from ..atomic import refuse_existing, replacing
from ..inspect.rates import measured_rates
from ..machine.chips import chip_for
from ..machine.machine_file import machine_text, measured_chip
from . import flags
from .cluster import run_in, start_mesh
from .output import guarded, print_columns, print_json, say, waiting

FOLDER = "machines"  # in the folder of compiled programs
WIDE_TYPES = True  # for products of the float64 tiers


@guarded
@flags.with_flags
def measure(
    mesh: Annotated[
        str | None, flags.option("P,P,...", "Devices along mesh axes; by default all GPUs or TPUs.")
    ] = None,
    out: Annotated[Path | None, flags.option("FILE", "The machine file, in place of one of your cache.")] = None,
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


def _kept(kind: str, count: int) -> Path:
    """The file of such devices among the user's compiled programs."""
    settings = jax.config.values
    folder = settings["jax_compilation_cache_dir"] if settings["jax_enable_compilation_cache"] else None
    own = Path(folder) if folder and "://" not in folder else None
    if own is None:
        raise ValueError("no folder of compiled programs is in use: name the file, as --out here.toml")
    return own / FOLDER / f"{re.sub('[^a-z0-9]+', '-', kind.lower())}-{count}-jax-{jax.__version__}.toml"
