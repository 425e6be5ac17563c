"""All-to-alls between four virtual nodes at 1 Gbit/s, in one stage and in two, exact and rounded, beside the plan.

    node    one process of four CPU devices in its own network namespace; all nodes share the cores here
    plan    priced by rates that are first measured between these nodes, as `meshfft measure` does
    gain    seconds of one stage over those of two, and of exact messages over those of int16 between nodes

mpi4py-fft runs on as many ranks in the same nodes, after meshfft.
"""

import json
import math
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

import meshfft as mf
from meshfft.inspect.rates import measured_rates
from meshfft.machine.machine_file import machine_text

from .clusters import staged
from .common import cpu_devices, mesh_of, noise, numbers, relative, spec_of, table
from .measure.baselines import BASELINES, PENCIL
from .measure.cases import Case, Task
from .measure.data import Data
from .measure.mpi import MpiRanks
from .rows import ROOT, Values, cores, kept
from .timing import spread, timed
from .virtual_nodes import NODES, RATE, Nodes, missing, started

DEVICES = 4  # or ranks, of each node
CASES = "64,64:16 256,256:16 1024,1024:16 64,64,64:16 128,128,128:16 128,128,128:4,4"
WAYS = ("one stage", "two stages", "exact", "outer int16")  # exact: the plan, in one stage or in two
HEADS = ("array", "mesh", *(f"{way}, ms" for way in WAYS), "mpi4py-fft, ms")
HEADS += ("gain of two", "planned", "gain of int16", "planned")
PATIENCE = 1800.0


def main(
    cases: str = CASES,
    rounds: int = 15,
    rows: Path | None = None,
    inside: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    if inside:
        one_process(cases, rounds)
        return
    if reason := missing():
        raise SystemExit(f"no virtual nodes here: {reason}")
    table(HEADS, map(cells, kept(rows, measured(cases, rounds), "mpi4py", "mpi4py-fft")))


def measured(cases: str, rounds: int) -> Iterator[Values]:
    own = f"{sys.executable} -m benchmarks nodes --inside --cases '{cases}' --rounds {rounds}"
    with started() as nodes:
        told = nodes.run(f"srun -N {NODES} --ntasks-per-node=1 {own}", folder=ROOT, seconds=PATIENCE).stdout
        for line in (line for line in told.splitlines() if line.startswith("{")):
            row = json.loads(line)
            yield {**row, "rate": RATE, "mpi4py_fft": theirs(row, nodes, rounds)}


def theirs(row: Values, nodes: Nodes, rounds: int) -> list[float]:
    """Seconds of mpi4py-fft on one rank for each device, if it is here; its ranks end before others start."""
    task = Task(tuple(row["shape"]))
    if BASELINES["mpi4py-fft"].missing(task.kind):
        return []
    case = Case(task, "mpi4py-fft", tuple(row["mesh"]), method=PENCIL)
    allocated = ("salloc", "-Q", f"--nodes={NODES}", f"--ntasks-per-node={DEVICES}", "mpiexec")
    with MpiRanks((*nodes.inside, *allocated), nodes.environment) as ranks:
        ready = ranks.prepare(case, Data(task, cores()))
        assert ready.error < 1e-6, ready.error
        return timed({PENCIL: ready.call}, rounds)[PENCIL].seconds


def one_process(cases: str, rounds: int) -> None:
    """Process 0 prints a row for each case."""
    cpu_devices(DEVICES)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize()
    whole = mesh_of((NODES, DEVICES))
    found = measured_rates(whole, lambda part, done: None)
    random.seed(0)  # the same order in all processes
    with tempfile.TemporaryDirectory() as folder:
        rates = Path(folder) / "nodes.toml"
        rates.write_text(machine_text(found.record(whole)))
        for case in cases.split():
            shape, sizes = map(numbers, case.split(":"))
            row = timings(shape, sizes, rates, rounds)
            if jax.process_index() == 0:
                print(json.dumps({**row, "rates": found.rates}), flush=True)


def timings(shape: tuple[int, ...], sizes: tuple[int, ...], rates: Path, rounds: int) -> Values:
    mesh, spec = mesh_of(sizes), spec_of(sizes)
    made = partial(mf.plan, shape, mesh=mesh, spec=spec, topology=rates, method="transpose")
    best, rounded = made(), made(wire={"outer": "int16"})
    plans = dict(zip(WAYS, (staged(best, False), staged(best, True), best, rounded), strict=True))
    x, truth = mf.shard(noise(shape), mesh, spec), np.fft.fftn(noise(shape))
    there = {way: plan for way, plan in plans.items() if plan is not None}
    times = timed({way: partial(plan.__call__, x) for way, plan in there.items()}, rounds)
    return {
        "shape": shape,
        "mesh": sizes,
        "walks": {way: plan.name for way, plan in there.items()},
        "planned": {way: plan.seconds for way, plan in there.items()},
        "errors": {way: relative(mf.gather(plan(x)), truth) for way, plan in there.items()},
        "seconds": {way: times[way].seconds for way in there},
    }


def cells(row: Mapping[str, Any]) -> list[str]:
    planned = {way: row["planned"].get(way, math.nan) for way in WAYS}
    seconds = {way: spread(row["seconds"].get(way, [math.nan]))[1] for way in WAYS}
    times = [_words(1e3 * one, ".3g") for one in (*seconds.values(), spread(row["mpi4py_fft"] or [math.nan])[1])]
    pairs = [(one[WAYS[0]] / one[WAYS[1]], one[WAYS[2]] / one[WAYS[3]]) for one in (seconds, planned)]
    gains = [_words(gain, ".2f") for alike in zip(*pairs, strict=True) for gain in alike]
    return [" x ".join(map(str, row["shape"])), " x ".join(map(str, row["mesh"])), *times, *gains]


def _words(number: float, form: str) -> str:
    return "-" if math.isnan(number) else f"{number:{form}}"
