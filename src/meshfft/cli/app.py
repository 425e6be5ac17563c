"""The `meshfft` command: its subcommands, the folder of its compiled programs, and `meshfft info`."""

import os
import platform
import signal
import sys
import textwrap
from collections import Counter
from typing import Annotated

import jax
import typer

from ..extras import EXTRAS, all_versions, install_hint, installed, version_of
from ..kept import cache as keep_in
from ..kept import own_folder
from ..layout.memory import available_bytes
from ..machine.chip import Figure
from ..machine.chips import chip_for
from . import flags
from .measure import measure, profile
from .output import ended, guarded, occupy, print_json, say, warn
from .plan import plan
from .reconstruct import reconstruct
from .scattered import nufft
from .transform import transform

OFF = "off"
VARIABLE = "MESHFFT_CACHE"
QUIET = (0, 10, 2)  # JAX before it prints two lines of errors for every CPU program that it reads back
CACHE = typer.Option(metavar="DIR", envvar=VARIABLE, help="Where compiled programs are kept; off keeps none.")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def main() -> None:
    """SIGTERM ends the command like an error, so that no partial output is left."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    occupy()
    code = ended(_run())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # a second signal needs no traceback
    sys.exit(code)


def _run() -> int:
    """The exit code. A wrong command line is one line on stderr: its words may be names of files."""
    try:
        return app(standalone_mode=False) or 0
    except typer.Abort:
        return 130
    except Exception as error:
        if not hasattr(error, "format_message"):  # of typer, or of click
            raise
        name = getattr(getattr(error, "ctx", None), "command_path", "meshfft")
        text = error.format_message()
        warn(f"meshfft: error: {text}{'' if text.endswith(('.', '?')) else '.'} See {name} --help.")
        return 2


def _version(wanted: bool) -> None:
    if wanted:
        say(f"meshfft {version_of('meshfft')}")
        raise typer.Exit()


@app.callback()
@guarded
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    cache: Annotated[str | None, CACHE] = None,
) -> None:
    """Fourier transforms of arrays sharded over a mesh of devices."""
    keep_programs(cache or os.environ.get(VARIABLE))  # the oldest typer ignores envvar


def keep_programs(wanted: str | None) -> None:
    """Makes JAX keep compiled programs in the folder `wanted`, else the user's own; nowhere if that is "off".

    Without `wanted` a setting of JAX stays as it is, and an unusable folder is no error.
    """
    if wanted == OFF:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if not wanted and (jax.config.values["jax_compilation_cache_dir"] or jax.__version_info__ < QUIET):
        return
    folder = wanted or own_folder(os.environ.get({"win32": "LOCALAPPDATA"}.get(sys.platform, "XDG_CACHE_HOME")) or None)
    try:
        if folder:
            keep_in(folder)
    except ValueError:
        if wanted:
            remedy = f"name another, or {OFF} to keep nothing"
            raise ValueError(f"--cache {wanted}: no folder that can be written: {remedy}") from None


@guarded
def info(as_json: flags.JsonFlag = False) -> None:
    """Show versions, devices, free memory, installed extras, and the rates by which plans are priced here."""
    devices = jax.devices()
    kinds, free = Counter(device.device_kind for device in devices), available_bytes()
    versions = {"python": platform.python_version(), **all_versions()}
    extras = {name: {module: installed(module) for module in modules} for name, modules in EXTRAS.items()}
    chip = chip_for(devices[0].platform, devices[0].device_kind)
    figures, settings = chip.figures(), jax.config.values
    kept = settings["jax_compilation_cache_dir"] if settings["jax_enable_compilation_cache"] else None
    if as_json:
        marked = {name: {**figure._asdict(), "mark": _mark(figure)} for name, figure in figures.items()}
        print_json(
            {
                "versions": versions,
                "devices": [{"kind": kind, "count": count} for kind, count in kinds.items()],
                "memory_available_bytes": free,
                "extras": extras,
                "rates": {"chip": chip.name, "figures": marked},
                "compiled_programs": kept,
            }
        )
        return
    lines = {
        **versions,
        "devices": ", ".join(f"{count} x {kind}" for kind, count in kinds.items()),
        "memory": f"{free / 1e9:.1f} GB free",
        "compiled programs": f"in {kept}" if kept else "not kept",
        **{f"extra {name}": _extra(name, modules) for name, modules in extras.items()},
        f"{chip.name} rates": "of one device, as plans take them: none is measured here, as meshfft measure does",
        **{name: f"{figure.value:.3g} ({_mark(figure)})" for name, figure in figures.items()},
        "sources": "; ".join(dict.fromkeys(figure.source for figure in figures.values())),
    }
    for name, value in lines.items():
        say(textwrap.fill(value, 80, initial_indent=f"{name:25}", subsequent_indent=" " * 25))


def _mark(figure: Figure) -> str:
    return "measured elsewhere" if figure.mark == "measured" else figure.mark


def _extra(name: str, modules: dict[str, bool]) -> str:
    missing = ", ".join(module for module, there in modules.items() if not there)
    return f"{missing} missing: {install_hint(name)}" if missing else f"installed: {', '.join(modules)}"


for command in (transform, nufft, reconstruct, plan, profile, measure, info):
    app.command()(command)

if __name__ == "__main__":
    main()
