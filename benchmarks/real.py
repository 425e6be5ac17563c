"""What real transforms save: rfftn, irfftn and dctn of float32 against fftn of as many complex64, in one run.

    python -m benchmarks real [--size 256] [--rounds 9] [--rows FILE]

Eight CPU devices, three meshes, calls in an order shuffled anew every round. The table gives medians, and their ratios
to fftn on the same mesh; `--rows` appends one JSON line a transform and mesh.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax.sharding import AxisType  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402
from benchmarks.measure.timing import interleaved, timer  # noqa: E402

MESHES = {"slab": ((8,), P("x")), "pencil": ((2, 4), P("x", "y")), "block": ((2, 2, 2), P("x", "y", "z"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    print("| mesh | transform | ms | of fftn |\n|---|---|---|---|")
    for name in MESHES:
        times = measured(calls(name, options.size), options.rounds)
        whole = statistics.median(times["fftn"])
        for kind, seconds in times.items():
            middle = statistics.median(seconds)
            print(f"| {name} | {kind} | {middle * 1e3:.0f} | {middle / whole:.2f} |", flush=True)
            append(options.rows, [{"mesh": name, "transform": kind, "size": options.size, "seconds": seconds}])


def calls(name: str, size: int) -> dict[str, Callable[[], Any]]:
    """The transforms of one mesh, compiled, on arrays of fresh noise."""
    sizes, spec = MESHES[name]
    mesh = jax.make_mesh(sizes, ("x", "y", "z")[: len(sizes)], (AxisType.Auto,) * len(sizes))
    rng = np.random.default_rng()
    x = mf.shard(rng.standard_normal((size,) * 3, "float32"), mesh, spec)
    z = mf.shard(rng.standard_normal((size,) * 3, "float32") * np.complex64(1 + 1j), mesh, spec)
    half = mf.rfftn(x)
    found = {
        "fftn": lambda: mf.fftn(z),
        "rfftn": lambda: mf.rfftn(x),
        "irfftn": lambda: mf.irfftn(half),
        "dctn": lambda: mf.dctn(x),
    }
    for call in found.values():
        call().block_until_ready()
    return found


def measured(found: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    times = interleaved([timer(call) for call in found.values()], rounds)
    return dict(zip(found, times, strict=True))


if __name__ == "__main__":
    main()
