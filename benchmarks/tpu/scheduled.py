"""Programs compiled for a described TPU in a separate process, and their static schedules; nothing runs on a TPU.

The compiler reads its flags once, when it is loaded. So a separate process answers one job per line. If the compiler
crashes, its process ends, the job's row has the reason, and the next job gets a new process.
"""

import contextlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from meshfft.cli.cluster import ENVIRONMENT
from meshfft.inspect.aot import devices_of
from meshfft.inspect.hlo import bytes_of, cycles, program_of
from meshfft.inspect.schedule import Executed, Program, executed
from meshfft.machine.chips import CHIPS

from .bundles import DELAYS, Schedule

Job = Mapping[str, Any]
FLAGS = "--xla_jf_dump_to={} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=.*final.*"
LONGEST = 400  # letters of a reason


def schedules(build: str, jobs: Sequence[Job], topology: str, dump: bool = True) -> Iterator[dict[str, Any]]:
    """A row for each job: seconds to compile, estimated cycles, and passes; or `error`."""
    left = list(jobs)
    while left:
        with _process(build, topology, dump) as (child, told):
            while left:
                line = _answer(child, left[0])
                job = left.pop(0)
                if not line:
                    yield {**job, "error": f"the compiler ended: {told()}"}
                    break
                yield {**job, **json.loads(line)}


@contextlib.contextmanager
def _process(build: str, topology: str, dump: bool) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+", errors="replace") as log:
        flags = {"LIBTPU_INIT_ARGS": FLAGS.format(folder)} if dump else {}
        command = [sys.executable, "-m", "benchmarks.tpu.scheduled", build, topology, folder if dump else ""]
        environment, pipe = {**os.environ, **ENVIRONMENT, **flags}, subprocess.PIPE
        with subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=log) as child:

            def told() -> str:
                log.seek(0)
                return " ".join(log.read().split())[-LONGEST:]

            yield child, told
            child.kill()


def _answer(child: subprocess.Popen[str], job: Job) -> str:
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(json.dumps(dict(job)) + "\n")
        child.stdin.flush()
    except BrokenPipeError:
        return ""
    return child.stdout.readline()


def compiled(build: Callable[..., Any], job: Job, topology: str, folder: str) -> dict[str, Any]:
    """The row of a job, in the process whose compiler dumps to a folder."""
    _empty(folder)
    run, shapes = build(**job)
    chip, sharding = topology.partition(":")[0], SingleDeviceSharding(devices_of(topology)[0])
    operands = [jax.ShapeDtypeStruct(shape, "float32", sharding=sharding) for shape in shapes]
    start = time.perf_counter()
    program = program_of(jax.jit(run).lower(*operands).compile(dict(CHIPS[chip].options)))
    row: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 2)}
    row["estimate"] = sum(one.cycles for one in cycles(program))
    if folder:
        row |= scheduled(program, read(Path(folder), DELAYS[chip]))
    _empty(folder)
    return row


def scheduled(program: Program, found: Mapping[str, Schedule]) -> dict[str, Any]:
    """Bundles of the custom calls of one run, and the bytes that each reads and writes; of the whole program if it has
    no such calls."""
    run = [one for one in executed(program) if one.times and one.instruction.name in found]
    calls = [one for one in run if one.instruction.opcode == "custom-call"]
    types = {name: one.type for body in program.computations.values() for name, one in body.items()}
    return {"passes": [_pass(one, found[one.instruction.name], types) for one in calls or run]}


def _pass(one: Executed, schedule: Schedule, types: Mapping[str, str]) -> dict[str, Any]:
    spent = schedule.spent().times(one.times)
    shares = {unit: used / (schedule.capacity[unit] * spent.cycles) for unit, used in spent.used.items() if used}
    sizes = [bytes_of(one.instruction.type), *(bytes_of(types.get(name, "")) for name in one.instruction.operands)]
    return {
        "name": one.instruction.name,
        "bundles": spent.cycles,
        "slots": {unit: round(share, 3) for unit, share in shares.items()},
        "unknown": spent.unknown,
        "bytes": one.times * sum(sizes),
    }


def read(folder: Path, delay: int) -> dict[str, Schedule]:
    """The schedules in a folder, by the instructions' names; equal ones were dumped once."""
    found = dict[str, Schedule]()
    for path in sorted(folder.glob("*-final_bundles.txt")):
        named = re.fullmatch(r"(\d+-(.*))-\d+-final_bundles\.txt", path.name)
        if named and "schedule-analysis" not in path.name:
            slots = [
                one for one in folder.iterdir() if re.match(re.escape(named[1]) + r"-\d+-final_hlo-static", one.name)
            ]
            found[named[2]] = Schedule(path.read_text(), slots[0].read_text() if slots else "", delay)
    return found


def _empty(folder: str) -> None:
    for path in Path(folder).iterdir() if folder else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def main() -> None:
    """Answers jobs, one per line; the compiler's output is redirected."""
    build, (topology, folder) = pkgutil.resolve_name(sys.argv[1]), sys.argv[2:]
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            row = compiled(build, json.loads(line), topology, folder)
        except Exception as error:
            row = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST]}
        print(json.dumps(row), file=answers, flush=True)


if __name__ == "__main__":
    main()
