"""mpi4py-fft, started by MPI: `mpiexec -n 2 python mpi_rank.py FOLDER 2,1,1 slab`; apart from meshfft, without JAX.

Prints a line of JSON with the error over all ranks. For every line that rank 0 reads, it runs a forward transform ("0")
or so many round trips in the plan's own buffers, and prints the slowest rank's seconds. Between transforms no rank
burns a core: rank 0 blocks on its input, and the rest poll, as ranks that wait in a collective of Open MPI spin.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray

COMM = MPI.COMM_WORLD


def wanted() -> str:
    """The next request, on every rank once rank 0 has read a line; nothing at the end."""
    if COMM.rank == 0:
        line = sys.stdin.readline()
        for rank in range(1, COMM.size):
            COMM.send(line, dest=rank)
        return line
    while not COMM.Iprobe(source=0):
        time.sleep(1e-2)  # below 0.3% of a core
    return str(COMM.recv(source=0))


def answer(value: Any) -> None:
    if COMM.rank == 0:
        print(json.dumps(value), flush=True)


def main(folder: Path, grid: list[int], merge: bool) -> None:
    """Plans by FFTW_MEASURE, mpi4py-fft's default. `forward` destroys the plan's own buffer, so the input is passed."""
    given, truth = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "truth"))
    plan = PFFT(COMM, given.shape, dtype=given.dtype.char, grid=grid, collapse=merge)
    x = newDistArray(plan, forward_output=False)
    x[...] = given[plan.local_slice(False)]
    right = truth[plan.local_slice(True)]
    apart = COMM.allreduce(float(np.sum(np.abs(plan.forward(x, normalize=False) - right) ** 2)))
    error = (apart / COMM.allreduce(float(np.sum(np.abs(right) ** 2)))) ** 0.5
    answer({"error": error, "versions": {"mpi": MPI.Get_library_version().split(",")[0], "ranks": COMM.size}})
    while line := wanted():
        COMM.Barrier()
        start = time.perf_counter()
        if not (turns := int(line)):
            plan.forward(x, normalize=False)
        for _ in range(turns):
            plan.forward(normalize=True)
            plan.backward(normalize=False)
        answer(COMM.allreduce(time.perf_counter() - start, op=MPI.MAX))


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(map(int, sys.argv[2].split(","))), sys.argv[3] == "slab")
