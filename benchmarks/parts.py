"""What the parts of a walk cost on CPU devices: the whole, its exchanges alone, and the whole without each local FFT.

    python -m benchmarks parts [--shape 256,256,256] [--mesh 2,4] [--runs 10] [--rows FILE]

For each the median seconds of a call, and what the process took for all calls, divided by their number: seconds of its
own on all cores, seconds of the system's, page faults. A part is what the whole takes more than the whole without it.
complex64, natural order.
"""

import argparse
import dataclasses
import resource
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402
from benchmarks.measure.timing import timer  # noqa: E402
from meshfft.steps import Step  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="256,256,256")
    parser.add_argument("--mesh", default="2,4")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    shape, sizes = (tuple(map(int, text.split(","))) for text in (given.shape, given.mesh))
    names = ("x", "y", "z")[: len(sizes)]
    mesh = jax.make_mesh(sizes, names)
    plan = mf.plan(shape, mesh=mesh, spec=P(*names), method="transpose")
    random = np.random.default_rng(0)
    x = mf.shard(random.standard_normal((*shape, 2), "float32").view(np.complex64)[..., 0], mesh, P(*names))
    rows = [{"part": name, "mesh": sizes, "shape": shape, **row} for name, row in measured(plan, x, given.runs).items()]
    print("| | ms | own ms | system's ms | page faults |\n|---|---|---|---|---|")
    for row in rows:
        milliseconds = (statistics.median(row["seconds"]) * 1e3, row["user"] * 1e3, row["system"] * 1e3)
        print(f"| {row['part']} | " + " | ".join(f"{ms:.0f}" for ms in milliseconds) + f" | {row['faults']:.0f} |")
    append(given.rows, rows)


def measured(plan: mf.Plan, x: jax.Array, runs: int) -> dict[str, dict[str, Any]]:
    """A row for each part."""
    steps = plan.walk.steps
    names = dict(zip(steps, (step.name(layout) for step, layout in plan.walk.pairs), strict=True))
    parts: dict[str, tuple[Step, ...]] = {"the whole": steps}
    parts["exchanges alone"] = tuple(step for step in steps if not step.dims)
    for step in steps:
        if step.dims:
            parts[f"without {names[step]}"] = tuple(other for other in steps if other is not step)
    return {name: spent(partial(program(plan, kept), x), runs) for name, kept in parts.items()}


def program(plan: mf.Plan, steps: tuple[Step, ...]) -> Callable[[jax.Array], jax.Array]:
    plan = dataclasses.replace(plan, walk=dataclasses.replace(plan.walk, steps=steps))
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip)
    return jax.jit(plan, compiler_options=dict(options) or None)


def spent(call: Callable[[], jax.Array], runs: int) -> dict[str, Any]:
    """What calls took, by the clock and by the process."""
    for _ in range(3):
        jax.block_until_ready(call())
    before = resource.getrusage(resource.RUSAGE_SELF)
    seconds = [timer(call)() for _ in range(runs)]
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system, faults = (
        (getattr(after, n) - getattr(before, n)) / runs for n in ("ru_utime", "ru_stime", "ru_minflt")
    )
    return {"seconds": seconds, "user": user, "system": system, "faults": faults}


if __name__ == "__main__":
    main()
