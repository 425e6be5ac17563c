"""Seconds of CPU that compiling takes: on 8 virtual devices, or of a plan for a pod that is only described.

    python -m benchmarks compile 64,64,64 --functions fftn,poisson
    python -m benchmarks compile 8192,8192,8192 --topology v3:32x32 --mesh 8,16,16 --rows rows.jsonl

Compare two commits by running it with each one's sources in PYTHONPATH, in turn. CPU time of the process, which a busy
machine changes less than the clock; what is not the compiler's is Python's, tracing and lowering.
"""

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

import meshfft as mf
from benchmarks.jsonl import append
from meshfft.cli.devices import describe_mesh
from meshfft.cli.plan import use_tpu_compiler
from meshfft.inspect.aot import compile_plan, mesh_for

MESHES = {"slab": (8,), "pencil": (2, 4), "block": (2, 2, 2)}
REAL = ("rfftn", "poisson", "navier-stokes")


def arrays(shape: tuple[int, ...], dtype: str) -> Iterator[tuple[str, Array]]:
    """An array on each mesh, by name."""
    for name, sizes in MESHES.items():
        mesh = jax.make_mesh(sizes, ("x", "y", "z")[: len(sizes)])
        where = NamedSharding(mesh, PartitionSpec(*mesh.axis_names))
        yield name, jax.device_put(np.ones(shape, dtype), where)


def main() -> None:
    """Prints a line for each function and mesh: seconds of its first call, of its second, and their difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--functions", default="fftn,rfftn,poisson")
    parser.add_argument("--topology", help="compile one plan for this machine, ahead of time")
    parser.add_argument("--mesh", type=lambda text: tuple(map(int, text.split(","))))
    for name, default in (("method", "auto"), ("order", "natural"), ("kind", "fft"), ("engine", "auto")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    if given.topology:
        _described(given)
        return
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    jax.block_until_ready(mf.fft(jnp.ones(8)))
    for function in given.functions.split(","):
        for name, x in arrays(given.shape, "float32" if function in REAL else "complex64"):
            if function == "by-hand" and name != "slab":
                continue
            first, second = (_seconds(function, x) for _ in range(2))
            print(f"{function:10} {name:8} {first:6.2f} {second:6.2f} {first - second:6.2f}", flush=True)


def _described(given: argparse.Namespace) -> None:
    """Compiles a plan for a described machine, and writes a row of what that took."""
    use_tpu_compiler()
    options = {name: getattr(given, name) for name in ("method", "order", "kind", "engine")}
    mesh = describe_mesh(dict(zip("xyzw", given.mesh, strict=False)))
    plan = mf.plan(given.shape, mesh=mesh, topology=given.topology, **options)
    devices = mesh_for(plan, given.topology)
    wall, spent = time.perf_counter(), time.process_time()
    compile_plan(plan, devices, planes=plan.machine.chip.planes)
    wall, spent = time.perf_counter() - wall, time.process_time() - spent
    facts = {"topology": given.topology, "shape": given.shape, "mesh": given.mesh, **options}
    row = {**facts, "steps": len(plan.walk.pairs), "cpu_seconds": round(spent, 2), "wall_seconds": round(wall, 2)}
    append(given.rows, [row], ("libtpu",))
    print(row, flush=True)


def _seconds(function: str, x: Array) -> float:
    own = {"navier-stokes": _navier_stokes, "ikdftn": _inverse, "by-hand": _by_hand}
    call = own.get(function) or getattr(mf, function)
    start = time.process_time()
    jax.block_until_ready(call(x))
    return time.process_time() - start


def _by_hand(x: Array) -> Array:
    return _slab(x.sharding)(x)


@functools.lru_cache(maxsize=8)
def _slab(where: NamedSharding) -> Callable[[Array], Array]:
    """A slab's transform as people write it: two packed all_to_alls."""

    def transform(block: Array) -> Array:
        block = jax.lax.all_to_all(jnp.fft.fft2(block), where.mesh.axis_names, 1, 0, tiled=True)
        return jax.lax.all_to_all(jnp.fft.fft(block, axis=0), where.mesh.axis_names, 0, 1, tiled=True)

    return jax.jit(jax.shard_map(transform, mesh=where.mesh, in_specs=where.spec, out_specs=where.spec))


def _inverse(x: Array) -> Array:
    return mf.ikdftn(x, [mf.Points.uniform(n) for n in x.shape]).value


def _navier_stokes(x: Array) -> Array:
    plan = mf.plan(x.shape, mesh=x.sharding.mesh, spec=x.sharding.spec, kind="rfft")
    return _two_steps((plan(x), plan(x), plan(x)), plan)


@functools.partial(jax.jit, static_argnums=1)
def _two_steps(start: tuple[Array, ...], plan: mf.Plan) -> tuple[Array, ...]:
    """The equation in rotational form without its pressure: 6 transforms back and 3 forth a step, in one `scan`."""
    k = mf.wavenumbers(plan)

    def step(v: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        curl = [plan.inverse(1j * (k[a] * v[b] - k[b] * v[a])) for a, b in ((1, 2), (2, 0), (0, 1))]
        u = [plan.inverse(part) for part in v]
        force = [plan(u[a] * curl[b] - u[b] * curl[a]) for a, b in ((1, 2), (2, 0), (0, 1))]
        return tuple(part + 1e-3 * f for part, f in zip(v, force, strict=True)), None

    return jax.lax.scan(step, start, length=2)[0]


if __name__ == "__main__":
    main()
