"""`meshfft info`: versions, devices, memory and extras; what a report of a fault needs."""

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
def info(as_json: flags.Json = False) -> None:
    """Show versions, devices, free memory and installed extras."""
    record = collect()
    if as_json:
        print_json(record)
    else:
        print_facts(_lines(record))


def collect() -> dict[str, Any]:
    """What there is to tell, as one JSON object."""
    import jax

    kinds = Counter(device.device_kind for device in jax.devices())
    return {
        "versions": {"python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}},
        "devices": [{"kind": kind, "count": count} for kind, count in kinds.items()],
        "memory_available_bytes": available_bytes(),
        "extras": {name: {m: installed(m) for m in modules} for name, modules in EXTRAS.items()},
    }


def version_of(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "not installed"


def _lines(record: dict[str, Any]) -> dict[str, str]:
    devices = ", ".join(f"{kind['count']} x {kind['kind']}" for kind in record["devices"])
    extras = {f"extra {name}": _extra(name, modules) for name, modules in record["extras"].items()}
    memory = f"{record['memory_available_bytes'] / 1e9:.1f} GB free"
    return {**record["versions"], "devices": devices, "memory": memory, **extras}


def _extra(name: str, modules: dict[str, bool]) -> str:
    missing = [module for module, there in modules.items() if not there]
    if not missing:
        return f"installed: {', '.join(modules)}"
    return f'{", ".join(missing)} missing: pip install "meshfft[{name}]"'
