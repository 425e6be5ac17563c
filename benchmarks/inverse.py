"""The inverse of a nonuniform transform along one dimension, by an explicit inverse and by conjugate gradients.

An array of N x columns on eight CPU devices, sampled at N points (k + u) / N, u uniform within a quarter: seconds of a
first call, with compiling, and of a second. The explicit inverse, N^3 on the host, is left out above 2048.
"""

from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

import meshfft as mf

from .common import cpu_devices, mesh_of, numbers, print_rows, relative
from .rows import Values, kept
from .timing import clocked


def main(sizes: str = "512,1024,2048,8192", columns: int = 64, rows: Path | None = None) -> None:
    cpu_devices()
    pairs = ((n, method) for n in numbers(sizes) for method in (["direct"] * (n <= 2048) + ["iterative"]))
    found = (measured(*pair, columns) for pair in pairs)
    print_rows(kept(rows, found))


def measured(n: int, method: str, columns: int) -> Values:
    """One row: solved twice, so that the second has all that is kept."""
    mesh, rng = mesh_of((8,)), np.random.default_rng(n)
    array = rng.standard_normal((n, columns, 2)).view(np.complex128)[..., 0].astype("complex64")
    points = mf.Points.turns((np.arange(n) + rng.uniform(-0.25, 0.25, n)) / n)
    samples = jax.block_until_ready(mf.kdftn(mf.shard(array, mesh, P("x")), [points, None]))
    solve = partial(mf.ikdftn, samples, [points, None], method=method)
    (_, first, _), (found, second, _) = clocked(solve), clocked(solve)
    worth = {"condition": float(found.condition), "residual": float(found.residual)}
    what = {"N": n, "columns": columns, "dtype": "complex64", "method": method, "first": first, "second": second}
    return {**what, "iterations": int(found.iterations[0]), **worth, "error": relative(mf.gather(found.value), array)}
