"""How much faster the best of the first ten walks is than the walk of a plan, on CPU devices.

    regret = seconds of the plan / least seconds of the walks that the model ranks first to tenth

All of one draw are interleaved. A walk priced at over HOPELESS times the plan is not run, and one that took over SLOW
times the fastest's seconds, each in its best call of LEAST, is not run again. `measured` is the same of the plan that
effort="measure" chose by separate trials. Draw i depends on the seed and i alone, as in `plans`.
"""

import dataclasses
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import meshfft as mf
from meshfft.machine.topology import Topology, topology
from meshfft.plans import measured, planning
from meshfft.plans.options import records_of
from meshfft.plans.plan import Plan
from meshfft.walks.choice import price_of

from .common import cpu_devices, mesh_of, noise
from .plans import drawn, print_quantiles
from .rows import Values, kept
from .timing import timed

WALKS, ROUNDS, LEAST = 10, 100, 3
SLOWEST = 1.0  # seconds of a plan that is run
PATIENCE = 20.0  # seconds of all rounds, if the least number of them does not take longer
SLOW, HOPELESS = 3.0, 10.0


def main(draws: int = 40, seed: int = 36, machine: Path | None = None, rows: Path | None = None) -> None:
    """Walks are ranked by the rates of a file of `meshfft measure` (--machine), else by data sheets."""
    cpu_devices(wide=True)
    here = topology(machine) if machine else None
    found = list(kept(rows, (row for at in range(draws) if (row := regret(seed, at, here)))))
    print_quantiles(found, ("plan", "measured"))


def regret(seed: int, at: int, machine: Topology | None) -> Values | None:
    """A row of one draw; nothing if the plan is refused or takes long."""
    shape, sizes, how = drawn(random.Random(f"{seed} {at}"), tpu=False)
    mesh, spec = mesh_of(sizes), how.pop("spec")
    place = planning.Placement(shape, mesh, spec, machine and machine._replace(devices=mesh.size))
    try:
        plans = ranked(place, how)
    except ValueError as refused:
        print(f"draw {at}: refused: {refused}")
        return None
    if (planned := _price(plans[0])) > SLOWEST:
        print(f"draw {at}: left out: planned at {planned:.3g} s")
        return None
    x = mf.shard(noise(shape, how["dtype"]), mesh, spec)
    calls = {plan.walk: partial(plan.__call__, x) for plan in plans}
    seconds = {walk: min(one.seconds) for walk, one in timed(calls, LEAST).items()}
    near = {walk: call for walk, call in calls.items() if seconds[walk] <= SLOW * min(seconds.values())}
    rounds = min(max(int(PATIENCE / sum(seconds[walk] for walk in near)), LEAST), ROUNDS)
    seconds |= {walk: one.median for walk, one in timed(near, rounds).items()}
    chosen = dataclasses.replace(measured.fastest(plans[: planning.MOST_TRIALS], lambda part, done: None), trials=())
    least = min(seconds.values())
    row = {"draw": at, "seed": seed, "shape": shape, "mesh": sizes, "spec": str(spec), **how}
    return row | {
        "walks": [plan.name for plan in plans],
        "seconds": [seconds[plan.walk] for plan in plans],
        "chosen": plans.index(chosen),
        "plan": seconds[plans[0].walk] / least,
        "measured": seconds[chosen.walk] / least,
    }


def ranked(place: planning.Placement, how: Mapping[str, Any]) -> list[Plan]:
    """The plans of the first ten walks, each once, without those that are priced far above the first."""
    with mock.patch.object(planning, "MOST_TRIALS", WALKS):
        plans = planning.candidates(place, *records_of(how))
    once = [*{plan.walk: plan for plan in reversed(plans)}.values()][::-1]
    return [plan for plan in once if _price(plan) <= HOPELESS * _price(once[0])]


def _price(plan: Plan) -> float:
    return price_of(plan.walk, plan.machine, plan.dtype.itemsize)
