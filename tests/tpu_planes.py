"""Compiles a KDFT for a described TPU, in a process of its own, and prints what its program holds as JSON."""

import json
import sys

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.hlo import collectives

SPEC = P("x", "y", "z")


def main(topology: str) -> None:
    """Planes in and out, and for control a complex array, by tier."""
    devices = topologies.get_topology_desc(topology_name=topology, platform="tpu").devices
    mesh = Mesh(np.array(devices[:8]).reshape(2, 2, 2), ("x", "y", "z"))
    points = [mf.Points.turns(np.linspace(0, 0.7, 64)), None, mf.Points.z(1.01 * np.exp(1j * np.arange(64.0)))]
    print(json.dumps({tier: _program(mesh, points, tier) for tier in ("float32", "bf16x3", "bf16")}))


def _program(mesh: Mesh, points: list, tier: str) -> dict:
    plan = mf.plan((64,) * 3, mesh=mesh, spec=SPEC, points=points, method="kdft", precision=tier)
    plane, whole = (jax.ShapeDtypeStruct((64,) * 3, t, sharding=NamedSharding(mesh, SPEC)) for t in ("f4", "c8"))
    planes, packed = jax.jit(plan).lower((plane, plane)).compile(), jax.jit(plan).lower(whole).compile()
    return {
        "complex in planes": _complex(planes),
        "complex in packed": _complex(packed),
        "collectives": collectives(planes),
        "plan": plan.collectives,
    }


def _complex(program: jax.stages.Compiled) -> int:
    """How often the text names a complex type or a custom call that packs or unpacks one."""
    text = program.as_text() or ""
    return sum(text.count(word) for word in ("c64[", "X64Combine", "X64Split"))


if __name__ == "__main__":
    main(sys.argv[1])
