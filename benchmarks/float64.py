"""Float64 from products of slices: errors by the number of slices, against direct sums in extended precision.

    python -m benchmarks float64 [--cases NAME ...] [--rows FILE]    (half an hour on two cores for all of them)

Arrays are white noise, cut over eight CPU devices along the first dimension. A row is a case and a number of slices:
the relative L2 error of sampled results of the transform, of the inverse against the array where there is one, and of
the adjoint, <z, F x> - <F* z, x> by the norms of z and F x. Sums are direct, in np.longdouble, at 24 sampled places.
Points are uniform, anywhere ("turns"), or anywhere within a quarter of a step of the uniform ones ("near"), whose
systems are solved in the same tier; lines of FFTs stay cut, by the paper's ("line").
"""

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")
CASES: dict[str, tuple[tuple[int, ...], str]] = {
    "kdft-64": ((64, 3), "turns"),
    "kdft-1000": ((1000, 3), "turns"),
    "kdft-8192": ((8192, 1), "turns"),
    "kdft-uniform-1000": ((1000, 3), "uniform"),
    "kdft-near-64": ((64, 3), "near"),
    "kdft-near-1000": ((1000, 3), "near"),
    "fft-97x113x89": ((97, 113, 89), "fft"),
    "fft-128": ((128, 128, 128), "fft"),
    "fft-256": ((256, 256, 256), "fft"),
    "fft-line-97": ((97, 3), "line"),
    "fft-line-1000": ((1000, 3), "line"),
    "fft-line": ((2**20,), "line"),
}
METHODS = {"fft": "transpose", "line": "cooley-tukey"}
SAMPLES = 24
TIERS = ("int8x7", "int8x6", "int8x5", "int8x4")


def measured(name: str, tiers: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A row for each number of slices."""
    import jax
    from jax.sharding import PartitionSpec as P

    import meshfft as mf
    from benchmarks.made import circumstances

    (shape, kind), random = CASES[name], np.random.default_rng(0)
    x, z = (random.standard_normal(shape) + 1j * random.standard_normal(shape) for _ in range(2))
    n, fft = shape[0], kind == "fft"
    anywhere = {"turns": random.random(n), "near": (np.arange(n) + random.uniform(-0.25, 0.25, n)) / n}
    turns = anywhere.get(kind)
    where = [np.sort(random.choice(n, SAMPLES, replace=True)) for n in shape[: None if fft else 1]]
    truth, mesh = sampled(x, where, turns), jax.make_mesh((8,), ("x",))
    options: dict[str, Any] = {"method": METHODS.get(kind, "kdft"), "axes": None if fft else (0,)}
    if turns is not None:
        options["points"] = [mf.Points.turns(turns)]
    for tier in tiers:
        plan = mf.plan(shape, mesh=mesh, spec=P("x"), dtype="complex128", precision=tier, **options)
        begun = time.perf_counter()
        y = plan(mf.shard(x, mesh, P("x")))
        found = np.asarray(mf.gather(y))
        seconds = time.perf_counter() - begun
        adjoint = np.asarray(mf.gather(plan.adjoint(mf.shard(z, mesh, plan.out_layout.spec))))
        apart = abs(np.vdot(z, found) - np.vdot(adjoint, x)) / (np.linalg.norm(z) * np.linalg.norm(found))
        inverse = None if kind == "turns" else plan.solve(y).value if kind == "near" else plan.inverse(y)
        back = None if inverse is None else off(np.asarray(mf.gather(inverse)), x)
        errors = {"error": off(found[tuple(where)], truth), "error_expected": plan.error}
        row = {"case": name, "shape": list(shape), "points": kind, "precision": tier, "steps": plan.name, **errors}
        yield {**row, "inverse": back, "adjoint": float(apart), "seconds": seconds, **circumstances(PACKAGES)}


def sampled(x: np.ndarray, where: list[np.ndarray], turns: np.ndarray | None) -> np.ndarray:
    """The transform at some places, as direct sums in extended precision: (samples, rest)."""
    tau, y = 8 * np.arctan(np.longdouble(1)), x.astype(np.clongdouble)[None]
    for dim, k in enumerate(where):
        n = np.arange(x.shape[dim])
        if turns is None:
            angle = (k[:, None] * n % len(n)).astype(np.longdouble) / len(n)
        else:
            angle = turns[k].astype(np.longdouble)[:, None] * n
        phases = np.exp(-1j * tau * (angle - np.floor(angle)))
        y = phases @ y[0].reshape(len(n), -1) if dim == 0 else np.einsum("sn,snr->sr", phases, y)
        y = y.reshape(len(k), *x.shape[dim + 1 : dim + 2], -1) if dim + 1 < x.ndim else y
    return np.asarray(y).reshape(len(where[0]), *x.shape[len(where) :])


def off(y: np.ndarray, truth: np.ndarray) -> float:
    """The relative L2 error."""
    return float(np.linalg.norm((y - truth).astype(complex)) / np.linalg.norm(truth.astype(complex)))


def table(rows: list[dict[str, Any]]) -> str:
    """For docs/accuracy.md."""
    heads = ["case", "slices", "error", "printed", "inverse", "adjoint"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in rows:
        values = (row["error"], row["error_expected"], row["inverse"], row["adjoint"])
        texts = ["" if value is None else f"{value:.1e}" for value in values]
        lines.append("| " + " | ".join([row["case"], row["precision"], *texts]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=TIERS)
    parser.add_argument("--rows", type=Path, help="file of rows that is written, one JSON line each")
    given = parser.parse_args()
    import jax

    from benchmarks.jsonl import write

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    command, rows = shlex.join(["python", *sys.orig_argv[1:]]), list[dict[str, Any]]()
    for name in given.cases:
        for row in measured(name, tuple(given.tiers)):
            rows.append({**row, "command": command})
            print(table(rows[-1:]).splitlines()[-1], flush=True)
            if given.rows is not None:
                write(given.rows, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
