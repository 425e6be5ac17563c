"""What an eager `fftn` of a small array costs over its compiled program, on 8 virtual devices and on one.

    python -m benchmarks overhead              # microseconds until the call returns, the lower quartile of 400 calls
    python -m benchmarks overhead --files      # the modules of meshfft that a first call and a repeated one enter

The two calls take turns. Compare two commits by running it with each one's sources in PYTHONPATH, on a quiet machine.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import jax
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

import meshfft as mf

CALLS = 400


def main() -> None:
    """Prints a line for 8 devices and one for one device, or the modules entered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="print the modules that a call enters")
    given = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    values = np.random.default_rng(0).standard_normal((16, 16, 16)).astype(np.complex64)
    where = NamedSharding(jax.make_mesh((8,), ("x",)), PartitionSpec("x"))
    arrays = {"8 devices": jax.device_put(values, where), "one device": jax.device_put(values)}
    if given.files:
        for call in ("first", "repeated"):
            entered = files_entered(lambda: jax.block_until_ready(mf.fftn(arrays["8 devices"])))
            print(
                f"{call} call: {len(set(entered))} files, {len(entered)} entries\n  {' '.join(dict.fromkeys(entered))}"
            )
        return
    for name, x in arrays.items():
        eager, program = seconds({"eager": mf.fftn, "program": jax.jit(mf.fftn)}, x)
        print(
            f"{name:10}  eager {eager * 1e6:4.0f} us  program {program * 1e6:4.0f} us  {(eager - program) * 1e6:4.0f}"
        )


def seconds(functions: dict[str, Callable[[Array], Array]], x: Array) -> list[float]:
    """The lower quartile of each one's host time until it returns, in turns, everything before it done."""
    times = {name: list[float]() for name in functions}
    for _ in range(CALLS):
        for name, function in functions.items():
            start = time.perf_counter()
            y = function(x)
            times[name].append(time.perf_counter() - start)
            jax.block_until_ready(y)
    return [float(np.quantile(each, 0.25)) for each in times.values()]


def files_entered(call: Callable[[], object]) -> list[str]:
    """The modules of the package that a call enters, in order; one that is entered again after another counts again."""
    root, entered = Path(mf.__file__).parent, list[str]()

    def see(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and root in path.parents:
            name = str(path.relative_to(root))
            entered.extend([name] if entered[-1:] != [name] else [])

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


if __name__ == "__main__":
    main()
