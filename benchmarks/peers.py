"""How long one 256^3 complex64 transform takes: meshfft against its peers, in one run on one machine.

    python benchmarks/peers.py --out benchmarks/peers.jsonl        (about two minutes on two quiet cores)

Eight CPU devices in one process for meshfft, `jnp.fft.fftn` and jaxDecomp; two MPI ranks, in a child process that
sleeps between calls, for mpi4py-fft. Calls are interleaved: a round times every case once, in an order shuffled anew,
and slow cases join one round in three. Inputs stay where they are; each call makes a new output (mpi4py-fft reuses its
own, which favours it). The table gives median, least and largest time, the ratio of medians to the fastest
jaxDecomp case, and the relative L2 error against SciPy's complex128 transform. A peer that is not installed, or that
refuses a case, is listed with the reason. `--out` appends one JSON line a case. Installation: benchmarks/README.md.
"""

import argparse
import json
import os
import random
import re
import shlex
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.fft
from machine import cpu_model, git_commit, version
from peer_cases import Case, Data, MpiChild, all_cases

HERE = Path(__file__).resolve().parent
DEVICES = 8
PACKAGES = ("meshfft", "jax", "jaxlib", "jaxdecomp", "mpi4py", "mpi4py-fft", "numpy", "scipy")


def make_data(size: int, folder: Path) -> Data:
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((size, size, size, 2), dtype=np.float32)
    x = planes.view(np.complex64)[..., 0]
    truth = scipy.fft.fftn(x.astype(np.complex128), workers=os.cpu_count())
    np.save(folder / "x.npy", x)
    np.save(folder / "truth.npy", truth)
    return Data(x, truth, folder)


def prepare(case: Case) -> None:
    """Compiles a case, or notes why it is absent."""
    print(f"  {case.name}, {case.mesh}", file=sys.stderr, flush=True)
    try:
        case.timer, case.error = case.prepare()
    except Exception as reason:  # whatever a peer raises is a row of the table, not the end of the run
        case.absent = f"{type(reason).__name__}: {reason}".splitlines()[0][:160]


def time_rounds(cases: list[Case], rounds: int) -> None:
    """Times every present case once a round, in a new order each round."""
    shuffle = random.Random(0).shuffle
    for turn in range(rounds):
        due = [case for case in cases if case.timer is not None and turn % case.every == 0]
        shuffle(due)
        for case in due:
            assert case.timer is not None
            case.seconds.append(case.timer())


def table(cases: list[Case]) -> str:
    medians = [statistics.median(c.seconds) for c in cases if c.name.startswith("jaxDecomp") and c.seconds]
    base = min(medians, default=float("nan"))
    lines = [f"{'name':32} {'mesh':18} {'median ms':>9} {'min':>8} {'max':>8} {'/jaxDecomp':>10} {'rel. error':>10}"]
    for case in cases:
        lines.append(f"{case.name:32} {case.mesh:18} " + columns(case, base))
    return "\n".join(lines)


def columns(case: Case, base: float) -> str:
    if not case.seconds:
        return f"absent: {case.absent}"
    median, low, high = statistics.median(case.seconds), min(case.seconds), max(case.seconds)
    return f"{1e3 * median:9.1f} {1e3 * low:8.1f} {1e3 * high:8.1f} {median / base:10.2f} {case.error:10.1e}"


def circumstances(size: int, load: float, versions: dict[str, Any]) -> dict[str, Any]:
    return {
        "shape": [size] * 3,
        "dtype": "complex64",
        "devices": DEVICES,
        "versions": {package: version(package) for package in PACKAGES} | versions,
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "commit": git_commit(),
        "command": shlex.join(["python", "benchmarks/peers.py", *sys.argv[1:]]),
    }


def append_rows(path: Path, cases: list[Case], common: dict[str, Any]) -> None:
    with open(path, "a") as out:
        for case in cases:
            row = {
                "case": case.name,
                "mesh": case.mesh,
                "seconds": case.seconds,
                "error": case.error,
                "absent": case.absent,
            }
            out.write(json.dumps(row | common) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=15, help="interleaved rounds (default 15; slow cases join a third)"
    )
    parser.add_argument("--size", type=int, default=256, help="points per dimension (default 256)")
    parser.add_argument("--only", default="", help="regular expression on 'name mesh'; other cases are left out")
    parser.add_argument("--out", type=Path, help="file to which one JSON line a case is appended")
    return parser.parse_args()


def main() -> None:
    options, load = arguments(), os.getloadavg()[0]
    jax.config.update("jax_num_cpu_devices", DEVICES)
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(options.size, Path(folder))
        child = MpiChild(data.folder)
        cases = [case for case in all_cases(data, child) if re.search(options.only, f"{case.name} {case.mesh}")]
        for case in cases:
            prepare(case)
        common = circumstances(options.size, load, child.versions)
        time_rounds(cases, options.rounds)
        child.stop()
    print(json.dumps(common), table(cases), sep="\n\n")
    if options.out is not None:
        append_rows(options.out, cases, common)


if __name__ == "__main__":
    main()
