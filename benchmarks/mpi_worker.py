"""One rank of the mpi4py-fft peer of `peers.py`: waits asleep, transforms when told to, answers with seconds.

Started by `peers.py` as `mpirun -n 2 python mpi_worker.py FOLDER`, where FOLDER holds x.npy (complex64 input) and
truth.npy (its complex128 transform). Rank 0 reads one request a line on stdin and writes one JSON answer a line:

    (at the start)   {"versions": {...}} or {"absent": "why"}
    run NAME         {"seconds": s}         one forward transform, the slowest rank's time, barrier before
    error NAME       {"error": e}           relative L2 error against truth.npy, summed over the ranks

Invariant: between requests no rank burns a core. Rank 0 blocks on stdin; the others poll with a sleep, because a
rank that waits in a collective call of Open MPI spins.
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

# name -> process grid and whether serial transforms over undistributed dimensions are merged into one FFTW plan
CASES: dict[str, dict[str, Any]] = {
    "slab": {"grid": (-1, 1, 1), "collapse": True},
    "pencil": {"grid": (1, -1, 1), "collapse": False},
}


class Transform:
    """A planned transform (FFTW_MEASURE, mpi4py-fft's default) and its rank's part of the input and of the truth."""

    def __init__(self, folder: Path, grid: tuple[int, ...], collapse: bool) -> None:
        x = np.load(folder / "x.npy", mmap_mode="r")
        self.plan = PFFT(COMM, x.shape, dtype=x.dtype.char, grid=grid, collapse=collapse)
        self.input = newDistArray(self.plan, forward_output=False)
        self.input[...] = x[self.plan.local_slice(False)]
        self.truth = np.load(folder / "truth.npy", mmap_mode="r")[self.plan.local_slice(True)]

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


def next_request() -> list[str]:
    """The words of the next line of rank 0's stdin, on every rank; empty at the end of the input."""
    if COMM.rank == 0:
        words = sys.stdin.readline().split()
        for rank in range(1, COMM.size):
            COMM.send(words, dest=rank)
        return words
    while not COMM.Iprobe(source=0):
        time.sleep(POLL_SECONDS)
    return COMM.recv(source=0)


def answer(row: dict[str, Any]) -> None:
    if COMM.rank == 0:
        print(json.dumps(row), flush=True)


def main() -> None:
    folder = Path(sys.argv[1])
    transforms = {name: Transform(folder, **options) for name, options in CASES.items()}
    answer({"versions": {"mpi": MPI.Get_library_version().split(",")[0], "ranks": COMM.size}})
    while words := next_request():
        transform = transforms[words[1]]
        answer(transform.run() if words[0] == "run" else transform.error())


if __name__ == "__main__":
    main()
