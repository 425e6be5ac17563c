"""Strong scaling at scattered points by counts, modelled: one radial image on 2 to 64 cores of TPU v3.

256^2 pixels and 402 golden-angle spokes of 512 samples, by the plans themselves: modelled microseconds of all steps, by
the kind of step, and with values in the plan's order.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import AbstractMesh

import meshfft as mf
from meshfft.nufft.steps import ValueExchange

from .common import numbers
from .rows import kept
from .scattered import GOLDEN, print_rows

V3 = {2: "1x1", 4: "1x2", 8: "2x2", 16: "2x4", 32: "4x4", 64: "4x8"}  # cores: their chips


def main(cores: str = "2,4,8,16,32,64", tol: float = 1e-3, rows: Path | None = None) -> None:
    found = list(kept(rows, (modelled(count, tol) for count in numbers(cores))))
    print_rows(tuple(found[0])[:11], found)


def modelled(cores: int, tol: float) -> dict[str, Any]:
    """One row of a radial image on some cores."""
    spoke, angle = np.arange(512) / 512 - 0.5, GOLDEN * np.arange(402)[:, None]
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
