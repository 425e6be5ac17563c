"""Microseconds until an eager `fftn` of a small array returns, and its compiled program, on 8 devices and on one.

The lower quartile of 400 calls that take turns. Compare commits with each one's sources in PYTHONPATH.
"""

from functools import partial

import jax

import meshfft as mf

from .common import cpu_devices, noise, spec_of
from .timing import spread, timed


def main(calls: int = 400) -> None:
    cpu_devices()
    values = noise((16, 16, 16))
    arrays = {
        "8 devices": mf.shard(values, jax.make_mesh((8,), ("x",)), spec_of((8,))),
        "one device": jax.device_put(values),
    }
    for name, x in arrays.items():
        times = timed({"eager": partial(mf.fftn, x), "program": partial(jax.jit(mf.fftn), x)}, calls, wait=False)
        eager, program = (1e6 * spread(one.seconds).low for one in times.values())
        print(f"{name:10}  eager {eager:4.0f} us  program {program:4.0f} us  {eager - program:4.0f}")
