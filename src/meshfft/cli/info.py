"""`meshfft info`: versions, devices, memory, extras and the rates that plans use; what a report of a fault needs."""

import platform
from collections import Counter
from importlib import metadata
from typing import Any

from ..extras import EXTRAS, installed
from . import flags
from .guard import guarded
from .memory import available_bytes
from .show import print_facts, print_json

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")


@guarded
def info(
    as_json: flags.Json = False,
) -> None:
    """Show versions, devices, free memory, installed extras, and the rates by which plans are priced here."""
    record = collect()
    if as_json:
        print_json(record)
        return
    print_facts(_lines(record))


def collect() -> dict[str, Any]:
    """What there is to tell, as one JSON object."""
    import jax

    devices = jax.devices()
    kinds = Counter(device.device_kind for device in devices)
    return {
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}},
        "devices": [{"kind": kind, "count": count} for kind, count in kinds.items()],
        "memory_available_bytes": available_bytes(),
        "extras": {name: {m: installed(m) for m in modules} for name, modules in EXTRAS.items()},
        "rates": _rates(devices[0]),
    }


def version_of(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "not installed"


def _rates(device: Any) -> dict[str, Any]:
    """The row for a device."""
    from ..machine.chip import chip_for

    chip = chip_for(device.platform, device.device_kind)
    return {"chip": chip.name, "figures": {name: figure._asdict() for name, figure in chip.figures().items()}}


def _lines(record: dict[str, Any]) -> dict[str, str]:
    devices = ", ".join(f"{kind['count']} x {kind['kind']}" for kind in record["devices"])
    extras = {f"extra {name}": _extra(name, modules) for name, modules in record["extras"].items()}
    memory = f"{record['memory_available_bytes'] / 1e9:.1f} GB free"
    return {**record["versions"], "devices": devices, "memory": memory, **extras, **_rate_lines(record["rates"])}


def _rate_lines(rates: dict[str, Any]) -> dict[str, str]:
    """One line a figure, with its mark, and each source once."""
    lines = {f"{rates['chip']} rates": "of one device"}
    lines |= {name: f"{figure['value']:.3g} ({figure['mark']})" for name, figure in rates["figures"].items()}
    return lines | {"sources": "; ".join(dict.fromkeys(figure["source"] for figure in rates["figures"].values()))}


def _extra(name: str, modules: dict[str, bool]) -> str:
    missing = [module for module, there in modules.items() if not there]
    if not missing:
        return f"installed: {', '.join(modules)}"
    return f'{", ".join(missing)} missing: pip install "meshfft[{name}]"'
