"""What an eager `fftn` of a small array costs over its compiled program, on 8 virtual devices and on one."""

import time
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import meshfft as mf

from .common import cpu_devices, noise, table


def main(calls: int = 400) -> None:
    cpu_devices()
    values = noise((16, 16, 16))
    where = NamedSharding(jax.make_mesh((8,), ("x",)), PartitionSpec("x"))
    arrays = {"8": jax.device_put(values, where), "1": jax.device_put(values)}
    table(("devices", "eager, us", "program, us", "overhead, us"), (_row(name, x, calls) for name, x in arrays.items()))


def _row(name: str, x: jax.Array, calls: int) -> list[object]:
    eager, program = (1e6 * seconds for seconds in _returned({"eager": mf.fftn, "program": jax.jit(mf.fftn)}, x, calls))
    return [name, round(eager), round(program), round(eager - program)]


def _returned(functions: dict[str, Callable[..., jax.Array]], x: jax.Array, calls: int) -> list[float]:
    """The lower quartile of each function's seconds until it returns, in turns, everything before it done."""
    found = {name: list[float]() for name in functions}
    for _ in range(calls):
        for name, function in functions.items():
            begun = time.perf_counter()
            y = function(x)
            found[name].append(time.perf_counter() - begun)
            jax.block_until_ready(y)
    return [float(np.quantile(each, 0.25)) for each in found.values()]
