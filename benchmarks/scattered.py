"""Transforms at scattered points beside finufft on two threads, in one process: CPU time and wall time.

The image is on 8 CPU devices (--devices), or on the GPUs here (--device gpu); values are in the caller's order, or in
the plan's ("placed"). Errors are against direct float64 sums, at 300 random points (type 2) or samples of the image
(type 1; 30 beyond 100,000 points). finufft may exceed its tolerance, and --finufft-tol gives it one of its own.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import meshfft as mf
from meshfft.extras import installed

from .common import mesh_of, noise, numbers, print_rows, relative, spec_of, start
from .measure.cases import balanced
from .measure.flags import calm
from .rows import Values, kept
from .timing import Call, clocked, timed

TRAJECTORIES = {2: ("random", "radial", "spiral"), 3: ("random", "radial")}
GOLDEN = math.pi * (3 - math.sqrt(5))
DRAWN, FEWER, MANY = 300, 30, 100_000


class Case(NamedTuple):
    """Something to time: its type, 1 or 2, its call, what brings the result home, and facts."""

    name: str
    kind: int
    call: Call
    home: Callable[[Any], Any]
    facts: Values


def main(
    shape: str = "512,512",
    tol: str = "1e-3,1e-6",
    points: int = 1_000_000,
    rounds: int = 7,
    device: str = "cpu",
    devices: int = 8,
    finufft_tol: float | None = None,
    rows: Path | None = None,
) -> None:
    calm()
    start(device, count=devices)
    sizes = numbers(shape)
    if len(sizes) not in TRAJECTORIES:
        raise SystemExit(f"--shape {shape}: give an image of two or three dimensions, as 512,512")
    pairs = itertools.product(TRAJECTORIES[len(sizes)], map(float, tol.split(",")))
    found = (row for name, t in pairs for row in measured(sizes, name, t, points, rounds, finufft_tol or t))
    print_rows(kept(rows, found, "finufft"))


def measured(shape: tuple[int, ...], name: str, tol: float, many: int, rounds: int, their_tol: float) -> list[Values]:
    """Rows of both types: meshfft in both orders, and finufft where it is."""
    rng = np.random.default_rng(len(shape))
    k = trajectory_of(name, len(shape), many, rng)
    x, c = noise(shape), noise((len(k),), seed=1)
    cases = [*_ours(k, x, c, tol), *(_finufft(k, x, c, their_tol) if installed("finufft") else ())]
    truths = {1: _type1(k, x.shape, c, rng), 2: _type2(k, x, rng)}
    times = timed({at: one.call for at, one in enumerate(cases)}, rounds)
    what = {"shape": list(shape), "trajectory": name, "points": len(k), "tol": tol}
    rows = []
    for at, case in enumerate(cases):
        where, truth = truths[case.kind]
        row: Values = {**what, "type": case.kind, "case": case.name}
        row |= {"cpu_ms": statistics.median(times[at].cpu) * 1e3, "wall_ms": times[at].median * 1e3}
        row["error"] = relative(np.asarray(case.home(case.call()))[where], truth)
        rows.append({**row, **case.facts})
    return rows


def trajectory_of(name: str, dims: int, many: int, rng: np.random.Generator) -> np.ndarray:
    """About so many points (M, dims) in cycles per sample, M a multiple of 8."""
    if name == "random":
        return rng.random((many - many % 8, dims)) - 0.5
    samples = 8 * (4 - dims) * max(1, round(math.sqrt(many / 8) / 8))
    i = np.arange(max(1, many // samples))[:, None]  # of spokes, or of arms
    if name == "radial":
        radius, angle = (np.arange(samples) - samples // 2) / samples, GOLDEN * i
    else:
        s = (np.arange(samples) + 0.5) / samples
        radius, angle = s / 2, 2 * np.pi * (16 * s + i / len(i))
    z = (1 - (2 * i + 1) / len(i)) * (dims == 3)  # spokes through the whole sphere
    flat = np.sqrt(1 - z * z) * radius
    return np.stack([flat * np.cos(angle), flat * np.sin(angle), z * radius][:dims], -1).reshape(-1, dims)


def _ours(k: np.ndarray, x: np.ndarray, c: np.ndarray, tol: float) -> list[Case]:
    sizes = balanced(len(jax.devices()), x.ndim)
    mesh, spec = mesh_of(sizes), spec_of(sizes)
    made = functools.partial(mf.scattered_plan, mesh=mesh, spec=spec, tol=tol, origin="centre")
    made(x.shape, mf.Scattered.turns(k[::-1]))  # keeps the window; a plan of the same points would be kept, too
    plan, seconds, _ = clocked(lambda: made(x.shape, mf.Scattered.turns(k)))
    image, values = mf.shard(x, mesh, spec), mf.shard(c, mesh, plan.out_layout.spec)
    placed, window = plan.place(values), plan.window
    facts: Values = {"plan_s": seconds, "imbalance": plan.imbalance, "sigma": window.sigma, "width": window.width}
    return [
        Case("meshfft", 2, lambda: plan(image), mf.gather, facts),
        Case("meshfft, placed", 2, lambda: plan(image, placed=True), lambda y: mf.gather(plan.restore(y)), facts),
        Case("meshfft", 1, lambda: plan.adjoint(values), mf.gather, facts),
        Case("meshfft, placed", 1, lambda: plan.adjoint(placed, placed=True), mf.gather, facts),
    ]


def _finufft(k: np.ndarray, x: np.ndarray, c: np.ndarray, tol: float) -> list[Case]:
    finufft, cases = import_module("finufft"), []
    turns = ((k + 0.5) % 1 - 0.5) * 2 * np.pi
    coordinates = [np.ascontiguousarray(one, np.float32) for one in turns.T]
    for kind, sign, given in ((2, -1, x), (1, 1, c)):
        plan = finufft.Plan(kind, x.shape, eps=tol, isign=sign, dtype="complex64", nthreads=2)
        _, seconds, _ = clocked(functools.partial(plan.setpts, *coordinates))
        cases.append(
            Case("finufft", kind, functools.partial(plan.execute, given), np.asarray, {"plan_s": seconds, "tol": tol})
        )
    return cases


def _type2(k: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    at = rng.integers(0, len(k), min(DRAWN, len(k)))
    waves = [np.exp(-2j * np.pi * np.outer(k[at, d], np.arange(n) - n // 2)) for d, n in enumerate(x.shape)]
    sums = "mn,jm,jn->j" if x.ndim == 2 else "mno,jm,jn,jo->j"
    return (at,), np.einsum(sums, x, *waves, optimize=True)


def _type1(k: np.ndarray, shape: tuple[int, ...], c: np.ndarray, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    at = tuple(rng.integers(0, n, DRAWN if len(k) <= MANY else FEWER) for n in shape)
    modes = np.stack([i - n // 2 for i, n in zip(at, shape, strict=True)], -1)
    sums = [np.exp(2j * np.pi * ((k @ mode) % 1)) @ c.astype(np.complex128) for mode in modes]
    return at, np.array(sums)
