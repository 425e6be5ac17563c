"""The modes of a ring beside each other on eight CPU devices: one way, both ways, and the paper's order of operations.

    python -m benchmarks ring [--size 256] [--rounds 9] [--rows FILE]

kdftn and the paper's FFT of a cube along its cut dimension, and the product of a large matrix with `one_shuffle`, where
the next block is fetched under the product or after it (Algorithm 1). complex64 and float32; medians of interleaved
rounds, and ratios to the mode named first.
"""

import argparse
import functools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax import Array, lax  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402
from benchmarks.measure.timing import interleaved, timer  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    calls = {**transforms(options.size), **products(options.size)}
    times = interleaved([timer(call) for call in calls.values()], options.rounds)
    print("| what | ring | ms | ratio |\n|---|---|---|---|")
    first: dict[str, float] = {}
    for (what, ring), seconds in zip(calls, times, strict=True):
        middle = statistics.median(seconds)
        ratio = middle / first.setdefault(what, middle)
        print(f"| {what} | {ring} | {middle * 1e3:.1f} | {ratio:.2f} |", flush=True)
        append(options.rows, [{"what": what, "ring": ring, "size": options.size, "seconds": seconds}])


def transforms(size: int) -> dict[tuple[str, str], Callable[[], Any]]:
    """The paper's two algorithms along a dimension over eight devices, by each mode."""
    mesh = jax.make_mesh((8,), ("x",))
    noise = np.random.default_rng().standard_normal((size,) * 3, "float32") * np.complex64(1 + 1j)
    x, calls = mf.shard(noise, mesh, P("x")), {}
    for method in ("kdft", "cooley-tukey"):
        for ring in ("one-way", "two-way"):
            call = functools.partial(mf.fftn, x, axes=(0,), method=method, ring=ring)
            calls[method, ring] = call
            call().block_until_ready()
    return calls


def products(size: int) -> dict[tuple[str, str], Callable[[], Any]]:
    """A matrix of which each device has rows, times one whose rows go round."""
    mesh, n = jax.make_mesh((8,), ("x",)), 8 * size
    rng = np.random.default_rng()
    matrix, x = (mf.shard(rng.standard_normal((n, n), "float32"), mesh, P("x")) for _ in range(2))

    def product(rows: Array, x: Array, **how: bool) -> Array:
        def einsum(held: Array, shard: Array) -> Array:
            return lax.dynamic_slice_in_dim(rows, shard * size, size, 1) @ held

        return mf.one_shuffle(einsum, x, "x", **how)

    modes = {"prefetched": {}, "in the paper's order": {"prefetch": False}, "two-way": {"two_way": True}}
    calls = {}
    for name, how in modes.items():
        body = functools.partial(product, **how)
        run = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x")))
        calls["one_shuffle", name] = functools.partial(run, matrix, x)
        run(matrix, x).block_until_ready()
    return calls


if __name__ == "__main__":
    main()
