"""One MPI rank of the baseline mpi4py-fft: waits asleep, transforms when told to, answers with seconds.

Run by path, and apart from meshfft, so that no rank loads JAX. Rank 0 reads one JSON request a line on stdin and writes
one JSON answer a line:

    (at the start)                                      {"mpi": library, "ranks": count}
    {"do": "plan", "name", "folder", "grid", "merge"}   {"error": e}     relative L2 error over all ranks
    {"do": "run", "name"}                               {"seconds": s}   one forward transform, the slowest rank's time

The folder holds x.npy and truth.npy, its transform. Invariant: between requests no rank burns a core. Rank 0 blocks on
stdin; the others poll with a sleep, because a rank that waits in a collective call of Open MPI spins.
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
POLL_SECONDS = 5e-3  # 0.4% of a core while waiting


class Transform:
    """A planned transform (FFTW_MEASURE, mpi4py-fft's default) and its rank's part of the input and of the truth."""

    def __init__(self, folder: str, grid: list[int], merge: bool) -> None:
        x = np.load(Path(folder) / "x.npy", mmap_mode="r")
        self.plan = PFFT(COMM, x.shape, dtype=x.dtype.char, grid=grid, collapse=merge)
        self.input = newDistArray(self.plan, forward_output=False)
        self.input[...] = x[self.plan.local_slice(False)]
        self.truth = np.load(Path(folder) / "truth.npy", mmap_mode="r")[self.plan.local_slice(True)]

    def forward(self) -> np.ndarray:
        """The plan destroys its own input buffer, so the input is passed; the output buffer is returned uncopied."""
        return self.plan.forward(self.input, normalize=False)

    def run(self) -> dict[str, float]:
        COMM.Barrier()
        start = time.perf_counter()
        self.forward()
        return {"seconds": COMM.allreduce(time.perf_counter() - start, op=MPI.MAX)}

    def error(self) -> dict[str, float]:
        difference = COMM.allreduce(float(np.sum(np.abs(self.forward() - self.truth) ** 2)))
        return {"error": (difference / COMM.allreduce(float(np.sum(np.abs(self.truth) ** 2)))) ** 0.5}


def next_request() -> dict[str, Any]:
    """What rank 0 reads next, on every rank; empty at the end of the input."""
    if COMM.rank == 0:
        line = sys.stdin.readline()
        request = json.loads(line) if line else {}
        for rank in range(1, COMM.size):
            COMM.send(request, dest=rank)
        return request
    while not COMM.Iprobe(source=0):
        time.sleep(POLL_SECONDS)
    return COMM.recv(source=0)


def answer(row: dict[str, Any]) -> None:
    if COMM.rank == 0:
        print(json.dumps(row), flush=True)


def main() -> None:
    transforms: dict[str, Transform] = {}
    answer({"mpi": MPI.Get_library_version().split(",")[0], "ranks": COMM.size})
    while request := next_request():
        name = request["name"]
        if request["do"] == "plan":
            transforms[name] = Transform(request["folder"], request["grid"], request["merge"])
            answer(transforms[name].error())
        else:
            answer(transforms[name].run())


if __name__ == "__main__":
    main()
