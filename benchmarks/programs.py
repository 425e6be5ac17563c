"""Transforms alone, donated, in the user's `jit`, and in a `lax.scan`, beside mpi4py-fft on one rank per core.

complex64, natural order, eight CPU devices. One iteration of a scan is a round trip. mpi4py-fft leaves its output
transposed. `--slab` leaves out mpi4py-fft's pencils, whose ranks keep more arrays than memory holds at 512^3. `--keep`
makes glibc keep freed memory, so that the system need not clear the pages of each result.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from meshfft.inspect.aot import compile_plan
from meshfft.plans.plan import Plan

from .common import cpu_devices, mesh_of, numbers, print_rows
from .measure.baselines import BASELINES, MESHFFT, SLAB
from .measure.cases import Case, Task, usual_meshes
from .measure.data import Data
from .measure.mpi import MpiRanks
from .measure.on_devices import plan_of
from .rows import Values, cores, kept
from .timing import Call, timed

KEEP = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=34359738368:glibc.malloc.arena_max=1"
ONCE, TURN = "once", "a turn"  # the kind of a program: one transform, or one round trip


class Program(NamedTuple):
    """What rows say of it, a call, and the transforms or round trips of a call."""

    said: Values
    call: Call
    times: int


def main(
    shape: str = "256,256,256",
    mesh: list[str] | None = None,
    rounds: int = 7,
    turns: int = 10,
    slab: bool = False,
    keep: bool = False,
    rows: Path | None = None,
) -> None:
    if keep and os.environ.get("GLIBC_TUNABLES") != KEEP:  # glibc reads it when a process starts
        os.execve(sys.executable, sys.orig_argv, os.environ | {"GLIBC_TUNABLES": KEEP})
    cpu_devices()
    task = Task(numbers(shape))
    what: Values = {"shape": task.shape, "keep": keep}
    meshes = [numbers(text) for text in mesh or ()] or usual_meshes(8, len(task.shape))
    data = Data(task, cores())
    with MpiRanks() as ranks:
        cases = [Case(task, MESHFFT, one, method="transpose", order="natural") for one in meshes]
        programs = [one for case in cases for one in compiled(case, data, turns)]
        programs += theirs(data, ranks, turns, slab)
        times = timed({at: one.call for at, one in enumerate(programs)}, rounds)
    every = zip(programs, times.values(), strict=True)
    found = ({**what, "program": one.said, "seconds": [s / one.times for s in spent.seconds]} for one, spent in every)
    print_rows(kept(rows, found, "mpi4py", "mpi4py-fft"))


def compiled(case: Case, data: Data, turns: int) -> Iterator[Program]:
    mesh = mesh_of(case.mesh)
    x, plan = data.on(mesh, case), plan_of(case, mesh)
    own: Values = {"donate_argnums": 0, "compiler_options": plan.compiler_options}
    made = {
        "alone": compile_plan(plan, mesh),
        "donated": jax.jit(plan, **own).lower(x).compile(),
        "in jit": jax.jit(plan).lower(x).compile(),
        TURN: jax.jit(_scanned(plan, turns)).lower(x).compile(),
        f"{TURN}, donated": jax.jit(_scanned(plan, turns), donate_argnums=0).lower(x).compile(),
    }
    for how, program in made.items():
        memory, block = program.memory_analysis(), 8 * np.prod(case.task.shape) / case.devices
        assert memory is not None
        call = _alternating(program, x) if how.endswith("donated") else functools.partial(program, x)
        yield _program(case, how, call, turns, memory.temp_size_in_bytes / block)


def _scanned(plan: Plan, turns: int) -> Callable[[Any], Any]:
    return lambda x: lax.scan(lambda x, _: (plan.inverse(plan(x)), None), x, None, length=turns)[0]


def _alternating(program: Callable[[Any], Any], x: Any) -> Call:
    """A call that takes the result of the last one: a transform of zeros takes the usual time, and does not grow."""
    held = [jax.block_until_ready(x * 0)]

    def run() -> None:
        held[0] = jax.block_until_ready(program(held[0]))

    return run


def theirs(data: Data, ranks: MpiRanks, turns: int, slab: bool) -> Iterator[Program]:
    """mpi4py-fft, its slab and its pencil, or the first alone; nothing where MPI is not here."""
    baseline = BASELINES["mpi4py-fft"]
    for case in () if baseline.missing("fft") else baseline.ways(data.task, (), cores()):
        if slab and case.method != SLAB:
            continue
        yield _program(case, case.method, ranks.prepare(case, data).call, turns)
        yield _program(case, f"{case.method}, {TURN}", ranks.prepare(case, data, turns).call, turns)


def _program(case: Case, how: str, call: Call, turns: int, blocks: float = 0.0) -> Program:
    kind = TURN if TURN in how else ONCE
    said = {"by": case.library, "mesh": case.mesh, "how": how, "kind": kind, "blocks": blocks}
    return Program(said, call, turns if kind == TURN else 1)
