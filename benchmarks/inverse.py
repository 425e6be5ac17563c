"""The inverse of a nonuniform transform along one dimension, by an explicit inverse and by conjugate gradients.

    python -m benchmarks inverse [--sizes 512,1024,2048,8192] [--columns 64] [--x64] [--rows FILE]

An array of N x columns, its first dimension over eight CPU devices, sampled at N points (k + u) / N, u uniform within a
quarter. Seconds of a first call, with compiling and what the host makes once, and of a second; the error is against the
array that was sampled. The explicit inverse, which costs N^3 on the host, is left out above 2048.
"""

import argparse
import time
from pathlib import Path

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402

MOST_DIRECT = 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="512,1024,2048,8192")
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--x64", action="store_true", help="in complex128")
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", options.x64)
    print("| N | method | first s | second s | iterations | condition | residual | error |\n|" + "---|" * 8)
    for n in map(int, options.sizes.split(",")):
        for method in ("direct", "iterative"):
            if method == "iterative" or n <= MOST_DIRECT:
                row = measured(n, options.columns, method, options.x64)
                cells = (n, method, *(f"{row[name]:.3g}" for name in list(row)[4:]))
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)
                append(options.rows, [row])


def measured(n: int, columns: int, method: str, wide: bool) -> dict[str, object]:
    """One row: solved twice, so that the second has all that is kept."""
    mesh, rng = jax.make_mesh((8,), ("x",)), np.random.default_rng(n)
    array = rng.standard_normal((n, columns, 2)).view(np.complex128)[..., 0].astype("c16" if wide else "c8")
    points = mf.Points.turns((np.arange(n) + rng.uniform(-0.25, 0.25, n)) / n)
    samples = mf.kdftn(mf.shard(array, mesh, P("x")), [points, None]).block_until_ready()
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        found = mf.ikdftn(samples, [points, None], method=method)
        jax.block_until_ready(found.value)
        seconds.append(time.perf_counter() - begun)
    error = np.linalg.norm(mf.gather(found.value) - array) / np.linalg.norm(array)
    worth = {"condition": float(found.condition), "residual": float(found.residual), "error": float(error)}
    what = {"N": n, "columns": columns, "dtype": str(array.dtype), "method": method}
    return {**what, "first": seconds[0], "second": seconds[1], "iterations": int(found.iterations[0]), **worth}


if __name__ == "__main__":
    main()
