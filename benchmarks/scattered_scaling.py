"""Weak scaling at scattered points by counts: images to 1024^3 and 1e9 points on 2048 TPU v5p, modelled; no array.

Each device has 2^19 samples of the image and 488,281 points; loads of owners are those of 2^22 points of the
trajectory, scaled. Values stay in the plan's order and no tiles are lent. Numbers are of the most crowded device.

With --strong, one image of 256^2 and 402 golden-angle spokes of 512 samples on 2 to 64 cores of TPU v3, by the plans
themselves: modelled microseconds of all steps, by the kind of step, and with values in the plan's order.
"""

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import AbstractMesh

import meshfft as mf
from meshfft.layout.layout import Layout
from meshfft.machine.machine import Machine, total
from meshfft.nufft.grid.binning import SAMPLE, loads
from meshfft.nufft.post_transform import PostTransform, to_grid
from meshfft.nufft.problem import problem_of
from meshfft.nufft.steps import Deconvolve, ValueExchange
from meshfft.numerics.dtypes import dots_of
from meshfft.plans.planning import laid_out, machines
from meshfft.plans.request import Setting
from meshfft.steps.base import Step
from meshfft.walks.walk import Walk

from .common import numbers
from .rows import kept
from .scattered import print_rows, trajectory_of

SIZES = {  # devices: their torus, the image
    8: ((2, 2, 2), (128, 128, 256)),
    64: ((4, 4, 4), (256, 256, 512)),
    512: ((8, 8, 8), (512, 512, 1024)),
    2048: ((8, 16, 16), (1024, 1024, 1024)),
}
SAMPLED = 2**22
POINTS = 1_000_000_000 // 2048
V3 = {2: "1x1", 4: "1x2", 8: "2x2", 16: "2x4", 32: "4x4", 64: "4x8"}  # cores: their chips
COLUMNS = ("devices", "shape", "points", "trajectory", "tol", "sigma", "ends", "sent_mb", "imbalance", "peak_mb", "ms")


@dataclasses.dataclass(frozen=True, eq=False)
class Scaled(PostTransform):
    """The steps behind the fine grid, for POINTS on each device with the distribution of a sample."""

    def __call__(self, layout: Layout) -> tuple[Step, ...]:
        most = math.ceil(self.load(layout, 64 * SAMPLE).max())
        return self.steps(layout, most, most)

    def load(self, layout: Layout, many: int) -> np.ndarray:
        """Points of each device, scaled from the first `many` of the sample, which is in random order."""
        where = (layout.along(self.problem.dims), self.window.width, self.problem.slack)
        turns = self.problem.points.in_turns[:many]
        found = sum(loads(turns[i : i + SAMPLE], *where) for i in range(0, len(turns), SAMPLE))
        return np.asarray(found) * (POINTS * math.prod(layout.parts) / len(turns))


def main(
    devices: str = "8,64,512,2048",
    tol: str = "1e-3,1e-6",
    trajectory: str = "random,koosh",
    rows: Path | None = None,
    strong: bool = False,
) -> None:
    found = list[dict[str, Any]]()
    if strong:
        found = list(kept(rows, (_strong(count, one) for one in map(float, tol.split(",")) for count in V3)))
        print_rows(tuple(found[0])[:11], found)
        return
    for name in trajectory.split(","):
        rng = np.random.default_rng(3)
        points = mf.Scattered.turns(rng.permutation(trajectory_of(name, 3, SAMPLED, rng)))
        for one, count in itertools.product(map(float, tol.split(",")), numbers(devices)):
            found += kept(rows, [{"trajectory": name, "tol": one} | modelled(count, points, one)])
    print_rows(COLUMNS, found)


def _strong(cores: int, tol: float) -> dict[str, Any]:
    """One row of a radial image on some cores."""
    spoke, angle = np.arange(512) / 512 - 0.5, np.pi * (3 - 5**0.5) * np.arange(402)[:, None]
    points = mf.Scattered.turns(np.stack([np.cos(angle) * spoke, np.sin(angle) * spoke], -1))
    plan = mf.scattered_plan(
        (256, 256), points, mesh=AbstractMesh((cores,), ("x",)), tol=tol, topology=f"v3:{V3[cores]}"
    )
    price = {"fft": 0.0, "halo": 0.0, "lend": 0.0, "interpolate": 0.0, "values": 0.0}
    for (step, _), layout in zip(plan.walk.pairs, plan.walk.layouts, strict=False):
        kind = next((kind for kind in price if step.name(layout).startswith(kind)), "fft")  # and what is around it
        price[kind] += plan.machine.price(step.work(layout, 8, plan.machine.chip)) * 1e6
    row = {"cores": cores, "tol": tol, "sigma": plan.window.sigma, "imbalance": plan.imbalance}
    last = plan.walk.steps[-1]
    assert isinstance(last, ValueExchange)
    whole, placed = ((one.seconds or 0.0) * 1e6 for one in (plan, plan.owner))
    return {**row, **price, "whole": whole, "placed": placed, "most": list(last.most), "unit": "us, modelled"}


def modelled(devices: int, points: mf.Scattered, tol: float) -> dict[str, Any]:
    """One row: the order of the torus's devices whose walk is fastest."""
    torus, shape = SIZES[devices]
    mesh = AbstractMesh(torus, ("x", "y", "z"))
    where = machines(mesh, "v5p:" + "x".join(map(str, torus)))
    return min((_on(one, mesh, shape, points, tol, devices * POINTS) for one in where), key=lambda row: row["ms"])


def _on(
    machine: Machine, mesh: AbstractMesh, shape: tuple[int, ...], points: mf.Scattered, tol: float, many: int
) -> dict[str, Any]:
    start, dtype = laid_out(shape, mesh, None), np.dtype("complex64")
    options = {"tol": tol, "balance": False}
    setting = Setting(start, mesh, machine, dtype)
    problem = problem_of(setting, start, points, None, dtype, dots_of(dtype, None, None), options)
    walk, follows = to_grid(problem, post=Scaled)
    assert isinstance(follows, Scaled)
    window = follows.window
    before = Deconvolve(problem.dims, follows.grid, window)
    works = Walk(walk.start, (before, *walk.steps, *follows(walk.end)), planes=walk.planes).works(8, machine.chip)
    load, spent = follows.load(walk.end, len(points.in_turns)), total(works)
    counted = {"sent_mb": spent.sent_bytes / 1e6, "peak_mb": spent.peak_bytes / 1e6}
    chosen = {"sigma": window.sigma, "width": window.width, "ends": walk.end.label()}
    sizes = {"devices": math.prod(walk.start.parts), "shape": list(shape), "points": many}
    seconds = sum(map(machine.price, works))
    return sizes | chosen | counted | {"imbalance": float(load.max() / load.mean()), "ms": seconds * 1e3}
