"""`meshfft info`: versions, devices, memory, extras and the rates that plans use; what a report of a fault needs."""

import platform
from collections import Counter
from importlib import metadata

import jax

from ..extras import EXTRAS, installed
from ..machine.chip import Chip, chip_for
from . import flags
from .devices import available_bytes
from .output import guarded, print_facts, print_json

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")


@guarded
def info(as_json: flags.Json = False) -> None:
    """Show versions, devices, free memory, installed extras, and the rates by which plans are priced here."""
    devices = jax.devices()
    kinds, free = Counter(device.device_kind for device in devices), available_bytes()
    versions = {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}}
    extras = {name: {module: installed(module) for module in modules} for name, modules in EXTRAS.items()}
    chip = chip_for(devices[0].platform, devices[0].device_kind)
    if as_json:
        print_json(
            {
                "versions": versions,
                "devices": [{"kind": kind, "count": count} for kind, count in kinds.items()],
                "memory_available_bytes": free,
                "extras": extras,
                "rates": {"chip": chip.name, "figures": {name: one._asdict() for name, one in chip.figures().items()}},
            }
        )
        return
    print_facts(
        {
            **versions,
            "devices": ", ".join(f"{count} x {kind}" for kind, count in kinds.items()),
            "memory": f"{free / 1e9:.1f} GB free",
            **{f"extra {name}": _extra(name, modules) for name, modules in extras.items()},
            **_rates(chip),
        }
    )


def _extra(name: str, modules: dict[str, bool]) -> str:
    missing = [module for module, there in modules.items() if not there]
    if missing:
        return f'{", ".join(missing)} missing: pip install "meshfft[{name}]"'
    return f"installed: {', '.join(modules)}"


def _rates(chip: Chip) -> dict[str, str]:
    """One line a figure, with its mark, and each source once."""
    figures = chip.figures()
    lines = {name: f"{one.value:.3g} ({one.mark})" for name, one in figures.items()}
    sources = "; ".join(dict.fromkeys(one.source for one in figures.values()))
    return {f"{chip.name} rates": "of one device", **lines, "sources": sources}


def version_of(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "not installed"
