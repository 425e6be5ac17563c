"""Errors divided by the bounds that plans print: by tier, method, line and N. None may be above 1.

Lines of N numbers on one CPU device and cut over eight, or on the GPUs here (--device gpu). Errors are relative, in L2.
Truth is the FFT in np.longdouble, which only on x86 has more digits than float64. Dense products of more than 4096
terms are compared with pairwise sums, at eight frequencies, the wave's included.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.numerics.dtypes import TIERS
from meshfft.numerics.phases import host_roots

from .common import mesh_of, numbers, print_rows, relative, start
from .rows import Values, grouped, kept

LINES = ("constant", "alternating", "wave", "spike", "ramp", "noise", "mixed")
# The 2nd and 3rd lose most in float32 sums of 32 and of 128, those after them in bfloat16 terms of 4 or 3 products.
CONSTANTS = (0.1 + 0.7j, 1.8824329, 1.96949, 0.501953125j, -1.003913 + 1.0038913j, 1.0029373, 1.0036242 - 1.0159223j)
SPIKES = (0.3 - 1.1j, *CONSTANTS[3:5], -0.50195694j, -2.0078883 + 0.50238174j)
WHOLE = 4096  # up to so many terms, dense products are measured at all frequencies
SLICED = {"kdft": 2**20, "transpose": 4096, "cooley-tukey": 4096, "auto": 0}  # terms, at most, of tiers of int8


def main(
    sizes: str = "64,131,1000,4096,16384,65536,1048576",
    methods: str = "kdft,transpose,cooley-tukey,auto",
    tiers: str = ",".join(TIERS),
    device: str = "cpu",
    rows: Path | None = None,
) -> None:
    start(device, wide=True)
    found = list[Values]()
    meshes = [mesh_of((count,)) for count in (1, 8) if count <= len(jax.devices())]
    ways = ((m, t) for m in methods.split(",") for t in tiers.split(",") if not TIERS[t].terms or m == "kdft")
    for n, (method, tier) in ((n, way) for way in list(ways) for n in numbers(sizes)):
        if TIERS[tier].slices and n > SLICED[method]:
            continue
        found += (row for mesh in meshes for row in kept(rows, measured(n, method, tier, mesh)))
    print_rows(map(_worst, grouped(found, lambda row: (row["precision"], row["method"]))))
    print(f"\nworst error over its bound: {worst(found, ''):.2f}")


def lines(n: int, dtype: np.dtype) -> dict[str, np.ndarray]:
    random, k = np.random.default_rng(n), np.arange(n)
    white = random.standard_normal(n) + 1j * random.standard_normal(n)
    decades = 15 if dtype == np.complex64 else 100  # of the mixed line, up and down
    made = {
        **{f"constant {value}": np.full(n, value) for value in CONSTANTS},
        "alternating": CONSTANTS[0] * (1 - 2.0 * (k % 2)),
        "wave": CONSTANTS[1] * host_roots(n // 3 * k % n, n, 1).astype(complex),
        **{f"spike {value}": value * (k == n // 3) for value in SPIKES},
        "ramp": (k + 1.0) / n * (0.3 + 1j),
        "noise": white,
        "mixed": white * 10.0 ** random.uniform(-decades, decades, n),
    }
    return {name: line.astype(dtype) for name, line in made.items()}


def exact(given: np.ndarray, k: np.ndarray | None) -> np.ndarray:
    """The transform of lines in extended precision, at all frequencies or some."""
    n, wide = given.shape[1], given.astype(np.clongdouble)
    if k is None:
        return np.fft.fft(wide)
    roots = host_roots(np.outer(k, np.arange(n)) % n, n, -1)
    return np.stack([[(row * line).sum() for row in roots] for line in wide])


def measured(n: int, method: str, tier: str, mesh: Any) -> Iterator[Values]:
    """The bound, and the error of each line over it; nothing if there is no such plan."""
    dtype = np.dtype(np.complex128 if tier == "float64" or TIERS[tier].slices else np.complex64)
    some = np.array([0, 1, 2, 5, n // 2, n // 3, n // 4, n - 1]) if method == "kdft" and n > WHOLE else None
    how: Values = {"method": method} if some is None else {"points": [mf.Points.turns(some / n)]}
    given = lines(n, dtype)
    rows, spec = np.stack(list(given.values())), P(None, "x")
    try:
        plan = mf.plan(rows.shape, mesh=mesh, spec=spec, precision=tier, axes=(1,), dtype=dtype, **how)
    except ValueError as refused:
        print(f"{tier}, {method}, N = {n}, {mesh.size} devices: refused: {refused}")
        return
    found, truth = mf.gather(plan(mf.shard(rows, mesh, spec))), exact(rows, some)
    over = {name: relative(y, true) / plan.error for name, y, true in zip(given, found, truth, strict=True)}
    row = {"n": n, "method": method, "precision": tier, "devices": mesh.size, "error_expected": plan.error}
    yield {**row, "over": over}


def worst(rows: list[Values], name: str) -> float:
    return max((over for row in rows for line, over in row["over"].items() if line.startswith(name)), default=0.0)


def _worst(same: list[Values]) -> Values:
    """One tier and method: the largest bound, the worst error of each line over its bound, and where it is worst."""
    most = max(same, key=lambda row: worst([row], ""))
    printed, over = max(row["error_expected"] for row in same), {name: worst(same, name) for name in LINES}
    return {"tier": most["precision"], "method": most["method"], "printed": printed, **over, "at N": most["n"]}
