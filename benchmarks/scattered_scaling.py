"""Weak scaling at scattered points by counts: images to 1024^3 and 1e9 points on 2048 TPU v5p, modelled; no array.

    python -m benchmarks scattered_scaling [--tol 1e-3,1e-6] [--trajectory random,koosh] [--json] [--rows FILE]

Each device has 2^19 samples of the image and 488,281 points. A plan would place all points on the host: here the loads
of owners are those of 2^22 points of the trajectory, scaled. The walk is the search's for them, from the image to
values in the plan's order; what routes them to a caller's order is left out, and so are loans of tiles, by which
crowded owners would do better. Bytes, memory and seconds are of one device, all modelled, those of the most crowded.
"""

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import AbstractMesh

import meshfft as mf
from benchmarks.jsonl import append
from benchmarks.scattered import trajectory
from meshfft.layout.layout import Layout
from meshfft.machine.work import total
from meshfft.nufft.grid.binning import SAMPLE, loads
from meshfft.nufft.grid.window import Window
from meshfft.nufft.post_transform import PostTransform, to_grid
from meshfft.nufft.problem import problem_of
from meshfft.nufft.steps import Deconvolve
from meshfft.nufft.steps.point_step import sub_layout
from meshfft.numerics.dtypes import dots_of
from meshfft.plans.planning import laid_out, machines
from meshfft.steps.base import Step
from meshfft.walks.walk import Walk

SIZES = {  # devices: their torus, the image
    8: ((2, 2, 2), (128, 128, 256)),
    64: ((4, 4, 4), (256, 256, 512)),
    512: ((8, 8, 8), (512, 512, 1024)),
    2048: ((8, 16, 16), (1024, 1024, 1024)),
}
SAMPLED = 2**22
POINTS = 1_000_000_000 // 2048
COLUMNS = ("devices", "shape", "points", "trajectory", "tol", "sigma", "ends", "sent_mb", "imbalance", "peak_mb", "ms")


@dataclasses.dataclass(frozen=True, eq=False)
class Scaled:
    """The steps behind the fine grid, for more points that lie as a sample of them does."""

    post: PostTransform
    points: int

    def __call__(self, layout: Layout) -> tuple[Step, ...]:
        load = self.load(layout, 64 * SAMPLE)
        most = math.ceil(load.max())
        return self.post.steps(layout, most, most)

    def load(self, layout: Layout, many: int) -> np.ndarray:
        """Points of each device, by so many of the sample, which are drawn already in no order."""
        post, cells = self.post, sub_layout(layout, self.post.problem.dims)
        where = (post.grid, post.window.width, post.problem.slack, cells.block, cells.parts)
        turns = post.problem.points.in_turns[:many]
        found = sum(loads(turns[i : i + SAMPLE], *where) for i in range(0, len(turns), SAMPLE))
        return np.asarray(found) * (self.points / len(turns))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="8,64,512,2048")
    parser.add_argument("--tol", default="1e-3,1e-6")
    parser.add_argument("--trajectory", default="random,koosh")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args(arguments)
    if not options.json:
        print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for name in options.trajectory.split(","):
        rng = np.random.default_rng(3)
        points = mf.Scattered.turns(rng.permutation(trajectory(name, 3, SAMPLED, rng)))
        for tol in map(float, options.tol.split(",")):
            for devices in map(int, options.devices.split(",")):
                row = {"trajectory": name, "tol": tol} | modelled(devices, points, tol)
                print(json.dumps(row) if options.json else _line(row), flush=True)
                append(options.rows, [row])


def modelled(devices: int, points: mf.Scattered, tol: float) -> dict[str, Any]:
    """One row: the order of the torus's devices whose walk is fastest."""
    torus, shape = SIZES[devices]
    mesh = AbstractMesh(torus, ("x", "y", "z"))
    where = machines(mesh, "v5p:" + "x".join(map(str, torus)))
    return min((_on(one, mesh, shape, points, tol, devices * POINTS) for one in where), key=lambda row: row["ms"])


def _on(machine: Any, mesh: AbstractMesh, shape: tuple[int, ...], points: mf.Scattered, tol: float, many: int) -> Any:
    start, dtype = laid_out(shape, mesh, None), np.dtype("complex64")
    options = {"tol": tol, "balance": False}
    problem = problem_of(start, points, None, mesh, machine, dtype, dots_of(dtype, None, None), options)

    def behind(grid: tuple[int, ...], one: Window) -> Scaled:
        return Scaled(PostTransform(problem, grid, one), many)

    walk, follows = to_grid(problem, behind)
    before = Deconvolve(problem.dims, follows.post.grid, follows.post.window)
    whole = Walk(walk.start, (before, *walk.steps, *follows(walk.end)), planes=walk.planes)
    works = whole.works(8, machine.chip)
    load, window = follows.load(walk.end, len(points.in_turns)), follows.post.window
    counted = {"sent_mb": total(works).sent_bytes / 1e6, "peak_mb": total(works).peak_bytes / 1e6}
    chosen = {"sigma": window.sigma, "width": window.width, "ends": walk.end.label()}
    sizes = {"devices": math.prod(walk.start.parts), "shape": list(shape), "points": many}
    seconds = sum(map(machine.price, works))
    return sizes | chosen | counted | {"imbalance": float(load.max() / load.mean()), "ms": seconds * 1e3}


def _line(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = (row[name] for name in COLUMNS)
    return "| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
