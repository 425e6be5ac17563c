"""Compiles a KDFT for a described TPU, in a process of its own, and prints what its schedule holds as JSON."""

import json
import sys

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.aot import compile_plan, devices_of, report

SIZES, AXES = (4, 4, 2), ("x", "y", "z")


def main(topology: str) -> None:
    """The program as `compile_plan` makes it; for control one without its options, and the topologies refused."""
    mesh = Mesh(np.array(devices_of(topology)[:32]).reshape(SIZES), AXES)
    plan = mf.plan((128,) * 3, mesh=AbstractMesh(SIZES, AXES), spec=P(*AXES), method="kdft", precision="bf16x3")
    program = report(compile_plan(plan, mesh, planes=True))
    found: dict = {"plan": plan.collectives, "counts": program.counts, "report": program.to_dict()}
    donated = report(compile_plan(plan, mesh, planes=True, donate=True))
    found |= {"donated": donated.to_dict(), "plain": _plain(plan, mesh), "refused": _refused("v3:3x3")}
    print(json.dumps(found))


def _plain(plan: mf.Plan, mesh: Mesh) -> dict:
    sharding = jax.sharding.NamedSharding(mesh, plan.in_layout.spec)
    plane = jax.ShapeDtypeStruct(plan.in_layout.storage, "f4", sharding=sharding)
    return report(jax.jit(plan).lower((plane, plane)).compile()).to_dict()


def _refused(topology: str) -> str:
    try:
        return str(devices_of(topology))
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    main(sys.argv[1])
