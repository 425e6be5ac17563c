"""Whether the method that `auto` picks is among the fastest: ten shapes and meshes, every method that has a walk.

    python benchmarks/choice.py [--rounds 9] [--only REGEX] [--chip FILE] [--out FILE]     (a few minutes on two cores)

Eight CPU devices. Methods that find the same walk are timed as one. A round times every walk of a case once, in an
order shuffled anew; a walk whose first call took over five times the fastest one's is timed that once. The table gives
the median of each, and how far auto's is from the fastest; then, step by step, the seconds modelled and measured of
every walk. `--chip` ranks by a row that `meshfft info --calibrate` wrote. `--out` appends one JSON line a walk.
"""

import argparse
import json
import math
import random
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax.sharding import AxisType, Mesh  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from machine import circumstances  # noqa: E402

import meshfft as mf  # noqa: E402
from meshfft.moves import METHODS  # noqa: E402

SLOW, ENOUGH = 5.0, 1.2  # times the fastest: not timed again; near enough


class Case(NamedTuple):
    """A shape on a mesh."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    spec: P
    order: str = "natural"


CASES = {
    "line": Case((65536,), (8,), P("x")),
    "line, prime": Case((8191,), (8,), P("x")),
    "2-D slab": Case((2048, 2048), (8,), P("x")),
    "2-D, cut both ways": Case((1000, 1536), (2, 4), P("x", "y"), "any"),
    "2-D, short cut side": Case((16, 262144), (8,), P("x")),
    "3-D slab": Case((256, 256, 256), (8,), P("x")),
    "3-D block": Case((256, 256, 256), (2, 2, 2), P("x", "y", "z")),
    "3-D pencil": Case((192, 160, 128), (2, 4), P("x", "y"), "any"),
    "3-D block, uneven": Case((97, 113, 89), (2, 2, 2), P("x", "y", "z")),
    "3-D pencil, short sides": Case((16, 32, 8192), (2, 4), P("x", "y")),
}


class Timed(NamedTuple):
    """A walk: the methods that find it, auto first, and the seconds of each call."""

    methods: tuple[str, ...]
    plan: mf.Plan
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="regular expression on a case's name")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = {name: timed(case, options.rounds) for name, case in CASES.items() if re.search(options.only, name)}
    print(table(found))
    if options.out is not None:
        append_rows(options.out, found)


def timed(case: Case, rounds: int) -> list[Timed]:
    """Every walk of a case, its calls interleaved with those of the others."""
    mesh = jax.make_mesh(case.sizes, tuple("xyz"[: len(case.sizes)]), (AxisType.Auto,) * len(case.sizes))
    walks, x = plans(case, mesh), noise(case, mesh)
    calls = [caller(plan, x) for plan, _ in walks]
    firsts = [call() for call in calls]
    times: list[list[float]] = [[] if first <= SLOW * min(firsts) else [first] for first in firsts]
    shuffle, due = random.Random(0).shuffle, [j for j, one in enumerate(times) if not one]
    for _ in range(rounds):
        shuffle(due)
        for j in due:
            times[j].append(calls[j]())
    return [Timed(methods, plan, seconds) for (plan, methods), seconds in zip(walks, times, strict=True)]


def plans(case: Case, mesh: Mesh) -> list[tuple[mf.Plan, tuple[str, ...]]]:
    """A plan for each walk, and the methods that find it."""
    found: dict[Any, tuple[mf.Plan, tuple[str, ...]]] = {}
    for method in METHODS:
        try:
            plan = mf.plan(case.shape, mesh=mesh, spec=case.spec, order=case.order, method=method)
        except ValueError:
            continue  # it has no walk here
        first, methods = found.get(plan.walk, (plan, ()))
        found[plan.walk] = first, (*methods, method)
    return list(found.values())


def noise(case: Case, mesh: Mesh) -> jax.Array:
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((*case.shape, 2), np.float32)
    return mf.shard(planes.view(np.complex64)[..., 0], mesh, case.spec)


def caller(plan: mf.Plan, x: jax.Array) -> Callable[[], float]:
    """A call that returns its seconds, to the finished result; compiled, and run once."""
    run = jax.jit(plan)
    jax.block_until_ready(run(x))

    def call() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(run(x))
        return time.perf_counter() - begun

    return call


def ratio(walks: list[Timed]) -> float:
    """Seconds of auto's walk over those of the fastest."""
    return walks[0].median / min(walk.median for walk in walks)


def table(found: dict[str, list[Timed]]) -> str:
    lines = ["| case | walk of | modelled ms | median ms | min | max | auto / fastest |", "|---|---|---|---|---|---|---|"]
    for name, walks in found.items():
        for walk in walks:
            low, high, modelled = min(walk.seconds), max(walk.seconds), walk.plan.seconds or math.nan
            cells = [f"{1e3 * value:.1f}" for value in (modelled, walk.median, low, high)]
            last = f"{ratio(walks):.2f}" if walk is walks[0] else ""
            lines.append(f"| {name} | {', '.join(walk.methods)} | {' | '.join(cells)} | {last} |")
    near = sum(ratio(walks) <= ENOUGH for walks in found.values())
    return "\n".join([*lines, "", f"auto is within {ENOUGH - 1:.0%} of the fastest in {near} of {len(found)} cases"])


def append_rows(path: Path, found: dict[str, list[Timed]]) -> None:
    facts = circumstances(("meshfft", "jax", "jaxlib", "numpy"))
    with path.open("a") as file:
        for name, walks in found.items():
            for walk in walks:
                plan = walk.plan
                row = {"case": name, "methods": walk.methods, "seconds": walk.seconds, "modelled": plan.seconds}
                row |= {"shape": plan.shape, "mesh": dict(plan.mesh.shape), "spec": str(plan.in_layout.spec)}
                row |= {"order": plan.order, "walk": plan.name, "chip": plan.machine.chip.name}
                file.write(json.dumps(row | facts) + "\n")


if __name__ == "__main__":
    main()
