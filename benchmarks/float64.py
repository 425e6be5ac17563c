"""Float64 from products of slices: errors by the number of slices, against direct sums in np.longdouble.

White noise, cut over eight CPU devices along the first dimension: errors at 24 results, of the inverse, and of the
adjoint, <z, F x> - <F* z, x> by the norms of z and F x. Points are uniform, anywhere ("turns"), or within a quarter
step of uniform ones ("near"), whose systems are solved; lines of FFTs stay cut ("line").
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import PartitionSpec as P

import meshfft as mf

from .common import cpu_devices, mesh_of, powers, relative, table
from .rows import kept
from .timing import clocked

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
HEADS = ("case", "slices", "error", "printed", "inverse", "adjoint")


def main(cases: str = ",".join(CASES), tiers: str = "int8x7,int8x6,int8x5,int8x4", rows: Path | None = None) -> None:
    cpu_devices(wide=True)
    found = (row for name in cases.split(",") for row in measured(name, tiers.split(",")))
    table(HEADS, map(_cells, kept(rows, found)))


def _cells(row: dict[str, Any]) -> list[str]:
    values = (row["error"], row["error_expected"], row["inverse"], row["adjoint"])
    return [row["case"], row["precision"], *("" if value is None else f"{value:.1e}" for value in values)]


def measured(name: str, tiers: list[str]) -> Iterator[dict[str, Any]]:
    (shape, kind), random = CASES[name], np.random.default_rng(0)
    x, z = (random.standard_normal(shape) + 1j * random.standard_normal(shape) for _ in range(2))
    n, fft, mesh = shape[0], kind == "fft", mesh_of((8,))
    anywhere = {"turns": random.random(n), "near": (np.arange(n) + random.uniform(-0.25, 0.25, n)) / n}
    turns = anywhere.get(kind)
    where = [np.sort(random.choice(n, SAMPLES, replace=True)) for n in shape[: None if fft else 1]]
    truth = sampled(x, where, turns)
    options: dict[str, Any] = {"method": METHODS.get(kind, "kdft"), "axes": None if fft else (0,)}
    if turns is not None:
        options["points"] = [mf.Points.turns(turns)]
    for tier in tiers:
        plan = mf.plan(shape, mesh=mesh, spec=P("x"), dtype="complex128", precision=tier, **options)
        y, seconds, _ = clocked(functools.partial(plan.__call__, mf.shard(x, mesh, P("x"))))
        found = np.asarray(mf.gather(y))
        adjoint = np.asarray(mf.gather(plan.adjoint(mf.shard(z, mesh, plan.out_layout.spec))))
        apart = abs(np.vdot(z, found) - np.vdot(adjoint, x)) / (np.linalg.norm(z) * np.linalg.norm(found))
        inverse = None if kind == "turns" else plan.solve(y).value if kind == "near" else plan.inverse(y)
        errors: dict[str, float | None] = {"error": relative(found[tuple(where)], truth), "error_expected": plan.error}
        errors |= {"inverse": None if inverse is None else relative(mf.gather(inverse), x), "adjoint": float(apart)}
        what = {"case": name, "shape": shape, "points": kind, "precision": tier, "steps": plan.name}
        yield {**what, **errors, "seconds": seconds}


def sampled(x: np.ndarray, where: list[np.ndarray], turns: np.ndarray | None) -> np.ndarray:
    """The transform at some places, as direct sums in extended precision: (samples, rest)."""
    y = np.broadcast_to(x.astype(np.clongdouble), (len(where[0]), *x.shape))
    for k, n in zip(where, x.shape, strict=False):
        phases = powers(k / np.longdouble(n) if turns is None else turns[k], n)
        y = np.einsum("sn,sn...->s...", phases, y)
    return y
