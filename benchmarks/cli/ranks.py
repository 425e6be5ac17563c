"""Starts MPI ranks for the baseline mpi4py-fft, one `mpirun` for each number of ranks, and talks to them.

One JSON request a line in, one JSON answer a line out; see `rank`.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..measure.baselines import SLAB
from ..measure.cases import Case, Task
from ..measure.data import Data
from ..measure.prepared import Prepared

OPEN_MPI = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
PATIENCE = 30.0  # seconds that ranks have to end


class MpiRanks:
    """Ranks that sleep between calls; a context, at whose end they end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._tasks: dict[Task, Path] = {}
        self._started: dict[int, _Run] = {}

    def __enter__(self) -> "MpiRanks":
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._started.values():
            run.stop()
        self._folder.cleanup()

    def prepare(self, case: Case, data: Data) -> Prepared:
        """Has the ranks plan a case and check it.

        Raises:
            RuntimeError: they cannot be started, fail (with the last error they wrote), or have no such grid.
        """
        if case.method != SLAB and len(case.shape) < 3:
            raise RuntimeError("a pencil needs three dimensions")
        grid = [*case.mesh, *[1] * (len(case.shape) - len(case.mesh))]
        name, merge = f"{case.name} {case.task}", case.method == SLAB
        run = self._run(case.devices)
        request = {"do": "plan", "name": name, "folder": str(self._saved(data)), "grid": grid, "merge": merge}
        try:
            error = run.ask(request)["error"]
        except RuntimeError:
            del self._started[case.devices]  # they have ended: others may fare better
            raise
        return Prepared(lambda: run.ask({"do": "run", "name": name})["seconds"], error, run.versions)

    def _run(self, count: int) -> "_Run":
        if count not in self._started:
            self._started[count] = _Run(count, Path(self._folder.name))
        return self._started[count]

    def _saved(self, data: Data) -> Path:
        """The folder with the input and the truth of a task."""
        if data.task not in self._tasks:
            folder = Path(tempfile.mkdtemp(dir=self._folder.name))
            np.save(folder / "x.npy", data.x)
            np.save(folder / "truth.npy", data.truth)
            self._tasks[data.task] = folder
        return self._tasks[data.task]


class _Run:
    """One `mpirun`."""

    def __init__(self, count: int, folder: Path) -> None:
        if shutil.which("mpirun") is None:
            raise RuntimeError("mpirun is not installed: on Debian apt-get install openmpi-bin")
        rank = [sys.executable, "-P", str(Path(__file__).with_name("rank.py"))]  # -P: its folder hides no module
        command, pipe = ["mpirun", "-n", str(count), *OPEN_MPI, *rank], subprocess.PIPE
        self.log = folder / f"{count}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
        self.versions = self._answer()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # they have ended; the answer says why
        return self._answer()

    def stop(self) -> None:
        """Closes their input, and waits until they have ended."""
        try:
            self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.stop()
            errors = re.findall(r"^\w*Error: .*$", self.log.read_text(), re.MULTILINE)
            raise RuntimeError(errors[-1] if errors else "the MPI ranks ended early")
        return dict(json.loads(line))
