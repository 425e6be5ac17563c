"""Plans compiled ahead of time for described devices: bytes, collectives, cycles, and a modelled timeline.

No program is run. The timeline replays a program in its scheduled order:

    an instruction takes its estimated cycles / clock, an FFT kernel those of tpu/price.py
    a collective takes the links from its start, or when they are free, for the time of the torus model
    its done waits for that; instructions in between hide it
    total = compute + the waits for all collectives
"""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding

from ..extras import install_hint, installed
from ..layout.layout import axis_sizes
from ..layout.padded_array import padded
from ..machine.chip import Chip
from ..machine.machine import Move
from ..machine.network import STAGES
from ..numerics.dtypes import real_dtype
from ..plans.plan import Plan
from .hlo import Collective, KernelRuns, Spent, cycles, every_collective, kernels, program_of
from .schedule import Instruction, Item, Program, executed, nested

# Least and most CPU seconds, on the fastest and the slowest core measured, of the KDFT (True) and others
COMPILING = {True: (49.0, 140.0), False: (4.7, 230.0)}


class ProgramReport(NamedTuple):
    """Bytes, collectives in order and cycles (with kernels) of a program on each device."""

    memory: dict[str, int]
    collectives: tuple[Collective, ...]
    cycles: tuple[Spent, ...]
    kernels: KernelRuns = KernelRuns(0, 0)

    def to_dict(self) -> dict[str, object]:
        sizes = {f"{name}_bytes_per_device": size for name, size in self.memory.items()}
        sent, spent = ([one._asdict() for one in self.collectives], [one._asdict() for one in self.cycles])
        return {**sizes, "collectives": sent, "cycles": spent, "kernels": self.kernels._asdict()}


class Timeline(NamedTuple):
    """Modelled seconds of one run; `waits` by collective."""

    compute: float
    links: float
    total: float
    waits: dict[str, float]


def devices_of(topology: str) -> list[jax.Device]:
    """The devices of a described TPU pod, such as "v3:32x32" or "2*v5p:2x2x4", in the runtime's order."""
    if not installed("libtpu"):
        raise ValueError(f"describing TPUs needs their compiler, libtpu: {install_hint('tpu')}")
    slices, _, name = topology.partition("@")[0].rpartition("*")
    many = {"num_slices": int(slices)} if slices.isdecimal() else {}
    try:
        return list(topologies.get_topology_desc(topology_name=name, platform="tpu", **many).devices)
    except Exception as error:
        what = f"the TPU compiler does not describe topology {topology!r} ({str(error).splitlines()[0]})"
        two, three = "v2:2x2, v3:4x4, v5e:4x8 or v6e:2x2", "v4, v5p and tpu7x, as in v5p:2x2x4, the first two even"
        remedy = f"give the generation and its chips, as in {two}, three sizes for {three}"
        raise ValueError(f"{what}: {remedy}") from error


def mesh_for(plan: Plan, topology: str) -> Mesh:
    if plan.machine.chip.platform != "tpu":
        name = plan.machine.chip.name
        raise ValueError(f"only TPUs are compiled for without them, and the plan is for {name}: plan for v5e:4x8, say")
    return plan.device_mesh(devices_of(topology))


def compile_plan(plan: Plan, mesh: Mesh, *, planes: bool = False, donate: bool = False) -> jax.stages.Compiled:
    """Compiles a plan for a mesh of its axes and sizes, whose devices may be described.

    With `planes` arrays are split complex. With `donate` the result replaces the input.
    """
    have, need = axis_sizes(mesh), axis_sizes(plan.mesh)
    if have != need:
        raise ValueError(f"the mesh has {have}, the plan is for {need}: give a mesh of the plan's axes, in its order")
    plan = dataclasses.replace(plan, mesh=mesh)
    kind, many = real_dtype(plan.dtype) if planes else plan.in_dtype, 1 if plan.walk.real else 2
    sharding = NamedSharding(mesh, plan.in_layout.spec)
    stored = jax.ShapeDtypeStruct(plan.in_layout.storage, kind, sharding=sharding)
    array = padded(stored, plan.in_layout, mesh)  # type: ignore[arg-type]
    lowered = jax.jit(plan, donate_argnums=(0,) if donate else ()).lower((array,) * many if planes else array)
    options = plan.walk.compiler_options(plan.dtype.itemsize, plan.machine.chip, plain=not planes)
    return lowered.compile(dict(options))


def compile_seconds(plan: Plan) -> tuple[float, float] | None:
    """Least and most CPU seconds; None for machines other than TPUs."""
    return COMPILING[plan.options.method == "kdft"] if plan.machine.chip.planes else None


def report(compiled: jax.stages.Compiled, chip: Chip | None = None) -> ProgramReport:
    program, memory = program_of(compiled, chip), compiled.memory_analysis()
    if memory is None:
        raise NotImplementedError("the compiled program has no memory analysis: this backend gives none")
    sizes = {name: getattr(memory, f"{name}_size_in_bytes") for name in ("argument", "output", "temp", "alias")}
    sizes["peak"] = memory.peak_memory_in_bytes
    return ProgramReport(sizes, every_collective(program), cycles(program), kernels(program))


def timeline(compiled: jax.stages.Compiled, plan: Plan) -> Timeline:
    clock, program = plan.machine.chip.clock, program_of(compiled, plan.machine.chip)
    if clock is None:
        raise ValueError(f"the clock of {plan.machine.chip.name} devices is not known: replay plans for TPUs")
    run = {instruction.name: instruction for instruction, _ in executed(program)}
    lasting = {one.name: _seconds(one, run[one.name], program, plan) for one in every_collective(program)}
    return play(program, 1 / clock.value, lasting)


def play(program: Program, cycle: float, lasting: Mapping[str, float]) -> Timeline:
    """Replays a program, given the seconds of a cycle, and of each collective by its start's name."""
    now = free = compute = links = 0.0  # clocks: of the device, and of its links
    arrivals, waits = dict[str, float](), defaultdict[str, float](float)
    for instruction in _repeated(nested(program)):
        name, spent = instruction.name, (instruction.cycles or 0) * cycle
        now, compute = now + spent, compute + spent
        awaited = instruction.operands if instruction.opcode.endswith("-done") else ()
        if name in lasting:
            free, links = max(free, now) + lasting[name], links + lasting[name]
            arrivals[name] = free
            awaited = () if instruction.starts else (name,)
        for start in filter(arrivals.__contains__, awaited):
            arrived = max(now, arrivals.pop(start))
            waits[start], now = waits[start] + arrived - now, arrived
    return Timeline(compute, links, max(now, free), dict(waits))


def _repeated(items: tuple[Item, ...]) -> Iterator[Instruction]:
    for item in items:
        yield item.instruction
        for _ in range(item.trips if item.body else 0):
            yield from _repeated(item.body)


def _seconds(one: Collective, start: Instruction, program: Program, plan: Plan) -> float:
    """Modelled seconds of one collective: an all-to-all by its step's axes, a permute by its pairs of devices (of a
    two-way ring half the time), a transfer between slices by its bytes."""
    machine, moves = plan.machine, list[Move]()
    for step, layout in plan.walk.pairs[one.step or 0 :]:  # between slices the compiler drops scopes: a later step
        moves += step.work(layout, plan.dtype.itemsize, machine.chip).moves
    if start.opcode == "recv":
        return machine.outer_seconds(one.bytes)
    permutes = one.kind == "collective-permute"
    kinds = ("two-way ring",) if permutes else (one.kind, STAGES[0])
    if move := next((move for move in moves if move.kind in kinds), None):
        return machine.move_seconds(move._replace(nbytes=one.bytes, times=1)) / (2 if permutes else 1)
    if permutes:
        return machine.permute_seconds(_pairs(program, start), one.bytes)
    raise NotImplementedError(f"{one.kind} {one.name} has no price: its step of the plan sends none")


def _pairs(program: Program, instruction: Instruction) -> list[tuple[int, int]]:
    parts = (instruction, *program.inside(instruction))
    text = " ".join(part.attribute(r"source_target_pairs=\{(.*?)\}\}") for part in parts)
    return [(int(source), int(target)) for source, target in re.findall(r"(\d+),(\d+)", text)]
