"""The dense 3-D KDFT against the machine's matrix-product rate: 256^3 complex64 on 8 CPU devices.

One large float32 product; the real products of a ring step alone, whole and in tiles; the copies besides; kdftn on
three meshes. `--only TEXT`: the large product and rows with TEXT in their names. Useful operations are 8 for a complex
multiplication and addition (4 real multiplications) or 6 (3).
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

import meshfft as mf

from .common import cpu_devices, mesh_of, noise, spec_of, table
from .measure.cases import usual_meshes
from .rows import append
from .timing import Call, timed

TILE = 256
Jobs = dict[str, tuple[Call, float]]  # what to call, and the operations it does


def main(only: str = "", size: int = 256, rounds: int = 5, rows: Path | None = None) -> None:
    """`size` is a multiple of 32; the product's is 16 times that."""
    cpu_devices()
    many = 16 * size
    a, product = jnp.asarray(noise((many, many), "float32")), jax.jit(partial(jnp.dot, precision="highest"))
    jobs: Jobs = {f"one product, {many}^2": (partial(product, a, a), 2 * many**3)}
    others = {**products(size), **moves(size), **transforms(size)}
    jobs |= {name: job for name, job in others.items() if only in name}
    times = timed({name: call for name, (call, _) in jobs.items()}, rounds)
    rates = {name: jobs[name][1] / one.median for name, one in times.items()}
    peak = next(iter(rates.values()))
    lines = ((n, f"{times[n].median * 1e3:.0f}", f"{r / 1e9:.0f}", f"{r / peak:.2f}") for n, r in rates.items())
    table(("", "ms", "GFLOP/s", "of one product"), lines)
    append(rows, [{"case": n, "seconds": times[n].seconds, "operations": jobs[n][1]} for n in jobs])


def products(rows: int) -> Jobs:
    """The real products of one ring step of a (2, 2, 2) mesh: (256, 256) by (256, 128^2), on every device."""
    mesh, free = mesh_of((8,)), (rows // 2) ** 2
    a = jnp.asarray(noise((rows, rows), "float32"))
    x = mf.shard(noise((8, rows, free), "float32"), mesh, P("x"))

    def whole(a: Array, x: Array) -> Array:
        return jnp.dot(a, x[0], precision="highest")[None]

    def tiles(a: Array, x: Array) -> Array:
        def one(i: Array, out: Array) -> Array:
            part = lax.dynamic_slice(x[0], (0, i * TILE), (rows, TILE))
            return lax.dynamic_update_slice(out, jnp.dot(a, part, precision="highest"), (0, i * TILE))

        return lax.fori_loop(0, free // TILE, one, jnp.zeros((rows, free), a.dtype))[None]

    specs: dict[str, Any] = {"in_specs": (P(), P("x")), "out_specs": P("x"), "check_vma": False}
    bodies = {"whole": whole, "in tiles": tiles}
    runs = {name: jax.jit(jax.shard_map(body, mesh=mesh, **specs)) for name, body in bodies.items()}
    operations = 8 * 2 * rows * rows * free
    return {f"a ring step's products, {name}": (partial(run, a, x), operations) for name, run in runs.items()}


def moves(size: int) -> Jobs:
    """Copies of a transform beside its products: no operations, only bytes."""
    mesh, spec = mesh_of((8,)), P("x")
    x = mf.shard(noise((size,) * 3), mesh, spec)
    planes = mf.shard(noise((2, size, size, size), "float32"), mesh, P(None, "x"))
    hop = jax.shard_map(
        lambda b: lax.ppermute(b, "x", [(i, i ^ 1) for i in range(8)]), mesh=mesh, in_specs=spec, out_specs=spec
    )
    return {
        "one hop of every block": (partial(jax.jit(hop), x), 0.0),
        "complex to planes": (partial(jax.jit(lambda a: jnp.stack([a.real, a.imag])), x), 0.0),
        "planes to complex": (partial(jax.jit(lambda p: lax.complex(p[0], p[1])), planes), 0.0),
    }


def transforms(size: int) -> Jobs:
    jobs: Jobs = {}
    for sizes in reversed(usual_meshes(8, 3)):
        mesh, spec = mesh_of(sizes), spec_of(sizes)
        x = mf.shard(noise((size,) * 3), mesh, spec)
        for many, name, given in (
            (4, "4 multiplications", x),
            (4, "planes", (x.real, x.imag)),
            (3, "3 multiplications", x),
        ):
            plan = mf.plan(x.shape, mesh=mesh, spec=spec, method="kdft", multiplications=many)
            jobs[f"kdftn on {sizes}, {name}"] = (partial(jax.jit(plan), given), 2 * many * 3 * size**4)
    return jobs
