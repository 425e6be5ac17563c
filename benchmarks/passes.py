"""What a 3-D transform on several GPUs moves through memory between cuFFT's calls and the all-to-alls.

    python -m benchmarks passes --rows benchmarks/results/passes-h100.jsonl
    python -m benchmarks passes --run --rows benchmarks/results/gpus.jsonl   # on GPUs: all that are here
    python -m benchmarks passes --run --lengths 16 --rounds 1   # on any devices: shows that it runs, measures nothing
    python -m benchmarks passes --columns   # the FFT along the first dimension: cuFFT's way, and by fusions alone

Without `--run` nothing runs: XLA's compiler for CUDA devices, which needs none of them, makes the programs for 8 H100s
that are only described, and every instruction is counted by what it reads and writes:

    passes = (bytes read + bytes written) / (2 bytes of a device's block of the complex array)

of cuFFT's calls (one pass for a call, whatever it does inside), of all-to-alls, and of the rest, which is lost: a
transposition wherever lines as a call wants them, last and whole, meet shares as they are sent.

With `--run` the same programs take turns with the parts they are made of, each alone: the walk without its FFTs, which
has the all-to-alls and their transpositions, and the FFTs of a block; and with `jnp.fft` of the sharded array. First
small arrays are held against NumPy in float64: where one is wrong it says so, and ends with exit code 1.
"""

import argparse
import dataclasses
import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")  # else JAX takes three quarters of a GPU

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import meshfft as mf
from benchmarks.jsonl import append
from benchmarks.measure.baselines import MESHFFT
from benchmarks.measure.cases import Case, Task, case_of, layout_of, usual_meshes
from benchmarks.measure.columns import column_passes
from benchmarks.measure.data import mesh_of
from benchmarks.measure.on_devices import plan_of
from benchmarks.measure.passes import h100s, passed
from benchmarks.measure.timing import interleaved, spread, timer
from meshfft.extras import installed
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import program_of

SMALL, ERROR = (24, 20, 22), 4e-7
TIMED = ("the plan", "its all-to-alls", "its FFTs", "jnp.fft, sharded")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="256,512,1024")
    parser.add_argument("--run", action="store_true", help="on the devices that are here")
    parser.add_argument("--columns", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    if not given.run and not any(installed(f"jax_cuda{version}_plugin") for version in (12, 13)):
        parser.error("XLA's compiler for CUDA is not installed: benchmarks/README.md, Several GPUs; or give --run")
    if given.columns:
        found = column_passes()
        print(*(f"{name}, {length} columns: {passes:.2f} passes" for (name, length), passes in found.items()), sep="\n")
        return
    if given.run:
        errors = {name_of(case): small_error(case) for case in cases(SMALL, jax.device_count())}
        if wrong := {name: error for name, error in errors.items() if not error <= ERROR}:
            sys.exit(f"wrong at {SMALL}: {wrong}")
        print(f"values at {SMALL}: right to {max(errors.values()):.1e}\n")
    tabled(given)


def tabled(given: argparse.Namespace) -> None:
    """The table, a line after the other, and its rows."""
    row_of = functools.partial(measured, rounds=given.rounds) if given.run else counted
    columns = [f"{part}, ms" for part in TIMED] if given.run else ["passes: FFT", "all-to-all", "lost", "all-to-alls"]
    print("| 3-D transform | steps |", " | ".join(columns), "|\n|", "---|" * (2 + len(columns)))
    rows = []
    for length in map(int, given.lengths.split(",")):
        for case in cases((length,) * 3, jax.device_count() if given.run else 8):
            rows.append({"case": name_of(case), **case.to_dict(), **row_of(case)})
            print(f"| {name_of(case)} | {rows[-1]['plan']} |", " | ".join(numbers(rows[-1])), "|", flush=True)
    append(given.rows, rows)


def cases(shape: tuple[int, ...], devices: int) -> Iterator[Case]:
    """Slab, pencil and block; complex and real; in natural order and any."""
    kinds = {"fft": "complex64", "rfft": "float32"}
    for sizes, kind, order in itertools.product(usual_meshes(devices, 3), kinds, ("natural", "any")):
        task = Task(shape, kinds[kind], kind)
        yield case_of(task, MESHFFT, layout_of(sizes, 3), method="auto", order=order)


def name_of(case: Case) -> str:
    """What, on which mesh, in which order."""
    return f"{'x'.join(map(str, case.shape))} {case.kind} on {'x'.join(map(str, case.mesh))}, {case.order}"


def numbers(row: dict[str, Any]) -> list[str]:
    """What the table shows of a row."""
    if "passes" in row:
        lost = sum(number for kind, number in row["passes"].items() if kind not in ("fft", "all-to-all"))
        found = [row["passes"].get("fft", 0.0), row["passes"].get("all-to-all", 0.0), lost]
        return [*(f"{number:.2f}" for number in found), str(row["all_to_alls"])]
    return [f"{1e3 * spread(row['seconds'][part]).median:.3g}" if part in row["seconds"] else "" for part in TIMED]


def counted(case: Case) -> dict[str, Any]:
    """The program for described H100s: its passes over memory, by kind."""
    mesh = mesh_of(case.layout, h100s(case.devices))
    plan = plan_of(case, mesh)
    compiled, block = compile_plan(plan, mesh), 8 * math.prod(case.shape) // case.devices
    memory = compiled.memory_analysis()
    assert memory is not None, "CUDA programs have one"
    return {
        "plan": plan.name,
        "passes": {kind: nbytes / (2 * block) for kind, nbytes in passed(program_of(compiled)).items()},
        "all_to_alls": plan.work.all_to_alls,
        "sent_bytes": plan.work.sent_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
        "seconds_modelled": plan.seconds,
        "described": "h100:8",
    }


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """Seconds of the plan's program, of its parts, and of `jnp.fft` on the same array, in turns."""
    mesh = mesh_of(case.layout, jax.devices())
    plan, x = plan_of(case, mesh), drawn(case, mesh)
    sends = dataclasses.replace(plan.walk, steps=tuple(step for step in plan.walk.steps if not step.dims))
    calls: dict[str, Callable[[], Any]] = {TIMED[0]: functools.partial(compile_plan(plan, mesh), x)}
    if case.kind == "fft":
        alone = dataclasses.replace(plan, walk=sends)
        calls[TIMED[1]] = functools.partial(compile_plan(alone, mesh), x)
    calls[TIMED[2]] = functools.partial(jax.jit(lines(case, mesh)).lower(x).compile(), x)
    numpys = jnp.fft.rfftn if case.kind == "rfft" else jnp.fft.fftn
    calls[TIMED[3]] = functools.partial(jax.jit(numpys).lower(x).compile(), x)
    for call in (*calls.values(), *calls.values()):
        jax.block_until_ready(call())
    times = interleaved([timer(call) for call in calls.values()], rounds)
    return {"plan": plan.name, "seconds": dict(zip(calls, times, strict=True)), "sent_bytes": plan.work.sent_bytes}


def lines(case: Case, mesh: Mesh) -> Callable[[Array], tuple[Array, Array]]:
    """The FFTs of as many lines as a device has, as cuFFT takes them: of planes, and of lines alone."""

    def of_block(block: Array) -> tuple[Array, Array]:
        one, n = jnp.fft.rfftn if case.kind == "rfft" else jnp.fft.fftn, case.shape[-1]
        planes = one(block.reshape(-1, n, n), axes=(1, 2))
        return planes, jnp.fft.fft(planes.reshape(-1, n)) if planes.size % n == 0 else planes

    spec = PartitionSpec(*case.spec)
    return jax.shard_map(of_block, mesh=mesh, in_specs=spec, out_specs=PartitionSpec(tuple(mesh.axis_names)))


def drawn(case: Case, mesh: Mesh) -> Array:
    """Gaussian noise, drawn where it lies."""
    where = NamedSharding(mesh, PartitionSpec(*case.spec))
    return jax.jit(lambda: jax.random.normal(jax.random.key(0), case.shape, case.dtype), out_shardings=where)()


def small_error(case: Case) -> float:
    """The relative L2 error of a small array, whose sizes no mesh divides, against NumPy in float64."""
    mesh, random = mesh_of(case.layout, jax.devices()), np.random.default_rng()
    parts = random.standard_normal((2, *case.shape))
    noise: np.ndarray = parts[0] if case.kind == "rfft" else parts[0] + 1j * parts[1]
    truth = (np.fft.rfftn if case.kind == "rfft" else np.fft.fftn)(noise)
    y = mf.gather(plan_of(case, mesh)(mf.shard(noise.astype(case.dtype), mesh, PartitionSpec(*case.spec))))
    return float(np.linalg.norm(y - truth) / np.linalg.norm(truth))


if __name__ == "__main__":
    main()
