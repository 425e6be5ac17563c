"""A run in passes as its own process, which may be killed on the way; or one of several that share it."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")

from jax.sharding import AbstractMesh  # noqa: E402

import meshfft as mf  # noqa: E402
from meshfft.io import open_array  # noqa: E402
from meshfft.out_of_core import run as passing  # noqa: E402
from meshfft.out_of_core import run_passes  # noqa: E402


def main(source: str, target: str, numbers: list[int], fault: str = "", address: str = "", index: str = "0") -> None:
    """Runs it in a budget; at the `end`-th report the process is killed, or a fault befalls the second of two."""
    budget, end = numbers
    if address:
        jax.distributed.initialize(address, 2, int(index))
    reports: list[int] = []

    def report(nbytes: int) -> None:
        reports.append(nbytes)
        if len(reports) == end:
            os.kill(os.getpid(), signal.SIGKILL)

    if fault == "write" and index == "1":
        setattr(passing, "write_tile", failing)  # noqa: B010
    try:
        with open_array(source) as array:
            made = mf.passes(array.shape, budget=budget, dtype=array.dtype, mesh=AbstractMesh((2,), ("x",)))
            given: Any = array[...] if fault == "source" and index == "1" else array  # the same numbers, of no file
            run_passes(made, given, Path(target), report=report)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        os._exit(0)
    print(json.dumps({"bytes": sum(reports), "all": made.read_bytes + made.written_bytes}))


def failing(*_: Any) -> None:
    raise OSError(5, "Input/output error")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(number) for number in sys.argv[3:5]], *sys.argv[5:])
