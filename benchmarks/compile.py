"""CPU seconds of compiling: on 8 virtual devices, or of a plan for a described pod.

Prints seconds of the first call, of the second, and their difference. CPU time depends less than wall time on other
work. It includes tracing and lowering.
"""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import meshfft as mf
from meshfft.cli.cluster import describe_mesh, use_tpu_compiler
from meshfft.inspect.aot import compile_plan, mesh_for

from .common import MESHES, cpu_devices, mesh_of, numbers, spec_of
from .rows import append

REAL = ("rfftn", "poisson")


def main(
    shape: str,
    functions: str = "fftn,rfftn,poisson",
    topology: str | None = None,
    mesh: str = "8",
    method: str = "auto",
    order: str = "natural",
    kind: str = "fft",
    engine: str = "auto",
    rows: Path | None = None,
) -> None:
    lengths = numbers(shape)
    if topology is not None:
        use_tpu_compiler()
        sizes, options = numbers(mesh), {"method": method, "order": order, "kind": kind, "engine": engine}
        row = {
            "topology": topology,
            "shape": lengths,
            "mesh": sizes,
            **options,
            **described(lengths, sizes, topology, options),
        }
        append(rows, [row], "libtpu")
        print(row)
        return
    cpu_devices()
    jax.block_until_ready(mf.fft(jnp.ones(8)))
    for function in functions.split(","):
        for name, sizes in MESHES.items():
            dtype, where = "float32" if function in REAL else "complex64", mesh_of(sizes)
            x = mf.shard(np.ones(lengths, dtype), where, spec_of(sizes))
            first, second = (_seconds(function, x) for _ in range(2))
            print(f"{function:10} {name:8} {first:6.2f} {second:6.2f} {first - second:6.2f}", flush=True)


def described(
    shape: tuple[int, ...], sizes: tuple[int, ...], topology: str, options: dict[str, Any]
) -> dict[str, float]:
    mesh = describe_mesh(dict(zip("xyzw", sizes, strict=False)))
    plan = mf.plan(shape, mesh=mesh, topology=topology, **options)
    devices = mesh_for(plan, topology)
    wall, spent = time.perf_counter(), time.process_time()
    compile_plan(plan, devices, planes=plan.machine.chip.planes)
    wall, spent = time.perf_counter() - wall, time.process_time() - spent
    return {"steps": len(plan.walk.pairs), "cpu_seconds": round(spent, 2), "wall_seconds": round(wall, 2)}


def _seconds(function: str, x: Array | mf.PaddedArray) -> float:
    call = _inverse if function == "ikdftn" else getattr(mf, function)
    start = time.process_time()
    jax.block_until_ready(call(x))
    return time.process_time() - start


def _inverse(x: Any) -> Array:
    return mf.ikdftn(x, [mf.Points.uniform(n) for n in x.shape]).value
