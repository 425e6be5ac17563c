"""Transforms alone, inside a `jit` of the user's own, and in a `lax.scan`, beside mpi4py-fft on a rank for each core.

    python -m benchmarks programs [--shape 256,256,256] [--mesh 8 --mesh 2,4] [--rounds 7] [--turns 10] [--rows FILE]

    alone      a compiled plan
    donated    the same, its result in the storage of the array
    in jit     `jax.jit(plan)`, as JAX compiles what a user wrote
    a turn     of a `lax.scan` of some transforms there and back, the seconds of one; donated, as mpi4py-fft's, which
               copies nothing and needs no fresh pages
    before     each of these without InPlace, the step that makes temporaries small (--before)

complex64, natural order, eight CPU devices; calls of all of them take turns in one run. mpi4py-fft leaves its output
transposed; its turns go there and back in its own buffers. The last columns are the best mesh of mpi4py-fft over each
median (- without MPI), and temporaries in blocks, by the compiler. `--turns 0` leaves out scans,
`--slab` mpi4py-fft's pencils, which are slower: its ranks keep six arrays for each, more than memory holds at 512^3.
"""

import argparse
import functools
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import meshfft as mf  # noqa: E402
from benchmarks.jsonl import append  # noqa: E402
from benchmarks.made import cores  # noqa: E402
from benchmarks.measure.baselines import BASELINES, SLAB  # noqa: E402
from benchmarks.measure.cases import Layout, Task, layout_of, usual_meshes  # noqa: E402
from benchmarks.measure.data import Data, mesh_of  # noqa: E402
from benchmarks.measure.mpi import MpiRanks  # noqa: E402
from benchmarks.measure.timing import Timer, interleaved, timer  # noqa: E402
from meshfft.inspect.aot import compile_plan  # noqa: E402
from meshfft.steps import InPlace  # noqa: E402
from meshfft.walks.choice import find_walk  # noqa: E402

ONCE, TURN = "once", "a turn"  # what a median is compared with: one transform, or one there and back


class Call(NamedTuple):
    """A program: who, on which mesh, how, what it is compared with, its timer, how many such are in a call."""

    library: str
    mesh: tuple[int, ...]
    how: str
    kind: str
    timer: Timer
    times: int = 1
    blocks: float = 0.0  # of temporaries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="256,256,256")
    parser.add_argument("--mesh", action="append")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--slab", action="store_true")
    parser.add_argument("--rows", type=Path)
    given = parser.parse_args()
    shape = _numbers(given.shape)
    meshes = [_numbers(text) for text in given.mesh or ()] or usual_meshes(8, len(shape))
    data = Data(Task(shape), cores())
    with MpiRanks() as ranks:
        calls = [call for mesh in meshes for call in ours(data, layout_of(mesh, len(shape)), given.turns, given.before)]
        calls += list(theirs(data, ranks, given.turns, given.slab))
        seconds = interleaved([call.timer for call in calls], given.rounds + 1)
    rows = [_row(call, times[1:], shape) for call, times in zip(calls, seconds, strict=True)]  # the first is warm-up
    _show(rows)
    append(given.rows, rows, ("mpi4py", "mpi4py-fft"))


def ours(data: Data, layout: Layout, turns: int, before: bool) -> Iterator[Call]:
    """The programs of a mesh."""
    mesh = mesh_of(layout, jax.devices())
    yield from _compiled(data, layout, mesh, turns, "")
    if before:
        with mock.patch.object(InPlace, "offers", lambda *_: iter(())):
            _forget()
            yield from _compiled(data, layout, mesh, turns, "before, ")
        _forget()


def _forget() -> None:
    """Walks are looked up by what is asked for, not by the steps there are."""
    jax.clear_caches()
    find_walk.cache_clear()


def _compiled(data: Data, layout: Layout, mesh: Any, turns: int, name: str) -> Iterator[Call]:
    x, spec, shape = data.on(mesh, layout), jax.sharding.PartitionSpec(*layout.spec), data.task.shape
    plan = mf.plan(shape, mesh=mesh, spec=spec, method="transpose")

    def scanned(x: Any) -> Any:
        return lax.scan(lambda x, _: (plan.inverse(plan(x)), None), x, None, length=turns)[0]

    own: dict[str, Any] = {"donate_argnums": 0, "compiler_options": plan.compiler_options}
    programs = {
        "alone": compile_plan(plan, mesh),
        "donated": jax.jit(plan, **own).lower(x).compile(),
        "in jit": jax.jit(plan).lower(x).compile(),
    }
    if turns:
        programs["a turn"] = jax.jit(scanned).lower(x).compile()
        programs["a turn, donated"] = jax.jit(scanned, donate_argnums=0).lower(x).compile()
    for how, program in programs.items():
        block, memory = 8 * np.prod(shape) / layout.devices, program.memory_analysis()
        assert memory is not None
        ready = _alternating(program, x) if how.endswith("donated") else timer(functools.partial(program, x))
        kind, times = (TURN, turns) if how.startswith("a turn") else (ONCE, 1)
        yield Call("meshfft", layout.mesh, name + how, kind, ready, times, memory.temp_size_in_bytes / block)


def _alternating(program: Callable[[Any], Any], x: Any) -> Timer:
    """A call that eats what the last one left: a transform of zeros takes as long as any, and does not grow."""
    held = [jax.block_until_ready(x * 0)]

    def run() -> Any:
        held[0] = program(held[0])
        return held[0]

    return timer(run)


def theirs(data: Data, ranks: MpiRanks, turns: int, slab: bool) -> Iterator[Call]:
    """mpi4py-fft, its slab and its pencil, or the first alone; nothing where MPI is not here."""
    baseline = BASELINES["mpi4py-fft"]
    if baseline.missing("fft"):
        return
    for case in baseline.ways(data.task, (), cores()):
        if slab and case.method != SLAB:
            continue
        yield Call("mpi4py-fft", case.mesh, case.method, ONCE, ranks.prepare(case, data).timer)
        if turns:
            timed = ranks.prepare(case, data, turns).timer
            yield Call("mpi4py-fft", case.mesh, f"{case.method}, a turn", TURN, timed, turns)


def _row(call: Call, seconds: list[float], shape: tuple[int, ...]) -> dict[str, Any]:
    each = [one / call.times for one in seconds]
    said = {"by": call.library, "mesh": call.mesh, "how": call.how, "kind": call.kind, "blocks": call.blocks}
    return {"program": said, "shape": shape, "seconds": each}


def _show(rows: list[dict[str, Any]]) -> None:
    """The table, with each median beside the best of mpi4py-fft."""
    medians = [statistics.median(row["seconds"]) for row in rows]
    pairs = [(row["program"], median) for row, median in zip(rows, medians, strict=True)]
    best = {
        kind: min((m for one, m in pairs if one["by"] == "mpi4py-fft" and one["kind"] == kind), default=np.nan)
        for kind in (ONCE, TURN)
    }
    print("| | mesh | | ms | mpi4py-fft's best over it | temporaries, blocks |\n|---|---|---|---|---|---|")
    for one, median in pairs:
        mesh = ", ".join(map(str, one["mesh"]))
        ratio = best[one["kind"]] / median
        ends = f"{'-' if np.isnan(ratio) else f'{ratio:.2f}'} | {one['blocks']:.2f} |"
        print(f"| {one['by']} | ({mesh}) | {one['how']} | {median * 1e3:.0f} | {ends}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
