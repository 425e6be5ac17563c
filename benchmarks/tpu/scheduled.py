"""Programs compiled for a described TPU in a separate process, and their static schedules; nothing runs on a TPU.

The compiler reads its flags once, when it is loaded. So a separate process answers one job per line. If the compiler
crashes, its process ends, the job's row has the reason, and the jobs after it get a new process.
"""

import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
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

from ..rows import Values
from ..timing import clocked
from .bundles import DELAYS, Schedule

FLAGS = "--xla_jf_dump_to={} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=.*final.*"
LONGEST = 400  # letters of a reason


def schedules(build: str, jobs: Sequence[Values], topology: str, dump: bool = True) -> Iterator[Values]:
    """A row for each job: seconds to compile, estimated cycles, and passes; or `error`."""
    left = list(jobs)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            flags = {"LIBTPU_INIT_ARGS": FLAGS.format(folder)} if dump else {}
            command = [sys.executable, "-m", "benchmarks.tpu.scheduled", build, topology, folder if dump else ""]
            environment, asked = {**os.environ, **ENVIRONMENT, **flags}, "".join(json.dumps(job) + "\n" for job in left)
            done = subprocess.run(
                command, env=environment, input=asked, capture_output=True, text=True, errors="replace"
            )
        answers = done.stdout.splitlines()
        yield from ({**job, **json.loads(line)} for job, line in zip(left, answers, strict=False))
        left = left[len(answers) :]
        if left:
            yield {**left.pop(0), "error": f"the compiler ended: {' '.join(done.stderr.split())[-LONGEST:]}"}


def compiled(build: Callable[..., Any], job: Values, topology: str, folder: str) -> Values:
    """The row of a job, in the process whose compiler dumps to a folder."""
    for path in Path(folder).iterdir() if folder else ():  # the last job's dump
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run, shapes = build(**job)
    chip, sharding = topology.partition(":")[0], SingleDeviceSharding(devices_of(topology)[0])
    operands = [jax.ShapeDtypeStruct(shape, "float32", sharding=sharding) for shape in shapes]
    made, seconds, _ = clocked(lambda: jax.jit(run).lower(*operands).compile(dict(CHIPS[chip].options)))
    program = program_of(made)
    row: Values = {"seconds": round(seconds, 2), "estimate": sum(one.cycles for one in cycles(program))}
    return row | (scheduled(program, read(Path(folder), DELAYS[chip])) if folder else {})


def scheduled(program: Program, found: Mapping[str, Schedule]) -> Values:
    """Bundles of the custom calls of one run, and the bytes that each reads and writes; of the whole program if it has
    no such calls."""
    run = [one for one in executed(program) if one.times and one.instruction.name in found]
    calls = [one for one in run if one.instruction.opcode == "custom-call"]
    types = {name: one.type for body in program.computations.values() for name, one in body.items()}
    return {"passes": [_pass(one, found[one.instruction.name], types) for one in calls or run]}


def _pass(one: Executed, schedule: Schedule, types: Mapping[str, str]) -> Values:
    spent = schedule.spent()
    sizes = [bytes_of(one.instruction.type), *(bytes_of(types.get(name, "")) for name in one.instruction.operands)]
    return {
        "name": one.instruction.name,
        "bundles": one.times * spent.cycles,
        "unknown": spent.unknown,
        "bytes": one.times * sum(sizes),
    }


def read(folder: Path, delay: int) -> dict[str, Schedule]:
    """The schedules in a folder, by the instructions' names; equal ones were dumped once."""
    found = dict[str, Schedule]()
    for path in sorted(folder.glob("*-final_bundles.txt")):
        named = re.fullmatch(r"\d+-(.*)-\d+-final_bundles\.txt", path.name)
        if named and "schedule-analysis" not in path.name:
            found[named[1]] = Schedule(path.read_text(), delay)
    return found


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
