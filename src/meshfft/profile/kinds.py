"""What each instruction of a compiled program does: which step of the walk it belongs to, and which kind of work it is.

    products     matrix products
    fft          XLA's FFT, whatever the compiler makes of it, and meshfft's own of additions; not an FFT by products
    permute      a hop of a ring, from its start to its end
    all-to-all   an exchange, from its start to its end
    copies       what only moves numbers: copies, transposes, slices, concatenations, packing of planes, indices
    other        arithmetic in between: phases, sums of products, weights, scales; collectives of other kinds
    idle         no instruction at all; see `slices`

A fusion is what it holds: products if one is in it, else fft, else copies if all of it only moves, else other. Loops,
calls and branches are no work; what they run is.
"""

import re
from typing import NamedTuple

from ..inspect.hlo import FREE, moves, sends, steps_of
from ..inspect.schedule import Instruction, Program, executed

KINDS = ("products", "fft", "permute", "all-to-all", "copies", "other", "idle")
SENT = {"collective-permute": "permute", "all-to-all": "all-to-all"}

_PACKS = {"real", "imag", "complex"}
_PACK_CALL = re.compile(r'custom_call_target="X64')
_PRODUCT_CALL = re.compile(r'custom_call_target="[^"]*(?:gemm|matmul|dot)', re.IGNORECASE)
_FFT = re.compile(r"(?:^|/)(?:fft|jit\(fft\))(?:/|$)")  # a scope, or JAX's name for XLA's


class Op(NamedTuple):
    """An instruction's step, None before the first, and its kind."""

    step: int | None
    kind: str


def ops_of(program: Program) -> dict[str, Op | None]:
    """What each instruction of a run is, by its name; None for what is no work. A collective ends as it starts."""
    run = executed(program)
    found: dict[str, Op | None] = {}
    for (instruction, _), step in zip(run, steps_of(program, run), strict=True):
        kind = kind_of(program, instruction)
        started = found.get(instruction.operands[0]) if _ends(instruction) else None
        found[instruction.name] = started or (None if kind is None else Op(step, kind))
    return found


def kind_of(program: Program, instruction: Instruction) -> str | None:
    """One of KINDS; None for what is no work: parameters, tuples, loops."""
    if instruction.opcode in FREE:
        return None
    if sent := sends(program, instruction):
        return SENT.get(sent[0], "other")
    parts = [instruction, *program.inside(instruction)]
    names = {part.name: part for part in parts}
    work = [part for part in parts if not _only_moves(part, names)]
    in_fft = [bool(_FFT.search(part.op_name or instruction.op_name)) for part in work]
    if any(_multiplies(part) and not inside for part, inside in zip(work, in_fft, strict=True)):
        return "products"
    if any(in_fft) or any(part.opcode == "fft" for part in work):
        return "fft"
    return "other" if work else "copies"


def _only_moves(part: Instruction, names: dict[str, Instruction]) -> bool:
    return moves(part, names) or part.opcode in _PACKS or bool(_PACK_CALL.search(part.rest))


def _multiplies(part: Instruction) -> bool:
    return part.opcode in ("dot", "convolution") or bool(_PRODUCT_CALL.search(part.rest))


def _ends(instruction: Instruction) -> bool:
    return instruction.opcode.endswith(("-done", "-update")) and bool(instruction.operands)
