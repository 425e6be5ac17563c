"""What a compiled program reads and writes in memory, by kind of work; and GPUs to compile for that need not be here.

    bytes(instruction) = of its operands + of its results,  times as often as it is executed

What is only sliced out of an operand counts for what is taken, and what is updated in place for what is put there. A
call of an FFT counts once, whatever it does inside.
"""

from collections import Counter
from typing import Any

from jax.experimental import topologies

from meshfft.inspect.hlo import FREE, bytes_of, kind_of, sends
from meshfft.inspect.schedule import Instruction, Program, executed

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


def h100s(count: int) -> list[Any]:
    """Described H100s of one node.

    Raises:
        NotImplementedError: JAX has no compiler for CUDA devices here.
    """
    return list(topologies.get_topology_desc(platform="cuda", target_config=H100, topology=f"1x1x{count}").devices)


def passed(program: Program) -> dict[str, int]:
    """Bytes read and written by one run, by kind of work (see meshfft.inspect.hlo)."""
    types = {one.name: one.type for computation in program.computations.values() for one in computation.values()}
    total: Counter[str] = Counter()
    for instruction, times in executed(program):
        if instruction.opcode not in FREE and not instruction.opcode.endswith("-done"):
            total[str(kind_of(program, instruction))] += times * _bytes(program, instruction, types)
    return dict(total)


def _bytes(program: Program, instruction: Instruction, types: dict[str, str]) -> int:
    """Of one execution. The start of a collective names its operands among its results."""
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
        whole = bytes_of(types.get(operand, ""))
        name = parameters.get(at)
        users = [part for part in inside.values() if name in part.operands]
        put = [user for user in users if user in puts and user.operands.index(name) == 0]
        if users and all(user in put or user.opcode in SLICES for user in users):
            whole = min(whole, sum(bytes_of(user.type) for user in users if user not in put))
        read += whole
    return read + written - (read if instruction.opcode.endswith("-start") and sends(program, instruction) else 0)
