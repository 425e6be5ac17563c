"""Whether the method that `auto` picks is among the fastest: ten shapes and meshes, every method that has a walk.

    python -m benchmarks choice [--rounds 9] [--only REGEX] [--steps] [--out FILE]        (a few minutes on two cores)
    python -m benchmarks choice --small --rounds 1    (an eighth of each size: shows that it runs, measures nothing)

Eight CPU devices. Methods that find the same walk are timed as one. A round times every walk of a case once, in a
new order. One whose first call took over four times the fastest one's is timed that once, and one modelled at
over thirty times the best is left out. The table gives the median of each, and how far auto's is from the fastest;
`--steps` gives the seconds of every step of every walk, modelled and measured. `--out` appends one JSON line a walk.
"""

import argparse
import math
import re
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402
from benchmarks.measure.timing import Timer, interleaved, timer  # noqa: E402
from meshfft.layout.layout import Layout  # noqa: E402
from meshfft.layout.padded_array import padded  # noqa: E402
from meshfft.walks.search import METHODS  # noqa: E402

HOPELESS, SLOW, ENOUGH = 30.0, 4.0, 1.2  # times the best as modelled: not run; as measured: not again; near enough


class Case(NamedTuple):
    """A shape on a mesh."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    spec: P
    order: str = "natural"
    axes: tuple[int, ...] | None = None


CASES = {
    "line": Case((16384,), (8,), P("x")),
    "2-D slab": Case((2048, 2048), (8,), P("x")),
    "2-D block, to any order": Case((1000, 1536), (2, 4), P("x", "y"), "any"),
    "2-D slab, its short side only": Case((16, 131072), (8,), P("x"), axes=(0,)),
    "3-D slab": Case((256, 256, 256), (8,), P("x")),
    "3-D block": Case((256, 256, 256), (2, 2, 2), P("x", "y", "z")),
    "3-D block, small": Case((32, 32, 32), (2, 2, 2), P("x", "y", "z")),
    "3-D block, uneven": Case((97, 113, 89), (2, 2, 2), P("x", "y", "z")),
    "3-D pencil, to any order": Case((192, 160, 128), (2, 4), P("x", "y"), "any"),
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
    parser.add_argument("--steps", action="store_true", help="time every step of every walk too")
    parser.add_argument("--small", action="store_true", help="an eighth of each size, to see that it runs")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = {name: case for name, case in CASES.items() if re.search(options.only, name)}
    found = {name: timed(small(case) if options.small else case, options.rounds) for name, case in chosen.items()}
    print(table(found))
    if options.steps:
        print(steps_table(found, options.rounds))
    append(options.out, [row_of(name, walk) for name, walks in found.items() for walk in walks])


def small(case: Case) -> Case:
    """The case with an eighth of each size, at least 16; odd sizes stay odd, so that the mesh does not divide them."""
    return case._replace(shape=tuple(max(16, n // 16 * 2) + n % 2 for n in case.shape))


def timed(case: Case, rounds: int) -> list[Timed]:
    """Every walk of a case, its calls interleaved with those of the others."""
    mesh = jax.make_mesh(case.sizes, tuple("xyz"[: len(case.sizes)]), (AxisType.Auto,) * len(case.sizes))
    walks = plans(case, mesh)
    x = noise(walks[0][0].in_layout, mesh)
    calls = [caller(plan, x) for plan, _ in walks]
    firsts = [call() for call in calls]
    again = [first <= SLOW * min(firsts) for first in firsts]
    later = iter(interleaved([call for call, due in zip(calls, again, strict=True) if due], rounds, seed=0))
    times = [next(later) if due else [first] for due, first in zip(again, firsts, strict=True)]
    return [Timed(methods, plan, seconds) for (plan, methods), seconds in zip(walks, times, strict=True)]


def plans(case: Case, mesh: Mesh) -> list[tuple[mf.Plan, tuple[str, ...]]]:
    """A plan for each walk, and the methods that find it."""
    found: dict[Any, tuple[mf.Plan, tuple[str, ...]]] = {}
    for method in METHODS:
        try:
            plan = mf.plan(case.shape, mesh=mesh, spec=case.spec, axes=case.axes, order=case.order, method=method)
        except ValueError:
            continue  # it has no walk here
        first, methods = found.get(plan.walk, (plan, ()))
        found[plan.walk] = first, (*methods, method)
    best = min(plan.seconds or 0.0 for plan, _ in found.values())
    return [one for one in found.values() if (one[0].seconds or 0.0) <= HOPELESS * best]


def noise(layout: Layout, mesh: Any) -> Any:
    """Noise in a layout: a PaddedArray if the mesh does not divide its shape."""
    planes = np.random.default_rng(0).standard_normal((*layout.storage, 2), np.float32)
    stored = jax.device_put(planes.view(np.complex64)[..., 0], NamedSharding(mesh, layout.spec))
    return stored if layout.even else padded(stored, layout, mesh).map(lambda x: x)  # which zeros the padding


def caller(plan: mf.Plan, x: Any) -> Timer:
    """A call that returns its seconds, to the finished result; compiled, and run once."""
    run = jax.jit(plan)
    jax.block_until_ready(run(x))
    return timer(lambda: run(x))


def ratio(walks: list[Timed]) -> float:
    """Seconds of auto's walk over those of the fastest."""
    return walks[0].median / min(walk.median for walk in walks)


def table(found: dict[str, list[Timed]]) -> str:
    lines = [
        "| case | walk of | modelled ms | median ms | min | max | auto / fastest |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, walks in found.items():
        for walk in walks:
            low, high, modelled = min(walk.seconds), max(walk.seconds), walk.plan.seconds or math.nan
            cells = [f"{1e3 * value:.1f}" for value in (modelled, walk.median, low, high)]
            last = f"{ratio(walks):.2f}" if walk is walks[0] else ""
            lines.append(f"| {name} | {', '.join(walk.methods)} | {' | '.join(cells)} | {last} |")
    near = sum(ratio(walks) <= ENOUGH for walks in found.values())
    return "\n".join([*lines, "", f"auto is within {ENOUGH - 1:.0%} of the fastest in {near} of {len(found)} cases"])


def steps_table(found: dict[str, list[Timed]], rounds: int) -> str:
    """Every different step of the walks that were timed, alone."""
    lines = ["", "| case | step | layout before | modelled ms | median ms | ratio |", "|---|---|---|---|---|---|"]
    for name, walks in found.items():
        again = [walk for walk in walks if len(walk.seconds) >= min(2, rounds)]
        stages = {stage.walk: stage for walk in again for stage in walk.plan.stages}
        for stage in stages.values():
            call = caller(stage, noise(stage.in_layout, stage.mesh))
            median, modelled = statistics.median(call() for _ in range(rounds)), stage.seconds or math.nan
            cells = f"{1e3 * modelled:.2f} | {1e3 * median:.2f} | {median / modelled:.2f}"
            lines.append(f"| {name} | {stage.name} | {stage.in_layout.label()} {stage.in_layout.block} | {cells} |")
    return "\n".join(lines)


def row_of(name: str, walk: Timed) -> dict[str, Any]:
    plan = walk.plan
    row = {"case": name, "methods": walk.methods, "seconds": walk.seconds, "modelled": plan.seconds}
    row |= {"shape": plan.shape, "mesh": dict(plan.mesh.shape), "spec": str(plan.in_layout.spec)}
    return row | {"order": plan.order, "walk": plan.name, "chip": plan.machine.chip.name}


if __name__ == "__main__":
    main()
