"""One device's FFT of a length with a large prime against one of a power of two, by XLA and by the chirp.

Lines of complex64, shared out to CPU devices; ratios are for each point, to XLA's FFT of the other length. With
`--topology v3:2x2` nothing runs: the cycles are the TPU compiler's, for one device of a described pod, with planes.
"""

import statistics
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import SingleDeviceSharding

import meshfft as mf
from meshfft.inspect.aot import devices_of, report
from meshfft.kernels.xla import fft
from meshfft.numerics.split_complex import in_complex

from .common import cpu_devices, mesh_of, noise, table
from .rows import append
from .timing import timed

CALLS = {"usual, XLA": jnp.fft.fft, "awkward, XLA": jnp.fft.fft, "awkward, chirp": lambda block: fft(block, (1,), -1)}


def main(
    length: int = 8191,
    of: int = 8192,
    lines: int = 512,
    devices: int = 8,
    rounds: int = 15,
    topology: str | None = None,
    rows: Path | None = None,
) -> None:
    sizes = {name: of if name.startswith("usual") else length for name in CALLS}
    made = modelled(sizes, lines, topology) if topology else measured(sizes, lines, devices, rounds)
    what = "cycles" if topology else "seconds"
    where = {"topology": topology, "known": "modelled"} if topology else {"devices": devices}
    medians = {name: statistics.median(values) for name, values in made.items()}
    usual = medians["usual, XLA"] / of
    lined = ((name, f"{middle:.4g}", f"{middle / sizes[name] / usual:.2f}") for name, middle in medians.items())
    table(("call", what, "a point, of usual"), lined)
    append(rows, [{"call": n, "length": sizes[n], "lines": lines, **where, what: made[n]} for n in made])


def measured(sizes: dict[str, int], lines: int, devices: int, rounds: int) -> dict[str, list[float]]:
    cpu_devices(devices)
    mesh = mesh_of((devices,))
    shared = partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    arrays = {n: mf.shard(noise((lines, n)), mesh, P("x")) for n in set(sizes.values())}
    calls = {name: partial(jax.jit(shared(call)), arrays[sizes[name]]) for name, call in CALLS.items()}
    return {name: times.seconds for name, times in timed(calls, rounds).items()}


def modelled(sizes: dict[str, int], lines: int, topology: str) -> dict[str, list[float]]:
    sharding, found = SingleDeviceSharding(devices_of(topology)[0]), {}
    for name in ("usual, XLA", "awkward, chirp"):
        plane = jax.ShapeDtypeStruct((lines, sizes[name]), "float32", sharding=sharding)
        program = jax.jit(partial(in_complex, CALLS[name])).lower((plane, plane)).compile()
        found[name] = [float(sum(spent.cycles for spent in report(program).cycles))]
    return found
