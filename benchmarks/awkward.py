"""What lengths with a large prime cost: one device's FFT of 8191 points against one of 8192, by XLA and by the chirp.

    python benchmarks/awkward.py [--length 8191] [--of 8192] [--lines 512] [--devices 8] [--rounds 15] [--rows FILE]

Lines of complex64 along the last dimension, shared out to CPU devices, which share the machine's cores. Calls go in an
order shuffled anew every round. The table gives medians and their ratios, for each point, to XLA's FFT of the other
length; `--rows` appends one JSON line a call.
"""

import argparse
import json
import statistics
from pathlib import Path

import jax
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.cli.made import circumstances
from meshfft.local import fft
from meshfft.measure.timing import interleaved, timer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=8191)
    parser.add_argument("--of", type=int, default=8192)
    parser.add_argument("--lines", type=int, default=512)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", given.devices)
    mesh = jax.make_mesh((given.devices,), ("x",), (AxisType.Auto,))
    random = np.random.default_rng(0)
    x, usual = (
        mf.shard(random.standard_normal((given.lines, n, 2), "float32").view(np.complex64)[..., 0], mesh, P("x"))
        for n in (given.length, given.of)
    )
    xla, chirp = (
        jax.jit(jax.shard_map(of_block, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
        for of_block in (jax.numpy.fft.fft, lambda block: fft(block, (1,), -1, "chirp"))
    )
    calls = {"usual, XLA": (xla, usual), "awkward, XLA": (xla, x), "awkward, chirp": (chirp, x)}
    for call, array in calls.values():
        jax.block_until_ready(call(array))
    times = interleaved(
        [timer(lambda call=call, array=array: call(array)) for call, array in calls.values()], given.rounds
    )
    base = statistics.median(times[0]) / given.of
    print("| call | ms | a point, of usual |\n|---|---|---|")
    for (name, (_, array)), seconds in zip(calls.items(), times, strict=True):
        middle = statistics.median(seconds)
        ratio = middle / array.shape[1] / base
        print(f"| {name} | {middle * 1e3:.0f} | {ratio:.2f} |")
        if given.rows is not None:
            row = {
                "call": name,
                "length": array.shape[1],
                "lines": given.lines,
                "devices": given.devices,
                "seconds": seconds,
            }
            with given.rows.open("a") as file:
                file.write(json.dumps({**row, **circumstances(("meshfft", "jax", "jaxlib", "numpy"))}) + "\n")


if __name__ == "__main__":
    main()
