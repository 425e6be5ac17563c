"""The modes of a ring beside each other on eight CPU devices: one way, both ways, and the paper's order (Algorithm 1).

kdftn and the paper's FFT of a cube along its cut dimension, and a large product with `one_shuffle`, whose next block is
fetched under the product or after it. Ratios are to the mode named first.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax import Array, lax
from jax.sharding import PartitionSpec as P

import meshfft as mf

from .common import cpu_devices, mesh_of, noise, table
from .rows import append
from .timing import Call, timed

MODES: dict[str, dict[str, Any]] = {
    "prefetched": {},
    "in the paper's order": {"prefetch": False},
    "two-way": {"two_way": True},
}
Calls = dict[tuple[str, str], Call]


def main(size: int = 256, rounds: int = 9, rows: Path | None = None) -> None:
    cpu_devices()
    times = timed({**transforms(size), **products(size)}, rounds)
    first = {what: one.median for (what, _), one in reversed(times.items())}
    lines = ((*key, f"{one.median * 1e3:.1f}", f"{one.median / first[key[0]]:.2f}") for key, one in times.items())
    table(("what", "ring", "ms", "ratio"), lines)
    append(rows, [{"what": w, "ring": r, "size": size, "seconds": one.seconds} for (w, r), one in times.items()])


def transforms(size: int) -> Calls:
    """The paper's two algorithms along a dimension over eight devices, by each mode."""
    x = mf.shard(noise((size,) * 3), mesh_of((8,)), P("x"))
    return {
        (method, ring): partial(mf.fftn, x, axes=(0,), method=method, ring=ring)
        for method in ("kdft", "cooley-tukey")
        for ring in ("one-way", "two-way")
    }


def products(size: int) -> Calls:
    """A matrix with rows on each device, times one whose rows go round the ring."""
    mesh, n, spec = mesh_of((8,)), 8 * size, P("x")
    matrix, x = (mf.shard(noise((n, n), "float32", seed), mesh, spec) for seed in (0, 1))

    def product(rows: Array, x: Array, **how: Any) -> Array:
        def einsum(held: Array, shard: Array) -> Array:
            return lax.dynamic_slice_in_dim(rows, shard * size, size, 1) @ held

        return mf.one_shuffle(einsum, x, "x", **how)

    run = {
        name: jax.shard_map(partial(product, **how), mesh=mesh, in_specs=(spec, spec), out_specs=spec)
        for name, how in MODES.items()
    }
    return {("one_shuffle", name): partial(jax.jit(one), matrix, x) for name, one in run.items()}
