"""The first thing to run on a TPU: every FFT kernel of the vector unit, its values and its time beside XLA's FFT.

    python -m benchmarks first_on_tpu [--lengths 256,512,1024] [--points 16777216] [--rounds 15] [--rows FILE]

Until this has run somewhere, what the kernels cost is read from compiled schedules (`python -m benchmarks kernels`),
and their values are those of an interpreter: no DMA, no bank of memory and no register has been seen at work. A line
for each kernel: the relative L2 error against NumPy in float64, cycles a point by the clock, median of interleaved
calls, beside those of XLA's FFT, and beside what plans count with. `--interpret` runs toy sizes anywhere, to test this.
"""

import argparse
import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jsonl import append
from benchmarks.made import circumstances
from meshfft.machine.chip import CHIPS, Chip
from meshfft.numerics.split_complex import Planes
from meshfft.tpu import engine, price


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--points", type=int, default=2**24)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--interpret", action="store_true")
    given = parser.parse_args(arguments)
    device = jax.devices()[0]
    chip = CHIPS["v5e"] if given.interpret else next((c for c in CHIPS.values() if _is(c, device)), None)
    if chip is None or chip.scratch is None or chip.clock is None:
        raise SystemExit(f"this is a {device.device_kind}: run it on a TPU, or --interpret for toy sizes anywhere")
    lengths, points = given.lengths or [256, 512, 1024], given.points
    made = circumstances(("meshfft", "jax", "jaxlib", "libtpu"))
    for n in lengths:
        for name, shape, dims in _cases(n, points):
            row = {**_row(name, shape, dims, chip, given.rounds, given.interpret), **made}
            print(json.dumps({key: row[key] for key in row if key not in made}), flush=True)
            if given.rows:
                append(given.rows, [row])


def _is(chip: Chip, device: jax.Device) -> bool:
    return chip.platform == device.platform and device.device_kind.startswith(chip.kind)


def _cases(n: int, points: int) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    rows = max(points // n, 8)
    return [
        ("plane", (max(points // n**2, 1), n, n), (1, 2)),
        ("last", (rows, n), (1,)),
        ("middle", (max(rows // 512, 1), n, 512), (1,)),
        ("first", (n, max(rows // 512, 8), 512), (0,)),
    ]


def _row(
    name: str, shape: tuple[int, ...], dims: tuple[int, ...], chip: Chip, rounds: int, interpret: bool
) -> dict[str, Any]:
    assert chip.scratch is not None and chip.clock is not None
    room = int(chip.scratch.value) - engine.RESERVED
    rng = np.random.default_rng(0)
    planes = tuple(jnp.asarray(rng.standard_normal(shape, np.float32)) for _ in range(2))
    kernel = jax.jit(functools.partial(engine.run, dims=dims, sign=-1, room=room, interpret=interpret))
    re, im = (np.asarray(plane, float) for plane in kernel(*planes))
    exact = np.fft.fftn(np.asarray(planes[0], float) + 1j * np.asarray(planes[1], float), axes=dims)
    calls = {"kernel": kernel, "xla": jax.jit(functools.partial(_by_xla, dims=dims))}
    seconds, size = _medians(calls, planes, rounds), math.prod(shape)
    modelled = sum(price.cycles(chip, one.kind, one.lengths, size) for one in engine.passes(shape, dims, room))
    cycles = {f"{key} cycles a point": value * chip.clock.value / size for key, value in seconds.items()}
    error = float(np.linalg.norm(re + 1j * im - exact) / np.linalg.norm(exact))
    return {"kernel": name, "shape": shape, "error": error, **cycles, "modelled cycles a point": modelled / size}


def _by_xla(re: jax.Array, im: jax.Array, dims: tuple[int, ...]) -> Planes:
    y = jnp.fft.fftn(jax.lax.complex(re, im), axes=dims)
    return y.real, y.imag


def _medians(calls: Mapping[str, Callable[..., Any]], planes: tuple[jax.Array, ...], rounds: int) -> dict[str, float]:
    """Seconds of interleaved calls, each waited for."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            jax.block_until_ready(call(*planes))
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(some[1:]) for name, some in times.items()}


if __name__ == "__main__":
    main()
