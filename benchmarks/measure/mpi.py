"""Runs the baseline mpi4py-fft by `mpiexec`, one run for each case, which sleeps between calls; see `mpi_rank`.

Invariant: a case is started once, however often it is asked for, since its ranks keep several arrays.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..timing import Seconds
from .baselines import SLAB
from .cases import Case
from .data import Data, Prepared

OPEN_MPI = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
PATIENCE = 30.0  # seconds that ranks have to end


class MpiRanks:
    """The runs of some cases; a context, at whose end they end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._runs: dict[tuple[Case, str], tuple[subprocess.Popen[str], Path, Any]] = {}

    def __enter__(self) -> "MpiRanks":
        return self

    def __exit__(self, *_: object) -> None:
        for started in self._runs.values():
            _stop(started[0])
        self._folder.cleanup()

    def prepare(self, case: Case, data: Data, turns: int = 0) -> Prepared:
        """Starts the ranks of a case, which plan and check it; a call is one transform, or several round trips."""
        if shutil.which("mpiexec") is None:
            raise RuntimeError("mpiexec is not installed: on Debian apt-get install openmpi-bin")
        if case.method != SLAB and len(case.shape) < 3:
            raise RuntimeError("a pencil needs three dimensions")
        key = case, self._saved(data)
        if key not in self._runs:
            self._runs[key] = self._started(*key)
        run, log, first = self._runs[key]
        line = f"turns {turns}\n" if turns else "run\n"
        return Prepared(lambda: Seconds(_answer(run, log, line)), first["error"], first["versions"])

    def _started(self, case: Case, folder: str) -> tuple[subprocess.Popen[str], Path, Any]:
        grid = ",".join(map(str, [*case.mesh, *[1] * (len(case.shape) - len(case.mesh))]))
        program = [sys.executable, "-P", str(Path(__file__).with_name("mpi_rank.py"))]  # -P: its folder hides no module
        command = ["mpiexec", "-n", str(case.devices), *OPEN_MPI, *program, folder, grid, case.method]
        log = Path(self._folder.name) / f"{len(self._runs)}.log"
        with open(log, "w") as errors:
            run = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )
        return run, log, _answer(run, log)

    def _saved(self, data: Data) -> str:
        folder = Path(self._folder.name) / re.sub(r"\W+", "-", str(tuple(data.task)))
        if not folder.exists():
            folder.mkdir()
            np.save(folder / "x.npy", data.x)
            np.save(folder / "truth.npy", data.truth)
        return str(folder)


def _answer(run: subprocess.Popen[str], log: Path, asked: str = "") -> Any:
    assert run.stdin is not None and run.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # they have ended; the log has the reason
        run.stdin.write(asked)
        run.stdin.flush()
    if line := run.stdout.readline():
        return json.loads(line)
    _stop(run)
    errors = re.findall(r"^\w*Error: .*$", log.read_text(), re.MULTILINE)
    raise RuntimeError(errors[-1] if errors else "the MPI ranks ended early")


def _stop(run: subprocess.Popen[str]) -> None:
    try:
        run.communicate(timeout=PATIENCE)
    except (subprocess.TimeoutExpired, ValueError):  # ValueError: its input is closed already
        run.kill()
        run.wait()
