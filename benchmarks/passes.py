"""Memory traffic of a 3-D transform on 8 described H100s, between cuFFT's calls and the all-to-alls.

    passes = (bytes read + bytes written) / (2 bytes of a device's block of the complex array)

Nothing runs: XLA's compiler for CUDA makes the programs. A call of cuFFT is one pass. Passes besides FFTs and
all-to-alls are lost. A slice counts with the bytes that it reads, an update in place with those that it writes.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from jax.experimental import topologies

from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import FREE, bytes_of, kind_of, program_of, sends
from meshfft.inspect.schedule import Instruction, Program, executed

from .common import mesh_of, numbers, print_rows
from .measure.baselines import MESHFFT
from .measure.cases import Case, Task, usual_meshes
from .measure.on_devices import plan_of
from .rows import Values, kept

# As NVIDIA's data sheet and CUDA's deviceQuery have an H100 SXM: what XLA's compiler asks of a device.
H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 85028765696
}
platform_name: "CUDA"
dnn_version_info { major: 9 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
SLICES = ("slice", "dynamic-slice")


def main(lengths: str = "256,512,1024", rows: Path | None = None) -> None:
    found = (counted(case) for n in numbers(lengths) for case in cases((n,) * 3))
    print_rows(kept(rows, found), ("case", "plan", "passes", "all_to_alls"))


def cases(shape: tuple[int, ...]) -> Iterator[Case]:
    """Slab, pencil and block; complex and real; in natural order and any."""
    dtypes = {"fft": "complex64", "rfft": "float32"}
    for sizes, kind, order in itertools.product(usual_meshes(8, 3), dtypes, ("natural", "any")):
        yield Case(Task(shape, dtypes[kind], kind), MESHFFT, sizes, method="auto", order=order)


def counted(case: Case) -> Values:
    described = topologies.get_topology_desc(platform="cuda", target_config=H100, topology=f"1x1x{case.devices}")
    mesh, (shape, _, kind) = mesh_of(case.mesh, described.devices), case.task
    plan = plan_of(case, mesh)
    compiled, block = compile_plan(plan, mesh), 8 * math.prod(shape) // case.devices
    return {
        **case.to_dict(),
        "case": f"{'x'.join(map(str, shape))} {kind} on {'x'.join(map(str, case.mesh))}, {case.order}",
        "plan": plan.name,
        "passes": {kind: nbytes / (2 * block) for kind, nbytes in passed(program_of(compiled)).items()},
        "all_to_alls": plan.work.all_to_alls,
        "sent_bytes": plan.work.sent_bytes,
        "described": "h100:8",
    }


def passed(program: Program) -> dict[str, int]:
    """Bytes read and written by one run, by kind of work (see meshfft.inspect.hlo)."""
    types = {one.name: one.type for computation in program.computations.values() for one in computation.values()}
    total: Counter[str] = Counter()
    for instruction, times in executed(program):
        if instruction.opcode not in FREE and not instruction.opcode.endswith("-done"):
            total[str(kind_of(program, instruction))] += times * _bytes(program, instruction, types)
    return dict(total)


def _bytes(program: Program, instruction: Instruction, types: dict[str, str]) -> int:
    """Bytes of one execution. The start of a collective names its operands among its results."""
    if instruction.opcode in SLICES:
        return 2 * bytes_of(instruction.type)
    if instruction.opcode == "dynamic-update-slice":
        return 2 * bytes_of(types[instruction.operands[1]])
    inside = {part.name: part for part in program.inside(instruction)}
    parameters = {int(part.inside): part.name for part in inside.values() if part.opcode == "parameter"}
    puts = [part for part in inside.values() if part.opcode == "dynamic-update-slice"]
    written = sum(bytes_of(inside[put.operands[1]].type) for put in puts) if puts else bytes_of(instruction.type)
    read = 0
    for at, operand in enumerate(instruction.operands):
        whole, name = bytes_of(types.get(operand, "")), parameters.get(at)
        users = [part for part in inside.values() if name in part.operands]
        put = [user for user in users if user in puts and user.operands.index(name) == 0]
        if users and all(user in put or user.opcode in SLICES for user in users):
            whole = min(whole, sum(bytes_of(user.type) for user in users if user not in put))
        read += whole
    return read + written - (read if instruction.opcode.endswith("-start") and sends(program, instruction) else 0)
