"""Strong scaling at scattered points by counts, modelled: one radial image on 2 to 64 cores of TPU v3.

256^2 pixels, 402 golden-angle spokes of 512 samples: each kind of step, all steps, and with values in the plan's order.
"""

from pathlib import Path

import numpy as np
from jax.sharding import AbstractMesh

import meshfft as mf

from .common import numbers, print_rows
from .paper.cases import slice_of
from .rows import Values, kept
from .scattered import GOLDEN


def main(cores: str = "2,4,8,16,32,64", tol: float = 1e-3, rows: Path | None = None) -> None:
    print_rows(kept(rows, (modelled(count, tol) for count in numbers(cores))))


def modelled(cores: int, tol: float) -> Values:
    spoke, angle = np.arange(512) / 512 - 0.5, GOLDEN * np.arange(402)[:, None]
    points = mf.Scattered.turns(np.stack([np.cos(angle) * spoke, np.sin(angle) * spoke], -1))
    mesh = AbstractMesh((cores,), ("x",))
    plan = mf.scattered_plan((256, 256), points, mesh=mesh, tol=tol, topology=slice_of(cores))
    price = {"fft": 0.0, "halo": 0.0, "lend": 0.0, "interpolate": 0.0, "values": 0.0}
    for (step, _), layout in zip(plan.walk.pairs, plan.walk.layouts, strict=False):
        kind = next((kind for kind in price if step.name(layout).startswith(kind)), "fft")  # and its neighbours
        price[kind] += plan.machine.price(step.work(layout, 8, plan.machine.chip)) * 1e6
    row = {"cores": cores, "tol": tol, "sigma": plan.window.sigma, "imbalance": plan.imbalance}
    whole, placed = ((one.seconds or 0.0) * 1e6 for one in (plan, plan.owner))
    return {**row, **price, "whole": whole, "placed": placed, "unit": "us, modelled"}
