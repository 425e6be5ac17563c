"""What lengths with a large prime cost: one device's FFT of 8191 points against one of 8192, by XLA and by the chirp.

    python -m benchmarks awkward [--length 8191] [--of 8192] [--lines 512] [--devices 8] [--rounds 15] [--rows FILE]
    python -m benchmarks awkward --topology v3:2x2 [--length 8191] [--of 8192] [--lines 512] [--rows FILE]

Lines of complex64 along the last dimension, shared out to CPU devices, which share the machine's cores. Calls go in an
order shuffled every round. The table gives medians and their ratios, for each point, to XLA's FFT of the other
length; `--rows` appends one JSON line a call.

With `--topology` nothing runs: the TPU compiler makes the programs for one device of a described pod, each with as many
lines, as planes, and the table gives the cycles that it estimates. They are modelled. It needs the extra `tpu`.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import meshfft as mf
from benchmarks.jsonl import append
from benchmarks.measure.timing import interleaved, timer
from meshfft.inspect.aot import devices_of, report
from meshfft.kernels.xla import fft
from meshfft.numerics.split_complex import in_complex


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=8191)
    parser.add_argument("--of", type=int, default=8192)
    parser.add_argument("--lines", type=int, default=512)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--topology")
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    rows, what = (modelled(given), "cycles") if given.topology else (measured(given), "seconds")
    base = statistics.median(rows[0][what]) / given.of
    print(f"| call | {what} | a point, of usual |\n|---|---|---|")
    for row in rows:
        middle = statistics.median(row[what])
        print(f"| {row['call']} | {middle:.4g} | {middle / row['length'] / base:.2f} |")
    append(given.rows, rows)


def by_xla(block: jax.Array) -> jax.Array:
    return jnp.fft.fft(block)


def by_chirp(block: jax.Array) -> jax.Array:
    return fft(block, (1,), -1)


def measured(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each call, run on CPU devices."""
    jax.config.update("jax_num_cpu_devices", given.devices)
    mesh = jax.make_mesh((given.devices,), ("x",), (AxisType.Auto,))
    random = np.random.default_rng(0)
    x, usual = (
        mf.shard(random.standard_normal((given.lines, n, 2), "float32").view(np.complex64)[..., 0], mesh, P("x"))
        for n in (given.length, given.of)
    )
    xla, chirp = (
        jax.jit(jax.shard_map(of_block, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
        for of_block in (by_xla, by_chirp)
    )
    calls = {"usual, XLA": (xla, usual), "awkward, XLA": (xla, x), "awkward, chirp": (chirp, x)}
    for call, array in calls.values():
        jax.block_until_ready(call(array))
    times = interleaved([timer(partial(call, array)) for call, array in calls.values()], given.rounds)
    shared = {"lines": given.lines, "devices": given.devices}
    return [
        {"call": name, "length": array.shape[1], **shared, "seconds": seconds}
        for (name, (_, array)), seconds in zip(calls.items(), times, strict=True)
    ]


def modelled(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each call, compiled for one device of a TPU pod."""
    sharding = SingleDeviceSharding(devices_of(given.topology)[0])
    calls = {"usual, XLA": (by_xla, given.of), "awkward, chirp": (by_chirp, given.length)}
    shared = {"lines": given.lines, "topology": given.topology, "known": "modelled"}
    return [
        {"call": name, "length": length, **shared, "cycles": [cycles_of(call, (given.lines, length), sharding)]}
        for name, (call, length) in calls.items()
    ]


def cycles_of(call: Callable[[jax.Array], jax.Array], shape: tuple[int, int], sharding: SingleDeviceSharding) -> int:
    """What the compiler estimates for a function of a block that comes and goes as planes."""
    plane = jax.ShapeDtypeStruct(shape, np.float32, sharding=sharding)
    program = jax.jit(partial(in_complex, call)).lower((plane, plane)).compile()
    return sum(spent.cycles for spent in report(program).cycles)


if __name__ == "__main__":
    main()
