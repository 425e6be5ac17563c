"""Cost of an eager `fftn` of a small array over its compiled program, on 8 virtual devices and on one."""

import time
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import meshfft as mf

from .common import cpu_devices, noise, table
from .timing import Seconds, timed


def main(calls: int = 400) -> None:
    cpu_devices()
    values = noise((16, 16, 16))
    where = NamedSharding(jax.make_mesh((8,), ("x",)), PartitionSpec("x"))
    arrays = {"8": jax.device_put(values, where), "1": jax.device_put(values)}
    table(("devices", "eager, us", "program, us", "overhead, us"), (_row(name, x, calls) for name, x in arrays.items()))


def _row(name: str, x: jax.Array, calls: int) -> list[object]:
    program = jax.jit(mf.fftn)
    found = timed({"eager": lambda: _returned(mf.fftn, x), "program": lambda: _returned(program, x)}, calls)
    eager, compiled = (1e6 * float(np.quantile(times.seconds, 0.25)) for times in found.values())
    return [name, round(eager), round(compiled), round(eager - compiled)]


def _returned(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> Seconds:
    """Seconds until a call returns; its result is finished before the next call."""
    begun = time.perf_counter()
    y = function(x)
    seconds = time.perf_counter() - begun
    jax.block_until_ready(y)
    return Seconds(seconds)
