"""How near the dense 3-D KDFT comes to the machine's matrix-product rate: 256^3 complex64 on 8 CPU devices.

    python -m benchmarks dense_rate [--only TEXT] [--size 256] [--rounds 5] [--rows FILE]

In one run, interleaved: a float32 product of two 4096^2 matrices on all cores; the real products that a ring step
consists of, alone, whole and in tiles; one hop of every block; taking a complex array apart and putting
it together; and mf.kdftn on three meshes, of a complex array and of planes. With `--only` the product, and what has
that text in its name.
Useful operations are 8 for a complex multiplication and addition (4 real multiplications) or 6 (3).
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import Array, lax  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402
from benchmarks.measure.timing import interleaved, timer  # noqa: E402

TILE = 256
MESHES = {(2, 2, 2): P("x", "y", "z"), (2, 4): P("x", "y"), (8,): P("x")}
Job = tuple[Callable[[], Any], float]  # what to call, and the operations it does


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--size", type=int, default=256, help="a multiple of 32; of the product 16 times")
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    size, many = options.size, 16 * options.size
    others = {**parts(size), **transforms(size)}
    chosen = {name: job for name, job in others.items() if options.only in name}
    jobs = {f"one product, {many}^2": large(many), **chosen}
    for call, _ in jobs.values():
        jax.block_until_ready(call())
    times = interleaved([timer(call) for call, _ in jobs.values()], options.rounds)
    report({name: (seconds, jobs[name][1]) for name, seconds in zip(jobs, times, strict=True)}, options.rows)


def large(size: int) -> Job:
    matrix = jnp.asarray(np.random.default_rng(0).standard_normal((size, size)), jnp.float32)
    product = jax.jit(lambda a: jnp.dot(a, a, precision="highest"))
    return lambda: product(matrix), 2 * size**3


def parts(rows: int) -> dict[str, Job]:
    """The real products of one ring step of a (2, 2, 2) mesh: (256, 256) by (256, 128^2), on every device."""
    mesh, rng, free = Mesh(np.array(jax.devices()), ("d",)), np.random.default_rng(1), (rows // 2) ** 2
    a = jnp.asarray(rng.standard_normal((rows, rows)), jnp.float32)
    x = jax.device_put(rng.standard_normal((8, rows, free)).astype("f4"), NamedSharding(mesh, P("d")))

    def whole(a: Array, x: Array) -> Array:
        return jnp.dot(a, x[0], precision="highest")[None]

    def tiles(a: Array, x: Array) -> Array:
        def one(i: Array, out: Array) -> Array:
            part = lax.dynamic_slice(x[0], (0, i * TILE), (rows, TILE))
            return lax.dynamic_update_slice(out, jnp.dot(a, part, precision="highest"), (0, i * TILE))

        return lax.fori_loop(0, free // TILE, one, jnp.zeros((rows, free), a.dtype))[None]

    def job(body: Callable[[Array, Array], Array]) -> Job:
        specs = {"in_specs": (P(), P("d")), "out_specs": P("d"), "check_vma": False}
        run = jax.jit(jax.shard_map(body, mesh=mesh, **specs))
        return lambda: run(a, x), 8 * 2 * rows * rows * free

    found = {"a ring step's products, whole": job(whole), "a ring step's products, in tiles": job(tiles)}
    return {**found, **moves(mesh, rows)}


def moves(mesh: Mesh, size: int) -> dict[str, Job]:
    """What a transform does besides: no operations, only bytes."""
    spec, shape = P("d"), (size, size, size)
    x = jax.device_put(np.ones(shape, "complex64"), NamedSharding(mesh, spec))
    planes = jax.device_put(np.ones((2, *shape), "float32"), NamedSharding(mesh, P(None, "d")))
    pairs = [(i, i ^ 1) for i in range(8)]
    hop = jax.jit(jax.shard_map(lambda b: lax.ppermute(b, "d", pairs), mesh=mesh, in_specs=spec, out_specs=spec))
    split, join = jax.jit(lambda a: jnp.stack([a.real, a.imag])), jax.jit(lambda p: lax.complex(p[0], p[1]))
    calls = {"one hop of every block": (hop, x), "complex to planes": (split, x), "planes to complex": (join, planes)}
    return {name: (lambda run=run, v=v: run(v), 0.0) for name, (run, v) in calls.items()}


def transforms(size: int) -> dict[str, Job]:
    rng, jobs = np.random.default_rng(2), {}
    values = (rng.standard_normal((size,) * 3) + 1j * rng.standard_normal((size,) * 3)).astype("complex64")
    for sizes, spec in MESHES.items():
        mesh = jax.make_mesh(sizes, ("x", "y", "z")[: len(sizes)], (AxisType.Auto,) * len(sizes))
        x = mf.shard(values, mesh, spec)
        for many in (4, 3):
            plan = mf.plan(x.shape, mesh=mesh, spec=spec, method="kdft", multiplications=many)
            run, work = jax.jit(plan), 2 * many * 3 * size**4
            jobs[f"kdftn on {sizes}, {many} multiplications"] = (lambda run=run, x=x: run(x), work)
            if many == 4:
                jobs[f"kdftn on {sizes}, planes"] = (lambda run=run, x=(x.real, x.imag): run(x), work)
    return jobs


def report(found: dict[str, tuple[list[float], float]], rows: Path | None) -> None:
    medians = {name: statistics.median(times) for name, (times, _) in found.items()}
    rates = {name: work / medians[name] for name, (_, work) in found.items()}
    peak = next(iter(rates.values()))
    print("| | ms | GFLOP/s | of one product |\n|---|---|---|---|")
    for name, rate in rates.items():
        print(f"| {name} | {medians[name] * 1e3:.0f} | {rate / 1e9:.0f} | {rate / peak:.2f} |")
    append(rows, [{"case": n, "seconds": t, "operations": w} for n, (t, w) in found.items()])


if __name__ == "__main__":
    main()
