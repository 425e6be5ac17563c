"""Runs the baseline mpi4py-fft by `mpiexec`, one run for each case, which sleeps between calls; see `mpi_rank`.

Invariant: a case is started once, however often it is asked for, since its ranks keep several arrays.
"""

import contextlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

import numpy as np

from ..timing import Seconds
from .cases import Case
from .data import Data, Prepared

OPEN_MPI = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")


class MpiRanks(contextlib.ExitStack):
    """The runs of some cases, each by `start` and options of Open MPI; a context, at whose end they end."""

    def __init__(self, start: Sequence[str] = ("mpiexec",), environment: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._start, self._environment = start, environment
        self._folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        self._runs: dict[Case, tuple[Popen[str], Path, Any]] = {}

    def prepare(self, case: Case, data: Data, turns: int = 0) -> Prepared:
        """Starts the ranks of a case, which plan and check it; a call is one transform, or several round trips."""
        if shutil.which("mpiexec") is None:
            raise RuntimeError("mpiexec is not installed: on Debian apt-get install openmpi-bin")
        if len(case.task.shape) < 2:
            raise ValueError("it does two dimensions and more")
        if case not in self._runs:
            self._runs[case] = self._started(case, self._saved(data))
        run, log, first = self._runs[case]
        return Prepared(lambda: Seconds(_answer(run, log, f"{turns}\n")), first["error"], first["versions"])

    def _started(self, case: Case, folder: str) -> tuple[Popen[str], Path, Any]:
        grid = ",".join(map(str, [*case.mesh, *[1] * (len(case.task.shape) - len(case.mesh))]))
        program = [sys.executable, "-P", str(Path(__file__).with_name("mpi_rank.py"))]  # -P: its folder hides no module
        command = [*self._start, "-n", str(case.devices), *OPEN_MPI, *program, folder, grid, case.method]
        log = self._folder / f"{len(self._runs)}.log"
        with open(log, "w") as errors:
            run = Popen(command, stdin=PIPE, stdout=PIPE, stderr=errors, text=True, bufsize=1, env=self._environment)
        self.callback(_stop, run)
        return run, log, _answer(run, log)

    def _saved(self, data: Data) -> str:
        folder = self._folder / re.sub(r"\W+", "-", str(tuple(data.task)))
        if not folder.exists():
            folder.mkdir()
            np.save(folder / "x.npy", data.x)
            np.save(folder / "truth.npy", data.truth)
        return str(folder)


def _answer(run: Popen[str], log: Path, asked: str = "") -> Any:
    assert run.stdin is not None and run.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # they have ended; the log has the reason
        run.stdin.write(asked)
        run.stdin.flush()
    if line := run.stdout.readline():
        return json.loads(line)
    _stop(run)
    errors = re.findall(r"^\w*Error: .*$", log.read_text(), re.MULTILINE)
    raise RuntimeError(errors[-1] if errors else "the MPI ranks ended early")


def _stop(run: Popen[str]) -> None:
    try:
        run.communicate(timeout=30)
    except (TimeoutExpired, ValueError):  # ValueError: its input is closed already
        run.kill()
        run.wait()
