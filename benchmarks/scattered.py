"""Transforms at scattered points beside finufft on two threads, in one process: seconds of the cores, and on the clock.

    python -m benchmarks scattered [--shape 512,512] [--tol 1e-3,1e-6] [--trajectory random,radial,spiral]
                                   [--points 1000000] [--rounds 7] [--json] [--rows FILE]

The image lies on 8 CPU devices, 2 x 4 in two dimensions and 2 x 2 x 2 in three. Values lie as the caller has them, or
in the plan's order ("placed"). A round runs each case once; the medians are of process time, which other work disturbs
least. Samples count from the middle, as finufft's do. Errors are against direct float64 sums, at 300 drawn points
(type 2) or samples of the image (type 1; 30 of them beyond 100,000 points). `pip install finufft` for the baseline:
without it meshfft is timed alone. Its threads are told not to spin on into the calls of others.
"""

import argparse
import functools
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

import meshfft as mf
from benchmarks.cli.speed import CALM
from benchmarks.jsonl import append

MESHES = {2: (2, 4), 3: (2, 2, 2)}
TRAJECTORIES = {2: ("random", "radial", "spiral"), 3: ("random", "koosh")}
GOLDEN = math.pi * (3 - math.sqrt(5))
DRAWN, FEWER, MANY = 300, 30, 100_000
COLUMNS = ("shape", "trajectory", "tol", "type", "case", "cpu_ms", "wall_ms", "error", "plan_s", "imbalance")


class Case(NamedTuple):
    """Something to time."""

    name: str
    kind: int  # type 1 or 2
    call: Callable[[], Any]
    result: Callable[[], np.ndarray]
    planned: float  # seconds of the host
    facts: dict[str, Any]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="512,512")
    parser.add_argument("--tol", default="1e-3,1e-6")
    parser.add_argument("--trajectory", help="of two dimensions random, radial, spiral; of three random, koosh")
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args(arguments)
    shape = tuple(map(int, options.shape.split(",")))
    if len(shape) not in TRAJECTORIES:
        parser.error(f"--shape {options.shape} has {len(shape)} dimensions: give 2 or 3")
    known = TRAJECTORIES[len(shape)]
    names = options.trajectory.split(",") if options.trajectory else known
    if not set(names) <= set(known):
        parser.error(f"--trajectory {options.trajectory}: in {len(shape)} dimensions there are {', '.join(known)}")
    if not options.json:
        print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for name in names:
        for tol in map(float, options.tol.split(",")):
            rows = measured(shape, name, tol, options.points, options.rounds)
            for row in rows:
                print(json.dumps(row) if options.json else _line(row), flush=True)
            append(options.rows, rows, ("finufft",))


def measured(shape: tuple[int, ...], name: str, tol: float, many: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of both types: meshfft in both orders, and finufft where it is."""
    rng = np.random.default_rng(len(shape))
    k = trajectory(name, len(shape), many, rng)
    x, c = (_drawn(rng, size) for size in (shape, (len(k),)))
    cases = _ours(k, x, c, tol) + _finufft(k, x, c, tol)
    truths = {1: _type1(k, x.shape, c, rng), 2: _type2(k, x, rng)}
    errors = [_error(case.result(), *truths[case.kind]) for case in cases]
    times = _interleaved([case.call for case in cases], rounds)
    what = {"shape": list(shape), "trajectory": name, "points": len(k), "tol": tol}
    rows = []
    for case, (cpu, wall), error in zip(cases, times, errors, strict=True):
        spent = {"cpu_ms": cpu * 1e3, "wall_ms": wall * 1e3, "error": error, "plan_s": case.planned}
        rows.append({**what, "type": case.kind, "case": case.name, **spent, **case.facts})
    return rows


def trajectory(name: str, dims: int, many: int, rng: np.random.Generator) -> np.ndarray:
    """About so many points (M, d) in turns, M a multiple of 8."""
    if name == "random":
        return rng.random((many - many % 8, dims)) - 0.5
    samples = 8 * max(1, round(math.sqrt(many / 8) / 8)) * (2 if dims == 2 else 1)
    i, along = np.arange(max(1, many // samples)), (np.arange(samples) - samples // 2) / samples
    if name == "spiral":
        s = (np.arange(samples) + 0.5) / samples
        angle = 2 * np.pi * (16 * s + i[:, None] / len(i))
        return np.stack([s / 2 * np.cos(angle), s / 2 * np.sin(angle)], -1).reshape(-1, 2)
    directions = np.stack([np.cos(i * GOLDEN), np.sin(i * GOLDEN)], -1)
    if dims == 3:  # the koosh ball: spokes through the whole sphere
        z = 1 - (2 * i[:, None] + 1) / len(i)
        directions = np.concatenate([np.sqrt(1 - z * z) * directions, z], -1)
    points: np.ndarray = (along[:, None] * directions[:, None]).reshape(-1, dims)
    return points


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    pairs: np.ndarray = rng.standard_normal((*shape, 2), np.float32)
    return pairs.view(np.complex64)[..., 0]


def _ours(k: np.ndarray, x: np.ndarray, c: np.ndarray, tol: float) -> list[Case]:
    """meshfft, values as the caller has them and in the plan's order."""
    names = "xyz"[: x.ndim]
    mesh = jax.make_mesh(MESHES[x.ndim], tuple(names), axis_types=(jax.sharding.AxisType.Auto,) * x.ndim)
    begun = time.perf_counter()
    plan = mf.scattered_plan(x.shape, mf.Scattered.turns(k), mesh=mesh, spec=P(*names), tol=tol, origin="centre")
    seconds = time.perf_counter() - begun
    image, values = mf.shard(x, mesh, P(*names)), mf.shard(c, mesh, plan.out_layout.spec)
    slots, ready, window = plan.place(values), jax.block_until_ready, plan.window
    facts = {"imbalance": plan.imbalance, "sigma": window.sigma, "width": window.width, "grid": list(plan.grid)}

    def case(name: str, kind: int, call: Callable[[], Any], home: Callable[[Any], Any] = lambda y: y) -> Case:
        return Case(name, kind, lambda: ready(call()), lambda: mf.gather(home(call())), seconds, facts)

    return [
        case("meshfft", 2, lambda: plan(image)),
        case("meshfft, placed", 2, lambda: plan(image, placed=True), plan.restore),
        case("meshfft", 1, lambda: plan.adjoint(values)),
        case("meshfft, placed", 1, lambda: plan.adjoint(slots, placed=True)),
    ]


def _finufft(k: np.ndarray, x: np.ndarray, c: np.ndarray, tol: float) -> list[Case]:
    """finufft in float32 on two threads; nothing where it is not installed."""
    try:
        finufft = import_module("finufft")
    except ImportError:
        return []
    turns = ((k + 0.5) % 1 - 0.5) * 2 * np.pi
    coordinates = [np.ascontiguousarray(one, np.float32) for one in turns.T]
    cases = []
    for kind, sign, given in ((2, -1, x), (1, 1, c)):
        plan = finufft.Plan(kind, x.shape, eps=tol, isign=sign, dtype="complex64", nthreads=2)
        begun = time.perf_counter()
        plan.setpts(*coordinates)
        seconds = time.perf_counter() - begun
        call = functools.partial(plan.execute, given)
        cases.append(Case("finufft", kind, call, call, seconds, {}))
    return cases


def _interleaved(calls: list[Callable[[], Any]], rounds: int) -> list[tuple[float, float]]:
    """Medians of process time and of wall time, in seconds, of calls that have run before."""
    times: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, kept in zip(calls, times, strict=True):
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            kept.append((time.process_time() - cpu, time.perf_counter() - wall))
    return [(statistics.median(c for c, _ in one), statistics.median(w for _, w in one)) for one in times]


def _type2(k: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Drawn points, and the sums there: one dimension after the other, the last one first."""
    at = rng.integers(0, len(k), min(DRAWN, len(k)))
    waves = [np.exp(-2j * np.pi * np.outer(k[at, d], np.arange(n) - n // 2)) for d, n in enumerate(x.shape)]
    sums = np.einsum("...n,jn->j...", x, waves[-1], optimize=True)
    for wave in waves[-2::-1]:
        sums = np.einsum("j...n,jn->j...", sums, wave)
    return (at,), sums


def _type1(k: np.ndarray, shape: tuple[int, ...], c: np.ndarray, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Drawn samples of the image, and the sums there."""
    many = DRAWN if len(k) <= MANY else FEWER
    at = tuple(rng.integers(0, n, many) for n in shape)
    modes = np.stack([i - n // 2 for i, n in zip(at, shape, strict=True)], -1)
    sums = [np.exp(2j * np.pi * ((k @ mode) % 1)) @ c.astype(np.complex128) for mode in modes]
    return at, np.array(sums)


def _error(found: np.ndarray, at: Any, truth: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(found)[at] - truth) / np.linalg.norm(truth))


def _line(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [row.get(name, "") for name in COLUMNS]
    return "| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    for variable, value in CALM.items():  # read by finufft's threads when it is imported, which is later
        os.environ.setdefault(variable, value)
    jax.config.update("jax_num_cpu_devices", 8)
    main()
