"""Compiles plans for a described TPU in a separate process, and prints facts about the programs as JSON."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax.experimental.mesh_utils import create_hybrid_device_mesh
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.inspect.aot import compile_plan, devices_of, mesh_for, report, timeline
from meshfft.inspect.hlo import collectives, counts
from meshfft.layout.layout import axis_sizes
from meshfft.machine.topology import mesh_as, mesh_call, placements
from meshfft.machine.topology import topology as named
from meshfft.nufft.grid.form import Form, Slots, tpu_form
from meshfft.nufft.grid.window import fitted
from meshfft.steps import RingDense
from meshfft.tpu import gridding as pallas_gridding

SIZES, AXES = (4, 4, 2), ("x", "y", "z")


def planes(topology: str) -> dict[str, Any]:
    """A KDFT of planes, and for control of a complex array, by tier."""
    mesh = Mesh(np.array(devices_of(topology)[:8]).reshape(2, 2, 2), AXES)
    points = [mf.Points.turns(np.linspace(0, 0.7, 64)), None, mf.Points.z(1.01 * np.exp(1j * np.arange(64.0)))]
    return {tier: _tier(mesh, points, tier) for tier in ("default", "float32", "bf16x3", "bf16")}


def _tier(mesh: Mesh, points: list, tier: str) -> dict[str, Any]:
    spec = P(*AXES)
    plan = mf.plan((64,) * 3, mesh=mesh, spec=spec, points=points, method="kdft", precision=tier)
    plane, whole = (jax.ShapeDtypeStruct((64,) * 3, t, sharding=NamedSharding(mesh, spec)) for t in ("f4", "c8"))
    apart, packed = jax.jit(plan).lower((plane, plane)).compile(), jax.jit(plan).lower(whole).compile()
    return {
        "complex in planes": _complex(apart),
        "complex in packed": _complex(packed),
        "collectives": collectives(apart),
        "plan": plan.collectives,
    }


def _complex(program: jax.stages.Compiled) -> int:
    """Number of complex types, and of custom calls that pack or unpack them, in the text."""
    text = program.as_text() or ""
    return sum(text.count(word) for word in ("c64[", "X64Combine", "X64Split"))


def schedule(topology: str) -> dict[str, Any]:
    """A one-way KDFT as `compile_plan` makes it; for control one without its options, and the topologies refused."""
    plan = mf.plan((512,) * 3, mesh=AbstractMesh(SIZES, AXES), method="kdft", precision="bf16x3", topology=topology)
    steps = tuple(dataclasses.replace(step, two_way=False) for step in plan.walk.steps if isinstance(step, RingDense))
    plan = dataclasses.replace(plan, walk=dataclasses.replace(plan.walk, steps=steps))
    mesh = mesh_for(plan, topology)
    program = report(compile_plan(plan, mesh, planes=True))
    donated = report(compile_plan(plan, mesh, planes=True, donate=True))
    found: dict[str, Any] = {
        "plan": plan.collectives,
        "counts": counts(program.collectives),
        "report": program.to_dict(),
    }
    return found | {"donated": donated.to_dict(), "plain": _plain(plan, mesh), "refused": _refused("v3:3x3")}


def _plain(plan: mf.Plan, mesh: Mesh) -> dict[str, Any]:
    sharding = NamedSharding(mesh, plan.in_layout.spec)
    plane = jax.ShapeDtypeStruct(plan.in_layout.storage, "f4", sharding=sharding)
    return report(jax.jit(plan).lower((plane, plane)).compile()).to_dict()


def _refused(topology: str) -> str:
    try:
        return str(devices_of(topology))
    except ValueError as error:
        return str(error)


def walks(topology: str) -> dict[str, Any]:
    """A KDFT, and an FFT of slabs: the plan, the compiled program, and the time of each when played through."""
    slab = AbstractMesh((len(devices_of(topology)),), ("x",))
    plans = {
        "kdft": mf.plan((1024,) * 3, mesh=slab, axes=[0], method="kdft", precision="bf16x6", topology=topology),
        "fft": mf.plan((1024,) * 3, mesh=slab, method="transpose", topology=topology),
    }
    return {name: _walk(plan, topology) for name, plan in plans.items()}


def slices(topology: str) -> dict[str, Any]:
    """Collectives of programs over several slices, and bytes between slices: of the plan, and of the program."""
    made = dict[str, Any]()
    for method in ("auto", "transpose", "cooley-tukey", "kdft"):
        plan = mf.plan((64,) * 3, topology=topology, method=method)
        found = report(compile_plan(plan, mesh_for(plan, topology), planes=True)).collectives
        between = sum(one.bytes * one.times for one in found if one.name.startswith("recv"))
        made[method] = {"plan": plan.collectives, "counts": counts(found)}
        made[method] |= {"priced": plan.machine.outer_bytes(plan.work), "between": between}
    return made


def meshes(topology: str) -> dict[str, Any]:
    """Calls of JAX that plans print for their meshes, and whether the mesh of the call is that of the plan."""
    devices, found = devices_of(topology), dict[str, Any]()
    utils = SimpleNamespace(create_hybrid_device_mesh=partial(create_hybrid_device_mesh, devices=devices))
    made_here = SimpleNamespace(make_mesh=partial(jax.make_mesh, devices=devices), sharding=jax.sharding)
    made_here.experimental = SimpleNamespace(mesh_utils=utils)
    mesh = AbstractMesh((len(devices) // 2, 2), ("x", "y"))
    for machine in placements(named(topology), mesh):
        if call := mesh_call(machine, axis_sizes(mesh)):
            made = mesh_as(machine, axis_sizes(mesh), devices)
            found[call] = bool((eval(call, {"jax": made_here}).devices == made.devices).all())
    return found


def real(topology: str) -> dict[str, Any]:
    """Cycles of a complex transform of slabs, and of a real one of the same size, forward and back, without kernels."""
    slab, shape, half = AbstractMesh((len(devices_of(topology)),), ("x",)), (128, 128, 512), (128, 128, 257)
    plans = {
        "complex": mf.plan(shape, mesh=slab, topology=topology, engine="xla"),
        "there": mf.plan(shape, mesh=slab, kind="rfft", topology=topology, engine="xla"),
        "back": mf.plan(half, mesh=slab, kind="rfft", inverse=True, topology=topology, engine="xla"),
    }
    return {name: _cycles(plan, topology) for name, plan in plans.items()}


def _cycles(plan: mf.Plan, topology: str) -> dict[str, Any]:
    program = report(compile_plan(plan, mesh_for(plan, topology), planes=True))
    cycles = sum(one.cycles for one in program.cycles)
    return {"steps": plan.name, "cycles": cycles, "counts": counts(program.collectives), "plan": plan.collectives}


def _walk(plan: mf.Plan, topology: str) -> dict[str, Any]:
    program = compile_plan(plan, mesh_for(plan, topology), planes=True)
    found, played = report(program), timeline(program, plan)
    return {
        "plan": plan.collectives,
        "counts": counts(found.collectives),
        "asynchronous": all(one.asynchronous for one in found.collectives),
        "steps": plan.name,
        "modelled": plan.seconds_by_resource._asdict(),
        "played": played._asdict(),
        "starts": [one.name for one in found.collectives],
    }


def scattered(topology: str) -> dict[str, Any]:
    """A plan at scattered points: kernels in its program, and its collectives."""
    points = mf.Scattered.turns(np.random.default_rng(0).uniform(-0.5, 0.5, (20000, 2)))
    plan = mf.scattered_plan(
        (96, 80), points, mesh=AbstractMesh((2, 2), AXES[:2]), spec=P(*AXES[:2]), tol=1e-3, topology=topology
    )
    program = compile_plan(plan, mesh_for(plan, topology), planes=True)
    calls = [line for line in (program.as_text() or "").splitlines() if "tpu_custom_call" in line]
    kernels = sum("interpolating" in line for line in calls)
    return {"kernels": kernels, "collectives": collectives(program), "plan": plan.collectives}


def vector(topology: str) -> dict[str, Any]:
    """A plan by kernels of the vector unit, with 64-bit types allowed: kernels and FFTs of XLA's in its program."""
    slab, found = AbstractMesh((len(devices_of(topology)),), ("x",)), dict[str, Any]()
    cases: dict[str, dict[str, Any]] = {
        "natural": {},
        "any": {"order": "any"},
        "real": {"kind": "rfft"},
        "in words": {"order": "any", "wire": "int16"},
    }
    for name, how in cases.items():
        plan = mf.plan((256,) * 3, mesh=slab, topology=topology, **how)
        with jax.enable_x64(True):
            program = compile_plan(plan, mesh_for(plan, topology), planes=True)
        made, text = report(program, plan.machine.chip), program.as_text() or ""
        found[name] = {
            "steps": plan.name,
            "kernels": made.kernels.times,
            "calls": text.count("tpu_custom_call"),
            "words": len(re.findall(r"wire_(?:en|de)code16_8/pallas_call", text)) if "wire" in how else 0,
            "ffts": len(re.findall(r" fft\(", text)),
            "counts": counts(made.collectives),
            "plan": plan.collectives,
            "played": timeline(program, plan)._asdict(),
            "peak": made.memory["peak"] / plan.peak_bytes,
            "alone": made.kernels.cycles / plan.machine.chip.clock.value if plan.machine.chip.clock else 0.0,
        }
    return found


def sliced(topology: str) -> dict[str, Any]:
    """Lines in float64 by slices, local ones in several chunks and those that stay cut: bytes and modelled seconds
    beside the plan's, collectives, and gathers.
    """
    slab = AbstractMesh((len(devices_of(topology)),), ("x",))
    ways = {"transpose": ((64 * slab.size, 128, 256), 1), "cooley-tukey": ((32 * slab.size, 128, 256), 0)}
    return {method: _sliced(topology, slab, method, *way) for method, way in ways.items()}


def _sliced(topology: str, slab: AbstractMesh, method: str, shape: tuple[int, ...], dim: int) -> dict[str, Any]:
    with jax.enable_x64(True):
        plan = mf.plan(shape, mesh=slab, axes=[dim], dtype="complex128", method=method, topology=topology)
        return _figures(plan, topology)


def lengths(topology: str) -> dict[str, Any]:
    """Lines, and lengths that XLA would transform by one long product, or in chunks that end within a tile."""
    cases: dict[tuple[int, ...], tuple[int, ...]] = {
        (955_240,): (4,),
        (2**22,): (4,),
        (2310, 2310): (2, 2),
        (220, 220, 220): (4,),
    }
    meshes = {shape: AbstractMesh(sizes, AXES[: len(sizes)]) for shape, sizes in cases.items()}
    plans = {str(shape): mf.plan(shape, mesh=mesh, topology=topology, order="any") for shape, mesh in meshes.items()}
    line = partial(mf.plan, mesh=meshes[(2**22,)], topology=topology, kind="rfft", method="cooley-tukey")
    plans |= {"real line": line((2**22,)), "back": line((2**21 + 1,), s=(2**22,), inverse=True)}
    return {name: _figures(plan, topology) for name, plan in plans.items()}


def _figures(plan: mf.Plan, topology: str) -> dict[str, Any]:
    program = compile_plan(plan, mesh_for(plan, topology), planes=True)
    memory = report(program).memory
    return {
        "steps": plan.name,
        "counts": counts(report(program).collectives),
        "plan": plan.collectives,
        "bytes": memory["argument"] + memory["output"] + memory["temp"],
        "peak": plan.peak_bytes,
        "seconds": timeline(program, plan).total,
        "modelled": plan.seconds,
        "gathers": len(re.findall(r" gather\(", program.as_text() or "")),
    }


def gridding(topology: str) -> dict[str, int]:
    """Kernels in the program that interpolates and spreads back, with 64-bit types allowed as for complex128."""
    mesh = Mesh(np.array(devices_of(topology)[:4]), ("x",))
    return {f"{d}-D w {width}": _kernels(mesh, d, width) for d in (2, 3) for width in (4, 7)}


def _kernels(mesh: Mesh, d: int, width: int) -> int:
    tile, chunk = tpu_form(width, d)
    form = Form("strips", tile, chunk, width, 0, fitted(width, 2.0).coefficients)
    shapes = [((512, d), "i4"), ((512, d), "f4"), ((4, d), "i4"), ((1,), "i4"), ((2, *(48,) * d), "c8")]
    sharding = NamedSharding(mesh, P("x"))
    args = [jax.ShapeDtypeStruct((4, *shape), dtype, sharding=sharding) for shape, dtype in shapes]

    def there_and_back(*operands: jax.Array) -> jax.Array:
        cell, offset, start, count, block = (x[0] for x in operands)
        slots = Slots(cell=cell, offset=offset, start=start, count=count[0])
        values = pallas_gridding.interpolate(block, slots, form)
        return pallas_gridding.spread(values, slots, form, block.shape[1:])[None]

    with jax.enable_x64(True):
        run = jax.shard_map(there_and_back, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        return (jax.jit(run).lower(*args).compile().as_text() or "").count("tpu_custom_call")


if __name__ == "__main__":
    wanted: Callable[[str], dict[str, Any]] = globals()[sys.argv[1]]
    print(json.dumps(wanted(sys.argv[2])))
