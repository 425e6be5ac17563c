"""A long causal convolution over a sharded sequence, beside jnp.fft by XLA's partitioner and on one device.

    c[n] = sum_{m <= n} u[m] h[n - m],   channels x length, the length cut over eight CPU devices

Seconds of interleaved calls, seconds of compiling, bytes that a device receives by the compiled text, temporaries, and
errors against float64 NumPy: of the value, and of the gradient of sum(w c) in both arrays.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.inspect.hlo import every_collective, program_of

from .common import cpu_devices, mesh_of, noise, numbers, print_rows, relative
from .rows import Values, kept
from .timing import clocked, timed

Convolve = Callable[[Array, Array], Array]


def main(lengths: str = "65536,1048576", channels: int = 8, rounds: int = 7, rows: Path | None = None) -> None:
    cpu_devices()
    found = (row for length in numbers(lengths) for row in measured(length, channels, rounds))
    print_rows(kept(rows, found))


def ours(u: Array, h: Array) -> Array:
    c: Array = mf.convolve(u, h, axes=(-1,), mode="causal")
    return c


def theirs(u: Array, h: Array) -> Array:
    n = u.shape[-1]
    return jnp.fft.irfft(jnp.fft.rfft(u, 2 * n) * jnp.fft.rfft(h, 2 * n), 2 * n)[..., :n]


def measured(length: int, channels: int, rounds: int) -> list[Values]:
    u, h, w = (noise((channels, length), "float32", seed) for seed in range(3))
    h *= np.float32(channels * length) ** -0.5
    cut, programs, rows = NamedSharding(mesh_of((8,)), P(None, "x")), {}, {}
    ways: dict[str, Convolve] = {"meshfft": ours, "jnp.fft": theirs}
    for devices, (by, convolve) in itertools.product((8, 1), ways.items()):
        given = [jax.device_put(x, cut if devices > 1 else None) for x in (u, h, w)]
        compiled, seconds, _ = clocked(jax.jit(convolve, out_shardings=given[0].sharding).lower(*given[:2]).compile)
        sent = sum(one.bytes * one.times for one in every_collective(program_of(compiled)))
        slope = jax.jit(jax.grad(lambda u, h, w, c=convolve: jnp.vdot(w, c(u, h)), (0, 1)))(*given)
        programs[by, devices] = lambda run=compiled, given=given: run(*given[:2])
        what = {"length": length, "channels": channels, "by": by, "devices": devices, "seconds": []}
        rows[by, devices] = {
            **what,
            "compile_seconds": seconds,
            "received_bytes": sent,
            "temporary_bytes": getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0),
            "error": relative(compiled(*given[:2]), _causal(u, h)),
            "gradient_error": max(map(relative, slope, (_causal(w, h, back=True), _causal(w, u, back=True)))),
        }
    for way, times in timed(programs, rounds).items():
        rows[way]["seconds"] = times.seconds
    return list(rows.values())


def _causal(a: np.ndarray, b: np.ndarray, back: bool = False) -> np.ndarray:
    """In float64, or its transpose in one array: sum_{n >= m} a[n] b[n - m]."""
    n = a.shape[-1]
    first, second = (np.fft.rfft(x.astype("float64"), 2 * n) for x in (a, b))
    return np.fft.irfft(first * (second.conj() if back else second), 2 * n)[..., :n]
