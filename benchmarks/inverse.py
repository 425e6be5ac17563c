"""The inverse of a nonuniform transform along one dimension, by an explicit inverse and by conjugate gradients.

An array of N x columns on eight CPU devices, sampled at N points (k + u) / N, u uniform within a quarter: seconds of a
first call, with compiling, and of a second. The explicit inverse, N^3 on the host, is left out above 2048.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

import meshfft as mf

from .common import cpu_devices, mesh_of, numbers, relative, table
from .rows import kept
from .timing import clocked

MOST_DIRECT = 2048
HEADS = ("N", "method", "first s", "second s", "iterations", "condition", "residual", "error")


def main(sizes: str = "512,1024,2048,8192", columns: int = 64, x64: bool = False, rows: Path | None = None) -> None:
    cpu_devices(wide=x64)
    pairs = ((n, method) for n in numbers(sizes) for method in (["direct"] * (n <= MOST_DIRECT) + ["iterative"]))
    found = kept(rows, (measured(*pair, columns, "complex128" if x64 else "complex64") for pair in pairs))
    table(HEADS, ((row["N"], row["method"], *(f"{row[name]:.3g}" for name in list(row)[4:])) for row in found))


def measured(n: int, method: str, columns: int, dtype: str) -> dict[str, Any]:
    """One row: solved twice, so that the second has all that is kept."""
    mesh, rng = mesh_of((8,)), np.random.default_rng(n)
    array = rng.standard_normal((n, columns, 2)).view(np.complex128)[..., 0].astype(dtype)
    points = mf.Points.turns((np.arange(n) + rng.uniform(-0.25, 0.25, n)) / n)
    samples = jax.block_until_ready(mf.kdftn(mf.shard(array, mesh, P("x")), [points, None]))
    (_, first, _), (found, second, _) = (
        clocked(lambda: mf.ikdftn(samples, [points, None], method=method)) for _ in "12"
    )
    worth = {"condition": float(found.condition), "residual": float(found.residual)}
    what = {"N": n, "columns": columns, "dtype": dtype, "method": method, "first": first, "second": second}
    return {**what, "iterations": int(found.iterations[0]), **worth, "error": relative(mf.gather(found.value), array)}
