"""The first thing to run on a TPU: every FFT kernel of the vector unit, its values and its time beside XLA's FFT.

Until this has run somewhere, costs are read from compiled schedules and values are an interpreter's. A line for each
kernel: the error against NumPy in float64, and cycles a point by the clock, of XLA's FFT, and as plans count them.
`--interpret` runs toy sizes anywhere, to test this.
"""

import math
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from meshfft.machine.chip import Chip
from meshfft.machine.chips import CHIPS
from meshfft.tpu import price
from meshfft.tpu.engines import RESERVED
from meshfft.tpu.passes import passes, run

from ..common import noise, numbers, print_rows, relative
from ..rows import Values, kept
from ..timing import timed
from .kernels import by_xla


def main(
    lengths: str = "256,512,1024",
    points: int = 2**24,
    rounds: int = 15,
    interpret: bool = False,
    rows: Path | None = None,
) -> None:
    device = jax.devices()[0]
    chips = [c for c in CHIPS.values() if c.platform == device.platform and device.device_kind.startswith(c.kind)]
    chip = CHIPS["v5e"] if interpret else next(iter(chips), None)
    if chip is None or chip.scratch is None or chip.clock is None:
        raise SystemExit(f"this is a {device.device_kind}: run it on a TPU, or --interpret for toy sizes anywhere")
    cases = ((name, *case) for n in numbers(lengths) for name, case in _cases(n, points).items())
    found = ({"kernel": name, "shape": s, **measured(s, dims, chip, rounds, interpret)} for name, s, dims in cases)
    print_rows(kept(rows, found, "libtpu"))


def _cases(n: int, points: int) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    rows = max(points // n, 8)
    return {
        "plane": ((max(points // n**2, 1), n, n), (1, 2)),
        "last": ((rows, n), (1,)),
        "middle": ((max(rows // 512, 1), n, 512), (1,)),
        "first": ((n, max(rows // 512, 8), 512), (0,)),
    }


def measured(shape: tuple[int, ...], dims: tuple[int, ...], chip: Chip, rounds: int, interpret: bool) -> Values:
    assert chip.scratch is not None and chip.clock is not None
    room, size = int(chip.scratch.value) - RESERVED, math.prod(shape)
    planes = [noise(shape, "float32", seed) for seed in (0, 1)]
    given = list(map(jnp.asarray, planes))
    kernel = jax.jit(lambda *planes: run(planes, shape, dims, -1, room, interpret=interpret))
    re, im = (np.asarray(plane, float) for plane in kernel(*given))
    error = relative(re + 1j * im, np.fft.fftn(planes[0].astype(float) + 1j * planes[1], axes=dims))
    calls = {"kernel": partial(kernel, *given), "xla": partial(jax.jit(partial(by_xla, dims=dims)), *given)}
    cycles = {name: one.median * chip.clock.value / size for name, one in timed(calls, rounds).items()}
    kinds = [(kind, one.lengths) for one in passes(shape, dims, room) for kind in one.kinds]
    modelled = sum(price.cycles(chip, kind, lengths, size) for kind, lengths in kinds) / size
    columns = {f"{name} cycles a point": value for name, value in cycles.items()}
    return {"error": error, **columns, "modelled cycles a point": modelled}
