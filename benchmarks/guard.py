"""Whether the code here is slower than that of another commit, takes more memory, or has more to compile.

    python -m benchmarks guard COMMIT

Each side is a process with its own `src`; calls are interleaved. Numbers are quotients, here over before: of median
seconds, CPU seconds of compiling, bytes of temporaries, and compiled instructions. Exit code 1 if temporaries or
instructions grew by over 1%, or if three quarters of a case's calls took over `--slower` times the median before.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import meshfft as mf

from .common import cpu_devices, mesh_of, noise, print_rows, spec_of
from .rows import ROOT, Values, kept
from .timing import Call, Seconds, clocked, spread, timed

SIZES, LARGER = ("temporaries", "instructions"), 1.01


class Case(NamedTuple):
    call: Callable[[Any], Any]
    shape: tuple[int, ...]
    mesh: tuple[int, ...] = ()  # () for NumPy's array, called eagerly
    dtype: str = "complex64"


def at_points(image: Any) -> Any:
    return mf.nufftn(image, mf.Scattered.turns(np.random.default_rng(0).random((100_000, 2))), tol=1e-3)


CASES = {
    **{f"fftn 256^3 over {mesh}": Case(mf.fftn, (256,) * 3, mesh) for mesh in ((8,), (2, 4), (2, 2, 2))},
    "fftn 100 x 90 x 70 over (2, 4)": Case(mf.fftn, (100, 90, 70), (2, 4)),
    "rfftn 128^3 over (2, 4)": Case(mf.rfftn, (128,) * 3, (2, 4), "float32"),
    "dctn 128^3 over (2, 2, 2)": Case(mf.dctn, (128,) * 3, (2, 2, 2), "float32"),
    "dense 512^2 over (2, 4)": Case(functools.partial(mf.fftn, method="kdft"), (512, 512), (2, 4)),
    "fftn 1048576 over (8,)": Case(mf.fftn, (2**20,), (8,)),
    "nufftn 512^2 over (8,)": Case(at_points, (512, 512), (8,)),
    "fftn 64^3 over (1,)": Case(mf.fftn, (64,) * 3, (1,)),
    "fftn 16^3 of NumPy": Case(mf.fftn, (16,) * 3),
}


def main(before: str, cases: str = "", rounds: int = 15, slower: float = 1.05, rows: Path | None = None) -> None:
    if not (names := [name for name in CASES if cases in name]):
        raise SystemExit(f"no case has {cases!r} in its name: there are {', '.join(CASES)}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for command in (f"git clone -q --shared {ROOT} {folder}", f"git -C {folder} checkout -q {before}"):
            if subprocess.run(command.split()).returncode:
                raise SystemExit(f"{before!r} is no commit of this clone: give one, such as HEAD~1")
        sides = [stack.enter_context(started(place)) for place in (folder, ROOT)]
        ready = {(side, name): ask(side, name) for name in names for side in sides}
        times = timed({one: functools.partial(ask, *one, Seconds) for one in ready}, rounds)
    found = [compared(name, slower, *((ready[one, name], times[one, name].seconds) for one in sides)) for name in names]
    print_rows(kept(rows, found))
    if worse := [f"{row['case']} in {row['worse']}" for row in found if row["worse"]]:
        raise SystemExit(f"worse than {before}: {'; '.join(worse)}")


def compared(name: str, slower: float, before: tuple[Values, list[float]], after: tuple[Values, list[float]]) -> Values:
    old, new = spread(before[1]), spread(after[1])
    over = {what: after[0][what] / size for what, size in before[0].items() if size}
    worse = ["seconds"] * (new[0] > slower * old[1]) + [what for what in SIZES if over.get(what, 1) > LARGER]
    return {"case": name, "before": old[1], "seconds": new[1] / old[1], **over, "worse": ", ".join(worse)}


def started(place: Path) -> "subprocess.Popen[str]":
    """A process with the code of one side: it compiles a case when it is asked for first, and times it from then on."""
    environment, pipe = os.environ | {"PYTHONPATH": f"{place / 'src'}:{ROOT}", "MESHFFT_CACHE": "off"}, subprocess.PIPE
    command = [sys.executable, "-m", "benchmarks.guard"]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def ask(side: "subprocess.Popen[str]", name: str, read: Callable[[Any], Any] = dict) -> Any:
    assert side.stdin is not None and side.stdout is not None
    print(name, file=side.stdin, flush=True)
    if not (line := side.stdout.readline()):
        raise SystemExit(f"{name}: its process ended, for the reason above")
    return read(json.loads(line))


def serve() -> None:
    cpu_devices()
    calls = dict[str, Call]()
    for name in map(str.strip, sys.stdin):
        if name in calls:
            answer: Any = clocked(calls[name])[1]
        else:
            calls[name], answer = compiled(CASES[name])
        print(json.dumps(answer), flush=True)


def compiled(case: Case) -> tuple[Call, Values]:
    x = noise(case.shape, case.dtype)
    if not case.mesh:
        return functools.partial(case.call, x), {"compiling": clocked(lambda: case.call(x))[2]}
    given = mf.shard(x, mesh_of(case.mesh), spec_of(case.mesh))
    program, _, taken = clocked(lambda: jax.jit(case.call).lower(given).compile())
    sizes = getattr(program.memory_analysis(), "temp_size_in_bytes", 0), (program.as_text() or "").count("\n")
    return functools.partial(program, given), {"compiling": taken, **dict(zip(SIZES, sizes, strict=True))}


if __name__ == "__main__":
    serve()
