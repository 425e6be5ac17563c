"""`meshfft info`: versions, devices, memory, extras and the rates that plans use; what a report of a fault needs."""

import platform
import textwrap
from collections import Counter
from importlib import metadata

import jax

from ..extras import EXTRAS, install, installed
from ..machine.chip import Figure, chip_for
from .terminal import flags
from .terminal.devices import available_bytes
from .terminal.output import guarded, print_json, say

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")


@guarded
def info(as_json: flags.Json = False) -> None:
    """Show versions, devices, free memory, installed extras, and the rates by which plans are priced here."""
    devices = jax.devices()
    kinds, free = Counter(device.device_kind for device in devices), available_bytes()
    versions = {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}}
    extras = {name: {module: installed(module) for module in modules} for name, modules in EXTRAS.items()}
    chip = chip_for(devices[0].platform, devices[0].device_kind)
    figures = chip.figures()
    kept = jax.config.values["jax_compilation_cache_dir"] if jax.config.values["jax_enable_compilation_cache"] else None
    if as_json:
        rates = {
            "chip": chip.name,
            "figures": {name: {**figure._asdict(), "mark": _mark(figure)} for name, figure in figures.items()},
        }
        devices_json = [{"kind": kind, "count": count} for kind, count in kinds.items()]
        facts = {
            "devices": devices_json,
            "memory_available_bytes": free,
            "extras": extras,
            "rates": rates,
            "compiled_programs": kept,
        }
        print_json({"versions": versions, **facts})
        return
    lines = {
        **versions,
        "devices": ", ".join(f"{count} x {kind}" for kind, count in kinds.items()),
        "memory": f"{free / 1e9:.1f} GB free",
        "compiled programs": f"in {kept}" if kept else "not kept",
        **{f"extra {name}": _extra(name, modules) for name, modules in extras.items()},
        f"{chip.name} rates": "of one device, as plans take them: none is measured here",
        **{name: f"{figure.value:.3g} ({_mark(figure)})" for name, figure in figures.items()},
        "sources": "; ".join(dict.fromkeys(figure.source for figure in figures.values())),
    }
    for name, value in lines.items():
        say(textwrap.fill(value, 80, initial_indent=f"{name:25}", subsequent_indent=" " * 25))


def _mark(figure: Figure) -> str:
    return "measured elsewhere" if figure.mark == "measured" else figure.mark


def _extra(name: str, modules: dict[str, bool]) -> str:
    missing = ", ".join(module for module, there in modules.items() if not there)
    return f"{missing} missing: {install(name)}" if missing else f"installed: {', '.join(modules)}"


def version_of(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "not installed"
