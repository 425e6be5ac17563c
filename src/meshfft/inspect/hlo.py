"""The collectives and the estimated cycles of a compiled program, counted in its text.

    cycles(step, unit) = sum over the instructions of the step on the unit of estimated cycles * times

The compiler does not estimate Pallas kernels: those of FFTs and wires are priced by tpu/price.py. The kinds of work
follow from opcodes and scopes:

    products     matrix products
    fft          XLA's FFT, and meshfft's own by additions or in kernels; not by products
    permute      a hop of a ring, from its start to its end
    all-to-all   an exchange, from its start to its end
    copies       copies, transposes, slices, concatenations, packing of complex numbers
    other        phases, sums of products, weights, scales; other collectives
    idle         no instruction
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax

from ..machine.chip import Chip
from ..tpu import price as kernel_price
from .schedule import COLLECTIVES, Instruction, Program, executed, parse

UNITS = ("matrix", "vector", "copy")
KINDS = ("products", "fft", "permute", "all-to-all", "copies", "other", "idle")
BETWEEN = {"ALL_TO_ALL": "all-to-all", "ONE_TO_ONE": "collective-permute"}
SENT = {"collective-permute": "permute", "all-to-all": "all-to-all"}

FREE = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "call", "conditional"}
_MOVES = {"copy", "bitcast-convert", "transpose", "slice", "concatenate", "pad", "dynamic-slice", "reshape", "reverse"}
_MOVES |= {"dynamic-update-slice", "broadcast", "fusion", "real", "imag", "complex", *FREE}
_ARRAY = re.compile(r"\b([a-z]+\d*)[a-z0-9]*\[([\d,]*)\]")
_STEP = re.compile(r"\bstep(\d+)")
_PACK_CALL = re.compile(r'custom_call_target="X64')
_PRODUCT_CALL = re.compile(r'custom_call_target="[^"]*(?:gemm|matmul|dot)', re.IGNORECASE)
# Scopes of meshfft and of XLA's FFT, and kernels.
_FFT = re.compile(r"(?:^|/)(?:fft|jit\(fft\)|fft_\w+/pallas_call)(?:/|$)")
_KERNEL = re.compile(r"/fft_([a-z]+)_(\d+(?:x\d+)*)\w*/pallas_call")
_WIRE = re.compile(r"/wire_(encode|decode)(\d+)_(\d+)/pallas_call")


class Collective(NamedTuple):
    """A collective in a program, named by its first instruction.

    Attributes:
        bytes: size of its result on a device in one execution.
        asynchronous: whether other instructions may run between its start and its done.
        covered: estimated cycles of these.
    """

    name: str
    kind: str
    step: int | None
    times: int
    bytes: int
    asynchronous: bool
    covered: int


class Op(NamedTuple):
    """Step of an instruction, from 1, 0 before the first; and its kind of work."""

    step: int
    kind: str


class KernelRuns(NamedTuple):
    times: int
    cycles: int


class Spent(NamedTuple):
    """Estimated cycles; step None is before the first."""

    step: int | None
    unit: str
    cycles: int


class _Stepped(NamedTuple):
    instruction: Instruction
    times: int
    step: int | None


def collectives(compiled: jax.stages.Compiled) -> dict[str, int]:
    """Collectives of each kind in one run on each device. Raises ValueError for a loop that cannot be followed."""
    return counts(every_collective(program_of(compiled)))


def counts(sent: Iterable[Collective]) -> dict[str, int]:
    total = collections.Counter[str]()
    for collective in sent:
        total[collective.kind] += collective.times
    return dict(total)


def program_of(compiled: jax.stages.Compiled, chip: Chip | None = None) -> Program:
    text = compiled.as_text()
    if not text:
        raise NotImplementedError("the compiled program has no text: this backend keeps none")
    return parse(text) if chip is None else priced(parse(text), chip)


def priced(program: Program, chip: Chip) -> Program:
    made = {name: {key: _priced(one, chip) for key, one in body.items()} for name, body in program.computations.items()}
    return program._replace(computations=made)


def _priced(instruction: Instruction, chip: Chip) -> Instruction:
    if instruction.opcode != "custom-call":
        return instruction
    if found := _WIRE.search(instruction.op_name):
        bits, size = int(found[2]), bytes_of(instruction.type)
        reals = round(size / (kernel_price.word_bytes(bits) if found[1] == "encode" else kernel_price.REAL_BYTES))
        price = kernel_price.wire_cycles(chip, found[1], bits, int(found[3]), reals)
        return dataclasses.replace(instruction, price=price)
    if (found := _KERNEL.search(instruction.op_name)) is None:
        return instruction
    kind, lengths = found[1], tuple(map(int, found[2].split("x")))
    points = round(bytes_of(instruction.type) / kernel_price.written(kind, lengths))
    return dataclasses.replace(instruction, price=kernel_price.cycles(chip, kind, lengths, points))


def kernels(program: Program) -> KernelRuns:
    run = [one for one in executed(program) if one.instruction.price is not None]
    return KernelRuns(sum(one.times for one in run), sum(one.times * (one.instruction.price or 0) for one in run))


def every_collective(program: Program) -> tuple[Collective, ...]:
    run, sent = _stepped(program), []
    for at, (instruction, times, step) in enumerate(run):
        for kind in sends(program, instruction) if times else ():
            done = _done(run, at)
            between = run[at + 1 : done] if program.scheduled else []
            covered = sum(one.times * (one.instruction.cycles or 0) for one in between) // times
            size = bytes_of(run[done].instruction.type)
            sent.append(Collective(instruction.name, kind, step, times, size, done > at, covered))
    return tuple(sent)


def cycles(program: Program) -> tuple[Spent, ...]:
    total = collections.Counter[tuple[int | None, str]]()
    for instruction, times, step in _stepped(program):
        if instruction.cycles:
            total[step, unit(program, instruction)] += instruction.cycles * times
    order = sorted(total, key=lambda key: (-1 if key[0] is None else key[0], UNITS.index(key[1])))
    return tuple(Spent(*key, total[key]) for key in order)


def ops_of(program: Program) -> dict[str, Op | None]:
    ops: dict[str, Op | None] = {}
    for instruction, _, step in _stepped(program):
        ends = instruction.opcode.endswith(("-update", "-done")) and instruction.operands
        started = ops.get(instruction.operands[0]) if ends else None  # of its start's kind
        kind = kind_of(program, instruction)
        ops[instruction.name] = started or (None if kind is None else Op(0 if step is None else step + 1, kind))
    return ops


def kind_of(program: Program, instruction: Instruction) -> str | None:
    """One of KINDS; None for parameters, tuples, loops.

    A fusion is "products" if it contains one, else "fft", else "copies" if it only moves, else "other".
    """
    if instruction.opcode in FREE:
        return None
    if sent := sends(program, instruction):
        return SENT.get(sent[0], "other")
    work = _working(program, instruction)
    in_fft = [bool(_FFT.search(part.op_name or instruction.op_name)) for part in work]
    if any(_multiplies(part) and not inside for part, inside in zip(work, in_fft, strict=True)):
        return "products"
    if any(in_fft) or any(part.opcode == "fft" for part in work):
        return "fft"
    return "other" if work else "copies"


def unit(program: Program, instruction: Instruction) -> str:
    work = _working(program, instruction)
    if any(map(_multiplies, work)):
        return "matrix"
    return "vector" if work else "copy"


def _working(program: Program, instruction: Instruction) -> list[Instruction]:
    parts = [instruction, *program.inside(instruction)]
    names = {part.name: part for part in parts}
    arrays = (part for part in parts if any(shape for _, shape in _arrays(part.type)))
    return [part for part in arrays if not (_moves(part) or _joins(part, names))]


def _multiplies(part: Instruction) -> bool:
    return part.opcode in ("dot", "convolution") or bool(_PRODUCT_CALL.search(part.rest))


def _moves(part: Instruction) -> bool:
    return part.opcode.removesuffix("-start").removesuffix("-done") in _MOVES or bool(_PACK_CALL.search(part.rest))


def _joins(part: Instruction | None, names: Mapping[str, Instruction]) -> bool:
    """True for a TPU's concatenation: the maximum of arrays padded with the least number."""
    if part is None or part.opcode != "maximum":
        return part is not None and part.opcode == "pad"
    return all(_joins(names.get(operand), names) for operand in part.operands)


def bytes_of(type_text: str) -> int:
    """Bytes of a type such as `(f32[2,8]{1,0:T(8,128)}, s8[4])`, without padding."""
    return sum(bits * math.prod(int(n) for n in shape.split(",") if n) for bits, shape in _arrays(type_text)) // 8


def _arrays(type_text: str) -> Iterator[tuple[int, str]]:
    for kind, shape in _ARRAY.findall(type_text):
        digits = kind.lstrip("abcdefghijklmnopqrstuvwxyz")
        yield 8 if kind == "pred" else int(digits or 0), shape


def _stepped(program: Program) -> list[_Stepped]:
    """One run, each instruction with the step in its scopes, else that of the last one at work before it.

    At work: with an estimate, or, in a text without, not free.
    """
    run, stepped, last = executed(program), list[_Stepped](), None
    priced = any(instruction.cycles is not None for instruction, _ in run)
    for instruction, times in run:
        named = _STEP.findall(instruction.op_name)
        stepped.append(_Stepped(instruction, times, int(named[-1]) if named else last))
        busy = instruction.cycles is not None if priced else instruction.opcode not in FREE
        if busy or sends(program, instruction):
            last = stepped[-1].step
    return stepped


def sends(program: Program, instruction: Instruction) -> list[str]:
    own = instruction.opcode.removesuffix("-start")
    if own in COLLECTIVES:
        return [own]
    if own == "recv":  # between slices of TPUs
        how = instruction.attribute(r'_xla_megascale_transfer_type="(\w+)"')
        return [BETWEEN[how]] if how in BETWEEN else []
    if own in FREE:
        return []
    return [part.opcode for part in program.inside(instruction) if part.opcode in COLLECTIVES]


def _done(run: Sequence[_Stepped], at: int) -> int:
    name = run[at].instruction.name
    if not run[at].instruction.starts:
        return at
    for index, (instruction, *_) in enumerate(run[at + 1 :], at + 1):
        if name in instruction.operands and instruction.opcode.endswith("-update"):
            name = instruction.name
        elif name in instruction.operands and instruction.opcode.endswith("-done"):
            return index
    raise ValueError(f"collective {name} is started and never waited for")
