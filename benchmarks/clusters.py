"""Plans over nodes and slices, modelled: seconds, bytes inside and outside, and the order of the devices.

Each row is the cheapest of three meshes: all devices in a line, and a domain along either of two axes. `one_stage` and
`two_stages` are that walk with every all-to-all in one stage or two; `as_listed` has the devices in JAX's order.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from jax.sharding import AbstractMesh

import meshfft as mf
from meshfft.collectives.levels import wires_of
from meshfft.layout.layout import AXES, axis_sizes
from meshfft.machine.topology import Topology, placed, topology
from meshfft.numerics.dtypes import real_dtype
from meshfft.plans.options import Definition
from meshfft.plans.planning import laid_out, planned
from meshfft.plans.request import Setting
from meshfft.steps import Exchange
from meshfft.steps.problem import Options

from .common import print_rows
from .rows import Values, kept

MACHINES = "h100:8,4*h100:8,16*h100:8,64*h100:8,v5p:4x8x8,2*v5p:4x8x8,4*v5p:4x8x8"
WIRES = {"exact": "exact", "outer int16": "outer=int16"}


def main(sizes: str = "1024,4096", machines: str = MACHINES, rows: Path | None = None) -> None:
    print_rows(kept(rows, measured(sizes, machines)))


def measured(sizes: str, machines: str) -> Iterator[Values]:
    for size in map(int, sizes.split(",")):
        for name in machines.split(","):
            for wire in WIRES if topology(name).domains > 1 else ("exact",):
                yield cheapest((size,) * 3, topology(name), wire)


def cheapest(shape: tuple[int, ...], where: Topology, wire: str) -> Values:
    near = where.devices // where.domains
    meshes = dict.fromkeys([(where.devices,), (where.domains, near), (near, where.domains)])
    described = [AbstractMesh(one, tuple(AXES[: len(one)])) for one in meshes if 1 not in one or len(one) == 1]
    plans = [mf.plan(shape, mesh=mesh, topology=where, wire=WIRES[wire]) for mesh in described]
    best = min(plans, key=lambda plan: (plan.fits is False, plan.seconds))
    one, two = (staged(best, both) for both in (False, True))
    return {
        "shape": shape[0],
        "machine": where.name,
        "mesh": tuple(axis_sizes(best.mesh).values()),
        "wire": wire,
        "seconds": best.seconds,
        "one_stage": one and one.seconds,
        "two_stages": two and two.seconds,
        "as_listed": listed(best, where),
        "inside_bytes": best.work.sent_bytes - best.machine.outer_bytes(best.work),
        "outside_bytes": best.machine.outer_bytes(best.work),
        "fits": best.fits,
    }


def staged(plan: mf.Plan, both: bool) -> mf.Plan | None:
    """The plan with every all-to-all over both levels in one stage or in two; None if none can have two."""
    steps, found = list(plan.walk.steps), False
    for at, step in enumerate(steps):
        if isinstance(step, Exchange) and step.packed and (stages := plan.machine.stages(step.axes)):
            step = dataclasses.replace(step, stages=stages if both else ())
            steps[at], found = step.wired(wires_of(plan.options.wire, real_dtype(plan.dtype))), True
    return dataclasses.replace(plan, walk=dataclasses.replace(plan.walk, steps=tuple(steps))) if found else None


def listed(plan: mf.Plan, where: Topology) -> float | None:
    """Modelled seconds of the best plan for the same mesh with its devices as JAX lists them."""
    assert plan.mesh is not None
    machine = placed(where, plan.mesh.axis_sizes, plan.mesh.axis_names, "ring" if where.torus is None else "jax")
    setting = Setting(laid_out(plan.shape, plan.mesh, None), plan.mesh, machine, plan.in_dtype)
    return planned(None, setting, Definition(), Options(wire=plan.options.wire)).seconds
