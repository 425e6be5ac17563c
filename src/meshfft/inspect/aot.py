"""Plans compiled ahead of time, for devices that are described and need not be there, and what came of it.

    plan, topology -> compiled program -> bytes, collectives, cycles of each device

The TPU compiler runs on any machine; what it says of memory, collectives and cycles is what a pod of that shape gets.
Nothing here runs a program.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding

from ..extras import installed
from ..layout.layout import axis_sizes
from ..layout.padded_array import padded
from ..numerics.dtypes import real_dtype
from ..plans.plan import Plan
from .hlo import Collective, Spent, counts, cycles, every_collective, program_of, unpriced


@dataclasses.dataclass(frozen=True)
class Report:
    """What a compiled program needs and does, on each device.

    Attributes:
        argument_bytes: its inputs.
        output_bytes: its results.
        temp_bytes: what it needs in between.
        alias_bytes: results that take the place of inputs.
        peak_bytes: the most alive at once.
        collectives: every collective of one run, in order.
        cycles: the compiler's estimate by step and unit, loops multiplied out; empty where it gives none.
        unpriced: how many instructions on arrays have no such estimate, by opcode.
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    peak_bytes: int
    collectives: tuple[Collective, ...]
    cycles: tuple[Spent, ...]
    unpriced: dict[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """How many collectives of each kind one run does."""
        return counts(self.collectives)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        sizes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name.endswith("_bytes")}
        return {
            **{f"{name}_per_device": size for name, size in sizes.items()},
            "collectives": [one._asdict() for one in self.collectives],
            "cycles": [one._asdict() for one in self.cycles],
            "unpriced": dict(self.unpriced),
        }


def devices_of(topology: str) -> list[jax.Device]:
    """The devices of a described TPU pod, in the runtime's order.

    Args:
        topology: the generation and the chips along each dimension, such as "v3:32x32", "v5e:4x4" or "v5p:2x2x4".

    Raises:
        ValueError: the TPU compiler is not installed, or knows no such topology.
    """
    if not installed("libtpu"):
        raise ValueError('describing TPUs needs their compiler, libtpu: pip install "meshfft[tpu]"')
    try:
        return list(topologies.get_topology_desc(topology_name=topology, platform="tpu").devices)
    except Exception as error:
        raise ValueError(
            f"topology {topology!r} is unknown to the TPU compiler: give the generation and its chips, as in v2:2x2, "
            "v3:4x4, v5e:4x8 or v6e:2x2, three sizes for v4, v5p and tpu7x, as in v5p:2x2x4, the first two even "
            f"({str(error).splitlines()[0]})"
        ) from error


def mesh_for(plan: Plan, topology: str) -> Mesh:
    """The mesh of a plan for a described pod, each device where the plan's machine has it.

    Raises:
        ValueError: as `devices_of`, or the plan was made for no torus.
    """
    network, sizes = plan.machine.network, axis_sizes(plan.mesh)
    if network is None:
        raise ValueError(f"the plan is for {plan.machine.chip.name} devices: plan with topology={topology!r}")
    devices = np.array(devices_of(topology), dtype=object)
    return Mesh(devices[network.order.array], tuple(sizes))


def compile_plan(plan: Plan, mesh: Mesh, *, planes: bool = False, donate: bool = False) -> jax.stages.Compiled:
    """The program of a plan for the devices of a mesh, which need not be there, with the plan's compiler options.

    Args:
        plan: a plan for a mesh of the same axes and sizes, described or not.
        mesh: the mesh to compile for, such as one of `devices_of(topology)`.
        planes: take and return planes: a pair of real arrays, the real and the imaginary part, or one of a real array.
        donate: let the result take the place of the input.

    Raises:
        ValueError: the plan is for another mesh.
    """
    have, need = axis_sizes(mesh), axis_sizes(plan.mesh)
    if have != need:
        raise ValueError(f"the mesh has {have}, the plan is for {need}: give a mesh of the plan's axes, in its order")
    plan = dataclasses.replace(plan, mesh=mesh)
    kind, many = real_dtype(plan.dtype) if planes else plan.in_dtype, 1 if plan.walk.real else 2
    sharding = NamedSharding(mesh, plan.in_layout.spec)
    stored: Any = jax.ShapeDtypeStruct(plan.in_layout.storage, kind, sharding=sharding)
    array = padded(stored, plan.in_layout, mesh)
    lowered = jax.jit(plan, donate_argnums=(0,) if donate else ()).lower((array,) * many if planes else array)
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip, whole=not planes)
    return lowered.compile(dict(options))


def report(compiled: jax.stages.Compiled) -> Report:
    """What a compiled program needs and does.

    Raises:
        ValueError: a loop of which it cannot be told how often it turns.
    """
    program, memory = program_of(compiled), compiled.memory_analysis()
    if memory is None:
        raise NotImplementedError("the compiled program has no memory analysis: this backend gives none")
    return Report(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.temp_size_in_bytes,
        memory.alias_size_in_bytes,
        memory.peak_memory_in_bytes,
        every_collective(program),
        cycles(program),
        unpriced(program),
    )
