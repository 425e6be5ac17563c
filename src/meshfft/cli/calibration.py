"""The CPU row that `meshfft info --calibrate` measured, kept in the user's cache folder.

One JSON file, cpu.json, holds a row for each processor, number of cores and version of JAX that was calibrated, so that
machines can share a home folder. A file that cannot be read counts as none.
"""

import contextlib
import json
import math
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from ..atomic import replacing
from ..errors import check
from ..machine.chip import Chip

RATES = ("product", "vector", "memory", "link")


def stored_chip() -> Chip | None:
    """The row measured on this machine, or None where it was not calibrated."""
    from ..calibrate import row

    try:
        found = _rows()[machine_key()]
        figures = [float(found[name]) for name in (*RATES, "hop")]
        source = str(found["source"])
    except (KeyError, TypeError, ValueError):
        return None
    return row(figures[:-1], figures[-1], source) if all(0 < figure < math.inf for figure in figures) else None


def calibrate_here() -> list[dict[str, Any]]:
    """Measures this machine's row and stores it; returns the parts it was fitted to."""
    from ..calibrate import DEVICES, calibrate

    found = calibrate(_cpus(DEVICES))
    store(found.chip)
    return [{"part": one.name, "measured_s": one.measured, "fitted_s": one.modelled} for one in found.timings]


def store(chip: Chip) -> None:
    """Writes this machine's row beside those of others, in one move."""
    from ..calibrate import rates_of

    file, rates = cache_file(), dict(zip(RATES, rates_of(chip), strict=True))
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file, overwrite=True) as temporary:
        rows = {**_rows(), machine_key(): {**rates, "hop": chip.hop.value, "source": chip.hop.source}}
        temporary.write_text(json.dumps(rows, indent=2) + "\n")


def cache_file() -> Path:
    """Where rows are kept: the user's cache folder, which XDG_CACHE_HOME names by an absolute path."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "meshfft" / "cpu.json"


def machine_key() -> str:
    """What a row holds for: the processor, the cores this process may use, and the version of JAX."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cpu_model()}, {cores} cores, jax {metadata.version('jax')}"


def cpu_model(root: Path = Path("/")) -> str:
    """The processor's name; `root` is where the system's files are."""
    try:
        found = re.search(r"model name\s*: (.*)", (root / "proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _rows() -> dict[str, Any]:
    """Every machine's row."""
    try:
        rows = json.loads(cache_file().read_text())
    except (OSError, ValueError):
        return {}
    return rows if isinstance(rows, dict) else {}


def _cpus(count: int) -> list[Any]:
    """CPU devices, started if JAX has not."""
    import jax

    with contextlib.suppress(RuntimeError):  # JAX runs already: take the devices it has
        jax.config.update("jax_num_cpu_devices", count)
    devices = jax.devices("cpu")
    check(
        len(devices) >= count,
        f"there are {len(devices)} CPU devices, a calibration takes {count}: run it in a process of its own",
    )
    return devices[:count]
